/*
** log.c: the rows of the log, and the leaves that they get.
**
** The module and the guards of the domains write rows (blackbox__log), in any
** schema. At the end of a call the rows that have no leaf get one: row n is leaf
** n - 1. A row is never changed, except that fields of it may be erased.
**
** The data of a leaf, version 1 (numbers are big-endian):
**
**   "blackbox log 1\n"  n (8 bytes)  field ...
**   field:  length of the name (1)  name  type (1)  hash (32)
**
** The fields stand in the order of their names: actor, agent_id, at, bytes, detail,
** domain, event_id, kill_switch_event_id, kind, newest, oldest, reason, rows,
** subject; and those of the row that a pin is on (BxDomain.zLogged), if it is in
** force when the leaf is made. The type is 1
** integer, 2 real, 3 text, 4 blob, 5 NULL.
**
**   salt of the field = SHA-256(salt of the row, name)
**   hash of the field = SHA-256(salt of the field, type, value)
**
** where a number has 8 bytes, a text or a blob its bytes, NULL nothing. Nobody can
** confirm a guess of a value from its hash without the salt. If a field is erased,
** blackbox__erased gets its type and hash, and the salts of the other fields, and
** the salt of the row goes. A row of kind "erasure" with the subject "row:<n>" names
** the fields.
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
** proof_verify() lists it for ever. If hashes of the tree are missing, or a trigger
** of the user refuses a leaf, rows stay without leaves, and the call succeeds: a kill
** switch must work even then.
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* Leaves that a call makes at most: those of a kill switch of the largest ring. */
#define CALL_MOST 20000

/* If the newest rows were removed, others must not get their numbers. */
static void keepNumbers(BxStmts *p, BxErr *pErr) {
  static const char zKeep[] =
      "INSERT INTO main.blackbox__log(n, domain, kind, subject, detail)"
      " SELECT (SELECT max(leaf) FROM main.blackbox__leaves) + 2, 'core',"
      "  'repair', 'blackbox__log', json_object('missing', g.n + 1)"
      " FROM (SELECT coalesce(max(n), 0) AS n FROM main.blackbox__log) AS g"
      " WHERE EXISTS (SELECT 1 FROM main.blackbox__leaves WHERE leaf = g.n)";
  bxRun(bxStmt(p, zKeep, pErr), pErr);
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
  if (bxAsk(p, zAhead, &err, "i", (i64)BX_LOG_GAP)) {
    bxLogProve(p, CALL_MOST, &err);
  }
  if (bxMayPassOver(p, &err)) bxClear(&err);
  bxPass(pErr, &err);
}

i64 bxLogAppend(BxStmts *p, const BxLogRow *pRow, BxErr *pErr) {
  static const char zRow[] =
      "INSERT INTO main.blackbox__log(at, domain, kind, subject, actor, reason,"
      " detail, rows, bytes, oldest, newest)"
      " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
  const i64 *a = pRow->aSum;
  sqlite3_stmt *pStmt = bxStmt(p, zRow, pErr);
  bxBind(pStmt, pErr, "itttttt", pRow->iAt ? pRow->iAt : bxNow(), pRow->zDomain,
      pRow->zKind, pRow->zSubject, pRow->zActor, pRow->zReason, pRow->zDetail);
  if (a != 0) bxBind(pStmt, pErr, "-------iiii", a[0], a[1], a[2], a[3]);
  bxRun(pStmt, pErr);
  return pErr->rc == SQLITE_OK ? sqlite3_last_insert_rowid(p->bx->db) : 0;
}

/*--------------------------------------------------------------- leaves ----*/

static void putNumber(unsigned char *a, sqlite3_uint64 n) {
  int i;
  for (i = 7; i >= 0; i--, n >>= 8) a[i] = (unsigned char)(n & 0xff);
}

