/*
** export.c: rollout_export(id, format): a conversation in a format that others read:
** 'markdown', 'atif' (Agent Trajectory Interchange Format, version 1.8) or 'otlp' (OTLP
** JSON with the names of the GenAI conventions, version 0.1.0).
**
** What a conversation of this format has already are its own bytes, so that a file
** which was imported comes out as it was.
**
** What was said, called and returned is the normal form of texts.c, which is made in
** memory, so that it has what plain SQL has written, too. Only thoughts have no rows
** there: they are found by the shapes that they commonly have.
**
** A step is what one said: the user, the system, or the model in one call. A result
** belongs to the step of its call. What was taken back is there: it is a record.
**
** System prompt, tools and the raw request are those of the newest exchange in the
** archive whose agent_id is the id of the conversation, or that of its program; of the
** newest 8 one that offers tools comes first, as others may be titles and summaries.
*/
#include "export.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define EXPORT_DEPTH 60  /* levels at which thoughts are looked for */
#define EXPORT_BACK 2000 /* among so many calls a result finds its own */

/*----------------------------------------------------------------- steps ----*/

/* The first member that has one of these names, between which is a space; or -1. */
static int anyMember(const BxTree *p, int iNode, const char *zNames) {
  int i = -1, n;
  assert(iNode >= 0 && iNode < p->n);
  if (BX_TREE_KIND(p, iNode) != '{') return -1;
  for (; i < 0 && *zNames != 0; zNames += n + (zNames[n] != 0)) {
    n = (int)strcspn(zNames, " ");
    i = bxTreeMember(p, iNode, zNames, n);
  }
  return i;
}

static int isOneOf(const BxTree *p, int iNode, const char *zNames) {
  int n;
  if (iNode < 0) return 0;
  for (; *zNames != 0; zNames += n + (zNames[n] != 0)) {
    n = (int)strcspn(zNames, " ");
    if (bxTreeIs(p, iNode, zNames, n)) return 1;
  }
  return 0;
}

void bxExportMarkNul(char *z, int bWrite) {
  const char *zFrom = bWrite ? EXPORT_NUL_JSON : "\\u0000";
  while (z != 0 && (z = strchr(z, '\\')) != 0 && z[1] != 0) {
    if (strncmp(z, zFrom, 6) == 0) {
      memcpy(z, bWrite ? "\\u0000" : EXPORT_NUL_JSON, 6);
    }
    z += 2;
  }
}

/* A column as a text without a NUL, to sqlite3_free(). */
static char *textWithNul(sqlite3_stmt *pRow, int i, BxErr *pErr) {
  const char *z = bxColumnText(pRow, i, pErr);
  int n = z ? sqlite3_column_bytes(pRow, i) : 0, nDone;
  sqlite3_str *pOut;
  if (z == 0 || memchr(z, 0, (size_t)n) == 0)
    return bxColumnCopy(pRow, i, pErr);
  pOut = sqlite3_str_new(0);
  for (nDone = 0; nDone < n; nDone++) {
    if (z[nDone] == 0) {
      sqlite3_str_appendall(pOut, EXPORT_NUL);
    } else {
      sqlite3_str_append(pOut, z + nDone, 1);
    }
  }
  return bxStrFinish(pOut, pErr);
}

/* Adds a paragraph to a text, whose room doubles, so that many take no longer. */
static void addParagraph(Transcript *p, ExportText *pTo, const char *zNext) {
  i64 n = zNext ? (i64)strlen(zNext) : 0, nAll = pTo->n + n + 3;
  if (n == 0 || p->pErr->rc != SQLITE_OK) return;
  if (nAll > pTo->nAlloc) {
    char *z = sqlite3_realloc64(pTo->z, (sqlite3_uint64)nAll * 2);
    if (z == 0) {
      bxFail(p->pErr, SQLITE_NOMEM, "out of memory");
      return;
    }
    pTo->z = z;
    pTo->nAlloc = nAll * 2;
  }
  if (pTo->n > 0) {
    memcpy(pTo->z + pTo->n, "\n\n", 2);
    pTo->n += 2;
  }
  memcpy(pTo->z + pTo->n, zNext, (size_t)n + 1);
  pTo->n += n;
  assert(pTo->n < pTo->nAlloc);
}

