/*
** statement.c: SQL templates and the statements kept for them.
**
** To prepare a statement takes as long as to run it, so statements are kept
** across transactions. Two things make that safe in every host:
**   - A kept statement belongs to the object of a virtual table. For functions
**     that is the object of blackbox_call. When a connection closes, SQLite
**     disconnects these objects before it tests whether statements are open.
**   - A host may finalize all statements of its connection at any time, kept
**     ones among them. So a kept statement is looked up in SQLite's list of
**     statements before each use, and before it is finalized. While a function,
**     xUpdate or xFilter runs (bxCallBegin()), once is enough: nobody can finalize
**     all statements then, because the statement that called it is one of them.
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

#include <stdarg.h>
#include <string.h>

struct BxStmt {
  const char *zTemplate; /* its key */
  char *zSql;            /* the text after bxExpand() */
  sqlite3_stmt *pStmt;   /* NULL if it is not prepared, or was finalized */
  int bFound; /* in SQLite's list, when findKept() last read it ... */
  int bSame;  /* ... and it has the text */
};

/* A statement that fails has changed something only by RAISE(FAIL). A function that
** a statement calls while it runs knows nothing of its end. */
void bxWriteNote(Bx *bx, const BxErr *pErr) {
  int nChange;
  if (bx->iCall != bx->iWrite) return;
  if (pErr->rc != SQLITE_OK &&
      (pErr->rc != SQLITE_CONSTRAINT_TRIGGER || sqlite3_changes(bx->db) == 0)) {
    return;
  }
  nChange = sqlite3_total_changes(bx->db);
  if (nChange != bx->nChange) bx->bWritten = 1;
  bx->nChange = nChange;
}

void bxWriteSchema(Bx *bx) {
  if (bx->iCall == bx->iWrite) bx->bWritten = 1;
}

static int isNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

char *bxExpand(const char *zTemplate, const char *zDb, const char *zTable) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  const char *z = zTemplate;
  assert(zDb != 0);
  while (*z) {
    if (strncmp(z, "main.", 5) == 0 && (z == zTemplate || !isNameChar(z[-1]))) {
      sqlite3_str_appendf(pOut, "\"%w\".", zDb);
      z += 5;
    } else if (zTable != 0 && strncmp(z, "'@'", 3) == 0) {
      sqlite3_str_appendf(pOut, "%Q", zTable);
      z += 3;
    } else if (*z == '@' && zTable != 0) {
      int n = 0;
      while (isNameChar(z[1 + n])) n++;
      sqlite3_str_appendf(pOut, "\"%w%.*s\"", zTable, n, z + 1);
      z += 1 + n;
    } else {
      sqlite3_str_appendchar(pOut, 1, *z++);
    }
  }
  return sqlite3_str_finish(pOut);
}

void bxStmtsInit(
    BxStmts *p, Bx *bx, const char *zDb, const char *zTable, BxErr *pErr) {
  memset(p, 0, sizeof(*p));
  p->bx = bx;
  p->zDb = bxPrintf(pErr, "%s", zDb);
  if (zTable != 0) p->zTable = bxPrintf(pErr, "%s", zTable);
}

BxStmts *bxSchema(Bx *bx, const char *zDb, BxErr *pErr) {
  BxStmts *p;
  if (pErr->rc != SQLITE_OK) return 0;
  assert(zDb != 0);
  for (p = bx->pStmts; p != 0; p = p->pNext) {
    if (sqlite3_stricmp(p->zDb, zDb) == 0) return p;
  }
  p = bxZalloc(sizeof(*p), pErr);
  if (p == 0) return 0;
  bxStmtsInit(p, bx, zDb, 0, pErr);
  if (pErr->rc != SQLITE_OK) {
    bxStmtsFree(p);
    sqlite3_free(p);
    return 0;
  }
  p->pNext = bx->pStmts;
  bx->pStmts = p;
  return p;
}

void bxAnchor(Bx *bx, BxErr *pErr) {
  if (bx->bAnchored || pErr->rc != SQLITE_OK) return;
  sqlite3_finalize(
      bxPrepareSql(bx->db, "SELECT 1 FROM main.blackbox_call", pErr));
  if (!bx->bAnchored) {
    bxFail(pErr, SQLITE_MISUSE,
        "MisuseError: a table named blackbox_call in main hides the table of "
        "blackbox that has this name; rename the other table");
  }
}

