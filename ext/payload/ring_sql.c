/*
** ring_sql.c: what a payload_ring does with its tables: settings, agents and their
** counters, slots, the window, pushes. sql/payload_ring.sql describes the tables,
** ring_limits.c has the bounds of the whole ring.
**
** Each of these functions checks all that can be refused before its first write
** (transaction.c). What can fail beside the record comes after it, and is passed over.
**
** A push overwrites the row of the oldest exchange, which has its bodies in the log
** of its agent (ring_log.c). So most pushes write two pages: that row, and the
** agent's.
*/
#include "watch.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define RING_FORMAT 1
#define MAX_NO ((i64)1 << 30)    /* number of an agent: no << 29 must fit */
#define MAX_GIVEN ((i64)1 << 62) /* pushes of an agent */
#define ROW_LEAST 4000           /* bytes of a row beside the bodies */
#define TRIM_AGENTS 100          /* that a smaller window trims at once */

/*------------------------------------------------------ life of a ring ----*/

void bxRingCreate(Ring *p, const i64 aValue[3], BxErr *pErr) {
  static const char zSql[] = "INSERT INTO main.@_texts VALUES(" RING_WINDOW
                             ", ?1), (" RING_IS_FORMAT ", 1)";
  assert(aValue[0] >= 1 || pErr->rc != SQLITE_OK);
  bxInstallMissing(p->base.stmts.bx, p->base.stmts.zDb, "payload", pErr);
  bxShadowCreate(&p->base, pErr);
  bxStmtExec(&p->base.stmts, zSql, pErr, "i", aValue[0]);
  if (aValue[1] > 0) bxRingSetLimit(p, 1, aValue[1], pErr);
  if (aValue[2] > 0) bxRingSetLimit(p, 2, aValue[2], pErr);
}

void bxRingFormat(BxVtab *p, i64 iFormat, BxErr *pErr) {
  if (iFormat <= RING_FORMAT) return;
  bxFail(pErr, SQLITE_ERROR,
      "VersionError: ring %s has format %lld, this module knows up to %d; load "
      "a newer blackbox",
      p->stmts.zTable, iFormat, RING_FORMAT);
}

void bxRingKnown(BxVtab *p, BxErr *pErr) {
  bxRingFormat(p,
      bxQueryNumber(&p->stmts,
          "SELECT body FROM main.@_texts WHERE id = " RING_IS_FORMAT, pErr),
      pErr);
}

void bxRingCorrupt(Ring *p, BxErr *pErr, const char *zSuffix) {
  bxFail(pErr, SQLITE_CORRUPT_VTAB,
      "CorruptedDataError: table %s%s of ring %s holds values that no ring "
      "wrote; SELECT * FROM blackbox_check() tells which",
      p->base.stmts.zTable, zSuffix, p->base.stmts.zTable);
}

/*--------------------------------------------------------- the settings ----*/

static i64 checkedSetting(Ring *p, i64 iVal, i64 iLow, i64 iHigh, BxErr *pErr) {
  assert(iLow <= iHigh);
  if (iVal >= iLow && iVal <= iHigh) return iVal;
  bxRingCorrupt(p, pErr, "_texts");
  return 0;
}

i64 bxRingWindow(Ring *p, i64 iVal, BxErr *pErr) {
  return checkedSetting(p, iVal, 1, BX_RING_MAX_WINDOW, pErr);
}

void bxRingReadConfig(Ring *p, BxErr *pErr) {
  static const char zSql[] =
      "SELECT id, body FROM main.@_texts "
      "WHERE id BETWEEN " RING_IS_FORMAT " AND " RING_WINDOW;
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  i64 aValue[4] = {0}; /* of the ids -1 to -4 */
  while (bxStep(pStmt, pErr)) {
    aValue[~sqlite3_column_int64(pStmt, 0) & 3] =
        sqlite3_column_int64(pStmt, 1);
  }
  bxReset(pStmt, pErr);
  bxRingFormat(&p->base, aValue[3], pErr);
  if (pErr->rc != SQLITE_OK) return;
  p->nWindow = bxRingWindow(p, aValue[0], pErr);
  p->nMaxByte = checkedSetting(p, aValue[1], 0, BX_RING_MAX_BYTES, pErr);
  p->nIdleDay = checkedSetting(p, aValue[2], 0, BX_RING_MAX_IDLE, pErr);
}

