/*
** import_sqlite.c: rollout_import_from(program, schema[, now]): the sessions of a program
** that keeps them in SQLite, from an attached database.
**
** Each row becomes a line, a JSON object that has the whole row: "store",
** "session", "agent", "type", "role" and "row". A column that has JSON is JSON
** there, and a blob that has none is hexadecimal. The lines are imported as those
** of a file, by rows of rollout_formats and blackbox_places. So a second import
** takes the rows that are new or were changed. The tables are only read.
**
** One session is in memory at a time. Returns what rollout_import() returns; the
** lines are counted over all sessions.
*/
#include "import.h"
SQLITE_EXTENSION_INIT3

#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#define LEVELS 3

/* The rows of a table that belong to a row of the level above. In zFrom, t is the
** table, ?1 is the key of that row, and ?2 the body of the session. */
typedef struct FromLevel {
  const char *zTable; /* NULL: zRow alone says what a row is */
  const char *zType;
  const char *zKey;  /* by which the rows below name this one */
  const char *zRole; /* NULL: that of the row above */
  const char *zFrom;
  const char *zRow; /* what a row becomes, with %s for all of it; NULL: that */
} FromLevel;

typedef struct FromProgram {
  const char *zName, *zFormat;
  const char *zSessions; /* the ids; NULL: those of the first table */
  FromLevel aLevel[LEVELS];
  const char *zBody; /* of session ?1: JSON that may be compressed; or NULL */
} FromProgram;

/* The JSON of a value of Cursor, NULL if it is none. */
#define CURSOR_JSON(x)                                                         \
  "CASE WHEN json_valid(CAST(" x " AS TEXT)) "                                 \
  "OR json_valid(CAST(" x " AS TEXT) || ' ') THEN CAST(" x " AS TEXT) END"
#define CURSOR_KEYS(prefix)                                                    \
  "BETWEEN '" prefix ":' || ?1 || ':' AND '" prefix ":' || ?1 || ';'"

/* clang-format off */
/* The bubbles of a session of Cursor: rows of their own or, in older versions,
** inside of the composer. They are in the order that the composer has. */
#define CURSOR_COMPOSER(list)                                                  \
  "FROM main.cursorDiskKV AS c, json_each(" CURSOR_JSON("c.value")             \
  ", '$." list "') AS h WHERE c.key = 'composerData:' || ?1"
#define CURSOR_ID                                                              \
  "CASE h.type WHEN 'object' THEN h.value ->> '$.bubbleId' END"
#define CURSOR_BUBBLES                                                         \
  "FROM (SELECT key, value, rowid AS at FROM main.cursorDiskKV "               \
  "WHERE key " CURSOR_KEYS("bubbleId") " UNION ALL "                           \
  "SELECT 'bubbleId:' || ?1 || ':' || coalesce(" CURSOR_ID ", h.key), "        \
  "h.value, h.key " CURSOR_COMPOSER("conversation") " AND h.type = 'object' "  \
  "AND NOT EXISTS (SELECT 1 FROM main.cursorDiskKV AS b WHERE b.key = "        \
  "'bubbleId:' || ?1 || ':' || coalesce(" CURSOR_ID ", h.key))) AS t "         \
  "LEFT JOIN (SELECT h.key AS at, " CURSOR_ID " AS id "                        \
  CURSOR_COMPOSER("fullConversationHeadersOnly") ") AS h "                     \
  "ON h.id = substr(t.key, length(?1) + 11) ORDER BY h.at IS NULL, h.at, "     \
  "(" CURSOR_JSON("t.value") ") ->> '$.timestamp', t.at"

