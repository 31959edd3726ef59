/*
** redact.c: blackbox_find_secrets() and blackbox_redact(kind, key, actor, reason).
**
** What is a secret, the rules of blackbox_secrets say (secrets.h). Each domain and each
** module describes its texts (domain.h: BxTexts): what they are of, and how a text is
** replaced. Those of rings and buffers are listed only: a slot of a ring is written as
** what differs from the one before it, and an action may be pinned in a file. They go
** with blackbox_erase(), or soon by themselves.
**
** A redaction writes [masked: NAME] in the place of each secret. It is not stopped by a
** pin: the pin ends on record, the row gets another one, and the leaf of the first stands
** for what it was. Holds win, as in an erasure. Each row that changes has a row of kind
** "redaction" in the log, which names the rules and not the secret.
*/
#include "retention.h"
#include "../core/secrets.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define TEXTS_MOST 10 /* columns of a BxTexts */

/*------------------------------------------------------------ the texts ----*/

/* Whether column i of a row has a secret. Then *pzOut is the text without it, to
** sqlite3_free(), of *pnOut bytes. */
static int maskField(BxSecrets *p, sqlite3_stmt *pRow, int i, char **pzOut,
    i64 *pnOut, BxErr *pErr) {
  int eType = sqlite3_column_type(pRow, i), bFound = 0;
  i64 n;
  char *z;
  *pzOut = 0;
  bxSecretsClear(p);
  if (eType == SQLITE_TEXT) {
    const char *zText = bxColumnText(pRow, i, pErr);
    n = sqlite3_column_bytes(pRow, i);
    if (zText != 0) bFound = bxSecretsMask(p, zText, n, 1, pzOut, pnOut, pErr);
  } else if (eType == SQLITE_BLOB) { /* with a terminator */
    const void *a = sqlite3_column_blob(pRow, i);
    n = sqlite3_column_bytes(pRow, i);
    z = bxZalloc((size_t)n + 1, pErr);
    if (a != 0 && z != 0) {
      memcpy(z, a, (size_t)n);
      bFound = bxSecretsMask(p, z, n, 1, pzOut, pnOut, pErr);
    }
    sqlite3_free(z);
  }
  return bFound;
}

static int countColumns(const BxTexts *pTexts) {
  const char *z = pTexts->zColumns;
  int n = 1;
  while ((z = strchr(z, ',')) != 0) z++, n++;
  assert(n <= TEXTS_MOST);
  return n;
}

/* Name i of the columns, of *pn bytes. */
static const char *columnName(const BxTexts *pTexts, int i, int *pn) {
  const char *z = pTexts->zColumns;
  while (i-- > 0) z = strchr(z, ',') + 1;
  *pn = (int)strcspn(z, ",");
  return z;
}

/* Calls x for the texts of each virtual table of a schema. */
typedef void EachTexts(
    void *pArg, BxStmts *pOn, const BxDomain *pDomain, const BxTexts *pTexts);

static void eachVtabTexts(
    BxStmts *pSchema, EachTexts *x, void *pArg, BxErr *pErr) {
  BxVtabWalk walk = {pSchema, 0, 0};
  BxVtab *p;
  while ((p = bxVtabNext(&walk, pErr)) != 0) {
    x(pArg, &p->stmts, 0, p->pModule->pTexts);
  }
}

/* And for all texts of p's schema, and those of the virtual tables of the connection. */
static void eachTexts(BxStmts *p, EachTexts *x, void *pArg, BxErr *pErr) {
  BxStmts *pTemp = bxSchema(p->bx, "temp", pErr);
  int i;
  for (i = 0; i < p->bx->nDomain && pErr->rc == SQLITE_OK; i++) {
    const BxDomain *pDomain = &p->bx->aDomain[i];
    const BxTexts *pTexts = pDomain->aTexts;
    if (pTexts == 0 || !bxSchemaHasDomain(p->bx, p->zDb, pDomain->zName, pErr))
      continue;
    for (; pTexts->zFrom != 0; pTexts++) x(pArg, p, pDomain, pTexts);
  }
  eachVtabTexts(p, x, pArg, pErr);
  if (pTemp != 0) eachVtabTexts(pTemp, x, pArg, pErr);
}

/*------------------------------------------------------- find_secrets() ----*/

/* The texts of a table: SQL with the names of its schema. */
typedef struct FindTable {
  const BxTexts *pTexts;
  char *zSql;
} FindTable;

