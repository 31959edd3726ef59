/*
** approve.c: what an approved action keeps, as one SQL expression.
**
** evApproved(ts) stands where a column "action" is in scope, valid JSON; ts is
** the SQL of the row's own time, for actions that carry none. What is no object
** stays as it is; else its value is the action
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
** evProblems() names it; so does a whole action in which a key is written with
** an escape, or one that matters comes twice. Approving twice changes nothing.
**
** The large parts go first, in one pass over the text (evidence_slim), and
** texts are cut as they are written; SQLite's JSON functions do the rest on
** what is left.
*/
#include "evidence.h"
SQLITE_EXTENSION_INIT3

/*-------------------------------------------------- the large parts ----*/

#define KEPT(key)                                                              \
  { key, BX_CUT_NOTHING, 0 }
#define GONE(key)                                                              \
  { key, BX_CUT_ALL, 0 }
#define END                                                                    \
  { 0, BX_CUT_NOTHING, 0 }

static const BxCut aVision[] = {GONE("rawOcrResult"), GONE("screenshot"),
    GONE("allTextResults"), KEPT("ocrText"), KEPT("confidence"), END};
static const BxCut aMouse[] = {GONE("trail"), KEPT("endpoint"), END};
static const BxCut aMetadata[] = {GONE("mouseTrail"), KEPT("role"),
    KEPT("name"), {"text", BX_CUT_TEXT, 0}, KEPT("label"), KEPT("placeholder"),
    KEPT("targetText"), KEPT("x"), KEPT("y"), KEPT("endpoint"), END};
static const BxCut aStrategy[] = {KEPT("type"), KEPT("confidence"),
    KEPT("selector"), {"metadata", BX_CUT_MEMBERS, aMetadata}, END};
static const BxCut aChain[] = {{"strategies", BX_CUT_ELEMENTS, aStrategy}, END};
static const BxCut aEvidence[] = {{"vision", BX_CUT_MEMBERS, aVision},
    {"mouse", BX_CUT_MEMBERS, aMouse}, GONE("network"), END};
static const BxCut aAction[] = {KEPT("timestamp"),
    {"visionData", BX_CUT_MEMBERS, aVision},
    {"mouseData", BX_CUT_MEMBERS, aMouse}, GONE("networkData"),
    {"evidence", BX_CUT_MEMBERS, aEvidence},
    {"fallbackChain", BX_CUT_MEMBERS, aChain}, END};
static const BxCut action = {"", BX_CUT_MEMBERS, aAction};

void evSlim(BxCall *p) {
  sqlite3_value *pAction = p->aArg[0];
  sqlite3_str *pOut = sqlite3_str_new(p->bx->db);
  const char *z = 0;
  BxCutResult eResult = BX_CUT_UNSURE;
  char *zOut;
  if (sqlite3_value_type(pAction) == SQLITE_TEXT) {
    z = (const char *)sqlite3_value_text(pAction);
  }
  if (z != 0) {
    eResult = bxJsonCut(z, sqlite3_value_bytes(pAction), &action, pOut);
  }
  zOut = sqlite3_str_finish(pOut);
  if (eResult == BX_CUT_DONE) {
    bxReturnText(p, zOut);
    return;
  }
  sqlite3_free(zOut);
  if (eResult == BX_CUT_UNSURE) bxReturnValue(p, pAction);
}

/*------------------------------------------------------------ the rest ----*/

/*
** The strategies of document j, in steps that keep the nesting of the SQL
** within what SQLite's parser takes, and that compute each text once: v is the
** strategy when it is an object, raw anything else; members are what its type
** keeps of the metadata, NULL for types that keep none.
*/
/* clang-format off */
#define MEMBER(key, path) "coalesce(',\"" key "\":' || (v -> '" path "'), '')"
#define META(key) MEMBER(key, "$.metadata." key)

