/*
** ring_sql.c: what a payload_ring does with its tables: agents and their counters,
** the window, pushes. sql/payload_ring.sql describes the tables, ring_body.c that
** of the exchanges, ring_bound.c the bounds of the whole ring.
**
** Each of these functions checks all that can be refused before its first write
** (write.c). What can fail beside the record comes after it, and is passed over.
*/
#include "watch.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define RING_FORMAT 1
#define MAX_NO ((i64)1 << 46)    /* number of an agent: no << 16 must fit */
#define MAX_GIVEN ((i64)1 << 62) /* pushes of an agent */
#define TRIM_AGENTS 100          /* that a smaller window trims at once */

#define AGENT_COLUMNS "no, window, half, given, rows"

/*------------------------------------------------------ life of a ring ----*/

void bxRingCreate(Ring *p, const RingOptions *pOptions, BxErr *pErr) {
  static const char zSql[] = "INSERT INTO main.@_config(name, value) "
                             "VALUES('window', ?1), ('format', 1)";
  bxInstallMissing(p->base.stmts.bx, p->base.stmts.zDb, "payload", pErr);
  bxShadowCreate(&p->base, pErr);
  bxDo(&p->base.stmts, zSql, pErr, "i", pOptions->nWindow);
  if (pOptions->nMaxByte > 0) {
    bxRingSetBound(p, "max_bytes", pOptions->nMaxByte, pErr);
  }
  if (pOptions->nIdleDay > 0) {
    bxRingSetBound(p, "idle_days", pOptions->nIdleDay, pErr);
  }
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

void bxRingCorrupt(Ring *p, BxErr *pErr, const char *zSuffix) {
  bxFail(pErr, SQLITE_CORRUPT_VTAB,
      "CorruptedDataError: table %s%s of ring %s holds values that no ring "
      "wrote; SELECT * FROM blackbox_check() tells which",
      p->base.stmts.zTable, zSuffix, p->base.stmts.zTable);
}

/*--------------------------------------------------------- the settings ----*/

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

/* Reads the first row of _config in descending order of its keys, and with a
** second column what is on. Returns how often SQLite has prepared the query
** again. */
static int readFirst(
    Ring *p, const char *zSql, int bFlags, int *pbBound, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  int nPrepared = 0;
  *pbBound = 0;
  if (bxRow(pStmt, pErr)) {
    *pbBound = sqlite3_column_type(pStmt, 0) != SQLITE_INTEGER;
    if (!*pbBound) p->nWindow = sqlite3_column_int64(pStmt, 0);
    if (bFlags) p->mWatch = sqlite3_column_int(pStmt, 1);
  }
  if (pErr->rc == SQLITE_OK) {
    nPrepared = sqlite3_stmt_status(pStmt, SQLITE_STMTSTATUS_REPREPARE, 0);
  }
  bxDone(pStmt, pErr);
  return nPrepared;
}

/* Reads the window, and what is on. Whether there are rules and holds can change
** only with the schema, and then SQLite prepares the query again. So a ring that
** had none looks for them only after that. */
static void readWatched(Ring *p, int *pbBound, BxErr *pErr) {
  static const char zSql[] =
      "SELECT value FROM main.@_config ORDER BY name DESC";
  BxErr err = {SQLITE_OK, 0};
  int nPrepared = 0;
  if (p->eRules > 0 && bxRingIsLooked(p)) {
    readFirst(p, zSql, 0, pbBound, pErr);
    return;
  }
  if (p->eRules > 0) {
    readFirst(p, bxRingConfigSql(p->eRules), 1, pbBound, &err);
    if (err.rc != SQLITE_ERROR) {
      bxPass(pErr, &err);
      return;
    }
    bxClear(&err); /* the tables were removed */
    p->eRules = p->mWatch = 0;
  }
  if (p->eRules < 0) nPrepared = readFirst(p, zSql, 0, pbBound, pErr);
  if (p->eRules < 0 && nPrepared == p->nPrepared) return;
  p->nPrepared = nPrepared;
  p->eRules = bxRingHasRules(p, pErr);
  if (pErr->rc != SQLITE_OK) {
    p->eRules = 0;
    return;
  }
  if (p->eRules > 0) {
    readFirst(p, bxRingConfigSql(p->eRules), 1, pbBound, &err);
    if (err.rc != SQLITE_ERROR) {
      bxPass(pErr, &err);
      return;
    }
    bxClear(&err); /* some of them are there, but not all */
    p->eRules = -1;
    p->mWatch = 0;
  }
  readFirst(p, zSql, 0, pbBound, pErr);
}

/* Reads the ring's window and bounds, and what is on: once in a transaction, and
** again if this connection has changed something else than the ring. While it
** writes, nobody else can change them. (A statement counts its last row at its
** end.) */
static i64 readWindow(Ring *p, BxErr *pErr) {
  int nChange = sqlite3_total_changes(p->base.stmts.bx->db), bBound = 0;
  if (pErr->rc != SQLITE_OK) return p->nWindow;
  if (p->nWindow != 0 && (nChange == p->nSeen || nChange == p->nSeen - 1)) {
    return p->nWindow;
  }
  p->nSeen = nChange;
  p->nWindow = p->nMaxByte = p->nIdleDay = 0;
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

i64 bxRingWindow(Ring *p, BxErr *pErr) {
  p->nWindow = 0; /* this connection may not be writing */
  return readWindow(p, pErr);
}

void bxRingLock(Ring *p, BxErr *pErr) {
  static const char zSql[] = "UPDATE main.@_config SET value = value WHERE 0";
  bxRun(bxStmt(&p->base.stmts, zSql, pErr), pErr);
  /* a function is not told that a transaction begins */
  bxRingWindow(p, pErr);
}

/*---------------------------------------------------------------- agents ----*/

void bxRingReadAgent(
    Ring *p, sqlite3_stmt *pStmt, RingAgent *pAgent, BxErr *pErr) {
  pAgent->iNo = sqlite3_column_int64(pStmt, 0);
  pAgent->nWindow = sqlite3_column_int64(pStmt, 1);
  pAgent->iHalf = sqlite3_column_int64(pStmt, 2) & 1;
  pAgent->bParked = sqlite3_column_int64(pStmt, 2) >> 1;
  pAgent->nGiven = sqlite3_column_int64(pStmt, 3);
  pAgent->nRow = sqlite3_column_int64(pStmt, 4);
  if (pAgent->iNo < 1 || pAgent->iNo > MAX_NO || pAgent->nWindow < 1 ||
      pAgent->nWindow > BX_RING_MAX_WINDOW ||
      (pAgent->bParked != 0 && pAgent->bParked != 1) || pAgent->nGiven < 0 ||
      pAgent->nGiven > MAX_GIVEN) {
    bxRingCorrupt(p, pErr, "_agents");
    pAgent->iNo = 0; /* nothing may be computed from it */
  }
}

void bxRingAgent(Ring *p, const char *zAgent, RingAgent *pAgent, BxErr *pErr) {
  static const char zSql[] =
      "SELECT " AGENT_COLUMNS " FROM main.@_agents WHERE agent_id = ?1";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  memset(pAgent, 0, sizeof(*pAgent));
  pAgent->nAllowed = readWindow(p, pErr);
  bxBind(pStmt, pErr, "t", zAgent);
  if (bxRow(pStmt, pErr)) bxRingReadAgent(p, pStmt, pAgent, pErr);
  bxDone(pStmt, pErr);
}

sqlite3_stmt *bxRingAgents(Ring *p, int bOne, BxErr *pErr) {
  return bxPrepare(&p->base.stmts,
      bOne ? "SELECT " AGENT_COLUMNS " FROM main.@_agents WHERE agent_id = ?1"
           : "SELECT " AGENT_COLUMNS " FROM main.@_agents ORDER BY agent_id",
      pErr);
}

static const char zCountAgent[] =
    "UPDATE main.@_agents SET rolled = rolled + ?2, cleared = cleared + ?3, "
    "saved = saved + ?4, rows = rows + ?5, bytes = bytes + ?6 WHERE no = ?1";
static const char zCountRing[] =
    "UPDATE main.@_config SET value = value + ?1 WHERE name = 'window_bytes'";

static void countRing(Ring *p, i64 nByte, BxErr *pErr) {
  if (p->nMaxByte == 0 && p->nIdleDay == 0) return;
  bxDo(&p->base.stmts, zCountRing, pErr, "i", nByte);
}

void bxRingCount(Ring *p, i64 iNo, const RingCount *pCount, BxErr *pErr) {
  bxDo(&p->base.stmts, zCountAgent, pErr, "iiiiii", iNo, pCount->nRolled,
      pCount->nCleared, pCount->nSaved, pCount->nRow, pCount->nByte);
  countRing(p, pCount->nByte, pErr);
}

/*----------------------------------------------------------------- holds ----*/

/* Holds on the rows with an id from ?1 to ?2 and a seq up to ?3. */
#define HELD_BY(kind, key)                                                     \
  "SELECT f.kind || ' ' || f.\"key\" || ' is held by ' || f.owner "            \
  "FROM main.@_slots AS s CROSS JOIN main.retention__holds AS f "              \
  "WHERE s.id BETWEEN ?1 AND ?2 AND s.seq <= ?3 "                              \
  "AND f.kind = '" kind "' AND f.\"key\" = " key

char *bxRingHolder(Ring *p, i64 iFirst, i64 iLast, i64 iSeq, BxErr *pErr) {
  static const char zSql[] = HELD_BY(
      "agent", "s.agent_id") " UNION ALL " HELD_BY("event",
      "s.event_id") " UNION ALL " HELD_BY("buffer", "lower('@')") " LIMIT 1";
  sqlite3_stmt *pStmt;
  char *zHolder = 0;
  if (!(p->mWatch & RING_HOLDS)) return 0;
  pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  bxBind(pStmt, pErr, "iii", iFirst, iLast, iSeq);
  if (bxRow(pStmt, pErr)) zHolder = bxColumnCopy(pStmt, 0, pErr);
  bxDone(pStmt, pErr);
  return zHolder;
}

void bxRingRefuseHeld(Ring *p, i64 iFirst, i64 iLast, BxErr *pErr) {
  char *zHolder = bxRingHolder(p, iFirst, iLast, MAX_GIVEN, pErr);
  if (zHolder != 0) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "HeldError: a hold keeps this exchange, which cannot be deleted: %s; "
        "SELECT * FROM retention_holds lists the holds, and "
        "retention_release() ends one",
        zHolder);
  }
  sqlite3_free(zHolder);
}

