/*
** approve.c: what an approved action keeps, as one SQL expression.
**
** bxEvApproved(ts) is used where a column "action" with valid JSON is in scope.
** ts is the SQL of the row's own time, for actions that have none. A value that
** is not an object stays as it is. Otherwise the result is the action
**   - without network data;
**   - with each strategy of the fallback chain reduced to type, confidence,
**     selector, and the few fields of its metadata that a replay of that type
**     needs (100 characters of text);
**   - with only ocrText and confidence of the vision data;
**   - with a mouse trail of one point, the last.
** Both shapes are supported: visionData, mouseData and networkData beside the
** chain, and evidence.vision, evidence.mouse and evidence.network.
**
** A value that does not have the expected type stays as it is, and
** bxEvProblems() reports it: strategies that are not an array, a strategy or
** metadata that is not an object, a strategy whose type is not text, a mouse
** record without an end point, a number in place of a text. The same is true
** for a whole action in which a key is written with an escape, or in which a
** relevant key occurs twice. Fields that a type does not keep are removed,
** whatever they contain. Approving twice changes nothing.
**
** The large parts are removed first, in one pass over the text (evidence_slim).
** Texts are cut when they are written. SQLite's JSON functions do the rest, on
** what is left.
*/
#include "evidence.h"
SQLITE_EXTENSION_INIT3

/* The one list of what approval keeps, and of which kind each value is. It
** determines what is cut, the SQL that keeps the rest, and what is reported as
** a problem. For metadata the type of the strategy counts. */
#define SEMANTIC_KEEPS(X) X("role", TEXT) X("name", TEXT)
#define POWER_KEEPS(X)                                                         \
  X("text", SHORT_TEXT) X("label", TEXT) X("placeholder", TEXT)
#define OCR_KEEPS(X) X("targetText", TEXT)
#define COORDINATES_KEEP(X) X("x", NUMBER) X("y", NUMBER)
#define SCORING_KEEPS(X) X("endpoint", OBJECT)
#define METADATA_KEEPS(X)                                                      \
  SEMANTIC_KEEPS(X)                                                            \
  POWER_KEEPS(X) OCR_KEEPS(X) COORDINATES_KEEP(X) SCORING_KEEPS(X)
#define VISION_KEEPS(X) X("ocrText", TEXT) X("confidence", NUMBER)

/* How a value of each kind begins. null counts as missing. */
#define IN_TEXT "\"n"
#define IN_NUMBER "-0123456789n"
#define IN_OBJECT "{n"
#define IN_ARRAY "["

#define CUT_KEPT(key, kind)                                                    \
  { key, BX_CUT_NOTHING, kind, 0 }
#define CUT_TEXT(key) CUT_KEPT(key, IN_TEXT)
#define CUT_SHORT_TEXT(key)                                                    \
  { key, BX_CUT_TEXT, IN_TEXT, 0 }
#define CUT_NUMBER(key) CUT_KEPT(key, IN_NUMBER)
#define CUT_OBJECT(key) CUT_KEPT(key, IN_OBJECT)
#define AS_CUT(key, kind) CUT_##kind(key),
#define GONE(key)                                                              \
  { key, BX_CUT_ALL, 0, 0 }
#define INSIDE(key, members)                                                   \
  { key, BX_CUT_MEMBERS, IN_OBJECT, members }
#define END                                                                    \
  { 0, BX_CUT_NOTHING, 0, 0 }

static const BxCut aVision[] = {GONE("rawOcrResult"), GONE("screenshot"),
    GONE("allTextResults"), VISION_KEEPS(AS_CUT) END};
static const BxCut aMouse[] = {
    GONE("trail"), CUT_KEPT("endpoint", IN_OBJECT), END};
static const BxCut aMetadata[] = {
    GONE("mouseTrail"), METADATA_KEEPS(AS_CUT) END};
static const BxCut aStrategy[] = {CUT_KEPT("type", IN_TEXT),
    CUT_KEPT("confidence", IN_NUMBER), CUT_KEPT("selector", IN_TEXT),
    INSIDE("metadata", aMetadata), END};
