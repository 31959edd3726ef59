/*
** erase.c: blackbox_erase(kind, key, actor, reason[, options]).
**
** Everything that belongs to a key goes, in every domain of the schema that has
** the domain retention, and in the tables of this connection: rows of the
** archive and the overflow, of rings and evidence buffers, also of those in temp,
** what waits in the queue, a conversation with its search index, a session of the
** cache. A text is looked for as it is, and as JSON writes it; a row that has it
** goes, but an item of a conversation stays and loses the text.
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

#include <string.h>

/* The time that ends refusals, as in retention__refused. */
#define STEADY                                                                 \
  "(SELECT iif((julianday('now') - 2440587.5) * 86400000.0 - seen BETWEEN 0 "  \
  "AND 86400000, (julianday('now') - 2440587.5) * 86400000.0, seen) FROM "     \
  "main.retention__clock)"

/* One call. */
typedef struct Erasure {
  BxStmts *pHome;
  const char *zKind, *zKey, *zActor, *zReason;
  char *zWhat; /* ?1 of every statement: the key, or the forms of a text */
  int bUnpin;
  i64 iNow, iUntil; /* iUntil: the key is refused until then; 0: it is not */
  i64 nRow, nByte, nUnpinned, nHeld;
  sqlite3_str *pErased, *pHeld; /* elements of JSON arrays */
  BxErr *pErr;
} Erasure;

/*------------------------------------------------------- one part ----*/

/* Which rows, to sqlite3_free(); NULL if the part has none of that kind. bWhole:
** it is a virtual table, and the kind is its name. */
static char *whichRows(Erasure *p, const BxRecords *pPart, int bWhole) {
  sqlite3_str *pOut = sqlite3_str_new(p->pHome->bx->db);
  const char *z = pPart->zTexts, *zEnd;
  size_t nKind = strlen(p->zKind);
  if (bWhole) {
    sqlite3_str_appendall(pOut, "1");
  } else if (strcmp(p->zKind, "text") == 0) {
    while (z != 0 && (zEnd = strchr(z, '|')) != 0) {
      while (zEnd[1] == '|') zEnd += 2; /* the operator || */
      if (zEnd == 0) break;
      sqlite3_str_appendf(pOut,
          "%sEXISTS (SELECT 1 FROM json_each(?1) AS j WHERE "
          "instr(CAST(%.*s AS BLOB), CAST(j.value AS BLOB)) > 0)",
          sqlite3_str_length(pOut) > 0 ? " OR " : "(", (int)(zEnd - z), z);
      z = zEnd + 1;
    }
    if (sqlite3_str_length(pOut) > 0) sqlite3_str_appendchar(pOut, 1, ')');
  } else {
    for (z = pPart->zKinds; *z; z = strchr(z, ',') + 1) {
      if (strncmp(z, p->zKind, nKind) != 0 || z[nKind] != '=') continue;
      z += nKind + 1;
      sqlite3_str_appendf(pOut, "t.%.*s = ?1", (int)strcspn(z, ","), z);
    }
  }
  if (sqlite3_str_errcode(pOut) != SQLITE_OK) {
    bxFail(p->pErr, SQLITE_NOMEM, "out of memory");
  }
  return sqlite3_str_finish(pOut);
}

/* Prepares SQL about a part, and frees it. */
static sqlite3_stmt *prepareErase(Erasure *p, BxStmts *pOn, char *zOwned) {
  sqlite3_stmt *pStmt = zOwned ? bxPrepare(pOn, zOwned, p->pErr) : 0;
  int n = pStmt ? sqlite3_bind_parameter_count(pStmt) : 0;
  const char *azValue[] = {p->zWhat, p->zActor, p->zReason};
  int i;
  sqlite3_free(zOwned);
  for (i = 0; i < n && p->pErr->rc == SQLITE_OK; i++) {
    bxFailDb(p->pErr, p->pHome->bx->db,
        sqlite3_bind_text(pStmt, i + 1, azValue[i], -1, SQLITE_STATIC));
  }
  return pStmt;
}

static void run(Erasure *p, BxStmts *pOn, char *zOwned) {
  sqlite3_stmt *pStmt = prepareErase(p, pOn, zOwned);
  while (bxRow(pStmt, p->pErr)) continue;
  sqlite3_finalize(pStmt);
}

