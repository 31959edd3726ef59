/*
** manage.c: whole conversations: create, resume, archive, delete, fork,
** rebuild, and the clean-up of those that have expired.
**
** Each function is one inner statement, and the triggers in sql/rollout.sql do
** the rest. The same statement can also be run by hand.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define PERMANENT (-1)

const BxRecords bxRolloutRecords[] = {
    {"rollouts", "main.rollout_heads", "rollout=id,", 0, "t.bytes",
        BX_HOLD_ON("rollout", "t.id"), 0, 0, 0, 0},
    {0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
};

/* Reads a number of days, or 'permanent'. Returns the time of the expiry. */
static i64 readTtl(sqlite3_value *pVal, i64 iNow, BxErr *pErr) {
  int eType = sqlite3_value_type(pVal);
  const char *z = "";
  if (pErr->rc != SQLITE_OK) return 0;
  if (eType == SQLITE_INTEGER || eType == SQLITE_FLOAT) {
    double rDays = sqlite3_value_double(pVal);
    double rMost = (double)(BX_MAX_TIME - iNow) / BX_MS_PER_DAY;
    if (rDays >= 0.0 && rDays <= rMost) {
      return iNow + (i64)(rDays * BX_MS_PER_DAY);
    }
  } else if (eType == SQLITE_TEXT) {
    z = (const char *)sqlite3_value_text(pVal);
    if (z == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  }
  if (z != 0 && strcmp(z, "permanent") == 0) return PERMANENT;
  bxRefuse(pErr,
      "ValidationError: Invalid TTL: %s, it must be a number of days from 0, "
      "or 'permanent'; omit it to use the setting rollout.ttl_days",
      pVal);
  return 0;
}

static const char zCreate[] =
    "INSERT INTO main.rollouts(id, created, expires_at, instructions, "
    "session_meta) VALUES (?1, ?2, ?3, ?4, ?5)";

static const char zMetaId[] =
    "SELECT CASE WHEN " BX_JSON_VALID("?1") " THEN ?1 ->> '$.id' END";

/* The id of a session_meta, or a new one. */
static void findId(BxStmts *p, const char *zMeta, char zId[37], BxErr *pErr) {
  sqlite3_stmt *pStmt;
  bxUuid(zId);
  if (zMeta == 0) return;
  pStmt = bxStmt(p, zMetaId, pErr);
  bxBind(pStmt, pErr, "t", zMeta);
  if (bxRow(pStmt, pErr) && sqlite3_column_type(pStmt, 0) != SQLITE_NULL) {
    bxRolloutId(sqlite3_column_value(pStmt, 0), zId, pErr);
  }
  bxDone(pStmt, pErr);
}

void bxRolloutCreate(BxCall *p) {
  char zId[37] = "";
  RolloutHead head;
  sqlite3_value *pTtl = bxArg(p, 2);
  const char *zInstructions, *zMeta;
  sqlite3_stmt *pStmt;
  BxStmts *pHome;
  i64 iNow, iExpire = 0;
  if (bxArg(p, 0)) bxRolloutId(p->aArg[0], zId, &p->err);
  iNow = bxTime(bxArg(p, 4), "now", &p->err);
  if (pTtl != 0) iExpire = readTtl(pTtl, iNow, &p->err);
  zInstructions =
      bxText(bxArg(p, 1), "instructions", ROLLOUT_MAX_PAYLOAD, 1, &p->err);
  zMeta = bxText(bxArg(p, 3), "session_meta", ROLLOUT_MAX_PAYLOAD, 1, &p->err);
  pHome = bxRolloutHome(p->bx, &p->err);
  if (pHome == 0) return;
  if (bxArg(p, 0) == 0) findId(pHome, zMeta, zId, &p->err);
  if (bxRolloutFind(pHome, 1, zId, &head, &p->err)) {
    bxRolloutExists(zId, &p->err);
  }
  pStmt = bxStmt(pHome, zCreate, &p->err);
  bxBind(pStmt, &p->err, "tintt", zId, iNow, zInstructions, zMeta);
  if (iExpire == PERMANENT) {
    bxBind(pStmt, &p->err, "--t", "permanent");
  } else if (pTtl != 0) {
    bxBind(pStmt, &p->err, "--i", iExpire);
  }
  bxRun(pStmt, &p->err);
  bxRolloutExplain(&p->err, "WriteError: Write failed: ");
  if (p->err.rc == SQLITE_OK) bxReturnText(p, sqlite3_mprintf("%s", zId));
}

void bxRolloutResume(BxCall *p) {
  char zId[37];
  RolloutHead head;
  BxStmts *pHome;
  i64 iNow;
  bxRolloutId(p->aArg[0], zId, &p->err);
  iNow = bxTime(bxArg(p, 1), "now", &p->err);
  pHome = bxRolloutHome(p->bx, &p->err);
  bxRolloutOpen(pHome, 0, zId, iNow, &head, &p->err);
  if (p->err.rc == SQLITE_OK) {
    bxRolloutSetShut(pHome, zId, head.no, 0, &p->err);
  }
  bxReturnInt(p, head.iLast);
}

/* Runs a statement with the id as its parameter; returns rows changed. */
static void changeOne(BxCall *p, const char *zSql) {
  char zId[37];
  BxStmts *pHome;
  bxRolloutId(p->aArg[0], zId, &p->err);
  pHome = bxRolloutHome(p->bx, &p->err);
  if (pHome == 0) return;
  bxDo(pHome, zSql, &p->err, "t", zId);
  bxRolloutExplain(&p->err, "WriteError: Write failed: ");
  bxReturnInt(p, sqlite3_changes(p->bx->db));
}

void bxRolloutArchive(BxCall *p) {
  static const char zSql[] =
      "UPDATE main.rollout_heads SET status = 'archived' "
      "WHERE id = ?1 AND status <> 'archived'";
  changeOne(p, zSql);
}

void bxRolloutDelete(BxCall *p) {
  static const char zSql[] = "DELETE FROM main.rollout_heads WHERE id = ?1";
  changeOne(p, zSql);
}

static const char zCleanup[] =
    "INSERT INTO main.rollout_cleanup(now, max_rows) VALUES (?1, ?2)";
static const char zCleaned[] = "SELECT rows FROM main.rollout_act";

void bxRolloutCleanup(BxCall *p) {
  BxStmts *pHome;
  i64 nGone, iNow;
  i64 nMax =
      bxArg(p, 1) ? bxInt(p->aArg[1], "limit", 1, 1000000000, &p->err) : -1;
  pHome = bxRolloutHome(p->bx, &p->err);
  if (pHome == 0) return;
  bxLock(pHome, &p->err);
  iNow = bxRuleTime(pHome, bxArg(p, 0), 1, &p->err);
  bxDo(pHome, zCleanup, &p->err, "ii", iNow, nMax);
  nGone = bxAsk(pHome, zCleaned, &p->err, "");
  bxRolloutExplain(&p->err, "CleanupError: Cleanup failed: ");
  bxReturnInt(p, nGone);
}

static const char zFork[] =
    "INSERT INTO main.rollout_forks(parent, id, created, turn) "
    "VALUES (?1, ?2, ?3, ?4)";

/* Checks what can be wrong with a fork, because the message of the trigger
** cannot show values. Returns 0 on error. */
static int checkFork(BxStmts *p, const char *zId, const char *zNew, i64 iTurn,
    i64 iNow, BxErr *pErr) {
  /* clang-format off */
  static const char zSql[] =
      "SELECT h.turns, " BX_JSON_VALID("d.payload")
      " FROM main.rollout_heads AS h"
      " JOIN main.rollout__data AS d ON d.id = h.no << 32 WHERE h.id = ?1";
  /* clang-format on */
  RolloutHead head;
  sqlite3_stmt *pStmt;
  bxRolloutOpen(p, 1, zId, iNow, &head, pErr);
  pStmt = bxStmt(p, zSql, pErr);
  bxBind(pStmt, pErr, "t", zId);
  if (bxRow(pStmt, pErr)) {
    i64 nTurn = sqlite3_column_int64(pStmt, 0);
    if (iTurn > nTurn) {
      bxFail(pErr, SQLITE_CONSTRAINT,
          "InvalidTurnError: Invalid turn: %lld; %s has %lld turns; use 0 to "
          "%lld, or omit it to share everything",
          iTurn, zId, nTurn, nTurn);
    }
    if (!sqlite3_column_int(pStmt, 1)) {
      bxFail(pErr, SQLITE_CORRUPT_VTAB,
          "CorruptedRolloutError: Corrupted rollout: the payload of item 0 of "
          "%s is not JSON; UPDATE rollouts SET session_meta to repair it",
          zId);
    }
  }
  bxDone(pStmt, pErr);
  if (bxRolloutFind(p, 0, zNew, &head, pErr)) bxRolloutExists(zNew, pErr);
  return pErr->rc == SQLITE_OK;
}

void bxRolloutFork(BxCall *p) {
  char zId[37], zNew[37];
  BxStmts *pHome;
  i64 iNow, iTurn = 0;
  bxRolloutId(p->aArg[0], zId, &p->err);
  if (bxArg(p, 1)) iTurn = bxInt(p->aArg[1], "turn", 0, 4294967295, &p->err);
  if (bxArg(p, 2)) {
    bxRolloutId(p->aArg[2], zNew, &p->err);
  } else {
    bxUuid(zNew);
  }
  iNow = bxTime(bxArg(p, 3), "now", &p->err);
  pHome = bxRolloutHome(p->bx, &p->err);
  if (pHome == 0) return;
  if (checkFork(pHome, zId, zNew, iTurn, iNow, &p->err)) {
    bxDo(pHome, zFork, &p->err, bxArg(p, 1) ? "ttii" : "ttin", zId, zNew, iNow,
        iTurn);
  }
  bxRolloutExplain(&p->err, "WriteError: Write failed: ");
  if (p->err.rc == SQLITE_OK) bxReturnText(p, sqlite3_mprintf("%s", zNew));
}

static const char zRebuild[] =
    "INSERT INTO main.rollout_rebuilds(id) SELECT id FROM main.rollout_heads "
    "WHERE ?1 IS NULL OR id = ?1 ORDER BY no";

void bxRolloutRebuild(BxCall *p) {
  char zId[37] = "";
  RolloutHead head;
  BxStmts *pHome;
  i64 nDone;
  if (bxArg(p, 0)) bxRolloutId(p->aArg[0], zId, &p->err);
  pHome = bxRolloutHome(p->bx, &p->err);
  if (pHome == 0) return;
  bxLock(pHome, &p->err);
  if (zId[0] && !bxRolloutFind(pHome, 0, zId, &head, &p->err)) {
    bxRolloutMissing(zId, &p->err);
  }
  bxDo(pHome, zRebuild, &p->err, "t", zId[0] ? zId : 0);
  nDone = zId[0] ? 1
                 : bxNumber(pHome, "SELECT count(*) FROM main.rollout_heads",
                       &p->err);
  bxRolloutExplain(&p->err, "WriteError: Write failed: ");
  bxReturnInt(p, nDone);
}