static const BxCut aChain[] = {
    {"strategies", BX_CUT_ELEMENTS, IN_ARRAY, aStrategy}, END};
static const BxCut aEvidence[] = {
    INSIDE("vision", aVision), INSIDE("mouse", aMouse), GONE("network"), END};
static const BxCut aAction[] = {CUT_KEPT("timestamp", 0),
    INSIDE("visionData", aVision), INSIDE("mouseData", aMouse),
    GONE("networkData"), INSIDE("evidence", aEvidence),
    INSIDE("fallbackChain", aChain), END};
static const BxCut action = INSIDE("", aAction);

void bxEvSlim(BxCall *p) {
  sqlite3_value *pAction = p->aArg[0];
  sqlite3_str *pOut = sqlite3_str_new(p->bx->db);
  const char *z = 0;
  BxCutResult eResult = BX_CUT_UNSURE;
  int bStrict =
      bxArg(p, 1) != 0 && bxInt(p->aArg[1], "strict", 0, 1, &p->err) == 1;
  char *zOut;
  if (sqlite3_value_type(pAction) == SQLITE_TEXT) {
    z = bxCheckMem((void *)sqlite3_value_text(pAction), &p->err);
  }
  if (z != 0) {
    eResult = bxJsonCut(z, sqlite3_value_bytes(pAction), &action, pOut);
  }
  zOut = sqlite3_str_finish(pOut);
  if (eResult == BX_CUT_DONE || (eResult == BX_CUT_STRANGE && !bStrict)) {
    bxReturnText(p, zOut);
    return;
  }
  sqlite3_free(zOut);
  if (eResult == BX_CUT_UNSURE && !bStrict &&
      !bxIsJson(p->bx, z, bxBytes(pAction), &p->err)) {
    bxReturnValue(p, pAction);
  }
}

/*
** The strategies of document j. The steps keep the nesting of the SQL within
** the limit of SQLite's parser, and compute each text once. v is the strategy
** if it is an object whose type is text; any other strategy stays as it was.
** members are the metadata that its type keeps, or NULL for types that keep
** none.
*/
/* clang-format off */
#define MEMBER(key, path) "coalesce(',\"" key "\":' || (v -> '" path "'), '')"
#define SQL_TEXT(key) MEMBER(key, "$.metadata." key)
#define SQL_NUMBER(key) SQL_TEXT(key)
#define SQL_OBJECT(key) SQL_TEXT(key)
#define SQL_SHORT_TEXT(key)                                                    \
  "coalesce(',\"" key "\":' || nullif(v -> '$.metadata." key "', 'null'), '')"
#define AS_SQL(key, kind) " || " SQL_##kind(key)
/* Whether JavaScript would treat the member as true. (->> ends at a NUL.) */
#define IS_TRUE(j, path)                                                       \
  "(" j " ->> " path " NOT IN ('', 0) OR " j " -> " path " GLOB '\"\\u0000*')"

static const char zStrategies[] =
    "WITH s(v, place) AS MATERIALIZED (SELECT CASE e.type WHEN 'object' THEN"
    " CASE WHEN json_type(e.value, '$.type') IN ('text', 'null') IS NOT 0"
    " THEN e.value END END, e.fullkey"
    " FROM json_each(j, '$.fallbackChain.strategies') AS e),"
    " m(v, place, members) AS MATERIALIZED (SELECT v, place,"
    " CASE v ->> '$.type'"
    " WHEN 'cdp_semantic' THEN ''" SEMANTIC_KEEPS(AS_SQL)
    " WHEN 'cdp_power' THEN ''" POWER_KEEPS(AS_SQL)
    " WHEN 'vision_ocr' THEN ''" OCR_KEEPS(AS_SQL)
    " WHEN 'coordinates' THEN ''" COORDINATES_KEEP(AS_SQL)
    " WHEN 'evidence_scoring' THEN ''" SCORING_KEEPS(AS_SQL) " END FROM s)"
    " SELECT '[' || coalesce(group_concat(CASE WHEN v IS NULL"
    " THEN action -> place ELSE '{' || substr("
    MEMBER("type", "$.type") " || " MEMBER("confidence", "$.confidence")
    " || CASE WHEN " IS_TRUE("v", "'$.selector'") " THEN "
    MEMBER("selector", "$.selector") " ELSE '' END"
    " || CASE WHEN json_type(v, '$.metadata') = 'object'"
    " THEN coalesce(',\"metadata\":{' || substr(members, 2) || '}', '')"
    " WHEN " IS_TRUE("v", "'$.metadata'")
    " THEN ',\"metadata\":' || (v -> '$.metadata') ELSE '' END"
    ", 2) || '}' END), '') || ']' FROM m";
