/*
** ring.c: the virtual table payload_ring: the last exchanges of each agent.
**
**   CREATE VIRTUAL TABLE ring USING payload_ring(window=50, max_bytes=1000000,
**     idle_days=30);
**
** Columns: agent_id, event_id, request_body, response_body, timestamp
** (milliseconds since 1970 UTC), size_bytes (of both bodies), seq (1, 2, ...
** for each agent). Hidden columns: one with the name of the table, and value,
** for commands:
**   INSERT INTO ring(ring, value) VALUES('window', 80)
**   and the same with 'max_bytes' and 'idle_days', where 0 is no bound
**   INSERT INTO ring(ring, agent_id, event_id, actor, reason)
**     VALUES('kill_switch', ?, ?, ?, ?)
**   INSERT INTO ring(ring, agent_id) VALUES('forget', ?): an agent without rows
**     leaves, as after idle_days; NULL: all of them
**
** This file has only the methods; ring_sql.c has the statements. A row is
** inserted or deleted, never updated. Rows are ordered by agent_id and seq. A
** query of one agent does not read other agents, in either order of seq, and with
** bounds of seq only the rows between them. Bodies are read only if a query uses
** them. INSERT OR IGNORE skips an exchange that
** is refused, but never a kill switch.
**
** Limits: agent_id and event_id 1 KB of UTF-8 each; window 1 to 10,000; text or
** blob bodies of up to 1 GB together.
*/
#include "payload.h"
#include "../core/model.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

#define COLUMNS                                                                \
  "agent_id,event_id,request_body,response_body,timestamp,size_bytes,seq,"     \
  "meta,value"
enum {
  AGENT,
  EVENT,
  REQUEST,
  RESPONSE,
  TIME,
  SIZE,
  SEQ,
  META,
  COMMAND,
  VALUE,
  ACTOR,
  REASON
};

/* idxNum bits */
#define BY_AGENT 1 /* an argument is the agent */
#define BY_EVENT 2 /* and so on, in this order */
#define SEQ_LOW 4
#define SEQ_HIGH 8
#define SEQ_IS 16
#define NEWEST 32 /* by descending seq */
#define BODIES 64 /* a column is a body */

typedef struct RingCursor {
  sqlite3_vtab_cursor base;
  sqlite3_stmt *pAgents;        /* see bxRingReadAgent() */
  sqlite3_stmt *pSlots;         /* id, then the columns in their order */
  const char *zAgents, *zSlots; /* their templates */
  RingAgent agent;              /* the agent whose slots are being read */
  i64 nWindow;                  /* window of the ring */
  i64 iLow, iHigh;              /* bounds of seq */
  int idxNum;
  int iPart; /* of the layout, from 0 to 2 */
  int bEof;
} RingCursor;

const BxRecords bxRingRecords[] = {
    {0, "main.@", "agent=agent_id,event=event_id,",
        "t.request_body, t.response_body, t.event_id, t.agent_id, t.meta",
        "t.size_bytes",
        BX_HOLD_ON("agent", "t.agent_id") " OR " BX_HOLD_ON(
            "event", "t.event_id") " OR " BX_HOLD_ON("buffer", "lower('@')"),
        0, 0, 0,
        "INSERT INTO main.@(@, agent_id) SELECT 'forget', agent_id"
        " FROM main.@_agents WHERE rows = 0 AND (?1 IN (agent_id, lower('@'))"
        " OR ?5 AND EXISTS (SELECT 1 FROM json_each(?1) AS j"
        "  WHERE instr(agent_id, j.value) > 0)) ORDER BY agent_id, 1",
        0, 0, 0},
    {0},
};

const BxTexts bxRingTexts = {.zFrom = "(SELECT 0 AS no, * FROM main.@)",
    .zKind = "buffer",
    .zKey = "'@'",
    .zRow = "t.agent_id || ' ' || t.seq",
    .zColumns = "request_body,response_body,meta",
    .zKinds = "agent=t.agent_id = ?1,event=t.event_id = ?1,"};

/*---------------------------------------------------- life of a table ----*/

/* The options of CREATE, which are commands as well, with their range. */
static const struct {
  const char *zName;
  i64 iLow, iHigh;
} aOption[] = {
    {"window", 1, BX_RING_MAX_WINDOW},
    {"max_bytes", 0, BX_RING_MAX_BYTES}, /* 0: no bound */
    {"idle_days", 0, BX_RING_MAX_IDLE},
};
#define N_OPTION 3

