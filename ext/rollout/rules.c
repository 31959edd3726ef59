/*
** rules.c: the rows that say how items are read (sql/rollout_formats.sql), and
** places in a payload.
**
** They are kept in memory with what tells them from others: a number in
** rollout__act, which is another one after every change of the readings, the usage
** formats and the policy, also after one that was rolled back, and the texts of
** the rows that only an import needs. The answers of the policy are kept with them.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/*-------------------------------------------------------------- places ----*/

/* Whether a key with escapes stands for these bytes. */
static int isEscapedKey(const BxTree *p, int i, const char *z, i64 n) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  int bSame;
  bxTreeText(p, i, pOut);
  bSame = sqlite3_str_length(pOut) == n &&
          (n == 0 || memcmp(sqlite3_str_value(pOut), z, (size_t)n) == 0);
  sqlite3_free(sqlite3_str_finish(pOut));
  return bSame;
}

/* The value of a member, or -1. */
static int findMember(RolloutJson *pJson, int iNode, const char *z, i64 n) {
  const BxTree *p = &pJson->tree;
  int i;
  if (BX_TREE_KIND(p, iNode) != '{') return -1;
  for (i = iNode + 1; i < p->a[iNode].iNext; i = p->a[i + 1].iNext) {
    const char *zKey = p->z + p->a[i].iAt;
    int nKey = p->a[i].nByte;
    if (nKey - 2 == n && memcmp(zKey + 1, z, (size_t)n) == 0) return i + 1;
    if (memchr(zKey, '\\', (size_t)nKey) != 0 && isEscapedKey(p, i, z, n))
      return i + 1;
  }
  return -1;
}

/* One step of a place: the member whose name ends at zEnd, or element [n], or
** the n-th from the end, [#-n]. */
static int stepInto(
    RolloutJson *pJson, int iNode, const char *z, const char *zEnd) {
  const BxTree *p = &pJson->tree;
  int i, n = 0, bBack = z[0] == '[' && z[1] == '#' && z[2] == '-';
  if (*z != '[') return findMember(pJson, iNode, z, zEnd - z);
  if (BX_TREE_KIND(p, iNode) != '[') return -1;
  for (z += bBack ? 3 : 1; *z >= '0' && *z <= '9' && n < BX_TREE_MAX; z++) {
    n = n * 10 + (*z - '0');
  }
  for (i = iNode + 1; bBack && i < p->a[iNode].iNext; i = p->a[i].iNext) n--;
  if (bBack) n = -n;
  for (i = iNode + 1; i < p->a[iNode].iNext; i = p->a[i].iNext) {
    if (n-- == 0) return i;
  }
  return -1;
}

int bxRolloutPlace(RolloutJson *p, const char *zPath) {
  const char *z = zPath;
  int iNode = p->iTop;
  if (z == 0 || *z++ != '$') return -1;
  while (*z != 0 && *z != '|' && iNode >= 0) {
    const char *zEnd;
    if (*z == '.') z++;
    zEnd = z + (*z == '[' ? strcspn(z, "]") + 1 : strcspn(z, ".[|"));
    iNode = stepInto(p, iNode, z, zEnd);
    z = zEnd;
  }
  return iNode;
}

int bxRolloutPlaces(RolloutJson *p, const char *zPaths) {
  const char *z;
  for (z = zPaths; z != 0; z = strchr(z, '|')) {
    int iNode;
    if (*z == '|') z++;
    iNode = bxRolloutPlace(p, z);
    if (iNode >= 0 && BX_TREE_KIND(&p->tree, iNode) != 'n') return iNode;
  }
  return -1;
}

char *bxRolloutString(const BxTree *p, int iNode, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  char *z;
  bxTreeText(p, iNode, pOut);
  z = bxFinish(pOut, pErr);
  return z != 0 || pErr->rc != SQLITE_OK ? z : bxPrintf(pErr, "");
}

/*---------------------------------------------------------------- rows ----*/