/* clang-format on */

/* What is kept of vision data; %s is its path. */
#define AS_VISION_SQL(key, kind)                                               \
  " || coalesce(',\"" key "\":' || (j -> '%s." key "'), '')"
static const char zVision[] =
    "CASE WHEN json_type(j, '%s') = 'object' THEN '{' || "
    "substr(''" VISION_KEEPS(AS_VISION_SQL) ", 2) || '}' ELSE j -> '%s' END";

/* What is kept of mouse data; the second parameter is the row's time. The trail
** was removed with the large parts. If there is no end point, it is read
** again. */
static const char zMouse[] =
    "CASE json_type(j, '%s.endpoint') WHEN 'object' THEN '{\"trail\":[' || "
    "json_set(j -> '%s.endpoint', '$.timestamp', json(coalesce("
    "j -> '$.timestamp', %s))) || '],\"endpoint\":' || (j -> '%s.endpoint') "
    "|| ',\"duration\":0}' ELSE CASE WHEN json_type(j, '%s') NOT NULL "
    "THEN action -> '%s' END END";

char *bxEvApproved(const char *zTime, BxErr *pErr) {
  static const char *const azPath[] = {
      "$.visionData", "$.evidence.vision", "$.mouseData", "$.evidence.mouse"};
  sqlite3_str *pOut = sqlite3_str_new(0);
  int i;
  assert(zTime != 0);
  sqlite3_str_appendf(pOut,
      "coalesce((WITH slim(j) AS MATERIALIZED (SELECT evidence_slim(action)) "
      "SELECT json_replace(j, "
      "'$.fallbackChain.strategies', json(CASE WHEN json_type(j, "
      "'$.fallbackChain.strategies') = 'array' THEN (%s) ELSE "
      "j -> '$.fallbackChain.strategies' END)",
      zStrategies);
  for (i = 0; i < 4; i++) {
    const char *z = azPath[i];
    sqlite3_str_appendf(pOut, ", '%s', json(", z);
    if (i < 2) sqlite3_str_appendf(pOut, zVision, z, z, z, z);
    if (i >= 2) sqlite3_str_appendf(pOut, zMouse, z, z, zTime, z, z, z);
    sqlite3_str_appendall(pOut, ")");
  }
  sqlite3_str_appendall(pOut, ") FROM slim WHERE j GLOB '{*'), action)");
  return bxStrFinish(pOut, pErr);
}

/*
** One row for each value that approval kept because it could not read it; %s
** are the rows of the buffer. evidence_slim() finds, in one pass, the few
** actions that must be examined. An ambiguous action was kept whole.
*/
/* clang-format off */
static const char zDoc[] =
    "WITH doc(id, j) AS MATERIALIZED (SELECT id, CASE WHEN "
    BX_JSON_VALID("action") " THEN CASE json_type(action)"
    " WHEN 'object' THEN action END END FROM %s WHERE pinned = 0),"
    " odd(id, doubt, j) AS MATERIALIZED (SELECT id, doubt,"
    " CASE WHEN doubt IS NULL THEN j END FROM (SELECT id, j,"
    " CASE WHEN j IS NULL THEN 'damaged JSON' WHEN evidence_slim(j) IS NULL"
    " THEN 'a key with an escape, one that comes twice, or too many levels' END AS doubt"
    " FROM doc WHERE evidence_slim(j, 1) IS NULL"
    " OR json_type(j, '$.mouseData') = 'object'"
    " AND json_type(j, '$.mouseData.endpoint') IS NOT 'object'"
    " OR json_type(j, '$.evidence.mouse') = 'object'"
    " AND json_type(j, '$.evidence.mouse.endpoint') IS NOT 'object')), ";

