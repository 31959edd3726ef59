/*
** erase.c: blackbox_erase(kind, key, actor, reason[, options]).
**
** Everything that belongs to a key goes, in every domain of the schema that has
** the domain retention, and in the tables of this connection: rows of the
** archive and the overflow, of rings and evidence buffers, also of those in temp,
** what waits in the queue, a conversation with its search index, a session of the
** cache. A text is looked for as it is, and as JSON writes it; a row that has it
** goes, but an item of a conversation stays and loses the text. So does a row of the
** log, in which a digest takes the place of what named the key (bxLogErase()).
**
** Each domain describes its tables (domain.h: BxRecords): which rows a key has,
** which of them a hold keeps, which are pinned. Holds win. Pinned rows are an error, unless the options say
** {"unpin": true}; then they are unpinned on record.
**
** SQLite overwrites what is deleted with zeros while secure_delete is on, which
** is so during the call. What was deleted before, and pages of the write-ahead
** log, need what the certificate names in "then".
*/
#include "retention.h"
SQLITE_EXTENSION_INIT3

#include <stdarg.h>
#include <string.h>

#define ERASED_TEXT "[erased]"

/* What tells the rows of a part apart, and that it is one of ?4. */
#define ROW_KEY(pPart) ((pPart)->zKey ? (pPart)->zKey : "t.rowid")
#define IN_ROWS " IN (SELECT value FROM json_each(?4))"

/* The time that ends refusals. */
#define STEADY "(SELECT seen FROM main.retention__clock)"

/* What is looked for, as bytes. */
typedef struct Needle {
  char *z;
  size_t n;
} Needle;

/* One call. */
typedef struct Erasure {
  BxStmts *pHome;
  const char *zKind, *zKey, *zActor, *zReason;
  char *zWhat; /* ?1 of every statement: the key, or the forms of a text */
  char *zRows; /* ?4: rows of a part, a JSON array of their keys */
  int bText;   /* the kind is text */
  Needle *aForm;
  int nForm; /* what is looked for: the key, or the forms of a text */
  int bUnpin, bRemember; /* bRemember: the refusal, also of what is not there */
  int bLook;             /* bLook: nothing goes, pErased has what is left */
  const BxDomain *pDomain; /* whose tables are walked */
  int bOpened;             /* xErase of the domain was called */
  i64 iNow, iUntil; /* iUntil: the key is refused until then; 0: it is not */
  i64 nRow, nByte, nUnpinned, nHeld;
  sqlite3_str *pErased, *pHeld; /* elements of JSON arrays */
  BxErr *pErr;
} Erasure;

/*------------------------------------------------------- one part ----*/

/* Prepares SQL about a part, as for bxPrintf(), with all that is known of the erasure. */
static sqlite3_stmt *prepareErase(
    Erasure *p, BxStmts *pOn, const char *zForm, ...) {
  const char *azValue[] = {
      p->zWhat, p->zActor, p->zReason, p->zRows, p->bText ? "1" : 0};
  sqlite3_stmt *pStmt;
  va_list ap;
  int i;
  if (p->pErr->rc != SQLITE_OK) return 0;
  va_start(ap, zForm);
  pStmt = bxPrepareMade(pOn, sqlite3_vmprintf(zForm, ap), p->pErr);
  va_end(ap);
  for (i = pStmt ? sqlite3_bind_parameter_count(pStmt) : 0; i > 0; i--) {
    bxFailDb(p->pErr, p->pHome->bx->db,
        sqlite3_bind_text(pStmt, i, azValue[i - 1], -1, SQLITE_STATIC));
  }
  return pStmt;
}

/* Runs it to its end. */
static void finishErase(Erasure *p, sqlite3_stmt *pStmt) {
  while (bxStep(pStmt, p->pErr)) continue;
  sqlite3_finalize(pStmt);
}

/* How often it is in n bytes. */
static i64 countNeedle(const Needle *p, const void *pIn, size_t n) {
  const char *z = pIn, *zEnd = z + n;
  i64 nFound = 0;
  assert(p->n == 0 || p->z != 0);
  while (z != 0 && p->n > 0 && (size_t)(zEnd - z) >= p->n &&
         (z = memchr(z, p->z[0], (size_t)(zEnd - z) - p->n + 1)) != 0) {
    nFound += memcmp(z++, p->z, p->n) == 0;
  }
  return nFound;
}

static int hasNeedle(const Erasure *p, sqlite3_stmt *pRow, int i) {
  const void *pIn = sqlite3_column_blob(pRow, i);
  size_t n = (size_t)sqlite3_column_bytes(pRow, i);
  int iForm = 0;
  while (iForm < p->nForm &&
         (pIn == 0 || !countNeedle(&p->aForm[iForm], pIn, n))) {
    iForm++;
  }
  return iForm < p->nForm;
}