int bxRingIsHeld(Ring *p, i64 iSlot, BxErr *pErr) {
  char *zHolder = bxRingHolder(p, iSlot, iSlot, MAX_GIVEN, pErr);
  sqlite3_free(zHolder);
  return zHolder != 0;
}

/* A row that is held and would be rolled out moves into a place of its own. */
static const char zPark[] = "UPDATE main.@_slots SET id = ?2 WHERE id = ?1";
static const char zParked[] =
    "UPDATE main.@_agents SET half = half & 1 | 2 * ?2 WHERE no = ?1";

static i64 nextPark(Ring *p, const RingAgent *pAgent, BxErr *pErr) {
  static const char zSql[] = "SELECT ifnull(max(id) + 1, ?1) FROM main.@_slots "
                             "WHERE id BETWEEN ?1 AND ?2";
  i64 iLast = RING_PARK_LAST(pAgent);
  i64 iPark = bxAsk(&p->base.stmts, zSql, pErr, "ii", RING_PARK(pAgent), iLast);
  if (iPark > iLast) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "HeldError: ring %s has as many exchanges of an agent beyond its "
        "window "
        "as it can have, and holds keep them; end a hold with "
        "retention_release()",
        p->base.stmts.zTable);
  }
  return iPark;
}

static void park(Ring *p, RingAgent *pAgent, i64 iSlot, BxErr *pErr) {
  i64 iPark = nextPark(p, pAgent, pErr);
  bxDo(&p->base.stmts, zPark, pErr, "ii", iSlot, iPark);
  if (!pAgent->bParked) {
    bxDo(&p->base.stmts, zParked, pErr, "ii", pAgent->iNo, (i64)1);
  }
  pAgent->bParked = 1;
}

