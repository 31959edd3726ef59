/*
** ring_bound.c: max_bytes and idle_days, the bounds of a whole payload_ring.
** The tables and triggers that they need are in sql/payload_ring.sql.
**
** max_bytes: a push makes room for its row. It removes the oldest rows of the
** agent whose last push is the longest ago, then those of the next agent, and
** rows of its own agent last. One push removes at most ROLL_ROWS rows; the next
** pushes remove the rest. Rows that are removed count as rolled.
**
** idle_days: a push also removes the rows of idle agents, which count as rolled
** too, and then their rows in <ring>_agents. The receipt is in <ring>_config.
** If such an agent pushes again, its seq begins at 1.
**
** C chooses what to remove. One statement removes it and writes the row of the
** push, so that a push is done whole or not at all, also inside a transaction.
** These functions are not called for a ring without a bound.
*/
#include "payload.h"
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
typedef struct Choice {
  i64 nOver;  /* bytes that must still be removed */
  i64 iSince; /* agents whose last push was earlier are chosen as idle */
  int nRow, nLeave, nEmpty;
  /* JSON arrays without the "]", which the statement adds */
  sqlite3_str *pRows;  /* ids of the slots to remove */
  sqlite3_str *pEmpty; /* numbers of agents that lose their last row */
  sqlite3_str *pLeave; /* numbers of idle agents */
} Choice;

static void add(sqlite3_str *pList, i64 iVal) {
  sqlite3_str_appendf(
      pList, "%s%lld", sqlite3_str_length(pList) > 0 ? "," : "[", iVal);
}

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
** until nOver is used up. Omits iKeep, the slot that the push writes. */
static void choosePart(Ring *p, Choice *pOut, i64 iFirst, i64 iLast, i64 iKeep,
    int bAll, BxErr *pErr) {
  static const char zSql[] =
      "SELECT id, size_bytes FROM main.@_slots WHERE id BETWEEN ?1 AND ?2 "
      "ORDER BY id";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  bxBind(pStmt, pErr, "ii", iFirst, iLast);
  while (pOut->nRow < ROLL_ROWS && (bAll || pOut->nOver > 0) &&
         bxRow(pStmt, pErr)) {
    if (sqlite3_column_int64(pStmt, 0) == iKeep) continue;
    add(pOut->pRows, sqlite3_column_int64(pStmt, 0));
    pOut->nOver -= rollColumn(p, pStmt, 1, ROLL_SIZE, "_slots", pErr);
    pOut->nRow++;
  }
  bxDone(pStmt, pErr);
}

/* Chooses rows of one agent. Returns whether it has no others. */
static int chooseRows(Ring *p, Choice *pOut, const RingAgent *pAgent, i64 iKeep,
    int bAll, BxErr *pErr) {
  int nBefore = pOut->nRow;
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
      "SELECT a.no, a.window, a.half, a.given, a.rows, a.why, t.last "
      "FROM main.@_turns AS t CROSS JOIN main.@_agents AS a "
      "WHERE t.filled = ?1 AND t.last >= ?2 AND a.no = t.no ORDER BY t.last";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  bxBind(pStmt, pErr, "ii", (i64)bFilled, iSince);
  return pStmt;
}

/* Chooses agents whose last push was before iIdle, with their rows. */
static void chooseIdle(Ring *p, Choice *pOut, i64 iIdle, int bFilled,
    const RingAgent *pSelf, BxErr *pErr) {
  sqlite3_stmt *pStmt = agentsSince(p, bFilled, 0, pErr);
  RingAgent agent;
  while (pOut->nLeave < ROLL_LEAVE && pOut->nRow < ROLL_ROWS &&
         bxRow(pStmt, pErr)) {
    i64 iLast = rollColumn(p, pStmt, 6, ROLL_NUMBER, "_turns", pErr);
    bxRingReadAgent(p, pStmt, &agent, pErr);
    if (pErr->rc != SQLITE_OK || iLast >= iIdle) break;
    if (agent.iNo == pSelf->iNo || agent.bHeld) continue;
    if (bFilled) pOut->iSince = iLast + 1;
    if (bFilled && !chooseRows(p, pOut, &agent, -1, 1, pErr)) break;
    add(pOut->pLeave, agent.iNo);
    pOut->nLeave++;
  }
  bxDone(pStmt, pErr);
}

/* Chooses rows until there is room, those of pSelf last. */
static void chooseOldest(
    Ring *p, Choice *pOut, const RingAgent *pSelf, i64 iKeep, BxErr *pErr) {
  sqlite3_stmt *pStmt = agentsSince(p, 1, pOut->iSince, pErr);
  RingAgent agent;
  while (pOut->nOver > 0 && pOut->nRow < ROLL_ROWS &&
         pOut->nEmpty < ROLL_EMPTY && bxRow(pStmt, pErr)) {
    bxRingReadAgent(p, pStmt, &agent, pErr);
    if (pErr->rc != SQLITE_OK) break;
    if (agent.iNo == pSelf->iNo || agent.bHeld) continue;
    if (!chooseRows(p, pOut, &agent, -1, 0, pErr)) continue;
    add(pOut->pEmpty, agent.iNo);
    pOut->nEmpty++;
  }
  bxDone(pStmt, pErr);
  if (pSelf->iNo != 0 && !pSelf->bHeld && pOut->nEmpty < ROLL_EMPTY) {
    chooseRows(p, pOut, pSelf, iKeep, 0, pErr);
  }
  if (pOut->nOver > 0 && pOut->nRow < ROLL_ROWS && pOut->nEmpty < ROLL_EMPTY) {
    bxRingRefuseHeld(p, 0, pErr);
  }
}

