/*
** texts.c: the normal form of conversations: what items of any format say, as rows
** of rollout__texts, which rollout_messages and rollout_tool_calls show.
**
** A row has the place of the text, and not the text. What a call needs beside it
** comes with its result, which is mostly among the same items; if not, the call is
** looked for among the newest items of its conversation.
*/
#include "import.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define TEXTS_BACK                                                             \
  2000 /* among so many rows, or items, a result finds its call */
#define TEXTS_LATE                                                             \
  8 /* results that look for their call, before it is known which are there */
#define TEXTS_EARLY 100 /* among so many rows a call finds a result before it */

void bxRolloutTextsFree(RolloutDerive *p) {
  i64 i;
  assert(p->nText <= p->nTextAlloc);
  for (i = 0; i < p->nText; i++) {
    RolloutText *a = &p->aText[i];
    sqlite3_free(a->z);
    sqlite3_free(a->zPlace);
    sqlite3_free(a->zCall);
    sqlite3_free(a->zTool);
    sqlite3_free(a->zFile);
  }
  sqlite3_free(p->aText);
  p->aText = 0;
  p->nText = p->nTextAlloc = 0;
}

/* Texts are compared by their hashes: one may be as long as the file. */
static sqlite3_uint64 hashSaid(const char *z) {
  return bxHashOf(z, (i64)strlen(z)) | 1;
}

/* A new text of the item that is being read. */
static RolloutText *newText(
    RolloutDerive *p, const char *zRole, i64 iSequence, i64 iTime) {
  RolloutText *a =
      bxArrayAdd(&p->aText, &p->nText, &p->nTextAlloc, sizeof(*a), p->pErr);
  assert(iSequence >= 0);
  if (a == 0) return 0;
  memset(a, 0, sizeof(*a));
  a->zRole = zRole;
  a->iSequence = iSequence;
  a->iTime = iTime;
  a->eError = -1;
  a->bTold = iSequence < p->iTextFrom;
  return a;
}

/*------------------------------------------------------------------ values ----*/

/* The node at the first of some paths that has a value, or -1, and that path, to
** sqlite3_free(): those that begin with a dot go on from zHere. */
static int resolve(const RolloutJson *pJson, int iHere, const char *zHere,
    const char *zPaths, char **pzPath, BxErr *pErr) {
  const char *zAt = 0;
  size_t nHere, nAt;
  int iNode = bxPathFindAt(&pJson->tree, pJson->iTop, iHere, zPaths, &zAt);
  if (iNode < 0 || BX_TREE_KIND(&pJson->tree, iNode) == 'n') return -1;
  if (*zAt == '$') zHere = "";
  nHere = strlen(zHere);
  nAt = strcspn(zAt, "|=");
  *pzPath = bxZalloc(nHere + nAt + 1, pErr);
  if (*pzPath == 0) return -1;
  memcpy(*pzPath, zHere, nHere);
  memcpy(*pzPath + nHere, zAt, nAt);
  return iNode;
}

static char *stringAt(
    const RolloutJson *p, int iHere, const char *zPaths, BxErr *pErr) {
  int i = bxPathFind(&p->tree, p->iTop, iHere, zPaths);
  return i >= 0 && BX_TREE_KIND(&p->tree, i) == '"'
             ? bxTreeString(&p->tree, i, pErr)
             : 0;
}

/* Appends all strings in a value but keys, each on its line. */
static void appendStrings(const BxTree *p, int iNode, sqlite3_str *pOut) {
  char cKind = BX_TREE_KIND(p, iNode);
  int i, nStep = cKind == '{' ? 1 : 0;
  if (cKind == '"') {
    bxTreeText(p, iNode, pOut);
    sqlite3_str_appendchar(pOut, 1, '\n');
  }
  if (cKind != '{' && cKind != '[') return;
  for (i = iNode + 1; i < p->a[iNode].iNext; i = p->a[i + nStep].iNext) {
    appendStrings(p, i + nStep, pOut);
  }
}

static char *stringsOf(const BxTree *p, int iNode, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  appendStrings(p, iNode, pOut);
  return bxStrFinish(pOut, pErr);
}

