/*
** ring_sql.c: what a payload_ring does. sql/payload_ring.sql is the manual of
** its tables, which triggers keep right; here are the statements on them.
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define RING_FORMAT 2
#define MAX_NO ((i64)1 << 46)    /* of agents, so that no << 16 fits */
#define MAX_GIVEN ((i64)1 << 62) /* pushes of an agent */

/*---------------------------------------------------- life of a ring ----*/

static void createBound(Ring *p, const char *zOption, i64 iVal, BxErr *pErr) {
  static const char zSql[] = "INSERT INTO main.@_config(k, v) VALUES(?1, ?2)";
  if (iVal > 0) bxDo(&p->base.stmts, zSql, pErr, "ti", zOption, iVal);
}

void bxRingCreate(Ring *p, const RingOptions *pOptions, BxErr *pErr) {
  static const char zSql[] =
      "INSERT INTO main.@_config(k, v) VALUES('window', ?1), ('format', 1)";
  bxShadowCreate(&p->base, pErr);
  bxDo(&p->base.stmts, zSql, pErr, "i", pOptions->nWindow);
  createBound(p, "max_bytes", pOptions->nMaxByte, pErr);
  createBound(p, "idle_days", pOptions->nIdleDay, pErr);
}

void bxRingKnown(BxVtab *p, BxErr *pErr) {
  i64 iFormat = bxNumber(
      &p->stmts, "SELECT v FROM main.@_config WHERE k = 'format'", pErr);
  if (iFormat <= RING_FORMAT) return;
  bxFail(pErr, SQLITE_ERROR,
      "VersionError: ring %s has format %lld, this module knows up to %d; load "
      "a newer blackbox",
      p->stmts.zTable, iFormat, RING_FORMAT);
}

/*------------------------------------------------------------- agents ----*/

void bxRingCorrupt(Ring *p, BxErr *pErr, const char *zSuffix) {
  bxFail(pErr, SQLITE_CORRUPT_VTAB,
      "CorruptedDataError: table %s%s of ring %s holds values that no ring "
      "wrote; SELECT * FROM blackbox_check() tells which",
      p->base.stmts.zTable, zSuffix, p->base.stmts.zTable);
}

void bxRingReadAgent(
    Ring *p, sqlite3_stmt *pStmt, RingAgent *pAgent, BxErr *pErr) {
  pAgent->iNo = sqlite3_column_int64(pStmt, 0);
  pAgent->nWindow = sqlite3_column_int64(pStmt, 1);
  pAgent->iHalf = sqlite3_column_int64(pStmt, 2);
  pAgent->nGiven = sqlite3_column_int64(pStmt, 3);
  pAgent->nRow = sqlite3_column_int64(pStmt, 4);
  if (pAgent->iNo < 1 || pAgent->iNo > MAX_NO || pAgent->nWindow < 1 ||
      pAgent->nWindow > BX_RING_MAX_WINDOW ||
      (pAgent->iHalf != 0 && pAgent->iHalf != 1) || pAgent->nGiven < 0 ||
      pAgent->nGiven > MAX_GIVEN) {
    bxRingCorrupt(p, pErr, "_agents");
    pAgent->iNo = 0; /* nothing may be computed from it */
  }
}

/* All that _config says. */
static void readConfig(Ring *p, BxErr *pErr) {
  static const char zSql[] = "SELECT k, v FROM main.@_config";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  while (bxRow(pStmt, pErr)) {
    const char *zKey = bxColumnText(pStmt, 0, pErr);
    i64 iVal = sqlite3_column_int64(pStmt, 1);
    if (zKey == 0) break;
    if (strcmp(zKey, "window") == 0) p->nWindow = iVal;
    if (strcmp(zKey, "max_bytes") == 0) p->nMaxByte = iVal;
    if (strcmp(zKey, "idle_days") == 0) p->nIdleDay = iVal;
  }
  bxDone(pStmt, pErr);
}

/* The ring's window, and with it its bounds, read once in a transaction: while
** it writes, nobody else can change them. The last row is the window's, unless
** there is a bound: then it has a REAL. */
static i64 readWindow(Ring *p, BxErr *pErr) {
  static const char zSql[] = "SELECT v FROM main.@_config ORDER BY k DESC";
  sqlite3_stmt *pStmt;
  int bBound = 0;
  if (p->nWindow != 0) return p->nWindow;
  p->nMaxByte = p->nIdleDay = 0;
  pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  if (bxRow(pStmt, pErr)) {
    bBound = sqlite3_column_type(pStmt, 0) != SQLITE_INTEGER;
    if (!bBound) p->nWindow = sqlite3_column_int64(pStmt, 0);
  }
  bxDone(pStmt, pErr);
  if (bBound) readConfig(p, pErr);
  if (p->nWindow < 1 || p->nWindow > BX_RING_MAX_WINDOW || p->nMaxByte < 0 ||
      p->nMaxByte > BX_RING_MAX_BYTES || p->nIdleDay < 0 ||
      p->nIdleDay > BX_RING_MAX_IDLE) {
    p->nWindow = 0;
    bxRingCorrupt(p, pErr, "_config");
  }
  return p->nWindow;
}

