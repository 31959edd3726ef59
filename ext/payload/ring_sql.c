/*
** ring_sql.c: what a payload_ring does, and all its SQL.
**
** Shadow tables, in the ring's own schema (readable by any SQLite):
**   <ring>_config  k, v: the window, the format version
**   <ring>_agents  one row an agent: how many exchanges it was given, how many
**                  of them rolled out, were cleared, were saved as evidence,
**                  and how many rows and bytes are there now
**   <ring>_slots   one row an exchange
**
** A slot's id is no << 16 | half << 15 | seq % window: a full ring rewrites
** the row of its oldest exchange in place, so a push costs the same however
** much is stored. When the window has changed, the agent's rows move into the
** other half of its ids at its next push; until then reads leave out what the
** new window no longer holds. A smaller window trims some agents at once, and
** a larger one all that are left, or their rows would come back.
**
** Invariants, kept by triggers on the shadow tables, so that each act is one
** statement and holds inside a transaction as well as outside:
**   given = rows + rolled + cleared + saved
**   rows and bytes are count and sum of the agent's slots
**   seq counts from 1 without a gap, and is never used twice
** "why" tells the delete trigger what a bulk act is about: 0 a plain DELETE,
** 1 rolling out, 2 saved as evidence, 3 taken out as JSON.
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define RING_FORMAT 1
#define MAX_NO ((i64)1 << 46)    /* of agents, so that no << 16 fits */
#define MAX_GIVEN ((i64)1 << 62) /* pushes of an agent */
#define TRIM_AGENTS "100" /* agents that one change of the window trims */

/* No NOT NULL on what a push rewrites: a statement that a constraint can abort
** half-way makes SQLite keep a copy of every page it touches. blackbox_check()
** looks instead. */
static const char zTables[] =
    "CREATE TABLE main.@_config(k TEXT PRIMARY KEY, v NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE main.@_agents("
    "  agent_id TEXT PRIMARY KEY,"
    "  no INTEGER UNIQUE,"
    "  window INTEGER,"
    "  half INTEGER,"
    "  given INTEGER,"
    "  rolled INTEGER,"
    "  cleared INTEGER,"
    "  saved INTEGER,"
    "  rows INTEGER,"
    "  bytes INTEGER,"
    "  why INTEGER) WITHOUT ROWID;"
    "CREATE TABLE main.@_slots("
    "  id INTEGER PRIMARY KEY,"
    "  seq INTEGER,"
    "  timestamp INTEGER,"
    "  size_bytes INTEGER,"
    "  agent_id TEXT,"
    "  event_id TEXT,"
    "  request_body,"
    "  response_body);";

static const char zTriggers[] =
    "CREATE TRIGGER main.@_first AFTER INSERT ON @_slots BEGIN"
    "  INSERT INTO @_agents(no, agent_id, window, half, given, rolled,"
    "    cleared, saved, rows, bytes, why)"
    "  VALUES(NEW.id >> 16, NEW.agent_id,"
    "    (SELECT v FROM @_config WHERE k = 'window'), 0, NEW.seq, 0, 0, 0, 1,"
    "    NEW.size_bytes, 0)"
    "  ON CONFLICT(agent_id) DO UPDATE SET given = NEW.seq, rows = rows + 1,"
    "    bytes = bytes + NEW.size_bytes;"
    "END;"
    "CREATE TRIGGER main.@_next AFTER UPDATE OF seq ON @_slots BEGIN"
    "  UPDATE @_agents SET given = NEW.seq, rolled = rolled + 1,"
    "    bytes = bytes + NEW.size_bytes - OLD.size_bytes"
    "  WHERE agent_id = NEW.agent_id;"
    "END;"
    "CREATE TRIGGER main.@_gone AFTER DELETE ON @_slots BEGIN"
    "  UPDATE @_agents SET rows = rows - 1, bytes = bytes - OLD.size_bytes,"
    "    rolled = rolled + (why = 1), saved = saved + (why = 2),"
    "    cleared = cleared + (why IN (0, 3))"
    "  WHERE agent_id = OLD.agent_id;"
    "END;"
    "CREATE TRIGGER main.@_takeout AFTER UPDATE OF why ON @_agents"
    " WHEN NEW.why >= 2 BEGIN"
    "  DELETE FROM @_slots WHERE id BETWEEN NEW.no << 16 AND"
    "    (NEW.no << 16) + 65535;"
    "  UPDATE @_agents SET why = 0 WHERE agent_id = NEW.agent_id;"
    "END;"
    "CREATE TRIGGER main.@_layout AFTER UPDATE OF window ON @_agents BEGIN"
    "  UPDATE @_agents SET why = 1 WHERE agent_id = NEW.agent_id;"
    "  DELETE FROM @_slots WHERE id BETWEEN NEW.no << 16 AND"
    "    (NEW.no << 16) + 65535 AND seq <= NEW.given - NEW.window;"
    "  UPDATE @_slots SET id ="
    "    (NEW.no << 16) + ((1 - OLD.half) << 15) + seq % NEW.window"
    "  WHERE id BETWEEN (NEW.no << 16) + (OLD.half << 15) AND"
    "    (NEW.no << 16) + (OLD.half << 15) + 32767;"
    "  UPDATE @_agents SET why = 0, half = 1 - OLD.half"
    "  WHERE agent_id = NEW.agent_id;"
    "END;"
    "CREATE TRIGGER main.@_window AFTER UPDATE OF v ON @_config"
    " WHEN NEW.k = 'window' BEGIN"
    "  UPDATE @_agents SET window = NEW.v WHERE agent_id IN ("
    "    SELECT agent_id FROM @_agents WHERE window > NEW.v"
    "    LIMIT " TRIM_AGENTS ");"
    "  UPDATE @_agents SET window = OLD.v"
    "  WHERE window > OLD.v AND NEW.v > OLD.v;"
    "END;";

