/*
** ring_limits.c: max_bytes and idle_days, the bounds of a whole payload_ring.
**
** max_bytes: a push makes room for its row. It removes the oldest rows of the
** agent whose last push is the longest ago, then those of the next agent, and
** rows of its own agent last. One push removes at most ROLL_ROWS rows; the next
** pushes remove the rest. Rows that are removed count as rolled. No push is
** refused: if holds leave no room, or its row alone is larger, the ring has more
** bytes, and the log says so.
**
** idle_days: a push also removes the rows of idle agents, which count as rolled
** too, and then their rows in <ring>_agents. The receipt is in <ring>_texts.
** If such an agent pushes again, its seq begins at 1.
**
** The time of an agent that has no rows (@_agents.at) is negative.
*/
#include "watch.h"
SQLITE_EXTENSION_INIT3

/* One push handles at most so many: */
#define ROLL_ROWS 100   /* rows to remove */
#define ROLL_AGENTS 100 /* agents to look at */
#define ROLL_LEAVE 10   /* idle agents to remove */

/* A larger number in the tables is damage. */
#define ROLL_SIZE ((i64)1 << 32)   /* more than two bodies can have */
#define ROLL_NUMBER ((i64)1 << 61) /* sums of such numbers do not overflow */

/* What a push may still do. */
typedef struct RingRoom {
  i64 nOver; /* bytes that must still be removed */
  int nRow;
  i64 iKeep; /* the slot that the push writes; -1: none */
} RingRoom;

/* What is not from 0 to iHigh is damage. */
static i64 checked(
    Ring *p, i64 i, i64 iHigh, const char *zSuffix, BxErr *pErr) {
  assert(iHigh > 0);
  if (i >= 0 && i <= iHigh) return i;
  bxRingCorrupt(p, pErr, zSuffix);
  return 0;
}

/* Removes rows of an agent, the oldest first: all of them, or until there is room.
** Omits what is held. Returns whether it has no others. */
static int rollRows(
    Ring *p, RingRoom *pRoom, const RingAgent *pAgent, int bAll, BxErr *pErr) {
  static const char zSql[] =
      "SELECT id, size_bytes FROM main.@_slots WHERE id BETWEEN ?1 AND ?2 "
      "ORDER BY id LIMIT 1";
  i64 iSlot, iLast, nRow = pAgent->nRow;
  int i;
  assert(pRoom->nRow <= ROLL_ROWS);
  for (i = 0; bxRingPart(pAgent, i, &iSlot, &iLast); i++) {
    int bRow = i > 0 || pAgent->bKept;
    while (bRow && pRoom->nRow > 0 && (bAll || pRoom->nOver > 0)) {
      sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
      i64 nByte = 0;
      bxBind(pStmt, pErr, "ii", iSlot, iLast);
      bRow = bxStep(pStmt, pErr);
      if (bRow) {
        iSlot = sqlite3_column_int64(pStmt, 0);
        nByte = checked(
            p, sqlite3_column_int64(pStmt, 1), ROLL_SIZE, "_slots", pErr);
      }
      bxReset(pStmt, pErr);
      if (bRow && iSlot != pRoom->iKeep && !bxRingIsHeld(p, iSlot, pErr)) {
        bxRingRemove(p, iSlot, 0, pErr);
        pRoom->nOver -= nByte;
        pRoom->nRow--;
        if (nRow > 0) nRow--;
      }
      iSlot++;
    }
  }
  return nRow <= 0;
}

/* The next agent in the order of the pushes, after *piTime and below iEnd. */
static int nextAgent(
    Ring *p, i64 *piTime, i64 iEnd, RingAgent *pOut, BxErr *pErr) {
  static const char zSql[] =
      "SELECT no, window, kept, given, rows, at FROM main.@_agents "
      "WHERE at > ?1 AND at < ?2 ORDER BY at LIMIT 1";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  int bRow;
  assert(piTime != 0);
  bxBind(pStmt, pErr, "ii", *piTime, iEnd);
  bRow = bxStep(pStmt, pErr);
  if (bRow) {
    *piTime = sqlite3_column_int64(pStmt, 5);
    bxRingReadAgent(p, pStmt, pOut, pErr);
  }
  bxReset(pStmt, pErr);
  return bRow && pErr->rc == SQLITE_OK;
}

