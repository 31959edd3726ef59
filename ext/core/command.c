/*
** command.c: calls functions, and implements the table blackbox_call.
**
** A function that changes data runs in a savepoint (transaction.c), at the top
** level of a statement of its own. The same command as a row, INSERT INTO
** blackbox_call(command, arguments) VALUES('name', '[...]'), has no savepoint.
** Inside BEGIN, one that fails after its first write takes the transaction with it
** (transaction.c).
**
** blackbox_call also finalizes the statements that functions keep, because
** SQLite disconnects it before it tests whether statements are open.
*/
#include "core.h"
#include "log.h"
#include "table.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define BX_MAX_ARG 16

/* The user data of a registered function. */
typedef struct Registered {
  Bx *bx;
  const BxFunction *pDef;
} Registered;

/*------------------------------------------------- arguments, results ----*/

sqlite3_value *bxArg(BxCall *p, int i) {
  assert(i >= 0 && i < p->pDef->nMax);
  if (i >= p->nArg) return 0;
  return sqlite3_value_type(p->aArg[i]) == SQLITE_NULL ? 0 : p->aArg[i];
}

i64 bxLimit(BxCall *p, int i, i64 nDefault) {
  sqlite3_value *pArg = bxArg(p, i);
  return pArg ? bxInt(pArg, "limit", 1, BX_LIMIT_MOST, &p->err) : nDefault;
}

void bxReturnInt(BxCall *p, i64 iVal) {
  if (p->pCtx != 0) sqlite3_result_int64(p->pCtx, iVal);
}

void bxReturnText(BxCall *p, char *zOwned) {
  if (bxCheckMem(zOwned, &p->err) != 0 && p->pCtx != 0) {
    /* (-1: SQLite then knows that it ends with a zero, and makes no copy.) */
    sqlite3_result_text(p->pCtx, zOwned, -1, sqlite3_free);
  } else {
    sqlite3_free(zOwned);
  }
}

void bxReturnJson(BxCall *p, char *zOwned) {
  bxReturnText(p, zOwned);
  if (p->pCtx != 0 && zOwned != 0) sqlite3_result_subtype(p->pCtx, 'J');
}

void bxReturnValue(BxCall *p, sqlite3_value *pVal) {
  if (p->pCtx != 0) sqlite3_result_value(p->pCtx, pVal);
}

void bxRefuseInTransaction(BxCall *p) {
  if (p->pCtx != 0 || sqlite3_get_autocommit(p->bx->db)) return;
  bxFail(&p->err, SQLITE_ERROR,
      "MisuseError: %s cannot run as a row inside a transaction, because it "
      "could not be rolled back as a whole; use SELECT %s()",
      p->pDef->zName, p->pDef->zName);
}

/*------------------------------------------------------------- calls ----*/

/* The domain with whose name the function's name begins, or NULL. */
static const BxDomain *findDomain(const BxCall *p) {
  int i;
  assert(p->pDef != 0);
  for (i = 0; i < p->bx->nDomain; i++) {
    const char *zDomain = p->bx->aDomain[i].zName;
    if (strncmp(p->pDef->zName, zDomain, strlen(zDomain)) == 0) {
      return &p->bx->aDomain[i];
    }
  }
  return 0;
}

/* Runs the implementation; then the rows of the log that it has written get their
** leaves. */
static void runBare(BxCall *p) {
  p->pDef->xRun(p);
  bxRequireKnownFormat(p->bx, &p->err);
  if (p->pDef->flags & BX_LOGS) bxLogProveAll(p->bx, &p->err);
}

/* Runs the implementation in a savepoint. */
static void runWhole(BxCall *p) {
  const BxDomain *pDomain = findDomain(p);
  const char *zFailed = pDomain && pDomain->zFailed ? pDomain->zFailed : "";
  assert(p->pDef->flags & BX_WRITE);
  bxSavepoint(p->bx, p->pDef->zName, &p->err);
  if (p->err.rc == SQLITE_OK) {
    runBare(p);
    if (p->err.rc != SQLITE_OK) zFailed = ""; /* the message already has it */
    bxRelease(p->bx, &p->err);
    /* nobody knows any more what was read or written in it */
    if (p->err.rc != SQLITE_OK) p->bx->nForeign++;
  }
  bxErrPrefix(&p->err, zFailed);
}