char *bxRolloutSaid(BxTree *pTree, const char *z, i64 n, const char *zAt,
    const char *zPart, BxErr *pErr) {
  int i = bxTreeRead(pTree, z, n, 0, 0, pErr) != 0
              ? bxPathFind(pTree, 0, 0, zAt)
              : -1;
  char *zText = i < 0 ? 0 : bxRolloutTextOf(pTree, i, zPart, pErr), *zStrings;
  if (i < 0 || (zText != 0 && *zText != '{' && *zText != '[')) return zText;
  if (zText != 0) {
    i = 0;
    if (bxTreeRead(pTree, zText, (i64)strlen(zText), 0, 0, pErr) == 0) {
      return zText;
    }
  }
  zStrings = stringsOf(pTree, i, pErr);
  sqlite3_free(zText);
  return zStrings;
}

/* What follows the first of some words in a text, if that is among its first 1,000
** bytes, or NULL. They have an x, which is rare. */
static const char *afterCode(const char *zText, const char *zCode) {
  const i64 iRare = strchr(zCode, 'x') - zCode, nText = (i64)strlen(zText);
  const char *z = zText + iRare, *zEnd = zText + 1000 + iRare;
  assert(iRare >= 0 && iRare < (i64)strlen(zCode));
  if (zText + nText < zEnd) zEnd = zText + nText;
  for (; z < zEnd && (z = memchr(z, 'x', (size_t)(zEnd - z))) != 0; z++) {
    if (strncmp(z - iRare, zCode, strlen(zCode)) == 0) {
      return z - iRare + strlen(zCode);
    }
  }
  return 0;
}

/* Whether a result says that its call has failed: 1 or 0, or -1 if it says nothing.
** A text, such as an error, says so, and so does a code that is not 0. */
static int readError(
    const RolloutJson *p, int iHere, const char *zPaths, const char *zText) {
  static const char *const azCode[] = {
      "exited with code ", "Exit code: ", "\"exit_code\":"};
  const char *zIs = zPaths ? strchr(zPaths, '=') : 0, *z;
  int i = bxPathFind(&p->tree, p->iTop, iHere, zPaths), eError = -1;
  if (i >= 0) {
    char cKind = BX_TREE_KIND(&p->tree, i);
    const BxNode *pNode = &p->tree.a[i];
    if (zIs != 0) {
      eError = cKind == '"'
                   ? bxTreeIs(&p->tree, i, zIs + 1, (int)strlen(zIs + 1))
                   : cKind == zIs[1];
    } else {
      eError = cKind == '"' ? pNode->nByte > 2
                            : cKind != 'f' && cKind != 'n' && cKind != '0';
    }
  }
  for (i = 0; eError < 1 && zText != 0 && i < 3; i++) {
    z = afterCode(zText, azCode[i]);
    if (z != 0) eError = *z != '0';
  }
  return eError;
}

/*------------------------------------------------------------------- calls ----*/

/* The text of the member of some arguments that names a file, to sqlite3_free(). A
** command of an editor that only shows it sets *pbView. */
static char *fileOf(const BxTree *p, int iNode, int *pbView, BxErr *pErr) {
  static const char zNames[] =
      "|filepath|path|notebookpath|absolutepath|targetfile|filename|file|";
  char *zFile = 0;
  int i;
  if (BX_TREE_KIND(p, iNode) != '{') return 0;
  for (i = iNode + 1; i < p->a[iNode].iNext; i = p->a[i + 1].iNext) {
    char zName[24] = "|";
    if (p->a[i].nByte > 20 || BX_TREE_KIND(p, i + 1) != '"') continue;
    memcpy(zName + 1, p->z + p->a[i].iAt + 1, (size_t)p->a[i].nByte - 2);
    bxFoldName(zName);
    if (strcmp(zName, "|command") == 0)
      *pbView |= bxTreeIs(p, i + 1, "view", 4);
    zName[strlen(zName) + 1] = 0;
    zName[strlen(zName)] = '|';
    if (zFile == 0 && strstr(zNames, zName) != 0 && p->a[i + 1].nByte > 2) {
      zFile = bxTreeString(p, i + 1, pErr);
    }
  }
  return zFile;
}

static int changesFiles(const char *zTool, BxErr *pErr) {
  static const char *const azWord[] = {
      "edit", "write", "replace", "patch", "create", "insert", "delete"};
  char *z = bxPrintf(pErr, "%s", zTool);
  int i, bChanges = 0;
  if (z == 0) return 0;
  bxFoldName(z);
  for (i = 0; i < (int)(sizeof(azWord) / sizeof(azWord[0])); i++) {
    bChanges |= strstr(z, azWord[i]) != 0;
  }
  sqlite3_free(z);
  return bChanges;
}