static const char zStrategies[] =
    "WITH s(v, raw) AS MATERIALIZED (SELECT"
    " CASE e.type WHEN 'object' THEN e.value END,"
    " CASE WHEN e.type <> 'object' THEN j -> e.fullkey END"
    " FROM json_each(j, '$.fallbackChain.strategies') AS e),"
    " m(v, raw, members) AS MATERIALIZED (SELECT v, raw, CASE v ->> '$.type'"
    " WHEN 'cdp_semantic' THEN " META("role") " || " META("name")
    " WHEN 'cdp_power' THEN coalesce(',\"text\":' || CASE WHEN"
    " json_type(v, '$.metadata.text') = 'text'"
    " AND length(v ->> '$.metadata.text') > 100"
    " THEN json_quote(substr(v ->> '$.metadata.text', 1, 100))"
    " ELSE nullif(v -> '$.metadata.text', 'null') END, '') || "
    META("label") " || " META("placeholder")
    " WHEN 'vision_ocr' THEN " META("targetText")
    " WHEN 'coordinates' THEN " META("x") " || " META("y")
    " WHEN 'evidence_scoring' THEN " META("endpoint") " END FROM s)"
    " SELECT '[' || coalesce(group_concat(coalesce(raw, '{' || substr("
    MEMBER("type", "$.type") " || " MEMBER("confidence", "$.confidence")
    " || CASE WHEN v ->> '$.selector' NOT IN ('', 0) THEN "
    MEMBER("selector", "$.selector") " ELSE '' END"
    " || CASE WHEN members IS NULL THEN ''"
    " WHEN json_type(v, '$.metadata') = 'object'"
    " THEN ',\"metadata\":{' || substr(members, 2) || '}'"
    /* a value that a script would take for false is no metadata */
    " WHEN v ->> '$.metadata' NOT IN ('', 0)"
    " THEN ',\"metadata\":' || (v -> '$.metadata') ELSE '' END"
    ", 2) || '}')), '') || ']' FROM m";
/* clang-format on */

/* What is left of vision data; %s is its path. */
static const char zVision[] =
    "CASE WHEN json_type(j, '%s') = 'object' THEN '{' || substr("
    "coalesce(',\"ocrText\":' || (j -> '%s.ocrText'), '') || "
    "coalesce(',\"confidence\":' || (j -> '%s.confidence'), ''), 2) || '}' "
    "ELSE j -> '%s' END";

/* And of mouse data; the second parameter is the row's time. Its trail went
** with the large parts: where there is no end point it is looked up again. */
static const char zMouse[] =
    "CASE json_type(j, '%s.endpoint') WHEN 'object' THEN '{\"trail\":[' || "
    "json_set(j -> '%s.endpoint', '$.timestamp', json(coalesce("
    "j -> '$.timestamp', %s))) || '],\"endpoint\":' || (j -> '%s.endpoint') "
    "|| ',\"duration\":0}' ELSE CASE WHEN json_type(j, '%s') NOT NULL "
    "THEN action -> '%s' END END";

/* The chain generator makes at most so many; the trails of more go later. */
#define MAX_STRATEGIES 7

static void setVision(sqlite3_str *pOut, const char *zPath) {
  sqlite3_str_appendf(pOut, ", '%s', json(", zPath);
  sqlite3_str_appendf(pOut, zVision, zPath, zPath, zPath, zPath);
  sqlite3_str_appendall(pOut, ")");
}

static void setMouse(sqlite3_str *pOut, const char *zPath, const char *zTime) {
  sqlite3_str_appendf(pOut, ", '%s', json(", zPath);
  sqlite3_str_appendf(pOut, zMouse, zPath, zPath, zTime, zPath, zPath, zPath);
  sqlite3_str_appendall(pOut, ")");
}