/* At most two rows roll out that were parked and are not held any more. */
static void unpark(Ring *p, RingAgent *pAgent, BxErr *pErr) {
  static const char zSql[] =
      "SELECT id, size_bytes FROM main.@_slots WHERE id BETWEEN ?1 AND ?2 "
      "AND id > ?3 ORDER BY id LIMIT 1";
  RingCount count = {0, 0, 0, 0, 0};
  i64 iSlot = 0;
  int i, bRow = 1;
  for (i = 0; i < 2 && pErr->rc == SQLITE_OK; i++) {
    sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
    i64 nByte = 0;
    bxBind(
        pStmt, pErr, "iii", RING_PARK(pAgent), RING_PARK_LAST(pAgent), iSlot);
    bRow = bxRow(pStmt, pErr);
    if (bRow) {
      iSlot = sqlite3_column_int64(pStmt, 0);
      nByte = sqlite3_column_int64(pStmt, 1);
    }
    bxDone(pStmt, pErr);
    if (!bRow || bxRingIsHeld(p, iSlot, pErr)) break;
    bxRingDrop(p, iSlot, pErr);
    count.nRolled++;
    count.nRow--;
    count.nByte -= nByte;
  }
  if (count.nRolled > 0) bxRingCount(p, pAgent->iNo, &count, pErr);
  if (!bRow && i == 0) {
    bxDo(&p->base.stmts, zParked, pErr, "ii", pAgent->iNo, (i64)0);
    pAgent->bParked = 0;
  }
}