/* Looks the agent up. */
static void lookUp(
    Ring *p, const char *zAgent, RingAgent *pAgent, BxErr *pErr) {
  static const char zSql[] =
      "SELECT no, window, half, given, rows FROM main.@_agents "
      "WHERE agent_id = ?1";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  memset(pAgent, 0, sizeof(*pAgent));
  pAgent->nAllowed = readWindow(p, pErr);
  bxBind(pStmt, pErr, "t", zAgent);
  if (bxRow(pStmt, pErr)) bxRingReadAgent(p, pStmt, pAgent, pErr);
  bxDone(pStmt, pErr);
}

/* Lays the agent's rows out for the ring's window: one statement. */
static void layOut(
    Ring *p, const char *zAgent, const RingAgent *pAgent, BxErr *pErr) {
  static const char zSql[] =
      "UPDATE main.@_agents SET window = ?2 WHERE agent_id = ?1";
  bxDo(&p->base.stmts, zSql, pErr, "ti", zAgent, pAgent->nAllowed);
}

void bxRingAgent(Ring *p, const char *zAgent, RingAgent *pAgent, BxErr *pErr) {
  lookUp(p, zAgent, pAgent, pErr);
  if (pErr->rc == SQLITE_OK && pAgent->iNo != 0 &&
      pAgent->nWindow != pAgent->nAllowed) {
    layOut(p, zAgent, pAgent, pErr);
    lookUp(p, zAgent, pAgent, pErr);
  }
}

/*--------------------------------------------------------------- reads ----*/

i64 bxRingWindow(Ring *p, BxErr *pErr) {
  p->nWindow = 0; /* this connection may not be writing */
  return readWindow(p, pErr);
}

sqlite3_stmt *bxRingAgents(Ring *p, int bOne, BxErr *pErr) {
  return bxPrepare(&p->base.stmts,
      bOne ? "SELECT no, window, half, given, rows FROM main.@_agents "
             "WHERE agent_id = ?1"
           : "SELECT no, window, half, given, rows FROM main.@_agents "
             "ORDER BY agent_id",
      pErr);
}

#define SLOTS_WHERE                                                            \
  " FROM main.@_slots WHERE id BETWEEN ?1 AND ?2 AND seq > ?3 ORDER BY id "
#define SLOTS_BODIES                                                           \
  "SELECT id, agent_id, event_id, request_body, response_body, timestamp, "    \
  "size_bytes, seq" SLOTS_WHERE
#define SLOTS_HEADS                                                            \
  "SELECT id, agent_id, event_id, NULL, NULL, timestamp, size_bytes, "         \
  "seq" SLOTS_WHERE

sqlite3_stmt *bxRingSlots(Ring *p, int bBodies, int bNewest, BxErr *pErr) {
  const char *zSql = bBodies
                         ? (bNewest ? SLOTS_BODIES "DESC" : SLOTS_BODIES "ASC")
                         : (bNewest ? SLOTS_HEADS "DESC" : SLOTS_HEADS "ASC");
  return bxPrepare(&p->base.stmts, zSql, pErr);
}

/*-------------------------------------------------------------- writes ----*/

static i64 nextNo(Ring *p, BxErr *pErr) {
  static const char zSql[] = "SELECT max(no) FROM main.@_agents";
  i64 iNo = bxAsk(&p->base.stmts, zSql, pErr, "");
  if (iNo < MAX_GIVEN) iNo++;
  if (iNo < 1 || iNo > MAX_NO) bxRingCorrupt(p, pErr, "_agents");
  return iNo;
}

/* Whether the slot of the agent's next push holds a row. A ring that is full
** need not look. */
static int isTaken(Ring *p, const RingAgent *pNext, BxErr *pErr) {
  static const char zSql[] = "SELECT 1 FROM main.@_slots WHERE id = ?1";
  if (pNext->nRow >= pNext->nWindow) return 1;
  return (int)bxAsk(&p->base.stmts, zSql, pErr, "i", BX_RING_SPLIT(pNext));
}