static const FromProgram aProgram[] = {
    {"opencode", "opencode", 0,
        {{"session", "session", "t.id", 0,
             "FROM main.session AS t WHERE t.id = ?1", 0},
            {"message", "message", "t.id",
                "CASE WHEN json_valid(t.data) OR json_valid(t.data || ' ') "
                "THEN t.data ->> '$.role' END",
                "FROM main.message AS t WHERE t.session_id = ?1 "
                "ORDER BY t.time_created, t.id", 0},
            {"part", "part", "t.id", 0,
                "FROM main.part AS t WHERE t.message_id = ?1 ORDER BY t.id",
                0}}, 0},
    {"goose", "goose-store", 0,
        {{"sessions", "session", "t.id", 0,
             "FROM main.sessions AS t WHERE t.id = ?1", 0},
            {"messages", "message", "t.id", "t.role",
                "FROM main.messages AS t WHERE t.session_id = ?1 "
                "ORDER BY t.id", 0}}, 0},
    {"cursor", "cursor-store",
        "SELECT substr(key, 14), NULL FROM main.cursorDiskKV "
        "WHERE key > 'composerData:' AND key < 'composerData;' UNION "
        "SELECT substr(key, 10, instr(substr(key, 10), ':') - 1), NULL "
        "FROM main.cursorDiskKV WHERE key > 'bubbleId:' AND key < 'bubbleId;' "
        "AND instr(substr(key, 10), ':') > 1 ORDER BY 1",
        {{"cursorDiskKV", "composer", "?1", 0,
             "FROM (SELECT 1) LEFT JOIN main.cursorDiskKV AS t "
             "ON t.key = 'composerData:' || ?1", 0},
            {"cursorDiskKV", "bubble", "t.key",
                "CASE (" CURSOR_JSON("t.value") ") ->> '$.type' "
                "WHEN 1 THEN 'user' "
                "WHEN (" CURSOR_JSON("t.value") ") ->> '$.type' "
                "THEN 'assistant' END", CURSOR_BUBBLES, 0}}, 0},
    {"zed", "zed", 0,
        {{"threads", "thread", "t.id", 0,
             "FROM main.threads AS t WHERE t.id = ?1",
             "iif(json_type(?2) = 'object', json_set(%s, '$.data', "
             "json(json_remove(?2, '$.messages'))), %s)"},
            {0, "message", "t.key",
                "CASE WHEN t.type <> 'object' THEN NULL "
                "WHEN t.value -> '$.User' IS NOT NULL THEN 'user' "
                "WHEN t.value -> '$.Agent' IS NOT NULL THEN 'assistant' "
                "ELSE t.value ->> '$.role' END",
                "FROM json_each(?2, '$.messages') AS t",
                "iif(t.type IN ('object', 'array'), json(t.value), "
                "json_quote(t.value))"}},
        "SELECT data FROM main.threads WHERE id = ?1"},
    {"warp", "warp",
        "SELECT conversation_id, NULL FROM main.agent_conversations "
        "UNION SELECT conversation_id, NULL FROM main.ai_queries ORDER BY 1",
        {{"agent_conversations", "conversation", "?1", 0,
             "FROM (SELECT 1) LEFT JOIN main.agent_conversations AS t "
             "ON t.conversation_id = ?1", 0},
            {"ai_queries", "query", "t.exchange_id", "'user'",
                "FROM main.ai_queries AS t WHERE t.conversation_id = ?1 "
                "ORDER BY t.start_ts", 0}}, 0},
    {"hermes", "hermes",
        "SELECT DISTINCT session_id, NULL FROM main.messages "
        "WHERE session_id IS NOT NULL ORDER BY 1",
        {{"messages", "message", "t.id", "t.role",
             "FROM main.messages AS t WHERE t.session_id = ?1 "
             "ORDER BY t.timestamp, t.id", 0}}, 0},
};
/* clang-format on */

const char *bxImportProgram(const char *zFormat) {
  size_t i = 0, n = sizeof(aProgram) / sizeof(*aProgram);
  while (i < n && strcmp(aProgram[i].zFormat, zFormat) != 0) i++;
  return i < n ? aProgram[i].zName : zFormat;
}

typedef struct From {
  const FromProgram *pProgram;
  const RolloutFormat *pFormat;
  const char *zSchema;
  BxStmts *pHome;
  sqlite3_stmt *apStmt[LEVELS]; /* the rows of each level */
  sqlite3_stmt *pBody;
  char *zBody; /* of the session, if that is JSON */
  i64 iNow;
  ImportReport report;
  BxErr *pErr;
} From;

/*------------------------------------------------------------------ SQL ----*/

