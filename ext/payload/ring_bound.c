/*
** ring_bound.c: max_bytes and idle_days, the bounds of a whole payload_ring.
**
** max_bytes: a push makes room for its row. It removes the oldest rows of the
** agent whose last push is the longest ago, then those of the next agent, and
** rows of its own agent last. One push removes at most ROLL_ROWS rows; the next
** pushes remove the rest. Rows that are removed count as rolled. No push is
** refused: if holds leave no room, or its row alone is larger, the ring has more
** bytes, and the log says so.
**
** idle_days: a push also removes the rows of idle agents, which count as rolled
** too, and then their rows in <ring>_agents. The receipt is in <ring>_config.
** If such an agent pushes again, its seq begins at 1.
**
** bxRingChoose() only reads; bxRingRoll() removes what it has chosen. Both are not called for a ring without a bound.
*/
#include "watch.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* One push handles at most so many: */
#define ROLL_ROWS 100  /* rows to remove */
#define ROLL_LEAVE 10  /* idle agents to remove */
#define ROLL_EMPTY 100 /* agents that lose their last row */

/* A larger number in the tables is damage. */
#define ROLL_SIZE ((i64)1 << 32)   /* more than two bodies can have */
#define ROLL_NUMBER ((i64)1 << 62) /* sums of such numbers do not overflow */

/* What a push is going to remove. */
struct RingRoll {
  i64 iTurn;  /* a time later than that of every push so far */
  i64 nOver;  /* bytes that must still be removed */
  i64 iSince; /* agents whose last push was earlier are chosen as idle */
  int nRow, nLeave, nEmpty;
  struct {
    i64 iSlot, nByte;
  } aRow[ROLL_ROWS];      /* the rows of an agent come together */
  i64 aEmpty[ROLL_EMPTY]; /* numbers of agents that lose their last row */
  i64 aLeave[ROLL_LEAVE]; /* numbers of idle agents */
};

/* Column i. A value that is not from 0 to iHigh is damage. */
static i64 rollColumn(Ring *p, sqlite3_stmt *pStmt, int i, i64 iHigh,
    const char *zSuffix, BxErr *pErr) {
  i64 iVal = sqlite3_column_int64(pStmt, i);
  if (iVal >= 0 && iVal <= iHigh) return iVal;
  bxRingCorrupt(p, pErr, zSuffix);
  return 0;
}

/*-------------------------------------------------------------- choice ----*/

/* Chooses rows from slot iFirst to iLast, the oldest first: all of them, or
** until nOver is used up. Omits iKeep, the slot that the push writes, and what is
** held. */
static void choosePart(Ring *p, RingRoll *pOut, i64 iFirst, i64 iLast,
    i64 iKeep, int bAll, BxErr *pErr) {
  static const char zSql[] =
      "SELECT id, size_bytes FROM main.@_slots WHERE id BETWEEN ?1 AND ?2 "
      "ORDER BY id";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  bxBind(pStmt, pErr, "ii", iFirst, iLast);
  while (pOut->nRow < ROLL_ROWS && (bAll || pOut->nOver > 0) &&
         bxRow(pStmt, pErr)) {
    i64 iSlot = sqlite3_column_int64(pStmt, 0);
    i64 nByte = rollColumn(p, pStmt, 1, ROLL_SIZE, "_slots", pErr);
    if (iSlot == iKeep || bxRingIsHeld(p, iSlot, pErr)) continue;
    pOut->aRow[pOut->nRow].iSlot = iSlot;
    pOut->aRow[pOut->nRow++].nByte = nByte;
    pOut->nOver -= nByte;
  }
  bxDone(pStmt, pErr);
}

/* Chooses rows of one agent. Returns whether it has no others. */
static int chooseRows(Ring *p, RingRoll *pOut, const RingAgent *pAgent,
    i64 iKeep, int bAll, BxErr *pErr) {
  int nBefore = pOut->nRow;
  if (pAgent->bParked) {
    choosePart(
        p, pOut, RING_PARK(pAgent), RING_PARK_LAST(pAgent), iKeep, bAll, pErr);
  }
  choosePart(p, pOut, BX_RING_SPLIT(pAgent) + 1, BX_RING_LAST(pAgent), iKeep,
      bAll, pErr);
  choosePart(
      p, pOut, BX_RING_BASE(pAgent), BX_RING_SPLIT(pAgent), iKeep, bAll, pErr);
  return pOut->nRow - nBefore >= pAgent->nRow;
}