/* Takes the files that a patch names: the first one is that of the call, and each
** other one is a row. */
static void readPatch(RolloutDerive *p, i64 iCall, const char *zPatch) {
  static const char zMark[] = "*** ";
  const char *z = zPatch ? strstr(zPatch, "*** Begin Patch") : 0;
  while (z != 0 && (z = strstr(z, zMark)) != 0 && p->pErr->rc == SQLITE_OK) {
    const char *zName = z + strcspn(z, ":\n");
    RolloutText *a = &p->aText[iCall];
    int n = (int)strcspn(zName, "\n\r");
    z += sizeof(zMark) - 1;
    if (n < 3 || strncmp(zName, ": ", 2) != 0 ||
        strncmp(zName - 4, "File", 4)) {
      continue;
    }
    if (a->zFile != 0) {
      char *zTool = bxPrintf(p->pErr, "%s", a->zTool);
      i64 iSequence = a->iSequence, iTime = a->iTime;
      a = newText(p, "file", iSequence, iTime);
      if (a == 0) sqlite3_free(zTool);
      if (a != 0) a->zTool = zTool;
    }
    if (a == 0) return;
    a->bEdits = 1;
    a->zFile = bxPrintf(p->pErr, "%.*s", n - 2, zName + 2);
  }
}

/* Reads the arguments of a call. A text may be JSON. */
static void readInput(
    RolloutDerive *p, i64 iCall, const RolloutJson *pJson, int iNode) {
  BxTree inner = {0};
  const BxTree *pTree = &pJson->tree;
  RolloutText *a = &p->aText[iCall];
  char *z = 0;
  int bView = 0;
  if (BX_TREE_KIND(pTree, iNode) == '"') {
    z = bxTreeString(pTree, iNode, p->pErr);
    if (z != 0 && *z == '{' &&
        bxTreeRead(&inner, z, (i64)strlen(z), 0, 0, p->pErr) != 0) {
      pTree = &inner;
      iNode = 0;
    }
  }
  if (z == 0 || pTree == &inner) {
    a->z = stringsOf(pTree, iNode, p->pErr);
    a->zFile = fileOf(pTree, iNode, &bView, p->pErr);
  } else {
    a->z = z;
    z = 0;
  }
  a->bEdits = a->zFile != 0 && !bView && changesFiles(a->zTool, p->pErr);
  a->h = a->z ? hashSaid(a->z) : 0;
  if (a->z != 0 && a->zFile == 0) readPatch(p, iCall, a->z);
  sqlite3_free(z);
  bxTreeFree(&inner);
}

/* Gives a result, which is row iResult or, if that is 0, has no text, to its call. */
static int giveResult(RolloutDerive *p, const char *zCall, i64 iEnd,
    i64 iResult, int eError, i64 iTime) {
  i64 i;
  for (i = iEnd - 1; i >= 0 && i > iEnd - TEXTS_BACK; i--) {
    RolloutText *a = &p->aText[i];
    if (a->zTool == 0 || a->zCall == 0 || a->bTold ||
        strcmp(a->zCall, zCall) != 0) {
      continue;
    }
    if (iResult > 0) a->iResult = (int)iResult;
    if (eError < 0) eError = 0;
    if (eError > a->eError) a->eError = eError;
    a->nTook = iTime - a->iTime;
    return 1;
  }
  return 0;
}

/* Gives a call the result that came before it, as some recorders write them. */
static void takeEarly(RolloutDerive *p, i64 iCall) {
  RolloutText *pCall = &p->aText[iCall];
  i64 i;
  assert(pCall->zTool != 0 || p->pErr->rc != SQLITE_OK);
  for (i = iCall - 1; pCall->zCall && i >= 0 && i > iCall - TEXTS_EARLY; i--) {
    RolloutText *a = &p->aText[i];
    if (!a->bWithout || a->zRole == 0 || a->bTold ||
        strcmp(a->zCall, pCall->zCall) != 0) {
      continue;
    }
    a->bWithout = 0;
    pCall->iResult = (int)i + 1;
    pCall->eError = a->eError > 0;
    sqlite3_free(a->zCall);
    a->zCall = 0;
    return;
  }
}

