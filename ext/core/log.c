/*
** log.c: the rows of the log, and the leaves that they get.
**
** The module and the guards of the domains write rows (blackbox__log), in any
** schema. At the end of a call the rows that have no leaf get one: row n is leaf
** n - 1. A row is never changed, except that fields of it may be erased.
**
** The data of a leaf, version 1 (numbers are big-endian):
**
**   "blackbox log 1\n"  n (8 bytes)  kept (8)  SHA-256(field ...) (32)
**   field:  length of the name (1)  name  type (1)  hash (32)
**
** kept counts the rows up to n that are no receipts of removals, and the numbers that
** are missing. Where it does not rise there were receipts alone, which may be folded
** (log_fold.c): nothing else can be removed as if it were folded.
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
** confirm a guess of a value from its hash without the salt. The salt of a row that
** has none is SHA-256(secret of blackbox__tree, n): receipts, of which there are many
** and of which no field is ever erased. If a field is erased,
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
      " SELECT 2 + max(f.last, coalesce("
      "   (SELECT max(leaf) FROM main.blackbox__leaves), -1)), 'core',"
      "  'repair', 'blackbox__log', json_object('missing', g.n + 1)"
      " FROM (SELECT coalesce(max(n), 0) AS n FROM main.blackbox__log) AS g,"
      "  (SELECT coalesce((SELECT last FROM main.blackbox__folded WHERE first <"
      "   (SELECT size FROM main.blackbox__tree) ORDER BY first DESC LIMIT 1),"
      "   -1) AS last) AS f"
      " WHERE g.n <= f.last OR"
      "  EXISTS (SELECT 1 FROM main.blackbox__leaves WHERE leaf = g.n)";
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
static const void *bytesOf(sqlite3_stmt *pRow, int i, unsigned char a[8],
    size_t *pnByte, BxErr *pErr) {
  const void *pData;
  sqlite3_uint64 n;
  double r;
  *pnByte = 8;
  switch (sqlite3_column_type(pRow, i)) {
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

void bxLogLeafData(i64 n, i64 nKept, const MerkleHash *pFields,
    unsigned char aOut[BX_LOG_LEAF]) {
  static const char zVersion[] = "blackbox log 1\n";
  memcpy(aOut, zVersion, 15);
  putNumber(aOut + 15, (sqlite3_uint64)n);
  putNumber(aOut + 23, (sqlite3_uint64)nKept);
  memcpy(aOut + 31, pFields->a, BX_DIGEST);
}

MerkleHash bxLogLeafHash(i64 n, i64 nKept, const MerkleHash *pFields) {
  unsigned char a[BX_LOG_LEAF];
  bxLogLeafData(n, nKept, pFields, a);
  return bxMerkleLeaf(a, sizeof(a));
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
  unsigned char c;
  BxLogField *pField;
  SHA256_CTX sha;
  if (pLeaf->nField == BX_LOG_FIELDS || nName > 255) {
    bxFail(pErr, SQLITE_ERROR,
        "LimitError: a row of the log has more fields than a leaf can have");
  }
  if (pErr->rc != SQLITE_OK) return;
  pField = &pLeaf->aField[pLeaf->nField++];
  pField->zName = zName;
  pField->eType = sqlite3_column_type(pRow, i);
  pField->bErased = 0;
  if (pLeaf->nSalt > 0) {
    SHA256_Init(&sha);
    SHA256_Update(&sha, pLeaf->aSalt, (size_t)pLeaf->nSalt);
    SHA256_Update(&sha, zName, nName);
    SHA256_Final(pField->salt.a, &sha);
  } else {
    readErased(p, pLeaf->n, pField, pErr);
  }
  c = (unsigned char)nName;
  SHA256_Update(&pLeaf->sha, &c, 1);
  SHA256_Update(&pLeaf->sha, zName, nName);
  c = (unsigned char)pField->eType;
  SHA256_Update(&pLeaf->sha, &c, 1);
  if (!pField->bErased) {
    unsigned char aNumber[8];
    size_t nByte;
    const void *pValue = bytesOf(pRow, i, aNumber, &nByte, pErr);
    SHA256_Init(&sha);
    SHA256_Update(&sha, pField->salt.a, BX_DIGEST);
    SHA256_Update(&sha, &c, 1);
    SHA256_Update(&sha, pValue, nByte);
    SHA256_Final(pField->hash.a, &sha);
  }
  SHA256_Update(&pLeaf->sha, pField->hash.a, BX_DIGEST);
}

/* Adds the columns of the row that a pin is on, if it is in force. */
static void addPinned(
    BxStmts *p, BxLeaf *pLeaf, const char *zLogged, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  int i;
  if (pErr->rc != SQLITE_OK) return;
  pStmt = bxStmt(p, zLogged, &err);
  bxBind(pStmt, &err, "i", pLeaf->n);
  if (bxRow(pStmt, &err)) {
    pLeaf->ePin = BX_PIN_HERE;
    for (i = 0; i < sqlite3_column_count(pStmt); i++) {
      const char *zName = bxGot((void *)sqlite3_column_name(pStmt, i), &err);
      if (zName != 0) addField(p, pLeaf, zName, pStmt, i, &err);
    }
  }
  bxDone(pStmt, &err);
  if (bxSays(&err, "no such table")) {
    pLeaf->ePin = BX_PIN_UNKNOWN;
    bxClear(&err);
  }
  bxPass(pErr, &err);
}