/* An expression for the JSON of a row of t, to sqlite3_free(). (SQLite's JSON
** functions read a text up to a NUL.) */
static char *rowJson(From *p, const char *zTable) {
  static const char zColumns[] =
      "SELECT name, json_quote(name) || ':' FROM pragma_table_info(?1, ?2)";
  static const char zValue[] =
      "(SELECT CASE WHEN x IS NULL THEN 'null' WHEN abs(x) > 1e308 AND "
      "typeof(x) = 'real' THEN json_quote(CAST(x AS TEXT)) WHEN typeof(x) IN "
      "('integer', 'real') THEN json_quote(x) WHEN substr(CAST(x AS TEXT), 1, "
      "1) IN ('{', "
      "'[') AND instr(CAST(x AS BLOB), x'00') = 0 AND (json_valid(CAST(x AS "
      "TEXT)) OR json_valid(CAST(x AS TEXT) || "
      "' ')) THEN json(CAST(x AS TEXT)) WHEN typeof(x) = 'blob' THEN "
      "json_quote(hex(x)) ELSE json_quote(x) END FROM (SELECT t.\"%w\" AS x))";
  sqlite3_stmt *pRow = bxStmt(p->pHome, zColumns, p->pErr);
  sqlite3_str *pOut = sqlite3_str_new(0);
  bxBind(pRow, p->pErr, "tt", zTable, p->zSchema);
  while (bxStep(pRow, p->pErr)) {
    const char *zName = bxColumnText(pRow, 0, p->pErr);
    const char *zKey = bxColumnText(pRow, 1, p->pErr);
    if (zName == 0 || zKey == 0) break;
    sqlite3_str_appendf(
        pOut, "%s||%Q||", sqlite3_str_length(pOut) ? "||','" : "'{'", zKey);
    sqlite3_str_appendf(pOut, zValue, zName);
  }
  bxReset(pRow, p->pErr);
  if (sqlite3_str_length(pOut) == 0) {
    bxFail(p->pErr, SQLITE_CONSTRAINT,
        "ValidationError: schema %Q has no table %Q, which a database of %s "
        "has; attach that database, and give its name",
        p->zSchema, zTable, p->pProgram->zName);
  } else {
    sqlite3_str_appendall(pOut, "||'}'");
  }
  return bxStrFinish(pOut, p->pErr);
}

/* Prepares SQL and frees it. */
static sqlite3_stmt *prepareOwned(From *p, char *zOwned) {
  sqlite3_stmt *pStmt = 0;
  if (p->pErr->rc == SQLITE_OK && zOwned != 0) {
    pStmt = bxPrepareSql(p->pHome->bx->db, zOwned, p->pErr);
  }
  sqlite3_free(zOwned);
  return pStmt;
}

/* The rows of a level: key, role, and the whole row. */
static void prepareLevel(From *p, int i) {
  const FromLevel *pLevel = &p->pProgram->aLevel[i];
  char *zAll = pLevel->zTable ? rowJson(p, pLevel->zTable) : 0;
  char *zRow = pLevel->zRow
                   ? bxPrintf(p->pErr, pLevel->zRow, zAll ? zAll : "", zAll)
                   : zAll;
  char *zFrom = bxCheckMem(bxExpand(pLevel->zFrom, p->zSchema, 0), p->pErr);
  assert(i >= 0 && i < LEVELS);
  assert(p->apStmt[i] == 0);
  if (zRow != 0 && zFrom != 0) {
    p->apStmt[i] = prepareOwned(
        p, bxPrintf(p->pErr, "SELECT CAST(%s AS TEXT), %s, %s %s", pLevel->zKey,
               pLevel->zRole ? pLevel->zRole : "NULL", zRow, zFrom));
  }
  if (zRow != zAll) sqlite3_free(zRow);
  sqlite3_free(zAll);
  sqlite3_free(zFrom);
}

/* The sessions: the id of each, and that of the session at whose root it is, if
** a column parent_id makes it the session of a sub-agent. */
static sqlite3_stmt *prepareSessions(From *p) {
  const char *zTable = p->pProgram->aLevel[0].zTable;
  char *zRow;
  sqlite3_stmt *pStmt;
  if (p->pProgram->zSessions != 0) {
    return prepareOwned(p,
        bxCheckMem(bxExpand(p->pProgram->zSessions, p->zSchema, 0), p->pErr));
  }
  zRow = rowJson(p, zTable);
  pStmt = prepareOwned(p,
      bxPrintf(p->pErr,
          "WITH s(id, up) AS (SELECT t.id, (%s) ->> '$.parent_id' "
          "FROM \"%w\".%s AS t) SELECT s.id, (WITH RECURSIVE root(id, n) AS "
          "(SELECT s.up, 1 UNION ALL SELECT p.up, root.n + 1 FROM root JOIN s "
          "AS p ON p.id = root.id WHERE root.n < 100) SELECT id FROM root "
          "WHERE id IS NOT NULL ORDER BY n DESC LIMIT 1) FROM s ORDER BY s.id",
          zRow ? zRow : "''", p->zSchema, zTable));
  sqlite3_free(zRow);
  return pStmt;
}

/*---------------------------------------------------------------- lines ----*/