static void runTemplate(Erasure *p, BxStmts *pOn, const char *zSql) {
  if (zSql != 0) run(p, pOn, bxPrintf(p->pErr, "%s", zSql));
}

static void addErased(sqlite3_str *pOut, const char *zName, i64 nRow) {
  sqlite3_str_appendall(
      pOut, sqlite3_str_length(pOut) > 0 ? ",{\"from\":" : "{\"from\":");
  bxAppendJson(pOut, zName, (int)strlen(zName));
  sqlite3_str_appendf(pOut, ",\"rows\":%lld", nRow);
}

/* What holds keep is told, and by whom. */
static void tellHeld(Erasure *p, BxStmts *pOn, const BxRecords *pPart,
    const char *zWhich, const char *zName) {
  sqlite3_stmt *pStmt = prepareErase(p, pOn,
      bxPrintf(p->pErr,
          "SELECT (SELECT count(*) FROM %s AS t WHERE %s AND EXISTS (SELECT 1"
          " FROM main.retention__holds AS f WHERE %s)),"
          " json_group_array(DISTINCT f.kind || ' ' || f.\"key\" || ' by ' ||"
          " f.owner) FROM %s AS t JOIN main.retention__holds AS f ON %s"
          " WHERE %s",
          pPart->zTable, zWhich, pPart->zHolds, pPart->zTable, pPart->zHolds,
          zWhich));
  if (bxRow(pStmt, p->pErr) && sqlite3_column_int64(pStmt, 0) > 0) {
    p->nHeld += sqlite3_column_int64(pStmt, 0);
    addErased(p->pHeld, zName, sqlite3_column_int64(pStmt, 0));
    sqlite3_str_appendf(
        p->pHeld, ",\"by\":%s}", bxColumnText(pStmt, 1, p->pErr));
  }
  sqlite3_finalize(pStmt);
}

/* The rows that go, with their bytes. */
static i64 countErased(Erasure *p, BxStmts *pOn, const BxRecords *pPart,
    const char *zWhich, i64 *pnByte) {
  sqlite3_stmt *pStmt = prepareErase(p, pOn,
      bxPrintf(p->pErr,
          "SELECT count(*), coalesce(sum(%s), 0) FROM %s AS t WHERE %s",
          pPart->zBytes, pPart->zTable, zWhich));
  i64 nRow = 0;
  if (bxRow(pStmt, p->pErr)) {
    nRow = sqlite3_column_int64(pStmt, 0);
    *pnByte = sqlite3_column_int64(pStmt, 1);
  }
  sqlite3_finalize(pStmt);
  return nRow;
}

static void unpin(Erasure *p, BxStmts *pOn, const BxRecords *pPart,
    const char *zWhich, const char *zName) {
  i64 nByte, nRow;
  char *zPinned;
  if (pPart->zPinned == 0) return;
  zPinned = bxPrintf(p->pErr, "%s AND %s", zWhich, pPart->zPinned);
  if (zPinned == 0) return;
  nRow = countErased(p, pOn, pPart, zPinned, &nByte);
  if (nRow > 0 && !p->bUnpin) {
    bxFail(p->pErr, SQLITE_CONSTRAINT,
        "PinnedError: %lld rows of %s are pinned evidence, and nothing was "
        "erased; unpin them first, or pass '{\"unpin\":true}' as fifth "
        "argument",
        nRow, zName);
  }
  if (nRow > 0) {
    run(p, pOn, bxPrintf(p->pErr, "%s WHERE %s", pPart->zUnpin, zPinned));
    p->nUnpinned += nRow;
  }
  sqlite3_free(zPinned);
}

