/*
** log_leaf.c: what a leaf of the log is made of.
**
** The data of a leaf, version 1 (numbers are big-endian):
**
**   "blackbox log 1\n"  n (8 bytes)  kept (8)  SHA-256(field ...) (32)
**   field:  length of the name (1)  name  type (1)  hash (32; none if it is NULL)
**
** kept counts the rows up to n that are no receipts of removals, and the numbers that
** are missing. Where it does not rise there were receipts alone, which may be folded
** (log_fold.c): nothing else can be removed as if it were folded.
**
** The fields stand in the order of their names: actor, agent_id, at, bytes, detail,
** domain, event_id, kill_switch_event_id, kind, newest, oldest, reason, rows,
** subject; and those of the row that a pin is on (BxDomain.zLogged), if it is in
** force when the leaf is made. The type is 1 integer, 2 real, 3 text, 4 blob, 5 NULL.
**
**   salt of the field = SHA-256(salt of the row, name)
**   hash of the field = SHA-256(salt of the field, type, value)
**
** where a number has 8 bytes, a text or a blob its bytes. Nobody can
** confirm a guess of a value from its hash without the salt. The salt of a row that
** has none is SHA-256(secret of blackbox__tree, n): receipts, of which there are many
** and of which no field is ever erased. If a field is erased, blackbox__erased gets its
** type and hash, and the salts of the other fields, and the salt of the row goes. A row
** of kind "erasure" with the subject "row:<n>" names the fields.
*/
#include "core.h"
#include "log.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define MAX_NAME 255 /* bytes of the name of a field: its length is one byte */

int bxLogReadHash(sqlite3_stmt *pRow, int i, MerkleHash *pOut) {
  const void *a = sqlite3_column_blob(pRow, i);
  if (sqlite3_column_type(pRow, i) != SQLITE_BLOB ||
      sqlite3_column_bytes(pRow, i) != BX_DIGEST || a == 0) {
    memset(pOut, 0, sizeof(*pOut));
    return 0;
  }
  memcpy(pOut->a, a, BX_DIGEST);
  return 1;
}

void bxLogLeafData(i64 n, i64 nKept, const MerkleHash *pFields,
    unsigned char aOut[BX_LOG_LEAF]) {
  static const char zVersion[] = "blackbox log 1\n";
  assert(n > 0 && nKept >= 0);
  assert(sizeof(zVersion) - 1 == 15 && 31 + BX_DIGEST == BX_LOG_LEAF);
  memcpy(aOut, zVersion, 15);
  bxPutNumber(aOut + 15, (sqlite3_uint64)n);
  bxPutNumber(aOut + 23, (sqlite3_uint64)nKept);
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
  if (bxStep(pStmt, pErr) && !bxLogReadHash(pStmt, 0, &pField->salt) &&
      pField->eType == SQLITE_NULL && bxLogReadHash(pStmt, 1, &pField->hash)) {
    pField->eType = sqlite3_column_int(pStmt, 2);
    pField->bErased = 1;
  }
  bxReset(pStmt, pErr);
}

static void appendHex(
    sqlite3_str *pOut, const char *zBefore, const unsigned char *a, size_t n) {
  char zHex[2 * BX_DIGEST + 1];
  sqlite3_str_appendall(pOut, zBefore);
  while (n > 0) {
    int nSome = n < BX_DIGEST ? (int)n : BX_DIGEST;
    bxHex(a, nSome, zHex);
    sqlite3_str_append(pOut, zHex, 2 * nSome);
    a += nSome;
    n -= (size_t)nSome;
  }
  sqlite3_str_appendchar(pOut, 1, '"');
}

/* The value of a field. What JSON cannot have is written in hexadecimal. */
static void appendShown(
    sqlite3_str *pOut, int eType, const unsigned char *a, size_t n) {
  sqlite3_uint64 u = 0;
  size_t i;
  assert(eType != SQLITE_NULL);
  if (eType == SQLITE_INTEGER) {
    for (i = 0; i < n; i++) u = u << 8 | a[i];
    sqlite3_str_appendf(pOut, ",\"value\":%lld", (i64)u);
  } else if (eType == SQLITE_TEXT && n < 0x7fffffff && bxIsUtf8(a, (int)n)) {
    sqlite3_str_appendall(pOut, ",\"value\":");
    bxJsonAppend(pOut, (const char *)a, (int)n);
  } else {
    appendHex(pOut, ",\"hex\":\"", a, n);
  }
}

void bxLogFieldJson(sqlite3_str *pOut, const BxLogField *pField,
    const void *pValue, size_t nValue) {
  sqlite3_str_appendf(pOut, "%s{\"name\":\"%s\",\"type\":%d",
      strcmp(pField->zName, "actor") == 0 ? "" : ",", pField->zName,
      pField->eType);
  if (pField->bErased) {
    sqlite3_str_appendall(pOut, ",\"salt\":null");
  } else if (pField->eType != SQLITE_NULL) {
    appendHex(pOut, ",\"salt\":\"", pField->salt.a, BX_DIGEST);
  }
  if (pField->eType != SQLITE_NULL && pValue == 0) {
    appendHex(pOut, ",\"hash\":\"", pField->hash.a, BX_DIGEST);
  } else if (pField->eType != SQLITE_NULL) {
    appendShown(pOut, pField->eType, pValue, nValue);
  }
  sqlite3_str_appendchar(pOut, 1, '}');
}

