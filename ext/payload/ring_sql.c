/*
** ring_sql.c: the statements that a payload_ring runs on its own tables.
** sql/payload_ring.sql describes the tables, and has the triggers that keep the
** counters exact.
*/
#include "watch.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define RING_FORMAT 1
#define RING_HELD 8              /* why of an agent that a hold may keep */
#define MAX_NO ((i64)1 << 46)    /* number of an agent: no << 16 must fit */
#define MAX_GIVEN ((i64)1 << 62) /* pushes of an agent */

/*---------------------------------------------------- life of a ring ----*/

static void createBound(Ring *p, const char *zOption, i64 iVal, BxErr *pErr) {
  static const char zSql[] =
      "INSERT INTO main.@_config(name, value) VALUES(?1, ?2)";
  if (iVal > 0) bxDo(&p->base.stmts, zSql, pErr, "ti", zOption, iVal);
}

void bxRingCreate(Ring *p, const RingOptions *pOptions, BxErr *pErr) {
  static const char zSql[] = "INSERT INTO main.@_config(name, value) "
                             "VALUES('window', ?1), ('format', 1)";
  bxShadowCreate(&p->base, pErr);
  bxDo(&p->base.stmts, zSql, pErr, "i", pOptions->nWindow);
  createBound(p, "max_bytes", pOptions->nMaxByte, pErr);
  createBound(p, "idle_days", pOptions->nIdleDay, pErr);
}

void bxRingKnown(BxVtab *p, BxErr *pErr) {
  i64 iFormat = bxNumber(
      &p->stmts, "SELECT value FROM main.@_config WHERE name = 'format'", pErr);
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
  pAgent->bHeld = sqlite3_column_int64(pStmt, 5) == RING_HELD;
  if (pAgent->iNo < 1 || pAgent->iNo > MAX_NO || pAgent->nWindow < 1 ||
      pAgent->nWindow > BX_RING_MAX_WINDOW ||
      (pAgent->iHalf != 0 && pAgent->iHalf != 1) || pAgent->nGiven < 0 ||
      pAgent->nGiven > MAX_GIVEN) {
    bxRingCorrupt(p, pErr, "_agents");
    pAgent->iNo = 0; /* nothing may be computed from it */
  }
}