static int findOption(const char *zName) {
  int i = 0;
  assert(zName != 0);
  while (i < N_OPTION && sqlite3_stricmp(aOption[i].zName, zName) != 0) i++;
  return i;
}

static void readOptions(
    int argc, const char *const *argv, i64 aOut[N_OPTION], BxErr *pErr) {
  char zKey[32], zVal[32], *zEnd;
  int i, k;
  assert(argc >= 3);
  for (i = 3; i < argc; i++) {
    bxVtabArg(argv[i], zKey, sizeof(zKey), zVal, sizeof(zVal), pErr);
    if (pErr->rc != SQLITE_OK) return;
    k = findOption(zKey);
    if (k == N_OPTION) {
      bxFail(pErr, SQLITE_ERROR,
          "ValidationError: payload_ring has no argument %s; it takes "
          "window=1 to 10000, max_bytes and idle_days",
          zKey);
      return;
    }
    aOut[k] = strtoll(zVal, &zEnd, 10);
    if (*zVal == 0 || *zEnd != 0 || aOut[k] < aOption[k].iLow ||
        aOut[k] > aOption[k].iHigh) {
      bxFail(pErr, SQLITE_ERROR,
          "ValidationError: %s must be a whole number from %lld to %lld, got "
          "%s",
          aOption[k].zName, aOption[k].iLow, aOption[k].iHigh, zVal);
    }
  }
}

static void refuseColumnName(const char *zName, BxErr *pErr) {
  if (!bxIsColumn(zName, COLUMNS)) return;
  bxFail(pErr, SQLITE_ERROR,
      "ValidationError: a ring cannot be named %s, as it has a column of "
      "that name; choose another name",
      zName);
}

static void declare(sqlite3 *db, const char *zName, BxErr *pErr) {
  char *zSql = bxPrintf(pErr,
      "CREATE TABLE x(agent_id TEXT, event_id TEXT, request_body, "
      "response_body, timestamp INTEGER, size_bytes INTEGER, seq INTEGER, "
      "meta TEXT, \"%w\" HIDDEN, value HIDDEN, actor HIDDEN, reason HIDDEN)",
      zName);
  if (zSql != 0) bxFailDb(pErr, db, sqlite3_declare_vtab(db, zSql));
  sqlite3_free(zSql);
  sqlite3_vtab_config(db, SQLITE_VTAB_CONSTRAINT_SUPPORT, 1);
}

static void freeRing(BxVtab *pVtab) {
  Ring *p = (Ring *)pVtab;
  sqlite3_free(p->zBefore);
  bxStmtsFree(&p->saving);
  bxRingWatchFree(p);
  bxBodyFree(p);
}

static int ringDisconnect(sqlite3_vtab *pVtab) {
  bxVtabFree((BxVtab *)pVtab);
  return SQLITE_OK;
}

static int openTable(sqlite3 *db, Bx *bx, int bCreate, int argc,
    const char *const *argv, sqlite3_vtab **ppVtab, char **pzErr) {
  BxErr err = {SQLITE_OK, 0};
  Ring *p;
  int rc;
  p = (Ring *)bxVtabNew(sizeof(*p), bx, "payload_ring", argv[1], argv[2], &err);
  if (p != 0) {
    p->base.xFree = freeRing;
    bxRingForget(p);
  }
  refuseColumnName(argv[2], &err);
  declare(db, argv[2], &err);
  if (bCreate && err.rc == SQLITE_OK) {
    i64 aValue[N_OPTION] = {BX_RING_WINDOW, 0, 0};
    readOptions(argc, argv, aValue, &err);
    bxRingCreate(p, aValue, &err);
  }
  if (err.rc == SQLITE_OK) {
    *ppVtab = &p->base.base;
    return SQLITE_OK;
  }
  if (p != 0) ringDisconnect(&p->base.base);
  rc = err.rc;
  *pzErr = err.zMsg;
  return rc;
}

static int ringCreate(sqlite3 *db, void *pAux, int argc,
    const char *const *argv, sqlite3_vtab **ppVtab, char **pzErr) {
  return openTable(db, (Bx *)pAux, 1, argc, argv, ppVtab, pzErr);
}