static void erasePart(
    Erasure *p, BxStmts *pOn, const BxRecords *pPart, int bWhole) {
  const char *zName = pPart->zName ? pPart->zName : pOn->zTable;
  char *zAll = p->pErr->rc == SQLITE_OK ? whichRows(p, pPart, bWhole) : 0;
  char *zFree;
  i64 nRow, nByte = 0;
  if (zAll == 0) return;
  /* a table in temp has its holds in no schema */
  zFree = sqlite3_stricmp(pOn->zDb, "temp") == 0
              ? bxPrintf(p->pErr, "%s", zAll)
              : bxPrintf(p->pErr,
                    "%s AND NOT EXISTS (SELECT 1 FROM main.retention__holds "
                    "AS f WHERE %s)",
                    zAll, pPart->zHolds);
  if (sqlite3_stricmp(pOn->zDb, "temp") != 0) {
    tellHeld(p, pOn, pPart, zAll, zName);
  }
  if (zFree != 0) unpin(p, pOn, pPart, zFree, zName);
  nRow = zFree ? countErased(p, pOn, pPart, zFree, &nByte) : 0;
  if (nRow > 0) {
    runTemplate(p, pOn, pPart->zBefore);
    run(p, pOn,
        bxPrintf(
            p->pErr, "DELETE FROM %s AS t WHERE %s", pPart->zTable, zFree));
    addErased(p->pErased, zName, nRow);
    sqlite3_str_appendf(p->pErased, ",\"bytes\":%lld}", nByte);
    p->nRow += nRow;
    p->nByte += nByte;
  }
  if (strcmp(p->zKind, "text") != 0 || pPart->zBefore != 0) {
    runTemplate(p, pOn, pPart->zAfter);
  }
  sqlite3_free(zFree);
  sqlite3_free(zAll);
}

/*----------------------------------------------------- virtual tables ----*/

/* The rows of a virtual table. Of the kind buffer, that with this name goes. */
static void eraseVtab(Erasure *p, const BxModule *pModule, BxVtab *pVtab) {
  int bWhole = strcmp(p->zKind, "buffer") == 0;
  const BxRecords *pPart;
  if (bWhole && sqlite3_stricmp(pVtab->stmts.zTable, p->zKey) != 0) return;
  for (pPart = pModule->aRecords; pPart->zTable != 0; pPart++) {
    erasePart(p, &pVtab->stmts, pPart, bWhole);
  }
}

/* The virtual tables of a schema. */
static void eraseVtabs(Erasure *p, BxStmts *pSchema) {
  const BxModule *pModule;
  for (pModule = pSchema->bx->aModule; pModule->zName != 0; pModule++) {
    sqlite3_stmt *pStmt = bxVtabNames(pSchema, pModule->zName, p->pErr);
    while (bxRow(pStmt, p->pErr)) {
      const char *zName = bxColumnText(pStmt, 0, p->pErr);
      BxVtab *pVtab = zName ? bxVtabIn(pSchema->bx, pModule->zName,
                                  pSchema->zDb, zName, p->pErr)
                            : 0;
      if (pVtab != 0) eraseVtab(p, pModule, pVtab);
    }
    sqlite3_finalize(pStmt);
  }
}

/*------------------------------------------------------ conversations ----*/

#define ERASED_TEXT "[erased]"

/* Whether a hold keeps the item t. */
#define ITEM_HELD                                                              \
  "EXISTS (SELECT 1 FROM main.rollout__segments AS s "                         \
  "JOIN main.rollout__heads AS h ON h.no = s.rollout "                         \
  "JOIN main.retention__holds AS f ON f.kind = 'rollout' "                     \
  "AND f.\"key\" = h.id WHERE s.owner = t.id >> 32 "                           \
  "AND t.id & 4294967295 BETWEEN s.first AND s.last)"

/* Counts the items that have a text, and tells those that a hold keeps. */
static void countItems(Erasure *p) {
  static const char zHaving[] =
      "SELECT count(*), coalesce(sum(length(CAST(t.payload AS BLOB))), "
      "0), " ITEM_HELD
      " AS held FROM main.rollout__data AS t WHERE EXISTS (SELECT 1 "
      "FROM json_each(?1) AS j WHERE instr(t.payload, j.value) > 0) "
      "GROUP BY held";
  sqlite3_stmt *pStmt = bxPrepare(p->pHome, zHaving, p->pErr);
  bxBind(pStmt, p->pErr, "t", p->zWhat);
  while (bxRow(pStmt, p->pErr)) {
    int bHeld = sqlite3_column_int(pStmt, 2);
    i64 nRow = sqlite3_column_int64(pStmt, 0);
    addErased(bHeld ? p->pHeld : p->pErased, "rollout_items", nRow);
    if (bHeld) {
      sqlite3_str_appendall(
          p->pHeld, ",\"by\":[\"a hold on a conversation\"]}");
      p->nHeld += nRow;
      continue;
    }
    sqlite3_str_appendf(
        p->pErased, ",\"bytes\":%lld}", sqlite3_column_int64(pStmt, 1));
    p->nRow += nRow;
    p->nByte += sqlite3_column_int64(pStmt, 1);
  }
  sqlite3_finalize(pStmt);
}