enum { FIND_KIND, FIND_KEY, FIND_ROW, FIND_COLUMN, FIND_SECRET, FIND_FOUND };

typedef struct Find {
  Bx *bx;
  BxSecrets rules;
  FindTable *a;
  i64 n, nAlloc, iNext; /* iNext: of the table that is read next */
  sqlite3_stmt *pRow;   /* key, row, and the columns */
  int iColumn;          /* -1: before the first */
  i64 iRule, nFound;
  const char *zSecret; /* what was found nFound times */
  BxErr *pErr;
} Find;

static void addTable(
    void *pArg, BxStmts *pOn, const BxDomain *pDomain, const BxTexts *pTexts) {
  Find *p = (Find *)pArg;
  FindTable *pTable =
      bxArrayAdd(&p->a, &p->n, &p->nAlloc, sizeof(*pTable), p->pErr);
  char *z = bxPrintf(p->pErr, "SELECT %s, %s, %s FROM %s AS t", pTexts->zKey,
      pTexts->zRow, pTexts->zColumns, pTexts->zFrom);
  (void)pDomain; /* it is installed */
  if (pTable != 0 && z != 0) {
    pTable->pTexts = pTexts;
    pTable->zSql = bxCheckMem(bxExpand(z, pOn->zDb, pOn->zTable), p->pErr);
  }
  sqlite3_free(z);
}

static void secretsClose(void *pArg) {
  Find *p = (Find *)pArg;
  sqlite3_finalize(p->pRow);
  while (p->n > 0) sqlite3_free(p->a[--p->n].zSql);
  sqlite3_free(p->a);
  bxSecretsFree(&p->rules);
  sqlite3_free(p);
}

static void *secretsOpen(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  BxStmts *pHome = bxDomainSchema(bx, "report", pErr);
  Find *p = bxZalloc(sizeof(*p), pErr);
  (void)apArg; /* there is none */
  if (p == 0) return 0;
  p->bx = bx;
  p->pErr = pErr;
  bxSecretsRead(&p->rules, pHome, "keys", pErr);
  if (pErr->rc == SQLITE_OK) eachTexts(pHome, addTable, p, pErr);
  p->pErr = 0;
  if (pErr->rc == SQLITE_OK) return p;
  secretsClose(p);
  return 0;
}

/* The next rule that has found something, in the column, the row, the table. */
static int secretsNext(void *pArg, BxErr *pErr) {
  Find *p = (Find *)pArg;
  char *z;
  i64 n;
  while (pErr->rc == SQLITE_OK) {
    while (
        p->iColumn >= 0 && p->pRow != 0 &&
        (p->zSecret = bxSecretsCount(&p->rules, p->iRule, &p->nFound)) != 0) {
      p->iRule++;
      if (p->nFound > 0) return 1;
    }
    if (p->pRow != 0 && p->iColumn + 3 < sqlite3_column_count(p->pRow)) {
      p->iColumn++;
      maskField(&p->rules, p->pRow, 2 + p->iColumn, &z, &n, pErr);
      sqlite3_free(z);
      p->iRule = 0;
      continue;
    }
    p->iColumn = -1;
    if (p->pRow != 0 && bxStep(p->pRow, pErr)) continue;
    sqlite3_finalize(p->pRow);
    p->pRow = 0;
    if (p->iNext == p->n || pErr->rc != SQLITE_OK) break;
    p->pRow = bxPrepareSql(p->bx->db, p->a[p->iNext++].zSql, pErr);
    if (!bxStep(p->pRow, pErr)) {
      sqlite3_finalize(p->pRow);
      p->pRow = 0;
    }
  }
  return 0;
}

static void secretsColumn(void *pArg, sqlite3_context *pCtx, int i) {
  const Find *p = (const Find *)pArg;
  const BxTexts *pTexts = p->a[p->iNext - 1].pTexts;
  const char *z;
  int n;
  switch (i) {
    case FIND_KIND:
      sqlite3_result_text(pCtx, pTexts->zKind, -1, SQLITE_STATIC);
      break;
    case FIND_KEY:
    case FIND_ROW:
      sqlite3_result_value(pCtx, sqlite3_column_value(p->pRow, i - FIND_KEY));
      break;
    case FIND_COLUMN:
      z = columnName(pTexts, p->iColumn, &n);
      sqlite3_result_text(pCtx, z, n, SQLITE_STATIC);
      break;
    case FIND_SECRET:
      sqlite3_result_text(pCtx, p->zSecret, -1, SQLITE_TRANSIENT);
      break;
    default: sqlite3_result_int64(pCtx, p->nFound);
  }
}