/* The query of the row that a row of the log pins, or NULL. */
static const char *loggedBy(BxStmts *p, sqlite3_stmt *pRow, BxErr *pErr) {
  const char *zKind = bxColumnText(pRow, 10, pErr);
  const char *zDomain;
  const BxDomain *pDomain;
  if (zKind == 0 || strcmp(zKind, "pin") != 0) return 0;
  zDomain = bxColumnText(pRow, 7, pErr);
  pDomain = zDomain != 0 ? bxDomainOf(p->bx, zDomain) : 0;
  return pDomain != 0 ? pDomain->zLogged : 0;
}

/* Reads the salt of the row, or makes it of the secret, which is longer. */
static void readSalt(sqlite3_stmt *pRow, BxLeaf *pOut) {
  unsigned char aNumber[8];
  SHA256_CTX sha;
  pOut->aSalt = sqlite3_column_blob(pRow, 1);
  pOut->nSalt = pOut->aSalt != 0 ? sqlite3_column_bytes(pRow, 1) : 0;
  if (pOut->nSalt != BX_DIGEST) return;
  putNumber(aNumber, (sqlite3_uint64)pOut->n);
  SHA256_Init(&sha);
  SHA256_Update(&sha, pOut->aSalt, BX_DIGEST);
  SHA256_Update(&sha, aNumber, 8);
  SHA256_Final(pOut->salt.a, &sha);
  pOut->aSalt = pOut->salt.a;
}

void bxLogLeaf(BxStmts *p, sqlite3_stmt *pRow, BxLeaf *pOut, BxErr *pErr) {
  static const char *const azField[] = {"actor", "agent_id", "at", "bytes",
      "detail", "domain", "event_id", "kill_switch_event_id", "kind", "newest",
      "oldest", "reason", "rows", "subject"};
  const char *zLogged;
  int i;
  pOut->n = sqlite3_column_int64(pRow, 0);
  pOut->bKept = sqlite3_column_type(pRow, 10) != SQLITE_NULL;
  pOut->nField = 0;
  SHA256_Init(&pOut->sha);
  readSalt(pRow, pOut);
  zLogged = loggedBy(p, pRow, pErr);
  pOut->ePin = zLogged != 0 ? BX_PIN_ENDED : BX_NO_PIN;
  for (i = 0; i < 14; i++) {
    if (i == 12 && zLogged != 0) addPinned(p, pOut, zLogged, pErr);
    addField(p, pOut, azField[i], pRow, i + 2, pErr);
  }
  SHA256_Final(pOut->fields.a, &pOut->sha);
}

i64 bxLogKept(BxStmts *p, i64 iLeaf, BxErr *pErr) {
  static const char zKept[] =
      "SELECT kept FROM main.blackbox__leaves WHERE leaf = ?1 UNION ALL "
      "SELECT kept FROM main.blackbox__folded WHERE ?1 BETWEEN first AND last";
  return bxAsk(p, zKept, pErr, "i", iLeaf);
}

int bxLogIsLeaf(
    BxStmts *p, const BxLeaf *pLeaf, const MerkleHash *pStored, BxErr *pErr) {
  MerkleHash hash =
      bxLogLeafHash(pLeaf->n, bxLogKept(p, pLeaf->n - 1, pErr), &pLeaf->fields);
  return memcmp(hash.a, pStored->a, BX_DIGEST) == 0;
}