/* Runs the implementation; the error, if any, is in p->err. */
static void runCall(BxCall *p) {
  assert(p->err.rc == SQLITE_OK && p->err.zMsg == 0);
  if (p->nArg < p->pDef->nMin || p->nArg > p->pDef->nMax) {
    bxFail(&p->err, SQLITE_ERROR, "wrong number of arguments to function %s()",
        p->pDef->zName);
    return;
  }
  if ((p->pDef->flags & BX_ALONE) && p->pCtx != 0) {
    bxRefuseRead(p->bx, p->pDef->zName, &p->err);
    if (p->err.rc != SQLITE_OK) return;
  }
  if ((p->pDef->flags & BX_WRITE) && p->pCtx != 0) {
    if (p->bx->bInner) { /* as a part of the call that asked for it */
      p->bx->bInner = 0; /* not for what this call itself starts */
      p->pDef->xRun(p);
    } else {
      runWhole(p);
    }
  } else {
    runBare(p);
  }
  /* the schema may be detached */
  if (p->err.rc == SQLITE_ERROR) bxForgetDomainSchemas(p->bx);
}

/*-------------------------------------------------------- functions ----*/

static void functionStep(
    sqlite3_context *pCtx, int nArg, sqlite3_value **aArg) {
  Registered *pReg = (Registered *)sqlite3_user_data(pCtx);
  BxCall call = {pReg->bx, pReg->pDef, nArg, aArg, pCtx, {SQLITE_OK, 0}};
  i64 iOuter = bxCallBegin(pReg->bx);
  assert(pReg->bx->nRef > 0 && pReg->pDef->xRun != 0);
  runCall(&call);
  bxCallEnd(pReg->bx, iOuter);
  bxErrResult(&call.err, pCtx);
}

static void functionFree(void *p) {
  Registered *pReg = (Registered *)p;
  bxUnref(pReg->bx);
  sqlite3_free(pReg);
}

int bxRegisterFunctions(Bx *bx, const BxFunction *aFunction, int nFunction) {
  /* SQLITE_RESULT_SUBTYPE, which SQLite 3.45 and later require for functions
  ** that mark their result as JSON; older versions ignore the bit. */
  const int eSubtype = 0x001000000;
  int i, rc = SQLITE_OK;
  bx->aFunction = aFunction;
  bx->nFunction = nFunction;
  for (i = 0; i < nFunction && rc == SQLITE_OK; i++) {
    const BxFunction *pDef = &aFunction[i];
    int nArg = pDef->nMin == pDef->nMax ? pDef->nMin : -1;
    int flags = SQLITE_UTF8 | eSubtype;
    Registered *pReg = sqlite3_malloc64(sizeof(*pReg));
    assert(pDef->nMin <= pDef->nMax && pDef->nMax <= BX_MAX_ARG);
    if (pReg == 0) return SQLITE_NOMEM;
    pReg->bx = bxRef(bx);
    pReg->pDef = pDef;
    if (pDef->flags & (BX_WRITE | BX_OWN)) flags |= SQLITE_DIRECTONLY;
    if (pDef->flags & BX_PURE) flags |= SQLITE_INNOCUOUS | SQLITE_DETERMINISTIC;
    if (pDef->flags & BX_SAFE) flags |= SQLITE_INNOCUOUS;
    rc = sqlite3_create_function_v2(bx->db, pDef->zName, nArg, flags, pReg,
        functionStep, 0, 0, functionFree);
  }
  return rc;
}

/*---------------------------------------------------- blackbox_call ----*/

/* The elements of the array ?1 as SQL values: strings as text, numbers as
** numbers, null as NULL, other elements as JSON text. Also whether ?1 is an
** array, and whether it is empty. */
/* clang-format off */
static const char zArguments[] =
    "SELECT CASE WHEN type IN ('true', 'false') THEN type"
    "    WHEN type = 'text' THEN " BX_JSON_TEXT("(?1 -> fullkey)")
    "    ELSE value END,"
    "  json_type(?1) = 'array', fullkey IS NULL "
    "FROM (SELECT 1) LEFT JOIN json_each(?1)";
/* clang-format on */

