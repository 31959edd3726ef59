/*
** log.c: the rows of the log, and the leaves that they get.
**
** The module and the guards of the domains write rows (blackbox__log), in any
** schema. At the end of a call the rows that have no leaf get one: row n is leaf
** n - 1 (log_leaf.c). A row is never changed, except that fields of it may be erased.
**
** A row that comes later has its leaf whatever was done to the log before:
**
**   newest rows are gone    their numbers are not used again
**   numbers are missing     they get leaves without fields
**   too many are missing    the rows after them get the next numbers
**   a leaf is there         it is replaced
**   the size or root is     they are what the leaves say
**   another
**
** Of all but the second a row of kind "repair" tells, which gets a leaf as well, and
** which proof_verify() lists for 30 days. If hashes of the tree are missing, or a trigger
** of the user refuses a leaf, rows stay without leaves, and the call succeeds: a kill
** switch must work even then. If tables of core were dropped it makes them anew
** (bxLogRemake): the evidence is there then, and the log tells what it has lost.
*/
#include "core.h"
#include "model.h"
#include "vtable.h"
#include "log.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* Leaves that a call makes at most: those of a kill switch of the largest ring. */
#define CALL_MOST 20000
/* A tile gets its last leaves alone: all of it is hashed before. */
#define LAST_ALONE 4

/* If the newest rows were removed, others must not get their numbers. */
static void keepNumbers(BxStmts *p, BxErr *pErr) {
  static const char zKeep[] =
      "INSERT INTO main.blackbox__log(n, domain, kind, subject, detail)"
      " SELECT 2 + max(f.last, coalesce("
      "   (SELECT max(leaf) FROM main.blackbox__leaves), -1)), 'core',"
      "  'repair', 'blackbox__log', json_object('missing', g.n + 1)"
      " FROM (SELECT coalesce(max(n), 0) AS n FROM main.blackbox__log) AS g,"
      "  (SELECT coalesce((SELECT last FROM main.blackbox__folded WHERE first <"
      "   (SELECT size FROM main.blackbox__tree) ORDER BY first DESC LIMIT 1),"
      "   -1) AS last) AS f"
      " WHERE g.n <= f.last OR"
      "  EXISTS (SELECT 1 FROM main.blackbox__leaves WHERE leaf = g.n)";
  bxStmtExec(p, zKeep, pErr, "");
}

void bxLogBegin(BxStmts *p, BxErr *pErr) {
  static const char zAhead[] =
      "SELECT (SELECT max(n) FROM main.blackbox__log) - size > ?1"
      " AND (SELECT max(n) - count(*) FROM main.blackbox__log WHERE n > size)"
      "  - size > ?1 FROM main.blackbox__tree";
  BxErr err = {SQLITE_OK, 0};
  bxLock(p, pErr);
  if (pErr->rc != SQLITE_OK) return;
  keepNumbers(p, &err);
  if (bxQueryInt(p, zAhead, &err, "i", (i64)BX_LOG_GAP)) {
    bxLogProve(p, CALL_MOST, &err);
  }
  bxErrBeside(p, pErr, &err);
}

i64 bxLogAppend(BxStmts *p, const BxLogRow *pRow, BxErr *pErr) {
  static const char zRow[] =
      "INSERT INTO main.blackbox__log(at, domain, kind, subject, actor, reason,"
      " detail) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)";
  assert(pRow->zDomain != 0 && pRow->zKind != 0); /* it is no receipt */
  bxStmtExec(p, zRow, pErr, "itttttt", pRow->iAt ? pRow->iAt : bxNow(),
      pRow->zDomain, pRow->zKind, pRow->zSubject, pRow->zActor, pRow->zReason,
      pRow->zDetail);
  return pErr->rc == SQLITE_OK ? sqlite3_last_insert_rowid(p->bx->db) : 0;
}