/* Which rows of a part are looked at, to sqlite3_free(): those of the key, or all to look
** for a text; NULL if the part has none of that kind. bWhole: it is a virtual table, and
** the kind is its name. */
static char *whichRows(Erasure *p, const BxRecords *pPart, int bWhole) {
  sqlite3_str *pOut;
  const char *z = pPart->zKinds;
  int n;
  assert(pPart->zKinds != 0);
  if (bWhole || (p->bText && pPart->zTexts)) return bxPrintf(p->pErr, "1");
  pOut = sqlite3_str_new(p->pHome->bx->db);
  while (!p->bText && (z = bxRetentionColumn(z, p->zKind, &n)) != 0) {
    sqlite3_str_appendf(pOut, "%st.%.*s = ?1",
        sqlite3_str_length(pOut) > 0 ? " OR " : "", n, z);
    z += n + 1;
  }
  return bxStrFinish(pOut, p->pErr);
}

/* Adds the key of a row to a list, the elements of a JSON array. */
static void addKey(
    Erasure *p, sqlite3_str *pList, sqlite3_stmt *pRow, int iKey) {
  if (sqlite3_str_length(pList) > 0) sqlite3_str_appendchar(pList, 1, ',');
  if (sqlite3_column_type(pRow, iKey) == SQLITE_INTEGER) {
    sqlite3_str_appendf(pList, "%lld", sqlite3_column_int64(pRow, iKey));
  } else {
    const char *z = bxColumnText(pRow, iKey, p->pErr);
    if (z != 0) bxJsonAppend(pList, z, sqlite3_column_bytes(pRow, iKey));
  }
}

/* The rows of a part: what a walk over it has found. */
typedef struct Walked {
  sqlite3_str *pFree, *pHeld; /* their keys */
  i64 nFree, nByte, nPinned;  /* of those that no hold keeps */
  i64 nHeld;
} Walked;

/* Looks at each row once. */
static void walkPart(Erasure *p, BxStmts *pOn, const BxRecords *pPart,
    const char *zWhich, int bHolds, Walked *pOut) {
  assert(pPart->zTable != 0); /* NULL ends a list */
  enum { KEY, BYTES, HELD, PINNED, TEXTS };
  const BxBodies *pBodies = p->bText && p->pDomain ? p->pDomain->pBodies : 0;
  int bBodies = pBodies != 0 && pBodies->zOrdered != 0 &&
                strncmp(pPart->zTable, "main.", 5) == 0 &&
                strcmp(pPart->zTable + 5, pBodies->zTable) == 0;
  sqlite3_stmt *pRow = prepareErase(p, pOn,
      "SELECT %s, %s, %s%s%s, %s, %s FROM %s%s AS t WHERE %s", ROW_KEY(pPart),
      pPart->zBytes ? pPart->zBytes : "0",
      bHolds ? "EXISTS (SELECT 1 FROM main.retention__holds AS f WHERE " : "0",
      bHolds ? pPart->zHolds : "", bHolds ? ")" : "",
      pPart->zPinned ? pPart->zPinned : "0", p->bText ? pPart->zTexts : "0",
      bBodies ? pBodies->zOrdered : "", pPart->zTable,
      bBodies ? "t.rowid = o.row" : zWhich);
  while (bxStep(pRow, p->pErr)) {
    int i = TEXTS, n = sqlite3_column_count(pRow);
    while (p->bText && i < n && !hasNeedle(p, pRow, i)) i++;
    if (i == n) continue;
    if (sqlite3_column_int(pRow, HELD)) {
      pOut->nHeld++;
      addKey(p, pOut->pHeld, pRow, KEY);
    } else {
      pOut->nFree++;
      pOut->nByte += sqlite3_column_int64(pRow, BYTES);
      pOut->nPinned += sqlite3_column_int(pRow, PINNED);
      addKey(p, pOut->pFree, pRow, KEY);
    }
  }
  sqlite3_finalize(pRow);
}

/* {"from":"event_payloads","rows":2,"bytes":10}: zRest is the last member, and freed. */
static void addPart(
    sqlite3_str *pOut, const char *zName, i64 nRow, char *zRest, BxErr *pErr) {
  if (sqlite3_str_length(pOut) > 0) sqlite3_str_appendchar(pOut, 1, ',');
  sqlite3_str_appendall(pOut, "{\"from\":");
  bxJsonAppend(pOut, zName, (int)strlen(zName));
  sqlite3_str_appendf(
      pOut, ",\"rows\":%lld,%z}", nRow, bxCheckMem(zRest, pErr));
}

static void addGone(Erasure *p, const char *zName, i64 nRow, i64 nByte) {
  assert(nRow >= 0 && nByte >= 0);
  if (nRow == 0) return;
  addPart(p->pErased, zName, nRow, sqlite3_mprintf("\"bytes\":%lld", nByte),
      p->pErr);
  p->nRow += nRow;
  p->nByte += nByte;
}

/* From here on ?4 of the statements is a list of rows. */
static void nameRows(Erasure *p, sqlite3_str *pList) {
  sqlite3_free(p->zRows);
  p->zRows = bxPrintf(p->pErr, "[%s]",
      sqlite3_str_length(pList) > 0 ? sqlite3_str_value(pList) : "");
}