static void freeRules(RolloutRules *p) {
  i64 i;
  int j;
  for (i = 0; i < p->nFormat; i++) {
    for (j = 0; j < ROLLOUT_FORMAT_TEXTS; j++) {
      sqlite3_free(p->aFormat[i].az[j]);
    }
  }
  for (i = 0; i < p->nUsage; i++) {
    for (j = 0; j < ROLLOUT_USAGE_TEXTS; j++) sqlite3_free(p->aUsage[i].az[j]);
  }
  sqlite3_free(p->aUsage);
  sqlite3_free(p->aFormat);
  for (i = 0; i < p->nReading; i++) {
    sqlite3_free(p->aReading[i].zType);
    sqlite3_free(p->aReading[i].zPath);
    sqlite3_free(p->aReading[i].zOther);
    sqlite3_free(p->aReading[i].zPart);
  }
  for (i = 0; i < p->nCondition; i++) {
    sqlite3_free(p->aCondition[i].zPath);
    sqlite3_free(p->aCondition[i].zText);
  }
  for (i = 0; i < p->nPreamble; i++) sqlite3_free(p->azPreamble[i]);
  for (i = 0; i < p->nAttribute; i++) {
    for (j = 0; j < ROLLOUT_ATTRIBUTE_TEXTS; j++) {
      sqlite3_free(p->aAttribute[i].az[j]);
    }
  }
  for (i = 0; i < p->nAnswer; i++) {
    sqlite3_free(p->aAnswer[i].zType);
    sqlite3_free(p->aAnswer[i].zPayloadType);
  }
  sqlite3_free(p->zEdition);
  for (i = 0; i < p->nProse; i++) {
    for (j = 0; j < ROLLOUT_PROSE_TEXTS; j++) sqlite3_free(p->aProse[i].az[j]);
  }
  sqlite3_free(p->aProse);
  sqlite3_free(p->aAttribute);
  sqlite3_free(p->aReading);
  sqlite3_free(p->aCondition);
  sqlite3_free(p->azPreamble);
  memset(p, 0, sizeof(*p));
}

void bxRolloutRulesFree(RolloutRules *p) {
  if (p == 0) return;
  freeRules(p);
  sqlite3_free(p);
}

/* One member of the conditions: its key is node i. */
static void addCondition(
    RolloutRules *p, const BxTree *pTree, int i, BxErr *pErr) {
  char cKind = BX_TREE_KIND(pTree, i + 1);
  RolloutCondition *a = bxAdd(
      &p->aCondition, &p->nCondition, &p->nConditionAlloc, sizeof(*a), pErr);
  if (a == 0) return;
  a->zPath = bxRolloutString(pTree, i, pErr);
  if (cKind == '"') a->zText = bxRolloutString(pTree, i + 1, pErr);
  if (a->zText != 0) bxRolloutMakeKey(a->zText);
  a->bThere = cKind == 't';
  a->bSeveral = a->zPath != 0 && strchr(a->zPath, '|') != 0;
  if (bxSameText(a->zPath, "$.type")) a->cPart = 't';
  if (bxSameText(a->zPath, "$.role")) a->cPart = 'r';
}

/* What never holds, of conditions that are no JSON object. */
static void addNever(RolloutRules *p, BxErr *pErr) {
  RolloutCondition *a = bxAdd(
      &p->aCondition, &p->nCondition, &p->nConditionAlloc, sizeof(*a), pErr);
  if (a == 0) return;
  a->zPath = bxPrintf(pErr, "$");
}

static RolloutTest addConditions(
    RolloutRules *p, const char *zJson, BxErr *pErr) {
  BxTree tree = {0, 0, 0, 0};
  RolloutTest test = {p->nCondition, 0};
  int i;
  if (zJson == 0) return test;
  if (bxTreeRead(&tree, zJson, (i64)strlen(zJson), 0, 0, pErr) != 0 &&
      BX_TREE_KIND(&tree, 0) == '{') {
    for (i = 1; i < tree.a[0].iNext; i = tree.a[i + 1].iNext) {
      addCondition(p, &tree, i, pErr);
    }
  } else {
    addNever(p, pErr);
  }
  bxTreeFree(&tree);
  test.n = p->nCondition - test.i;
  return test;
}