static ExportStep *newSaidStep(Transcript *p, ExportSource eSource) {
  ExportStep *a =
      bxArrayAdd(&p->aStep, &p->nStep, &p->nStepAlloc, sizeof(*a), p->pErr);
  if (a == 0) return 0;
  a->eSource = eSource;
  a->iSequence = p->iSequence;
  a->iTime = p->iTime;
  a->iCall = p->nCall;
  return a;
}

/* The step of the model that goes on, or a new one. */
static ExportStep *modelStep(Transcript *p) {
  ExportStep *a = p->nStep > 0 ? &p->aStep[p->nStep - 1] : 0;
  if (a != 0 && a->eSource == EXPORT_AGENT && !a->bClosed) return a;
  return newSaidStep(p, EXPORT_AGENT);
}

/* The arguments of a call: a JSON object, or a text. */
static void copyArguments(
    Transcript *p, ExportCall *a, const RolloutText *pText) {
  const BxTree *pTree = &p->json.tree;
  int i = bxPathFind(pTree, p->json.iTop, p->json.iTop, pText->zPlace);
  BxTree args = {0};
  const char *zEnd = 0;
  if (i < 0) return;
  if (BX_TREE_KIND(pTree, i) == '"') {
    a->zArgs = bxTreeString(pTree, i, p->pErr);
  } else {
    a->zArgs = bxPrintf(
        p->pErr, "%.*s", pTree->a[i].nByte, pTree->z + pTree->a[i].iAt);
  }
  if (a->zArgs != 0 && *bxJsonSkipSpace(a->zArgs) == '{') {
    zEnd = bxTreeRead(&args, a->zArgs, (i64)strlen(a->zArgs), 0, 0, p->pErr);
  }
  a->bText = a->zArgs != 0 && *a->zArgs != 0 &&
             (zEnd == 0 || *bxJsonSkipSpace(zEnd) != 0);
  if (!a->bText) bxExportMarkNul(a->zArgs, 0);
  bxTreeFree(&args);
}

/* Adds a call, which is text number iText. If it comes again, it counts once. */
static void addToolCall(Transcript *p, i64 iText) {
  const RolloutText *pText = &p->told.aText[iText];
  ExportStep *pStep;
  ExportCall *a;
  i64 i;
  assert(pText->zTool != 0);
  for (i = p->nCall - 1; i >= 0 && i > p->nCall - EXPORT_BACK; i--) {
    if (pText->zCall != 0 && strcmp(p->aCall[i].zId, pText->zCall) == 0) {
      p->aCall[i].iText = iText;
      return;
    }
  }
  pStep = modelStep(p);
  a = pStep == 0 ? 0
                 : bxArrayAdd(&p->aCall, &p->nCall, &p->nCallAlloc, sizeof(*a),
                       p->pErr);
  if (a == 0) return;
  pStep->nCall++;
  assert(pStep->iCall + pStep->nCall == p->nCall);
  a->iText = iText;
  a->zId = pText->zCall && *pText->zCall
               ? bxPrintf(p->pErr, "%s", pText->zCall)
               : bxPrintf(p->pErr, "call_%lld", p->nCall);
  a->zName = bxPrintf(p->pErr, "%s", *pText->zTool ? pText->zTool : "unknown");
  a->iTime = a->iResult = p->iTime;
  copyArguments(p, a, pText);
  for (i = p->nEarly - 1; pText->iResult > 0 && i >= 0; i--) {
    if (p->aEarly[i].iText + 1 == pText->iResult) {
      a->zResult = p->aEarly[i].z;
      p->aEarly[i].z = 0;
    }
  }
}

