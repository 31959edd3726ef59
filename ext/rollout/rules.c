/*
** rules.c: the rows that say how items are read (sql/rollout_formats.sql), and the
** policy.
**
** They are kept in memory while nobody else has changed anything, on this connection
** or another, and nothing can be rolled back that was there when they were read. (A
** statement that has failed may have left changes that SQLite does not count, and a host
** may replace a whole database: so they are kept past no commit but those of calls.)
** Otherwise rollout__act.places, a random number that each change of blackbox_places
** replaces, tells whether the places are the same; the rest is read again.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/*---------------------------------------------------------------- rows ----*/

static void forgetAnswers(RolloutRules *p) {
  while (p->nAnswer > 0) {
    sqlite3_free(p->aAnswer[--p->nAnswer].zType);
    sqlite3_free(p->aAnswer[p->nAnswer].zPayloadType);
  }
}

static void freeRules(RolloutRules *p) {
  i64 i;
  int j;
  bxPlacesFree(&p->places);
  for (i = 0; i < p->nFormat; i++) {
    for (j = 0; j < ROLLOUT_FORMAT_TEXTS; j++) {
      sqlite3_free(p->aFormat[i].az[j]);
    }
  }
  for (i = 0; i < p->nAttribute; i++) {
    for (j = 0; j < ROLLOUT_ATTRIBUTE_TEXTS; j++) {
      sqlite3_free(p->aAttribute[i].az[j]);
    }
  }
  forgetAnswers(p);
  sqlite3_free(p->aFormat);
  sqlite3_free(p->aAttribute);
  memset(p, 0, sizeof(*p));
}

void bxRolloutRulesFree(RolloutRules *p) {
  if (p == 0) return;
  freeRules(p);
  sqlite3_free(p);
}

/* Copies n texts of a row. */
static void copyTexts(char **az, int n, sqlite3_stmt *pRow, BxErr *pErr) {
  int i;
  assert(n > 0 && n <= sqlite3_column_count(pRow));
  for (i = 0; i < n; i++) {
    if (sqlite3_column_type(pRow, i) == SQLITE_NULL) continue;
    az[i] = bxColumnCopy(pRow, i, pErr);
  }
}

/* The formats, and the attributes of spans: what only an import needs. */
static void readFormats(RolloutRules *p, BxStmts *pHome, BxErr *pErr) {
  static const char zFormats[] =
      "SELECT format, items, type, payload, time, conversation, agent, trace, "
      "item_id, path, once, mark, names, spans, newest, apart, rank >= 200, "
      "kind = 'changes', kind = 'closed', kind = 'store' "
      "FROM main.rollout_formats "
      "WHERE format <> '' AND type <> '' ORDER BY rank, format";
  static const char zAttributes[] =
      "SELECT format, attribute, name, coalesce(only, ''), value, rank, json "
      "FROM main.rollout_attributes "
      "WHERE format <> '' AND attribute <> '' AND name <> '' "
      "ORDER BY format, length(attribute) DESC, rank, attribute, name, only";
  const int n = ROLLOUT_FORMAT_TEXTS, m = ROLLOUT_ATTRIBUTE_TEXTS;
  int i;
  sqlite3_stmt *pRow = bxStmt(pHome, zFormats, pErr);
  while (bxStep(pRow, pErr)) {
    RolloutFormat *a = bxArrayAdd(
        &p->aFormat, &p->nFormat, &p->nFormatAlloc, sizeof(*a), pErr);
    if (a == 0) break;
    copyTexts(a->az, n, pRow, pErr);
    a->bOnce = sqlite3_column_int(pRow, n);
    a->mark = bxTestAdd(&p->places, bxColumnText(pRow, n + 1, pErr), pErr);
    a->names = bxTestAdd(&p->places, bxColumnText(pRow, n + 2, pErr), pErr);
    a->bSpans = sqlite3_column_int(pRow, n + 3);
    a->newest = bxTestAdd(&p->places, bxColumnText(pRow, n + 4, pErr), pErr);
    a->bApart = sqlite3_column_int(pRow, n + 5);
    a->bPath = sqlite3_column_int(pRow, n + 6);
    a->bChanges = sqlite3_column_int(pRow, n + 7);
    a->bClosed = sqlite3_column_int(pRow, n + 8);
    a->bStored = sqlite3_column_int(pRow, n + 9);
    for (i = 0; i < n + 10; i++) {
      const char *z = (const char *)sqlite3_column_text(pRow, i);
      p->hFormat = bxHashMix(
          p->hFormat, bxHashOf(z ? z : "", sqlite3_column_bytes(pRow, i)));
    }
  }
  bxReset(pRow, pErr);
  pRow = bxStmt(pHome, zAttributes, pErr);
  while (bxStep(pRow, pErr)) {
    RolloutAttribute *a = bxArrayAdd(
        &p->aAttribute, &p->nAttribute, &p->nAttributeAlloc, sizeof(*a), pErr);
    if (a == 0) break;
    copyTexts(a->az, m, pRow, pErr);
    a->iRank = sqlite3_column_int64(pRow, m);
    a->bJson = sqlite3_column_int(pRow, m + 1);
  }
  bxReset(pRow, pErr);
}