/* Copies the elements of a JSON array into aArg[0..nMax). Returns their number.
** For text that is not JSON, json_each() itself fails. */
static int readArguments(
    Bx *bx, sqlite3_value *pJson, sqlite3_value **aArg, int nMax, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  sqlite3_value *p;
  int n = 0;
  assert(nMax > 0);
  if (pJson == 0 || sqlite3_value_type(pJson) == SQLITE_NULL) return 0;
  pStmt = bxPrepareSql(bx->db, zArguments, pErr);
  bxBind(pStmt, pErr, "v", pJson);
  while (bxStep(pStmt, pErr)) {
    if (n == nMax || !sqlite3_column_int(pStmt, 1)) {
      bxFail(pErr, SQLITE_CONSTRAINT,
          "ValidationError: arguments must be a JSON array of at most %d "
          "elements, as in '[\"ring\", 7]'",
          nMax);
      break;
    }
    if (sqlite3_column_int(pStmt, 2)) break; /* [] */
    assert(n < nMax && aArg[n] == 0);
    p = aArg[n++] =
        bxCheckMem(sqlite3_value_dup(sqlite3_column_value(pStmt, 0)), pErr);
    if (p != 0 && sqlite3_value_type(p) == SQLITE_TEXT &&
        !bxIsUtf8(sqlite3_value_text(p), sqlite3_value_bytes(p))) {
      bxFail(pErr, SQLITE_CONSTRAINT,
          "ValidationError: argument %d contains half a surrogate pair, which "
          "UTF-8 cannot express; remove it",
          n);
    }
  }
  if (bxErrContains(pErr, "malformed JSON")) {
    bxErrPrefix(pErr, "ValidationError: arguments must be a JSON array, as in "
                      "'[\"ring\", 7]': ");
  }
  sqlite3_finalize(pStmt);
  return n;
}

void bxCallWrite(Bx *bx, int argc, sqlite3_value **argv, BxErr *pErr) {
  sqlite3_value *aArg[BX_MAX_ARG] = {0};
  BxCall call = {bx, 0, 0, aArg, 0, {SQLITE_OK, 0}};
  const char *zName;
  int i;
  if (argc == 1 || sqlite3_value_type(argv[0]) != SQLITE_NULL) {
    bxFail(pErr, SQLITE_READONLY,
        "MisuseError: blackbox_call supports only INSERT; INSERT INTO "
        "blackbox_call(command, arguments)");
    return;
  }
  zName = bxText(argv[2], "command", 100, 0, &call.err);
  for (i = 0; zName != 0 && call.pDef == 0 && i < bx->nFunction; i++) {
    if (sqlite3_stricmp(bx->aFunction[i].zName, zName) == 0) {
      call.pDef = &bx->aFunction[i];
    }
  }
  if (zName != 0 && call.pDef == 0) {
    bxFail(&call.err, SQLITE_ERROR,
        "NotFoundError: there is no command %Q; use the name of a function "
        "that changes data",
        zName);
  } else if (zName != 0 && !(call.pDef->flags & (BX_WRITE | BX_OWN))) {
    bxFail(&call.err, SQLITE_ERROR,
        "ValidationError: %s() does not change data and cannot be a command; "
        "use it in a SELECT",
        zName);
  }
  if (call.err.rc == SQLITE_OK) {
    call.nArg = readArguments(bx, argv[3], aArg, BX_MAX_ARG, &call.err);
  }
  if (call.err.rc == SQLITE_OK) runCall(&call);
  for (i = 0; i < BX_MAX_ARG; i++) sqlite3_value_free(aArg[i]);
  bxErrMove(pErr, &call.err);
}

static void callClosing(Bx *bx) {
  BxStmts *pStmts;
  int i;
  for (i = 0; i < bx->nDomain; i++) {
    BxDomainData *pSlot = &bx->aSlot[i];
    if (pSlot->xClosing != 0) pSlot->xClosing(pSlot->p);
  }
  for (pStmts = bx->pStmts; pStmts != 0; pStmts = pStmts->pNext) {
    bxStmtsFinalize(pStmts);
  }
}

/* The table is always empty. */
static void *callOpen(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  (void)bx, (void)apArg, (void)pErr;
  return 0;
}

const BxRows bxCallRows = {callOpen, 0, 0, 0, callClosing};