/* Adds a result, which is text number iText, to its call. */
static void addToolResult(Transcript *p, i64 iText) {
  const char *z = p->told.aText[iText].z ? p->told.aText[iText].z : "";
  ExportStep *pStep = p->nStep > 0 ? &p->aStep[p->nStep - 1] : 0;
  i64 i = p->nCall - 1, iEnd = p->nCall - EXPORT_BACK;
  while (i >= 0 && i > iEnd &&
         p->told.aText[p->aCall[i].iText].iResult != iText + 1) {
    i--;
  }
  if (i >= 0 && i > iEnd) {
    ExportCall *pCall = &p->aCall[i];
    sqlite3_free(pCall->zResult);
    pCall->zResult = bxPrintf(p->pErr, "%s", z);
    pCall->iResult = p->iTime;
    while (pStep > p->aStep && pStep->iCall > i) pStep--;
  } else if (pStep != 0 || (pStep = newSaidStep(p, EXPORT_SYSTEM)) != 0) {
    ExportEarly *a = bxArrayAdd(
        &p->aEarly, &p->nEarly, &p->nEarlyAlloc, sizeof(*a), p->pErr);
    if (a == 0) return;
    *a = (ExportEarly){bxPrintf(p->pErr, "%s", z), iText, p->nStep - 1};
  }
  if (pStep != 0) pStep->bClosed = 1;
}

/* Looks for thoughts: {"type":"thinking"}, and what other programs write. */
static void addThoughts(Transcript *p, int i, int nDepth) {
  static const char zNot[] =
      "arguments input args output result toolUseResult replacement_history "
      "replacementHistory tools metadata usage tool_calls observation";
  const BxTree *pTree = &p->json.tree;
  int k, iText, iFlag;
  ExportStep *pStep;
  char *z;
  assert(i >= 0 && i < pTree->n);
  if (nDepth > EXPORT_DEPTH || p->pErr->rc != SQLITE_OK) return;
  if (BX_TREE_KIND(pTree, i) == '[') {
    for (k = i + 1; k < pTree->a[i].iNext; k = pTree->a[k].iNext) {
      addThoughts(p, k, nDepth + 1);
    }
  }
  if (BX_TREE_KIND(pTree, i) != '{') return;
  iFlag = anyMember(pTree, i, "thought");
  iText = anyMember(pTree, i, "reasoning_content");
  if (iText < 0 && anyMember(pTree, i, "subject") >= 0) {
    iText = anyMember(pTree, i, "description");
  } else if (isOneOf(pTree, anyMember(pTree, i, "type"),
                 "thinking reasoning think") ||
             (iFlag >= 0 && BX_TREE_KIND(pTree, iFlag) == 't')) {
    iText = anyMember(pTree, i, "thinking text think content summary");
    if (iText >= 0 && BX_TREE_KIND(pTree, iText) == 'n') {
      iText = anyMember(pTree, i, "summary");
    }
  }
  if (iText >= 0) {
    z = bxRolloutTextOf(pTree, iText, 0, p->pErr);
    pStep = z && *z ? modelStep(p) : 0;
    if (pStep != 0) addParagraph(p, &pStep->think, z);
    sqlite3_free(z);
    return;
  }
  for (k = i + 1; k < pTree->a[i].iNext; k = pTree->a[k + 1].iNext) {
    if (!isOneOf(pTree, k, zNot)) addThoughts(p, k + 1, nDepth + 1);
  }
}

/*----------------------------------------------------------------- items ----*/

/* What a text of the item is: the model's words come first, then its calls with their
** results, and at last what others say. */
static int passOf(const RolloutText *a) {
  return a->eKind == BX_KIND_ASSISTANT                            ? 0
         : a->eKind == BX_KIND_CALL || a->eKind == BX_KIND_RESULT ? 1
                                                                  : 2;
}

