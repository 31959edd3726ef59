/*
** manage.c: a conversation as a whole: create, resume, archive, delete, fork,
** and the clean-up of those that have expired.
**
** Each is one inner statement, and the triggers in sql/rollout.sql do the
** rest; the same statement by hand does the same.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define DAY_MS 86400000.0

/* Reads days, or 'permanent'. Returns 1 when *piExpire is to be bound. */
static int readTtl(sqlite3_value *pVal, i64 iNow, i64 *piExpire, BxErr *pErr) {
  char *zShown;
  int eType = pVal ? sqlite3_value_type(pVal) : SQLITE_NULL;
  if (eType == SQLITE_INTEGER || eType == SQLITE_FLOAT) {
    double rDays = sqlite3_value_double(pVal);
    double rMost = (double)(BX_MAX_TIME - iNow) / DAY_MS;
    if (rDays >= 0.0 && rDays <= rMost) {
      *piExpire = iNow + (i64)(rDays * DAY_MS);
      return 1;
    }
  }
  zShown = bxShow(pVal);
  if (zShown == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  bxFail(pErr, SQLITE_CONSTRAINT,
      "Invalid TTL: %s, must be a number of days from 0, or 'permanent'; "
      "leave it out for the setting rollout.ttl_days",
      zShown);
  sqlite3_free(zShown);
  return 0;
}

static const char zCreate[] =
    "INSERT INTO main.rollouts(id, created, expires_at, instructions, "
    "session_meta) VALUES (?1, ?2, ?3, ?4, ?5)";

static const char zMetaId[] =
    "SELECT CASE WHEN json_valid(?1) OR json_valid(?1) THEN ?1 ->> '$.id' END";

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
  sqlite3_value *pTtl = bxArg(p, 2);
  const char *zInstructions, *zMeta;
  sqlite3_stmt *pStmt;
  BxStmts *pHome;
  i64 iNow, iExpire = 0;
  int bPermanent = 0;
  if (bxArg(p, 0)) bxRolloutId(p->aArg[0], zId, &p->err);
  iNow = bxTime(bxArg(p, 4), "now", &p->err);
  if (pTtl != 0 && p->err.rc == SQLITE_OK) {
    bPermanent =
        sqlite3_value_type(pTtl) == SQLITE_TEXT &&
        strcmp((const char *)sqlite3_value_text(pTtl), "permanent") == 0;
    if (!bPermanent) readTtl(pTtl, iNow, &iExpire, &p->err);
  }
  zInstructions =
      bxText(bxArg(p, 1), "instructions", ROLLOUT_MAX_PAYLOAD, 1, &p->err);
  zMeta = bxText(bxArg(p, 3), "session_meta", ROLLOUT_MAX_PAYLOAD, 1, &p->err);
  pHome = bxRolloutHome(p->bx, &p->err);
  if (pHome == 0) return;
  if (bxArg(p, 0) == 0) findId(pHome, zMeta, zId, &p->err);
  pStmt = bxStmt(pHome, zCreate, &p->err);
  bxBind(pStmt, &p->err, "tintt", zId, iNow, zInstructions, zMeta);
  if (pTtl != 0 && p->err.rc == SQLITE_OK) {
    if (bPermanent) {
      sqlite3_bind_text(pStmt, 3, "permanent", -1, SQLITE_STATIC);
    } else {
      sqlite3_bind_int64(pStmt, 3, iExpire);
    }
  }
  bxRun(pStmt, &p->err);
  bxRolloutExplain(&p->err, "Write failed: ", zId, pHome);
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
  sqlite3_stmt *pStmt;
  BxStmts *pHome;
  bxRolloutId(p->aArg[0], zId, &p->err);
  pHome = bxRolloutHome(p->bx, &p->err);
  if (pHome == 0) return;
  pStmt = bxStmt(pHome, zSql, &p->err);
  bxBind(pStmt, &p->err, "t", zId);
  bxRun(pStmt, &p->err);
  bxRolloutExplain(&p->err, "Write failed: ", zId, 0);
  bxReturnInt(p, sqlite3_changes(p->bx->db));
}

