/*
** approve.c: what an approved action keeps, as one SQL expression.
**
** evApproved(ts) stands where a column "action" is in scope, a valid JSON
** object; ts is the SQL of the row's own time, for actions that carry none.
** Its value is the action
**   - without network data;
**   - with each strategy of the fallback chain cut down to type, confidence,
**     selector and the few fields of its metadata that a replay of that type
**     needs (a text to 100 characters);
**   - with ocrText and confidence as all that is left of the vision data;
**   - with a mouse trail of one point, its end.
** Both shapes are meant: visionData, mouseData, networkData beside the chain,
** and evidence.vision, evidence.mouse, evidence.network. What has not the
** expected type (strategies that are no array, a strategy or metadata that is
** no object, a mouse record without an end point) stays as it is, and
** evProblems() names it. Approving twice changes nothing.
**
** The large parts go first, in one pass over the text (json_remove); the
** rest works on what is left.
*/
#include "evidence.h"
SQLITE_EXTENSION_INIT3

/*
** The strategies of document j, one row each, in steps that keep the nesting
** of the SQL within what SQLite's parser takes: v is the strategy when it is
** an object, raw anything else; text is a text cut to 100 characters; members
** are what the type keeps of the metadata, NULL for types that keep none.
*/
#define MEMBER(key, path) "coalesce(',\"" key "\":' || (v -> '" path "'), '')"
#define META(key) MEMBER(key, "$.metadata." key)