/* What was derived from items or given by a user; what stood around an item in a
** file; and the items. */
static const char *const azLose[] = {
    "UPDATE main.rollout__data AS t SET payload = replace(payload, ?1, ?2) "
    "WHERE instr(payload, ?1) > 0 AND NOT " ITEM_HELD,
    "UPDATE main.rollout__heads AS t SET title = replace(title, ?1, ?2) "
    "WHERE instr(title, ?1) > 0 AND NOT EXISTS (SELECT 1 "
    "FROM main.retention__holds AS f "
    "WHERE f.kind = 'rollout' AND f.\"key\" = t.id)",
    "UPDATE main.rollout__about AS t SET (title, cwd, model, branch)"
    " = (replace(title, ?1, ?2), "
    "replace(cwd, ?1, ?2), replace(model, ?1, ?2), replace(branch, ?1, ?2)) "
    "WHERE instr(printf('%s%s%s%s', title, cwd, model, branch), "
    "?1) > 0 AND NOT EXISTS (SELECT 1 FROM main.rollout__heads AS h "
    "JOIN main.retention__holds AS f ON f.kind = 'rollout' "
    "AND f.\"key\" = h.id WHERE h.no = t.no)",
    "UPDATE main.rollout__frames AS t SET "
    "before = CAST(replace(CAST(before AS TEXT), ?1, ?2) AS BLOB), "
    "after = CAST(replace(CAST(after AS TEXT), ?1, ?2) AS BLOB) "
    "WHERE (instr(before, CAST(?1 AS BLOB)) > 0 "
    "OR instr(after, CAST(?1 AS BLOB)) > 0) AND NOT " ITEM_HELD,
};

/* Items cannot go alone, so that those that have a text lose it. */
static void eraseItems(Erasure *p) {
  static const char zEach[] =
      "SELECT value FROM json_each(?1) ORDER BY length(value) DESC";
  sqlite3_stmt *pStmt;
  countItems(p);
  pStmt = bxPrepare(p->pHome, zEach, p->pErr);
  bxBind(pStmt, p->pErr, "t", p->zWhat);
  while (bxRow(pStmt, p->pErr)) {
    const char *zForm = bxColumnText(pStmt, 0, p->pErr);
    size_t i;
    for (i = 0; i < sizeof(azLose) / sizeof(azLose[0]); i++) {
      bxAskOnce(p->pHome, azLose[i], p->pErr, "tt", zForm, ERASED_TEXT);
    }
  }
  sqlite3_finalize(pStmt);
}

/* The index keeps the parts of deleted texts, unless it is told not to, which
** FTS5 knows from SQLite 3.42 on; before, it is built anew afterwards. */
static int hasIndex(Erasure *p) {
  return bxNumber(p->pHome,
             "SELECT EXISTS (SELECT 1 FROM main.sqlite_schema "
             "WHERE name = 'rollout_fts')",
             p->pErr) != 0;
}

static void eraseConversations(Erasure *p, const BxRecords *pPart) {
  static const char zSecure[] =
      "INSERT INTO main.rollout_fts(rollout_fts, rank) "
      "VALUES('secure-delete', 1)";
  static const char zRebuild[] =
      "INSERT INTO main.rollout_fts(rollout_fts) VALUES('rebuild')";
  int bText = strcmp(p->zKind, "text") == 0;
  int bIndex, bSecure = sqlite3_libversion_number() >= 3042000;
  i64 nBefore = p->nRow;
  if (!bText && strcmp(p->zKind, "rollout") != 0) return;
  bIndex = hasIndex(p);
  if (bIndex && bSecure) runTemplate(p, p->pHome, zSecure);
  if (bText) {
    eraseItems(p);
  } else {
    erasePart(p, p->pHome, pPart, 0);
  }
  if (bIndex && !bSecure && p->nRow > nBefore) {
    runTemplate(p, p->pHome, zRebuild);
  }
}