void bxRingLock(Ring *p, BxErr *pErr) {
  static const char zSql[] = "UPDATE main.@_texts SET body = body WHERE 0";
  bxStmtRun(bxStmt(&p->base.stmts, zSql, pErr), pErr);
  bxRingSettings(p, pErr);
}

/*---------------------------------------------------------------- agents ----*/

void bxRingReadAgent(
    Ring *p, sqlite3_stmt *pStmt, RingAgent *pAgent, BxErr *pErr) {
  assert(sqlite3_column_count(pStmt) >= 5);
  pAgent->iNo = sqlite3_column_int64(pStmt, 0);
  pAgent->nWindow = sqlite3_column_int64(pStmt, 1);
  pAgent->bKept = sqlite3_column_int64(pStmt, 2);
  pAgent->nGiven = sqlite3_column_int64(pStmt, 3);
  pAgent->nRow = sqlite3_column_int64(pStmt, 4);
  if (pAgent->iNo < 1 || pAgent->iNo > MAX_NO || pAgent->nWindow < 1 ||
      pAgent->nWindow > BX_RING_MAX_WINDOW ||
      (pAgent->bKept != 0 && pAgent->bKept != 1) || pAgent->nGiven < 0 ||
      pAgent->nGiven > MAX_GIVEN) {
    bxRingCorrupt(p, pErr, "_agents");
    pAgent->iNo = 0; /* nothing may be computed from it */
  }
}

void bxRingAgent(Ring *p, const char *zAgent, RingAgent *pAgent, BxErr *pErr) {
  static const char zSql[] = RING_AGENTS_SQL "WHERE agent_id = ?1";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  memset(pAgent, 0, sizeof(*pAgent));
  bxBind(pStmt, pErr, "t", zAgent);
  if (bxStep(pStmt, pErr)) bxRingReadAgent(p, pStmt, pAgent, pErr);
  bxReset(pStmt, pErr);
}

int bxRingPart(const RingAgent *p, int i, i64 *piFirst, i64 *piLast) {
  i64 iBase = RING_BASE(p), iSplit = iBase + p->nGiven % p->nWindow;
  assert(i >= 0 && i <= 3 && p->nWindow > 0);
  *piFirst = i == 0 ? RING_KEPT(p->iNo) : i == 1 ? iSplit + 1 : iBase;
  *piLast = i == 0   ? RING_LAST(p->iNo)
            : i == 1 ? iBase + p->nWindow - 1
                     : iSplit;
  return i < 3;
}

/* The difference of two sizes that may be damage: it does not overflow. */
static i64 lessBytes(i64 a, i64 b) {
  return (i64)((sqlite3_uint64)a - (sqlite3_uint64)b);
}

static const char zCountRing[] =
    "UPDATE main.@_texts SET body = body + ?1 WHERE id = " RING_BYTES;

static void countRing(Ring *p, i64 nByte, BxErr *pErr) {
  if (p->nMaxByte == 0 && p->nIdleDay == 0) return;
  bxStmtExec(&p->base.stmts, zCountRing, pErr, "i", nByte);
}

void bxRingCount(
    Ring *p, i64 iNo, int nRolled, int nCleared, i64 nByte, BxErr *pErr) {
  static const char zSql[] =
      "UPDATE main.@_agents SET rolled = rolled + ?2, cleared = cleared + ?3, "
      "rows = rows - ?2 - ?3, bytes = bytes + ?4 WHERE no = ?1";
  assert(nRolled >= 0 && nCleared >= 0 && nRolled + nCleared <= 1);
  bxStmtExec(&p->base.stmts, zSql, pErr, "iiii", iNo, (i64)nRolled,
      (i64)nCleared, nByte);
  countRing(p, nByte, pErr);
}