int bxLogLeafOf(BxStmts *p, i64 n, BxLeaf *pOut, BxErr *pErr) {
  static const char zRow[] =
      "SELECT " BX_LOG_COLUMNS " FROM main.blackbox__log WHERE n = ?1";
  sqlite3_stmt *pStmt = bxStmt(p, zRow, pErr);
  int bRow;
  bxBind(pStmt, pErr, "i", n);
  bRow = bxRow(pStmt, pErr);
  if (bRow) bxLogLeaf(p, pStmt, pOut, pErr);
  bxDone(pStmt, pErr);
  pOut->aSalt = 0;
  return bRow && pErr->rc == SQLITE_OK;
}

/*-------------------------------------------------------------- erasing ----*/

/* Keeps the hashes of the named fields, and the salts of the others. */
static void keepHashes(
    BxStmts *p, const BxLeaf *pLeaf, const char *zNames, BxErr *pErr) {
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
    if (bxIsColumn(pField->zName, zNames)) {
      bxDo(p, zHash, pErr, "itix", pLeaf->n, pField->zName, (i64)pField->eType,
          pField->hash.a, (i64)BX_DIGEST);
    } else {
      bxDo(p, zSalt, pErr, "itx", pLeaf->n, pField->zName, pField->salt.a,
          (i64)BX_DIGEST);
    }
  }
}

/* (The salt is overwritten before it goes, whatever secure_delete is. If the leaf
** cannot be made again it stands for all of its fields: that of a pin that has ended,
** or of a row that was altered.) */
void bxLogErase(BxStmts *p, i64 n, const char *zNames, BxErr *pErr) {
  static const char zZero[] = "UPDATE main.blackbox__log"
                              " SET salt = zeroblob(length(salt)) WHERE n = ?1";
  static const char zBlank[] =
      "UPDATE main.blackbox__log SET salt = x'',"
      " actor = iif(instr(?2, 'actor'), NULL, actor),"
      " reason = iif(instr(?2, 'reason'), NULL, reason) WHERE n = ?1";
  static const char zTell[] =
      "INSERT INTO main.blackbox__log(domain, kind, subject, detail) VALUES("
      " 'core', 'erasure', 'row:' || ?1, json_object('fields', json('[\"' ||"
      "  replace(?2, ',', '\",\"') || '\"]')))";
  BxLeaf leaf;
  BxLog log;
  MerkleHash stored;
  bxLogProve(p, (i64)1 << 40, pErr);
  bxLogOpen(&log, p, pErr);
  if (!bxLogLeafOf(p, n, &leaf, pErr)) return;
  log.tree.xGet(&log.tree, 0, n - 1, &stored, pErr);
  if (bxLogIsLeaf(p, &leaf, &stored, pErr)) keepHashes(p, &leaf, zNames, pErr);
  bxDo(p, zZero, pErr, "i", n);
  bxDo(p, zBlank, pErr, "it", n, zNames);
  bxDo(p, zTell, pErr, "it", n, zNames);
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
  MerkleHash none;
  SHA256_CTX sha;
  sqlite3_stmt *pStmt = bxStmt(pLog->p, zRows, pErr);
  bxBind(pStmt, pErr, "ii", pLog->now.n, nMost);
  SHA256_Init(&sha);
  SHA256_Final(none.a, &sha);
  while (bxRow(pStmt, pErr)) {
    BxLeaf leaf;
    if (isAhead(pLog, sqlite3_column_int64(pStmt, 0))) break;
    while (pLog->now.n + 1 < sqlite3_column_int64(pStmt, 0) &&
           pErr->rc == SQLITE_OK) {
      bxLogAddLeaf(pLog, &none, 1, pErr);
    }
    bxLogLeaf(pLog->p, pStmt, &leaf, pErr);
    bxLogAddLeaf(pLog, &leaf.fields, leaf.bKept, pErr);
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
      "INSERT INTO main.blackbox__log(at, domain, detail, rows, bytes, oldest,"
      " newest, salt) SELECT at, nullif(domain, substr(rule, 1,"
      "  instr(rule, '.') - 1)), rule, rows, bytes, oldest, newest, NULL"
      " FROM main.blackbox__open"
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

void bxLogFollow(Bx *bx, BxErr *pErr) {
  BxStmts *p;
  for (p = bx->pStmts; p != 0 && pErr->rc == SQLITE_OK; p = p->pNext) {
    BxErr err = {SQLITE_OK, 0};
    if (sqlite3_stricmp(p->zDb, "temp") == 0 ||
        sqlite3_txn_state(bx->db, p->zDb) != SQLITE_TXN_WRITE) {
      continue;
    }
    bxLogProve(p, CALL_MOST, &err);
    if (bxMayPassOver(p, &err)) bxClear(&err);
    bxPass(pErr, &err);
  }
}
