/*
** calls.c: what an exchange says, as SQL: the tables payload_calls and payload_usage,
** and the functions payload_prompt() and payload_tools().
**
** exchange.c reads the exchange, with the formats of the schema that has the payload
** domain. A connection keeps these formats until something else has changed.
*/
#include "exchange.h"
#include "payload.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* The text of a body that may be a reference to the body store. *ppHold: what the
** caller finalizes after it was used, or NULL. */
static sqlite3_value *bodyText(
    Bx *bx, sqlite3_value *pBody, sqlite3_stmt **ppHold, BxErr *pErr) {
  *ppHold = 0;
  if (pBody == 0 || sqlite3_value_type(pBody) != SQLITE_BLOB) return pBody;
  *ppHold = bxPrepareSql(bx->db, "SELECT store_text(?1)", pErr);
  bxBind(*ppHold, pErr, "v", pBody);
  return bxStep(*ppHold, pErr) ? sqlite3_column_value(*ppHold, 0) : 0;
}

/* The formats are kept as long as nobody has changed anything. Those that were read
** while this connection writes are read again, as that may be rolled back. */
typedef struct Kept {
  Formats formats;
  const BxStmts *pHome; /* NULL: read them again */
  i64 iData;
  int nChange;
} Kept;

static void freeFormats(void *p) {
  bxFormatsFree(&((Kept *)p)->formats);
  sqlite3_free(p);
}

static const Formats *formatsInUse(Bx *bx, BxErr *pErr) {
  BxStmts *pHome = bxDomainSchema(bx, "payload", pErr);
  BxDomainData *pSlot = bxDomainData(bx, "payload");
  Kept *p = pSlot->pKept;
  BxErr none = {SQLITE_OK, 0}; /* the host may forbid the PRAGMA */
  int nChange = sqlite3_total_changes(bx->db);
  i64 iData = pHome != 0 ? bxDataVersion(pHome, &none) : 0;
  int bKeep = none.rc == SQLITE_OK;
  bxErrClear(&none);
  if (pHome == 0) return 0;
  if (p != 0 && bKeep && p->pHome == pHome && p->iData == iData &&
      p->nChange == nChange) {
    return &p->formats;
  }
  if (p == 0) pSlot->pKept = p = bxZalloc(sizeof(*p), pErr);
  if (p == 0) return 0;
  pSlot->xFreeKept = freeFormats;
  bxFormatsFree(&p->formats);
  bxFormatsRead(&p->formats, pHome, FORMATS_ALL, pErr);
  bKeep = bKeep && pErr->rc == SQLITE_OK &&
          sqlite3_txn_state(bx->db, pHome->zDb) != SQLITE_TXN_WRITE;
  p->pHome = bKeep ? pHome : 0;
  p->iData = iData;
  p->nChange = nChange;
  return &p->formats;
}

/* Reads an exchange with the formats in use. Free *pOut in any case. */
static void readExchange(Bx *bx, sqlite3_value *pRequest,
    sqlite3_value *pResponse, Exchange *pOut, BxErr *pErr) {
  sqlite3_stmt *apHold[2];
  const Formats *pFormats;
  assert(pOut != 0);
  pRequest = bodyText(bx, pRequest, &apHold[0], pErr);
  pResponse = bodyText(bx, pResponse, &apHold[1], pErr);
  pFormats = formatsInUse(bx, pErr);
  bxExchangeRead(pOut, pFormats, pRequest, pResponse, pErr);
  sqlite3_finalize(apHold[0]);
  sqlite3_finalize(apHold[1]);
}

/* Copies a text for a result; NULL for none. */
static void columnText(sqlite3_context *pCtx, Text text) {
  if (text.z == 0) return;
  sqlite3_result_text64(
      pCtx, text.z, (sqlite3_uint64)text.n, SQLITE_TRANSIENT, SQLITE_UTF8);
}

static void returnText(BxCall *p, Text text) {
  if (p->pCtx != 0 && p->err.rc == SQLITE_OK) columnText(p->pCtx, text);
}

void bxPayloadPrompt(BxCall *p) {
  Exchange exchange;
  readExchange(p->bx, p->aArg[0], 0, &exchange, &p->err);
  returnText(p, exchange.prompt);
  bxExchangeFree(&exchange);
}

void bxPayloadTools(BxCall *p) {
  Exchange exchange;
  readExchange(p->bx, p->aArg[0], 0, &exchange, &p->err);
  returnText(p, exchange.tools);
  bxExchangeFree(&exchange);
}