static const char zArchive[] =
    "UPDATE main.rollout_heads SET status = 'archived' "
    "WHERE id = ?1 AND status <> 'archived'";

void bxRolloutArchive(BxCall *p) {
  changeOne(p, zArchive);
}

static const char zDelete[] = "DELETE FROM main.rollout_heads WHERE id = ?1";

void bxRolloutDelete(BxCall *p) {
  changeOne(p, zDelete);
}

static const char zCleanup[] =
    "INSERT INTO main.rollout_cleanup(now, max_rows) VALUES (?1, ?2)";
static const char zCleaned[] = "SELECT rows FROM main.rollout_act";

void bxRolloutCleanup(BxCall *p) {
  sqlite3_stmt *pStmt;
  BxStmts *pHome;
  i64 nGone = 0;
  i64 iNow = bxTime(bxArg(p, 0), "now", &p->err);
  i64 nMax =
      bxArg(p, 1) ? bxInt(p->aArg[1], "limit", 1, 1000000000, &p->err) : -1;
  pHome = bxRolloutHome(p->bx, &p->err);
  if (pHome == 0) return;
  pStmt = bxStmt(pHome, zCleanup, &p->err);
  bxBind(pStmt, &p->err, "ii", iNow, nMax);
  bxRun(pStmt, &p->err);
  pStmt = bxStmt(pHome, zCleaned, &p->err);
  if (bxRow(pStmt, &p->err)) nGone = sqlite3_column_int64(pStmt, 0);
  bxDone(pStmt, &p->err);
  bxRolloutExplain(&p->err, "Cleanup failed: ", "", 0);
  bxReturnInt(p, nGone);
}

static const char zFork[] =
    "INSERT INTO main.rollout_forks(parent, turn, id, created) "
    "VALUES (?1, ?2, ?3, ?4)";

/* Says which turns there are. */
static void explainTurn(BxStmts *p, const char *zId, i64 iTurn, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  if (pErr->zMsg == 0 || strncmp(pErr->zMsg, "Invalid turn", 12) != 0) return;
  pStmt =
      bxPrepare(p, "SELECT turns FROM main.rollout_heads WHERE id = ?1", &err);
  bxBind(pStmt, &err, "t", zId);
  if (bxRow(pStmt, &err)) {
    int rc = pErr->rc;
    bxClear(pErr);
    bxFail(pErr, rc,
        "Invalid turn: %lld; %s has %lld turns, so give 0 to %lld, or leave "
        "it out to share everything",
        iTurn, zId, sqlite3_column_int64(pStmt, 0),
        sqlite3_column_int64(pStmt, 0));
  }
  sqlite3_finalize(pStmt);
  bxClear(&err);
}

/* Names the conversation and its time. */
static void explainExpired(BxStmts *p, const char *zId, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  RolloutHead head;
  if (pErr->zMsg == 0 || strncmp(pErr->zMsg, "Rollout expired", 15) != 0) {
    return;
  }
  if (bxRolloutFind(p, 0, zId, &head, &err)) {
    bxClear(pErr);
    bxRolloutExpired(zId, head.iExpire, pErr);
  }
  bxClear(&err);
}

void bxRolloutFork(BxCall *p) {
  char zId[37], zNew[37];
  sqlite3_stmt *pStmt;
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
  pStmt = bxStmt(pHome, zFork, &p->err);
  bxBind(pStmt, &p->err, "tnti", zId, zNew, iNow);
  if (bxArg(p, 1)) bxBind(pStmt, &p->err, "-i", iTurn);
  bxRun(pStmt, &p->err);
  explainTurn(pHome, zId, iTurn, &p->err);
  explainExpired(pHome, zId, &p->err);
  if (p->err.zMsg != 0 && strncmp(p->err.zMsg, "RolloutExistsError", 18) == 0) {
    bxRolloutExplain(&p->err, "Write failed: ", zNew, pHome);
  }
  bxRolloutExplain(&p->err, "Write failed: ", zId, 0);
  if (p->err.rc == SQLITE_OK) bxReturnText(p, sqlite3_mprintf("%s", zNew));
}