const BxRows bxRetentionSecrets = {
    secretsOpen, secretsNext, secretsColumn, secretsClose, 0};

/*------------------------------------------------------------- redact() ----*/

typedef struct Redaction {
  BxStmts *pHome;
  const char *zKind, *zKey, *zActor, *zReason;
  BxSecrets rules;
  i64 nThere, nRow;        /* rows of the key, and those that were changed */
  const BxDomain *pDomain; /* of which something was changed */
  sqlite3_str *pMasked;    /* elements of JSON arrays */
  sqlite3_str *pHeld, *pLeft;
  BxErr *pErr;
} Redaction;

/* {"from":"ring","rows":2} */
static void addRows(sqlite3_str *pOut, const char *zName, i64 nRow) {
  if (nRow == 0) return;
  sqlite3_str_appendall(
      pOut, sqlite3_str_length(pOut) > 0 ? ",{\"from\":" : "{\"from\":");
  bxJsonAppend(pOut, zName, (int)strlen(zName));
  sqlite3_str_appendf(pOut, ",\"rows\":%lld}", nRow);
}

/* The names of what was found in a column, as a member "payload":["OpenAI key"]. */
static void addFoundNames(
    Redaction *p, sqlite3_str *pOut, const BxTexts *pTexts, int i) {
  int n, nName = 0;
  i64 iRule, nFound;
  const char *z = columnName(pTexts, i, &n);
  sqlite3_str_appendf(
      pOut, "%s\"%.*s\":[", sqlite3_str_length(pOut) > 0 ? "," : "", n, z);
  for (iRule = 0; (z = bxSecretsCount(&p->rules, iRule, &nFound)) != 0;
       iRule++) {
    if (nFound == 0) continue;
    if (nName++ > 0) sqlite3_str_appendchar(pOut, 1, ',');
    bxJsonAppend(pOut, z, (int)strlen(z));
  }
  sqlite3_str_appendchar(pOut, 1, ']');
}

/* The log tells of a row that is changed: zMasked has the members of an object. */
static void tellRedaction(Redaction *p, BxStmts *pOn, sqlite3_stmt *pRow,
    const BxDomain *pDomain, const BxTexts *pTexts, const char *zMasked) {
  BxLogRow row = {.zDomain = pDomain->zName,
      .zKind = "redaction",
      .zActor = p->zActor,
      .zReason = p->zReason};
  char *zDetail;
  row.zSubject = bxColumnText(pRow, 0, p->pErr);
  zDetail = bxQueryText(pOn,
      "SELECT iif(?1 IS NULL, json_object('masked', json(?2)),"
      " json_object(?3, ?1, 'masked', json(?2)))",
      p->pErr, "vtt", sqlite3_column_value(pRow, 1), zMasked,
      pTexts->zRowIs != 0 ? pTexts->zRowIs : "row");
  row.zDetail = zDetail;
  if (p->pErr->rc == SQLITE_OK) bxLogAppend(pOn, &row, p->pErr);
  sqlite3_free(zDetail);
}

/* Writes what pNew has in the place of the columns of row iRow. */
static void replaceRow(Redaction *p, BxStmts *pOn, const BxTexts *pTexts,
    i64 iRow, sqlite3_stmt *pNew) {
  int i, n = countColumns(pTexts);
  i64 iPin = pTexts->xPin
                 ? pTexts->xPin(pOn, iRow, 0, p->zActor, p->zReason, p->pErr)
                 : 0;
  sqlite3_stmt *pStmt = bxStmt(pOn, pTexts->zMask, p->pErr);
  bxBind(pStmt, p->pErr, "i", iRow);
  for (i = 0; i < n && p->pErr->rc == SQLITE_OK; i++) {
    bxFailDb(p->pErr, pOn->bx->db,
        sqlite3_bind_value(pStmt, i + 2, sqlite3_column_value(pNew, i)));
  }
  bxStmtRun(pStmt, p->pErr);
  if (p->pErr->rc == SQLITE_OK && sqlite3_changes(pOn->bx->db) == 0) {
    bxFail(p->pErr, SQLITE_CONSTRAINT,
        "MisuseError: a trigger on %s keeps a row from being changed, and "
        "nothing was redacted; drop it",
        pTexts->zName);
  }
  if (iPin > 0) pTexts->xPin(pOn, iRow, iPin, p->zActor, p->zReason, p->pErr);
  p->nRow++;
}