/* The value of a column, as it is hashed. a has room for a number. */
static const void *bytesOf(sqlite3_stmt *pRow, int i, int eType,
    unsigned char a[8], size_t *pnByte, BxErr *pErr) {
  const void *pData;
  sqlite3_uint64 n;
  double r;
  *pnByte = 8;
  switch (eType) {
    case SQLITE_NULL: *pnByte = 0; return a;
    case SQLITE_INTEGER:
      putNumber(a, (sqlite3_uint64)sqlite3_column_int64(pRow, i));
      return a;
    case SQLITE_FLOAT:
      r = sqlite3_column_double(pRow, i);
      memcpy(&n, &r, sizeof(n));
      putNumber(a, n);
      return a;
    default: break;
  }
  pData = sqlite3_column_blob(pRow, i);
  *pnByte = (size_t)sqlite3_column_bytes(pRow, i);
  if (pData == 0 && *pnByte > 0) {
    bxFail(pErr, SQLITE_NOMEM, "out of memory");
    *pnByte = 0;
  }
  return pData ? pData : a;
}

/* A leaf that has no fields yet. */
static void beginLeaf(BxLeaf *pLeaf, i64 n) {
  static const char zVersion[] = "blackbox log 1\n";
  pLeaf->n = n;
  pLeaf->nField = 0;
  memcpy(pLeaf->a, zVersion, sizeof(zVersion) - 1);
  putNumber(pLeaf->a + sizeof(zVersion) - 1, (sqlite3_uint64)n);
  pLeaf->nByte = sizeof(zVersion) - 1 + 8;
}

/* Reads what blackbox__erased has of a field: its salt, or its type and hash. An
** erased field has no value, and another one does not count as erased. */
static void readErased(BxStmts *p, i64 n, BxLogField *pField, BxErr *pErr) {
  static const char zErased[] =
      "SELECT salt, hash, type FROM main.blackbox__erased"
      " WHERE n = ?1 AND name = ?2";
  sqlite3_stmt *pStmt = bxStmt(p, zErased, pErr);
  memset(&pField->salt, 0, sizeof(pField->salt));
  bxBind(pStmt, pErr, "it", n, pField->zName);
  if (bxRow(pStmt, pErr) && !bxLogReadHash(pStmt, 0, &pField->salt) &&
      pField->eType == SQLITE_NULL && bxLogReadHash(pStmt, 1, &pField->hash)) {
    pField->eType = sqlite3_column_int(pStmt, 2);
    pField->bErased = 1;
  }
  bxDone(pStmt, pErr);
}

/* Adds column i of a row to a leaf. */
static void addField(BxStmts *p, BxLeaf *pLeaf, const char *zName,
    sqlite3_stmt *pRow, int i, BxErr *pErr) {
  size_t nName = strlen(zName);
  unsigned char *a = pLeaf->a + pLeaf->nByte;
  BxLogField *pField;
  if (pLeaf->nField == BX_LOG_FIELDS || nName > 255 ||
      pLeaf->nByte + nName + 2 + BX_DIGEST > BX_LOG_LEAF) {
    bxFail(pErr, SQLITE_ERROR,
        "LimitError: a row of the log has more fields than a leaf can have");
  }
  if (pErr->rc != SQLITE_OK) return;
  pField = &pLeaf->aField[pLeaf->nField++];
  pField->zName = zName;
  pField->eType = sqlite3_column_type(pRow, i);
  pField->bErased = 0;
  if (pLeaf->nSalt > 0) {
    bxDigestTwo(
        pLeaf->aSalt, (size_t)pLeaf->nSalt, zName, nName, pField->salt.a);
  } else {
    readErased(p, pLeaf->n, pField, pErr);
  }
  a[0] = (unsigned char)nName;
  memcpy(a + 1, zName, nName);
  a[1 + nName] = (unsigned char)pField->eType;
  if (!pField->bErased) {
    unsigned char aNumber[8], aHead[BX_DIGEST + 1];
    size_t nByte;
    const void *pValue = bytesOf(pRow, i, pField->eType, aNumber, &nByte, pErr);
    memcpy(aHead, pField->salt.a, BX_DIGEST);
    aHead[BX_DIGEST] = (unsigned char)pField->eType;
    bxDigestTwo(aHead, sizeof(aHead), pValue, nByte, pField->hash.a);
  }
  memcpy(a + 2 + nName, pField->hash.a, BX_DIGEST);
  pLeaf->nByte += nName + 2 + BX_DIGEST;
}