static void tellResult(RolloutDerive *p, const BxPlace *pPlace,
    const RolloutJson *pJson, int iHere, const char *zHere, i64 iSequence,
    i64 iTime, i64 iCall) {
  char *const *az = pPlace->az;
  char *zPath = 0, *zText = 0;
  char *zCall = stringAt(pJson, iHere, az[BX_PLACE_ID], p->pErr);
  int iNode =
      resolve(pJson, iHere, zHere, az[BX_PLACE_RESULT], &zPath, p->pErr);
  RolloutText *a = 0;
  int eError;
  if ((zCall == 0 && iCall < 0) ||
      (iNode < 0 && (az[BX_PLACE_RESULT] != 0 || iCall >= 0))) {
    sqlite3_free(zCall);
    sqlite3_free(zPath);
    return;
  }
  if (iNode >= 0) {
    zText = bxRolloutTextOf(&pJson->tree, iNode, 0, p->pErr);
    if (zText == 0) zText = stringsOf(&pJson->tree, iNode, p->pErr);
    a = newText(p, "tool", iSequence, iTime);
  }
  eError = readError(pJson, iHere, az[BX_PLACE_ERROR], zText);
  if (iCall >= 0) {
    if (a != 0) p->aText[iCall].iResult = (int)p->nText;
    p->aText[iCall].eError = eError > 0;
  } else if (!giveResult(p, zCall, a ? p->nText - 1 : p->nText,
                 a ? p->nText : 0, eError, iTime)) {
    if (a == 0) a = newText(p, 0, iSequence, iTime);
    if (a != 0) {
      a->bWithout = 1;
      a->zCall = zCall;
      a->eError = eError > 0;
      zCall = 0;
    }
  }
  if (a != 0) {
    a->eKind = BX_KIND_RESULT;
    a->zPlace = zPath;
    a->z = zText;
    a->h = zText ? hashSaid(zText) : 0;
    zPath = zText = 0;
  }
  sqlite3_free(zCall);
  sqlite3_free(zPath);
  sqlite3_free(zText);
}

static void tellCall(RolloutDerive *p, const BxPlace *pPlace,
    const RolloutJson *pJson, int iHere, const char *zHere, i64 iSequence,
    i64 iTime) {
  char *const *az = pPlace->az;
  char *zPath = 0, *zTool = stringAt(pJson, iHere, az[BX_PLACE_TOOL], p->pErr);
  int iNode = zTool == 0 ? -1
                         : resolve(pJson, iHere, zHere, az[BX_PLACE_ARGUMENTS],
                               &zPath, p->pErr);
  RolloutText *a = iNode < 0 ? 0 : newText(p, "call", iSequence, iTime);
  i64 iCall = p->nText - 1;
  if (a == 0) {
    sqlite3_free(zTool);
    sqlite3_free(zPath);
    return;
  }
  a->eKind = BX_KIND_CALL;
  a->zTool = zTool;
  a->zPlace = zPath;
  a->zCall = stringAt(pJson, iHere, az[BX_PLACE_ID], p->pErr);
  readInput(p, iCall, pJson, iNode);
  takeEarly(p, iCall);
  if (az[BX_PLACE_RESULT] != 0) {
    tellResult(p, pPlace, pJson, iHere, zHere, iSequence, iTime, iCall);
  }
}

/* Takes the calls, or the results, at a place: of each part of an array. */
static void tellParts(RolloutDerive *p, const BxPlace *pPlace,
    const RolloutJson *pJson, i64 iSequence, i64 iTime) {
  const BxTree *pTree = &pJson->tree;
  char *zAt = 0;
  int iNode =
      resolve(pJson, pJson->iTop, "", pPlace->az[BX_PLACE_AT], &zAt, p->pErr);
  int bArray = iNode >= 0 && BX_TREE_KIND(pTree, iNode) == '[';
  int i = bArray ? iNode + 1 : iNode, iEnd = iNode, n;
  if (iNode >= 0) iEnd = bArray ? pTree->a[iNode].iNext : iNode + 1;
  for (n = 0; i < iEnd && p->pErr->rc == SQLITE_OK; n++) {
    char *zHere = bArray ? bxPrintf(p->pErr, "%s[%d]", zAt, n)
                         : bxPrintf(p->pErr, "%s", zAt);
    if (zHere != 0 && (!bArray || BX_TREE_KIND(pTree, i) == '{')) {
      if (pPlace->eKind == BX_KIND_CALL) {
        tellCall(p, pPlace, pJson, i, zHere, iSequence, iTime);
      } else {
        tellResult(p, pPlace, pJson, i, zHere, iSequence, iTime, -1);
      }
    }
    sqlite3_free(zHere);
    i = bArray ? pTree->a[i].iNext : iEnd;
  }
  sqlite3_free(zAt);
}