/* What holds keep is told, and by whom. */
static void tellHeld(Erasure *p, BxStmts *pOn, const BxRecords *pPart,
    const Walked *pFound, const char *zName) {
  sqlite3_stmt *pStmt;
  nameRows(p, pFound->pHeld);
  pStmt = prepareErase(p, pOn,
      "SELECT json_group_array(DISTINCT f.kind || ' ' || f.\"key\" || ' by ' ||"
      " f.owner) FROM %s AS t JOIN main.retention__holds AS f ON %s"
      " WHERE %s" IN_ROWS,
      pPart->zTable, pPart->zHolds, ROW_KEY(pPart));
  if (bxStep(pStmt, p->pErr)) {
    p->nHeld += pFound->nHeld;
    addPart(p->pHeld, zName, pFound->nHeld,
        sqlite3_mprintf("\"by\":%s", bxColumnText(pStmt, 0, p->pErr)), p->pErr);
  }
  sqlite3_finalize(pStmt);
}

static void unpin(Erasure *p, BxStmts *pOn, const BxRecords *pPart,
    const Walked *pFound, const char *zName) {
  if (pFound->nPinned > 0 && !p->bUnpin) {
    bxFail(p->pErr, SQLITE_CONSTRAINT,
        "PinnedError: %lld rows of %s are pinned evidence, and nothing was "
        "erased; unpin them first, or pass '{\"unpin\":true}' as fifth "
        "argument",
        pFound->nPinned, zName);
  }
  if (pPart->zUnpin == 0 || (pPart->zPinned != 0 && pFound->nPinned == 0)) {
    return;
  }
  finishErase(
      p, prepareErase(p, pOn, "%s WHERE %s AND %s" IN_ROWS, pPart->zUnpin,
             pPart->zPinned ? pPart->zPinned : "1", ROW_KEY(pPart)));
  p->nUnpinned += pFound->nPinned;
}

/* Rows that stay lose each form of the text, the longest first. */
static void loseText(Erasure *p, BxStmts *pOn, const BxRecords *pPart) {
  sqlite3_stmt *pStmt =
      prepareErase(p, pOn, "UPDATE %s AS t SET %s WHERE %s" IN_ROWS,
          pPart->zTable, pPart->zLoses, ROW_KEY(pPart));
  int i;
  assert(pPart->zLoses != 0 && p->nForm >= 0);
  for (i = 0; i < p->nForm && p->pErr->rc == SQLITE_OK; i++) {
    bxBind(pStmt, p->pErr, "tt-t", p->aForm[i].z, ERASED_TEXT, p->zRows);
    bxStmtRun(pStmt, p->pErr);
    bxReset(pStmt, p->pErr);
  }
  sqlite3_finalize(pStmt);
}

/* The columns of a row of the log that name the key, or have the text; and what a
** rule said of an agent. Returns how many bytes they have. */
static i64 findFields(Erasure *p, sqlite3_stmt *pRow, char zNames[200]) {
  int i;
  i64 nByte = 0;
  zNames[0] = 0;
  for (i = 2; i < sqlite3_column_count(pRow); i++) {
    const char *zName = sqlite3_column_name(pRow, i);
    const char *z = (const char *)sqlite3_column_text(pRow, i);
    size_t n = z ? strlen(z) : 0, nKey = strlen(p->zWhat);
    int bIn = z != 0 &&
              (p->bText ? hasNeedle(p, pRow, i)
                        : n >= nKey && strcmp(z + n - nKey, p->zWhat) == 0 &&
                              (n == nKey || z[n - nKey - 1] == ':'));
    if (z != 0 && !p->bText && sqlite3_column_int(pRow, 1)) {
      bIn |= zName != 0 && strcmp(zName, "reason") == 0;
    }
    if (!bIn || zName == 0) continue;
    sqlite3_snprintf(200 - (int)strlen(zNames), zNames + strlen(zNames), "%s%s",
        zNames[0] ? "," : "", zName);
    nByte += (i64)n;
  }
  return nByte;
}

/* Rows of the log stay, with digests in the place of what is erased. */
static void eraseLog(Erasure *p, BxStmts *pOn, const BxRecords *pPart) {
  sqlite3_stmt *pRow = bxPrepare(pOn, pPart->zLoses, p->pErr);
  i64 nRow = 0, nByte = 0;
  assert(pPart->bLog && pPart->zKey != 0);
  bxBind(pRow, p->pErr, "t", p->zRows);
  while (bxStep(pRow, p->pErr)) {
    char zNames[200];
    i64 n = findFields(p, pRow, zNames);
    if (zNames[0] == 0) continue;
    if (!p->bLook)
      bxLogErase(pOn, sqlite3_column_int64(pRow, 0), zNames, p->pErr);
    nByte += n;
    nRow++;
  }
  sqlite3_finalize(pRow);
  addGone(p, pPart->zName, nRow, nByte);
}

/* Removes the rows that were found, or the text from them. */
static void removeFound(Erasure *p, BxStmts *pOn, const BxRecords *pPart) {
  if (p->pDomain != 0 && p->pDomain->xErase != 0 && !p->bOpened) {
    p->bOpened = 1;
    p->pDomain->xErase(p->pHome, 0, p->pErr);
  }
  if (pPart->zBefore != 0) {
    finishErase(p, prepareErase(p, pOn, "%s", pPart->zBefore));
  }
  if (pPart->zLoses != 0) {
    loseText(p, pOn, pPart);
  } else {
    finishErase(p, prepareErase(p, pOn, "DELETE FROM %s AS t WHERE %s" IN_ROWS,
                       pPart->zTable, ROW_KEY(pPart)));
  }
}