/* A set of pointers, which may seem to have others: there are many statements of the
** host. */
#define KEPT_BITS 2048
#define KEPT_BYTE(p) ((sqlite3_uint64)(p) >> 9 & (KEPT_BITS / 8 - 1))
#define KEPT_BIT(p) (1 << ((sqlite3_uint64)(p) >> 6 & 7))

/* Forgets the entries whose statements the host has finalized. Reads SQLite's
** list of statements once. That has the newest first: so the next entry is mostly
** the one before. */
static void findKept(BxStmts *p) {
  sqlite3_stmt *pHost = 0;
  unsigned char aKept[KEPT_BITS / 8] = {0}; /* others are not looked for */
  int i, k, nLost = 0, iNext = 0;
  for (i = 0; i < p->nStmt; i++) {
    p->aStmt[i].bFound = 0;
    if (p->aStmt[i].pStmt == 0) continue;
    aKept[KEPT_BYTE(p->aStmt[i].pStmt)] |= KEPT_BIT(p->aStmt[i].pStmt);
    nLost++;
  }
  while (nLost > 0 && (pHost = sqlite3_next_stmt(p->bx->db, pHost)) != 0) {
    if (!(aKept[KEPT_BYTE(pHost)] & KEPT_BIT(pHost))) continue;
    for (k = 0, i = iNext; k < p->nStmt; k++) {
      if (--i < 0) i = p->nStmt - 1;
      if (p->aStmt[i].pStmt != pHost) continue;
      p->aStmt[i].bFound = 1;
      p->aStmt[i].bSame = 0;
      nLost--;
      iNext = i;
      break;
    }
  }
  for (i = 0; i < p->nStmt; i++) {
    if (!p->aStmt[i].bFound) p->aStmt[i].pStmt = 0;
  }
}

/* Forgets a statement of the host that took the place of the kept one. (Texts are long:
** those that nobody uses are not compared.) */
static void compareKept(struct BxStmt *pEntry) {
  if (pEntry->pStmt == 0 || pEntry->bSame) return;
  pEntry->bSame = strcmp(sqlite3_sql(pEntry->pStmt), pEntry->zSql) == 0;
  if (!pEntry->bSame) pEntry->pStmt = 0;
}

static void finalizeEntry(struct BxStmt *pEntry) {
  compareKept(pEntry);
  sqlite3_finalize(pEntry->pStmt);
  pEntry->pStmt = 0;
}

void bxStmtsFinalize(BxStmts *p) {
  int i;
  findKept(p);
  for (i = 0; i < p->nStmt; i++) finalizeEntry(&p->aStmt[i]);
}

void bxStmtsFree(BxStmts *p) {
  int i;
  bxStmtsFinalize(p);
  for (i = 0; i < p->nStmt; i++) sqlite3_free(p->aStmt[i].zSql);
  sqlite3_free(p->aStmt);
  sqlite3_free(p->zDb);
  sqlite3_free(p->zTable);
  memset(p, 0, sizeof(*p));
}

/* The entry of a template, made when it is new. -1 on error. */
static int findEntry(BxStmts *p, const char *zTemplate, BxErr *pErr) {
  struct BxStmt *pEntry;
  int i;
  for (i = 0; i < p->nStmt; i++) {
    if (p->aStmt[i].zTemplate == zTemplate) return i;
  }
  pEntry = bxArrayGrow(p->aStmt, p->nStmt, &p->nAlloc, sizeof(*pEntry), pErr);
  if (pEntry == 0) return -1;
  p->aStmt = pEntry;
  pEntry += p->nStmt;
  pEntry->zTemplate = zTemplate;
  pEntry->pStmt = 0;
  pEntry->zSql = bxCheckMem(bxExpand(zTemplate, p->zDb, p->zTable), pErr);
  return pEntry->zSql != 0 ? p->nStmt++ : -1;
}

/* Prepares the statement of an entry, unless it is there. */
static sqlite3_stmt *readyEntry(
    const BxStmts *p, struct BxStmt *pEntry, BxErr *pErr) {
  if (pErr->rc != SQLITE_OK) return 0;
  compareKept(pEntry);
  if (pEntry->pStmt == 0) {
    int i, rc = sqlite3_prepare_v3(p->bx->db, pEntry->zSql, -1,
               SQLITE_PREPARE_PERSISTENT, &pEntry->pStmt, 0);
    for (i = 0; i < p->nStmt; i++) { /* one that was not compared is gone */
      if (&p->aStmt[i] != pEntry && p->aStmt[i].pStmt == pEntry->pStmt) {
        p->aStmt[i].pStmt = 0;
      }
    }
    pEntry->bSame = 1;
    bxFailDb(pErr, p->bx->db, rc);
  } else if (sqlite3_stmt_busy(pEntry->pStmt)) {
    bxFail(pErr, SQLITE_MISUSE,
        "MisuseError: this function was called again by a trigger that its own "
        "writes fire; drop that trigger");
  }
  return pErr->rc == SQLITE_OK ? pEntry->pStmt : 0;
}