static int ringConnect(sqlite3 *db, void *pAux, int argc,
    const char *const *argv, sqlite3_vtab **ppVtab, char **pzErr) {
  return openTable(db, (Bx *)pAux, 0, argc, argv, ppVtab, pzErr);
}

/* What is held prevents DROP TABLE, and keeps its name, which the log has. */
static void refuseIfHeld(Ring *p, const char *zWhat, BxErr *pErr) {
  char *zHolder = 0;
  assert(zWhat != 0);
  if (bxShadowIsHeld(&p->base, pErr)) {
    p->mWatch |= RING_HOLDS;
    zHolder = bxRingHolder(p, 0, (i64)1 << 62, pErr);
  }
  if (zHolder == 0) return;
  bxFail(pErr, SQLITE_CONSTRAINT,
      "HeldError: ring %s cannot be %s, because %s; end the hold with "
      "retention_release() first",
      p->base.stmts.zTable, zWhat, zHolder);
  sqlite3_log(SQLITE_CONSTRAINT, "%s", pErr->zMsg ? pErr->zMsg : "held");
  sqlite3_free(zHolder);
}

static int ringDestroy(sqlite3_vtab *pVtab) {
  BxErr err = {SQLITE_OK, 0};
  refuseIfHeld((Ring *)pVtab, "dropped", &err);
  bxShadowDrop((BxVtab *)pVtab, &err);
  if (err.rc != SQLITE_OK) return bxErrVtab(&err, pVtab);
  return ringDisconnect(pVtab);
}

/*--------------------------------------------------------------- plans ----*/

/* Whether the requested order is that of the rows. *pbNewest: by descending
** seq, which is possible only for one agent. */
static int ownOrder(
    const sqlite3_index_info *pInfo, int bByAgent, int *pbNewest) {
  int i = 0, n = pInfo->nOrderBy;
  assert(pbNewest != 0);
  *pbNewest = 0;
  if (n > 0 && pInfo->aOrderBy[0].iColumn == AGENT &&
      (bByAgent || !pInfo->aOrderBy[0].desc)) {
    i++;
  } else if (!bByAgent) {
    return 0;
  }
  if (i < n && pInfo->aOrderBy[i].iColumn == SEQ) {
    *pbNewest = pInfo->aOrderBy[i].desc;
    if (*pbNewest && !bByAgent) return 0;
    i++;
  }
  return i == n;
}

/* What xFilter gets. SQLite compares all but the agent again. */
static void useConstraints(sqlite3_index_info *pInfo) {
  enum {
    OP_IS = SQLITE_INDEX_CONSTRAINT_EQ, /* these are bits */
    OP_LOW = SQLITE_INDEX_CONSTRAINT_GT | SQLITE_INDEX_CONSTRAINT_GE,
    OP_HIGH = SQLITE_INDEX_CONSTRAINT_LT | SQLITE_INDEX_CONSTRAINT_LE,
    OP_OTHER = SQLITE_INDEX_CONSTRAINT_MATCH /* and above */
  };
  static const int aUse[][3] = {{AGENT, OP_IS, BY_AGENT},
      {EVENT, OP_IS, BY_EVENT}, {SEQ, OP_LOW, SEQ_LOW},
      {SEQ, OP_HIGH, SEQ_HIGH}, {SEQ, OP_IS, SEQ_IS}};
  int k, i, n = 0;
  assert(BY_EVENT == 2 * BY_AGENT && SEQ_IS == 4 * SEQ_LOW);
  for (k = 0; k < 5 && (k == 0 || pInfo->idxNum & BY_AGENT); k++) {
    for (i = 0; i < pInfo->nConstraint; i++) {
      const struct sqlite3_index_constraint *p = &pInfo->aConstraint[i];
      if (pInfo->idxNum & aUse[k][2] || !p->usable || p->op >= OP_OTHER ||
          p->iColumn != aUse[k][0] || !(p->op & aUse[k][1]) ||
          sqlite3_stricmp(sqlite3_vtab_collation(pInfo, i), "BINARY") != 0) {
        continue;
      }
      pInfo->aConstraintUsage[i].argvIndex = ++n;
      pInfo->aConstraintUsage[i].omit = k == 0;
      pInfo->idxNum |= aUse[k][2];
    }
  }
}

