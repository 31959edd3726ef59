/*
** export.c: a recording as JSON: to save it, to run it with Puppeteer, to
** replay it as a recording of the Chrome DevTools Recorder.
**
** All three approve a copy (approve.c). If the second argument is 1, they also
** approve the stored rows. Actions are in order of time. An action whose stored
** JSON is damaged is omitted and named in metadata.damaged. The number of
** actions that were pruned before is in metadata.missingActionCount and in the
** title of the replay. The third argument is the time of the export.
**
** An action in an iframe (iframeChain of the page data: from the page inwards,
** each frame as its index in its parent, or as an object with an "index") gives
** a step with "frame". In the Recorder's format "frame" is a list of indexes.
** Any other chain, for example of selectors, gives a customStep, and so does
** what the format can express only in the page itself.
**
** Selectors come from the whole fallback chain in its order, and then from the
** page data, each once. They are written in the notation that Puppeteer and the
** Recorder share: CSS, "xpath/...", "aria/...", "text/...", and "pierce/..."
** for CSS inside a shadow root. By type of strategy:
**
**   selector (any type)   CSS, or xpath/ if it begins with / or (
**   cdp_semantic          aria/<name>[role="<role>"]
**   cdp_power             text/<text>, aria/<label>, [placeholder="..."]
**   vision_ocr            text/<targetText>
**   coordinates,          no selector: "position" {x, y} of the step, and the
**   evidence_scoring      offset of a click
*/
#include "evidence.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define FROM_70_MIB 73400320.0

/* clang-format off */
#define CSS_QUOTED(x)                                                          \
  "'\"' || replace(replace(replace(" x ", '\\', '\\\\'), '\"', '\\\"'), "      \
  "char(10), '\\a ') || '\"'"

/* A recorded selector: one with a prefix, an XPath, or CSS. */
#define AS_SELECTOR(x)                                                         \
  "CASE WHEN " x " GLOB 'xpath/*' OR " x " GLOB 'aria/*' OR " x                \
  " GLOB 'text/*' OR " x " GLOB 'pierce/*' THEN " x                            \
  " WHEN " x " GLOB '[/(]*' OR " x " GLOB './*' THEN 'xpath/' || " x           \
  " WHEN shadow THEN 'pierce/' || " x                                          \
  " ELSE " x " END"

/*
** SQLite's functions end a text at a NUL, which JSON can write as \u0000. Such
** a value is therefore quoted as it is written (x is a JSON string). Text of a
** page does not contain a NUL. So b, the action from which selectors and kinds
** are read, has NUL_MARK in its place, a character that Unicode does not
** assign. A text with it is neither a selector nor a known kind. JSON cannot
** contain 0x01 itself.
*/
#define ASIDE(x) "replace(" x ", '\\\\', char(1))"
#define QUOTED(x)                                                              \
  "CASE WHEN " BX_JSON_HAS_NUL(x) " THEN " x " ELSE json_quote(" x " ->> '$') END"
#define NUL_MARK "char(64976)"
#define WITH_MARK(x)                                                                \
  "CASE WHEN instr(" x ", '\\u0000') = 0 THEN " x " ELSE replace(replace("     \
  ASIDE(x) ", '\\u0000', " NUL_MARK "), char(1), '\\\\') END"

#define META_AT(key) "(e.value ->> '$.metadata." key "')"
#define IS(type) "e.value ->> '$.type' = '" type "'"

/* The text at a path, or NULL if it is not text. The same as JSON. */
#define TEXT_AT(j, path)                                                       \
  "CASE json_type(" j ", '" path "') WHEN 'text' THEN " j " ->> '" path "' END"
#define JSON_AT(j, path)                                                       \
  "CASE json_type(" j ", '" path "') WHEN 'text' THEN "                        \
  QUOTED("(" j " -> '" path "')") " END"

/* A text of a strategy's metadata. */
#define WORD(key) TEXT_AT("e.value", "$.metadata." key)

/* White space, and a number as JSON can write it. */
#define BLANK "' ' || char(9, 10, 13)"
#define FINITE(x) "max(-1e9, min(1e9, " x "))"

#define IS_NUMBER(path)                                                        \
  "json_type(e.value, '$.metadata." path "') IN ('integer', 'real')"