/*----------------------------------------------------------------- holds ----*/

#define HELD_BY(kind, key)                                                     \
  "SELECT f.kind || ' ' || f.\"key\" || ' is held by ' || f.owner "            \
  "FROM main.@_slots AS s CROSS JOIN main.retention__holds AS f "              \
  "WHERE s.id BETWEEN ?1 AND ?2 AND f.kind = '" kind "' AND f.\"key\" = " key

char *bxRingHolder(Ring *p, i64 iFirst, i64 iLast, BxErr *pErr) {
  static const char zSql[] = HELD_BY(
      "agent", "s.agent_id") " UNION ALL " HELD_BY("event",
      "s.event_id") " UNION ALL " HELD_BY("buffer", "lower('@')") " LIMIT 1";
  sqlite3_stmt *pStmt;
  char *zHolder = 0;
  assert(iFirst <= iLast || pErr->rc != SQLITE_OK);
  if (!(p->mWatch & RING_HOLDS)) return 0;
  pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  bxBind(pStmt, pErr, "ii", iFirst, iLast);
  if (bxStep(pStmt, pErr)) zHolder = bxColumnCopy(pStmt, 0, pErr);
  bxReset(pStmt, pErr);
  return zHolder;
}

void bxRingRefuseHeld(Ring *p, i64 iFirst, i64 iLast, BxErr *pErr) {
  char *zHolder = bxRingHolder(p, iFirst, iLast, pErr);
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
  char *zHolder = bxRingHolder(p, iSlot, iSlot, pErr);
  sqlite3_free(zHolder);
  return zHolder != 0;
}

/* Whether the agent may have rows beyond the window, which are or were held. */
static void setKept(Ring *p, RingAgent *pAgent, i64 bKept, BxErr *pErr) {
  static const char zSql[] = "UPDATE main.@_agents SET kept = ?2 WHERE no = ?1";
  assert(bKept == 0 || bKept == 1);
  if (pAgent->bKept != bKept) {
    bxStmtExec(&p->base.stmts, zSql, pErr, "ii", pAgent->iNo, bKept);
  }
  pAgent->bKept = bKept;
}

/* Rows that are held move out of the window, with their bodies: those in ids iFirst to
** iLast up to iSeq. */
static void keepHeld(
    Ring *p, RingAgent *pAgent, i64 iFirst, i64 iLast, i64 iSeq, BxErr *pErr) {
  static const char zSql[] =
      "UPDATE main.@_slots AS s SET id = ?4 + (seq & 268435455), "
      "request_body = " RING_BODY("request_body",
          1) ", "
             "response_body = " RING_BODY("response_body",
                 3) " "
                    "WHERE id BETWEEN ?1 AND ?2 AND seq <= ?3 AND (" RING_HELD
                    ")";
  sqlite3_stmt *pStmt;
  if (!(p->mWatch & RING_HOLDS)) return;
  setKept(p, pAgent, 1, pErr);
  pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  bxBodyUse(p, pStmt, pErr);
  bxBind(pStmt, pErr, "iiii", iFirst, iLast, iSeq, RING_KEPT(pAgent->iNo));
  bxStmtRun(pStmt, pErr);
}

/* At most two rows roll out that were kept and are not held any more. */
static void rollKept(Ring *p, RingAgent *pAgent, BxErr *pErr) {
  static const char zSql[] =
      "SELECT id FROM main.@_slots WHERE id BETWEEN ?1 AND ?2 LIMIT 1";
  int i;
  assert(pAgent->bKept || pErr->rc != SQLITE_OK);
  for (i = 0; i < 2 && pErr->rc == SQLITE_OK; i++) {
    i64 iSlot = bxQueryInt(&p->base.stmts, zSql, pErr, "ii",
        RING_KEPT(pAgent->iNo), RING_LAST(pAgent->iNo));
    if (iSlot == 0) setKept(p, pAgent, 0, pErr);
    if (iSlot == 0 || bxRingIsHeld(p, iSlot, pErr)) break;
    bxRingRemove(p, iSlot, 0, pErr);
    pAgent->nRow--;
  }
}