/* Adds the fields of the row that pStmt is on. */
static void addFields(
    BxStmts *p, BxLeaf *pLeaf, sqlite3_stmt *pStmt, BxErr *pErr) {
  int i, n = sqlite3_data_count(pStmt);
  if (n > 0) pLeaf->ePin = BX_PIN_HERE;
  for (i = 2; i < n; i++) {
    const char *zName = bxGot((void *)sqlite3_column_name(pStmt, i), pErr);
    if (zName != 0) addField(p, pLeaf, zName, pStmt, i, pErr);
  }
}

/* The same for the row that a pin is on, if it is in force. */
static void addPinned(BxStmts *p, BxLeaf *pLeaf, const char *zLogged,
    sqlite3_value *pSubject, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  if (pErr->rc != SQLITE_OK) return;
  pStmt = bxStmt(p, zLogged, &err);
  bxBind(pStmt, &err, "iv", pLeaf->n, pSubject);
  if (bxRow(pStmt, &err)) addFields(p, pLeaf, pStmt, &err);
  bxDone(pStmt, &err);
  if (bxSays(&err, "no such table")) {
    pLeaf->ePin = BX_PIN_UNKNOWN;
    bxClear(&err);
  }
  bxPass(pErr, &err);
}

const BxDomain *bxLogPins(BxStmts *p, sqlite3_stmt *pRow, BxErr *pErr) {
  const char *zKind = bxColumnText(pRow, 10, pErr);
  const char *zDomain;
  const BxDomain *pDomain;
  if (zKind == 0 || strcmp(zKind, "pin") != 0) return 0;
  zDomain = bxColumnText(pRow, 7, pErr);
  pDomain = zDomain != 0 ? bxDomainOf(p->bx, zDomain) : 0;
  return pDomain != 0 && pDomain->zLogged != 0 ? pDomain : 0;
}

void bxLogLeaf(BxStmts *p, sqlite3_stmt *pRow, sqlite3_stmt *pPinned,
    BxLeaf *pOut, BxErr *pErr) {
  static const char *const azField[] = {"actor", "agent_id", "at", "bytes",
      "detail", "domain", "event_id", "kill_switch_event_id", "kind", "newest",
      "oldest", "reason", "rows", "subject"};
  const BxDomain *pDomain;
  int i;
  beginLeaf(pOut, sqlite3_column_int64(pRow, 0));
  pOut->aSalt = sqlite3_column_blob(pRow, 1);
  pOut->nSalt = pOut->aSalt != 0 ? sqlite3_column_bytes(pRow, 1) : 0;
  pDomain = bxLogPins(p, pRow, pErr);
  pOut->ePin = pDomain != 0 ? BX_PIN_ENDED : BX_NO_PIN;
  for (i = 0; i < 14; i++) {
    if (i == 12 && pDomain != 0 && pPinned != 0) {
      addFields(p, pOut, pPinned, pErr);
    } else if (i == 12 && pDomain != 0) {
      addPinned(
          p, pOut, pDomain->zLogged, sqlite3_column_value(pRow, 15), pErr);
    }
    addField(p, pOut, azField[i], pRow, i + 2, pErr);
  }
}

int bxLogLeafOf(BxStmts *p, i64 n, BxLeaf *pOut, BxErr *pErr) {
  static const char zRow[] =
      "SELECT " BX_LOG_COLUMNS " FROM main.blackbox__log WHERE n = ?1";
  sqlite3_stmt *pStmt = bxStmt(p, zRow, pErr);
  int bRow;
  bxBind(pStmt, pErr, "i", n);
  bRow = bxRow(pStmt, pErr);
  if (bRow) bxLogLeaf(p, pStmt, 0, pOut, pErr);
  bxDone(pStmt, pErr);
  pOut->aSalt = 0;
  return bRow && pErr->rc == SQLITE_OK;
}

/*-------------------------------------------------------------- erasing ----*/

static int isInList(const char *zName, const char *const *azName, int nName) {
  int i;
  for (i = 0; i < nName && strcmp(zName, azName[i]) != 0; i++) {
  }
  return i < nName;
}