/*------------------------------------------------------- what is erased ----*/

/* A text as JSON writes it with ASCII alone: \u00e9, or \u00E9. */
static void appendAscii(sqlite3_str *pOut, const char *zText, int bUpper) {
  const unsigned char *z = (const unsigned char *)zText;
  const char *zForm = bUpper ? "\\u%04X" : "\\u%04x";
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
}

/* The forms of a text: as it is, and as JSON writes it, also inside a JSON string
** that contains JSON. */
static char *formsOf(Erasure *p) {
  static const char zForms[] =
      "WITH RECURSIVE form(text, depth) AS ("
      "  SELECT value, 0 FROM json_each(?1) UNION"
      "  SELECT substr(json_quote(text), 2, length(json_quote(text)) - 2),"
      "    depth + 1 FROM form WHERE depth < 2) "
      "SELECT json_group_array(text) FROM (SELECT DISTINCT text FROM form)";
  sqlite3_str *pOut = sqlite3_str_new(p->pHome->bx->db);
  sqlite3_str *pForm;
  char *zRaw, *zForms2;
  int i;
  sqlite3_str_appendchar(pOut, 1, '[');
  bxAppendJson(pOut, p->zKey, (int)strlen(p->zKey));
  for (i = 0; i < 2; i++) {
    char *z;
    pForm = sqlite3_str_new(p->pHome->bx->db);
    appendAscii(pForm, p->zKey, i);
    z = sqlite3_str_finish(pForm);
    sqlite3_str_appendchar(pOut, 1, ',');
    if (z != 0) bxAppendJson(pOut, z, (int)strlen(z));
    if (z == 0) bxFail(p->pErr, SQLITE_NOMEM, "out of memory");
    sqlite3_free(z);
  }
  sqlite3_str_appendchar(pOut, 1, ']');
  zRaw = sqlite3_str_finish(pOut);
  if (zRaw == 0) bxFail(p->pErr, SQLITE_NOMEM, "out of memory");
  zForms2 = bxAskText(p->pHome, zForms, p->pErr, "t", zRaw);
  sqlite3_free(zRaw);
  return zForms2;
}

static void readEraseOptions(Erasure *p, sqlite3_value *pVal) {
  static const char zSql[] =
      "SELECT CASE WHEN json_valid(?1) THEN CASE WHEN json_type(?1) = 'object' "
      "AND NOT EXISTS (SELECT 1 FROM json_each(?1) WHERE key <> 'unpin' OR "
      "type "
      "NOT IN ('true', 'false')) THEN coalesce(?1 ->> 'unpin', 0) END END";
  sqlite3_stmt *pStmt;
  if (pVal == 0) return;
  pStmt = bxPrepare(p->pHome, zSql, p->pErr);
  bxBind(pStmt, p->pErr, "v", pVal);
  if (bxRow(pStmt, p->pErr) && sqlite3_column_type(pStmt, 0) != SQLITE_NULL) {
    p->bUnpin = sqlite3_column_int(pStmt, 0);
  } else {
    bxRefuse(p->pErr,
        "ValidationError: options must be a JSON object whose one member is "
        "unpin, true or false, got %s; omit it, or pass '{\"unpin\":true}'",
        pVal);
  }
  sqlite3_finalize(pStmt);
}

/* Nothing hides in the actor and in the reason. */
static void refuseHidden(Erasure *p) {
  static const char zSql[] =
      "SELECT name FROM (SELECT unseen FROM main.retention__controls LIMIT 1), "
      "(SELECT 'actor' AS name, ?1 AS said, 0 AS long UNION ALL "
      "SELECT 'reason', ?2, 1) "
      "WHERE ltrim(said, unseen) = '' OR unicode(ltrim(said, unseen)) BETWEEN "
      "917504 AND 921599 OR EXISTS (SELECT 1 FROM main.retention__controls "
      "WHERE instr(said, control) > 0 AND NOT (long AND parts_text))";
  char *z = bxAskText(p->pHome, zSql, p->pErr, "tt", p->zActor, p->zReason);
  if (z != 0) {
    bxFail(p->pErr, SQLITE_CONSTRAINT,
        "ValidationError: %s must be visible text without control characters; "
        "a reason may have tabs and line ends",
        z);
  }
  sqlite3_free(z);
}