/* In the order of RolloutFact. */
static const char zReadings[] =
    "SELECT instr('user,  goal,  review,title, cwd,   model, branch,', "
    "fact || ',') / 7, type_key, place, other, part, source = 'event', "
    "conditions FROM main.rollout_readings "
    "WHERE fact NOT IN ('assistant', 'tool') "
    "ORDER BY type_key, format, fact, type, conditions, place";

static void addReading(RolloutRules *p, sqlite3_stmt *pRow, BxErr *pErr) {
  RolloutReading *a =
      bxAdd(&p->aReading, &p->nReading, &p->nReadingAlloc, sizeof(*a), pErr);
  if (a == 0) return;
  a->eFact = (RolloutFact)sqlite3_column_int(pRow, 0);
  a->zType = bxColumnCopy(pRow, 1, pErr);
  a->zPath = bxColumnCopy(pRow, 2, pErr);
  if (sqlite3_column_type(pRow, 3) != SQLITE_NULL) {
    a->zOther = bxColumnCopy(pRow, 3, pErr);
  }
  a->zPart = bxColumnCopy(pRow, 4, pErr);
  a->bEvent = sqlite3_column_int(pRow, 5);
  a->test = addConditions(p, bxColumnText(pRow, 6, pErr), pErr);
}

static const char zLineFormats[] =
    "SELECT format, items, type, payload, time, conversation, agent, trace, "
    "item_id, once, mark, names, spans, newest, apart FROM "
    "main.rollout_formats "
    "WHERE format <> '' AND type <> '' ORDER BY rank, format";

static void addFormat(RolloutRules *p, sqlite3_stmt *pRow, BxErr *pErr) {
  RolloutFormat *a =
      bxAdd(&p->aFormat, &p->nFormat, &p->nFormatAlloc, sizeof(*a), pErr);
  int i;
  if (a == 0) return;
  for (i = 0; i < ROLLOUT_FORMAT_TEXTS; i++) {
    if (sqlite3_column_type(pRow, i) == SQLITE_NULL) continue;
    a->az[i] = bxColumnCopy(pRow, i, pErr);
  }
  a->bOnce = sqlite3_column_int(pRow, ROLLOUT_FORMAT_TEXTS);
  a->mark = addConditions(
      p, bxColumnText(pRow, ROLLOUT_FORMAT_TEXTS + 1, pErr), pErr);
  a->names = addConditions(
      p, bxColumnText(pRow, ROLLOUT_FORMAT_TEXTS + 2, pErr), pErr);
  a->bSpans = sqlite3_column_int(pRow, ROLLOUT_FORMAT_TEXTS + 3);
  a->newest = addConditions(
      p, bxColumnText(pRow, ROLLOUT_FORMAT_TEXTS + 4, pErr), pErr);
  a->bApart = sqlite3_column_int(pRow, ROLLOUT_FORMAT_TEXTS + 5);
}

static const char zAttributes[] =
    "SELECT format, attribute, name, coalesce(only, ''), value, rank, json "
    "FROM main.rollout_attributes "
    "WHERE format <> '' AND attribute <> '' AND name <> '' "
    "ORDER BY format, length(attribute) DESC, rank, attribute, name, only";

static void addAttribute(RolloutRules *p, sqlite3_stmt *pRow, BxErr *pErr) {
  RolloutAttribute *a = bxAdd(
      &p->aAttribute, &p->nAttribute, &p->nAttributeAlloc, sizeof(*a), pErr);
  int i;
  if (a == 0) return;
  for (i = 0; i < ROLLOUT_ATTRIBUTE_TEXTS; i++) {
    if (sqlite3_column_type(pRow, i) == SQLITE_NULL) continue;
    a->az[i] = bxColumnCopy(pRow, i, pErr);
  }
  a->iRank = sqlite3_column_int64(pRow, ROLLOUT_ATTRIBUTE_TEXTS);
  a->bJson = sqlite3_column_int(pRow, ROLLOUT_ATTRIBUTE_TEXTS + 1);
}

static const char zProse[] =
    "SELECT format, prefix, type, first FROM main.rollout_lines "
    "ORDER BY length(prefix) DESC, format, prefix";