void bxStmtSet(BxStmts *p, const char *const *azTemplate, int n,
    sqlite3_stmt **apStmt, BxErr *pErr) {
  int aEntry[BX_STMT_SET] = {0};
  int i;
  assert(n > 0 && n <= BX_STMT_SET);
  for (i = 0; i < n; i++) apStmt[i] = 0;
  if (pErr->rc == SQLITE_OK && p->zTable == 0) bxAnchor(p->bx, pErr);
  if (pErr->rc != SQLITE_OK) return;
  bxWriteNote(p->bx, pErr);
  for (i = 0; i < n; i++) {
    assert(p->zTable != 0 || strstr(azTemplate[i], "main.@") == 0);
    aEntry[i] = findEntry(p, azTemplate[i], pErr);
    if (aEntry[i] < 0) return;
  }
  if (p->bx->iCall == 0 || p->iFound != p->bx->iCall) { /* once in a call */
    findKept(p);
    p->iFound = p->bx->iCall;
  }
  for (i = 0; i < n; i++) {
    apStmt[i] = readyEntry(p, &p->aStmt[aEntry[i]], pErr);
  }
}

sqlite3_stmt *bxStmt(BxStmts *p, const char *zTemplate, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  bxStmtSet(p, &zTemplate, 1, &pStmt, pErr);
  return pStmt;
}

void bxStmtForget(BxStmts *p, const char *zTemplate) {
  int i;
  findKept(p);
  for (i = 0; i < p->nStmt; i++) {
    if (p->aStmt[i].zTemplate == zTemplate) finalizeEntry(&p->aStmt[i]);
  }
}

sqlite3_stmt *bxStmtTake(BxStmts *p, const char *zTemplate, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(p, zTemplate, pErr);
  if (pStmt != 0) p->aStmt[findEntry(p, zTemplate, pErr)].pStmt = 0;
  return pStmt;
}

void bxStmtGive(BxStmts *p, const char *zTemplate, sqlite3_stmt *pStmt) {
  int i = 0;
  if (pStmt == 0) return;
  while (i < p->nStmt && p->aStmt[i].zTemplate != zTemplate) i++;
  if (i < p->nStmt && p->aStmt[i].pStmt != 0) findKept(p);
  if (i == p->nStmt || p->aStmt[i].pStmt != 0 ||
      strcmp(sqlite3_sql(pStmt), p->aStmt[i].zSql) != 0) {
    sqlite3_finalize(pStmt);
    return;
  }
  sqlite3_reset(pStmt);
  sqlite3_clear_bindings(pStmt);
  p->aStmt[i].pStmt = pStmt;
  p->aStmt[i].bSame = 1;
}

void bxStmtDone(Bx *bx, sqlite3_stmt *pStmt) {
  const char *zSql = pStmt ? sqlite3_sql(pStmt) : 0;
  BxStmts *p;
  int i;
  for (p = bx->pStmts; pStmt != 0 && p != 0; p = p->pNext) {
    for (i = 0; i < p->nStmt; i++) {
      if (p->aStmt[i].pStmt != 0 || strcmp(p->aStmt[i].zSql, zSql) != 0) {
        continue;
      }
      bxStmtGive(p, p->aStmt[i].zTemplate, pStmt);
      return;
    }
  }
  sqlite3_finalize(pStmt);
}

sqlite3_stmt *bxPrepareSql(sqlite3 *db, const char *zSql, BxErr *pErr) {
  sqlite3_stmt *pStmt = 0;
  if (pErr->rc != SQLITE_OK) return 0;
  assert(zSql != 0);
  bxFailDb(pErr, db, sqlite3_prepare_v2(db, zSql, -1, &pStmt, 0));
  return pStmt;
}

sqlite3_stmt *bxPrepareOwned(sqlite3 *db, char *zOwned, BxErr *pErr) {
  sqlite3_stmt *pStmt = 0;
  if (bxCheckMem(zOwned, pErr)) pStmt = bxPrepareSql(db, zOwned, pErr);
  sqlite3_free(zOwned);
  return pStmt;
}