void bxLogRefusal(BxStmts *p, const char *zDomain, const char *zRule,
    const char *zWhy, BxErr *pErr) {
  static const char zSaid[] =
      "SELECT EXISTS (SELECT 1 FROM main.blackbox__log WHERE subject = ?1 AND"
      " at > ?2 AND kind = 'refusal' AND reason = ?3)";
  BxLogRow row = {zDomain, "refusal", zRule, 0, zWhy, 0, bxNow()};
  i64 iDay = row.iAt - BX_MS_PER_DAY;
  if (bxQueryInt(p, zSaid, pErr, "tit", zRule, iDay, zWhy) == 0) {
    bxLogBegin(p, pErr);
    bxLogAppend(p, &row, pErr);
    bxLogProve(p, BX_LOG_TILE, pErr);
  }
}

int bxLogRemake(BxStmts *p, BxErr *pErr) {
  static const char zTell[] =
      "INSERT INTO main.blackbox__log(domain, kind, subject, detail)"
      " VALUES('core', 'repair', 'schema of core', json_object('missing', ?1))";
  BxErr lost;
  sqlite3_stmt *pHold;
  const char *zDot = bxErrContains(pErr, "no such table: ") ? pErr->zMsg : 0;
  if (zDot == 0) return 0;
  zDot = strrchr(zDot, '.') ? strrchr(zDot, '.') + 1 : strstr(zDot, ": ") + 2;
  if (!bxModelMakes(p->bx->aDomain[0].zSql, zDot)) return 0;
  lost = bxErrTake(pErr);
  pHold = bxGuardBegin(p->bx, pErr);
  bxExec(p, p->bx->aDomain[0].zSql, pErr);
  bxGuardEnd(p->bx, pHold, pErr);
  bxLogBegin(p, pErr);
  bxStmtExec(p, zTell, pErr, "t", strstr(lost.zMsg, ": ") + 2);
  bxErrClear(&lost);
  return pErr->rc == SQLITE_OK;
}

/*-------------------------------------------------------------- erasing ----*/

/* (The salt is overwritten before it goes, whatever secure_delete is. If the leaf
** cannot be made again it stands for all of its fields: that of a pin that has ended,
** or of a row that was altered.) */
void bxLogErase(BxStmts *p, i64 n, const char *zNames, BxErr *pErr) {
  static const char zZero[] = "UPDATE main.blackbox__log"
                              " SET salt = zeroblob(length(salt)) WHERE n = ?1";
#define BLANK_FIELD(name)                                                      \
  ", " name " = iif(instr(',' || ?2 || ',', '," name ",'), NULL, " name ")"
  static const char zBlank[] =
      "UPDATE main.blackbox__log SET salt = x''" BLANK_FIELD("actor")
          BLANK_FIELD("reason") BLANK_FIELD("subject") BLANK_FIELD("detail")
              BLANK_FIELD("agent_id") BLANK_FIELD("event_id")
                  BLANK_FIELD("kill_switch_event_id") " WHERE n = ?1";
  static const char zTell[] =
      "INSERT INTO main.blackbox__log(domain, kind, subject, detail) VALUES("
      " 'core', 'erasure', 'row:' || ?1, json_object('fields', json('[\"' ||"
      "  replace(?2, ',', '\",\"') || '\"]')))";
  static const char zHash[] =
      "INSERT OR REPLACE INTO main.blackbox__erased(n, name, type, hash)"
      " VALUES(?1, ?2, ?3, ?4)";
  static const char zSalt[] =
      "INSERT OR REPLACE INTO main.blackbox__erased(n, name, salt)"
      " VALUES(?1, ?2, ?3)";
  BxLeaf leaf;
  BxLog log;
  MerkleHash stored;
  int i, nField;
  assert(n > 0 && zNames != 0);
  bxLogProve(p, BX_LOG_MOST, pErr);
  bxLogOpen(&log, p, pErr);
  if (!bxLogLeafOf(p, n, &leaf, 0, pErr)) return;
  log.tree.xGet(&log.tree, 0, n - 1, &stored, pErr);
  /* the hashes of the named fields stay, and the salts of the others */
  nField = bxLogIsLeaf(p, &leaf, &stored, pErr) ? leaf.nField : 0;
  for (i = 0; i < nField; i++) {
    const BxLogField *pField = &leaf.aField[i];
    if (pField->bErased || pField->eType == SQLITE_NULL) continue;
    if (bxIsColumn(pField->zName, zNames)) {
      bxStmtExec(p, zHash, pErr, "itix", n, pField->zName, (i64)pField->eType,
          pField->hash.a, (i64)BX_DIGEST);
    } else {
      bxStmtExec(p, zSalt, pErr, "itx", n, pField->zName, pField->salt.a,
          (i64)BX_DIGEST);
    }
  }
  bxStmtExec(p, zZero, pErr, "i", n);
  bxStmtExec(p, zBlank, pErr, "it", n, zNames);
  bxStmtExec(p, zTell, pErr, "it", n, zNames);
}