static void takeText(Transcript *p, i64 iText) {
  const RolloutText *pText = &p->told.aText[iText];
  ExportStep *pStep;
  assert(pText->zRole != 0);
  if (pText->eKind == BX_KIND_CALL) {
    addToolCall(p, iText);
  } else if (pText->eKind == BX_KIND_RESULT || pText->eKind == BX_KIND_TOOL) {
    addToolResult(p, iText);
  } else if (pText->eKind == BX_KIND_ASSISTANT) {
    pStep = modelStep(p);
    if (pStep != 0) addParagraph(p, &pStep->text, pText->z);
  } else if (pText->eKind == BX_KIND_USER) {
    int bMade = bxRolloutIsPreamble(p->told.pRules, pText->z);
    pStep = newSaidStep(p, bMade ? EXPORT_SYSTEM : EXPORT_USER);
    if (pStep != 0) addParagraph(p, &pStep->text, pText->z);
  }
}

static void showItem(Transcript *p, sqlite3_stmt *pRow) {
  const char *zType = bxColumnText(pRow, 2, p->pErr);
  char *z = bxColumnCopy(pRow, 3, p->pErr);
  RolloutDerive *pTold = &p->told;
  i64 i, nBefore = pTold->nText;
  int iPass;
  p->iSequence = sqlite3_column_int64(pRow, 0);
  p->iTime = sqlite3_column_int64(pRow, 1);
  if (zType == 0 || z == 0 || p->iSequence == 0) {
    sqlite3_free(z);
    return;
  }
  bxExportMarkNul(z, 0);
  p->json.iTop = 0;
  if (bxTreeRead(&p->json.tree, z, (i64)strlen(z), 0, 0, p->pErr) == 0) {
    sqlite3_free(z);
    return;
  }
  bxRolloutTell(pTold, zType, &p->json, p->iSequence, p->iTime);
  if (!bxNameEquals(zType, (i64)strlen(zType), "event_msg")) {
    addThoughts(p, 0, 0);
  }
  for (iPass = 0; iPass < 3; iPass++) {
    for (i = nBefore; i < pTold->nText && p->pErr->rc == SQLITE_OK; i++) {
      const RolloutText *a = &pTold->aText[i];
      if (!a->bTold && a->zRole && passOf(a) == iPass) takeText(p, i);
    }
  }
  bxRolloutTextsTold(pTold);
  sqlite3_free(z);
}

static void showItems(Transcript *p, i64 no) {
  static const char zItems[] =
      "SELECT d.id & 4294967295, d.timestamp, d.type, "
      "d.payload " ROLLOUT_FROM_ITEMS "ORDER BY s.rollout, s.first, d.id";
  static const RolloutHead none = {0, -1, 0, 0, -1, 0, -1, 0, 0};
  sqlite3_stmt *pRow = bxStmtTake(p->pHome, zItems, p->pErr);
  i64 i;
  p->told.bTexts = 1;
  bxRolloutDeriveBegin(&p->told, p->pHome, &none, p->pErr);
  bxBind(pRow, p->pErr, "i", no);
  while (bxStep(pRow, p->pErr)) showItem(p, pRow);
  if (pRow != 0) bxStmtGive(p->pHome, zItems, pRow);
  for (i = 0; i < p->nCall; i++) {
    p->aCall[i].bError = p->told.aText[p->aCall[i].iText].eError > 0;
  }
  for (i = 0; i < p->nEarly; i++) { /* no call came */
    addParagraph(p, &p->aStep[p->aEarly[i].iStep].loose, p->aEarly[i].z);
  }
}