/* Keeps the hashes of the named fields, and the salts of the others. */
static void keepHashes(BxStmts *p, const BxLeaf *pLeaf,
    const char *const *azName, int nName, BxErr *pErr) {
  static const char zHash[] =
      "INSERT OR REPLACE INTO main.blackbox__erased(n, name, type, hash)"
      " VALUES(?1, ?2, ?3, ?4)";
  static const char zSalt[] =
      "INSERT OR REPLACE INTO main.blackbox__erased(n, name, salt)"
      " VALUES(?1, ?2, ?3)";
  int i;
  for (i = 0; i < pLeaf->nField; i++) {
    const BxLogField *pField = &pLeaf->aField[i];
    if (pField->bErased) continue;
    if (isInList(pField->zName, azName, nName)) {
      bxDo(p, zHash, pErr, "itix", pLeaf->n, pField->zName, (i64)pField->eType,
          pField->hash.a, (i64)BX_DIGEST);
    } else {
      bxDo(p, zSalt, pErr, "itx", pLeaf->n, pField->zName, pField->salt.a,
          (i64)BX_DIGEST);
    }
  }
}

/* Tells which fields of row n were erased. */
static void tellErased(
    BxStmts *p, i64 n, const char *const *azName, int nName, BxErr *pErr) {
  BxLogRow row = {.zDomain = "core", .zKind = "erasure"};
  sqlite3_str *pDetail = sqlite3_str_new(p->bx->db);
  char *zSubject = bxPrintf(pErr, "row:%lld", n), *zDetail;
  int i;
  sqlite3_str_appendall(pDetail, "{\"fields\":[");
  for (i = 0; i < nName; i++) {
    sqlite3_str_appendf(pDetail, "%s\"%s\"", i > 0 ? "," : "", azName[i]);
  }
  sqlite3_str_appendall(pDetail, "]}");
  zDetail = bxFinish(pDetail, pErr);
  row.zSubject = zSubject;
  row.zDetail = zDetail;
  bxLogAppend(p, &row, pErr);
  bxLogProve(p, CALL_MOST, pErr);
  sqlite3_free(zSubject);
  sqlite3_free(zDetail);
}

/* (The salt is overwritten before it goes, whatever secure_delete is. The leaf of
** a pin that has ended cannot be made again: it stands for all of its fields.) */
void bxLogEraseField(
    BxStmts *p, i64 n, const char *const *azName, int nName, BxErr *pErr) {
  static const char zZero[] = "UPDATE main.blackbox__log"
                              " SET salt = zeroblob(length(salt)) WHERE n = ?1";
  static const char zBlank[] =
      "UPDATE main.blackbox__log SET salt = x'', actor = iif(?2, NULL, actor),"
      " reason = iif(?3, NULL, reason), subject = iif(?4, NULL, subject),"
      " detail = iif(?5, NULL, detail), agent_id = iif(?6, NULL, agent_id),"
      " event_id = iif(?7, NULL, event_id), kill_switch_event_id ="
      "  iif(?8, NULL, kill_switch_event_id) WHERE n = ?1";
  static const char *const azText[] = {"actor", "reason", "subject", "detail",
      "agent_id", "event_id", "kill_switch_event_id"};
  BxLeaf leaf;
  BxLog log;
  MerkleHash hash, stored;
  sqlite3_stmt *pStmt;
  int i;
  bxLogProve(p, CALL_MOST, pErr);
  bxLogOpen(&log, p, pErr);
  if (!bxLogLeafOf(p, n, &leaf, pErr)) return;
  log.tree.xGet(&log.tree, 0, n - 1, &stored, pErr);
  hash = bxMerkleLeaf(leaf.a, leaf.nByte);
  if (memcmp(hash.a, stored.a, BX_DIGEST) == 0) {
    keepHashes(p, &leaf, azName, nName, pErr);
  } else if (leaf.ePin == BX_NO_PIN || leaf.ePin == BX_PIN_HERE) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: row %lld of the log is not what its leaf says; "
        "SELECT * FROM proof_verify() lists what is wrong",
        n);
  }
  bxDo(p, zZero, pErr, "i", n);
  pStmt = bxStmt(p, zBlank, pErr);
  bxBind(pStmt, pErr, "i", n);
  for (i = 0; pStmt != 0 && i < 7; i++) {
    sqlite3_bind_int(pStmt, i + 2, isInList(azText[i], azName, nName));
  }
  bxRun(pStmt, pErr);
  tellErased(p, n, azName, nName, pErr);
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
      " FROM main.blackbox__log WHERE n > ?1 ORDER BY n LIMIT ?2";
  sqlite3_stmt *pStmt = bxStmt(pLog->p, zRows, pErr);
  bxBind(pStmt, pErr, "ii", pLog->now.n, nMost);
  while (bxRow(pStmt, pErr)) {
    BxLeaf leaf;
    MerkleHash hash;
    if (isAhead(pLog, sqlite3_column_int64(pStmt, 0))) break;
    while (pLog->now.n + 1 < sqlite3_column_int64(pStmt, 0) &&
           pErr->rc == SQLITE_OK) {
      beginLeaf(&leaf, pLog->now.n + 1);
      hash = bxMerkleLeaf(leaf.a, leaf.nByte);
      bxLogAddLeaf(pLog, &hash, pErr);
    }
    bxLogLeaf(pLog->p, pStmt, 0, &leaf, pErr);
    if (pErr->rc != SQLITE_OK) break;
    hash = bxMerkleLeaf(leaf.a, leaf.nByte);
    bxLogAddLeaf(pLog, &hash, pErr);
  }
  bxDone(pStmt, pErr);
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