static int ringBestIndex(sqlite3_vtab *pVtab, sqlite3_index_info *pInfo) {
  int bNewest;
  (void)pVtab;
  useConstraints(pInfo);
  if (pInfo->nOrderBy > 0 &&
      ownOrder(pInfo, pInfo->idxNum & BY_AGENT, &bNewest)) {
    pInfo->orderByConsumed = 1;
    if (bNewest) pInfo->idxNum |= NEWEST;
  }
  if (pInfo->colUsed & (1 << REQUEST | 1 << RESPONSE)) pInfo->idxNum |= BODIES;
  pInfo->estimatedRows =
      !(pInfo->idxNum & BY_AGENT)                                   ? 5000
      : !(pInfo->idxNum & (SEQ_LOW | SEQ_HIGH | SEQ_IS | BY_EVENT)) ? 50
                                                                    : 5;
  pInfo->estimatedCost = 2.0 * (double)pInfo->estimatedRows + 5.0;
  if (pInfo->idxNum & BODIES) pInfo->estimatedCost *= 2;
  return SQLITE_OK;
}

/*------------------------------------------------------------- cursors ----*/

static int ringOpen(sqlite3_vtab *pVtab, sqlite3_vtab_cursor **ppCursor) {
  (void)pVtab;
  return bxCursorNew(sizeof(RingCursor), ppCursor);
}

/* The statements of a cursor are kept for the next one. */
static void clearCursor(RingCursor *p) {
  BxStmts *pStmts = &((Ring *)p->base.pVtab)->base.stmts;
  bxStmtGive(pStmts, p->zAgents, p->pAgents);
  bxStmtGive(pStmts, p->zSlots, p->pSlots);
  p->pAgents = p->pSlots = 0;
}

static int ringClose(sqlite3_vtab_cursor *pCursor) {
  clearCursor((RingCursor *)pCursor);
  sqlite3_free(pCursor);
  return SQLITE_OK;
}

/* Binds part iPart of the agent's layout: the slots of an interval of seq. By rising
** seq, the first one has the rows beyond the window, and the second one those after
** the newest one, which are older than those before it. Returns whether there may be
** some. */
static int bindPart(RingCursor *p, BxErr *pErr) {
  const RingAgent *pAgent = &p->agent;
  i64 iSplit = pAgent->nGiven - pAgent->nGiven % pAgent->nWindow;
  int iPart = p->idxNum & NEWEST ? 2 - p->iPart : p->iPart;
  i64 iFirst = iPart == 1 ? iSplit - pAgent->nWindow : iSplit;
  i64 iLast = iPart == 1 ? iSplit - 1 : pAgent->nGiven;
  assert(pAgent->iNo > 0 && pAgent->nWindow > 0);
  if (iPart == 0 && !pAgent->bKept) return 0;
  if (iPart == 0) {
    sqlite3_reset(p->pSlots);
    bxBind(p->pSlots, pErr, "iiii", RING_KEPT(pAgent->iNo),
        RING_LAST(pAgent->iNo), p->iLow, p->iHigh);
    return 1;
  }
  if (iFirst <= pAgent->nGiven - p->nWindow) {
    iFirst = pAgent->nGiven - p->nWindow + 1;
  }
  if (iFirst < p->iLow) iFirst = p->iLow;
  if (iLast > p->iHigh) iLast = p->iHigh;
  if (iFirst < 1) iFirst = 1;
  if (iFirst > iLast) return 0;
  sqlite3_reset(p->pSlots);
  bxBind(p->pSlots, pErr, "iiii", RING_AT(pAgent, iFirst),
      RING_AT(pAgent, iLast), iFirst, iLast);
  return 1;
}

/* Reads the next agent, and begins its log if bodies are read. */
static int nextAgentOf(RingCursor *p, BxErr *pErr) {
  Ring *pRing = (Ring *)p->base.pVtab;
  assert(p->pAgents != 0 || pErr->rc != SQLITE_OK);
  if (!bxStep(p->pAgents, pErr)) return 0;
  bxRingReadAgent(pRing, p->pAgents, &p->agent, pErr);
  bxRingFormat(&pRing->base, sqlite3_column_int64(p->pAgents, 6), pErr);
  p->nWindow = bxRingWindow(pRing, sqlite3_column_int64(p->pAgents, 5), pErr);
  if (pErr->rc == SQLITE_OK && p->idxNum & BODIES) {
    bxBodyBegin(pRing, p->agent.iNo, p->pAgents, 7, pErr);
  }
  return pErr->rc == SQLITE_OK;
}