/* Reads the window and the bounds from _config. */
static void readConfig(Ring *p, BxErr *pErr) {
  static const char zSql[] = "SELECT name, value FROM main.@_config";
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

/* Reads the first row of _config in descending order of its keys. If the schema
** has rules, zSql has a second column, which says what is on. Returns how often
** SQLite has prepared the query again. */
static int readFirst(Ring *p, const char *zSql, int *pbBound, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  int nPrepared = 0;
  *pbBound = 0;
  if (bxRow(pStmt, pErr)) {
    *pbBound = sqlite3_column_type(pStmt, 0) != SQLITE_INTEGER;
    if (!*pbBound) p->nWindow = sqlite3_column_int64(pStmt, 0);
    if (p->eRules > 0) p->mWatch = sqlite3_column_int(pStmt, 1);
  }
  if (pErr->rc == SQLITE_OK) {
    nPrepared = sqlite3_stmt_status(pStmt, SQLITE_STMTSTATUS_REPREPARE, 0);
  }
  bxDone(pStmt, pErr);
  return nPrepared;
}

/* The same with a query of one column, while what is on cannot have changed. */
static void readKept(Ring *p, const char *zSql, int *pbBound, BxErr *pErr) {
  int eRules = p->eRules;
  p->eRules = -1; /* the query has one column */
  readFirst(p, zSql, pbBound, pErr);
  p->eRules = eRules;
}

/* Reads the window, and what is on. Whether there are rules can change only
** with the schema, and then SQLite prepares the query again. So a ring that had
** no rules looks for them only after that. */
static void readWatched(Ring *p, int *pbBound, BxErr *pErr) {
  static const char zSql[] =
      "SELECT value FROM main.@_config ORDER BY name DESC";
  BxErr err = {SQLITE_OK, 0};
  int nPrepared = 0;
  if (p->eRules > 0 && bxRingIsLooked(p)) {
    readKept(p, zSql, pbBound, pErr);
    return;
  }
  if (p->eRules > 0) {
    readFirst(p, bxRingConfigWatched, pbBound, &err);
    if (err.rc != SQLITE_ERROR) {
      bxPass(pErr, &err);
      return;
    }
    bxClear(&err); /* the rules were removed */
    p->eRules = p->mWatch = 0;
  }
  if (p->eRules < 0) nPrepared = readFirst(p, zSql, pbBound, pErr);
  if (p->eRules < 0 && nPrepared == p->nPrepared) return;
  p->nPrepared = nPrepared;
  p->eRules = bxRingHasRules(p, pErr) ? 1 : -1;
  if (pErr->rc != SQLITE_OK) {
    p->eRules = 0;
    return;
  }
  readFirst(p, p->eRules > 0 ? bxRingConfigWatched : zSql, pbBound, pErr);
}

/* Reads the ring's window and bounds, once in a transaction: while it writes,
** nobody else can change them. The key that comes last is 'window' in a ring
** without a bound, and 'window_bytes', whose value is a REAL, in one with a
** bound. */
static i64 readWindow(Ring *p, BxErr *pErr) {
  int bBound = 0;
  if (p->nWindow != 0 || pErr->rc != SQLITE_OK) return p->nWindow;
  p->nMaxByte = p->nIdleDay = 0;
  readWatched(p, &bBound, pErr);
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
      "SELECT no, window, half, given, rows, why FROM main.@_agents "
      "WHERE agent_id = ?1";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  memset(pAgent, 0, sizeof(*pAgent));
  pAgent->nAllowed = readWindow(p, pErr);
  bxBind(pStmt, pErr, "t", zAgent);
  if (bxRow(pStmt, pErr)) bxRingReadAgent(p, pStmt, pAgent, pErr);
  bxDone(pStmt, pErr);
}

/* Moves the agent's rows to where the ring's window wants them. A trigger does
** it, in this one statement. */
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
      bOne ? "SELECT no, window, half, given, rows, why FROM main.@_agents "
             "WHERE agent_id = ?1"
           : "SELECT no, window, half, given, rows, why FROM main.@_agents "
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

/* Whether the slot of the agent's next push holds a row. If the agent's window
** is full, it does, and no query is needed. */
static int isTaken(Ring *p, const RingAgent *pNext, BxErr *pErr) {
  static const char zSql[] = "SELECT 1 FROM main.@_slots WHERE id = ?1";
  if (pNext->nRow >= pNext->nWindow) return 1;
  return (int)bxAsk(&p->base.stmts, zSql, pErr, "i", BX_RING_SPLIT(pNext));
}

char *bxRingHolder(Ring *p, i64 iNo, BxErr *pErr) {
  static const char zSql[] =
      "SELECT f.kind || ' ' || f.\"key\" || ' is held by ' || f.owner "
      "FROM main.retention__holds AS f "
      "WHERE (f.kind = 'buffer' AND f.\"key\" = lower(?1)) OR EXISTS (SELECT 1 "
      "FROM main.@_slots AS s WHERE s.id BETWEEN ?2 AND ?3 AND CASE f.kind "
      "WHEN 'agent' THEN s.agent_id WHEN 'event' THEN s.event_id END "
      "= f.\"key\") ORDER BY f.step LIMIT 1";
  BxStmts *pStmts = &p->base.stmts;
  sqlite3_stmt *pStmt;
  char *zHolder = 0;
  if (!bxShadowIsGuarded(&p->base, pErr)) return 0;
  pStmt = bxPrepare(pStmts, zSql, pErr); /* rare, so it is not kept */
  bxBind(pStmt, pErr, "tii", pStmts->zTable, iNo << 16,
      iNo ? (iNo << 16) + 65535 : (i64)1 << 62);
  if (bxRow(pStmt, pErr)) zHolder = bxColumnCopy(pStmt, 0, pErr);
  sqlite3_finalize(pStmt);
  return zHolder;
}

int bxRingRefuseHeld(Ring *p, i64 iNo, BxErr *pErr) {
  char *zHolder = bxRingHolder(p, iNo, pErr);
  const char *zRing = p->base.stmts.zTable;
  if (zHolder == 0) return 0;
  bxFail(pErr, SQLITE_CONSTRAINT,
      "HeldError: ring %s is full, and what it would roll out is held: %s; "
      "allow more with INSERT INTO \"%w\"(\"%w\", value) VALUES('window' or "
      "'max_bytes', ...), or end the hold with retention_release()",
      zRing, zHolder, zRing, zRing);
  sqlite3_free(zHolder);
  return 1;
}

/* A push to an agent that a hold may keep, into a slot that is taken. If no hold
** is in force any more, the push goes on. */
static void checkHeld(
    Ring *p, const char *zAgent, const RingAgent *pAgent, BxErr *pErr) {
  static const char zFree[] =
      "UPDATE main.@_agents SET why = 0 WHERE agent_id = ?1";
  if (!bxRingRefuseHeld(p, pAgent->iNo, pErr)) {
    bxDo(&p->base.stmts, zFree, pErr, "t", zAgent);
  }
}

/* Writes the row of a push into a ring without a bound. */
static void putSlot(Ring *p, const RingAgent *pNext, const RingPush *pPush,
    i64 nByte, BxErr *pErr) {
  static const char zInsert[] =
      "INSERT INTO main.@_slots(id, seq, timestamp, size_bytes, agent_id, "
      "event_id, request_body, response_body) VALUES(?1,?2,?3,?4,?5,?6,?7,?8)";
  static const char zRewrite[] =
      "UPDATE main.@_slots SET seq = ?2, timestamp = ?3, size_bytes = ?4, "
      "event_id = ?6, request_body = ?7, response_body = ?8 "
      "WHERE id = ?1 AND agent_id = ?5";
  int bTaken = isTaken(p, pNext, pErr);
  sqlite3_stmt *pStmt =
      bxStmt(&p->base.stmts, bTaken ? zRewrite : zInsert, pErr);
  bxBind(pStmt, pErr, "iiiitsss", BX_RING_SPLIT(pNext), pNext->nGiven,
      pPush->iTime, nByte, pPush->zAgent, pPush->pEvent, pPush->pRequest,
      pPush->pResponse);
  bxRun(pStmt, pErr);
  if (pErr->rc == SQLITE_OK && sqlite3_changes(p->base.stmts.bx->db) == 0) {
    /* the slot has a row of another agent, or none, though it should */
    bxRingCorrupt(p, pErr, "_slots");
  }
}

/* Writes the row of a push. */
static void putExchange(
    Ring *p, const RingAgent *pNext, const RingPush *pPush, BxErr *pErr) {
  i64 nByte = bxBytes(pPush->pRequest) + bxBytes(pPush->pResponse);
  if (pErr->rc != SQLITE_OK) return;
  if (p->nMaxByte > 0 || p->nIdleDay > 0) {
    bxRingPushBound(p, pNext, pPush, nByte, pErr);
  } else {
    putSlot(p, pNext, pPush, nByte, pErr);
  }
}

/* Whether a hold may keep rows of an agent that has made its first push. */
static int isHeld(Ring *p, const char *zAgent, BxErr *pErr) {
  static const char zWhy[] =
      "SELECT why FROM main.@_agents WHERE agent_id = ?1";
  return bxAsk(&p->base.stmts, zWhy, pErr, "t", zAgent) == RING_HELD;
}

/* What a hold keeps of the row is noted. That it is not never refuses a push. */
static void noteHeld(Ring *p, i64 iSlot, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  if (pErr->rc != SQLITE_OK) return;
  bxRingLogHeld(p, iSlot, &err);
  if (bxMayPassOver(&p->base.stmts, &err)) bxClear(&err);
  bxPass(pErr, &err);
}

void bxRingPush(Ring *p, const RingPush *pPush, i64 *piRowid, BxErr *pErr) {
  RingAgent agent;
  bxRingLookTemp(p, pErr);
  readWindow(p, pErr);
  bxRingRefuseLarge(
      p, bxBytes(pPush->pRequest) + bxBytes(pPush->pResponse), pErr);
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
  if (agent.bHeld && isTaken(p, &agent, pErr)) {
    checkHeld(p, pPush->zAgent, &agent, pErr);
  }
  if (p->mWatch != 0) {
    Watched watched;
    bxRingWatch(p, &agent, pPush, &watched, pErr);
    putExchange(p, &agent, pPush, pErr);
    bxRingWatched(p, pPush, &watched, pErr);
  } else {
    putExchange(p, &agent, pPush, pErr);
  }
  if (agent.bHeld || (agent.nGiven == 1 && isHeld(p, pPush->zAgent, pErr))) {
    noteHeld(p, *piRowid, pErr);
  }
  bxRingLooked(p);
}

void bxRingDelete(Ring *p, i64 iRowid, BxErr *pErr) {
  static const char zSql[] = "DELETE FROM main.@_slots WHERE id = ?1";
  bxDo(&p->base.stmts, zSql, pErr, "i", iRowid);
}

void bxRingSetWindow(Ring *p, i64 nWindow, BxErr *pErr) {
  static const char zSql[] =
      "UPDATE main.@_config SET value = ?1 WHERE name = 'window'";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  assert(nWindow >= 1 && nWindow <= BX_RING_MAX_WINDOW);
  p->nWindow = 0;
  bxBind(pStmt, pErr, "i", nWindow);
  bxRun(pStmt, pErr);
}

static void writeBound(Ring *p, const char *zOption, i64 iVal, BxErr *pErr) {
  static const char zSet[] =
      "INSERT INTO main.@_config(name, value) VALUES(?1, ?2) "
      "ON CONFLICT(name) DO UPDATE SET value = excluded.value";
  static const char zOff[] = "DELETE FROM main.@_config WHERE name = ?1";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, iVal > 0 ? zSet : zOff, pErr);
  bxBind(pStmt, pErr, "t", zOption);
  if (iVal > 0) bxBind(pStmt, pErr, "-i", iVal);
  bxRun(pStmt, pErr);
  p->nWindow = 0;
}