/* The members that approval reads: of the action, of a strategy. */
#define TEXT(path) "('" path "', 'text', 'text')"
#define NUMBER(path) "('" path "', 'integer real', 'a number')"
#define OBJECT(path) "('" path "', 'object', 'an object')"
#define SHORT_TEXT(path) TEXT(path)
#define AS_MEMBER(key, kind) ", " kind("$.metadata." key)
#define AS_VISION(key, kind)                                                   \
  ", " kind("$.visionData." key) ", " kind("$.evidence.vision." key)

static const char zMembers[] =
    "part(path, types, kind) AS (VALUES " OBJECT("$.fallbackChain") ", "
    "('$.fallbackChain.strategies', 'array', 'an array'), "
    OBJECT("$.evidence") ", "
    OBJECT("$.visionData") ", " OBJECT("$.evidence.vision")
    VISION_KEEPS(AS_VISION) ", "
    OBJECT("$.mouseData") ", " OBJECT("$.evidence.mouse") "), "
    "member(path, types, kind) AS (VALUES " TEXT("$.type") ", "
    NUMBER("$.confidence") ", " TEXT("$.selector") ", "
    OBJECT("$.metadata") METADATA_KEEPS(AS_MEMBER) "), "
    "strategy(id, fullkey, type, value) AS (SELECT odd.id, e.fullkey, e.type,"
    " e.value FROM odd, json_each(j, '$.fallbackChain.strategies') AS e"
    " WHERE json_type(j, '$.fallbackChain.strategies') = 'array') ";

/* "null" counts as missing, except for the list of strategies. */
#define IS_OTHER(j)                                                            \
  "instr(types || CASE types WHEN 'array' THEN '' ELSE ' null' END,"           \
  " json_type(" j ", path)) = 0"

/* A value that JavaScript treats as false is not metadata. */
static const char zOfMember[] =
    "SELECT json_group_array(json_object('id', id, 'path', path,"
    " 'problem', problem)) FROM (SELECT * FROM ("
    "SELECT id, '$' AS path, doubt AS problem FROM odd UNION ALL "
    "SELECT id, path, CASE WHEN " IS_OTHER("j") " THEN 'not ' || kind"
    " WHEN path IN ('$.mouseData', '$.evidence.mouse')"
    " AND json_type(j, path) = 'object'"
    " AND json_type(j, path || '.endpoint') IS NOT 'object'"
    " THEN 'no end point' END FROM odd, part UNION ALL "
    "SELECT id, fullkey, CASE WHEN type <> 'object' THEN 'not an object'"
    " END FROM strategy UNION ALL "
    "SELECT id, fullkey, CASE WHEN " IS_OTHER("value") " AND NOT"
    " (path = '$.metadata' AND NOT " IS_TRUE("value", "path") ") THEN"
    " replace(substr(path, 3), 'metadata.', '') || ' is not ' || kind END"
    " FROM (SELECT * FROM strategy WHERE type = 'object'), member"
    ") WHERE problem IS NOT NULL LIMIT 100)";
/* clang-format on */

char *bxEvProblemsSql(const char *zFrom) {
  char *zHead = sqlite3_mprintf(zDoc, zFrom);
  char *zSql =
      zHead ? sqlite3_mprintf("%s%s%s", zHead, zMembers, zOfMember) : 0;
  assert(zFrom != 0);
  sqlite3_free(zHead);
  return zSql;
}