/* Advances to the next row, over parts and agents. */
static void nextRow(RingCursor *p, BxErr *pErr) {
  int bBound = p->agent.iNo != 0;
  assert(p->iPart >= 0 && p->iPart <= 3);
  while (pErr->rc == SQLITE_OK) {
    if (bBound && bxStep(p->pSlots, pErr)) return;
    if (p->agent.iNo == 0 || ++p->iPart > 2) {
      if (!nextAgentOf(p, pErr)) break;
      p->iPart = 0;
    }
    bBound = bindPart(p, pErr);
  }
  p->bEof = 1;
}

/* The slots with an id from ?1 to ?2 and a seq from ?3 to ?4, of event ?5 or any. */
#define SLOTS(bodies, order)                                                   \
  "SELECT id, agent_id, event_id, " bodies ", timestamp, size_bytes, seq, "    \
  "meta FROM main.@_slots WHERE id BETWEEN ?1 AND ?2 AND seq BETWEEN ?3 AND "  \
  "?4 AND (?5 IS NULL OR event_id = ?5) ORDER BY id " order
static const char *const azSlots[] = {
    SLOTS("request_body, response_body", "DESC"),
    SLOTS("NULL, NULL", "DESC"),
    SLOTS("request_body, response_body", "ASC"),
    SLOTS("NULL, NULL", "ASC"),
};

static int ringFilter(sqlite3_vtab_cursor *pCursor, int idxNum,
    const char *idxStr, int argc, sqlite3_value **argv) {
  assert(argc <= 5);
#define AGENTS                                                                 \
  "SELECT no, window, kept, given, rows, " RING_SETTING(                       \
      RING_WINDOW) ", " RING_SETTING(RING_IS_FORMAT) ", page FROM "            \
                                                     "main.@_agents "
  static const char zAgent[] = AGENTS "WHERE agent_id = ?1";
  static const char zAgents[] = AGENTS "ORDER BY agent_id";
  RingCursor *p = (RingCursor *)pCursor;
  Ring *pRing = (Ring *)pCursor->pVtab;
  BxErr err = {SQLITE_OK, 0};
  int i = !!(idxNum & BY_AGENT) + !!(idxNum & BY_EVENT), m;
  i64 iOuter;
  (void)idxStr;
  (void)argc;
  clearCursor(p);
  memset(&p->agent, 0, sizeof(p->agent));
  p->idxNum = idxNum;
  p->bEof = 0;
  p->iLow = 1;
  p->iHigh = (i64)1 << 62;
  for (m = SEQ_LOW; m <= SEQ_IS; m *= 2) {
    sqlite3_value *pVal = idxNum & m ? argv[i++] : 0;
    if (pVal == 0 || sqlite3_value_type(pVal) != SQLITE_INTEGER) continue;
    if (m != SEQ_HIGH) p->iLow = sqlite3_value_int64(pVal);
    if (m != SEQ_LOW) p->iHigh = sqlite3_value_int64(pVal);
  }
  iOuter = bxCallBegin(pRing->base.stmts.bx);
  bxBodyForget(pRing);
  p->zAgents = idxNum & BY_AGENT ? zAgent : zAgents;
  p->pAgents = bxStmtTake(&pRing->base.stmts, p->zAgents, &err);
  if (idxNum & BY_AGENT) bxBind(p->pAgents, &err, "v", argv[0]);
  p->zSlots = azSlots[!(idxNum & BODIES) + 2 * !(idxNum & NEWEST)];
  p->pSlots = bxStmtTake(&pRing->base.stmts, p->zSlots, &err);
  if (idxNum & BY_EVENT) bxBind(p->pSlots, &err, "----v", argv[1]);
  nextRow(p, &err);
  bxCallEnd(pRing->base.stmts.bx, iOuter);
  return bxErrVtab(&err, pCursor->pVtab);
}

static int ringNext(sqlite3_vtab_cursor *pCursor) {
  BxErr err = {SQLITE_OK, 0};
  nextRow((RingCursor *)pCursor, &err);
  return bxErrVtab(&err, pCursor->pVtab);
}

static int ringEof(sqlite3_vtab_cursor *pCursor) {
  return ((RingCursor *)pCursor)->bEof;
}