int bxCanPrepare(Bx *bx, char *zOwned, BxErr *pErr) {
  sqlite3_stmt *pStmt = 0;
  int rc;
  if (pErr->rc != SQLITE_OK) return 0;
  rc = sqlite3_prepare_v2(bx->db, zOwned, -1, &pStmt, 0);
  sqlite3_free(zOwned);
  sqlite3_finalize(pStmt);
  if (rc != SQLITE_ERROR) bxFailDb(pErr, bx->db, rc); /* no such table */
  return rc == SQLITE_OK;
}

sqlite3_stmt *bxPrepare(BxStmts *p, const char *zTemplate, BxErr *pErr) {
  sqlite3_stmt *pStmt = 0;
  char *zSql;
  if (pErr->rc != SQLITE_OK) return 0;
  bxWriteNote(p->bx, pErr);
  zSql = bxCheckMem(bxExpand(zTemplate, p->zDb, p->zTable), pErr);
  pStmt = bxPrepareSql(p->bx->db, zSql, pErr);
  sqlite3_free(zSql);
  return pStmt;
}

sqlite3_stmt *bxPrepareMade(BxStmts *p, char *zOwned, BxErr *pErr) {
  sqlite3_stmt *pStmt = 0;
  if (bxCheckMem(zOwned, pErr)) pStmt = bxPrepare(p, zOwned, pErr);
  sqlite3_free(zOwned);
  return pStmt;
}

/* Binds a value without a copy of its text or blob. */
static int bindInPlace(sqlite3_stmt *pStmt, int i, sqlite3_value *pVal) {
  int eType = sqlite3_value_type(pVal);
  const void *p;
  if (eType == SQLITE_TEXT) {
    p = sqlite3_value_text(pVal);
    if (p == 0) return SQLITE_NOMEM;
    return sqlite3_bind_text(
        pStmt, i, p, sqlite3_value_bytes(pVal), SQLITE_STATIC);
  }
  if (eType == SQLITE_BLOB && sqlite3_value_bytes(pVal) > 0) {
    p = sqlite3_value_blob(pVal);
    if (p == 0) return SQLITE_NOMEM;
    return sqlite3_bind_blob(
        pStmt, i, p, sqlite3_value_bytes(pVal), SQLITE_STATIC);
  }
  return sqlite3_bind_value(pStmt, i, pVal);
}

static void bindAll(
    sqlite3_stmt *pStmt, BxErr *pErr, const char *zTypes, va_list ap) {
  int i;
  assert(zTypes != 0);
  if (pErr->rc != SQLITE_OK) return;
  assert(pStmt != 0);
  assert((int)strlen(zTypes) <= sqlite3_bind_parameter_count(pStmt));
  for (i = 1; zTypes[i - 1] && pErr->rc == SQLITE_OK; i++) {
    const char c = zTypes[i - 1];
    int rc = SQLITE_OK;
    assert(strchr("idtcbxvsn-", c) != 0);
    if (c == 'i') {
      rc = sqlite3_bind_int64(pStmt, i, va_arg(ap, i64));
    } else if (c == 'd') {
      rc = sqlite3_bind_double(pStmt, i, va_arg(ap, double));
    } else if (c == 't' || c == 'c') {
      rc = sqlite3_bind_text(pStmt, i, va_arg(ap, const char *), -1,
          c == 't' ? SQLITE_STATIC : SQLITE_TRANSIENT);
    } else if (c == 's' || c == 'v') {
      sqlite3_value *pVal = va_arg(ap, sqlite3_value *);
      rc = pVal == 0  ? sqlite3_bind_null(pStmt, i)
           : c == 'v' ? sqlite3_bind_value(pStmt, i, pVal)
                      : bindInPlace(pStmt, i, pVal);
    } else if (c == 'b' || c == 'x') {
      const void *a = va_arg(ap, const void *);
      sqlite3_uint64 n = (sqlite3_uint64)va_arg(ap, i64);
      rc = c == 'x' ? sqlite3_bind_blob64(pStmt, i, a, n, SQLITE_STATIC)
                    : sqlite3_bind_text64(
                          pStmt, i, a, n, SQLITE_STATIC, SQLITE_UTF8);
    } else if (c == 'n') {
      rc = sqlite3_bind_null(pStmt, i);
    }
    bxFailDb(pErr, sqlite3_db_handle(pStmt), rc);
  }
}