/* Strategy e gives up to four selectors, numbered n. */
#define STRATEGY_SELECTOR                                                      \
  "CASE WHEN e.type <> 'object' THEN NULL WHEN n = 0 THEN (SELECT "            \
  AS_SELECTOR("s") " FROM (SELECT nullif(trim(" TEXT_AT("e.value",             \
  "$.selector") ", " BLANK "), '') AS s))"                                                        \
  " WHEN n = 1 AND " IS("cdp_semantic") " THEN nullif('aria/' || coalesce("    \
  WORD("name") ", '') || coalesce('[role=\"' || " WORD("role") " || '\"]', "   \
  "''), 'aria/')"                                                              \
  " WHEN n = 1 AND " IS("cdp_power") " THEN 'text/' || nullif("                \
  WORD("text") ", '')"                                                         \
  " WHEN n = 2 AND " IS("cdp_power") " THEN 'aria/' || nullif("                \
  WORD("label") ", '')"                                                        \
  " WHEN n = 3 AND " IS("cdp_power") " THEN iif(shadow, 'pierce/', '') ||"     \
  " '[placeholder=' || "                                                       \
  CSS_QUOTED("nullif(" WORD("placeholder") ", '')") " || ']'"                  \
  " WHEN n = 1 AND " IS("vision_ocr") " THEN 'text/' || nullif("               \
  WORD("targetText") ", '') END"

/* Selectors of the page data of both shapes. */
#define PAGE_SELECTOR                                                          \
  "SELECT 1000000 + key AS k, 0 AS n, " AS_SELECTOR("s") " AS sel "            \
  "FROM (SELECT key, trim(value, " BLANK ") AS s FROM json_each(json_array("   \
  TEXT_AT("b", "$.domData.selector") ", "                                      \
  TEXT_AT("b", "$.domData.uniqueSelector") ", "                                \
  TEXT_AT("b", "$.selector") ", "                                              \
  TEXT_AT("b", "$.evidence.dom.selector") ", "                                 \
  TEXT_AT("b", "$.domData.xpath") ", "                                         \
  TEXT_AT("b", "$.evidence.dom.xpath") "))) WHERE s <> ''"

/* JSON array of all selectors of action b. */
#define SELECTORS                                                              \
  "(SELECT json_group_array(sel) FROM (SELECT sel, min(k) AS k, min(n) AS n "  \
  "FROM (SELECT e.key AS k, n, " STRATEGY_SELECTOR " AS sel "                  \
  "FROM json_each(b, '$.fallbackChain.strategies') AS e, (SELECT 0 AS n "      \
  "UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) "                 \
  "UNION ALL " PAGE_SELECTOR ") WHERE sel <> '' AND instr(sel, " NUL_MARK ") "   \
  "= 0 GROUP BY sel "                                                          \
  "ORDER BY 2, 3))"

/* Where on the page the action took place: {"x":..,"y":..} or NULL. */
#define POSITION                                                               \
  "(SELECT CASE WHEN " IS("coordinates") " THEN json_object('x', "             \
  FINITE(META_AT("x")) ", 'y', " FINITE(META_AT("y")) ") ELSE json_object('x', "     \
  FINITE(META_AT("endpoint.x")) ", 'y', " FINITE(META_AT("endpoint.y")) ") END "     \
  "FROM json_each(a, '$.fallbackChain.strategies') AS e "                      \
  "WHERE CASE WHEN e.type = 'object' THEN CASE e.value ->> '$.type' "          \
  "WHEN 'coordinates' THEN " IS_NUMBER("x") " AND " IS_NUMBER("y")             \
  " WHEN 'evidence_scoring' THEN " IS_NUMBER("endpoint.x") " AND "             \
  IS_NUMBER("endpoint.y") " END END "                                          \
  "ORDER BY e.value ->> '$.type' <> 'coordinates', e.key LIMIT 1)"

/* The path of the frame of the action, from the page inwards; NULL: the
** page. */
#define CHAIN                                                                  \
  "nullif(nullif(coalesce(nullif(a -> '$.domData.iframeChain', 'null'), "      \
  "a -> '$.evidence.dom.iframeChain'), 'null'), '[]')"

/* The same in the form of the Recorder, {"frame":[0,2]}; {} for the page
** itself, NULL if an index is not known. */
#define FRAME_INDEX                                                                  \
  "CASE e.type WHEN 'integer' THEN e.value WHEN 'object' THEN "                \
  "CASE json_type(e.value, '$.index') WHEN 'integer' THEN "                    \
  "e.value ->> '$.index' END END"