static int ringColumn(
    sqlite3_vtab_cursor *pCursor, sqlite3_context *pCtx, int i) {
  RingCursor *p = (RingCursor *)pCursor;
  BxErr err = {SQLITE_OK, 0};
  assert(!p->bEof);
  if (i > META || sqlite3_vtab_nochange(pCtx)) return SQLITE_OK;
  if (i == REQUEST || i == RESPONSE) {
    Ring *pRing = (Ring *)pCursor->pVtab;
    i64 iOuter = bxCallBegin(pRing->base.stmts.bx);
    bxBodyResult(pRing, pCtx, p->agent.iNo,
        sqlite3_column_value(p->pSlots, i + 1),
        i == RESPONSE ? BODY_RESPONSE : 0, &err);
    bxCallEnd(pRing->base.stmts.bx, iOuter);
    return bxErrVtab(&err, pCursor->pVtab);
  }
  sqlite3_result_value(pCtx, sqlite3_column_value(p->pSlots, i + 1));
  return SQLITE_OK;
}

static int ringRowid(sqlite3_vtab_cursor *pCursor, sqlite3_int64 *piRowid) {
  assert(!((RingCursor *)pCursor)->bEof);
  *piRowid = sqlite3_column_int64(((RingCursor *)pCursor)->pSlots, 0);
  return SQLITE_OK;
}

/*-------------------------------------------------------------- writes ----*/

static int isNull(sqlite3_value *pVal) {
  return sqlite3_value_type(pVal) == SQLITE_NULL;
}

/* JSON, or NULL. */
static sqlite3_value *readMeta(Ring *p, sqlite3_value *pMeta, BxErr *pErr) {
  static const char zValid[] = "SELECT " BX_JSON_VALID("?1");
  const char *z = bxText(pMeta, "meta", BX_RING_MAX_META, 1, pErr);
  if (z != 0 && !bxIsStrictJson(z, (i64)strlen(z)) &&
      !bxQueryInt(&p->base.stmts, zValid, pErr, "v", pMeta)) {
    bxRefuseArg(pErr, "meta", "JSON or NULL", pMeta);
  }
  return pMeta;
}

/* Puts what payload.secrets makes of them in the place of bodies and meta. Give what is
** returned to endMasked(). */
static sqlite3_stmt *maskPush(Ring *p, RingPush *pPush, BxErr *pErr) {
  BxStmts *pOn = &p->base.stmts;
  sqlite3_value *apVal[] = {pPush->pRequest, pPush->pResponse, pPush->pMeta};
  sqlite3_stmt *pMasked;
  if (!(p->mWatch & (RING_MASK | RING_DROP))) return 0;
  pMasked = bxMask(&((Queue *)bxDomainData(pOn->bx, "payload")->p)->masking,
      pOn, p->mWatch & RING_DROP, p->bSame, pPush->zAgent, apVal, 3, pErr);
  pPush->pRequest = apVal[0];
  pPush->pResponse = apVal[1];
  pPush->pMeta = apVal[2];
  return pMasked;
}

static void endMasked(Ring *p, sqlite3_stmt *pMasked) {
  BxStmts *pOn = &p->base.stmts;
  if (!(p->mWatch & (RING_MASK | RING_DROP))) return;
  bxMaskEnd(pOn, pMasked);
  bxMaskLooked(&((Queue *)bxDomainData(pOn->bx, "payload")->p)->masking, pOn);
}