/* Redacts row iRow: pRow is on it, with key, row, and the columns. */
static void redactRow(Redaction *p, BxStmts *pOn, const BxDomain *pDomain,
    const BxTexts *pTexts, i64 iRow, sqlite3_stmt *pRow) {
  sqlite3_stmt *pNew = bxPrepareSql(
      pOn->bx->db, "SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10", p->pErr);
  sqlite3_str *pMasked = sqlite3_str_new(0);
  int i, n = countColumns(pTexts);
  char *z;
  i64 nOut;
  for (i = 0; i < n && p->pErr->rc == SQLITE_OK; i++) {
    int rc;
    if (!maskField(&p->rules, pRow, 2 + i, &z, &nOut, p->pErr)) {
      sqlite3_free(z);
      rc = sqlite3_bind_value(pNew, i + 1, sqlite3_column_value(pRow, 2 + i));
    } else {
      addFoundNames(p, pMasked, pTexts, i);
      rc = sqlite3_column_type(pRow, 2 + i) == SQLITE_BLOB
               ? sqlite3_bind_blob64(
                     pNew, i + 1, z, (sqlite3_uint64)nOut, sqlite3_free)
               : sqlite3_bind_text64(pNew, i + 1, z, (sqlite3_uint64)nOut,
                     sqlite3_free, SQLITE_UTF8);
    }
    bxFailDb(p->pErr, pOn->bx->db, rc);
  }
  z = bxPrintf(p->pErr, "{%s}",
      sqlite3_str_length(pMasked) > 0 ? sqlite3_str_value(pMasked) : "");
  sqlite3_free(sqlite3_str_finish(pMasked));
  if (bxStep(pNew, p->pErr)) {
    tellRedaction(p, pOn, pRow, pDomain, pTexts, z);
    replaceRow(p, pOn, pTexts, iRow, pNew);
  }
  sqlite3_finalize(pNew);
  sqlite3_free(z);
}

/* Whether the row that pRow is on, from column iFrom on, has a secret. */
static int hasSecret(Redaction *p, sqlite3_stmt *pRow, int iFrom) {
  int i, n = sqlite3_column_count(pRow), bFound = 0;
  for (i = iFrom; i < n && !bFound; i++) {
    char *z;
    i64 nOut;
    bFound = maskField(&p->rules, pRow, i, &z, &nOut, p->pErr);
    sqlite3_free(z);
  }
  return bFound;
}

/* All rows of the key are looked at, and then those changed that have a secret. */
static void redactTexts(
    void *pArg, BxStmts *pOn, const BxDomain *pDomain, const BxTexts *pTexts) {
  Redaction *p = (Redaction *)pArg;
  int n = 0;
  const char *zWhich = /* (the condition on the rows of the key) */
      pTexts->zKinds ? bxRetentionColumn(pTexts->zKinds, p->zKind, &n) : 0;
  i64 *aRow = 0, nRow = 0, nAlloc = 0, nHeld = 0, i;
  sqlite3_stmt *pStmt;
  char *zSql;
  if (zWhich == 0 || p->pErr->rc != SQLITE_OK) return;
  zSql = bxPrintf(p->pErr, "SELECT t.no, %s%s%s, %s FROM %s AS t WHERE %.*s",
      pTexts->zHolds ? "EXISTS (SELECT 1 FROM main.retention__holds AS f WHERE "
                     : "0",
      pTexts->zHolds ? pTexts->zHolds : "", pTexts->zHolds ? ")" : "",
      pTexts->zColumns, pTexts->zFrom, n, zWhich);
  pStmt = bxPrepareMade(pOn, zSql, p->pErr);
  bxBind(pStmt, p->pErr, "t", p->zKey);
  while (bxStep(pStmt, p->pErr)) {
    p->nThere++;
    if (!hasSecret(p, pStmt, 2)) continue;
    if (pTexts->zMask != 0 && sqlite3_column_int(pStmt, 1)) {
      nHeld++;
    } else {
      i64 *pi = bxArrayAdd(&aRow, &nRow, &nAlloc, sizeof(*pi), p->pErr);
      if (pi != 0) *pi = sqlite3_column_int64(pStmt, 0);
    }
  }
  sqlite3_finalize(pStmt);
  addRows(p->pHeld, pTexts->zName, nHeld);
  if (pTexts->zMask == 0) {
    addRows(p->pLeft, pOn->zTable, nRow);
    nRow = 0;
  }
  addRows(p->pMasked, pTexts->zName, nRow);
  pStmt = nRow == 0 ? 0
                    : bxPrepareMade(pOn,
                          bxPrintf(p->pErr,
                              "SELECT %s, %s, %s FROM %s AS t WHERE t.no = ?1",
                              pTexts->zKey, pTexts->zRow, pTexts->zColumns,
                              pTexts->zFrom),
                          p->pErr);
  for (i = 0; i < nRow && p->pErr->rc == SQLITE_OK; i++) {
    bxBind(pStmt, p->pErr, "i", aRow[i]);
    if (bxStep(pStmt, p->pErr))
      redactRow(p, pOn, pDomain, pTexts, aRow[i], pStmt);
    bxReset(pStmt, p->pErr);
  }
  sqlite3_finalize(pStmt);
  if (nRow > 0 && pDomain->xErase != 0) p->pDomain = pDomain;
  sqlite3_free(aRow);
}