/*---------------------------------------------------------------- window ----*/

/* Parks what is held of the rows that a window trims. */
static void parkTrimmed(Ring *p, RingAgent *pAgent, i64 nWindow, BxErr *pErr) {
  static const char zSql[] =
      "SELECT id, seq FROM main.@_slots WHERE id BETWEEN ?1 AND ?2 "
      "AND seq > ?3 AND seq <= ?4 ORDER BY seq LIMIT 1";
  i64 iSeq = 0, iSlot = 1;
  while (p->mWatch & RING_HOLDS && iSlot > 0 && pErr->rc == SQLITE_OK) {
    sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
    bxBind(pStmt, pErr, "iiii", BX_RING_BASE(pAgent), BX_RING_LAST(pAgent),
        iSeq, pAgent->nGiven - nWindow);
    iSlot = 0;
    if (bxRow(pStmt, pErr)) {
      iSlot = sqlite3_column_int64(pStmt, 0);
      iSeq = sqlite3_column_int64(pStmt, 1);
    }
    bxDone(pStmt, pErr);
    if (iSlot > 0 && bxRingIsHeld(p, iSlot, pErr)) park(p, pAgent, iSlot, pErr);
  }
}

/* Moves the agent's rows to where a window wants them, and trims them. */
static void layOut(Ring *p, RingAgent *pAgent, i64 nWindow, BxErr *pErr) {
  static const char zGone[] =
      "SELECT count(*), coalesce(sum(size_bytes), 0) FROM main.@_slots "
      "WHERE id BETWEEN ?1 AND ?1 + 65535 AND " RING_BEYOND;
  static const char zLaid[] =
      "UPDATE main.@_agents SET window = ?2, half = half & 2 | 1 - (half & 1) "
      "WHERE no = ?1";
  static const char *const azSql[] = {zGone, zLaid, zCountAgent, zCountRing};
  sqlite3_stmt *apStmt[4];
  RingCount count = {0, 0, 0, 0, 0};
  parkTrimmed(p, pAgent, nWindow, pErr);
  bxStmtSet(&p->base.stmts, azSql, 4, apStmt, pErr);
  bxBind(apStmt[0], pErr, "ii", pAgent->iNo << 16, pAgent->nGiven - nWindow);
  if (bxRow(apStmt[0], pErr)) {
    count.nRolled = sqlite3_column_int64(apStmt[0], 0);
    count.nByte = -sqlite3_column_int64(apStmt[0], 1);
    count.nRow = -count.nRolled;
  }
  bxDone(apStmt[0], pErr);
  bxRingMove(p, pAgent, nWindow, pErr);
  bxDo(&p->base.stmts, zLaid, pErr, "ii", pAgent->iNo, nWindow);
  if (count.nRolled > 0) bxRingCount(p, pAgent->iNo, &count, pErr);
  pAgent->nWindow = nWindow;
  pAgent->iHalf = 1 - pAgent->iHalf;
  pAgent->nRow += count.nRow;
}