void bxRingPush(Ring *p, const RingPush *pPush, i64 *piRowid, BxErr *pErr) {
  static const char zInsert[] =
      "INSERT INTO main.@_slots(id, seq, timestamp, size_bytes, agent_id, "
      "event_id, request_body, response_body) VALUES(?1,?2,?3,?4,?5,?6,?7,?8)";
  static const char zRewrite[] =
      "UPDATE main.@_slots SET seq = ?2, timestamp = ?3, size_bytes = ?4, "
      "event_id = ?6, request_body = ?7, response_body = ?8 "
      "WHERE id = ?1 AND agent_id = ?5";
  sqlite3_stmt *pStmt;
  RingAgent agent;
  i64 nByte = bxBytes(pPush->pRequest) + bxBytes(pPush->pResponse);
  int bTaken;
  bxRingAgent(p, pPush->zAgent, &agent, pErr);
  if (pErr->rc != SQLITE_OK) return;
  if (agent.iNo == 0) {
    agent.iNo = nextNo(p, pErr);
    agent.nWindow = agent.nAllowed;
    if (pErr->rc != SQLITE_OK) return;
  }
  assert(agent.iNo > 0 && agent.nWindow > 0 && agent.nGiven >= 0);
  agent.nGiven++;
  *piRowid = BX_RING_SPLIT(&agent);
  if (p->nMaxByte > 0 || p->nIdleDay > 0) {
    bxRingPushBound(p, &agent, pPush, nByte, pErr);
    return;
  }
  bTaken = isTaken(p, &agent, pErr);
  pStmt = bxStmt(&p->base.stmts, bTaken ? zRewrite : zInsert, pErr);
  bxBind(pStmt, pErr, "iiiitsss", BX_RING_SPLIT(&agent), agent.nGiven,
      pPush->iTime, nByte, pPush->zAgent, pPush->pEvent, pPush->pRequest,
      pPush->pResponse);
  bxRun(pStmt, pErr);
  if (pErr->rc == SQLITE_OK && sqlite3_changes(p->base.stmts.bx->db) == 0) {
    /* the row there is another agent's, or none */
    bxRingCorrupt(p, pErr, "_slots");
  }
}

void bxRingDelete(Ring *p, i64 iRowid, BxErr *pErr) {
  static const char zSql[] = "DELETE FROM main.@_slots WHERE id = ?1";
  bxDo(&p->base.stmts, zSql, pErr, "i", iRowid);
}

void bxRingSetWindow(Ring *p, i64 nWindow, BxErr *pErr) {
  static const char zSql[] =
      "UPDATE main.@_config SET v = ?1 WHERE k = 'window'";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  assert(nWindow >= 1 && nWindow <= BX_RING_MAX_WINDOW);
  p->nWindow = 0;
  bxBind(pStmt, pErr, "i", nWindow);
  bxRun(pStmt, pErr);
}

void bxRingSetBound(Ring *p, const char *zOption, i64 iVal, BxErr *pErr) {
  static const char zSet[] = "INSERT INTO main.@_config(k, v) VALUES(?1, ?2) "
                             "ON CONFLICT(k) DO UPDATE SET v = excluded.v";
  static const char zOff[] = "DELETE FROM main.@_config WHERE k = ?1";
  sqlite3_stmt *pStmt;
  if (bxShadowIsStale(&p->base, pErr)) bxShadowMend(&p->base, pErr);
  p->nWindow = 0;
  pStmt = bxStmt(&p->base.stmts, iVal > 0 ? zSet : zOff, pErr);
  bxBind(pStmt, pErr, "t", zOption);
  if (iVal > 0) bxBind(pStmt, pErr, "-i", iVal);
  bxRun(pStmt, pErr);
  readWindow(p, pErr);
  if (p->nMaxByte > 0) bxRingTrimBound(p, pErr);
}

void bxRingTakeOut(Ring *p, const char *zAgent, int bSaved, BxErr *pErr) {
  static const char zSql[] =
      "UPDATE main.@_agents SET why = ?2 WHERE agent_id = ?1";
  bxDo(&p->base.stmts, zSql, pErr, "ti", zAgent, (i64)(bSaved ? 2 : 3));
}

void bxRingLock(Ring *p, BxErr *pErr) {
  static const char zSql[] = "UPDATE main.@_config SET v = v WHERE 0";
  /* SQLite does not tell a function that a transaction begins */
  p->nWindow = 0;
  bxRun(bxStmt(&p->base.stmts, zSql, pErr), pErr);
}