static const char
    zStrategies[] =
        "SELECT '[' || coalesce(group_concat(coalesce(raw, '{' || "
        "substr(" MEMBER("type", "$.type") " || " MEMBER("confidence", "$."
                                                                       "confide"
                                                                       "nce") " || CASE WHEN v ->> '$.selector' NOT IN ('', 0) THEN " MEMBER(
            "selector",
            "$.selector") " ELSE '' END"
                          " || CASE WHEN json_type(v, '$.metadata') = 'object' "
                          "AND members NOT NULL"
                          " THEN ',\"metadata\":{' || substr(members, 2) || '}'"
                          /* a value that a script would take for false is no metadata */
                          " WHEN v ->> '$.metadata' NOT IN ('', 0) AND members "
                          "NOT NULL"
                          " THEN ',\"metadata\":' || (v -> '$.metadata') ELSE "
                          "'' END"
                          ", 2) || '}')), '') || ']' FROM (SELECT v, raw, CASE "
                          "v ->> '$.type'"
                          " WHEN 'cdp_semantic' THEN " META("role") " || " META("name") " WHEN 'cdp_power' THEN coalesce(',\"text\":' || text, '') || " META("label") " || " META("placeholder") " WHEN 'vision_ocr' THEN " META("targetText") " WHEN 'coordinates' THEN " META(
                              "x") " || " META("y") " WHEN 'evidence_scoring' "
                                                    "THEN " META("endpoint") " "
                                                                             "E"
                                                                             "N"
                                                                             "D"
                                                                             " "
                                                                             "A"
                                                                             "S"
                                                                             " "
                                                                             "m"
                                                                             "e"
                                                                             "m"
                                                                             "b"
                                                                             "e"
                                                                             "r"
                                                                             "s"
                                                                             " "
                                                                             "F"
                                                                             "R"
                                                                             "O"
                                                                             "M"
                                                                             " "
                                                                             "("
                                                                             "S"
                                                                             "E"
                                                                             "L"
                                                                             "E"
                                                                             "C"
                                                                             "T"
                                                                             " "
                                                                             "v"
                                                                             ","
                                                                             " "
                                                                             "r"
                                                                             "a"
                                                                             "w"
                                                                             ","
                                                                             " "
                                                                             "C"
                                                                             "A"
                                                                             "S"
                                                                             "E"
                                                                             " "
                                                                             "W"
                                                                             "H"
                                                                             "E"
                                                                             "N"
                                                                             " "
                                                                             "j"
                                                                             "s"
                                                                             "o"
                                                                             "n"
                                                                             "_"
                                                                             "t"
                                                                             "y"
                                                                             "p"
                                                                             "e"
                                                                             "("
                                                                             "v"
                                                                             ","
                                                                             " "
                                                                             "'"
                                                                             "$"
                                                                             "."
                                                                             "m"
                                                                             "e"
                                                                             "t"
                                                                             "a"
                                                                             "d"
                                                                             "a"
                                                                             "t"
                                                                             "a"
                                                                             "."
                                                                             "t"
                                                                             "e"
                                                                             "x"
                                                                             "t"
                                                                             "'"
                                                                             ")"
                                                                             " "
                                                                             "="
                                                                             " "
                                                                             "'"
                                                                             "t"
                                                                             "e"
                                                                             "x"
                                                                             "t"
                                                                             "'"
                                                                             " "
                                                                             "A"
                                                                             "N"
                                                                             "D"
                                                                             " "
                                                                             "l"
                                                                             "e"
                                                                             "n"
                                                                             "g"
                                                                             "t"
                                                                             "h"
                                                                             "("
                                                                             "v"
                                                                             " "
                                                                             "-"
                                                                             ">"
                                                                             ">"
                                                                             " "
                                                                             "'"
                                                                             "$"
                                                                             "."
                                                                             "m"
                                                                             "e"
                                                                             "t"
                                                                             "a"
                                                                             "d"
                                                                             "a"
                                                                             "t"
                                                                             "a"
                                                                             "."
                                                                             "t"
                                                                             "e"
                                                                             "x"
                                                                             "t"
                                                                             "'"
                                                                             ")"
                                                                             " "
                                                                             ">"
                                                                             " "
                                                                             "1"
                                                                             "0"
                                                                             "0"
                                                                             " "
                                                                             "T"
                                                                             "H"
                                                                             "E"
                                                                             "N"
                                                                             " "
                                                                             "j"
                                                                             "s"
                                                                             "o"
                                                                             "n"
                                                                             "_"
                                                                             "q"
                                                                             "u"
                                                                             "o"
                                                                             "t"
                                                                             "e"
                                                                             "("
                                                                             "s"
                                                                             "u"
                                                                             "b"
                                                                             "s"
                                                                             "t"
                                                                             "r"
                                                                             "("
                                                                             "v"
                                                                             " "
                                                                             "-"
                                                                             ">"
                                                                             ">"
                                                                             " "
                                                                             "'"
                                                                             "$"
                                                                             "."
                                                                             "m"
                                                                             "e"
                                                                             "t"
                                                                             "a"
                                                                             "d"
                                                                             "a"
                                                                             "t"
                                                                             "a"
                                                                             "."
                                                                             "t"
                                                                             "e"
                                                                             "x"
                                                                             "t"
                                                                             "'"
                                                                             ","
                                                                             " "
                                                                             "1"
                                                                             ","
                                                                             " "
                                                                             "1"
                                                                             "0"
                                                                             "0"
                                                                             ")"
                                                                             ")"
                                                                             " "
                                                                             "E"
                                                                             "L"
                                                                             "S"
                                                                             "E"
                                                                             " "
                                                                             "n"
                                                                             "u"
                                                                             "l"
                                                                             "l"
                                                                             "i"
                                                                             "f"
                                                                             "("
                                                                             "v"
                                                                             " "
                                                                             "-"
                                                                             ">"
                                                                             " "
                                                                             "'"
                                                                             "$"
                                                                             "."
                                                                             "m"
                                                                             "e"
                                                                             "t"
                                                                             "a"
                                                                             "d"
                                                                             "a"
                                                                             "t"
                                                                             "a"
                                                                             "."
                                                                             "t"
                                                                             "e"
                                                                             "x"
                                                                             "t"
                                                                             "'"
                                                                             ","
                                                                             " "
                                                                             "'"
                                                                             "n"
                                                                             "u"
                                                                             "l"
                                                                             "l"
                                                                             "'"
                                                                             ")"
                                                                             " "
                                                                             "E"
                                                                             "N"
                                                                             "D"
                                                                             " "
                                                                             "A"
                                                                             "S"
                                                                             " "
                                                                             "t"
                                                                             "e"
                                                                             "x"
                                                                             "t"
                                                                             " "
                                                                             "F"
                                                                             "R"
                                                                             "O"
                                                                             "M"
                                                                             " "
                                                                             "("
                                                                             "S"
                                                                             "E"
                                                                             "L"
                                                                             "E"
                                                                             "C"
                                                                             "T"
                                                                             " "
                                                                             "C"
                                                                             "A"
                                                                             "S"
                                                                             "E"
                                                                             " "
                                                                             "e"
                                                                             "."
                                                                             "t"
                                                                             "y"
                                                                             "p"
                                                                             "e"
                                                                             " "
                                                                             "W"
                                                                             "H"
                                                                             "E"
                                                                             "N"
                                                                             " "
                                                                             "'"
                                                                             "o"
                                                                             "b"
                                                                             "j"
                                                                             "e"
                                                                             "c"
                                                                             "t"
                                                                             "'"
                                                                             " "
                                                                             "T"
                                                                             "H"
                                                                             "E"
                                                                             "N"
                                                                             " "
                                                                             "e"
                                                                             "."
                                                                             "v"
                                                                             "a"
                                                                             "l"
                                                                             "u"
                                                                             "e"
                                                                             " "
                                                                             "E"
                                                                             "N"
                                                                             "D"
                                                                             " "
                                                                             "A"
                                                                             "S"
                                                                             " "
                                                                             "v"
                                                                             ","
                                                                             " "
                                                                             "C"
                                                                             "A"
                                                                             "S"
                                                                             "E"
                                                                             " "
                                                                             "W"
                                                                             "H"
                                                                             "E"
                                                                             "N"
                                                                             " "
                                                                             "e"
                                                                             "."
                                                                             "t"
                                                                             "y"
                                                                             "p"
                                                                             "e"
                                                                             " "
                                                                             "<"
                                                                             ">"
                                                                             " "
                                                                             "'"
                                                                             "o"
                                                                             "b"
                                                                             "j"
                                                                             "e"
                                                                             "c"
                                                                             "t"
                                                                             "'"
                                                                             " "
                                                                             "T"
                                                                             "H"
                                                                             "E"
                                                                             "N"
                                                                             " "
                                                                             "j"
                                                                             " "
                                                                             "-"
                                                                             ">"
                                                                             " "
                                                                             "e"
                                                                             "."
                                                                             "f"
                                                                             "u"
                                                                             "l"
                                                                             "l"
                                                                             "k"
                                                                             "e"
                                                                             "y"
                                                                             " "
                                                                             "E"
                                                                             "N"
                                                                             "D"
                                                                             " "
                                                                             "A"
                                                                             "S"
                                                                             " "
                                                                             "r"
                                                                             "a"
                                                                             "w"
                                                                             " "
                                                                             "F"
                                                                             "R"
                                                                             "O"
                                                                             "M"
                                                                             " "
                                                                             "j"
                                                                             "s"
                                                                             "o"
                                                                             "n"
                                                                             "_"
                                                                             "e"
                                                                             "a"
                                                                             "c"
                                                                             "h"
                                                                             "("
                                                                             "j"
                                                                             ","
                                                                             " "
                                                                             "'"
                                                                             "$"
                                                                             "."
                                                                             "f"
                                                                             "a"
                                                                             "l"
                                                                             "l"
                                                                             "b"
                                                                             "a"
                                                                             "c"
                                                                             "k"
                                                                             "C"
                                                                             "h"
                                                                             "a"
                                                                             "i"
                                                                             "n"
                                                                             "."
                                                                             "s"
                                                                             "t"
                                                                             "r"
                                                                             "a"
                                                                             "t"
                                                                             "e"
                                                                             "g"
                                                                             "i"
                                                                             "e"
                                                                             "s"
                                                                             "'"
                                                                             ")"
                                                                             " "
                                                                             "A"
                                                                             "S"
                                                                             " "
                                                                             "e"
                                                                             ")"
                                                                             ")"
                                                                             ")";