static void erasePart(
    Erasure *p, BxStmts *pOn, const BxRecords *pPart, int bWhole) {
  const char *zName = pPart->zName ? pPart->zName : pOn->zTable;
  char *zWhich = p->pErr->rc == SQLITE_OK ? whichRows(p, pPart, bWhole) : 0;
  /* a table in temp has its holds in no schema */
  int bHolds =
      !p->bLook && pPart->zHolds != 0 && sqlite3_stricmp(pOn->zDb, "temp") != 0;
  Walked found = {0, 0, 0, 0, 0, 0};
  assert(pPart->zTable != 0 && pPart->zKinds != 0);
  if (zWhich == 0) return;
  found.pFree = sqlite3_str_new(pOn->bx->db);
  found.pHeld = sqlite3_str_new(pOn->bx->db);
  walkPart(p, pOn, pPart, zWhich, bHolds, &found);
  if (found.nHeld > 0) tellHeld(p, pOn, pPart, &found, zName);
  nameRows(p, found.pFree);
  if (pPart->bLog) {
    eraseLog(p, pOn, pPart);
  } else {
    if (!p->bLook && found.nFree > 0) unpin(p, pOn, pPart, &found, zName);
    addGone(p, zName, found.nFree, found.nByte);
    if (!p->bLook && found.nFree > 0) removeFound(p, pOn, pPart);
    if (!p->bLook && pPart->zAfter != 0) {
      finishErase(p, prepareErase(p, pOn, "%s", pPart->zAfter));
    }
  }
  sqlite3_free(sqlite3_str_finish(found.pFree));
  sqlite3_free(sqlite3_str_finish(found.pHeld));
  sqlite3_free(zWhich);
}

/*----------------------------------------------------- virtual tables ----*/

/* The virtual tables of a schema. Of the kind buffer, that with this name goes. */
static void eraseVtabs(Erasure *p, BxStmts *pSchema) {
  BxVtabWalk walk = {pSchema, 0, 0};
  BxVtab *pVtab;
  int bWhole = strcmp(p->zKind, "buffer") == 0;
  while ((pVtab = bxVtabNext(&walk, p->pErr)) != 0) {
    const BxRecords *pPart = pVtab->pModule->aRecords;
    if (bWhole && sqlite3_stricmp(pVtab->stmts.zTable, p->zKey) != 0) continue;
    for (; pPart->zTable != 0; pPart++) {
      erasePart(p, &pVtab->stmts, pPart, bWhole);
    }
  }
}

/*------------------------------------------------------------ adapters ----*/

/* The threads of the adapter for LangGraph (packages/npm/langgraph_tables.js), whose
** triggers remove what belongs to a thread. A thread that has a text goes. */
#define OF_THREAD(columns, table)                                              \
  "(SELECT group_concat(CAST(" columns " AS TEXT)) FROM main.langgraph_" table \
  " AS s WHERE s.thread_id = t.thread_id)"
const BxRecords bxRetentionAdapters[] = {
    {"langgraph_threads", "main.langgraph_threads", "session=thread_id,",
        "t.thread_id, " OF_THREAD("checkpoint", "checkpoints") ", " OF_THREAD(
            "metadata", "checkpoints") ", " OF_THREAD("value",
            "values") ", " OF_THREAD("value", "writes"),
        "(SELECT coalesce(sum(length(checkpoint) + length(metadata)), 0) FROM "
        "main.langgraph_checkpoints AS s WHERE s.thread_id = t.thread_id)"
        " + (SELECT coalesce(sum(length(value)), 0) FROM main.langgraph_values "
        "AS s WHERE s.thread_id = t.thread_id)"
        " + (SELECT coalesce(sum(length(value)), 0) FROM main.langgraph_writes "
        "AS s WHERE s.thread_id = t.thread_id)",
        BX_HOLD_ON("session", "t.thread_id"), 0, 0, 0, 0, "t.thread_id", 0, 0},
    {0},
};

int bxRetentionHasAdapter(BxStmts *p, BxErr *pErr) {
  return bxCanPrepare(p->bx,
      bxPrintf(pErr, "SELECT thread_id FROM \"%w\".langgraph_threads", p->zDb),
      pErr);
}

/*------------------------------------------------------- what is erased ----*/