/* Adds column i of a row to a leaf. (Most fields are NULL.) */
static void addField(BxStmts *p, BxLeaf *pLeaf, const char *zName,
    sqlite3_stmt *pRow, int i, BxErr *pErr) {
  size_t nName = strlen(zName);
  unsigned char a[1 + MAX_NAME + 1 + BX_DIGEST], *pType;
  unsigned char aNumber[8], aHead[BX_DIGEST + 1];
  const void *pValue;
  size_t nByte;
  BxLogField *pField;
  if (pLeaf->nField == BX_LOG_FIELDS || nName > MAX_NAME) {
    bxFail(pErr, SQLITE_ERROR,
        "LimitError: a row of the log has more fields than a leaf can have");
  }
  if (pErr->rc != SQLITE_OK) return;
  pField = &pLeaf->aField[pLeaf->nField++];
  assert(pLeaf->nField <= BX_LOG_FIELDS);
  assert(pLeaf->nField < 2 || strcmp(pField[-1].zName, zName) < 0);
  pField->zName = zName;
  pField->eType = sqlite3_column_type(pRow, i);
  pField->bErased = 0;
  if (pLeaf->nSalt > 0 && pField->eType == SQLITE_NULL) {
    /* neither salt nor hash */
  } else if (pLeaf->nSalt > 0) {
    bxDigestTwo(
        pLeaf->aSalt, (size_t)pLeaf->nSalt, zName, nName, pField->salt.a);
  } else {
    readErased(p, pLeaf->n, pField, pErr);
  }
  a[0] = (unsigned char)nName;
  memcpy(a + 1, zName, nName);
  pType = a + 1 + nName;
  *pType = (unsigned char)pField->eType;
  if (pLeaf->pShown != 0 && (pField->bErased || pField->eType == SQLITE_NULL)) {
    bxLogFieldJson(pLeaf->pShown, pField, 0, 0);
  }
  if (pField->eType == SQLITE_NULL) {
    SHA256_Update(&pLeaf->sha, a, nName + 2);
    return;
  }
  if (!pField->bErased) {
    pValue = bxColumnBytes(pRow, i, aNumber, &nByte, pErr);
    memcpy(aHead, pField->salt.a, BX_DIGEST);
    aHead[BX_DIGEST] = (unsigned char)pField->eType;
    bxDigestTwo(aHead, sizeof(aHead), pValue, nByte, pField->hash.a);
    if (pLeaf->pShown) bxLogFieldJson(pLeaf->pShown, pField, pValue, nByte);
  }
  memcpy(pType + 1, pField->hash.a, BX_DIGEST);
  SHA256_Update(&pLeaf->sha, a, nName + 2 + BX_DIGEST);
}