/*--------------------------------------------------------------- proving ----*/

/* Whether too many numbers are missing before row n. */
static int isAhead(const BxLog *pLog, i64 n) {
  return n - pLog->now.n > BX_LOG_GAP;
}

/* Adds the leaves of rows, and of the numbers that are missing before them. */
static void takeRows(BxLog *pLog, i64 nMost, BxErr *pErr) {
  static const char zRows[] =
      "SELECT " BX_LOG_COLUMNS
      " FROM main.blackbox__log WHERE n > ?1 ORDER BY n LIMIT ?2 + 0";
  MerkleHash none;
  sqlite3_stmt *pStmt = bxStmt(pLog->p, zRows, pErr);
  bxBind(pStmt, pErr, "ii", pLog->now.n, nMost);
  bxDigestTwo("", 0, "", 0, none.a);
  while (bxStep(pStmt, pErr)) {
    i64 n = sqlite3_column_int64(pStmt, 0);
    const MerkleHash *pKnown = bxLogKnownFields(pLog->p, n);
    BxLeaf leaf;
    if (isAhead(pLog, n)) break;
    while (pLog->now.n + 1 < n && pErr->rc == SQLITE_OK) {
      bxLogAddLeaf(pLog, &none, 1, pErr);
    }
    if (pKnown != 0) {
      bxLogAddLeaf(pLog, pKnown, 1, pErr);
      continue;
    }
    bxLogLeaf(pLog->p, pStmt, 0, &leaf, pErr);
    bxLogAddLeaf(pLog, &leaf.fields, leaf.bKept, pErr);
  }
  bxReset(pStmt, pErr);
}

/* Tells what was damaged. Returns the n of the row. */
static i64 tellRepair(
    BxLog *pLog, const char *zSubject, char *zDetail, BxErr *pErr) {
  BxLogRow row = {.zDomain = "core",
      .zKind = "repair",
      .zSubject = zSubject,
      .zDetail = zDetail};
  i64 n = bxLogAppend(pLog->p, &row, pErr);
  sqlite3_free(zDetail);
  return n;
}

static i64 tellTree(BxLog *pLog, i64 nTold, BxErr *pErr) {
  return tellRepair(pLog, "blackbox__tree",
      bxPrintf(pErr, "{\"size\":%lld,\"leaves\":%lld}", nTold, pLog->now.n),
      pErr);
}