static void addProse(RolloutRules *p, sqlite3_stmt *pRow, BxErr *pErr) {
  RolloutProse *a =
      bxAdd(&p->aProse, &p->nProse, &p->nProseAlloc, sizeof(*a), pErr);
  int i;
  if (a == 0) return;
  for (i = 0; i < ROLLOUT_PROSE_TEXTS; i++) {
    a->az[i] = bxColumnCopy(pRow, i, pErr);
  }
  a->bFirst = sqlite3_column_int(pRow, ROLLOUT_PROSE_TEXTS);
}

static const char zUsageFormats[] =
    "SELECT type_key, format, place, total, call_1, call_2, model, cost, "
    "input, cache_write, cache_read, output, reasoning, cache_write_1h, "
    "cache_in_input, "
    "reasoning_in_output, conditions FROM main.rollout_usage_formats "
    "ORDER BY type_key, format, type, conditions, place";

static void addUsageFormat(RolloutRules *p, sqlite3_stmt *pRow, BxErr *pErr) {
  RolloutUsageFormat *a =
      bxAdd(&p->aUsage, &p->nUsage, &p->nUsageAlloc, sizeof(*a), pErr);
  int i;
  if (a == 0) return;
  for (i = 0; i < ROLLOUT_USAGE_TEXTS; i++) {
    if (sqlite3_column_type(pRow, i) == SQLITE_NULL) continue;
    a->az[i] = bxColumnCopy(pRow, i, pErr);
  }
  a->bCacheIn = sqlite3_column_int(pRow, ROLLOUT_USAGE_TEXTS);
  a->bReasoningIn = sqlite3_column_int(pRow, ROLLOUT_USAGE_TEXTS + 1);
  a->test =
      addConditions(p, bxColumnText(pRow, ROLLOUT_USAGE_TEXTS + 2, pErr), pErr);
}

static void addPreamble(RolloutRules *p, sqlite3_stmt *pRow, BxErr *pErr) {
  char **az = bxGrow(
      p->azPreamble, p->nPreamble, &p->nPreambleAlloc, sizeof(*az), pErr);
  if (az == 0) return;
  p->azPreamble = az;
  az[p->nPreamble] = bxColumnCopy(pRow, 0, pErr);
  if (az[p->nPreamble] == 0) return;
  bxAddByte(&p->first, *az[p->nPreamble++]);
}

static void readAllRules(RolloutRules *p, BxStmts *pHome, BxErr *pErr) {
  static const char zPreambles[] = "SELECT prefix FROM main.rollout_preambles";
  sqlite3_stmt *pRow = bxStmt(pHome, zReadings, pErr);
  bxAddByte(&p->first, '\\');
  while (bxRow(pRow, pErr)) addReading(p, pRow, pErr);
  bxDone(pRow, pErr);
  pRow = bxStmt(pHome, zLineFormats, pErr);
  while (bxRow(pRow, pErr)) addFormat(p, pRow, pErr);
  bxDone(pRow, pErr);
  pRow = bxStmt(pHome, zAttributes, pErr);
  while (bxRow(pRow, pErr)) addAttribute(p, pRow, pErr);
  bxDone(pRow, pErr);
  pRow = bxStmt(pHome, zProse, pErr);
  while (bxRow(pRow, pErr)) addProse(p, pRow, pErr);
  bxDone(pRow, pErr);
  pRow = bxStmt(pHome, zUsageFormats, pErr);
  while (bxRow(pRow, pErr)) addUsageFormat(p, pRow, pErr);
  bxDone(pRow, pErr);
  pRow = bxStmt(pHome, zPreambles, pErr);
  while (bxRow(pRow, pErr)) addPreamble(p, pRow, pErr);
  bxDone(pRow, pErr);
}

int bxSameText(const char *z1, const char *z2) {
  return z1 == 0 || z2 == 0 ? z1 == z2 : strcmp(z1, z2) == 0;
}