/* INSERT INTO ring(ring, ...) VALUES('command', ...) */
static void runCommand(Ring *p, sqlite3_value **aCol, BxErr *pErr) {
  static const char *const azCommand[] = {"kill_switch", "complete", "forget"};
  enum { KILL_SWITCH, COMPLETE, FORGET, N_COMMAND };
  const char *zCommand = bxText(aCol[COMMAND], "command", 100, 0, pErr);
  const char *zAgent, *zEvent = 0;
  RingPuller puller;
  sqlite3_stmt *pMasked;
  RingPush done = {0};
  int iOption, i = 0;
  assert(!isNull(aCol[COMMAND]));
  if (zCommand == 0) return;
  iOption = findOption(zCommand);
  if (iOption < N_OPTION) {
    i64 n = bxInt(aCol[VALUE], aOption[iOption].zName, aOption[iOption].iLow,
        aOption[iOption].iHigh, pErr);
    if (pErr->rc != SQLITE_OK) return;
    if (iOption == 0) {
      bxRingSetWindow(p, n, pErr);
    } else {
      bxRingSetLimit(p, iOption, n, pErr);
    }
    return;
  }
  while (i < N_COMMAND && sqlite3_stricmp(zCommand, azCommand[i]) != 0) i++;
  if (i == N_COMMAND) {
    bxFail(pErr, SQLITE_ERROR,
        "ValidationError: unknown command %Q; a ring knows 'window', "
        "'max_bytes', 'idle_days', 'kill_switch', 'complete' and 'forget'",
        zCommand);
  }
  zAgent = bxText(aCol[AGENT], "agent_id", 1024, i == FORGET, pErr);
  if (i != FORGET) zEvent = bxText(aCol[EVENT], "event_id", 1024, 0, pErr);
  if (i == COMPLETE) done.pMeta = readMeta(p, aCol[META], pErr);
  bxRingPuller(aCol[ACTOR], aCol[REASON], &puller, pErr);
  if (pErr->rc != SQLITE_OK) return;
  if (i == FORGET) {
    bxRingLeave(p, zAgent, pErr);
  } else if (i == COMPLETE) {
    done.zAgent = zAgent;
    done.pEvent = aCol[EVENT];
    done.pResponse = aCol[RESPONSE];
    pMasked = maskPush(p, &done, pErr);
    bxRingComplete(p, &done, pErr);
    endMasked(p, pMasked);
  } else {
    bxRingKillSwitch(p, zAgent, zEvent, &puller, pErr);
    if (sqlite3_vtab_on_conflict(p->base.stmts.bx->db) == SQLITE_IGNORE &&
        (pErr->rc & 0xff) == SQLITE_CONSTRAINT) {
      pErr->rc = SQLITE_ERROR; /* otherwise SQLite would treat it as success */
    }
  }
}

/* A push carries clean-up of the archive beside it. */
static void tendBeside(Ring *p, i64 iTime, BxErr *pErr) {
  const BxStmts *pOwn = &p->base.stmts;
  if (pErr->rc != SQLITE_OK || sqlite3_stricmp(pOwn->zDb, "temp") == 0) return;
  bxTend(bxSchema(pOwn->bx, pOwn->zDb, pErr), -1 - iTime, 1, pErr);
  bxRingLooked(p); /* it changes no rule and no agent of a ring */
}

static void insertRow(
    Ring *p, sqlite3_value **argv, i64 *piRowid, BxErr *pErr) {
  sqlite3_value **aCol = argv + 2;
  sqlite3_stmt *pMasked;
  RingPush push = {0};
  push.zAgent = bxText(aCol[AGENT], "agent_id", 1024, 0, pErr);
  bxText(aCol[EVENT], "event_id", 1024, 0, pErr);
  push.pEvent = aCol[EVENT];
  push.pRequest = aCol[REQUEST];
  push.pResponse = aCol[RESPONSE];
  push.pMeta = readMeta(p, aCol[META], pErr);
  push.iTime = bxTime(aCol[TIME], "timestamp", pErr);
  if (!isNull(argv[1]) || !isNull(aCol[SIZE]) || !isNull(aCol[SEQ]) ||
      !isNull(aCol[VALUE]) || !isNull(aCol[ACTOR]) || !isNull(aCol[REASON])) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: rowid, size_bytes, seq and value are computed by the "
        "ring; insert agent_id, event_id, request_body, response_body, "
        "timestamp and meta only");
  }
  pMasked = maskPush(p, &push, pErr);
  if (pErr->rc == SQLITE_OK) bxRingPush(p, &push, piRowid, pErr);
  tendBeside(p, push.iTime, pErr);
  endMasked(p, pMasked);
}

/* UPDATE ring SET response_body = ?, meta = ? */
static void updateExchange(Ring *p, sqlite3_value **argv, BxErr *pErr) {
  sqlite3_value **aCol = argv + 2;
  sqlite3_stmt *pMasked;
  RingPush done = {0};
  int i;
  assert(!isNull(argv[0]));
  for (i = 0; i <= REASON && pErr->rc == SQLITE_OK; i++) {
    if (i == RESPONSE || i == META || sqlite3_value_nochange(aCol[i])) continue;
    if (i > META && isNull(aCol[i])) continue;
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ReadOnlyError: a recorded exchange cannot be changed: only its "
        "response_body, once, from NULL, and meta with it; DELETE it, and "
        "INSERT it again");
  }
  done.pResponse = aCol[RESPONSE];
  done.pMeta = readMeta(p, aCol[META], pErr);
  pMasked = maskPush(p, &done, pErr);
  bxRingCompleteSlot(p, sqlite3_value_int64(argv[0]), &done, pErr);
  endMasked(p, pMasked);
}