/* What the bound would remove may be held, of which only the removal tells. Then the
** bound is set back: so nothing was written, and the transaction can go on. */
void bxRingSetBound(Ring *p, const char *zOption, i64 iVal, BxErr *pErr) {
  Bx *bx = p->base.stmts.bx;
  BxErr back = {SQLITE_OK, 0};
  int bWritten = bx->bWritten;
  i64 iOld;
  p->nWindow = 0;
  readWindow(p, pErr);
  iOld = strcmp(zOption, "max_bytes") == 0 ? p->nMaxByte : p->nIdleDay;
  writeBound(p, zOption, iVal, pErr);
  readWindow(p, pErr);
  if (p->nMaxByte > 0) bxRingTrimBound(p, pErr);
  if ((pErr->rc & 0xff) != SQLITE_CONSTRAINT) return;
  writeBound(p, zOption, iOld, &back);
  if (back.rc == SQLITE_OK) bx->bWritten = bWritten;
  bxClear(&back);
}

void bxRingTakeOut(Ring *p, const char *zAgent, int bSaved, BxErr *pErr) {
  static const char zSql[] =
      "UPDATE main.@_agents SET why = ?2 WHERE agent_id = ?1";
  bxDo(&p->base.stmts, zSql, pErr, "ti", zAgent, (i64)(bSaved ? 2 : 3));
}

void bxRingLock(Ring *p, BxErr *pErr) {
  static const char zSql[] = "UPDATE main.@_config SET value = value WHERE 0";
  /* A function is not told that a transaction begins: the window must be read
  ** again. */
  p->nWindow = 0;
  bxRun(bxStmt(&p->base.stmts, zSql, pErr), pErr);
}