static const char zDropTriggers[] =
    "DROP TRIGGER IF EXISTS main.@_first; DROP TRIGGER IF EXISTS main.@_next;"
    "DROP TRIGGER IF EXISTS main.@_gone; DROP TRIGGER IF EXISTS main.@_takeout;"
    "DROP TRIGGER IF EXISTS main.@_layout;"
    "DROP TRIGGER IF EXISTS main.@_window;";

/*---------------------------------------------------- life of a ring ----*/

void bxRingCreate(Ring *p, i64 nWindow, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  bxExec(&p->base.stmts, zTables, pErr);
  bxExec(&p->base.stmts, zTriggers, pErr);
  pStmt = bxPrepare(&p->base.stmts,
      "INSERT INTO main.@_config(k, v) VALUES('window', ?1), ('format', ?2)",
      pErr);
  bxBind(pStmt, pErr, "ii", nWindow, (i64)RING_FORMAT);
  bxRun(pStmt, pErr);
  sqlite3_finalize(pStmt);
}

void bxRingDestroy(Ring *p, BxErr *pErr) {
  bxStmtsFinalize(&p->base.stmts);
  bxExec(&p->base.stmts,
      "DROP TABLE IF EXISTS main.@_slots; DROP TABLE IF EXISTS main.@_agents;"
      "DROP TABLE IF EXISTS main.@_config;",
      pErr);
}

/* The triggers are made anew, as their names carry the ring's name too. */
void bxRingRename(Ring *p, const char *zNew, BxErr *pErr) {
  static const char *const azTable[] = {"slots", "agents", "config"};
  BxStmts renamed;
  char *zSql;
  int i;
  bxStmtsFinalize(&p->base.stmts);
  bxStmtsInit(&renamed, p->base.stmts.bx, p->base.stmts.zDb, zNew, pErr);
  bxExec(&p->base.stmts, zDropTriggers, pErr);
  for (i = 0; i < 3 && pErr->rc == SQLITE_OK; i++) {
    zSql = sqlite3_mprintf("ALTER TABLE \"%w\".\"%w_%s\" RENAME TO \"%w_%s\"",
        renamed.zDb, p->base.stmts.zTable, azTable[i], zNew, azTable[i]);
    if (zSql == 0) {
      bxFail(pErr, SQLITE_NOMEM, "out of memory");
    } else {
      bxFailDb(
          pErr, renamed.bx->db, sqlite3_exec(renamed.bx->db, zSql, 0, 0, 0));
    }
    sqlite3_free(zSql);
  }
  bxExec(&renamed, zTriggers, pErr);
  bxStmtsFree(&renamed);
}

/*------------------------------------------------------------- agents ----*/

static void corrupt(Ring *p, BxErr *pErr, const char *zSuffix) {
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
    corrupt(p, pErr, "_agents");
    pAgent->iNo = 0; /* nothing may be computed from it */
  }
}