/* Appends the lines of a level below a key, and those below them. */
static void appendLevel(From *p, int i, const char *zUp, const char *zRole,
    const char *zHead, sqlite3_str *pOut) {
  const FromLevel *pLevel = &p->pProgram->aLevel[i];
  sqlite3_stmt *pRow;
  assert(i >= 0 && i <= LEVELS);
  if (i == LEVELS || pLevel->zType == 0) return;
  pRow = p->apStmt[i];
  bxBind(pRow, p->pErr, p->pBody ? "tt" : "t", zUp, p->zBody);
  while (bxStep(pRow, p->pErr)) {
    const char *zKey = bxColumnText(pRow, 0, p->pErr);
    const char *zOwn = pLevel->zRole ? bxColumnText(pRow, 1, p->pErr) : zRole;
    const char *zRow = bxColumnText(pRow, 2, p->pErr);
    sqlite3_str_appendall(pOut, zHead);
    bxImportMember(pOut, "type", pLevel->zType);
    bxImportMember(pOut, "role", zOwn);
    sqlite3_str_appendf(pOut, ",\"row\":%s}\n", zRow ? zRow : "null");
    if (zKey != 0) appendLevel(p, i + 1, zKey, zOwn, zHead, pOut);
    bxFail(p->pErr, sqlite3_str_errcode(pOut),
        "RolloutTooLongError: Rollout too long: the rows of session %Q do not "
        "fit into memory",
        zUp);
  }
  bxReset(pRow, p->pErr);
}

/* A text with a NUL would be cut off there. */
static int isWholeText(const char *z, size_t n) {
  return memchr(z, 0, n) == 0 && bxIsUtf8((const unsigned char *)z, (int)n);
}

/* The text that data is, which may be compressed, to sqlite3_free(); NULL if it is
** damaged, too long, or not a text. */
static char *unzipBody(const void *pData, int nData, BxErr *pErr) {
  const size_t nMost = 2 * (size_t)ROLLOUT_MAX_PAYLOAD;
  size_t nRoom = 8 * (size_t)nData, nDone;
  ZSTD_DCtx *pUnzip;
  char *z = 0;
  int bMore = 1;
  assert(nData >= 0);
  if (pData == 0 || pErr->rc != SQLITE_OK) return 0;
  if (nData <= 4 || memcmp(pData, "\x28\xb5\x2f\xfd", 4) != 0) {
    if (!isWholeText(pData, (size_t)nData)) return 0;
    return bxPrintf(pErr, "%.*s", nData, (const char *)pData);
  }
  pUnzip = bxZstdDecompressor(pErr);
  for (; pUnzip != 0 && bMore; nRoom *= 4) {
    if (nRoom > nMost) nRoom = nMost;
    sqlite3_free(z);
    z = bxCheckMem(sqlite3_malloc64(nRoom + 1), pErr);
    if (z == 0) break;
    nDone = ZSTD_decompressDCtx(pUnzip, z, nRoom, pData, (size_t)nData);
    if (!ZSTD_isError(nDone)) {
      z[nDone] = 0;
      if (isWholeText(z, nDone)) break;
    } else if (ZSTD_getErrorCode(nDone) == ZSTD_error_memory_allocation) {
      bxCheckMem(0, pErr);
    }
    bMore = ZSTD_isError(nDone) && nRoom < nMost &&
            ZSTD_getErrorCode(nDone) == ZSTD_error_dstSize_tooSmall;
  }
  ZSTD_freeDCtx(pUnzip);
  if (bMore) return z;
  sqlite3_free(z);
  return 0;
}

/* Reads the body of a session. */
static void readFromBody(From *p, const char *zId) {
  sqlite3_free(p->zBody);
  p->zBody = 0;
  bxBind(p->pBody, p->pErr, "t", zId);
  if (bxStep(p->pBody, p->pErr)) {
    p->zBody = unzipBody(sqlite3_column_blob(p->pBody, 0),
        sqlite3_column_bytes(p->pBody, 0), p->pErr);
  }
  bxReset(p->pBody, p->pErr);
  if (p->zBody != 0 &&
      !bxIsJson(p->pHome->bx, p->zBody, (i64)strlen(p->zBody), p->pErr)) {
    sqlite3_free(p->zBody);
    p->zBody = 0;
  }
}