static void readCall(BxCall *pCall, Erasure *p) {
  static const char zKinds[] =
      "agent,event,kill_switch,rollout,session,buffer,text";
  p->zKind = bxText(pCall->aArg[0], "kind", 100, 0, p->pErr);
  if (p->zKind != 0 && !bxIsColumn(p->zKind, zKinds)) {
    bxRefuse(p->pErr,
        "ValidationError: kind must be agent, event, kill_switch, rollout, "
        "session, buffer or text, got %s",
        pCall->aArg[0]);
  }
  p->zKey = bxText(pCall->aArg[1], "key", 100000, 0, p->pErr);
  p->zActor = bxText(pCall->aArg[2], "actor", 1024, 0, p->pErr);
  p->zReason = bxText(pCall->aArg[3], "reason", 65536, 0, p->pErr);
  p->pHome = bxHome(pCall->bx, "retention", p->pErr);
  if (p->pErr->rc != SQLITE_OK) return;
  bxLogBegin(p->pHome, p->pErr);
  refuseHidden(p);
  readEraseOptions(p, bxArg(pCall, 4));
  if (strcmp(p->zKind, "text") == 0 && strlen(p->zKey) < 4) {
    bxRefuse(p->pErr,
        "ValidationError: a text to erase must have at least 4 bytes, got %s; "
        "a short one is in many rows by chance",
        pCall->aArg[1]);
  }
  if (strcmp(p->zKind, "text") == 0) {
    p->zWhat = formsOf(p);
  } else {
    p->zWhat = bxAskText(p->pHome,
        "SELECT CASE ?1 WHEN 'rollout' THEN lower(?2) ELSE ?2 END", p->pErr,
        "tt", p->zKind, p->zKey);
  }
}

static void refuseHeld(Erasure *p) {
  char *zOwners = bxAskText(p->pHome,
      "SELECT group_concat(owner, ', ') FROM main.retention__holds WHERE "
      "kind = ?1 AND \"key\" = CASE ?1 WHEN 'buffer' THEN lower(?2) ELSE ?2 "
      "END",
      p->pErr, "tt", p->zKind, p->zWhat);
  if (zOwners != 0) {
    bxFail(p->pErr, SQLITE_CONSTRAINT,
        "HeldError: %s %s is held by %s, and nothing was erased; end the hold "
        "with retention_release() first",
        p->zKind, p->zKey, zOwners);
  }
  sqlite3_free(zOwners);
}

/* What a buffer has in the overflow goes through the buffer, so they come
** first. */
static void eraseAll(Erasure *p) {
  Bx *bx = p->pHome->bx;
  BxStmts *pTemp = bxSchema(bx, "temp", p->pErr);
  const BxRecords *pPart;
  int i;
  eraseVtabs(p, p->pHome);
  if (pTemp != 0) eraseVtabs(p, pTemp);
  for (i = 0; i < bx->nDomain && p->pErr->rc == SQLITE_OK; i++) {
    const BxDomain *pDomain = &bx->aDomain[i];
    pPart = pDomain->aRecords;
    if (pPart == 0 || !bxCarries(bx, p->pHome->zDb, pDomain->zName, p->pErr)) {
      continue;
    }
    for (; pPart->zTable != 0; pPart++) {
      if (strcmp(pDomain->zName, "rollout") == 0) {
        eraseConversations(p, pPart);
      } else {
        erasePart(p, p->pHome, pPart, 0);
      }
    }
  }
}