/* The ring's window, read once in a transaction: while it writes, nobody else
** can change it. */
static i64 readWindow(Ring *p, BxErr *pErr) {
  static const char zSql[] = "SELECT v FROM main.@_config WHERE k = 'window'";
  sqlite3_stmt *pStmt;
  if (p->nWindow != 0) return p->nWindow;
  pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  if (bxRow(pStmt, pErr)) p->nWindow = sqlite3_column_int64(pStmt, 0);
  bxDone(pStmt, pErr);
  if (p->nWindow < 1 || p->nWindow > BX_RING_MAX_WINDOW) {
    p->nWindow = 0;
    corrupt(p, pErr, "_config");
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
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  bxBind(pStmt, pErr, "ti", zAgent, pAgent->nAllowed);
  bxRun(pStmt, pErr);
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
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  i64 iNo = 1;
  if (bxRow(pStmt, pErr)) {
    iNo = sqlite3_column_int64(pStmt, 0);
    if (iNo < MAX_GIVEN) iNo++;
  }
  bxDone(pStmt, pErr);
  if (iNo < 1 || iNo > MAX_NO) corrupt(p, pErr, "_agents");
  return iNo;
}

/* Whether the slot of the agent's next push holds a row. A ring that is full
** need not look. */
static int isTaken(Ring *p, const RingAgent *pNext, BxErr *pErr) {
  static const char zSql[] = "SELECT 1 FROM main.@_slots WHERE id = ?1";
  sqlite3_stmt *pStmt;
  int bTaken;
  if (pNext->nRow >= pNext->nWindow) return 1;
  pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  bxBind(pStmt, pErr, "i", BX_RING_SPLIT(pNext));
  bTaken = bxRow(pStmt, pErr);
  bxDone(pStmt, pErr);
  return bTaken;
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
  agent.nGiven++;
  bTaken = isTaken(p, &agent, pErr);
  pStmt = bxStmt(&p->base.stmts, bTaken ? zRewrite : zInsert, pErr);
  bxBind(pStmt, pErr, "iiiitsss", BX_RING_SPLIT(&agent), agent.nGiven,
      pPush->iTime, nByte, pPush->zAgent, pPush->pEvent, pPush->pRequest,
      pPush->pResponse);
  bxRun(pStmt, pErr);
  if (pErr->rc == SQLITE_OK && sqlite3_changes(p->base.stmts.bx->db) == 0) {
    corrupt(p, pErr, "_slots"); /* the row there is another agent's, or none */
  }
  *piRowid = BX_RING_SPLIT(&agent);
}

void bxRingDelete(Ring *p, i64 iRowid, BxErr *pErr) {
  static const char zSql[] = "DELETE FROM main.@_slots WHERE id = ?1";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  bxBind(pStmt, pErr, "i", iRowid);
  bxRun(pStmt, pErr);
}

void bxRingSetWindow(Ring *p, i64 nWindow, BxErr *pErr) {
  static const char zSql[] =
      "UPDATE main.@_config SET v = ?1 WHERE k = 'window'";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  p->nWindow = 0;
  bxBind(pStmt, pErr, "i", nWindow);
  bxRun(pStmt, pErr);
}

void bxRingTakeOut(Ring *p, const char *zAgent, int bSaved, BxErr *pErr) {
  static const char zSql[] =
      "UPDATE main.@_agents SET why = ?2 WHERE agent_id = ?1";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  bxBind(pStmt, pErr, "ti", zAgent, (i64)(bSaved ? 2 : 3));
  bxRun(pStmt, pErr);
}

void bxRingLock(Ring *p, BxErr *pErr) {
  static const char zSql[] = "UPDATE main.@_config SET v = v WHERE 0";
  p->nWindow =
      0; /* SQLite does not tell a function that a transaction begins */
  bxRun(bxStmt(&p->base.stmts, zSql, pErr), pErr);
}

/*--------------------------------------------------------------- check ----*/

static const char zCheck[] =
    "SELECT '_agents', 'agent ' || agent_id ||"
    "    ': given is not rows + rolled + cleared + saved'"
    "  FROM main.@_agents"
    "  WHERE given IS NULL OR given IS NOT rows + rolled + cleared + saved "
    "UNION ALL "
    "SELECT '_agents', 'agent ' || a.agent_id ||"
    "    ': rows or bytes are not those of its slots'"
    "  FROM main.@_agents AS a LEFT JOIN (SELECT id >> 16 AS no, count(*) AS n,"
    "    sum(size_bytes) AS b FROM main.@_slots GROUP BY 1) AS s ON s.no = a.no"
    "  WHERE a.rows IS NOT coalesce(s.n, 0) OR a.bytes IS NOT coalesce(s.b, 0) "
    "UNION ALL "
    "SELECT '_agents', 'agent ' || agent_id || ': the layout is not one'"
    "  FROM main.@_agents WHERE (no > 0 AND half IN (0, 1) AND why = 0 AND"
    "    typeof(window) = 'integer' AND window BETWEEN 1 AND 10000) IS NOT "
    "TRUE "
    "UNION ALL "
    "SELECT '_slots', 'slot ' || s.id || ' is not where its agent has it'"
    "  FROM main.@_slots AS s LEFT JOIN main.@_agents AS a ON a.no = s.id >> 16"
    "  WHERE a.no IS NULL OR a.agent_id IS NOT s.agent_id OR"
    "    s.event_id IS NULL OR s.timestamp IS NULL OR s.id IS NOT"
    "    (a.no << 16) + (a.half << 15) + s.seq % a.window OR s.seq > a.given "
    "UNION ALL "
    "SELECT '_config', 'the window is not from 1 to 10000' WHERE NOT EXISTS ("
    "  SELECT 1 FROM main.@_config WHERE k = 'window' AND"
    "    typeof(v) = 'integer' AND v BETWEEN 1 AND 10000) "
    "LIMIT 100";

/* A database in memory with the ring's tables and triggers as they should be.
*/
static sqlite3 *openModel(Ring *p, BxErr *pErr) {
  const char *zTable = p->base.stmts.zTable;
  char *zSql = bxExpand(zTables, "main", zTable);
  char *zMore = bxExpand(zTriggers, "main", zTable);
  sqlite3 *db = 0;
  int rc = zSql && zMore ? sqlite3_open(":memory:", &db) : SQLITE_NOMEM;
  if (rc == SQLITE_OK) rc = sqlite3_exec(db, zSql, 0, 0, 0);
  if (rc == SQLITE_OK) rc = sqlite3_exec(db, zMore, 0, 0, 0);
  sqlite3_free(zSql);
  sqlite3_free(zMore);
  if (rc != SQLITE_OK && db != 0) bxFailDb(pErr, db, rc);
  if (rc != SQLITE_OK) bxFail(pErr, rc, "out of memory");
  return db;
}

/* Every trigger is there, as it was made. */
static void checkTriggers(Ring *p, BxProblems *pOut, BxErr *pErr) {
  sqlite3 *pModel = openModel(p, pErr);
  sqlite3_stmt *pWanted = 0;
  sqlite3_stmt *pThere = bxPrepare(&p->base.stmts,
      "SELECT 1 FROM main.sqlite_schema WHERE name = ?1 AND sql = ?2", pErr);
  if (pErr->rc == SQLITE_OK) {
    bxFailDb(pErr, pModel,
        sqlite3_prepare_v2(pModel,
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'", -1,
            &pWanted, 0));
  }
  while (bxRow(pWanted, pErr)) {
    const char *zName = (const char *)sqlite3_column_text(pWanted, 0);
    bxBind(pThere, pErr, "tt", zName, sqlite3_column_text(pWanted, 1));
    if (!bxRow(pThere, pErr) && pErr->rc == SQLITE_OK) {
      bxProblem(pOut, zName,
          "trigger is missing or another; the ring's counters no longer follow "
          "its rows");
    }
    bxDone(pThere, pErr);
  }
  sqlite3_finalize(pThere);
  sqlite3_finalize(pWanted);
  sqlite3_close(pModel);
}

void bxRingCheck(BxVtab *pVtab, BxProblems *pOut) {
  Ring *p = (Ring *)pVtab;
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt = bxPrepare(&p->base.stmts, zCheck, &err);
  while (bxRow(pStmt, &err)) {
    char *zObject = sqlite3_mprintf(
        "%s%s", pVtab->stmts.zTable, sqlite3_column_text(pStmt, 0));
    if (zObject == 0) bxFail(&err, SQLITE_NOMEM, "out of memory");
    bxProblem(
        pOut, zObject ? zObject : "", "%s", sqlite3_column_text(pStmt, 1));
    sqlite3_free(zObject);
  }
  sqlite3_finalize(pStmt);
  checkTriggers(p, pOut, &err);
  bxUnchecked(pOut, pVtab->stmts.zTable, &err);
}