void bxBind(sqlite3_stmt *pStmt, BxErr *pErr, const char *zTypes, ...) {
  va_list ap;
  va_start(ap, zTypes);
  bindAll(pStmt, pErr, zTypes, ap);
  va_end(ap);
}

int bxStep(sqlite3_stmt *pStmt, BxErr *pErr) {
  int rc;
  if (pErr->rc != SQLITE_OK) return 0;
  assert(pStmt != 0);
  rc = sqlite3_step(pStmt);
  if (rc == SQLITE_ROW) return 1;
  bxFailDb(pErr, sqlite3_db_handle(pStmt), rc);
  return 0;
}

const char *bxColumnText(sqlite3_stmt *pStmt, int i, BxErr *pErr) {
  int bNull = sqlite3_column_type(pStmt, i) == SQLITE_NULL;
  const char *z = (const char *)sqlite3_column_text(pStmt, i);
  assert(pErr->rc != SQLITE_OK || i < sqlite3_data_count(pStmt)); /* a row */
  if (z == 0 && !bNull) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  return pErr->rc == SQLITE_OK ? z : 0;
}

char *bxColumnCopy(sqlite3_stmt *pStmt, int i, BxErr *pErr) {
  const char *z = bxColumnText(pStmt, i, pErr);
  return z != 0 ? bxPrintf(pErr, "%s", z) : 0;
}

void bxReset(sqlite3_stmt *pStmt, BxErr *pErr) {
  int rc;
  if (pStmt == 0) return;
  rc = sqlite3_reset(pStmt);
  if (pErr->rc == SQLITE_OK) bxFailDb(pErr, sqlite3_db_handle(pStmt), rc);
  sqlite3_clear_bindings(pStmt);
}

void bxStmtRun(sqlite3_stmt *pStmt, BxErr *pErr) {
  while (bxStep(pStmt, pErr)) {
  }
  bxReset(pStmt, pErr);
}

void bxStmtExec(
    BxStmts *p, const char *zTemplate, BxErr *pErr, const char *zTypes, ...) {
  sqlite3_stmt *pStmt = bxStmt(p, zTemplate, pErr);
  va_list ap;
  va_start(ap, zTypes);
  bindAll(pStmt, pErr, zTypes, ap);
  va_end(ap);
  bxStmtRun(pStmt, pErr);
  if (pErr->rc == SQLITE_OK) p->bx->nOwn += sqlite3_changes(p->bx->db);
  if (pStmt != 0) bxWriteNote(p->bx, pErr);
}

/* (A kept statement is reset, another one is finalized.) */
static i64 firstValue(BxStmts *p, const char *zTemplate, int eHow, char **pz,
    BxErr *pErr, const char *zTypes, va_list ap) {
  sqlite3_stmt *pStmt = eHow & BX_QUERY_ONCE ? bxPrepare(p, zTemplate, pErr)
                                             : bxStmt(p, zTemplate, pErr);
  i64 n = 0;
  assert(!(eHow & BX_QUERY_OWNED) || eHow & BX_QUERY_ONCE);
  if (eHow & BX_QUERY_OWNED) sqlite3_free((char *)zTemplate);
  bindAll(pStmt, pErr, zTypes, ap);
  if (eHow & BX_QUERY_INNER && pErr->rc == SQLITE_OK) p->bx->bInner = 1;
  if (bxStep(pStmt, pErr)) {
    if (pz != 0) *pz = bxColumnCopy(pStmt, 0, pErr);
    if (pz == 0) n = sqlite3_column_int64(pStmt, 0);
  }
  if (eHow & BX_QUERY_INNER && p != 0) p->bx->bInner = 0;
  if (eHow & BX_QUERY_ONCE) sqlite3_finalize(pStmt);
  if (!(eHow & BX_QUERY_ONCE)) bxReset(pStmt, pErr);
  return n;
}

i64 bxQueryNumberHow(BxStmts *p, const char *zTemplate, int eHow, BxErr *pErr,
    const char *zTypes, ...) {
  va_list ap;
  i64 n;
  va_start(ap, zTypes);
  n = firstValue(p, zTemplate, eHow, 0, pErr, zTypes, ap);
  va_end(ap);
  return n;
}

char *bxQueryTextHow(BxStmts *p, const char *zTemplate, int eHow, BxErr *pErr,
    const char *zTypes, ...) {
  char *z = 0;
  va_list ap;
  va_start(ap, zTypes);
  firstValue(p, zTemplate, eHow, &z, pErr, zTypes, ap);
  va_end(ap);
  return z;
}