#define FRAME                                                                  \
  "CASE WHEN chain IS NULL THEN '{}' WHEN json_type(chain) = 'array' THEN "    \
  "(SELECT CASE WHEN min(coalesce(i, -1)) >= 0 THEN json_object('frame', "     \
  "json_group_array(i)) END FROM (SELECT " FRAME_INDEX                               \
  " AS i FROM json_each(chain) AS e)) END"

/*
** Each query begins with the recording: doc has the rows, a their approved
** action, NULL if it is damaged. The first %s is the approval, the second is
** the rows.
*/
static const char zExportDoc[] =
    "WITH doc(t, rid, id, a) AS MATERIALIZED (SELECT timestamp, rid, id,"
    " CASE WHEN " BX_JSON_VALID("action") " THEN CASE json_type(action)"
    " WHEN 'object' THEN %s END END FROM %s) ";

static const char zActions[] = "SELECT id, a, NULL FROM doc ORDER BY t, rid";

/* The members of an action as JSON strings, its frame, b (see NUL_MARK), and
** whether it was in a shadow DOM. */
static const char zTold[] =
    ", told(t, rid, id, a, name, value, chain, b, shadow) AS MATERIALIZED (SELECT t, rid, id,"
    " a, coalesce(" JSON_AT("a", "$.eventType") ", "
    JSON_AT("a", "$.actionType") "),"
    " CASE coalesce(json_type(a, '$.value'), 'null') WHEN 'null' THEN"
    " CASE 'navigate' WHEN a ->> '$.eventType' THEN url"
    " WHEN a ->> '$.actionType' THEN url END"
    " WHEN 'text' THEN " QUOTED("(a -> '$.value')")
    " ELSE json_quote((a -> '$.value') || '') END, " CHAIN ", " WITH_MARK("a")
    ", a ->> '$.domData.isInShadowDOM' FROM (SELECT *, " JSON_AT("a", "$.metadata.url") " AS url FROM doc))";

/* What a step also needs: kind (name as text), selectors, position. */
static const char zStep[] =
    ", step(t, rid, id, a, name, value, chain, kind, sels, pos) AS MATERIALIZED"
    " (SELECT t, rid, id, a, name, value, chain, coalesce("
    TEXT_AT("b", "$.eventType") ", " TEXT_AT("b", "$.actionType") "), "
    SELECTORS ", " POSITION " FROM told) ";

/* A navigation has no selector. */
static const char zPuppeteer[] =
    "SELECT id, a, json_patch(json_object('action', json(coalesce(name,"
    " '\"\"')),"
    " 'selector', CASE WHEN kind = 'navigate' THEN '' ELSE"
    " coalesce(sels ->> 0, '') END, 'fallbacks', CASE WHEN kind = 'navigate'"
    " THEN json('[]') ELSE json(json_remove(sels, '$[0]')) END),"
    " json_object('value', json(value), 'position', json(pos),"
    " 'frame', json(chain)))"
    " FROM step ORDER BY t, rid";

/* The selectors in the form of the Recorder: alternatives, each a list of one.
** An action with only a position is an action on the whole page. */
#define TARGETS                                                                \
  "CASE WHEN sels = '[]' AND pos IS NOT NULL THEN '[[\"html\"]]' ELSE "        \
  "(SELECT json_group_array(json_array(value)) FROM json_each(sels)) END"

/* The element as a script finds it; NULL if only its name is known. */
#define ELEMENT                                                                \
  "(SELECT CASE WHEN value LIKE 'xpath/%' THEN 'document.evaluate(' || "       \
  "json_quote(substr(value, 7)) || ',document,null,9,null).singleNodeValue' "  \
  "ELSE 'document.querySelector(' || json_quote(value) || ')' END "            \
  "FROM json_each(sels) WHERE value NOT LIKE 'aria/%' AND value NOT LIKE "     \
  "'text/%' AND value NOT LIKE 'pierce/%' ORDER BY key LIMIT 1)"

/* The offset inside the box of the element, else its middle, else 1. */
#define OFFSET(axis, edge, extent)                                             \
  FINITE("CASE WHEN sels = '[]' THEN pos ->> '$." axis "' "                           \
  "WHEN (pos ->> '$." axis "') - coalesce(rect ->> '$." axis                   \
  "', rect ->> '$." edge "') BETWEEN 0 AND rect ->> '$." extent                \
  "' THEN (pos ->> '$." axis "') - coalesce(rect ->> '$." axis                 \
  "', rect ->> '$." edge "') "                                                 \
  "ELSE coalesce((rect ->> '$." extent "') / 2.0, 1) END")