/* Compares what tells the rows in force from others with what p has: the number
** that triggers change, whether there is an index, the preset of the policy, and
** the rows that have no triggers; with bImport, those that only an import needs. Sets
** *pzNew to it, to sqlite3_free(), if it is another one. */
static void readEdition(BxStmts *pHome, const RolloutRules *p, int bImport,
    char **pzNew, BxErr *pErr) {
  static const char zEdition[] =
      "SELECT stamp || ',' || search || ',' || coalesce((SELECT value FROM "
      "main.blackbox_settings WHERE name = 'rollout.policy'), '') || ',' || "
      "coalesce((SELECT group_concat(prefix, char(10)) FROM "
      "main.rollout_preambles), '') || char(10, 1), iif(?1, json_array("
      "(SELECT json_group_array(json_array(format, rank, mark, items, type, "
      "payload, time, names, conversation, once, agent, trace, item_id, spans, "
      "newest, apart)) FROM main.rollout_formats), "
      "(SELECT json_group_array(json_array(format, attribute, name, only, "
      "value, rank, json)) FROM main.rollout_attributes), "
      "(SELECT json_group_array(json_array(format, prefix, type, first)) "
      "FROM main.rollout_lines)), '') FROM main.rollout__act";
  sqlite3_stmt *pRow = bxStmt(pHome, zEdition, pErr);
  const char *zOld = p != 0 && p->pHome == pHome ? p->zEdition : 0;
  bxBind(pRow, pErr, "i", (i64)bImport);
  if (bxRow(pRow, pErr)) {
    const char *z1 = bxColumnText(pRow, 0, pErr);
    const char *z2 = bxColumnText(pRow, 1, pErr);
    size_t n1 = z1 ? strlen(z1) : 0;
    if (pErr->rc == SQLITE_OK && (zOld == 0 || strncmp(zOld, z1, n1) != 0 ||
                                     (bImport && strcmp(zOld + n1, z2) != 0))) {
      *pzNew = bxPrintf(pErr, "%s%s", z1, z2);
    }
  }
  bxDone(pRow, pErr);
}

const RolloutRules *bxRolloutRules(BxStmts *pHome, int bImport, BxErr *pErr) {
  RolloutMemory *pMemory = bxRolloutMemory(pHome->bx, pErr);
  RolloutRules *p = pErr->rc == SQLITE_OK ? pMemory->pRules : 0;
  char *zEdition = 0;
  readEdition(pHome, p, bImport, &zEdition, pErr);
  if (zEdition == 0) return pErr->rc == SQLITE_OK ? p : 0;
  if (p == 0) p = pMemory->pRules = bxNew(sizeof(*p), pErr);
  if (p != 0) {
    freeRules(p);
    readAllRules(p, pHome, pErr);
  }
  if (pErr->rc != SQLITE_OK) {
    if (p != 0) freeRules(p);
    sqlite3_free(zEdition);
    return 0;
  }
  p->pHome = pHome;
  p->zEdition = zEdition;
  p->bSearch = strncmp(strchr(zEdition, ','), ",1", 2) == 0;
  return p;
}

/*--------------------------------------------------------------- policy ----*/

/* The same query as in the trigger rollout_log_insert, which cannot be called
** from here; a test compares both. ?2 is '' for an item without a payload, and
** NULL for a payload without a type. */
static const char zKeep[] =
    "SELECT coalesce(max(4 * (item_key <> '*') + 2 * (payload_key <> '*') "
    "+ keep) & 1, 0) FROM main.rollout_policy WHERE preset = "
    "(SELECT CAST(value AS TEXT) FROM main.blackbox_settings WHERE name = "
    "'rollout.policy') "
    "AND item_key IN (lower(replace(?1, '_', '')), '*') AND payload_key IN "
    "(coalesce(lower(replace(?2, '_', '')), '*'), iif(?2 IS '', NULL, '*'))";