sqlite3_stmt *bxPayloadUsage(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zSql[] =
      "SELECT * FROM (SELECT ?1 AS model, ?2 AS input, ?3 AS cache_write, "
      "?4 AS cache_read, ?5 AS output, ?6 AS reasoning, ?7 AS cache_write_1h) "
      "WHERE coalesce(input, cache_write, cache_read, output, reasoning) "
      "IS NOT NULL";
  Exchange exchange;
  sqlite3_stmt *pStmt;
  const BxTokens *p = &exchange.usage;
  int i, rc = SQLITE_OK;
  readExchange(bx, apArg[0], apArg[1], &exchange, pErr);
  pStmt = bxPrepareSql(bx->db, zSql, pErr);
  if (pErr->rc == SQLITE_OK) {
    const i64 aToken[] = {p->nInput, p->nCacheWrite, p->nCacheRead, p->nOutput,
        p->nReasoning, p->nCacheWrite1h};
    assert(sqlite3_bind_parameter_count(pStmt) == 7);
    rc = sqlite3_bind_text(
        pStmt, 1, exchange.model.z, (int)exchange.model.n, SQLITE_TRANSIENT);
    for (i = 0; i < 6 && rc == SQLITE_OK; i++) {
      if (aToken[i] >= 0) rc = sqlite3_bind_int64(pStmt, i + 2, aToken[i]);
    }
    bxFailDb(pErr, bx->db, rc);
  }
  bxExchangeFree(&exchange);
  return pStmt;
}

void bxPayloadExchange(Bx *bx, sqlite3_value *pRequest,
    sqlite3_value *pResponse, void (*xTell)(void *pArg, const BxSaid *p),
    void *pArg, BxErr *pErr) {
  Exchange exchange;
  BxSaid said;
  i64 i;
  readExchange(bx, pRequest, pResponse, &exchange, pErr);
  for (i = 0; i < exchange.n && pErr->rc == SQLITE_OK; i++) {
    const Call *p = &exchange.a[i];
    said = (BxSaid){p->bResult ? BX_SAID_RESULT : BX_SAID_CALL, p->bResponse,
        p->iError > 0, p->id.z, p->tool.z,
        p->bResult ? p->result.z : p->arguments.z, p->id.n, p->tool.n,
        p->bResult ? p->result.n : p->arguments.n, exchange.usage};
    xTell(pArg, &said);
  }
  said = (BxSaid){BX_SAID_USAGE, 0, 0, 0, exchange.model.z, exchange.said.z, 0,
      exchange.model.n, exchange.said.n, exchange.usage};
  xTell(pArg, &said);
  said.eKind = BX_SAID_PROMPT;
  said.zText = exchange.prompt.z;
  said.nText = exchange.prompt.n;
  xTell(pArg, &said);
  bxExchangeFree(&exchange);
}

/*------------------------------------------------------- payload_calls ----*/

/* The columns of payload_calls(). */
enum {
  CALLS_N,
  CALLS_KIND,
  CALLS_ID,
  CALLS_TOOL,
  CALLS_ARGUMENTS,
  CALLS_RESULT,
  CALLS_ERROR,
  CALLS_TURN,
  CALLS_BODY
};

typedef struct CallRows {
  Exchange exchange;
  i64 i; /* the row, from 1 */
} CallRows;

static void callsClose(void *pRows) {
  bxExchangeFree(&((CallRows *)pRows)->exchange);
  sqlite3_free(pRows);
}

static void *callsOpen(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  CallRows *p = bxZalloc(sizeof(*p), pErr);
  if (p != 0) readExchange(bx, apArg[0], apArg[1], &p->exchange, pErr);
  return p;
}

static int callsNext(void *pRows, BxErr *pErr) {
  CallRows *p = (CallRows *)pRows;
  (void)pErr;
  return p->i++ < p->exchange.n;
}

static void callsColumn(void *pRows, sqlite3_context *pCtx, int i) {
  CallRows *p = (CallRows *)pRows;
  const Call *pCall = &p->exchange.a[p->i - 1];
  const char *zKind = pCall->bResult ? "result" : "call";
  const char *zBody = pCall->bResponse ? "response" : "request";
  assert(p->i > 0 && p->i <= p->exchange.n);
  switch (i) {
    case CALLS_N: sqlite3_result_int64(pCtx, p->i); break;
    case CALLS_KIND: sqlite3_result_text(pCtx, zKind, -1, SQLITE_STATIC); break;
    case CALLS_ID: columnText(pCtx, pCall->id); break;
    case CALLS_TOOL: columnText(pCtx, pCall->tool); break;
    case CALLS_ARGUMENTS: columnText(pCtx, pCall->arguments); break;
    case CALLS_RESULT: columnText(pCtx, pCall->result); break;
    case CALLS_ERROR:
      if (pCall->bResult) sqlite3_result_int(pCtx, pCall->iError);
      break;
    case CALLS_TURN: sqlite3_result_int(pCtx, pCall->iTurn); break;
    case CALLS_BODY: sqlite3_result_text(pCtx, zBody, -1, SQLITE_STATIC); break;
    default: assert(0);
  }
}

const BxRows bxCallsRows = {callsOpen, callsNext, callsColumn, callsClose, 0};