/*---------------------------------------------------------------- messages ----*/

static void tell(RolloutDerive *p, const char *zType, const RolloutJson *pJson,
    i64 iSequence, i64 iTime);

/* Takes the texts of the item before the first one, if that has a place in another source
** than this one. */
static void tellBefore(RolloutDerive *p, const BxPlace *pPlace) {
  static const char zItem[] =
      "SELECT type, payload FROM main.rollout__items WHERE id = ?1";
  RolloutJson json = {{0}, 0};
  sqlite3_stmt *pRow = bxStmt(p->pHome, zItem, p->pErr);
  char zSpelled[ROLLOUT_MAX_NAME + 1];
  p->bBefore = 1;
  bxBind(pRow, p->pErr, "i", (p->no << 32) + p->iTextFrom - 1);
  if (bxStep(pRow, p->pErr)) {
    const char *zType = bxColumnText(pRow, 0, p->pErr), *z;
    i64 iEnd = 0, i = zType ? bxRolloutPlacesOf(p, zType, zSpelled, &iEnd) : 0;
    while (i < iEnd && p->pRules->places.a[i].eSource == pPlace->eSource) i++;
    z = i < iEnd ? bxColumnText(pRow, 1, p->pErr) : 0;
    if (z != 0 && bxTreeRead(&json.tree, z, sqlite3_column_bytes(pRow, 1), 0, 0,
                      p->pErr) != 0) {
      tell(p, zType, &json, p->iTextFrom - 1, 0);
    }
  }
  bxReset(pRow, p->pErr);
  bxTreeFree(&json.tree);
}

/* Takes what was said. Some recorders write a message twice in a row, as an item and
** as an event: the second one repeats it. */
static void tellSaid(RolloutDerive *p, const char *zType, const BxPlace *pPlace,
    const RolloutJson *pJson, i64 iSequence, i64 iTime) {
  const char *zPaths, *zRole = pPlace->eKind == BX_KIND_USER ? "user"
                               : pPlace->eKind == BX_KIND_ASSISTANT
                                   ? "assistant"
                                   : "tool";
  char *z = bxRolloutValue(pPlace, pJson, &zPaths, p->pErr);
  sqlite3_uint64 hash = z ? hashSaid(z) : 0;
  int bTold = 0;
  RolloutText *a;
  i64 i;
  if (z != 0 && p->no > 0 && iSequence == p->iTextFrom && !p->bBefore) {
    tellBefore(p, pPlace);
    bxRolloutReadItem(p, zType, pJson);
  }
  for (i = p->nText - 1; z != 0 && i >= 0; i--) {
    a = &p->aText[i];
    if (a->iSequence < iSequence - 1) break;
    bTold |= a->h == hash && (a->iSequence < iSequence
                                     ? a->eKind == pPlace->eKind &&
                                           a->pPlace->eSource != pPlace->eSource
                                     : !a->bTold);
  }
  a = z == 0 || *z == 0 ? 0 : newText(p, zRole, iSequence, iTime);
  if (a == 0) {
    sqlite3_free(z);
    return;
  }
  a->eKind = pPlace->eKind;
  a->pPlace = pPlace;
  a->z = z;
  a->h = hash;
  a->bTold |= bTold;
  resolve(pJson, pJson->iTop, "", zPaths, &a->zPlace, p->pErr);
}