/* Agents that may have rows (bFilled) or have none, whose last push was at
** iSince or later, in the order of these pushes. */
static sqlite3_stmt *agentsSince(
    Ring *p, int bFilled, i64 iSince, BxErr *pErr) {
  static const char zSql[] =
      "SELECT a.no, a.window, a.half, a.given, a.rows, t.last "
      "FROM main.@_turns AS t CROSS JOIN main.@_agents AS a "
      "WHERE t.filled = ?1 AND t.last >= ?2 AND a.no = t.no ORDER BY t.last";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  bxBind(pStmt, pErr, "ii", (i64)bFilled, iSince);
  return pStmt;
}

/* Chooses agents whose last push was before iIdle, with their rows. */
static void chooseIdle(Ring *p, RingRoll *pOut, i64 iIdle, int bFilled,
    const RingAgent *pSelf, BxErr *pErr) {
  sqlite3_stmt *pStmt = agentsSince(p, bFilled, 0, pErr);
  RingAgent agent;
  while (pOut->nLeave < ROLL_LEAVE && pOut->nRow < ROLL_ROWS &&
         bxRow(pStmt, pErr)) {
    i64 iLast = rollColumn(p, pStmt, 5, ROLL_NUMBER, "_turns", pErr);
    bxRingReadAgent(p, pStmt, &agent, pErr);
    if (pErr->rc != SQLITE_OK || iLast >= iIdle) break;
    if (agent.iNo == pSelf->iNo) continue;
    if (bFilled) pOut->iSince = iLast + 1;
    if (bFilled && !chooseRows(p, pOut, &agent, -1, 1, pErr)) continue;
    pOut->aLeave[pOut->nLeave++] = agent.iNo;
  }
  bxDone(pStmt, pErr);
}

/* Chooses rows until there is room, those of pSelf last. */
static void chooseOldest(
    Ring *p, RingRoll *pOut, const RingAgent *pSelf, i64 iKeep, BxErr *pErr) {
  sqlite3_stmt *pStmt = agentsSince(p, 1, pOut->iSince, pErr);
  RingAgent agent;
  while (pOut->nOver > 0 && pOut->nRow < ROLL_ROWS &&
         pOut->nEmpty < ROLL_EMPTY && bxRow(pStmt, pErr)) {
    bxRingReadAgent(p, pStmt, &agent, pErr);
    if (pErr->rc != SQLITE_OK) break;
    if (agent.iNo == pSelf->iNo) continue;
    if (!chooseRows(p, pOut, &agent, -1, 0, pErr)) continue;
    pOut->aEmpty[pOut->nEmpty++] = agent.iNo;
  }
  bxDone(pStmt, pErr);
  if (pSelf->iNo != 0 && pOut->nEmpty < ROLL_EMPTY && pOut->nOver > 0) {
    chooseRows(p, pOut, pSelf, iKeep, 0, pErr);
  }
}

/* The bytes of the ring. */
static i64 windowBytes(Ring *p, BxErr *pErr) {
  static const char zSql[] =
      "SELECT value FROM main.@_config WHERE name = 'window_bytes'";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  i64 nByte = 0;
  if (bxRow(pStmt, pErr)) {
    nByte = rollColumn(p, pStmt, 0, ROLL_NUMBER, "_config", pErr);
  } else {
    bxRingCorrupt(p, pErr, "_config");
  }
  bxDone(pStmt, pErr);
  return nByte;
}

/* A time later than that of every push so far. */
static i64 nextTurn(Ring *p, i64 iNow, BxErr *pErr) {
  static const char zSql[] =
      "SELECT max((SELECT coalesce(max(last), 0) FROM main.@_turns "
      "WHERE filled = 0), (SELECT coalesce(max(last), 0) FROM main.@_turns "
      "WHERE filled = 1))";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  i64 iLast = 0;
  if (bxRow(pStmt, pErr)) {
    iLast = rollColumn(p, pStmt, 0, ROLL_NUMBER, "_turns", pErr);
  }
  bxDone(pStmt, pErr);
  return iLast >= iNow ? iLast + 1 : iNow;
}