#define MAIN(type, members)                                                    \
  "json_object('type', '" type "', 'target', 'main', " members ")"
#define CUSTOM                                                                 \
  MAIN("customStep", "'name', json(coalesce(name, '\"unknown\"')), "           \
  "'parameters', json_patch(json_object('value', json(value), "                \
  "'selectors', json(sels)), json_object('frame', json(chain)))")

/* What the Recorder also needs: said is the value as text, custom is the action
** as a step with its own name. */
static const char zPlace[] =
    ", place AS (SELECT *, value ->> '$' AS said, " CUSTOM " AS custom, "
    OFFSET("x", "left", "width") " AS x, "
    OFFSET("y", "top", "height") " AS y FROM (SELECT *, coalesce("
    "a -> '$.domData.boundingRect', a -> '$.evidence.dom.boundingRect', '{}')"
    " AS rect, " TARGETS " AS targets, " ELEMENT " AS element, " FRAME
    " AS frame FROM step)) ";

#define FRAMED(type, members) "json_patch(" MAIN(type, members) ", frame)"
#define ON_TARGETS(type, members)                                              \
  FRAMED(type, "'selectors', json(targets)" members)
#define CLICK(type) ON_TARGETS(type, ", 'offsetX', x, 'offsetY', y")

/* Acts on the element; NULL if a script cannot find it. */
#define SCRIPT(does)                                                           \
  "CASE WHEN element NOT NULL THEN " FRAMED("waitForExpression",               \
  "'expression', '(e=>!!e&&(" does ",true))(' || element || ')'") " END"

/* The value of a scroll is "x,y", {"x":..,"y":..}, or y alone. */
#define SCROLL(axis, part, alone)                                              \
  FINITE("CASE WHEN " BX_JSON_VALID("said") " AND json_type(said) = 'object' THEN "     \
  "CASE WHEN json_type(said, '$." axis "') IN ('integer', 'real') THEN "       \
  "said ->> '$." axis "' ELSE 0 END WHEN instr(said, ',') > 0 THEN "           \
  "CAST(substr(said, " part ") AS REAL) ELSE " alone " END")

/*
** Without a selector and a position there is nothing to act on. Such an action
** is a step with its own name, like an action of an unknown type. So is an
** action in a frame that a step cannot name, because a navigate step has no
** frame.
*/
static const char zReplay[] =
    "SELECT id, a, CASE"
    " WHEN frame IS NULL OR kind = 'navigate' AND chain NOT NULL THEN custom"
    " WHEN kind = 'navigate' THEN json_object('type', 'navigate', 'url',"
    " json(coalesce(value, '\"about:blank\"')))"
    " WHEN kind = 'keydown' AND value <> '\"\"' THEN coalesce("
    SCRIPT("e.focus()") " || ',', '') || " MAIN("keyDown", "'key', json(value)")
    " || ',' || " MAIN("keyUp", "'key', json(value)")
    " WHEN kind = 'scroll' THEN " FRAMED("scroll",
    "'x', " SCROLL("x", "1, instr(said, ',') - 1", "0")
    ", 'y', " SCROLL("y", "instr(said, ',') + 1", "CAST(coalesce(said, 0) AS REAL)"))
    " WHEN sels = '[]' AND pos IS NULL THEN custom"
    " WHEN kind IN ('click', 'check', 'uncheck') THEN " CLICK("click")
    " WHEN kind = 'dblclick' THEN " CLICK("doubleClick")
    " WHEN kind IN ('type', 'select') THEN " ON_TARGETS("change",
    ", 'value', json(coalesce(value, '\"\"'))")
    " WHEN kind = 'hover' THEN " ON_TARGETS("hover", "")
    " WHEN element IS NULL THEN custom"
    " WHEN kind = 'focus' THEN " SCRIPT("e.focus()")
    " WHEN kind = 'blur' THEN " SCRIPT("e.blur()")
    " WHEN kind = 'submit' THEN "
    SCRIPT("(e.form||e.closest(\"form\")||e).requestSubmit()")
    " ELSE custom END FROM place ORDER BY t, rid";
/* clang-format on */