/* What is left of vision data; %s is its path. */
static const char zVision[] =
    "CASE WHEN json_type(j, '%s') = 'object' THEN '{' || substr("
    "coalesce(',\"ocrText\":' || (j -> '%s.ocrText'), '') || "
    "coalesce(',\"confidence\":' || (j -> '%s.confidence'), ''), 2) || '}' "
    "ELSE j -> '%s' END";

/* And of mouse data; the second parameter is the row's time. */
static const char zMouse[] =
    "CASE WHEN json_type(j, '%s.endpoint') = 'object' THEN '{\"trail\":[' || "
    "json_set(j -> '%s.endpoint', '$.timestamp', json(coalesce("
    "j -> '$.timestamp', %s))) || '],\"endpoint\":' || (j -> '%s.endpoint') "
    "|| ',\"duration\":0}' ELSE j -> '%s' END";

static void setVision(sqlite3_str *pOut, const char *zPath) {
  sqlite3_str_appendf(pOut, ", '%s', json(", zPath);
  sqlite3_str_appendf(pOut, zVision, zPath, zPath, zPath, zPath);
  sqlite3_str_appendall(pOut, ")");
}

static void setMouse(sqlite3_str *pOut, const char *zPath, const char *zTime) {
  sqlite3_str_appendf(pOut, ", '%s', json(", zPath);
  sqlite3_str_appendf(pOut, zMouse, zPath, zPath, zTime, zPath, zPath);
  sqlite3_str_appendall(pOut, ")");
}