RingRoll *bxRingChoose(
    Ring *p, const RingAgent *pSelf, i64 nMore, i64 iKeep, BxErr *pErr) {
  RingRoll *pOut = bxNew(sizeof(*pOut), pErr);
  i64 iNow = bxNow();
  if (pOut == 0) return 0;
  pOut->iTurn = nextTurn(p, iNow, pErr);
  if (p->nMaxByte > 0) {
    pOut->nOver = windowBytes(p, pErr) + nMore - p->nMaxByte;
  }
  if (p->nIdleDay > 0) {
    i64 iIdle = iNow - p->nIdleDay * BX_MS_PER_DAY;
    chooseIdle(p, pOut, iIdle, 0, pSelf, pErr);
    chooseIdle(p, pOut, iIdle, 1, pSelf, pErr);
  }
  if (pOut->nOver > 0) {
    chooseOldest(p, pOut, pSelf, iKeep, pErr);
  }
  p->bNoRoom = iKeep >= 0 && pOut->nOver > 0 && pOut->nRow < ROLL_ROWS &&
               pOut->nEmpty < ROLL_EMPTY;
  return pOut;
}

void bxRingTellFull(Ring *p, const RingPush *pPush, BxErr *pErr) {
  if (!p->bNoRoom) return;
  p->bNoRoom = 0;
  bxRingTell(p, pPush,
      "the ring has more than max_bytes: a hold keeps what would go, or this "
      "exchange alone has more",
      pErr);
}

/*------------------------------------------------------------- removal ----*/

static const char zLeftReceipt[] =
    "INSERT INTO main.@_config(name, value) SELECT r.k, CASE r.k "
    "WHEN 'left_agents' THEN 1 WHEN 'left_given' THEN a.given "
    "WHEN 'left_rolled' THEN a.rolled WHEN 'left_cleared' THEN a.cleared "
    "ELSE a.saved END FROM main.@_agents AS a, (SELECT 'left_agents' AS k "
    "UNION ALL SELECT 'left_given' UNION ALL SELECT 'left_rolled' "
    "UNION ALL SELECT 'left_cleared' UNION ALL SELECT 'left_saved') AS r "
    "WHERE a.no = ?1 AND a.rows = 0 "
    "ON CONFLICT(name) DO UPDATE SET value = value + excluded.value";
static const char zLeftUntil[] =
    "INSERT INTO main.@_config(name, value) SELECT 'left_until', last "
    "FROM main.@_turns WHERE no = ?1 "
    "ON CONFLICT(name) DO UPDATE SET value = max(value, excluded.value)";
static const char zLeftAgent[] =
    "DELETE FROM main.@_agents WHERE no = ?1 AND rows = 0";
static const char zLeftTurn[] = "DELETE FROM main.@_turns WHERE no = ?1";
static const char zRingEmpty[] =
    "UPDATE main.@_turns SET filled = 0 WHERE no = ?1";
static const char zRingTurn[] =
    "INSERT INTO main.@_turns(no, filled, last) VALUES(?1, 1, ?2) "
    "ON CONFLICT(no) DO UPDATE SET filled = 1, last = excluded.last";
static const char *const azRoll[] = {
    zLeftReceipt, zLeftUntil, zLeftAgent, zLeftTurn, zRingEmpty, zRingTurn};

/* An agent without rows leaves, with a receipt. */
static void leave(Ring *p, i64 iNo, BxErr *pErr) {
  bxDo(&p->base.stmts, zLeftReceipt, pErr, "i", iNo);
  bxDo(&p->base.stmts, zLeftUntil, pErr, "i", iNo);
  bxDo(&p->base.stmts, zLeftAgent, pErr, "i", iNo);
  bxDo(&p->base.stmts, zLeftTurn, pErr, "i", iNo);
  bxRingForgetSteps(p, iNo, pErr);
}