const RolloutRules *bxRolloutRules(BxStmts *pHome, int bImport, BxErr *pErr) {
  static const char zAct[] =
      "SELECT places, search, (SELECT value FROM main.blackbox_settings WHERE"
      " name = 'rollout.secrets') = 'mask', (SELECT value FROM"
      " main.blackbox_settings WHERE name = 'rollout.pack') "
      "FROM main.rollout__act";
  RolloutMemory *pMemory = bxRolloutMemory(pHome->bx, pErr);
  RolloutRules *p = pErr->rc == SQLITE_OK ? pMemory->pRules : 0;
  const Bx *bx = pHome->bx;
  i64 iData, iPlaces, nSolid, i;
  sqlite3_stmt *pRow;
  int bSearch, bMask, bPack, bKnown;
  if (pErr->rc != SQLITE_OK) return 0;
  if (p == 0) p = pMemory->pRules = bxZalloc(sizeof(*p), pErr);
  if (p == 0) return 0;
  /* what a call has begun with stays until its end, also for calls within it */
  if (p->pHome == pHome && p->iCall >= bx->iFirst && bx->iCall != 0 &&
      p->bImport >= bImport) {
    return p;
  }
  iData = bxOthersVersion(pHome, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  bKnown = p->pHome == pHome && p->bSolid && p->nSeen == bx->nForeign &&
           p->iData == iData;
  nSolid = bx->bClean ? bx->nForeign : p->nSolid;
  if (!bKnown) {
    forgetAnswers(p);
    pMemory->nIdle = -1;
  }
  if (!bKnown || p->bImport < bImport) {
    pRow = bxStmt(pHome, zAct, pErr);
    bxStep(pRow, pErr);
    iPlaces = sqlite3_column_int64(pRow, 0);
    bSearch = sqlite3_column_int64(pRow, 1) > 0;
    bMask = sqlite3_column_int(pRow, 2);
    bPack = sqlite3_column_int(pRow, 3);
    bxReset(pRow, pErr);
    /* those that are kept stay: a caller further up may use them */
    if (pErr->rc != SQLITE_OK) return 0;
    if (p->pHome != pHome || p->iPlaces != iPlaces || p->bSearch != bSearch ||
        p->bImport || bImport) {
      freeRules(p);
      bxPlacesRead(&p->places, pHome, 1, ~0u, pErr);
      for (i = 0; i < p->places.n; i++) {
        const char *zAt = p->places.a[i].az[BX_PLACE_AT];
        if (p->places.a[i].eKind == BX_KIND_PREAMBLE && zAt != 0) {
          p->aPreamble[(unsigned char)*zAt] = 1;
        }
      }
      if (bImport) readFormats(p, pHome, pErr);
    }
    if (pErr->rc != SQLITE_OK) {
      freeRules(p);
      return 0;
    }
    p->pHome = pHome;
    p->iPlaces = iPlaces;
    p->bSearch = bSearch;
    p->bMask = bMask;
    p->bPack = bPack;
    p->bImport = bImport;
  }
  p->iCall = bx->iCall;
  p->nSolid = nSolid;
  p->bSolid = nSolid == bx->nForeign;
  p->nSeen = bx->nForeign;
  p->iData = iData;
  p->bIdle = bKnown && pMemory->nIdle == bx->nTotal;
  return p;
}

/*--------------------------------------------------------------- policy ----*/

/* What the trigger rollout_log_insert looks up, which cannot be called from here; a
** test compares both. ?2 is '' for an item without a payload, and NULL for a payload
** without a type. Four look-ups are faster than lists of keys. A preset without rows
** keeps everything. */
#define KEEP_ITEM "lower(replace(?1, '_', ''))"
#define KEEP_PAYLOAD "coalesce(lower(replace(?2, '_', '')), '*')"
#define KEEP_ANY "iif(?2 IS '', NULL, '*')"
#define KEEP_OF(item, payload)                                                 \
  "(SELECT keep FROM main.rollout_policy WHERE preset = p.preset "             \
  "AND item_key = " item " AND payload_key = " payload "), "
/* clang-format off */
static const char zKeep[] =
    "SELECT coalesce("
    KEEP_OF(KEEP_ITEM, KEEP_PAYLOAD) KEEP_OF(KEEP_ITEM, KEEP_ANY)
    KEEP_OF("'*'", KEEP_PAYLOAD) KEEP_OF("'*'", KEEP_ANY)
    "NOT EXISTS (SELECT 1 FROM main.rollout_policy WHERE preset = p.preset)) "
    "FROM (SELECT CAST(value AS TEXT) AS preset FROM main.blackbox_settings "
    "WHERE name = 'rollout.policy') AS p";
/* clang-format on */

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
  bKeep = (int)bxQueryInt(pHome, zKeep, pErr, "tt", zType, zPayloadType);
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

/*--------------------------------------------------------------- places ----*/

int bxRolloutPlace(const RolloutJson *p, const char *zPaths) {
  assert(p->iTop >= 0 && p->iTop < p->tree.n);
  return bxPathFind(&p->tree, p->iTop, p->iTop, zPaths);
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

int bxRolloutFits(const RolloutRules *pRules, BxTest test,
    const RolloutJson *pJson, BxErr *pErr) {
  return bxTestHolds(&pRules->places, test, &pJson->tree, pJson->iTop, pErr);
}

/*---------------------------------------------------------------- texts ----*/

/* Whether a part is a tag that a recorder puts around an image. */
static int isImageTag(const char *z, i64 n) {
  static const char zOpen[] = "<image name=";
  const i64 nOpen = (i64)sizeof(zOpen) - 1;
  assert(n >= 0);
  if ((n == 7 && memcmp(z, "<image>", 7) == 0) ||
      (n == 8 && memcmp(z, "</image>", 8) == 0)) {
    return 1;
  }
  return n > nOpen && memcmp(z, zOpen, (size_t)nOpen) == 0 &&
         memchr(z, '>', (size_t)n) == z + n - 1;
}

/* Texts, each on its line. Mostly there is one, and nothing is joined. */
typedef struct RolloutParts {
  const BxTree *p;
  int iFirst;        /* the node of the first, or -1 */
  sqlite3_str *pOut; /* once there are two */
} RolloutParts;

static void addOne(RolloutParts *pParts, int i) {
  if (pParts->iFirst < 0) {
    pParts->iFirst = i;
    return;
  }
  if (pParts->pOut == 0) {
    pParts->pOut = sqlite3_str_new(0);
    bxTreeText(pParts->p, pParts->iFirst, pParts->pOut);
  }
  sqlite3_str_appendchar(pParts->pOut, 1, '\n');
  bxTreeText(pParts->p, i, pParts->pOut);
}

/* Adds the text of a part, or its texts, unless a model only thought it. */
static void addPartText(
    RolloutParts *pParts, int iPart, const char *zPart, BxErr *pErr) {
  const BxTree *p = pParts->p;
  int iText = bxTreeMember(p, iPart, zPart, (int)strlen(zPart)), i;
  int iThought = bxTreeMember(p, iPart, "thought", 7);
  int iType = bxTreeMember(p, iPart, "type", 4);
  assert(iPart >= 0 && iPart < p->n);
  if (iText < 0 || (iThought >= 0 && BX_TREE_KIND(p, iThought) == 't') ||
      (iType >= 0 && (bxTreeIs(p, iType, "reasoning", 9) ||
                         bxTreeIs(p, iType, "thinking", 8) ||
                         bxTreeIs(p, iType, "think", 5)))) {
    return;
  }
  if (BX_TREE_KIND(p, iText) == '[') {
    for (i = iText + 1; i < p->a[iText].iNext; i = p->a[i].iNext) {
      int iInner = bxTreeMember(p, i, "text", 4);
      if (iInner >= 0 && BX_TREE_KIND(p, iInner) == '"') {
        addOne(pParts, iInner);
      }
    }
  }
  if (BX_TREE_KIND(p, iText) != '"') return;
  if (p->z[p->a[iText].iAt + 1] == '<') {
    char *z = bxTreeString(p, iText, pErr);
    int bTag = z == 0 || isImageTag(z, (i64)strlen(z));
    sqlite3_free(z);
    if (bTag) return;
  }
  addOne(pParts, iText);
}

char *bxRolloutTextOf(
    const BxTree *p, int iNode, const char *zPart, BxErr *pErr) {
  char cKind = iNode < 0 ? 0 : BX_TREE_KIND(p, iNode);
  RolloutParts parts = {p, -1, 0};
  int i;
  if (cKind == '"') return bxTreeString(p, iNode, pErr);
  if (cKind != '[') return 0;
  for (i = iNode + 1; i < p->a[iNode].iNext; i = p->a[i].iNext) {
    addPartText(&parts, i, zPart ? zPart : "text", pErr);
  }
  if (parts.pOut != 0) return bxStrFinish(parts.pOut, pErr);
  return parts.iFirst < 0 ? 0 : bxTreeString(p, parts.iFirst, pErr);
}

char *bxRolloutValue(const BxPlace *pPlace, const RolloutJson *pJson,
    const char **pzPath, BxErr *pErr) {
  int iNode = bxRolloutPlace(pJson, pPlace->az[BX_PLACE_AT]);
  char *z =
      bxRolloutTextOf(&pJson->tree, iNode, pPlace->az[BX_PLACE_PART], pErr);
  *pzPath = pPlace->az[BX_PLACE_AT];
  if (z != 0) return z;
  *pzPath = pPlace->az[BX_PLACE_OTHER];
  iNode = bxRolloutPlace(pJson, *pzPath);
  return iNode >= 0 && BX_TREE_KIND(&pJson->tree, iNode) == '"'
             ? bxTreeString(&pJson->tree, iNode, pErr)
             : 0;
}

int bxRolloutIsPreamble(const RolloutRules *p, const char *z) {
  i64 i;
  if (z == 0 || !p->aPreamble[(unsigned char)*z]) return 0;
  for (i = 0; i < p->places.n; i++) {
    const char *zAt = p->places.a[i].az[BX_PLACE_AT];
    if (p->places.a[i].eKind == BX_KIND_PREAMBLE && *z == *zAt &&
        strncmp(z, zAt, strlen(zAt)) == 0) {
      return 1;
    }
  }
  return 0;
}