/* Gives tokens to the step of the model that told them. */
static void takeUsage(Transcript *p, Bx *bx, sqlite3_value *pId) {
  sqlite3_value *apArg[] = {pId, 0};
  sqlite3_stmt *pRow = bxRolloutUsage(bx, apArg, p->pErr);
  ExportStep *a = 0, *pNext = p->aStep, *pEnd = p->aStep + p->nStep;
  i64 iBefore = -1;
  while (bxStep(pRow, p->pErr)) {
    i64 iSequence = sqlite3_column_int64(pRow, 1);
    if (iSequence < iBefore) {
      pNext = p->aStep;
      a = 0;
    }
    iBefore = iSequence;
    /* the last one up to there; if there is none, the first one */
    for (; pNext < pEnd && (a == 0 || pNext->iSequence <= iSequence); pNext++) {
      if (pNext->eSource == EXPORT_AGENT) a = pNext;
    }
    if (a == 0) break;
    a->nUsage++;
    if (a->zModel == 0) a->zModel = bxColumnCopy(pRow, 2, p->pErr);
    a->nFresh += sqlite3_column_int64(pRow, 3);
    a->nWrite += sqlite3_column_int64(pRow, 4);
    a->nRead += sqlite3_column_int64(pRow, 5);
    a->nOutput += sqlite3_column_int64(pRow, 6);
    a->nReasoning += sqlite3_column_int64(pRow, 7);
    if (sqlite3_column_type(pRow, 11) != SQLITE_NULL) {
      a->bCost = 1;
      a->rCost += sqlite3_column_double(pRow, 11);
    }
  }
  sqlite3_finalize(pRow);
}

/*---------------------------------------------------------------- around ----*/

/* clang-format off */
/* What requests of Anthropic, OpenAI and Gemini have as the prompt of the system. */
#define PROMPT_AT(place)                                                       \
  "CASE json_type(j, '" place "') WHEN 'text' THEN j ->> '" place "' "         \
  "WHEN 'array' THEN (SELECT group_concat(e.value ->> 'text', char(10)) "      \
  "FROM json_each(j, '" place "') AS e WHERE e.type = 'object') END"
#define PROMPT_OF                                                              \
  "coalesce(" PROMPT_AT("$.system") ", " PROMPT_AT("$.instructions") ", "      \
  PROMPT_AT("$.systemInstruction.parts") ", "                                  \
  PROMPT_AT("$.system_instruction.parts") ", "                                 \
  "(SELECT group_concat(CASE json_type(m.value, '$.content') "                 \
  "WHEN 'text' THEN m.value ->> 'content' ELSE (SELECT group_concat("          \
  "e.value ->> 'text', char(10)) FROM json_each(m.value, '$.content') AS e "   \
  "WHERE e.type = 'object') END, char(10)) FROM json_each(j, '$.messages') "   \
  "AS m WHERE m.type = 'object' AND "                                          \
  "m.value ->> 'role' IN ('system', 'developer')))"
/* A tool as a function: its name, and what is there of the rest. */
#define FUNCTION_OF(name, text, schema)                                        \
  "json_remove(json_object('name', " name ", 'description', " text ", "        \
  "'parameters', json(" schema ")), iif(" text " IS NULL, '$.description', "   \
  "'$.none'), iif(" schema " IS NULL, '$.parameters', '$.none'))"
/* Tools, in the shape of OpenAI's functions. */
#define TOOL_OF(t)                                                             \
  "CASE WHEN json_type(" t ", '$.function') = 'object' THEN json(" t ") "      \
  "ELSE json_object('type', 'function', 'function', json("                     \
  FUNCTION_OF("coalesce(" t " ->> 'name', " t " ->> 'type')",                  \
      t " ->> 'description'", "coalesce(" t " -> 'input_schema', "             \
      t " -> 'parameters', " t " -> 'parametersJsonSchema')") ")) END"
#define TOOLS_AT(place)                                                        \
  "(SELECT json_group_array(json(tool)) FROM (SELECT " TOOL_OF("t.value")      \
  " AS tool FROM json_each(j, '" place "') AS t WHERE t.type = 'object' "      \
  "AND t.value -> 'functionDeclarations' IS NULL UNION ALL SELECT "            \
  TOOL_OF("f.value") " FROM json_each(j, '" place "') AS t, "                  \
  "json_each(t.value, '$.functionDeclarations') AS f "                         \
  "WHERE t.type = 'object' AND f.type = 'object'))"