char *evApproved(const char *zTime, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  char *z;
  sqlite3_str_appendf(pOut,
      "(WITH slim(j) AS MATERIALIZED (SELECT json_remove(action, "
      "'$.networkData', '$.evidence.network', '$.visionData.rawOcrResult', "
      "'$.visionData.screenshot', '$.visionData.allTextResults', "
      "'$.evidence.vision.rawOcrResult', '$.evidence.vision.screenshot', "
      "'$.evidence.vision.allTextResults')) SELECT json_replace(j, "
      "'$.fallbackChain.strategies', json(CASE WHEN json_type(j, "
      "'$.fallbackChain.strategies') = 'array' THEN (%s) ELSE "
      "j -> '$.fallbackChain.strategies' END)",
      zStrategies);
  setVision(pOut, "$.visionData");
  setVision(pOut, "$.evidence.vision");
  setMouse(pOut, "$.mouseData", zTime);
  setMouse(pOut, "$.evidence.mouse", zTime);
  sqlite3_str_appendall(pOut, ") FROM slim)");
  z = sqlite3_str_finish(pOut);
  if (z == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  return z;
}

/*---------------------------------------------------- what was kept ----*/

/* One row for each thing that approval kept because it could not read it. */
#define PROBLEMS                                                               \
  "WITH doc(id, j) AS MATERIALIZED (SELECT id, CASE WHEN json_valid(action) "  \
  "THEN action END FROM %s WHERE pinned = 0) SELECT coalesce("                 \
  "json_group_array(json_object('id', id, 'path', path, 'problem', problem))," \
  " '[]') FROM (SELECT * FROM ("                                               \
  "SELECT id, '$' AS path, CASE WHEN j IS NULL THEN 'damaged JSON' END "       \
  "AS problem FROM doc "                                                       \
  "UNION ALL SELECT id, '$.fallbackChain.strategies', CASE WHEN "              \
  "json_type(j, '$.fallbackChain.strategies') <> 'array' THEN "                \
  "'not an array' END FROM doc "                                               \
  "UNION ALL SELECT doc.id, e.fullkey, CASE WHEN json_type(j, "                \
  "'$.fallbackChain.strategies') <> 'array' THEN NULL WHEN e.type <> "         \
  "'object' THEN 'not an object' WHEN e.value ->> '$.type' IN "                \
  "('cdp_semantic', 'cdp_power', 'vision_ocr', 'coordinates', "                \
  "'evidence_scoring') AND json_type(e.value, '$.metadata') NOT IN "           \
  "('object', 'null', 'false') AND e.value ->> '$.metadata' NOT IN ('', 0) "   \
  "THEN 'metadata is not an object' END "                                      \
  "FROM doc, json_each(j, '$.fallbackChain.strategies') AS e "                 \
  "UNION ALL SELECT id, path, CASE WHEN json_type(j, path) NOT IN "            \
  "('object', 'null') THEN 'not an object' WHEN path LIKE '%%mouse%%' AND "    \
  "json_type(j, path) = 'object' AND coalesce(json_type(j, path || "           \
  "'.endpoint'), '') <> 'object' THEN 'no end point' END FROM doc, "           \
  "(SELECT '$.visionData' AS path UNION ALL SELECT '$.mouseData' "             \
  "UNION ALL SELECT '$.evidence.vision' UNION ALL SELECT "                     \
  "'$.evidence.mouse')) WHERE problem IS NOT NULL LIMIT 100)"

char *evProblems(EvBuffer *p, BxErr *pErr) {
  char *zFrom = evActions(p, pErr);
  char *zSql = zFrom ? sqlite3_mprintf(PROBLEMS, zFrom) : 0;
  char *zOut = 0;
  sqlite3_stmt *pStmt = 0;
  sqlite3 *db = p->base.stmts.bx->db;
  if (zSql == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  if (pErr->rc == SQLITE_OK) {
    bxFailDb(pErr, db, sqlite3_prepare_v2(db, zSql, -1, &pStmt, 0));
  }
  if (bxRow(pStmt, pErr)) {
    zOut = sqlite3_mprintf("%s", sqlite3_column_text(pStmt, 0));
    if (zOut == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  }
  sqlite3_finalize(pStmt);
  sqlite3_free(zSql);
  sqlite3_free(zFrom);
  return zOut;
}