/* Imports a session. The one of a sub-agent belongs to the session at its root. */
static void importSession(From *p, const char *zId, const char *zRoot) {
  sqlite3_str *pHead = sqlite3_str_new(0), *pOut = sqlite3_str_new(0);
  char *zHead, *zLines;
  i64 n;
  assert(zId != 0);
  bxImportMember(pHead, "store", p->pProgram->zName);
  bxImportMember(pHead, "session", zRoot ? zRoot : zId);
  bxImportMember(pHead, "agent", zRoot ? zId : 0);
  zHead = bxStrFinish(pHead, p->pErr);
  if (p->pBody != 0) readFromBody(p, zId);
  if (zHead != 0) appendLevel(p, 0, zId, 0, zHead, pOut);
  n = sqlite3_str_length(pOut);
  zLines = bxStrFinish(pOut, p->pErr);
  if (p->pErr->rc == SQLITE_OK && zLines != 0) {
    bxRolloutImportMade(
        p->pHome, p->pFormat, zLines, n, p->iNow, &p->report, p->pErr);
  }
  sqlite3_free(zHead);
  sqlite3_free(zLines);
}

static void importSessions(From *p) {
  sqlite3_stmt *pRow = prepareSessions(p);
  const char *zBody = p->pProgram->zBody;
  int i;
  for (i = 0; i < LEVELS && p->pProgram->aLevel[i].zType != 0; i++) {
    prepareLevel(p, i);
  }
  if (zBody != 0) {
    p->pBody =
        prepareOwned(p, bxCheckMem(bxExpand(zBody, p->zSchema, 0), p->pErr));
  }
  while (bxStep(pRow, p->pErr)) {
    const char *zId = bxColumnText(pRow, 0, p->pErr);
    const char *zRoot = bxColumnText(pRow, 1, p->pErr);
    if (zId != 0 && p->pErr->rc == SQLITE_OK) importSession(p, zId, zRoot);
  }
  sqlite3_finalize(pRow);
  for (i = 0; i < LEVELS; i++) sqlite3_finalize(p->apStmt[i]);
  sqlite3_finalize(p->pBody);
  sqlite3_free(p->zBody);
}

/*------------------------------------------------------------- function ----*/

void bxRolloutImportFrom(BxCall *pCall) {
  static const char zAttached[] = "SELECT count(*) FROM pragma_database_list "
                                  "WHERE name = ?1 COLLATE NOCASE";
  From from, *p = &from;
  const RolloutRules *pRules;
  const char *zName;
  size_t i;
  memset(p, 0, sizeof(*p));
  p->pErr = &pCall->err;
  bxRefuseInTransaction(pCall);
  zName = bxText(pCall->aArg[0], "program", 100, 0, p->pErr);
  p->zSchema = bxText(pCall->aArg[1], "schema", 1000, 0, p->pErr);
  p->iNow = bxTime(bxArg(pCall, 2), "now", p->pErr);
  p->pHome = bxRolloutSchema(pCall->bx, p->pErr);
  if (p->pErr->rc != SQLITE_OK) return;
  bxLock(p->pHome, p->pErr);
  pRules = bxRolloutRules(p->pHome, 1, p->pErr);
  if (pRules == 0) return;
  for (i = 0; i < sizeof(aProgram) / sizeof(*aProgram); i++) {
    if (strcmp(aProgram[i].zName, zName) == 0) p->pProgram = &aProgram[i];
  }
  if (p->pProgram == 0) {
    bxFail(p->pErr, SQLITE_CONSTRAINT,
        "ValidationError: no database of %Q can be read; the programs are "
        "opencode, goose, cursor, zed, hermes and warp",
        zName);
    return;
  }
  p->pFormat = bxRolloutFormatNamed(pRules, p->pProgram->zFormat);
  if (p->pFormat == 0) {
    bxFail(p->pErr, SQLITE_CONSTRAINT,
        "ValidationError: rollout_formats has no format %Q; INSERT it again, "
        "or call blackbox_install()",
        p->pProgram->zFormat);
  }
  if (bxQueryInt(p->pHome, zAttached, p->pErr, "t", p->zSchema) == 0) {
    bxFail(p->pErr, SQLITE_CONSTRAINT,
        "ValidationError: there is no schema %Q; ATTACH the database first, "
        "and give the name after AS",
        p->zSchema);
  }
  if (p->pErr->rc != SQLITE_OK) return;
  bxImportReportBegin(&p->report);
  importSessions(p);
  bxFileLimitTend(p->pHome, p->report.nNew, pCall->pCtx == 0, p->pErr);
  bxRolloutExplain(p->pErr, "WriteError: Write failed: ");
  bxImportReportReturn(&p->report, p->pProgram->zFormat, pCall);
}