/* The agents that have a window above nAbove, in the order of their numbers; at
** most nMost: lays them out. */
static void layOutAbove(
    Ring *p, i64 nAbove, i64 nWindow, i64 nMost, BxErr *pErr) {
  static const char zNext[] =
      "SELECT " AGENT_COLUMNS " FROM main.@_agents "
      "WHERE no > ?1 AND window > ?2 ORDER BY no LIMIT 1";
  RingAgent agent;
  agent.iNo = 0;
  while (nMost-- > 0 && pErr->rc == SQLITE_OK) {
    sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zNext, pErr);
    i64 iBefore = agent.iNo;
    int bRow;
    bxBind(pStmt, pErr, "ii", agent.iNo, nAbove);
    bRow = bxRow(pStmt, pErr);
    if (bRow) bxRingReadAgent(p, pStmt, &agent, pErr);
    bxDone(pStmt, pErr);
    if (bRow && agent.iNo <= iBefore) bxRingCorrupt(p, pErr, "_agents");
    if (!bRow || pErr->rc != SQLITE_OK) break;
    layOut(p, &agent, nWindow, pErr);
  }
}

void bxRingSetWindow(Ring *p, i64 nWindow, BxErr *pErr) {
  static const char zSql[] =
      "UPDATE main.@_config SET value = ?1 WHERE name = 'window'";
  i64 nOld = readWindow(p, pErr);
  i64 nKeep = nWindow < nOld ? nWindow : nOld;
  i64 nMost = nWindow <= nOld ? TRIM_AGENTS : MAX_NO;
  assert(nWindow >= 1 && nWindow <= BX_RING_MAX_WINDOW);
  bxDo(&p->base.stmts, zSql, pErr, "i", nWindow);
  layOutAbove(p, nKeep, nKeep, nMost, pErr);
  p->nWindow = 0;
}

/*---------------------------------------------------------------- pushes ----*/

static i64 nextNo(Ring *p, BxErr *pErr) {
  static const char zSql[] = "SELECT max(no) FROM main.@_agents";
  i64 iNo = bxAsk(&p->base.stmts, zSql, pErr, "");
  if (iNo < MAX_GIVEN) iNo++;
  if (iNo < 1 || iNo > MAX_NO) bxRingCorrupt(p, pErr, "_agents");
  return iNo;
}

/* An event that was erased is refused by the archive only. */
static void refuseErased(Ring *p, const char *zAgent, BxErr *pErr) {
  static const char zSql[] = "SELECT 1 FROM main.retention__refused "
                             "WHERE kind = 'agent' AND \"key\" = ?1";
  if (!(p->mWatch & RING_ERASED) ||
      !bxAsk(&p->base.stmts, zSql, pErr, "t", zAgent)) {
    return;
  }
  bxFail(pErr, SQLITE_CONSTRAINT,
      "ErasedError: what had agent %s was erased, and writes under it are "
      "refused for retention.refuse_days; use another one, or wait until the "
      "time in retention_erasures",
      zAgent);
}