static void tell(RolloutDerive *p, const char *zType, const RolloutJson *pJson,
    i64 iSequence, i64 iTime) {
  i64 i, nBefore = p->nText;
  unsigned mKind = 1u << BX_KIND_CALL;
  bxRolloutReadItem(p, zType, pJson);
  for (;;) {
    for (i = 0; i < p->nFit && p->pErr->rc == SQLITE_OK; i++) {
      const BxPlace *pPlace = p->apFit[i];
      if (!(mKind >> pPlace->eKind & 1)) continue;
      if (pPlace->eKind <= BX_KIND_RESULT) {
        tellParts(p, pPlace, pJson, iSequence, iTime);
      } else {
        tellSaid(p, zType, pPlace, pJson, iSequence, iTime);
      }
    }
    if (mKind == 1u << BX_KIND_CALL) {
      mKind = 1u << BX_KIND_RESULT;
    } else if (mKind == 1u << BX_KIND_RESULT) {
      /* a reading of results as they are said is for formats without another */
      mKind = 1u << BX_KIND_USER | 1u << BX_KIND_ASSISTANT;
      for (i = nBefore; i < p->nText; i++) {
        if (p->aText[i].eKind == BX_KIND_RESULT) break;
      }
      if (i == p->nText) mKind |= 1u << BX_KIND_TOOL;
    } else {
      return;
    }
  }
}

void bxRolloutTell(RolloutDerive *p, const char *zType,
    const RolloutJson *pJson, i64 iSequence, i64 iTime) {
  assert(p->bTexts && p->pRules != 0);
  if (p->iTextFrom < 0) p->iTextFrom = iSequence;
  tell(p, zType, pJson, iSequence, iTime);
}

void bxRolloutTextsTold(RolloutDerive *p) {
  i64 i;
  for (i = p->nText - 1; i >= 0 && !p->aText[i].bRead; i--) {
    RolloutText *a = &p->aText[i];
    if (a->z != 0 && !a->bTold) p->nTextByte += (i64)strlen(a->z);
    sqlite3_free(a->z);
    a->z = 0;
    a->bRead = 1;
  }
}

/*----------------------------------------------------------------- writing ----*/

/* (While rows are written, no code of the host runs that could finalize the
** statement.) */
static void putRow(
    RolloutDerive *p, sqlite3_stmt *pStmt, const RolloutText *a, BxErr *pErr) {
  const char *zPart = a->pPlace ? a->pPlace->az[BX_PLACE_PART] : 0;
  if (pErr->rc != SQLITE_OK) return;
  sqlite3_bind_int64(pStmt, 1, a->n);
  sqlite3_bind_int64(pStmt, 2, bxRolloutKey(p->no, a->iSequence));
  sqlite3_bind_text(pStmt, 3, a->zRole, -1, SQLITE_STATIC);
  sqlite3_bind_int64(pStmt, 5, a->iTime);
  bxBind(pStmt, pErr, "---t", a->zPlace);
  if (zPart != 0 && strcmp(zPart, "text") != 0) {
    bxBind(pStmt, pErr, "-----t", zPart);
  }
  if (a->zTool != 0) {
    bxBind(pStmt, pErr, "------ttti", a->zCall, a->zTool, a->zFile,
        (i64)a->bEdits);
  }
  if (a->eKind == BX_KIND_CALL && a->eError >= 0) {
    bxBind(pStmt, pErr, "----------ii", (i64)a->eError, a->nTook);
  }
  if (a->iResult > 0) {
    bxBind(pStmt, pErr, "------------i", p->aText[a->iResult - 1].n);
  }
  bxStmtRun(pStmt, pErr);
  p->pHome->bx->nOwn++;
}

/* The hashes of the calls to which a result may belong that giveResult() has not given to
** one: those that were stored before, and here those that were too many texts ago. */
static void olderCalls(RolloutDerive *p, RolloutMap *pCalls, BxErr *pErr) {
  static const char zCalls[] =
      "SELECT call FROM main.rollout__texts WHERE id BETWEEN ?1 AND ?2 "
      "AND role = 'call' AND call IS NOT NULL";
  i64 iFirst = p->no << 32, i, *pn;
  sqlite3_stmt *pRow = bxStmt(p->pHome, zCalls, pErr);
  if (p->iTextFrom > TEXTS_BACK) iFirst += p->iTextFrom - TEXTS_BACK;
  bxBind(pRow, pErr, "ii", iFirst, (p->no << 32) + p->iTextFrom - 1);
  while (bxStep(pRow, pErr)) {
    const char *z = bxColumnText(pRow, 0, pErr);
    pn = z ? bxMapAt(pCalls, bxHashOf(z, (i64)strlen(z)), pErr) : 0;
    if (pn != 0) *pn = 1;
  }
  bxReset(pRow, pErr);
  for (i = 0; i < p->nText - TEXTS_BACK; i++) {
    const char *z = p->aText[i].zTool ? p->aText[i].zCall : 0;
    pn = z ? bxMapAt(pCalls, bxHashOf(z, (i64)strlen(z)), pErr) : 0;
    if (pn != 0) *pn = 1;
  }
}