int bxRolloutKeeps(
    BxStmts *pHome, const char *zType, const char *zPayloadType, BxErr *pErr) {
  RolloutMemory *pMemory = bxRolloutMemory(pHome->bx, pErr);
  RolloutRules *p = pErr->rc == SQLITE_OK ? pMemory->pRules : 0;
  RolloutAnswer *a;
  int i, bKeep;
  for (i = 0; p != 0 && i < p->nAnswer; i++) {
    a = &p->aAnswer[i];
    if (bxSameText(a->zType, zType) &&
        bxSameText(a->zPayloadType, zPayloadType)) {
      return a->bKeep;
    }
  }
  bKeep = (int)bxAsk(pHome, zKeep, pErr, "tt", zType, zPayloadType);
  if (p == 0 || p->nAnswer == ROLLOUT_ANSWERS || pErr->rc != SQLITE_OK) {
    return bKeep;
  }
  a = &p->aAnswer[p->nAnswer++];
  a->bKeep = bKeep;
  a->zType = bxPrintf(pErr, "%s", zType);
  a->zPayloadType = zPayloadType ? bxPrintf(pErr, "%s", zPayloadType) : 0;
  if (pErr->rc != SQLITE_OK) {
    p->nAnswer--;
    sqlite3_free(a->zType);
    sqlite3_free(a->zPayloadType);
  }
  return bKeep;
}

/*---------------------------------------------------------------- tests ----*/

void bxRolloutMakeKey(char *z) {
  char *zOut = z;
  for (; *z != 0; z++) {
    if (*z != '_') *zOut++ = *z >= 'A' && *z <= 'Z' ? (char)(*z + 32) : *z;
  }
  *zOut = 0;
}

int bxRolloutSame(const char *z, i64 n, const char *zName) {
  const char *zEnd = z + n;
  while (z < zEnd || *zName) {
    if (z < zEnd && *z == '_') {
      z++;
    } else if (*zName == '_') {
      zName++;
    } else {
      char c = z < zEnd ? *z : 0, cName = *zName;
      if (c >= 'A' && c <= 'Z') c = (char)(c + 32);
      if (cName >= 'A' && cName <= 'Z') cName = (char)(cName + 32);
      if (c != cName || c == 0) return 0;
      z++;
      zName++;
    }
  }
  return 1;
}

/* Whether the text of a string node equals a name in either spelling. Text with
** escapes is compared as what it represents. */
static int nodeIs(const BxTree *p, int iNode, const char *zText, BxErr *pErr) {
  const char *z = p->z + p->a[iNode].iAt;
  i64 n = p->a[iNode].nByte;
  char *zOwned;
  int bSame;
  if (*z != '"') return bxRolloutSame(z, n, zText);
  if (memchr(z, '\\', (size_t)n) == 0) {
    return bxRolloutSame(z + 1, n - 2, zText);
  }
  zOwned = bxRolloutString(p, iNode, pErr);
  if (zOwned == 0) return 0;
  bSame = bxRolloutSame(zOwned, (i64)strlen(zOwned), zText);
  sqlite3_free(zOwned);
  return bSame;
}

const RolloutFormat *bxRolloutFormatNamed(
    const RolloutRules *p, const char *zName) {
  i64 i;
  for (i = 0; i < p->nFormat; i++) {
    if (strcmp(p->aFormat[i].az[ROLLOUT_FORMAT_NAME], zName) == 0) {
      return &p->aFormat[i];
    }
  }
  return 0;
}

int bxRolloutFits(const RolloutRules *pRules, RolloutTest test,
    RolloutJson *pJson, BxErr *pErr) {
  const BxTree *pTree = &pJson->tree;
  i64 i;
  for (i = test.i; i < test.i + test.n; i++) {
    const RolloutCondition *p = &pRules->aCondition[i];
    int iNode = p->bSeveral ? bxRolloutPlaces(pJson, p->zPath)
                            : bxRolloutPlace(pJson, p->zPath);
    char cKind = iNode < 0 ? 'n' : BX_TREE_KIND(pTree, iNode);
    if (p->zText != 0) {
      if (iNode < 0 || cKind == 'n' ? *p->zText != 0
                                    : !nodeIs(pTree, iNode, p->zText, pErr)) {
        return 0;
      }
    } else if (p->bThere != (cKind != 'n' && cKind != 'f')) {
      return 0;
    }
  }
  return 1;
}

/*---------------------------------------------------------------- texts ----*/