/* A row far ahead would take all numbers up to its own away from the rows that come
** after it. They have no leaves yet: they get the next numbers, at most so many that
** none of these is theirs. After the last number that there is SQLite gives random
** ones, so that their order is that of time. Returns how many there were. */
static i64 pullRows(BxLog *pLog, i64 nMost, BxErr *pErr) {
  static const char zNext[] = "SELECT n FROM main.blackbox__log WHERE n > ?1"
                              " ORDER BY n LIMIT 1";
  static const char zAhead[] =
      "SELECT json_group_array(n) FROM (SELECT n FROM main.blackbox__log"
      " WHERE n > ?1 ORDER BY at, kind = 'unpin', n LIMIT ?2)";
  static const char zPull[] =
      "UPDATE main.blackbox__log SET n = ?2 WHERE n = ?1";
  static const char zStep[] =
      "UPDATE main.retention__in_force SET step = ?2 WHERE step = ?1";
  static const char zUnpin[] =
      "UPDATE main.blackbox__log SET detail = '{\"pin\":' || ?2 || '}'"
      " WHERE n > ?3 AND kind IN ('unpin', 'complete', 'pin')"
      " AND detail = '{\"pin\":' || ?1 || '}'";
  BxStmts *p = pLog->p;
  i64 iTo = pLog->now.n, iFirst = bxQueryInt(p, zNext, pErr, "i", iTo);
  sqlite3_stmt *pStmt;
  int i;
  if (iFirst == 0 || !isAhead(pLog, iFirst)) return 0;
  if (nMost > BX_LOG_GAP) nMost = BX_LOG_GAP;
  pStmt = bxJsonRows(p->bx, "SELECT value FROM json_each(?1)",
      bxQueryText(p, zAhead, pErr, "ii", iTo, nMost), pErr);
  while (bxStep(pStmt, pErr)) {
    i64 iFrom = sqlite3_column_int64(pStmt, 0);
    bxStmtExec(p, zPull, pErr, "ii", iFrom, ++iTo);
    /* what names the row by its n gets its new number */
    bxStmtExec(p, zStep, pErr, "ii", iFrom, iTo);
    bxStmtExec(p, zUnpin, pErr, "iii", iFrom, iTo, pLog->now.n);
    for (i = 0; i < p->bx->nDomain; i++) {
      BxErr err = {SQLITE_OK, 0};
      const char *zPins = p->bx->aDomain[i].zPins;
      if (zPins == 0) continue;
      bxExecSql(p->bx,
          bxPrintf(&err, "UPDATE \"%w\".%s SET n = %lld WHERE n = %lld", p->zDb,
              zPins, iTo, iFrom),
          &err);
      bxErrMoveBut(pErr, &err, "no such table");
    }
  }
  sqlite3_finalize(pStmt);
  tellRepair(pLog, "blackbox__log",
      bxPrintf(pErr, "{\"from\":%lld,\"to\":%lld,\"rows\":%lld}", iFirst,
          pLog->now.n + 1, iTo - pLog->now.n),
      pErr);
  return pErr->rc == SQLITE_OK ? iTo - pLog->now.n : 0;
}