/* What one pass over the recording collects. */
typedef struct Export {
  sqlite3_str *pActions, *pSteps, *pDamaged; /* elements, with commas */
  i64 nBytes, nTotal, nKept;
  i64 nMissing;   /* earlier actions that were pruned */
  int bSavepoint; /* for the approval and the queries after it */
} Export;

/* An element that is a text. */
static void addText(sqlite3_str *pOut, const char *z, BxErr *pErr) {
  if (bxCheckMem((void *)(sqlite3_uint64)z, pErr) == 0) return;
  if (sqlite3_str_length(pOut) > 0) sqlite3_str_appendchar(pOut, 1, ',');
  bxJsonAppend(pOut, z, (int)strlen(z));
}

/* What follows zExportDoc in a query. */
typedef struct Query {
  const char *zTold, *zStep, *zPlace, *zSelect;
} Query;

/* An action that cannot be read is named as damaged. JSON that is not valid UTF-8 was
** changed after it was stored. */
static void collect(
    EvBuffer *p, const Query *pQuery, Export *pOut, BxErr *pErr) {
  sqlite3_str *const apOut[] = {0, pOut->pActions, pOut->pSteps};
  char *zFrom = bxEvActions(p, pErr);
  char *zApproved = bxEvApproved("timestamp", pErr);
  char *zHead = bxPrintf(pErr, zExportDoc, zApproved, zFrom);
  char *zSql = bxPrintf(pErr, "%s%s%s%s%s", zHead, pQuery->zTold, pQuery->zStep,
      pQuery->zPlace, pQuery->zSelect);
  sqlite3_stmt *pStmt = bxEvPrepareActions(p, zSql, pErr);
  int i;
  while (bxStep(pStmt, pErr)) {
    const char *z = bxColumnText(pStmt, 1, pErr);
    int n = sqlite3_column_bytes(pStmt, 1);
    pOut->nTotal++;
    if (z == 0 || !bxIsUtf8((const unsigned char *)z, n)) {
      addText(pOut->pDamaged, bxColumnText(pStmt, 0, pErr), pErr);
      continue;
    }
    pOut->nKept++;
    pOut->nBytes += n + EV_ROW_BYTES;
    for (i = 1; i < 3; i++) {
      z = bxColumnText(pStmt, i, pErr);
      if (z == 0) continue;
      if (sqlite3_str_length(apOut[i]) > 0) {
        sqlite3_str_appendchar(apOut[i], 1, ',');
      }
      sqlite3_str_appendall(apOut[i], z);
    }
  }
  sqlite3_finalize(pStmt);
  sqlite3_free(zSql);
  sqlite3_free(zHead);
  sqlite3_free(zApproved);
  sqlite3_free(zFrom);
}

/* Finds the buffer, approves its rows if asked to, and collects. If the export then
** fails, the rows are as before: a function uses a savepoint. As a row the export is
** refused, because nobody would get it. */
static EvBuffer *export(
    BxCall *pCall, const Query *pQuery, Export *pOut, i64 *piNow) {
  BxErr *pErr = &pCall->err;
  EvBuffer *p;
  i64 bPrune = 0;
  memset(pOut, 0, sizeof(*pOut));
  *piNow = bxTime(bxArg(pCall, 2), "now", pErr);
  if (bxArg(pCall, 1)) bPrune = bxInt(pCall->aArg[1], "prune", 0, 1, pErr);
  p = bxEvFind(pCall);
  if (p == 0 || pErr->rc != SQLITE_OK) return 0;
  if (bPrune && pCall->pCtx != 0) {
    bxSavepoint(pCall->bx, pCall->pDef->zName, pErr);
    pOut->bSavepoint = pErr->rc == SQLITE_OK;
  }
  if (bPrune && pErr->rc == SQLITE_OK) bxEvApprove(p, 0, 1, pErr);
  if (pCall->pCtx == 0) return 0;
  pOut->pActions = sqlite3_str_new(pCall->bx->db);
  pOut->pSteps = sqlite3_str_new(pCall->bx->db);
  pOut->pDamaged = sqlite3_str_new(pCall->bx->db);
  collect(p, pQuery, pOut, pErr);
  pOut->nMissing =
      bxQueryNumber(p->pOn, "SELECT removed FROM main.@_state", pErr);
  return p;
}