/* Whether a part is a tag that a recorder puts around an image. */
static int isImageTag(const char *z, i64 n) {
  static const char zOpen[] = "<image name=";
  const i64 nOpen = (i64)sizeof(zOpen) - 1;
  if ((n == 7 && memcmp(z, "<image>", 7) == 0) ||
      (n == 8 && memcmp(z, "</image>", 8) == 0)) {
    return 1;
  }
  return n > nOpen && memcmp(z, zOpen, (size_t)nOpen) == 0 &&
         memchr(z, '>', (size_t)n) == z + n - 1;
}

/* Appends a text after a newline, unless it is the first one. */
static void addOne(sqlite3_str *pOut, int *pbAny, const BxTree *p, int i) {
  if (*pbAny) sqlite3_str_appendchar(pOut, 1, '\n');
  bxTreeText(p, i, pOut);
  *pbAny = 1;
}

/* The texts of an array of texts in parts. */
static void addInner(
    sqlite3_str *pOut, int *pbAny, RolloutJson *pJson, int iNode) {
  const BxTree *p = &pJson->tree;
  int i;
  for (i = iNode + 1; i < p->a[iNode].iNext; i = p->a[i].iNext) {
    int iText = findMember(pJson, i, "text", 4);
    if (iText >= 0 && BX_TREE_KIND(p, iText) == '"') {
      addOne(pOut, pbAny, p, iText);
    }
  }
}

/* Whether a part is what a model only thought. */
static int isThought(RolloutJson *p, int iPart) {
  int i = findMember(p, iPart, "thought", 7);
  if (i >= 0 && BX_TREE_KIND(&p->tree, i) == 't') return 1;
  i = findMember(p, iPart, "type", 4);
  return i >= 0 && (bxTreeIs(&p->tree, i, "reasoning", 9) ||
                       bxTreeIs(&p->tree, i, "thinking", 8) ||
                       bxTreeIs(&p->tree, i, "think", 5));
}

static void addPartText(sqlite3_str *pOut, int *pbAny, RolloutJson *pJson,
    int iPart, const char *zPart, BxErr *pErr) {
  const BxTree *p = &pJson->tree;
  int iText = findMember(pJson, iPart, zPart, (i64)strlen(zPart));
  char *z;
  if (iText < 0 || isThought(pJson, iPart)) return;
  if (BX_TREE_KIND(p, iText) == '[') addInner(pOut, pbAny, pJson, iText);
  if (BX_TREE_KIND(p, iText) != '"') return;
  if (p->z[p->a[iText].iAt + 1] == '<') {
    z = bxRolloutString(p, iText, pErr);
    if (z == 0 || isImageTag(z, (i64)strlen(z))) {
      sqlite3_free(z);
      return;
    }
    sqlite3_free(z);
  }
  addOne(pOut, pbAny, p, iText);
}

char *bxRolloutValue(
    const RolloutReading *pReading, RolloutJson *pJson, BxErr *pErr) {
  const BxTree *p = &pJson->tree;
  sqlite3_str *pOut;
  char *z;
  int i, bAny = 0, iNode = bxRolloutPlace(pJson, pReading->zPath);
  char cKind = iNode < 0 ? 0 : BX_TREE_KIND(p, iNode);
  if (cKind == '[') {
    pOut = sqlite3_str_new(0);
    for (i = iNode + 1; i < p->a[iNode].iNext; i = p->a[i].iNext) {
      addPartText(pOut, &bAny, pJson, i, pReading->zPart, pErr);
    }
    z = bxFinish(pOut, pErr);
    if (z != 0 || pErr->rc != SQLITE_OK) return z;
    if (bAny) return bxPrintf(pErr, "");
  }
  if (cKind != '"') {
    iNode = bxRolloutPlace(pJson, pReading->zOther);
    cKind = iNode < 0 ? 0 : BX_TREE_KIND(p, iNode);
  }
  return cKind == '"' ? bxRolloutString(p, iNode, pErr) : 0;
}

int bxRolloutIsPreamble(const RolloutRules *p, const char *z) {
  i64 i;
  for (i = 0; z != 0 && i < p->nPreamble; i++) {
    size_t n = strlen(p->azPreamble[i]);
    if (*z == *p->azPreamble[i] && strncmp(z, p->azPreamble[i], n) == 0) {
      return 1;
    }
  }
  return 0;
}