/* An agent without rows leaves, with a receipt. */
static void leave(Ring *p, i64 iNo, BxErr *pErr) {
  static const char zReceipt[] =
      "INSERT INTO main.@_texts SELECT column1, CASE column1 WHEN " RING_LEFT
      " THEN 1 WHEN " RING_LEFT_GIVEN " THEN given WHEN " RING_LEFT_ROLLED
      " THEN rolled WHEN " RING_LEFT_CLEARED " THEN cleared ELSE saved END "
      "FROM main.@_agents, (VALUES(" RING_LEFT "), (" RING_LEFT_GIVEN
      "), (" RING_LEFT_ROLLED "), (" RING_LEFT_CLEARED "), (" RING_LEFT_SAVED
      ")) WHERE no = ?1 "
      "ON CONFLICT(id) DO UPDATE SET body = body + excluded.body";
  static const char zUntil[] =
      "INSERT INTO main.@_texts SELECT " RING_LEFT_LATEST ", abs(at) "
      "FROM main.@_agents WHERE no = ?1 AND at <> 0 "
      "ON CONFLICT(id) DO UPDATE SET body = max(body, excluded.body)";
  static const char zAgent[] = "DELETE FROM main.@_agents WHERE no = ?1";
  bxStmtExec(&p->base.stmts, zReceipt, pErr, "i", iNo);
  bxStmtExec(&p->base.stmts, zUntil, pErr, "i", iNo);
  bxBodyClear(p, iNo, pErr);
  bxStmtExec(&p->base.stmts, zAgent, pErr, "i", iNo);
}

void bxRingMakeRoom(
    Ring *p, RingAgent *pSelf, i64 nMore, i64 iKeep, BxErr *pErr) {
  static const char zBytes[] =
      "SELECT ifnull(" RING_SETTING(RING_BYTES) ", -1)";
  /* What holds on agents keep: the others have max_bytes for themselves. */
  static const char zHeldAgents[] =
      "SELECT sum(bytes + iif(no = ?1, ?2, 0)) FROM main.@_agents WHERE"
      " agent_id IN (SELECT \"key\" FROM main.retention__holds WHERE kind ="
      " 'agent')";
  static const char zLast[] =
      "SELECT max(ifnull(max(at), 0), -ifnull(min(at), 0)) "
      "FROM main.@_agents";
  static const char zEmpty[] =
      "UPDATE main.@_agents SET at = -abs(at) WHERE no = ?1";
  RingRoom room = {0, ROLL_ROWS, iKeep};
  i64 iNow = bxNow(), iIdle = iNow - p->nIdleDay * BX_MS_PER_DAY, iTime, iTurn;
  int nLeave = ROLL_LEAVE, nAgent = ROLL_AGENTS;
  RingAgent agent = {0};
  assert(iKeep >= -1);
  if ((p->nMaxByte == 0 && p->nIdleDay == 0) || pErr->rc != SQLITE_OK) return;
  iTurn = checked(p, bxQueryInt(&p->base.stmts, zLast, pErr, ""), ROLL_NUMBER,
      "_agents", pErr);
  iTurn = iTurn >= iNow ? iTurn + 1 : iNow;
  if (nMore < -ROLL_SIZE || nMore > ROLL_SIZE) {
    bxRingCorrupt(p, pErr, "_slots"); /* the size of the row that goes */
  } else if (p->nMaxByte > 0) {
    room.nOver = checked(p, bxQueryInt(&p->base.stmts, zBytes, pErr, ""),
                     ROLL_NUMBER, "_texts", pErr) +
                 nMore - p->nMaxByte;
    if (p->mWatch & RING_HOLDS) {
      room.nOver -= bxQueryInt(
          &p->base.stmts, zHeldAgents, pErr, "ii", pSelf->iNo, nMore);
    }
  }
  iTime = -iIdle; /* agents without rows come first */
  while (p->nIdleDay > 0 && nLeave > 0 && room.nRow > 0 && nAgent-- > 0 &&
         nextAgent(p, &iTime, iIdle, &agent, pErr)) {
    if (agent.iNo == pSelf->iNo || !rollRows(p, &room, &agent, 1, pErr)) {
      continue;
    }
    leave(p, agent.iNo, pErr);
    nLeave--;
  }
  iTime = 0;
  while (room.nOver > 0 && room.nRow > 0 && nAgent-- > 0 &&
         nextAgent(p, &iTime, ROLL_NUMBER, &agent, pErr)) {
    if (agent.iNo != pSelf->iNo && rollRows(p, &room, &agent, 0, pErr)) {
      bxStmtExec(&p->base.stmts, zEmpty, pErr, "i", agent.iNo);
      bxBodyClear(p, agent.iNo, pErr);
    }
  }
  if (pSelf->iNo != 0) {
    rollRows(p, &room, pSelf, 0, pErr);
    pSelf->iTurn = iTurn;
  }
  p->bNoRoom = iKeep >= 0 && room.nOver > 0 && room.nRow > 0 && nAgent > 0;
}