/* Rows of the log stay, and lose the actor or the reason that has the text. What they
** name by its id stays. */
static void eraseLog(Erasure *p) {
#define HAS(column)                                                            \
  "EXISTS (SELECT 1 FROM json_each(?1) AS j WHERE instr(" column ", j.value))"
  static const char zHaving[] =
      "SELECT json_group_array(json_array(n, substr(iif(a, ',actor', '') ||"
      " iif(r, ',reason', ''), 2), iif(a, length(CAST(actor AS BLOB)), 0) +"
      " iif(r, length(CAST(reason AS BLOB)), 0))) FROM (SELECT *,"
      " " HAS("actor") " AS a, " HAS(
          "reason") " AS r"
                    " FROM main.blackbox__log WHERE kind IS NOT NULL)"
                    " WHERE a OR r";
#undef HAS
  sqlite3_stmt *pStmt;
  i64 nRow = 0, nByte = 0;
  if (strcmp(p->zKind, "text") != 0 || p->pErr->rc != SQLITE_OK) return;
  pStmt = bxJsonRows(p->pHome->bx,
      "SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1)",
      bxAskText(p->pHome, zHaving, p->pErr, "t", p->zWhat), p->pErr);
  while (bxRow(pStmt, p->pErr)) {
    bxLogErase(p->pHome, sqlite3_column_int64(pStmt, 0),
        bxColumnText(pStmt, 1, p->pErr), p->pErr);
    nByte += sqlite3_column_int64(pStmt, 2);
    nRow++;
  }
  sqlite3_finalize(pStmt);
  if (nRow == 0) return;
  addErased(p->pErased, "blackbox_log", nRow);
  sqlite3_str_appendf(p->pErased, ",\"bytes\":%lld}", nByte);
  p->nRow += nRow;
  p->nByte += nByte;
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
      "INSERT INTO main.retention__erased(kind, \"key\", until) "
      "VALUES(?1, ?2, ?3) ON CONFLICT(kind, \"key\") DO UPDATE "
      "SET until = max(until, excluded.until)";
  unsigned char aSalt[16], aDigest[BX_DIGEST];
  char zSalt[33], zDigest[65];
  SHA256_CTX sha;
  i64 iNumber;
  int i;
  sqlite3_randomness(sizeof(aSalt), aSalt);
  for (i = 0; i < 16; i++) sqlite3_snprintf(3, zSalt + 2 * i, "%02x", aSalt[i]);
  SHA256_Init(&sha);
  SHA256_Update(&sha, zSalt, 32);
  SHA256_Update(&sha, "\n", 1);
  SHA256_Update(&sha, p->zKind, strlen(p->zKind));
  SHA256_Update(&sha, "\n", 1);
  SHA256_Update(&sha, p->zKey, strlen(p->zKey));
  SHA256_Final(aDigest, &sha);
  bxHex(aDigest, BX_DIGEST, zDigest);
  bxDo(p->pHome, zRecord, p->pErr, "ittcttiiii", p->iNow, p->zKind, zSalt,
      zDigest, p->zActor, p->zReason, p->nRow, p->nByte, p->nHeld, p->iUntil);
  iNumber =
      bxNumber(p->pHome, "SELECT max(n) FROM main.blackbox__log", p->pErr);
  if (p->iUntil > 0) {
    bxDo(p->pHome, zRefuse, p->pErr, "tti", p->zKind, p->zWhat, p->iUntil);
  }
  return iNumber;
}

void bxRetentionCheckErased(BxStmts *p, BxProblems *pOut) {
  static const char zSql[] =
      "WITH erasure AS (SELECT n, detail ->> 'kind' AS kind, detail ->> "
      "'until' AS until FROM main.blackbox__log WHERE domain = 'retention' AND "
      "kind = 'erasure' AND json_valid(detail)) "
      "SELECT 'a key of kind ' || kind || ' is refused, but no erasure says "
      "so' FROM (SELECT kind, until FROM main.retention__erased EXCEPT SELECT "
      "kind, until FROM erasure) "
      "UNION ALL SELECT 'what erasure ' || n || ' removed is not refused any "
      "more: its key is missing' FROM erasure AS r WHERE until > " STEADY
      " AND NOT EXISTS (SELECT 1 "
      "FROM main.retention__erased WHERE kind = r.kind AND until >= r.until)";
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt = bxPrepare(p, zSql, &err);
  while (bxRow(pStmt, &err)) {
    const char *z = bxColumnText(pStmt, 0, &err);
    if (z != 0) bxProblem(pOut, "retention__erased", "%s", z);
  }
  sqlite3_finalize(pStmt);
  bxUnchecked(pOut, "retention__erased", &err);
}