/* Ends a collection, and its savepoint. A text that is too long is an error. Half a
** surrogate pair, which JSON can express and UTF-8 cannot, is replaced by U+FFFD (of
** the same length). */
static void finish(BxCall *pCall, Export *pOut, char *zResult) {
  sqlite3_str *const ap[] = {pOut->pActions, pOut->pSteps, pOut->pDamaged};
  i64 nMax = sqlite3_limit(pCall->bx->db, SQLITE_LIMIT_LENGTH, -1);
  int rc = SQLITE_OK, i;
  char *z;
  if (pOut->pActions != 0 && zResult == 0) rc = SQLITE_NOMEM;
  if (zResult != 0 && (i64)strlen(zResult) > nMax) rc = SQLITE_TOOBIG;
  for (i = 0; i < 3; i++) {
    if (ap[i] != 0 && rc == SQLITE_OK) rc = sqlite3_str_errcode(ap[i]);
    sqlite3_free(sqlite3_str_finish(ap[i]));
  }
  bxFail(&pCall->err, rc,
      "ExportError: the recording does not fit in one text; prune it first "
      "with evidence_prune_for_approval()");
  if (pOut->bSavepoint) bxRelease(pCall->bx, &pCall->err);
  if (pCall->err.rc != SQLITE_OK || zResult == 0) {
    sqlite3_free(zResult);
    return;
  }
  for (z = strchr(zResult, 0xed); z != 0; z = strchr(z + 1, 0xed)) {
    if ((unsigned char)z[1] >= 0xa0 && (z[2] & 0xc0) == 0x80) {
      memcpy(z, "\xef\xbf\xbd", 3);
    }
  }
  bxReturnJson(pCall, zResult);
}

static const char *textOf(sqlite3_str *pStr) {
  return sqlite3_str_length(pStr) ? sqlite3_str_value(pStr) : "";
}

/* The ExportedRecording, with puppeteerSteps if the query makes steps. */
static void exportRecording(BxCall *pCall, const Query *pQuery) {
  Export out;
  i64 iNow;
  char *zResult = 0;
  int bSteps = pQuery->zStep[0] != 0;
  EvBuffer *p = export(pCall, pQuery, &out, &iNow);
  if (p != 0) {
    zResult = sqlite3_mprintf(
        "{\"actions\":[%s],\"sizeBytes\":%lld,\"metadata\":{\"exportedAt\":"
        "%lld,\"originalActionCount\":%lld,\"prunedActionCount\":%lld,"
        "\"missingActionCount\":%lld,\"compressionRatio\":%!.15g,"
        "\"damaged\":[%s]}%s%s%s}",
        textOf(out.pActions), out.nBytes, iNow, out.nTotal + out.nMissing,
        out.nKept, out.nMissing, (double)out.nBytes / FROM_70_MIB,
        textOf(out.pDamaged), bSteps ? ",\"puppeteerSteps\":[" : "",
        bSteps ? textOf(out.pSteps) : "", bSteps ? "]" : "");
  }
  finish(pCall, &out, zResult);
}

void bxEvExport(BxCall *pCall) {
  static const Query query = {"", "", "", zActions};
  exportRecording(pCall, &query);
}

void bxEvExportPuppeteer(BxCall *pCall) {
  static const Query query = {zTold, zStep, "", zPuppeteer};
  exportRecording(pCall, &query);
}

/* The title is the name of the buffer, and what a reader should know: the format has
** no other place for it. */
void bxEvExportReplay(BxCall *pCall) {
  static const Query query = {zTold, zStep, zPlace, zReplay};
  Export out;
  i64 iNow;
  char *zResult = 0;
  EvBuffer *p = export(pCall, &query, &out, &iNow);
  if (p != 0) {
    sqlite3_str *pTitle = sqlite3_str_new(pCall->bx->db);
    char *zTitle =
        out.nMissing == 0
            ? sqlite3_mprintf("%s", p->pOn->zTable)
            : sqlite3_mprintf("%s (%lld earlier actions were pruned)",
                  p->pOn->zTable, out.nMissing);
    addText(pTitle, zTitle, &pCall->err);
    if (zTitle != 0) {
      zResult = sqlite3_mprintf(
          "{\"title\":%s,\"steps\":[%s]}", textOf(pTitle), textOf(out.pSteps));
    }
    sqlite3_free(zTitle);
    sqlite3_free(sqlite3_str_finish(pTitle));
  }
  finish(pCall, &out, zResult);
}