static void readRedaction(BxCall *pCall, Redaction *p) {
  const char *az[4];
  p->pHome = bxRetentionAct(pCall, "report",
      "agent, event, kill_switch, evidence, rollout or session (a ring or a "
      "buffer can only be erased, by blackbox_erase())",
      4, az);
  if (p->pErr->rc != SQLITE_OK) return;
  p->zKind = az[0];
  p->zKey = az[1];
  p->zActor = az[2];
  p->zReason = az[3];
  bxRetentionRefuseHeld(p->pHome, p->zKind, p->zKey, "redacted", p->pErr);
  bxSecretsRead(&p->rules, p->pHome, "keys", p->pErr);
  bxLogProve(p->pHome, BX_LOG_MOST, p->pErr); /* the pins that will end */
}

static char *arrayOf(sqlite3_str *p) {
  return sqlite3_str_length(p) > 0 ? sqlite3_str_value(p) : "";
}

void bxRetentionRedact(BxCall *pCall) {
  static const char zSaid[] =
      "SELECT json_object('kind', ?1, 'key', ?2, 'actor', ?3, 'reason', ?4,"
      " 'rows', ?5, 'masked', json('[' || ?6 || ']'),"
      " 'heldBack', json('[' || ?7 || ']'), 'left', json('[' || ?8 || ']'),"
      " 'then', " BX_ERASED_THEN ")";
  Redaction run;
  Redaction *p = &run;
  i64 eBefore;
  memset(p, 0, sizeof(*p));
  p->pErr = &pCall->err;
  readRedaction(pCall, p);
  if (p->pErr->rc == SQLITE_OK) {
    p->pMasked = sqlite3_str_new(pCall->bx->db);
    p->pHeld = sqlite3_str_new(pCall->bx->db);
    p->pLeft = sqlite3_str_new(pCall->bx->db);
    eBefore = bxRetentionOverwrite(p->pHome, p->pErr);
    eachTexts(p->pHome, redactTexts, p, p->pErr);
    if (p->pDomain != 0) p->pDomain->xErase(p->pHome, 1, p->pErr);
    bxRetentionStored(p->pHome, BX_LIMIT_MOST, p->pErr);
    bxRetentionOverwriteEnd(p->pHome, eBefore);
    if (p->nThere == 0) {
      bxFail(p->pErr, SQLITE_CONSTRAINT,
          "NotFoundError: there is nothing of %s %Q; blackbox_find_secrets() "
          "lists what can be redacted",
          p->zKind, p->zKey);
    }
    if (p->pErr->rc == SQLITE_OK) {
      bxReturnJson(pCall,
          bxQueryText(p->pHome, zSaid, p->pErr, "ttttittt", p->zKind, p->zKey,
              p->zActor, p->zReason, p->nRow, arrayOf(p->pMasked),
              arrayOf(p->pHeld), arrayOf(p->pLeft)));
    }
  }
  sqlite3_free(sqlite3_str_finish(p->pMasked));
  sqlite3_free(sqlite3_str_finish(p->pHeld));
  sqlite3_free(sqlite3_str_finish(p->pLeft));
  bxSecretsFree(&p->rules);
}