void bxRingLeave(Ring *p, const char *zAgent, BxErr *pErr) {
  static const char zNext[] =
      "SELECT no FROM main.@_agents WHERE no > ?1 AND rows = 0 "
      "AND coalesce(agent_id = ?2, 1) ORDER BY no LIMIT 1";
  i64 iNo, iLast = 0;
  while ((iNo = bxQueryInt(&p->base.stmts, zNext, pErr, "it", iLast, zAgent)) >
         iLast) {
    leave(p, iNo, pErr);
    iLast = iNo;
  }
}

void bxRingSetLimit(Ring *p, int iOption, i64 iVal, BxErr *pErr) {
  static const char zSet[] = "REPLACE INTO main.@_texts VALUES(-1 - ?1, ?2)";
  static const char zOff[] = "DELETE FROM main.@_texts WHERE id = -1 - ?1";
  static const char zNoSum[] =
      "DELETE FROM main.@_texts WHERE id = " RING_BYTES;
  static const char zNoTurns[] =
      "UPDATE main.@_agents SET at = NULL WHERE at IS NOT NULL";
  /* The times of earlier pushes are not known. So each agent counts as having
  ** pushed now, in the order of their numbers. */
  static const char zTurns[] =
      "UPDATE main.@_agents SET at = iif(rows > 0, 1, -1) * "
      "(?1 + no - (SELECT max(no) FROM main.@_agents))";
  static const char zBytes[] =
      "INSERT INTO main.@_texts "
      "SELECT " RING_BYTES ", coalesce(sum(bytes), 0) FROM main.@_agents";
  RingAgent nobody = {0};
  int bBefore = p->nMaxByte > 0 || p->nIdleDay > 0;
  assert(iVal >= 0);
  if (iVal > 0) {
    bxStmtExec(&p->base.stmts, zSet, pErr, "ii", (i64)iOption, iVal);
  } else {
    bxStmtExec(&p->base.stmts, zOff, pErr, "i", (i64)iOption);
  }
  bxRingReadConfig(p, pErr);
  if (bBefore != (p->nMaxByte > 0 || p->nIdleDay > 0)) {
    bxStmtExec(&p->base.stmts, zNoTurns, pErr, "");
    bxStmtExec(&p->base.stmts, zNoSum, pErr, "");
    if (!bBefore) bxStmtExec(&p->base.stmts, zTurns, pErr, "i", bxNow());
    if (!bBefore) bxStmtExec(&p->base.stmts, zBytes, pErr, "");
  }
  bxRingMakeRoom(p, &nobody, 0, -1, pErr);
}