/* Finds the place of a push: the agent, with the seq of the push, and its slot. */
static void findSlotOf(Ring *p, const RingPush *pPush, RingAgent *pNext,
    RingSlot *pOld, BxErr *pErr) {
  static const char zSql[] =
      "SELECT a.no, a.window, a.half, a.given, a.rows, " RING_SLOT(
          "a.agent_id") " FROM main.@_agents AS a LEFT JOIN main.@_slots AS s "
                        "ON s.id = "
                        "(a.no << 16) + ((a.half & 1) << 15) + (a.given + 1) % "
                        "a.window "
                        "WHERE a.agent_id = ?1";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  int bMoved = 0;
  memset(pNext, 0, sizeof(*pNext));
  memset(pOld, 0, sizeof(*pOld));
  pOld->nPad = -1;
  pNext->nAllowed = p->nWindow;
  bxBind(pStmt, pErr, "t", pPush->zAgent);
  if (bxRow(pStmt, pErr)) {
    bxRingReadAgent(p, pStmt, pNext, pErr);
    bxRingReadSlot(pStmt, 5, pOld);
  }
  bxDone(pStmt, pErr);
  if (pErr->rc != SQLITE_OK) return;
  if (pNext->iNo == 0) {
    refuseErased(p, pPush->zAgent, pErr);
    pNext->iNo = nextNo(p, pErr);
    pNext->nWindow = pNext->nAllowed;
    pNext->bNew = 1;
    bMoved = 1;
  } else if (pNext->nWindow != pNext->nAllowed) {
    layOut(p, pNext, pNext->nAllowed, pErr);
    bMoved = 1;
  }
  if (pNext->bParked) unpark(p, pNext, pErr);
  if (pErr->rc != SQLITE_OK) return;
  pNext->nGiven++;
  pOld->iId = BX_RING_SPLIT(pNext);
  if (bMoved) {
    bxRingFind(p, pOld->iId, pPush->zAgent, pOld, pErr);
  }
  if (pErr->rc != SQLITE_OK) return;
  if (pOld->bThere ? pOld->bOther
                   : !pNext->bParked && pNext->nRow >= pNext->nWindow) {
    bxRingCorrupt(p, pErr, "_slots");
  } else if (pOld->bThere && bxRingIsHeld(p, pOld->iId, pErr)) {
    park(p, pNext, pOld->iId, pErr);
    pOld->bThere = 0;
    pOld->nByte = 0;
    pOld->nPad = -1;
  }
}

/* Writes the row of a push, and counts it. */
static void putExchange(Ring *p, const RingAgent *pNext, const RingPush *pPush,
    const RingSlot *pOld, BxErr *pErr) {
  static const char zPushed[] =
      "UPDATE main.@_agents SET given = given + 1, rolled = rolled + ?2, "
      "rows = rows + 1 - ?2, bytes = bytes + ?3 WHERE agent_id = ?1";
  static const char zNew[] =
      "INSERT INTO main.@_agents(agent_id, rolled, bytes, no, window, half, "
      "given, cleared, saved, rows) VALUES(?1, ?2, ?3, ?4, ?5, 0, 1, 0, 0, 1)";
  const char *azSql[] = {
      bxRingAppendSql(pOld), pNext->bNew ? zNew : zPushed, zCountRing};
  sqlite3_stmt *apStmt[3];
  i64 nByte = pPush->nByte - pOld->nByte;
  int bBound = p->nMaxByte > 0 || p->nIdleDay > 0;
  RingRoll *pRoll = bBound ? bxRingChoose(p, pNext, nByte, pOld->iId, pErr) : 0;
  bxStmtSet(&p->base.stmts, azSql, 2 + bBound, apStmt, pErr);
  if (bBound) bxRingRoll(p, pRoll, pNext->iNo, pErr);
  bxRingAppend(p, apStmt[0], pNext, pPush, pOld, pErr);
  bxBind(apStmt[1], pErr, "tii", pPush->zAgent, (i64)pOld->bThere, nByte);
  if (pNext->bNew) {
    bxBind(apStmt[1], pErr, "---ii", pNext->iNo, pNext->nWindow);
  }
  bxRun(apStmt[1], pErr);
  countRing(p, nByte, pErr);
}