i64 bxLogProve(BxStmts *p, i64 nMost, BxErr *pErr) {
  static const char zNewest[] = "SELECT max(n) FROM main.blackbox__log";
  static const char zForget[] = "DELETE FROM main.blackbox__log WHERE n = ?1";
  /* the receipts of minutes that are over become rows of the log */
  static const char zOver[] = "SELECT count(*) FROM main.blackbox__open"
                              " WHERE minute BETWEEN 1 AND ?1";
  static const char zClose[] =
      "INSERT INTO main.blackbox__log(at, domain, detail, rows, bytes, oldest,"
      " newest, salt) SELECT at, nullif(domain, substr(rule, 1,"
      "  instr(rule, '.') - 1)), rule, rows, bytes, at - oldest,"
      "  newest - oldest, NULL FROM main.blackbox__open"
      " WHERE minute BETWEEN 1 AND ?1";
  static const char zClosed[] =
      "DELETE FROM main.blackbox__open WHERE minute BETWEEN 1 AND ?1";
  i64 iMinute = bxNow() / 60000 - 1;
  BxLog log;
  BxErr cut = {SQLITE_OK, 0};
  i64 nBefore, nStep, nTold, nTile, nOver, iNewest, iRepair = 0;
  int bSmall = nMost < BX_LOG_FEW;
  assert(pErr->rc != SQLITE_OK ||
         sqlite3_txn_state(p->bx->db, p->zDb) == SQLITE_TXN_WRITE);
  if (bxLogOpenToWrite(&log, p, &nTold, pErr)) {
    iRepair = tellTree(&log, nTold, pErr);
  }
  nBefore = log.now.n;
  nTile = BX_LOG_TILE - nBefore % BX_LOG_TILE;
  iNewest = bxQueryInt(p, zNewest, pErr, "");
  if (iNewest < nBefore) keepNumbers(p, pErr);
  if (bSmall && iNewest == nBefore && pErr->rc == SQLITE_OK &&
      bxLogFold(&log, nMost + 2, pErr)) { /* a small step, and nothing else */
    bxLogSave(&log, pErr);
    return 0;
  }
  nOver = bxQueryInt(p, zOver, pErr, "i", iMinute);
  if (nOver > 0 &&
      (!bSmall || iNewest == nBefore || iNewest - nBefore + nOver <= nMost)) {
    bxStmtExec(p, zClose, pErr, "i", iMinute);
    bxStmtExec(p, zClosed, pErr, "i", iMinute);
  }
  if (bxQueryInt(p, zNewest, pErr, "") <= nBefore || pErr->rc != SQLITE_OK)
    return 0;
  if (bSmall && nMost >= nTile)
    nMost = nTile > LAST_ALONE ? nTile - LAST_ALONE : nTile;
  if (bxLogRepairFrontier(&log, bSmall && nMost < nTile, pErr))
    iRepair = tellTree(&log, nBefore, pErr);
  takeRows(&log, nMost, pErr);
  while (pullRows(&log, nMost, pErr) > 0) takeRows(&log, nMost, pErr);
  if (log.iReplaced > 0) {
    tellRepair(&log, "blackbox__leaves",
        bxPrintf(pErr, "{\"leaf\":%lld}", log.iReplaced), pErr);
    takeRows(&log, 1, pErr);
  }
  nStep = log.now.n < bxQueryInt(p, zNewest, pErr, "") || bSmall
              ? 0
              : 1 + (log.now.n - nBefore) / BX_LOG_TILE;
  for (; nStep > 0 && bxLogFold(&log, 2 * nMost, pErr); nStep--) {
    takeRows(&log, nMost, pErr); /* the sums */
  }
  bxLogSave(&log, pErr);
  assert(pErr->rc != SQLITE_OK || log.now.n >= nBefore);
  if (pErr->rc != SQLITE_OK && log.now.n > nBefore &&
      sqlite3_txn_state(p->bx->db, p->zDb) == SQLITE_TXN_WRITE) {
    bxLogTruncate(&log, nBefore, &cut); /* what it can */
    bxStmtExec(p, zForget, &cut, "i", iRepair);
    bxErrClear(&cut);
    return 0;
  }
  return log.now.n - nBefore;
}

/* (A file without holds costs one look.) */
void bxLogNoteHeld(BxStmts *p, i64 nMost, BxErr *pErr) {
  static const char zAny[] = "SELECT 1 FROM main.retention__in_force LIMIT 1";
  BxErr err = {SQLITE_OK, 0};
  int i, bAny = pErr->rc == SQLITE_OK && bxQueryInt(p, zAny, &err, "");
  for (i = 0; bAny && i < p->bx->nDomain; i++) {
    const BxDomain *pDomain = &p->bx->aDomain[i];
    if (pDomain->xNoteHeld == 0) continue;
    pDomain->xNoteHeld(p, nMost, &err);
  }
  bxErrBeside(p, pErr, &err);
}

void bxLogProveAll(Bx *bx, BxErr *pErr) {
  BxStmts *p;
  for (p = bx->pStmts; p != 0 && pErr->rc == SQLITE_OK; p = p->pNext) {
    BxErr err = {SQLITE_OK, 0};
    if (sqlite3_stricmp(p->zDb, "temp") == 0 ||
        sqlite3_txn_state(bx->db, p->zDb) != SQLITE_TXN_WRITE) {
      continue;
    }
    bxLogNoteHeld(p, BX_HELD_SOME, &err);
    bxLogProve(p, CALL_MOST, &err);
    bxErrBeside(p, pErr, &err);
  }
}