static char *certificate(Erasure *p, i64 iNumber) {
  sqlite3_str *pOut = sqlite3_str_new(p->pHome->bx->db);
  char *z;
  sqlite3_str_appendf(
      pOut, "{\"erasure\":%lld,\"at\":%lld,\"kind\":", iNumber, p->iNow);
  bxAppendJson(pOut, p->zKind, (int)strlen(p->zKind));
  sqlite3_str_appendall(pOut, ",\"key\":");
  bxAppendJson(pOut, p->zKey, (int)strlen(p->zKey));
  sqlite3_str_appendall(pOut, ",\"actor\":");
  bxAppendJson(pOut, p->zActor, (int)strlen(p->zActor));
  sqlite3_str_appendall(pOut, ",\"reason\":");
  bxAppendJson(pOut, p->zReason, (int)strlen(p->zReason));
  sqlite3_str_appendf(pOut,
      ",\"rows\":%lld,\"bytes\":%lld,\"unpinned\":%lld,\"erased\":[", p->nRow,
      p->nByte, p->nUnpinned);
  if (sqlite3_str_length(p->pErased) > 0) {
    sqlite3_str_appendall(pOut, sqlite3_str_value(p->pErased));
  }
  sqlite3_str_appendall(pOut, "],\"heldBack\":[");
  if (sqlite3_str_length(p->pHeld) > 0) {
    sqlite3_str_appendall(pOut, sqlite3_str_value(p->pHeld));
  }
  if (p->iUntil > 0) {
    sqlite3_str_appendf(pOut, "],\"refusedUntil\":%lld", p->iUntil);
  } else {
    sqlite3_str_appendall(pOut, "],\"refusedUntil\":null");
  }
  sqlite3_str_appendall(
      pOut, ",\"then\":\"PRAGMA wal_checkpoint(TRUNCATE); VACUUM\"}");
  z = sqlite3_str_finish(pOut);
  if (z == 0) bxFail(p->pErr, SQLITE_NOMEM, "out of memory");
  return z;
}

/* Removes the texts of the rows from the body store, where there is one. */
static void eraseStored(Erasure *p) {
  static const char zSweep[] = "SELECT store_sweep(1000000000, ?1)";
  const BxStmts *pHome = p->pHome;
  if (!bxCarries(pHome->bx, pHome->zDb, "store", p->pErr)) return;
  if (!bxNumber(p->pHome, "SELECT EXISTS (SELECT 1 FROM main.store_dropped)",
          p->pErr)) {
    return;
  }
  sqlite3_free(bxCallInner(p->pHome, zSweep, p->pErr, "t", pHome->zDb));
}

/* Overwriting is on while f runs. */
static void eraseSecurely(Erasure *p) {
  i64 eBefore = bxNumber(p->pHome, "PRAGMA main.secure_delete", p->pErr);
  BxErr err = {SQLITE_OK, 0};
  bxNumber(p->pHome, "PRAGMA main.secure_delete = 1", p->pErr);
  eraseAll(p);
  eraseLog(p);
  eraseStored(p);
  bxNumber(p->pHome,
      eBefore == 0   ? "PRAGMA main.secure_delete = 0"
      : eBefore == 2 ? "PRAGMA main.secure_delete = fast"
                     : "PRAGMA main.secure_delete = 1",
      &err);
  bxPass(p->pErr, &err);
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
    if (nDay > 0 && strcmp(p->zKind, "text") != 0 &&
        strcmp(p->zKind, "buffer") != 0) {
      p->iUntil = p->iNow + nDay * BX_MS_PER_DAY;
    }
    refuseHeld(p);
    eraseSecurely(p);
    bxAskOnce(p->pHome,
        "DELETE FROM main.retention__erased WHERE until <= " STEADY, p->pErr,
        "");
    iNumber = record(p);
    if (p->pErr->rc == SQLITE_OK) bxReturnJson(pCall, certificate(p, iNumber));
    sqlite3_free(sqlite3_str_finish(p->pErased));
    sqlite3_free(sqlite3_str_finish(p->pHeld));
  }
  sqlite3_free(p->zWhat);
}