/* What names a row of the log by its n gets its new number. */
static void moveNames(
    BxStmts *p, i64 iFrom, i64 iTo, i64 iLeaves, BxErr *pErr) {
  static const char zStep[] =
      "UPDATE main.retention__in_force SET step = ?2 WHERE step = ?1";
  static const char zUnpin[] =
      "UPDATE main.blackbox__log SET detail = '{\"pin\":' || ?2 || '}' WHERE n "
      "> ?3"
      " AND kind = 'unpin' AND detail = '{\"pin\":' || ?1 || '}'";
  int i;
  bxDo(p, zStep, pErr, "ii", iFrom, iTo);
  bxDo(p, zUnpin, pErr, "iii", iFrom, iTo, iLeaves);
  for (i = 0; i < p->bx->nDomain; i++) {
    BxErr err = {SQLITE_OK, 0};
    const char *zPins = p->bx->aDomain[i].zPins;
    if (zPins == 0) continue;
    bxExecPlain(p->bx,
        bxPrintf(&err, "UPDATE \"%w\".%s SET n = %lld WHERE n = %lld", p->zDb,
            zPins, iTo, iFrom),
        &err);
    if (bxSays(&err, "no such table")) bxClear(&err);
    bxPass(pErr, &err);
  }
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
  i64 iTo = pLog->now.n, iFirst = bxAsk(pLog->p, zNext, pErr, "i", iTo);
  sqlite3_stmt *pStmt;
  if (iFirst == 0 || !isAhead(pLog, iFirst)) return 0;
  if (nMost > BX_LOG_GAP) nMost = BX_LOG_GAP;
  pStmt = bxJsonRows(pLog->p->bx, "SELECT value FROM json_each(?1)",
      bxAskText(pLog->p, zAhead, pErr, "ii", iTo, nMost), pErr);
  while (bxRow(pStmt, pErr)) {
    i64 iFrom = sqlite3_column_int64(pStmt, 0);
    bxDo(pLog->p, zPull, pErr, "ii", iFrom, ++iTo);
    moveNames(pLog->p, iFrom, iTo, pLog->now.n, pErr);
  }
  sqlite3_finalize(pStmt);
  tellRepair(pLog, "blackbox__log",
      bxPrintf(pErr, "{\"from\":%lld,\"to\":%lld,\"rows\":%lld}", iFirst,
          pLog->now.n + 1, iTo - pLog->now.n),
      pErr);
  return pErr->rc == SQLITE_OK ? iTo - pLog->now.n : 0;
}

/* The receipts of minutes that are over become rows of the log. */
static void closeMinutes(BxStmts *p, BxErr *pErr) {
  static const char zOver[] = "SELECT 1 FROM main.blackbox__open"
                              " WHERE minute BETWEEN 1 AND ?1 LIMIT 1";
  static const char zClose[] =
      "INSERT INTO main.blackbox__log(at, domain, kind, subject, rows, bytes,"
      " oldest, newest, detail) SELECT at, domain, 'removal', rule, rows,"
      " bytes, oldest, newest, minute FROM main.blackbox__open"
      " WHERE minute BETWEEN 1 AND ?1";
  static const char zClosed[] =
      "DELETE FROM main.blackbox__open WHERE minute BETWEEN 1 AND ?1";
  i64 iMinute = bxNow() / 60000 - 1;
  if (!bxAsk(p, zOver, pErr, "i", iMinute)) return;
  bxDo(p, zClose, pErr, "i", iMinute);
  bxDo(p, zClosed, pErr, "i", iMinute);
}