/* The bytes of the ring after the push: without the old row in slot iKeep, and
** with nByte more. */
static i64 bytesWith(Ring *p, i64 iKeep, i64 nByte, BxErr *pErr) {
  static const char zSql[] =
      "SELECT value, (SELECT size_bytes FROM main.@_slots WHERE id = ?1) "
      "FROM main.@_config WHERE name = 'window_bytes'";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  bxBind(pStmt, pErr, "i", iKeep);
  if (bxRow(pStmt, pErr)) {
    nByte += rollColumn(p, pStmt, 0, ROLL_NUMBER, "_config", pErr) -
             rollColumn(p, pStmt, 1, ROLL_SIZE, "_slots", pErr);
  } else {
    bxRingCorrupt(p, pErr, "_config");
  }
  bxDone(pStmt, pErr);
  return nByte;
}

static void choose(Ring *p, Choice *pOut, i64 iNow, const RingAgent *pSelf,
    i64 nByte, BxErr *pErr) {
  i64 iKeep = pSelf->iNo ? BX_RING_SPLIT(pSelf) : -1;
  memset(pOut, 0, sizeof(*pOut));
  pOut->pRows = sqlite3_str_new(p->base.stmts.bx->db);
  pOut->pEmpty = sqlite3_str_new(p->base.stmts.bx->db);
  pOut->pLeave = sqlite3_str_new(p->base.stmts.bx->db);
  if (p->nMaxByte > 0) {
    pOut->nOver = bytesWith(p, iKeep, nByte, pErr) - p->nMaxByte;
  }
  if (p->nIdleDay > 0) {
    i64 iIdle = iNow - p->nIdleDay * BX_MS_PER_DAY;
    chooseIdle(p, pOut, iIdle, 0, pSelf, pErr);
    chooseIdle(p, pOut, iIdle, 1, pSelf, pErr);
  }
  if (pOut->nOver > 0) chooseOldest(p, pOut, pSelf, iKeep, pErr);
}

/*----------------------------------------------------------- statement ----*/

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

static void needLists(const Choice *p, BxErr *pErr) {
  if (sqlite3_str_errcode(p->pRows) || sqlite3_str_errcode(p->pEmpty) ||
      sqlite3_str_errcode(p->pLeave)) {
    bxFail(pErr, SQLITE_NOMEM, "out of memory");
  }
}

/* Writes the row of the push, and removes what was chosen. */
static void rollAndPut(Ring *p, const Choice *pChoice, const RingAgent *pSelf,
    const RingPush *pPush, i64 nByte, i64 iNow, BxErr *pErr) {
  static const char zSql[] =
      "INSERT INTO main.@_bound(id, seq, timestamp, size_bytes, agent_id,"
      "  event_id, request_body, response_body, last, rolled, emptied, leaving)"
      " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10 || ']',?11 || ']',?12 || ']')";
  i64 iTurn = nextTurn(p, iNow, pErr);
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  needLists(pChoice, pErr);
  bxBind(pStmt, pErr, "iiiitsssittt", BX_RING_SPLIT(pSelf), pSelf->nGiven,
      pPush->iTime, nByte, pPush->zAgent, pPush->pEvent, pPush->pRequest,
      pPush->pResponse, iTurn, sqlite3_str_value(pChoice->pRows),
      sqlite3_str_value(pChoice->pEmpty), sqlite3_str_value(pChoice->pLeave));
  bxRun(pStmt, pErr);
}

/* Removes what was chosen. */
static void rollOnly(Ring *p, const Choice *pChoice, BxErr *pErr) {
  static const char zSql[] =
      "INSERT INTO main.@_room(rolled, emptied, leaving) "
      "VALUES(?1 || ']', ?2 || ']', ?3 || ']')";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  needLists(pChoice, pErr);
  bxBind(pStmt, pErr, "ttt", sqlite3_str_value(pChoice->pRows),
      sqlite3_str_value(pChoice->pEmpty), sqlite3_str_value(pChoice->pLeave));
  bxRun(pStmt, pErr);
}

static void freeChoice(Choice *p) {
  sqlite3_free(sqlite3_str_finish(p->pRows));
  sqlite3_free(sqlite3_str_finish(p->pEmpty));
  sqlite3_free(sqlite3_str_finish(p->pLeave));
}

void bxRingRefuseLarge(Ring *p, i64 nByte, BxErr *pErr) {
  const char *zRing = p->base.stmts.zTable;
  if (p->nMaxByte == 0 || nByte <= p->nMaxByte) return;
  bxFail(pErr, SQLITE_CONSTRAINT, /* FULL would end the transaction */
      "QuotaExceededError: the bodies have %lld bytes, and the whole ring %s "
      "may have max_bytes=%lld; allow more with INSERT INTO \"%w\"(\"%w\", "
      "value) VALUES('max_bytes', ...)",
      nByte, zRing, p->nMaxByte, zRing, zRing);
}

void bxRingPushBound(Ring *p, const RingAgent *pSelf, const RingPush *pPush,
    i64 nByte, BxErr *pErr) {
  i64 iNow = bxNow();
  Choice choice;
  choose(p, &choice, iNow, pSelf, nByte, pErr);
  rollAndPut(p, &choice, pSelf, pPush, nByte, iNow, pErr);
  freeChoice(&choice);
}

void bxRingTrimBound(Ring *p, BxErr *pErr) {
  static const RingAgent nobody = {0, 0, 0, 0, 0, 0, 0};
  Choice choice;
  choose(p, &choice, bxNow(), &nobody, 0, pErr);
  rollOnly(p, &choice, pErr);
  freeChoice(&choice);
}