static const char zNewest[] =
    "SELECT request_body FROM main.payload_rows AS r JOIN (SELECT id, rowid AS n "
    "FROM main.event_payloads WHERE agent_id IN (?1, ?2) AND request_body "
    "IS NOT NULL ORDER BY rowid DESC LIMIT 8) AS k ON k.id = r.id "
    "ORDER BY instr(request_body, '\"tools\"') > 0 DESC, n DESC LIMIT 1";
static const char zRequest[] =
    "SELECT prompt, tools, (SELECT json_group_array(json('{\"type\":\"function\",' "
    "|| substr(json(f.value -> '$.function'), 2))) FROM json_each(tools) AS f "
    "WHERE f.value ->> '$.function.name' IS NOT NULL) FROM (SELECT " PROMPT_OF " AS prompt, "
    "nullif(" TOOLS_AT("$.tools") ", '[]') AS tools FROM (SELECT CASE WHEN " BX_JSON_VALID("?1") " THEN ?1 END AS j) "
    "WHERE json_type(j) = 'object')";
/* The texts in the order of EXPORT_TEXTS. */
static const char zAbout[] =
    "SELECT coalesce(a.format, 'codex'), h.title, a.cwd, a.branch, CASE WHEN "
    BX_JSON_VALID("d.payload") " AND d.payload -> '$.blackbox' IS NOT NULL THEN "
    "(SELECT x.payload ->> 'version' FROM main.rollout__items AS x WHERE x.id "
    "BETWEEN d.id + 1 AND d.id + 20 AND " BX_JSON_VALID("x.payload") " AND "
    "x.payload ->> 'version' IS NOT NULL LIMIT 1) ELSE a.cli_version END, "
    "a.model_provider, a.model, a.parent, a.source_id, CASE WHEN "
    BX_JSON_VALID("d.payload") " THEN coalesce(d.payload ->> "
    "'$.base_instructions.text', d.payload ->> '$.instructions', (SELECT "
    "x.payload ->> 'message' FROM main.rollout__items AS x WHERE x.id = d.id + 1 "
    "AND x.type = 'system' AND " BX_JSON_VALID("x.payload") ")) END "
    "FROM main.rollout__heads AS h LEFT JOIN main.rollout__about AS a USING (no) "
    "LEFT JOIN main.rollout__items AS d ON d.id = h.no << 32 WHERE h.no = ?1";
/* clang-format on */

static void readAbout(Transcript *p, i64 no) {
  sqlite3_stmt *pRow = bxStmt(p->pHome, zAbout, p->pErr);
  int i;
  bxBind(pRow, p->pErr, "i", no);
  if (bxStep(pRow, p->pErr)) {
    for (i = 0; i < EXPORT_TEXTS; i++) {
      p->az[i] = textWithNul(pRow, i, p->pErr);
    }
  }
  bxReset(pRow, p->pErr);
}

/* What the archive has of the conversation, if there is one in the database. */
static void readArchived(Transcript *p, Bx *bx) {
  BxErr none = {SQLITE_OK, 0};
  BxStmts *pArchive =
      p->pErr->rc == SQLITE_OK ? bxDomainSchema(bx, "payload", &none) : 0;
  sqlite3_stmt *pRow;
  if (bxErrIs(&none, "NotInstalledError")) bxErrClear(&none);
  bxErrMove(p->pErr, &none);
  if (pArchive == 0 || p->pErr->rc != SQLITE_OK) return;
  p->zRequest = bxQueryText(
      pArchive, zNewest, p->pErr, "tt", p->zId, p->az[EXPORT_SOURCE]);
  if (p->zRequest == 0) return;
  pRow = bxStmt(pArchive, zRequest, p->pErr);
  bxBind(pRow, p->pErr, "t", p->zRequest);
  if (bxStep(pRow, p->pErr)) {
    char *z = textWithNul(pRow, 0, p->pErr);
    if (z != 0) {
      sqlite3_free(p->az[EXPORT_PROMPT]);
      p->az[EXPORT_PROMPT] = z;
    }
    p->zTools = bxColumnCopy(pRow, 1, p->pErr);
    if (p->zTools != 0) p->zFlatTools = bxColumnCopy(pRow, 2, p->pErr);
  }
  bxReset(pRow, p->pErr);
}