void bxRingPush(Ring *p, RingPush *pPush, i64 *piRowid, BxErr *pErr) {
  RingAgent next;
  RingSlot old;
  Watched watched;
  pPush->nByte = bxBytes(pPush->pRequest) + bxBytes(pPush->pResponse);
  bxRingLookTemp(p, pErr);
  readWindow(p, pErr);
  bxRingWatchBegin(p, pPush, &watched, pErr);
  findSlotOf(p, pPush, &next, &old, pErr);
  if (pErr->rc != SQLITE_OK) return;
  assert(next.iNo > 0 && next.nWindow > 0 && next.nGiven > 0);
  putExchange(p, &next, pPush, &old, pErr);
  *piRowid = old.iId;
  if (pErr->rc != SQLITE_OK) return;
  bxRingWatch(p, &next, pPush, &watched, pErr);
  if (p->mWatch & RING_HOLDS) bxRingNoteHeld(p, old.iId, pPush, pErr);
  bxRingTellFull(p, pPush, pErr);
  bxRingLooked(p);
}

/*--------------------------------------------------------------- removal ----*/

void bxRingForgetSteps(Ring *p, i64 iNo, BxErr *pErr) {
  static const char zSql[] =
      "DELETE FROM main.@_steps WHERE id BETWEEN ?1 << 16 AND (?1 << 16) + 127";
  bxDo(&p->base.stmts, zSql, pErr, "i", iNo);
}

/* The steps of an exchange go with it. A new chain makes other connections read
** the steps again. */
static void forgetExchange(Ring *p, const RingSlot *pSlot, BxErr *pErr) {
  static const char zSteps[] =
      "DELETE FROM main.@_steps WHERE id BETWEEN ?1 AND ?1 + 127 AND seq = ?2";
  static const char zChain[] =
      "UPDATE main.@_steps SET chain = chain + 1 WHERE id BETWEEN ?1 AND "
      "?1 + 127 AND n = (SELECT max(n) FROM main.@_steps "
      "WHERE id BETWEEN ?1 AND ?1 + 127)";
  static const char *const azSql[] = {zSteps, zChain};
  i64 iFirst = pSlot->iId >> 16 << 16;
  sqlite3_stmt *apStmt[2];
  bxStmtSet(&p->base.stmts, azSql, 2, apStmt, pErr);
  bxDo(&p->base.stmts, zSteps, pErr, "ii", iFirst, pSlot->iSeq);
  if (pErr->rc == SQLITE_OK && sqlite3_changes(p->base.stmts.bx->db) > 0) {
    bxDo(&p->base.stmts, zChain, pErr, "i", iFirst);
  }
}

void bxRingDelete(Ring *p, i64 iRowid, BxErr *pErr) {
  RingCount count = {0, 1, 0, -1, 0};
  RingSlot slot;
  readWindow(p, pErr);
  bxRingFind(p, iRowid, 0, &slot, pErr);
  if (!slot.bThere || pErr->rc != SQLITE_OK) return;
  bxRingRefuseHeld(p, iRowid, iRowid, pErr);
  if (pErr->rc != SQLITE_OK) return;
  forgetExchange(p, &slot, pErr);
  bxRingDrop(p, iRowid, pErr);
  count.nByte = -slot.nByte;
  bxRingCount(p, iRowid >> 16, &count, pErr);
  bxRingLooked(p);
}

i64 bxRingTakeOut(Ring *p, BxStmts *pOn, const char *zWhich, const char *zDrop,
    const RingAgent *pAgent, int bSaved, BxErr *pErr) {
  RingCount count = {0, 0, 0, 0, 0};
  i64 iFirst = pAgent->iNo << 16, nGone = 0;
  sqlite3_stmt *pStmt = bxStmt(pOn, zWhich, pErr);
  bxBind(pStmt, pErr, "ii", iFirst, pAgent->nGiven - pAgent->nAllowed);
  if (bxRow(pStmt, pErr)) {
    nGone = sqlite3_column_int64(pStmt, 0);
    count.nRow = -nGone;
    count.nByte = -sqlite3_column_int64(pStmt, 1);
    count.nRolled = sqlite3_column_int64(pStmt, 2);
  }
  bxDone(pStmt, pErr);
  *(bSaved ? &count.nSaved : &count.nCleared) = nGone - count.nRolled;
  if (nGone > 0) {
    bxDo(pOn, zDrop, pErr, "i", iFirst);
    bxRingCount(p, pAgent->iNo, &count, pErr);
  }
  bxRingForgetSteps(p, pAgent->iNo, pErr);
  return nGone;
}