static int ringUpdate(sqlite3_vtab *pVtab, int argc, sqlite3_value **argv,
    sqlite3_int64 *piRowid) {
  Ring *p = (Ring *)pVtab;
  BxErr err = {SQLITE_OK, 0};
  BxWrite write;
  int bPush = 0;
  assert(argc == 1 || argc == REASON + 3);
  bxWriteBegin(&write, p->base.stmts.bx);
  bxRingSettings(p, &err);
  if (argc == 1) {
    bxRingDelete(p, sqlite3_value_int64(argv[0]), &err);
  } else if (!isNull(argv[0])) {
    updateExchange(p, argv, &err);
  } else if (!isNull(argv[2 + COMMAND])) {
    *piRowid = 0;
    runCommand(p, argv + 2, &err);
  } else {
    insertRow(p, argv, piRowid, &err);
    bPush = err.rc == SQLITE_OK;
  }
  if (!bPush) p->iKnown++;
  return bxWriteEnd(&write, &err, pVtab);
}

/* Without it SQLite would not tell of a rollback. */
static int ringBegin(sqlite3_vtab *pVtab) {
  (void)pVtab;
  return SQLITE_OK;
}

/* What was deleted is filled with zeros. (After ROLLBACK TO a savepoint before a rename
** SQLite still has this object, with the new name.) */
static int ringSync(sqlite3_vtab *pVtab) {
  Ring *p = (Ring *)pVtab;
  BxStmts *pStmts = &p->base.stmts;
  BxErr err = {SQLITE_OK, 0};
  if (p->zBefore != 0 &&
      !bxTableExists(pStmts->bx, pStmts->zDb, pStmts->zTable)) {
    bxShadowSetName(&p->base, p->zBefore, &err);
  }
  bxBodySync(p, &err);
  sqlite3_free(p->zBefore);
  p->zBefore = 0;
  return bxErrVtab(&err, pVtab);
}

/* Savepoints are those of the tables; only the settings are read again. */
static int ringSavepoint(sqlite3_vtab *pVtab, int iSavepoint) {
  (void)iSavepoint;
  return ringBegin(pVtab);
}

static int ringRollbackTo(sqlite3_vtab *pVtab, int iSavepoint) {
  (void)iSavepoint;
  bxTendUndone(((Ring *)pVtab)->base.stmts.bx);
  bxRingForget((Ring *)pVtab);
  return SQLITE_OK;
}

static int ringRollback(sqlite3_vtab *pVtab) {
  Ring *p = (Ring *)pVtab;
  sqlite3_free(p->zBefore);
  p->zBefore = 0;
  return ringRollbackTo(pVtab, 0);
}

static int ringRename(sqlite3_vtab *pVtab, const char *zNew) {
  Ring *p = (Ring *)pVtab;
  BxErr err = {SQLITE_OK, 0};
  refuseColumnName(zNew, &err);
  refuseIfHeld(p, "renamed", &err);
  if (p->zBefore == 0) p->zBefore = bxPrintf(&err, "%s", p->base.stmts.zTable);
  bxShadowRename(&p->base, zNew, &err);
  return bxErrVtab(&err, pVtab);
}

static int ringShadowName(const char *zSuffix) {
  return bxModelMakes(bxSqlPayloadRing, zSuffix);
}

const sqlite3_module bxRingModule = {
    .iVersion = 3, /* 3 has xShadowName */
    .xCreate = ringCreate,
    .xConnect = ringConnect,
    .xBestIndex = ringBestIndex,
    .xDisconnect = ringDisconnect,
    .xDestroy = ringDestroy,
    .xOpen = ringOpen,
    .xClose = ringClose,
    .xFilter = ringFilter,
    .xNext = ringNext,
    .xEof = ringEof,
    .xColumn = ringColumn,
    .xRowid = ringRowid,
    .xUpdate = ringUpdate,
    .xBegin = ringBegin,
    .xSync = ringSync, /* no xCommit: all state is in tables */
    .xRollback = ringRollback,
    .xRename = ringRename,
    .xSavepoint = ringSavepoint,
    .xRelease = ringSavepoint,
    .xRollbackTo = ringRollbackTo,
    .xShadowName = ringShadowName,
};