sqlite3_stmt *bxJsonRows(Bx *bx, const char *zSql, char *zOwned, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  assert(strstr(zSql, "?1") != 0);
  bxCheckMem(zOwned, pErr);
  pStmt = bxPrepareSql(bx->db, zSql, pErr);
  bxBind(pStmt, pErr, "c", zOwned);
  sqlite3_free(zOwned);
  return pStmt;
}

void bxExecSql(Bx *bx, char *zOwned, BxErr *pErr) {
  bxCheckMem(zOwned, pErr);
  if (pErr->rc == SQLITE_OK) {
    bxFailDb(pErr, bx->db, sqlite3_exec(bx->db, zOwned, 0, 0, 0));
    bxWriteSchema(bx); /* some of them, if one fails */
  }
  sqlite3_free(zOwned);
}

void bxExec(BxStmts *p, const char *zTemplate, BxErr *pErr) {
  if (pErr->rc != SQLITE_OK) return;
  bxExecSql(p->bx, bxExpand(zTemplate, p->zDb, p->zTable), pErr);
}

void bxExecMade(BxStmts *p, char *zOwned, BxErr *pErr) {
  bxExec(p, zOwned, pErr);
  sqlite3_free(zOwned);
}

/*----------------------------------------------------------- connection ----*/

/*
** A Bx exists as long as a function or module of blackbox is registered, that
** is, until the connection is really closed. By then its files are closed and
** its locks released. After that the memory slots of the domains are freed.
*/

Bx *bxRef(Bx *bx) {
  assert(bx->nRef >= 0);
  bx->nRef++;
  return bx;
}

void bxForgetDomainSchemas(Bx *bx) {
  int i;
  assert(bx->nDomain > 0);
  for (i = 0; i < bx->nDomain; i++) {
    sqlite3_free(bx->aSlot[i].zHome);
    bx->aSlot[i].zHome = 0;
  }
}

i64 bxCallBegin(Bx *bx) {
  i64 iOuter = bx->iCall;
  int nTotal = sqlite3_total_changes(bx->db);
  assert(bx->iCall >= 0 && bx->iCall <= bx->nCall);
  if (iOuter == 0) {
    if (nTotal != bx->nTotal && nTotal != bx->nTotal + bx->nOwed)
      bx->nForeign++;
    if (nTotal != bx->nTotal) bx->nOwed = 0;
    bx->nTotal = nTotal;
    bx->nOwn = 0;
    bx->bClean = sqlite3_txn_state(bx->db, 0) != SQLITE_TXN_WRITE;
  }
  bx->iCall = ++bx->nCall;
  if (iOuter == 0) bx->iFirst = bx->iCall;
  return iOuter;
}

void bxCallEnd(Bx *bx, i64 iOuter) {
  assert(bx->iCall > iOuter);
  bx->iCall = iOuter;
  if (iOuter != 0) return;
  bx->nTotal = sqlite3_total_changes(bx->db);
  if (bx->pGone != 0) bx->xFreeGone(bx);
}

const BxDomain *bxDomainOf(const Bx *bx, const char *zDomain) {
  int i;
  for (i = 0; i < bx->nDomain; i++) {
    if (strcmp(bx->aDomain[i].zName, zDomain) == 0) return &bx->aDomain[i];
  }
  return 0;
}

BxDomainData *bxDomainData(Bx *bx, const char *zDomain) {
  const BxDomain *pDomain = bxDomainOf(bx, zDomain);
  assert(pDomain != 0);
  return &bx->aSlot[pDomain - bx->aDomain];
}

void bxUnref(void *p) {
  Bx *bx = (Bx *)p;
  int i;
  assert(bx->nRef > 0);
  if (--bx->nRef > 0) return;
  for (i = 0; i < bx->nDomain; i++) {
    BxDomainData *pSlot = &bx->aSlot[i];
    if (pSlot->xFree != 0) pSlot->xFree(pSlot->p);
    if (pSlot->xFreeKept != 0) pSlot->xFreeKept(pSlot->pKept);
  }
  bxForgetDomainSchemas(bx);
  while (bx->pStmts != 0) { /* finalized when blackbox_call disconnects */
    BxStmts *pNext = bx->pStmts->pNext;
    bxStmtsFree(bx->pStmts);
    sqlite3_free(bx->pStmts);
    bx->pStmts = pNext;
  }
  sqlite3_free(bx->zUse);
  sqlite3_free(bx);
}