char *evApproved(const char *zTime, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  char *z;
  int i;
  sqlite3_str_appendall(pOut,
      "coalesce((WITH slim(j) AS MATERIALIZED (SELECT "
      "json_remove(evidence_slim(action), "
      "'$.networkData', '$.evidence.network', '$.visionData.rawOcrResult', "
      "'$.visionData.screenshot', '$.visionData.allTextResults', "
      "'$.evidence.vision.rawOcrResult', '$.evidence.vision.screenshot', "
      "'$.evidence.vision.allTextResults', '$.mouseData.trail', "
      "'$.evidence.mouse.trail'");
  for (i = 0; i < MAX_STRATEGIES; i++) {
    sqlite3_str_appendf(
        pOut, ", '$.fallbackChain.strategies[%d].metadata.mouseTrail'", i);
  }
  sqlite3_str_appendf(pOut,
      ")) SELECT json_replace(j, "
      "'$.fallbackChain.strategies', json(CASE WHEN json_type(j, "
      "'$.fallbackChain.strategies') = 'array' THEN (%s) ELSE "
      "j -> '$.fallbackChain.strategies' END)",
      zStrategies);
  setVision(pOut, "$.visionData");
  setVision(pOut, "$.evidence.vision");
  setMouse(pOut, "$.mouseData", zTime);
  setMouse(pOut, "$.evidence.mouse", zTime);
  sqlite3_str_appendall(pOut, ") FROM slim WHERE j GLOB '{*'), action)");
  z = sqlite3_str_finish(pOut);
  if (z == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  return z;
}

/*---------------------------------------------------- what was kept ----*/

/*
** One row for each thing that approval kept because it could not read it; the
** buffer's rows at %s. odd picks out the few actions with anything in them
** that needs a closer look. json_valid() also says no when it gets no memory,
** and is then asked again.
*/
static const char zDoc[] =
    "WITH doc(id, j) AS MATERIALIZED (SELECT id, CASE WHEN json_valid(action)"
    " OR json_valid(action) THEN CASE json_type(action)"
    " WHEN 'object' THEN action END END FROM %s WHERE pinned = 0), odd(id, "
    "j) AS MATERIALIZED"
    " (SELECT doc.id, j FROM doc WHERE evidence_slim(j) IS NULL"
    " OR json_type(j, '$.fallbackChain') NOT IN ('object', 'null')"
    " OR json_type(j, '$.evidence') NOT IN ('object', 'null')"
    " OR json_type(j, '$.fallbackChain.strategies') <> 'array'"
    " OR json_type(j, '$.visionData') NOT IN ('object', 'null')"
    " OR json_type(j, '$.mouseData') NOT IN ('object', 'null')"
    " OR json_type(j, '$.evidence.vision') NOT IN ('object', 'null')"
    " OR json_type(j, '$.evidence.mouse') NOT IN ('object', 'null')"
    " OR json_type(j, '$.mouseData') = 'object'"
    " AND json_type(j, '$.mouseData.endpoint') IS NOT 'object'"
    " OR json_type(j, '$.evidence.mouse') = 'object'"
    " AND json_type(j, '$.evidence.mouse.endpoint') IS NOT 'object'"
    " OR EXISTS (SELECT 1 FROM json_each(j, '$.fallbackChain.strategies') AS e"
    " WHERE e.type <> 'object' OR json_type(j, e.fullkey || '.metadata') IN"
    " ('array', 'text', 'integer', 'real', 'true')"
    " OR json_type(j, e.fullkey || '.metadata.text') IN ('array', 'object'))) ";

static const char zProblem[] =
    "SELECT json_group_array(json_object('id', id, 'path', path,"
    " 'problem', problem)) FROM (SELECT * FROM ("
    "SELECT id, '$' AS path, CASE WHEN j IS NULL THEN 'damaged JSON'"
    " WHEN evidence_slim(j) IS NULL THEN"
    " 'a key with an escape, or one that comes twice' END"
    " AS problem FROM odd UNION ALL "
    "SELECT id, '$.fallbackChain.strategies', CASE WHEN"
    " json_type(j, '$.fallbackChain.strategies') <> 'array' THEN"
    " 'not an array' END FROM odd UNION ALL "
    "SELECT odd.id, e.fullkey, CASE WHEN json_type(j,"
    " '$.fallbackChain.strategies') <> 'array' THEN NULL WHEN e.type <>"
    " 'object' THEN 'not an object' WHEN e.value ->> '$.type' IN"
    " ('cdp_semantic', 'cdp_power', 'vision_ocr', 'coordinates',"
    " 'evidence_scoring') AND json_type(e.value, '$.metadata') NOT IN"
    " ('object', 'null', 'false') AND e.value ->> '$.metadata' NOT IN ('', 0)"
    " THEN 'metadata is not an object' WHEN e.value ->> '$.type' ="
    " 'cdp_power' AND json_type(e.value, '$.metadata.text') IN"
    " ('array', 'object') THEN 'text is not text' END"
    " FROM odd, json_each(j, '$.fallbackChain.strategies') AS e UNION ALL "
    "SELECT id, path, CASE WHEN json_type(j, path) NOT IN ('object', 'null')"
    " THEN 'not an object' WHEN mouse AND json_type(j, path) = 'object' AND"
    " json_type(j, path || '.endpoint') IS NOT 'object' THEN 'no end point'"
    " END FROM odd, (SELECT '$.fallbackChain' AS path, 0 AS mouse"
    " UNION ALL SELECT '$.evidence', 0"
    " UNION ALL SELECT '$.visionData', 0"
    " UNION ALL SELECT '$.evidence.vision', 0"
    " UNION ALL SELECT '$.mouseData', 1"
    " UNION ALL SELECT '$.evidence.mouse', 1)"
    ") WHERE problem IS NOT NULL LIMIT 100)";

char *evProblems(EvBuffer *p, BxErr *pErr) {
  char *zFrom = evActions(p, pErr);
  char *zHead = zFrom ? sqlite3_mprintf(zDoc, zFrom) : 0;
  char *zSql = zHead ? sqlite3_mprintf("%s%s", zHead, zProblem) : 0;
  char *zOut = 0;
  sqlite3_stmt *pStmt;
  if (zSql == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  pStmt = evPrepareActions(p, zSql, pErr);
  if (bxRow(pStmt, pErr)) {
    zOut = sqlite3_mprintf("%s", sqlite3_column_text(pStmt, 0));
    if (zOut == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  }
  sqlite3_finalize(pStmt);
  sqlite3_free(zSql);
  sqlite3_free(zHead);
  sqlite3_free(zFrom);
  return zOut;
}