/* Adds the leaves of all rows that wait, but at most nMost. */
static void takeWaiting(BxLog *pLog, i64 nMost, BxErr *pErr) {
  takeRows(pLog, nMost, pErr);
  while (pullRows(pLog, nMost, pErr) > 0) takeRows(pLog, nMost, pErr);
  if (pLog->iReplaced > 0) {
    tellRepair(pLog, "blackbox__leaves",
        bxPrintf(pErr, "{\"leaf\":%lld}", pLog->iReplaced), pErr);
    takeRows(pLog, 1, pErr);
  }
}

i64 bxLogProve(BxStmts *p, i64 nMost, BxErr *pErr) {
  static const char zNewest[] = "SELECT max(n) FROM main.blackbox__log";
  static const char zForget[] = "DELETE FROM main.blackbox__log WHERE n = ?1";
  BxLog log;
  BxErr cut = {SQLITE_OK, 0};
  i64 nBefore, nStep, nTold, iRepair = 0;
  assert(pErr->rc != SQLITE_OK ||
         sqlite3_txn_state(p->bx->db, p->zDb) == SQLITE_TXN_WRITE);
  if (bxLogOpenToWrite(&log, p, &nTold, pErr)) {
    iRepair = tellTree(&log, nTold, pErr);
  }
  nBefore = log.now.n;
  if (bxAsk(p, zNewest, pErr, "") < nBefore) keepNumbers(p, pErr);
  closeMinutes(p, pErr);
  if (bxAsk(p, zNewest, pErr, "") <= nBefore || pErr->rc != SQLITE_OK) return 0;
  if (bxLogMendFrontier(&log, pErr)) iRepair = tellTree(&log, nBefore, pErr);
  takeWaiting(&log, nMost, pErr);
  nStep = log.now.n < bxAsk(p, zNewest, pErr, "")
              ? 0
              : 1 + (log.now.n - nBefore) / BX_LOG_TILE;
  for (; nStep > 0 && bxLogFold(&log, pErr); nStep--) {
    takeRows(&log, nMost, pErr); /* the sums */
  }
  bxLogSave(&log, pErr);
  if (pErr->rc != SQLITE_OK && log.now.n > nBefore) {
    bxLogCut(&log, nBefore, &cut); /* what it can */
    bxDo(p, zForget, &cut, "i", iRepair);
    bxClear(&cut);
    return 0;
  }
  return log.now.n - nBefore;
}

/* (A file without holds costs one look.) */
void bxLogNoteHeld(BxStmts *p, i64 nMost, BxErr *pErr) {
  static const char zAny[] = "SELECT 1 FROM main.retention__in_force LIMIT 1";
  BxErr err = {SQLITE_OK, 0};
  int i, bAny = pErr->rc == SQLITE_OK && bxAsk(p, zAny, &err, "");
  for (i = 0; bAny && i < p->bx->nDomain; i++) {
    const BxDomain *pDomain = &p->bx->aDomain[i];
    if (pDomain->xNoteHeld == 0) continue;
    pDomain->xNoteHeld(p, nMost, &err);
  }
  if (bxMayPassOver(p, &err)) bxClear(&err);
  bxPass(pErr, &err);
}

void bxLogFollow(Bx *bx, BxErr *pErr) {
  BxStmts *p;
  for (p = bx->pStmts; p != 0 && pErr->rc == SQLITE_OK; p = p->pNext) {
    BxErr err = {SQLITE_OK, 0};
    if (sqlite3_stricmp(p->zDb, "temp") == 0 ||
        sqlite3_txn_state(bx->db, p->zDb) != SQLITE_TXN_WRITE) {
      continue;
    }
    bxLogNoteHeld(p, BX_HELD_SOME, &err);
    bxLogProve(p, CALL_MOST, &err);
    if (bxMayPassOver(p, &err)) bxClear(&err);
    bxPass(pErr, &err);
  }
}