/*---------------------------------------------------------------- window ----*/

/* Counts the rows of an agent anew, after some of them went. */
#define RECOUNT(counter)                                                       \
  "UPDATE main.@_agents SET window = ?2, " counter " = " counter               \
  " + rows - s.n, rows = s.n, bytes = s.b FROM (SELECT count(*) AS n, "        \
  "coalesce(sum(size_bytes), 0) AS b FROM main.@_slots "                       \
  "WHERE id BETWEEN ?3 AND ?4) AS s WHERE no = ?1"
static const char zRolled[] = RECOUNT("rolled"), zSaved[] = RECOUNT("saved"),
                  zCleared[] = RECOUNT("cleared");
static const char zAgentBytes[] =
    "SELECT bytes FROM main.@_agents WHERE no = ?1";

static void recount(
    Ring *p, const RingAgent *pAgent, const char *zSql, BxErr *pErr) {
  i64 nByte = bxQueryInt(&p->base.stmts, zAgentBytes, pErr, "i", pAgent->iNo);
  assert(zSql == zRolled || zSql == zSaved || zSql == zCleared);
  bxStmtExec(&p->base.stmts, zSql, pErr, "iiii", pAgent->iNo, pAgent->nWindow,
      RING_FIRST(pAgent->iNo), RING_LAST(pAgent->iNo));
  countRing(p,
      lessBytes(bxQueryInt(&p->base.stmts, zAgentBytes, pErr, "i", pAgent->iNo),
          nByte),
      pErr);
}

/* Moves the agent's rows to where a window wants them, and trims them. */
static void layOut(Ring *p, RingAgent *pAgent, i64 nWindow, BxErr *pErr) {
  static const char zTrim[] =
      "DELETE FROM main.@_slots WHERE id BETWEEN ?1 AND ?2 "
      "AND (seq > ?3) IS NOT 1";
  static const char zMove[] =
      "UPDATE main.@_slots SET id = ?3 + seq % ?4 WHERE id BETWEEN ?1 AND ?2";
  static const char *const azSql[] = {zAgentBytes, zTrim, zMove, zRolled};
  sqlite3_stmt *apStmt[4];
  i64 iFirst = RING_BASE(pAgent), iLast = iFirst + 16383;
  i64 iOld = pAgent->nGiven - nWindow;
  assert(pAgent->iNo > 0 && nWindow >= 1);
  bxStmtSet(&p->base.stmts, azSql, 4, apStmt, pErr);
  keepHeld(p, pAgent, iFirst, iLast, iOld, pErr);
  bxStmtExec(&p->base.stmts, zTrim, pErr, "iii", iFirst, iLast, iOld);
  pAgent->nWindow = nWindow;
  bxStmtExec(&p->base.stmts, zMove, pErr, "iiii", iFirst, iLast,
      RING_BASE(pAgent), nWindow);
  recount(p, pAgent, zRolled, pErr);
}

void bxRingSettle(Ring *p, RingAgent *pAgent, BxErr *pErr) {
  if (pAgent->iNo == 0 || pAgent->nWindow == p->nWindow) return;
  layOut(p, pAgent, p->nWindow, pErr);
}