/* Adds the fields of the row that pStmt is on. */
static void addFields(
    BxStmts *p, BxLeaf *pLeaf, sqlite3_stmt *pStmt, BxErr *pErr) {
  int i, n = sqlite3_data_count(pStmt);
  if (n > 0) pLeaf->ePin = BX_PIN_HERE;
  for (i = 2; i < n; i++) {
    const char *zName = bxCheckMem((void *)sqlite3_column_name(pStmt, i), pErr);
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
  if (bxStep(pStmt, &err)) addFields(p, pLeaf, pStmt, &err);
  bxReset(pStmt, &err);
  if (bxErrContains(&err, "no such table")) {
    pLeaf->ePin = BX_PIN_UNKNOWN;
    bxErrClear(&err);
  }
  bxErrMove(pErr, &err);
}

const BxDomain *bxLogPins(BxStmts *p, sqlite3_stmt *pRow, BxErr *pErr) {
  const char *zKind = bxColumnText(pRow, BX_LOG_KIND, pErr);
  const char *zDomain;
  const BxDomain *pDomain;
  assert(pErr->rc != SQLITE_OK || sqlite3_data_count(pRow) == BX_LOG_WIDTH);
  if (zKind == 0 || strcmp(zKind, "pin") != 0) return 0;
  zDomain = bxColumnText(pRow, BX_LOG_DOMAIN, pErr);
  pDomain = zDomain != 0 ? bxDomainOf(p->bx, zDomain) : 0;
  return pDomain != 0 && pDomain->zLogged != 0 ? pDomain : 0;
}

static void makeLeaf(BxStmts *p, sqlite3_stmt *pRow, sqlite3_stmt *pPinned,
    BxLeaf *pOut, BxErr *pErr) {
  static const char *const azField[] = {"actor", "agent_id", "at", "bytes",
      "detail", "domain", "event_id", "kill_switch_event_id", "kind", "newest",
      "oldest", "reason", "rows", "subject"};
  const BxDomain *pDomain;
  unsigned char aNumber[8];
  int i;
  assert(sqlite3_data_count(pRow) == BX_LOG_WIDTH);
  pOut->n = sqlite3_column_int64(pRow, BX_LOG_N);
  pOut->bKept = sqlite3_column_type(pRow, BX_LOG_KIND) != SQLITE_NULL;
  pOut->nField = 0;
  SHA256_Init(&pOut->sha);
  pOut->aSalt = sqlite3_column_blob(pRow, BX_LOG_SALT);
  pOut->nSalt = pOut->aSalt != 0 ? sqlite3_column_bytes(pRow, BX_LOG_SALT) : 0;
  if (pOut->nSalt == BX_DIGEST) { /* the secret, which is longer than a salt */
    bxPutNumber(aNumber, (sqlite3_uint64)pOut->n);
    bxDigestTwo(pOut->aSalt, BX_DIGEST, aNumber, 8, pOut->salt.a);
    pOut->aSalt = pOut->salt.a;
  }
  pDomain = pPinned != 0 ? p->bx->aDomain : bxLogPins(p, pRow, pErr);
  pOut->ePin = pDomain != 0 ? BX_PIN_ENDED : BX_NO_PIN;
  for (i = BX_LOG_ACTOR; i < BX_LOG_WIDTH; i++) {
    if (i == BX_LOG_ROWS && pDomain != 0 && pPinned != 0) {
      addFields(p, pOut, pPinned, pErr);
    } else if (i == BX_LOG_ROWS && pDomain != 0) {
      addPinned(p, pOut, pDomain->zLogged,
          sqlite3_column_value(pRow, BX_LOG_SUBJECT), pErr);
    }
    addField(p, pOut, azField[i - BX_LOG_ACTOR], pRow, i, pErr);
  }
  SHA256_Final(pOut->fields.a, &pOut->sha);
}

void bxLogLeaf(BxStmts *p, sqlite3_stmt *pRow, sqlite3_stmt *pPinned,
    BxLeaf *pOut, BxErr *pErr) {
  pOut->pShown = 0;
  makeLeaf(p, pRow, pPinned, pOut, pErr);
}

static const char zLogRow[] =
    "SELECT " BX_LOG_COLUMNS " FROM main.blackbox__log WHERE n = ?1";

void bxLogKnow(BxStmts *p, i64 n, sqlite3_stmt *pPinned, BxErr *pErr) {
  BxLogKnown *pKnown = p->bx->pKnown;
  BxErr err = {SQLITE_OK, 0}; /* then the row is read when it gets its leaf */
  sqlite3_stmt *pRow;
  int bRow;
  MerkleHash *pFields;
  BxLeaf leaf;
  if (pKnown == 0 || pErr->rc != SQLITE_OK) return;
  if (pKnown->n == 0) pKnown->iFirst = n;
  if (pKnown->n == 0) pKnown->p = p;
  if (pKnown->p != p || n != pKnown->iFirst + pKnown->n) return;
  pRow = bxStmt(p, zLogRow, &err);
  bxBind(pRow, &err, "i", n);
  bRow = bxStep(pRow, &err);
  if (bRow) bxLogLeaf(p, pRow, pPinned, &leaf, &err);
  bxReset(pRow, &err);
  if (bRow && err.rc == SQLITE_OK) {
    pFields = bxArrayAdd(
        &pKnown->aFields, &pKnown->n, &pKnown->nAlloc, sizeof(*pFields), pErr);
    if (pFields != 0) *pFields = leaf.fields;
  }
  bxErrBeside(p, pErr, &err);
}

const MerkleHash *bxLogKnownFields(BxStmts *p, i64 n) {
  const BxLogKnown *pKnown = p->bx->pKnown;
  if (pKnown == 0 || pKnown->p != p || n < pKnown->iFirst) return 0;
  return n < pKnown->iFirst + pKnown->n ? &pKnown->aFields[n - pKnown->iFirst]
                                        : 0;
}

i64 bxLogKept(BxStmts *p, i64 iLeaf, BxErr *pErr) {
  static const char zKept[] =
      "SELECT kept FROM main.blackbox__leaves WHERE leaf = ?1 UNION ALL "
      "SELECT kept FROM main.blackbox__folded WHERE ?1 BETWEEN first AND last";
  return bxQueryInt(p, zKept, pErr, "i", iLeaf);
}

int bxLogIsLeaf(
    BxStmts *p, const BxLeaf *pLeaf, const MerkleHash *pStored, BxErr *pErr) {
  MerkleHash hash =
      bxLogLeafHash(pLeaf->n, bxLogKept(p, pLeaf->n - 1, pErr), &pLeaf->fields);
  return memcmp(hash.a, pStored->a, BX_DIGEST) == 0;
}

int bxLogLeafOf(
    BxStmts *p, i64 n, BxLeaf *pOut, sqlite3_str *pShown, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(p, zLogRow, pErr);
  int bRow;
  bxBind(pStmt, pErr, "i", n);
  bRow = bxStep(pStmt, pErr);
  pOut->pShown = pShown;
  if (bRow) makeLeaf(p, pStmt, 0, pOut, pErr);
  bxReset(pStmt, pErr);
  pOut->aSalt = 0;
  return bRow && pErr->rc == SQLITE_OK;
}