/* The key as JSON writes it with ASCII alone: \u00e9, or \u00E9. */
static char *asciiOf(Erasure *p, const char *zForm) {
  const unsigned char *z = (const unsigned char *)p->zKey;
  sqlite3_str *pOut = sqlite3_str_new(p->pHome->bx->db);
  while (*z) {
    unsigned c = *z++;
    if (c >= 0x80) {
      int nMore = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
      c &= 0x3fu >> nMore;
      while (nMore-- > 0) c = c << 6 | (*z++ & 0x3f);
    }
    if (c < 0x80) {
      sqlite3_str_appendchar(pOut, 1, (char)c);
    } else if (c < 0x10000) {
      sqlite3_str_appendf(pOut, zForm, c);
    } else {
      sqlite3_str_appendf(pOut, zForm, 0xd800 + ((c - 0x10000) >> 10));
      sqlite3_str_appendf(pOut, zForm, 0xdc00 + ((c - 0x10000) & 0x3ff));
    }
  }
  return bxStrFinish(pOut, p->pErr);
}

/* The forms of a text: as it is, and as JSON writes it, also inside a JSON string
** that contains JSON. */
static char *formsOf(Erasure *p) {
  static const char zForms[] =
      "WITH RECURSIVE form(text, depth) AS ("
      "  VALUES (?1, 0), (?2, 0), (?3, 0) UNION"
      "  SELECT substr(json_quote(text), 2, length(json_quote(text)) - 2),"
      "    depth + 1 FROM form WHERE depth < 2) "
      "SELECT json_group_array(text) FROM (SELECT DISTINCT text FROM form)";
  char *zLower = asciiOf(p, "\\u%04x"), *zUpper = asciiOf(p, "\\u%04X");
  char *z =
      bxQueryText(p->pHome, zForms, p->pErr, "ttt", p->zKey, zLower, zUpper);
  sqlite3_free(zLower);
  sqlite3_free(zUpper);
  return z;
}

/* What the statements and the search look for. */
static void readForms(Erasure *p) {
  static const char zEach[] =
      "SELECT value FROM json_each(iif(?1 = 'text', ?2, json_array(?2)))"
      " ORDER BY length(CAST(value AS BLOB)) DESC";
  sqlite3_stmt *pRow;
  i64 nAlloc = 0;
  assert(p->nForm == 0);
  p->bText = strcmp(p->zKind, "text") == 0;
  p->zWhat = p->bText ? formsOf(p)
                      : bxQueryText(p->pHome,
                            "SELECT iif(?1 = 'rollout', lower(?2), ?2)",
                            p->pErr, "tt", p->zKind, p->zKey);
  pRow = bxPrepare(p->pHome, zEach, p->pErr);
  bxBind(pRow, p->pErr, "tt", p->zKind, p->zWhat);
  while (bxStep(pRow, p->pErr)) {
    Needle *a = bxArrayGrow(p->aForm, p->nForm, &nAlloc, sizeof(*a), p->pErr);
    if (a == 0) break;
    p->aForm = a;
    a[p->nForm].n = (size_t)sqlite3_column_bytes(pRow, 0);
    a[p->nForm].z = bxColumnCopy(pRow, 0, p->pErr);
    p->nForm += a[p->nForm].z != 0;
  }
  sqlite3_finalize(pRow);
}

static void freeErasure(Erasure *p) {
  while (p->nForm > 0) sqlite3_free(p->aForm[--p->nForm].z);
  sqlite3_free(p->aForm);
  sqlite3_free(p->zWhat);
  sqlite3_free(p->zRows);
  sqlite3_free(sqlite3_str_finish(p->pErased));
  sqlite3_free(sqlite3_str_finish(p->pHeld));
}

static void readCall(BxCall *pCall, Erasure *p) {
  const char *az[4];
  int eOption;
  p->pHome = bxRetentionAct(pCall, "retention",
      "agent, event, kill_switch, rollout, session, buffer or text", 4, az);
  if (p->pErr->rc != SQLITE_OK) return;
  p->zKind = az[0];
  p->zKey = az[1];
  p->zActor = az[2];
  p->zReason = az[3];
  eOption =
      bxRetentionOptions(p->pHome, bxArg(pCall, 4), "unpin remember", p->pErr);
  p->bUnpin = eOption & 1;
  p->bRemember = eOption >> 1;
  readForms(p);
  if (p->bText && strlen(p->zKey) < 4) {
    bxRefuse(p->pErr,
        "ValidationError: a text to erase must have at least 4 bytes, got %s; "
        "a short one is in many rows by chance",
        pCall->aArg[1]);
  }
}

void bxRetentionRefuseHeld(BxStmts *p, const char *zKind, const char *zKey,
    const char *zDone, BxErr *pErr) {
  static const char zHolders[] =
      "SELECT 'HeldError: ' || ?1 || ' ' || ?2 || ' is held by ' ||"
      " group_concat(owner, ', ') || ', and nothing was ' || ?3 || '; end the"
      " hold with retention_release() first' FROM main.retention__holds WHERE"
      " kind = ?1 AND \"key\" = iif(?1 IN ('buffer', 'rollout'), lower(?2), "
      "?2)";
  bxRetentionRefuse(
      pErr, bxQueryText(p, zHolders, pErr, "ttt", zKind, zKey, zDone));
}