void bxRingSetWindow(Ring *p, i64 nWindow, BxErr *pErr) {
  static const char zSql[] =
      "UPDATE main.@_texts SET body = ?1 WHERE id = " RING_WINDOW;
  static const char zNext[] =
      RING_AGENTS_SQL "WHERE no > ?1 AND window > ?2 ORDER BY no LIMIT 1";
  i64 nKeep = nWindow < p->nWindow ? nWindow : p->nWindow;
  i64 nMost = nWindow <= p->nWindow ? TRIM_AGENTS : MAX_NO, iBefore;
  RingAgent agent = {0};
  int bRow = 1;
  assert(nWindow >= 1 && nWindow <= BX_RING_MAX_WINDOW);
  bxStmtExec(&p->base.stmts, zSql, pErr, "i", nWindow);
  while (nMost-- > 0 && bRow && pErr->rc == SQLITE_OK) {
    sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zNext, pErr);
    iBefore = agent.iNo;
    bxBind(pStmt, pErr, "ii", iBefore, nKeep);
    bRow = bxStep(pStmt, pErr);
    if (bRow) bxRingReadAgent(p, pStmt, &agent, pErr);
    bxReset(pStmt, pErr);
    if (bRow && agent.iNo <= iBefore) bxRingCorrupt(p, pErr, "_agents");
    if (bRow && pErr->rc == SQLITE_OK) layOut(p, &agent, nKeep, pErr);
  }
}

/*---------------------------------------------------------------- pushes ----*/

/* A new agent. An event that was erased is refused by the archive only. */
static void beginAgent(
    Ring *p, const char *zAgent, RingAgent *pOut, BxErr *pErr) {
  static const char zErased[] = "SELECT 1 FROM main.retention__holds "
                                "WHERE kind = 'erased agent' AND \"key\" = ?1";
  static const char zLast[] = "SELECT max(no) FROM main.@_agents";
  assert(pOut->iNo == 0);
  if (p->mWatch & RING_HOLDS &&
      bxQueryInt(&p->base.stmts, zErased, pErr, "t", zAgent)) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ErasedError: what had agent %s was erased, and writes under it are "
        "refused for retention.refuse_days; use another one, or wait until the "
        "time in retention_erasures",
        zAgent);
  }
  pOut->iNo = bxQueryInt(&p->base.stmts, zLast, pErr, "");
  if (pOut->iNo < 0 || pOut->iNo >= MAX_NO) bxRingCorrupt(p, pErr, "_agents");
  pOut->iNo++;
  pOut->nWindow = p->nWindow;
  pOut->bNew = 1;
  bxBodyBegin(p, pOut->iNo, 0, 0, pErr);
}

/* Whether a push leaves the agent as it knows it: no row is held, and none goes because
** of a bound. */
static int isAlone(const Ring *p) {
  return !(p->mWatch & RING_HOLDS) && p->nMaxByte + p->nIdleDay == 0;
}

/* Finds the agent of a push; a new one begins. */
static void findAgent(
    Ring *p, const char *zAgent, RingAgent *pNext, BxErr *pErr) {
  static const char zSql[] = "SELECT no, window, kept, given, rows, page "
                             "FROM main.@_agents WHERE agent_id = ?1";
  int nRead = 0;
  memset(pNext, 0, sizeof(*pNext));
  if (isAlone(p) && bxBodyRecall(p, zAgent, pNext)) return;
  do { /* once more if its rows were laid out for another window */
    sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
    bxRingSettle(p, pNext, pErr);
    bxBind(pStmt, pErr, "t", zAgent);
    if (bxStep(pStmt, pErr)) {
      bxRingReadAgent(p, pStmt, pNext, pErr);
      if (pErr->rc == SQLITE_OK) bxBodyBegin(p, pNext->iNo, pStmt, 5, pErr);
    }
    bxReset(pStmt, pErr);
    if (pErr->rc != SQLITE_OK) return;
    if (pNext->iNo == 0) beginAgent(p, zAgent, pNext, pErr);
  } while (pNext->nWindow != p->nWindow && nRead++ == 0);
  if (pNext->bKept) rollKept(p, pNext, pErr);
}