static void freeExport(Transcript *p) {
  i64 i;
  assert(p->nStep <= p->nStepAlloc && p->nCall <= p->nCallAlloc);
  for (i = 0; i < EXPORT_TEXTS; i++) sqlite3_free(p->az[i]);
  for (i = 0; i < p->nStep; i++) {
    sqlite3_free(p->aStep[i].text.z);
    sqlite3_free(p->aStep[i].think.z);
    sqlite3_free(p->aStep[i].zModel);
    sqlite3_free(p->aStep[i].loose.z);
  }
  for (i = 0; i < p->nCall; i++) {
    sqlite3_free(p->aCall[i].zId);
    sqlite3_free(p->aCall[i].zName);
    sqlite3_free(p->aCall[i].zArgs);
    sqlite3_free(p->aCall[i].zResult);
  }
  for (i = 0; i < p->nEarly; i++) sqlite3_free(p->aEarly[i].z);
  sqlite3_free(p->aEarly);
  sqlite3_free(p->aStep);
  sqlite3_free(p->aCall);
  sqlite3_free(p->zTools);
  sqlite3_free(p->zFlatTools);
  sqlite3_free(p->zRequest);
  bxTreeFree(&p->json.tree);
  bxRolloutDeriveEnd(&p->told);
}

sqlite3_str *bxRolloutExportAs(
    BxCall *pCall, const RolloutHead *pHead, const char *zId) {
  static const struct {
    const char *zName, *zOwn; /* a format whose files are this already */
    void (*xWrite)(Transcript *p);
  } aFormat[] = {{"markdown", "", bxExportMarkdown},
      {"atif", "atif", bxExportAtif}, {"otlp", "otel", bxExportOtlp}};
  Transcript whole, *p = &whole;
  const char *zFormat = bxText(pCall->aArg[1], "format", 20, 0, &pCall->err);
  int i = 0;
  memset(p, 0, sizeof(*p));
  p->pErr = &pCall->err;
  p->pHome = bxRolloutSchema(pCall->bx, p->pErr);
  while (zFormat != 0 && i < 3 && strcmp(zFormat, aFormat[i].zName) != 0) i++;
  if (i == 3) {
    bxRefuse(p->pErr,
        "ValidationError: Invalid format: %s, it must be 'markdown', 'atif' or "
        "'otlp'; omit it for the conversation's own lines",
        pCall->aArg[1]);
  }
  if (p->pErr->rc != SQLITE_OK) return 0;
  assert(i < 3 && strlen(zId) == 36);
  readAbout(p, pHead->no);
  if (p->az[EXPORT_FORMAT] != 0 &&
      strcmp(p->az[EXPORT_FORMAT], aFormat[i].zOwn) == 0) {
    freeExport(p);
    return 0;
  }
  memcpy(p->zId, zId, 37);
  if (p->pErr->rc == SQLITE_OK) showItems(p, pHead->no);
  if (p->pErr->rc == SQLITE_OK) takeUsage(p, pCall->bx, pCall->aArg[0]);
  readArchived(p, pCall->bx);
  p->pOut = sqlite3_str_new(pCall->bx->db);
  if (p->pErr->rc == SQLITE_OK) aFormat[i].xWrite(p);
  freeExport(p);
  return p->pOut;
}