/* What a buffer has in the overflow goes through the buffer, so they come
** first. The log comes last: it has what the others write. */
static void eraseAll(Erasure *p) {
  Bx *bx = p->pHome->bx;
  BxStmts *pTemp = bxSchema(bx, "temp", p->pErr);
  const BxRecords *pPart;
  int i;
  assert(p->nRow == 0 && p->nByte == 0);
  eraseVtabs(p, p->pHome);
  if (pTemp != 0) eraseVtabs(p, pTemp);
  p->pDomain = 0;
  if (bxRetentionHasAdapter(p->pHome, p->pErr)) {
    erasePart(p, p->pHome, bxRetentionAdapters, 0);
  }
  for (i = bx->nDomain - 1; i >= 0 && p->pErr->rc == SQLITE_OK; i--) {
    const BxDomain *pDomain = &bx->aDomain[i];
    pPart = pDomain->aRecords;
    if (pPart == 0 ||
        !bxSchemaHasDomain(bx, p->pHome->zDb, pDomain->zName, p->pErr)) {
      continue;
    }
    p->pDomain = pDomain;
    p->bOpened = 0;
    for (; pPart->zTable != 0; pPart++) erasePart(p, p->pHome, pPart, 0);
    if (p->bOpened) pDomain->xErase(p->pHome, 1, p->pErr);
  }
}

/*---------------------------------------------------------- certificate ----*/

/* Writes the record, and refuses the key from now on. Returns its number. */
static i64 record(Erasure *p) {
  static const char zRecord[] =
      "INSERT INTO main.blackbox__log(at, domain, kind, detail, actor, reason, "
      "rows, bytes) VALUES(?1, 'retention', 'erasure', json_object('kind', ?2, "
      "'salt', ?3, 'digest', ?4, 'held_back', ?9, 'until', nullif(?10, 0)), "
      "?5, ?6, ?7, ?8)";
  static const char zRefuse[] =
      "INSERT INTO main.retention__in_force(kind, \"key\", owner, until) "
      "VALUES('erased ' || ?1, ?2, '', ?3) ON CONFLICT DO UPDATE "
      "SET until = max(until, excluded.until)";
  unsigned char aSalt[16], aDigest[BX_DIGEST];
  char zSalt[33], zDigest[65], *z;
  i64 iNumber;
  assert(p->nRow >= 0 && p->nByte >= 0);
  sqlite3_randomness(sizeof(aSalt), aSalt);
  bxHex(aSalt, sizeof(aSalt), zSalt);
  z = bxPrintf(p->pErr, "%s\n%s\n", zSalt, p->zKind);
  if (z == 0) return 0;
  bxDigestTwo(z, strlen(z), p->zKey, strlen(p->zKey), aDigest);
  sqlite3_free(z);
  bxHex(aDigest, BX_DIGEST, zDigest);
  bxStmtExec(p->pHome, zRecord, p->pErr, "ittcttiiii", p->iNow, p->zKind, zSalt,
      zDigest, p->zActor, p->zReason, p->nRow, p->nByte, p->nHeld, p->iUntil);
  iNumber =
      bxQueryNumber(p->pHome, "SELECT max(n) FROM main.blackbox__log", p->pErr);
  if (p->iUntil > 0) {
    bxStmtExec(
        p->pHome, zRefuse, p->pErr, "tti", p->zKind, p->zWhat, p->iUntil);
  }
  return iNumber;
}

void bxRetentionCheckErased(BxStmts *p, BxProblems *pOut) {
  static const char zSql[] =
      "WITH erasure AS (SELECT n, detail ->> 'kind' AS kind, detail ->> "
      "'until' AS until FROM main.blackbox__log WHERE domain = 'retention' AND "
      "kind = 'erasure' AND json_valid(detail)) "
      "SELECT 'retention__in_force', 'a key of kind ' || kind || ' is refused, "
      "but no erasure says so' FROM (SELECT substr(kind, 8) AS kind, until "
      "FROM main.retention__in_force WHERE owner = '' EXCEPT SELECT "
      "kind, until FROM erasure) "
      "UNION ALL SELECT 'retention__in_force', 'what erasure ' || n || "
      "' removed is not refused any "
      "more: its key is missing' FROM erasure AS r WHERE until > " STEADY
      " AND NOT EXISTS (SELECT 1 FROM main.retention__in_force "
      "WHERE kind = 'erased ' || r.kind AND until >= r.until)";
  BxErr err = {SQLITE_OK, 0};
  bxProblemRows(pOut, bxPrepare(p, zSql, &err), "retention__in_force", 0, &err);
}

static char *certificate(Erasure *p, i64 iNumber) {
  static const char zSql[] =
      "SELECT json_object('erasure', ?1, 'at', ?2, 'kind', ?3, 'key', ?4,"
      " 'actor', ?5, 'reason', ?6, 'rows', ?7, 'bytes', ?8, 'unpinned', ?9,"
      " 'erased', json('[' || coalesce(?10, '') || ']'),"
      " 'heldBack', json('[' || coalesce(?11, '') || ']'),"
      " 'refusedUntil', nullif(?12, 0), 'then', " BX_ERASED_THEN ")";
  assert(iNumber > 0 || p->pErr->rc != SQLITE_OK);
  return bxQueryText(p->pHome, zSql, p->pErr, "iittttiiitti", iNumber, p->iNow,
      p->zKind, p->zKey, p->zActor, p->zReason, p->nRow, p->nByte, p->nUnpinned,
      sqlite3_str_value(p->pErased), sqlite3_str_value(p->pHeld), p->iUntil);
}