/* Whether the slot of a push has an exchange, which rolls out. If an agent has all that it
** may have, its counters tell. */
static int hasOld(Ring *p, const RingAgent *pNext, i64 iSlot, BxErr *pErr) {
  static const char zSql[] = "SELECT 1 FROM main.@_slots WHERE id = ?1";
  i64 nBefore = pNext->nGiven - 1;
  assert(pNext->nGiven > 0 && iSlot > 0);
  if (!pNext->bKept &&
      pNext->nRow == (nBefore < pNext->nWindow ? nBefore : pNext->nWindow)) {
    return nBefore >= pNext->nWindow;
  }
  return (int)bxQueryInt(&p->base.stmts, zSql, pErr, "i", iSlot);
}

/* Writes the row of a push, and counts it. */
static void putExchange(Ring *p, RingAgent *pNext, const RingPush *pPush,
    i64 iSlot, Watched *pWatched, BxErr *pErr) {
  static const char zPut[] =
      "REPLACE INTO main.@_slots(id, seq, timestamp, size_bytes, agent_id, "
      "event_id, meta, request_body, response_body, steps) "
      "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
  static const char zOld[] =
      "SELECT size_bytes FROM main.@_slots WHERE id = ?1";
  assert(RING_AT(pNext, pNext->nGiven) == iSlot);
#define PUSHED                                                                 \
  "UPDATE main.@_agents SET given = given + 1, rolled = rolled + ?3, rows = "  \
  "rows + 1 - ?3, bytes = bytes + ?4 - ifnull((SELECT size_bytes FROM "        \
  "main.@_slots WHERE id = ?5), 0), page = ?2"
  static const char zPushed[] = PUSHED " WHERE no = ?1";
  static const char zTurned[] = PUSHED ", at = ?6 WHERE no = ?1";
  static const char zNew[] =
      "INSERT INTO main.@_agents(no, page, rolled, bytes, at, agent_id, "
      "window, kept, given, cleared, saved, rows) "
      "VALUES(?1, ?2, ?3, ?4, nullif(?6, 0), ?7, ?8, 0, 1, 0, 0, 1)";
  int bBound = p->nMaxByte + p->nIdleDay > 0;
  int bTaken = hasOld(p, pNext, iSlot, pErr);
  const char *azSql[] = {zPut,
      pNext->bNew ? zNew
      : bBound    ? zTurned
                  : zPushed,
      zCountRing};
  sqlite3_stmt *apStmt[3];
  i64 nMore = pPush->nByte;
  RingBody request, response;
  RingShared shared;
  bxStmtSet(&p->base.stmts, azSql, bBound ? 3 : 2, apStmt, pErr);
  if (bBound) {
    nMore =
        lessBytes(nMore, bxQueryInt(&p->base.stmts, zOld, pErr, "i", iSlot));
    bxRingMakeRoom(p, pNext, nMore, iSlot, pErr);
  }
  bxBodyFind(p, pPush->pRequest, &shared, pErr);
  bxRingWatchRead(pWatched, pNext,
      &(Shared){.iAt = shared.iAt, .iFrom = shared.iFrom, .n = shared.n});
  bxBodyAgain(p, pNext->iNo, pNext->bNew, pErr);
  bxBodyAppend(p, pPush->pRequest, &shared, &request, pErr);
  bxBodyAppend(p, pPush->pResponse, 0, &response, pErr);
  bxBodySweep(p, pNext, pPush->nByte - shared.n, pErr);
  bxBind(
      apStmt[1], pErr, "i-iii", pNext->iNo, (i64)bTaken, pPush->nByte, iSlot);
  if (azSql[1] != zPushed) bxBind(apStmt[1], pErr, "-----i", pNext->iTurn);
  if (pNext->bNew) {
    bxBind(apStmt[1], pErr, "------ti", pPush->zAgent, pNext->nWindow);
  }
  bxBodyPage(p, apStmt[1], 2, pErr);
  bxStmtRun(apStmt[1], pErr);
  bxWriteNote(p->base.stmts.bx, pErr);
  bxBind(apStmt[0], pErr, "iiiitss", iSlot, pNext->nGiven, pPush->iTime,
      pPush->nByte, pPush->zAgent, pPush->pEvent, pPush->pMeta);
  bxBodyBind(apStmt[0], 8, &request, pPush->pRequest, pErr);
  bxBodyBind(apStmt[0], 9, &response, pPush->pResponse, pErr);
  bxRingBindSteps(pWatched, apStmt[0], 10);
  bxStmtRun(apStmt[0], pErr);
  if (bBound) countRing(p, nMore, pErr);
  if (pErr->rc == SQLITE_OK && isAlone(p) && !pNext->bKept) {
    pNext->bNew = 0;
    pNext->nRow += !bTaken;
    bxBodyKnow(p, pPush->zAgent, pNext);
  }
}