void bxRingRoll(Ring *p, RingRoll *pRoll, i64 iSelf, BxErr *pErr) {
  sqlite3_stmt *apStmt[6];
  int i, n;
  bxStmtSet(&p->base.stmts, azRoll, 6, apStmt, pErr);
  for (i = 0; i < (pRoll ? pRoll->nRow : 0) && pErr->rc == SQLITE_OK; i += n) {
    RingCount count = {0, 0, 0, 0, 0};
    i64 iNo = pRoll->aRow[i].iSlot >> 16;
    for (n = 0; i + n < pRoll->nRow && pRoll->aRow[i + n].iSlot >> 16 == iNo;
         n++) {
      bxRingDrop(p, pRoll->aRow[i + n].iSlot, pErr);
      count.nByte -= pRoll->aRow[i + n].nByte;
    }
    count.nRolled = n;
    count.nRow = -n;
    bxRingCount(p, iNo, &count, pErr);
  }
  for (i = 0; pErr->rc == SQLITE_OK && i < pRoll->nEmpty; i++) {
    bxDo(&p->base.stmts, zRingEmpty, pErr, "i", pRoll->aEmpty[i]);
  }
  for (i = 0; pErr->rc == SQLITE_OK && i < pRoll->nLeave; i++) {
    leave(p, pRoll->aLeave[i], pErr);
  }
  if (iSelf != 0 && pErr->rc == SQLITE_OK) {
    bxDo(&p->base.stmts, zRingTurn, pErr, "ii", iSelf, pRoll->iTurn);
  }
  sqlite3_free(pRoll);
}

void bxRingLeave(Ring *p, const char *zAgent, BxErr *pErr) {
  static const char zNext[] =
      "SELECT no FROM main.@_agents WHERE no > ?1 AND rows = 0 "
      "AND coalesce(agent_id = ?2, 1) ORDER BY no LIMIT 1";
  sqlite3_stmt *apStmt[6];
  i64 iNo, iLast = 0;
  bxStmtSet(&p->base.stmts, azRoll, 6, apStmt, pErr);
  while (
      (iNo = bxAsk(&p->base.stmts, zNext, pErr, "it", iLast, zAgent)) > iLast) {
    leave(p, iNo, pErr);
    iLast = iNo;
  }
}

/*-------------------------------------------------------------- bounds ----*/

void bxRingSetBound(Ring *p, const char *zOption, i64 iVal, BxErr *pErr) {
  static const char zSet[] =
      "INSERT INTO main.@_config(name, value) VALUES(?1, ?2) "
      "ON CONFLICT(name) DO UPDATE SET value = excluded.value";
  static const char zOff[] = "DELETE FROM main.@_config WHERE name = ?1";
  static const char zHas[] =
      "SELECT EXISTS (SELECT 1 FROM main.@_config WHERE name IN "
      "('max_bytes', 'idle_days')) + 2 * EXISTS (SELECT 1 FROM main.@_config "
      "WHERE name = 'window_bytes')";
  static const char zNoTurns[] = "DELETE FROM main.@_turns";
  /* The times of earlier pushes are not known. So each agent counts as having
  ** pushed now, in the order of their numbers. */
  static const char zTurns[] =
      "INSERT INTO main.@_turns(no, filled, last) SELECT no, 1, ?1 + no - "
      "(SELECT max(no) FROM main.@_agents) FROM main.@_agents";
  static const char zBytes[] =
      "INSERT INTO main.@_config(name, value) "
      "SELECT 'window_bytes', total(bytes) FROM main.@_agents";
  static const char *const azSql[] = {
      zSet, zOff, zHas, zNoTurns, zTurns, zBytes};
  sqlite3_stmt *apStmt[6];
  i64 mHas;
  bxRingWindow(p, pErr);
  bxStmtSet(&p->base.stmts, azSql, 6, apStmt, pErr);
  if (iVal > 0) {
    bxDo(&p->base.stmts, zSet, pErr, "ti", zOption, iVal);
  } else {
    bxDo(&p->base.stmts, zOff, pErr, "t", zOption);
  }
  mHas = bxAsk(&p->base.stmts, zHas, pErr, "");
  if (mHas == 1) { /* its first bound */
    bxDo(&p->base.stmts, zNoTurns, pErr, "");
    bxDo(&p->base.stmts, zTurns, pErr, "i", bxNow());
    bxDo(&p->base.stmts, zBytes, pErr, "");
  } else if (mHas == 2) { /* no bound any more */
    bxDo(&p->base.stmts, zNoTurns, pErr, "");
    bxDo(&p->base.stmts, zOff, pErr, "t", "window_bytes");
  }
  bxRingWindow(p, pErr);
  if (p->nMaxByte > 0 && pErr->rc == SQLITE_OK) {
    static const RingAgent nobody = {0};
    bxRingRoll(p, bxRingChoose(p, &nobody, 0, -1, pErr), 0, pErr);
  }
}