i64 bxRetentionOverwrite(BxStmts *p, BxErr *pErr) {
  i64 eBefore = bxQueryNumber(p, "PRAGMA main.secure_delete", pErr);
  if (pErr->rc != SQLITE_OK) return -1; /* it is not known, and stays */
  bxQueryNumber(p, "PRAGMA main.secure_delete = 1", pErr);
  return eBefore;
}

/* SQLite sets it when it parses the statement, and looks for an interrupt only at a blank
** or at the end of the text, which comes later. */
void bxRetentionOverwriteEnd(BxStmts *p, i64 eBefore) {
  static const char *const azMode[] = {"0", "1", "fast"};
  sqlite3_stmt *pStmt = 0;
  char *zSql;
  if (eBefore < 0 || eBefore > 2) return;
  zSql = sqlite3_mprintf(
      "PRAGMA\"%w\".secure_delete=%s;", p->zDb, azMode[eBefore]);
  if (zSql != 0) sqlite3_prepare_v2(p->bx->db, zSql, -1, &pStmt, 0);
  sqlite3_finalize(pStmt);
  sqlite3_free(zSql);
}

/* Overwriting is on while it runs. */
static void eraseSecurely(Erasure *p) {
  i64 eBefore = bxRetentionOverwrite(p->pHome, p->pErr);
  eraseAll(p);
  bxRetentionStored(p->pHome, BX_LIMIT_MOST, p->pErr);
  bxRetentionOverwriteEnd(p->pHome, eBefore);
}

/* A session of a program is a conversation of ours, which is erased on a record of its
** own. What went counts for both. */
static void eraseConversations(Erasure *p) {
  const char *zKind = p->zKind, *zKey = p->zKey;
  char *zWhat = p->zWhat;
  sqlite3_stmt *pRow = bxRetentionConversations(p->pHome, zKind, zKey, p->pErr);
  p->zKind = "rollout";
  while (pRow != 0 && bxStep(pRow, p->pErr)) {
    i64 nRow = p->nRow, nByte = p->nByte, nHeld = p->nHeld;
    p->zWhat = (char *)bxColumnText(pRow, 0, p->pErr);
    p->zKey = p->zWhat;
    p->nRow = p->nByte = p->nHeld = 0;
    bxRetentionRefuseHeld(p->pHome, p->zKind, p->zKey, "erased", p->pErr);
    eraseSecurely(p);
    record(p);
    p->nRow += nRow;
    p->nByte += nByte;
    p->nHeld += nHeld;
  }
  sqlite3_finalize(pRow);
  p->zKind = zKind;
  p->zKey = zKey;
  p->zWhat = zWhat;
}

void bxRetentionErase(BxCall *pCall) {
  Erasure erasure;
  Erasure *p = &erasure;
  i64 iNumber, nDay;
  memset(p, 0, sizeof(*p));
  p->pErr = &pCall->err;
  p->iNow = bxNow();
  readCall(pCall, p);
  if (p->pErr->rc == SQLITE_OK) {
    p->pErased = sqlite3_str_new(pCall->bx->db);
    p->pHeld = sqlite3_str_new(pCall->bx->db);
    nDay = bxSettingInt(p->pHome, "retention.refuse_days", p->pErr);
    if (nDay > 0 && !p->bText && strcmp(p->zKind, "buffer") != 0) {
      p->iUntil = p->iNow + nDay * BX_MS_PER_DAY;
    }
    bxRetentionRefuseHeld(p->pHome, p->zKind, p->zKey, "erased", p->pErr);
    eraseSecurely(p);
    eraseConversations(p);
    if (p->nRow == 0 && p->nHeld == 0 && !p->bRemember) {
      bxFail(p->pErr, SQLITE_CONSTRAINT,
          "NotFoundError: there is nothing of %s %Q, and nothing was erased; "
          "to refuse it all the same, pass '{\"remember\":true}' as fifth "
          "argument",
          p->zKind, p->zKey);
    }
    bxQueryIntOnce(p->pHome,
        "DELETE FROM main.retention__in_force WHERE owner = '' AND until "
        "<= " STEADY,
        p->pErr, "");
    iNumber = record(p);
    if (p->pErr->rc == SQLITE_OK) bxReturnJson(pCall, certificate(p, iNumber));
  }
  freeErasure(p);
}

/*------------------------------------------------------- what is left ----*/

#define PIECE 1000000