void bxRingFits(Ring *p, i64 nByte, BxErr *pErr) {
  sqlite3 *db = p->base.stmts.bx->db;
  assert(nByte >= 0);
  if (nByte + ROW_LEAST <= sqlite3_limit(db, SQLITE_LIMIT_LENGTH, -1)) return;
  bxFail(pErr, SQLITE_TOOBIG,
      "ValidationError: string or blob too big: the bodies of an exchange have "
      "%lld bytes together, and one row of SQLite has at most %d; shorten them",
      nByte, sqlite3_limit(db, SQLITE_LIMIT_LENGTH, -1));
}

void bxRingPush(Ring *p, RingPush *pPush, i64 *piRowid, BxErr *pErr) {
  RingAgent next;
  Watched watched;
  pPush->nByte = bxBytes(pPush->pRequest) + bxBytes(pPush->pResponse);
  bxRingFits(p, pPush->nByte, pErr);
  bxRingWatchBegin(p, pPush, &watched, pErr);
  findAgent(p, pPush->zAgent, &next, pErr);
  if (pErr->rc != SQLITE_OK) return;
  next.nGiven++;
  assert(next.iNo > 0 && next.nWindow > 0 && next.nGiven > 0);
  *piRowid = RING_AT(&next, next.nGiven);
  if (bxRingIsHeld(p, *piRowid, pErr)) {
    keepHeld(p, &next, *piRowid, *piRowid, MAX_GIVEN, pErr);
    bxBodyOpen(p, next.iNo, pErr);
  }
  putExchange(p, &next, pPush, *piRowid, &watched, pErr);
  bxRingAfterWrite(p, pPush, *piRowid, &watched, pErr);
}

/*--------------------------------------------------------------- removal ----*/

void bxRingRemove(Ring *p, i64 iSlot, int bCleared, BxErr *pErr) {
  static const char zSize[] =
      "SELECT size_bytes FROM main.@_slots WHERE id = ?1";
  static const char zSql[] = "DELETE FROM main.@_slots WHERE id = ?1";
  i64 nByte = bxQueryInt(&p->base.stmts, zSize, pErr, "i", iSlot);
  assert(bCleared == 0 || bCleared == 1);
  bxStmtExec(&p->base.stmts, zSql, pErr, "i", iSlot);
  if (pErr->rc == SQLITE_OK && sqlite3_changes(p->base.stmts.bx->db) > 0) {
    bxRingCount(p, iSlot >> 29, !bCleared, bCleared, lessBytes(0, nByte), pErr);
  }
}

void bxRingDelete(Ring *p, i64 iSlot, BxErr *pErr) {
  bxRingRefuseHeld(p, iSlot, iSlot, pErr);
  bxRingRemove(p, iSlot, 1, pErr);
  if (p->pWatch != 0) bxTrackForget(p->pWatch, iSlot >> 29);
  bxBodyDeleted(p, iSlot >> 29, pErr);
  bxRingLooked(p);
}

void bxRingTakeOut(Ring *p, BxStmts *pOn, const char *zDrop,
    const RingAgent *pAgent, int bSaved, BxErr *pErr) {
  bxStmtExec(
      pOn, zDrop, pErr, "ii", RING_FIRST(pAgent->iNo), RING_LAST(pAgent->iNo));
  recount(p, pAgent, bSaved ? zSaved : zCleared, pErr);
  bxBodyScrub(p, pAgent->iNo, pErr);
}