/* Writes the texts that are new. */
static void putTexts(RolloutDerive *p, BxErr *pErr) {
  static const char zPut[] =
      "INSERT INTO main.rollout__texts(n, id, role, place, at, part, call, "
      "tool, file, edits, is_error, took, result) VALUES (?1, ?2, ?3, ?4, ?5, "
      "?6, ?7, ?8, ?9, nullif(?10, 0), ?11, ?12, ?13)";
  static const char zLast[] =
      "SELECT max(texts, coalesce((SELECT max(n) FROM main.rollout__texts), 0))"
      " FROM main.rollout__act";
  static const char zLate[] =
      "UPDATE main.rollout__texts SET result = coalesce(?4, result), "
      "is_error = max(?5, coalesce(is_error, 0)), took = ?6 - at WHERE n = ("
      "SELECT n FROM main.rollout__texts WHERE id BETWEEN ?1 AND ?2 "
      "AND call = ?3 AND role = 'call' ORDER BY id DESC, n DESC LIMIT 1)";
  RolloutMap calls = {0};
  sqlite3_stmt *pPut = 0;
  i64 i, nOld = p->iNewest >= 0 ? p->iNewest
                                : bxQueryInt(p->pHome, zLast, pErr, "");
  i64 n = nOld;
  int nLate = 0;
  for (i = 0; i < p->nText; i++) {
    RolloutText *a = &p->aText[i];
    if (!a->bTold && a->zRole != 0) a->n = ++n;
  }
  for (i = 0; i < p->nText && pErr->rc == SQLITE_OK; i++) {
    const RolloutText *a = &p->aText[i];
    i64 iKey = bxRolloutKey(p->no, a->iSequence);
    if (a->bTold) continue;
    if (a->n > 0 && pPut == 0) pPut = bxStmt(p->pHome, zPut, pErr);
    if (a->n > 0) putRow(p, pPut, a, pErr);
    if (a->bWithout) {
      i64 iFrom = a->iSequence > TEXTS_BACK ? iKey - TEXTS_BACK : p->no << 32;
      i64 *pn;
      if (nLate++ == TEXTS_LATE) olderCalls(p, &calls, pErr);
      if (nLate > TEXTS_LATE) {
        pn = bxMapAt(&calls, bxHashOf(a->zCall, (i64)strlen(a->zCall)), pErr);
        if (pn == 0 || *pn == 0) continue;
      }
      bxStmtExec(p->pHome, zLate, pErr, a->n > 0 ? "iitiii" : "iitnii", iFrom,
          iKey, a->zCall, a->n > 0 ? a->n : (i64)a->eError,
          a->n > 0 ? (i64)a->eError : a->iTime, a->iTime);
    }
  }
  p->iNewest = n;
  sqlite3_free(calls.a);
  if (p->pRules->bSearch)
    bxRolloutIndex(p->pHome, n, n - nOld, p->nTextByte, pErr);
}

/* Reads an item again that was redacted. What its calls have from their results
** stays. */
static void putAgain(BxStmts *pHome, i64 id, i64 iTime, const char *zType,
    const char *z, i64 n, BxErr *pErr) {
  static const char zKept[] =
      "UPDATE main.rollout__texts AS t SET (is_error, took, result) = ("
      "SELECT o.is_error, o.took, o.result FROM main.rollout__texts AS o "
      "WHERE o.id = ?1 AND o.n <= ?2 AND o.role = 'call' AND o.call IS t.call) "
      "WHERE id = ?1 AND n > ?2 AND role = 'call' AND result IS NULL";
  static const char zGone[] =
      "DELETE FROM main.rollout__texts WHERE id = ?1 AND n <= ?2";
  static const char zMax[] = "SELECT max(n) FROM main.rollout__texts";
  static const RolloutHead none = {0, -1, 0, 0, -1, 0, -1, 0, 0};
  RolloutDerive tale;
  i64 nBefore = bxQueryInt(pHome, zMax, pErr, "");
  memset(&tale, 0, sizeof(tale));
  tale.bTexts = 1;
  bxRolloutDeriveBegin(&tale, pHome, &none, pErr);
  tale.no = id >> 32;
  if (pErr->rc == SQLITE_OK && z != 0 &&
      bxTreeRead(&tale.json.tree, z, n, 0, 0, pErr) != 0) {
    bxRolloutTell(&tale, zType, &tale.json, id & ROLLOUT_LAST, iTime);
  }
  putTexts(&tale, pErr);
  bxStmtExec(pHome, zKept, pErr, "ii", id, nBefore);
  bxStmtExec(pHome, zGone, pErr, "ii", id, nBefore);
  bxRolloutDeriveEnd(&tale);
}