/* How often a file has what was erased; NULL: there is none. A short key is in every
** file by chance. */
static i64 searchFile(Erasure *p, sqlite3_file *pFile) {
  i64 nSize = 0, iFrom, nMost, nFound = 0;
  char *a = 0;
  int i;
  assert(p->nForm > 0);
  if (pFile == 0 || pFile->pMethods == 0 || p->nForm == 0) return 0;
  nMost = PIECE + (i64)p->aForm[0].n - 1; /* the longest one may lie across */
  a = bxZalloc((size_t)nMost, p->pErr);
  if (a != 0) pFile->pMethods->xFileSize(pFile, &nSize);
  for (iFrom = 0; iFrom < nSize && p->pErr->rc == SQLITE_OK; iFrom += PIECE) {
    i64 n = nSize - iFrom < nMost ? nSize - iFrom : nMost;
    bxFailDb(p->pErr, p->pHome->bx->db,
        pFile->pMethods->xRead(pFile, a, (int)n, iFrom));
    for (i = 0; i < p->nForm && p->pErr->rc == SQLITE_OK; i++) {
      if (p->aForm[i].n >= 4) nFound += countNeedle(&p->aForm[i], a, (size_t)n);
    }
  }
  sqlite3_free(a);
  return nFound;
}

/* The same for a journal, if it is there. */
static void searchJournal(
    Erasure *p, const char *zWhat, const char *zName, int eType) {
  sqlite3_vfs *pVfs = 0;
  sqlite3_file *pFile;
  int bThere = 0, eOut = 0;
  sqlite3_file_control(
      p->pHome->bx->db, p->pHome->zDb, SQLITE_FCNTL_VFS_POINTER, &pVfs);
  if (pVfs == 0 || zName == 0 || zName[0] == 0) return;
  pVfs->xAccess(pVfs, zName, SQLITE_ACCESS_EXISTS, &bThere);
  pFile = bThere ? bxZalloc((size_t)pVfs->szOsFile, p->pErr) : 0;
  if (pFile == 0) return;
  bxFailDb(p->pErr, p->pHome->bx->db,
      pVfs->xOpen(pVfs, zName, pFile, SQLITE_OPEN_READONLY | eType, &eOut));
  if (p->pErr->rc == SQLITE_OK) addGone(p, zWhat, searchFile(p, pFile), 0);
  if (pFile->pMethods != 0) pFile->pMethods->xClose(pFile);
  sqlite3_free(pFile);
}

/* The file and its journals, as bytes. A key whose writes are refused is in the file,
** and a name or a word of the schema is not left of anything. */
static void searchFiles(Erasure *p) {
  static const char zMay[] =
      "SELECT CAST(total((length(x) - length(replace(x, ?1, ''))) / length(?1))"
      " AS INTEGER) FROM (SELECT value AS x FROM main.sqlite_schema,"
      " json_each(json_array(name, tbl_name, sql)) UNION ALL"
      " SELECT \"key\" FROM main.retention__in_force WHERE owner = '')";
  sqlite3 *db = p->pHome->bx->db;
  const char *zFile = sqlite3_db_filename(db, p->pHome->zDb);
  sqlite3_file *pFile = 0;
  i64 n;
  int i;
  if (zFile == 0 || zFile[0] == 0 || p->pErr->rc != SQLITE_OK) return;
  sqlite3_file_control(db, p->pHome->zDb, SQLITE_FCNTL_FILE_POINTER, &pFile);
  n = searchFile(p, pFile);
  for (i = 0; n > 0 && i < p->nForm && p->aForm[i].n >= 4; i++) {
    n -= bxQueryInt(p->pHome, zMay, p->pErr, "t", p->aForm[i].z);
  }
  addGone(p, "the file", n, 0);
  searchJournal(
      p, "the write-ahead log", sqlite3_filename_wal(zFile), SQLITE_OPEN_WAL);
  searchJournal(p, "the journal", sqlite3_filename_journal(zFile),
      SQLITE_OPEN_MAIN_JOURNAL);
}

/* {"erased":true,"left":[]} */
void bxRetentionErased(BxCall *pCall) {
  static const char zMember[] =
      "SELECT CASE WHEN json_valid(?1) THEN ?1 ->> ?2 END";
  Erasure erasure;
  Erasure *p = &erasure;
  char *zKind, *zKey;
  memset(p, 0, sizeof(*p));
  p->pErr = &pCall->err;
  p->bLook = 1;
  p->pHome = bxDomainSchema(pCall->bx, "retention", p->pErr);
  if (p->pHome == 0) return;
  zKind = bxQueryText(p->pHome, zMember, p->pErr, "vt", pCall->aArg[0], "kind");
  zKey = bxQueryText(p->pHome, zMember, p->pErr, "vt", pCall->aArg[0], "key");
  p->zKind = zKind;
  p->zKey = zKey;
  if (zKind == 0 || zKey == 0 || zKey[0] == 0) {
    bxRefuse(p->pErr,
        "ValidationError: the certificate of an erasure has a kind and a key, "
        "got %s; pass what blackbox_erase() returned",
        pCall->aArg[0]);
  } else {
    readForms(p);
    p->pErased = sqlite3_str_new(pCall->bx->db);
    eraseAll(p);
    searchFiles(p);
  }
  if (p->pErr->rc == SQLITE_OK) {
    bxReturnJson(pCall, sqlite3_mprintf("{\"erased\":%s,\"left\":[%s]}",
                            p->nRow > 0 ? "false" : "true",
                            p->nRow > 0 ? sqlite3_str_value(p->pErased) : ""));
  }
  freeErasure(p);
  sqlite3_free(zKind);
  sqlite3_free(zKey);
}