void bxRolloutTextsPut(RolloutDerive *p, BxErr *pErr) {
  static const char zAnyDue[] =
      "SELECT EXISTS (SELECT 1 FROM main.rollout__marks WHERE id < 0)";
  static const char zDue[] =
      "SELECT d.id, d.timestamp, d.type, d.payload FROM main.rollout__marks AS "
      "u CROSS JOIN main.rollout__items AS d ON d.id = -u.id "
      "LEFT JOIN main.rollout__heads AS h ON h.no = d.id >> 32 "
      "WHERE u.id < 0 AND (h.behind IS NULL OR h.behind > d.id & 4294967295) "
      "ORDER BY u.id DESC";
  static const char zNotDue[] = "DELETE FROM main.rollout__marks WHERE id < 0";
  sqlite3_stmt *pRow;
  if (p->pRules == 0) return;
  if (p->nText > 0) putTexts(p, pErr);
  if (p->bIdle || !bxQueryInt(p->pHome, zAnyDue, pErr, "")) return;
  p->bBusy = 1;
  pRow = bxStmt(p->pHome, zDue, pErr);
  while (bxStep(pRow, pErr)) {
    const char *zType = bxColumnText(pRow, 2, pErr);
    const char *z = bxColumnText(pRow, 3, pErr);
    if (zType == 0) continue;
    putAgain(p->pHome, sqlite3_column_int64(pRow, 0),
        sqlite3_column_int64(pRow, 1), zType, z, sqlite3_column_bytes(pRow, 3),
        pErr);
  }
  bxReset(pRow, pErr);
  bxStmtExec(p->pHome, zNotDue, pErr, "");
}

/*---------------------------------------------------------------- checking ----*/

i64 bxRolloutTextsDiffer(RolloutDerive *p, i64 iLast, BxErr *pErr) {
  static const char zRows[] =
      "SELECT id & 4294967295, role, place, tool, file "
      "FROM main.rollout__texts WHERE id BETWEEN ?1 << 32 AND (?1 << 32) + ?2 "
      "ORDER BY id, n";
  static const char zExcused[] =
      "SELECT EXISTS (SELECT 1 FROM main.rollout__marks WHERE id = "
      "-((?1 << 32) + ?2)) OR (SELECT changed FROM main.rollout__data "
      "WHERE id = (?1 << 32) + ?2)";
  sqlite3_stmt *pRow = bxStmt(p->pHome, zRows, pErr);
  i64 i = 0, iFound = -1;
  int bRow;
  bxBind(pRow, pErr, "ii", p->no, iLast); /* (p->no may be damaged) */
  while (iFound < 0 && pErr->rc == SQLITE_OK) {
    const RolloutText *a;
    bRow = bxStep(pRow, pErr);
    while (i < p->nText && (p->aText[i].bTold || p->aText[i].zRole == 0)) i++;
    a = i < p->nText ? &p->aText[i] : 0;
    if (!bRow && a == 0) break;
    if (!bRow) {
      iFound = a->iSequence;
    } else if (a == 0 || a->iSequence != sqlite3_column_int64(pRow, 0)) {
      iFound = sqlite3_column_int64(pRow, 0);
    } else if ((!bxSameText(a->zRole, bxColumnText(pRow, 1, pErr)) ||
                   !bxSameText(a->zPlace, bxColumnText(pRow, 2, pErr)) ||
                   !bxSameText(a->zTool, bxColumnText(pRow, 3, pErr)) ||
                   !bxSameText(a->zFile, bxColumnText(pRow, 4, pErr))) &&
               !bxQueryInt(
                   p->pHome, zExcused, pErr, "ii", p->no, a->iSequence)) {
      iFound = a->iSequence;
    }
    i++;
  }
  bxReset(pRow, pErr);
  return iFound;
}
