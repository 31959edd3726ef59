/*
** exchange.c: reads a request and its response.
**
** The places of all formats are looked for in a body, in one walk: those that it
** has tell what it is. Hits are put into the order of the text, and then become
** calls, results and texts. A response that is not one JSON object is a stream: JSON on
** lines (after "data:" or alone), or an array. The events of one call are joined.
**
** Invariant: memory is the only error. Anything that is not an exchange, is
** nested deeper than 960 levels, or has more than BX_TREE_MAX values gives
** nothing.
*/
#include "exchange.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

typedef struct Hit {
  const Format *pFormat;
  int iNode;
  int iItem; /* node of the message that it is in */
} Hit;

/* What a reader leaves to the next one. */
typedef struct Room {
  BxTree tree, part;
  Hit *aHit;
  i64 nHitAlloc;
} Room;

struct Room *bxRoomNew(BxErr *pErr) {
  return bxNew(sizeof(Room), pErr);
}

void bxRoomFree(struct Room *p) {
  if (p == 0) return;
  bxTreeFree(&p->tree);
  bxTreeFree(&p->part);
  sqlite3_free(p->aHit);
  sqlite3_free(p);
}

typedef struct Reader {
  Exchange *pOut;
  const Formats *pFormats;
  BxErr *pErr;
  BxTree tree;
  int iRoot; /* node that places begin at */
  FormatBody eBody;
  Hit *aHit;
  i64 nHit, nHitAlloc;
  i64 iFirst;          /* the first call of this response */
  int iList;           /* the array of messages, -1 for none */
  int iElement, iItem; /* its element that was reached, and the number of it */
  int nSeen; /* messages of users before this one were counted before */
  int nOld;  /* first elements of the list that are not looked at */
} Reader;

/*--------------------------------------------------------------- texts ----*/

static void freeText(Text *pText) {
  sqlite3_free(pText->zOwn);
  memset(pText, 0, sizeof(*pText));
}

static void setText(Text *pText, Text value) {
  sqlite3_free(pText->zOwn);
  *pText = value;
}

static Text ownText(char *z, i64 n) {
  Text text = {z, n, z, 0};
  return text;
}

/* Takes a text that was put together. */
static Text takeText(sqlite3_str *pStr, BxErr *pErr) {
  char *z;
  int rc = sqlite3_str_errcode(pStr), n = sqlite3_str_length(pStr);
  z = sqlite3_str_finish(pStr);
  if (rc == SQLITE_NOMEM) {
    bxFail(pErr, rc, "out of memory");
  } else if (rc != SQLITE_OK) {
    bxFail(pErr, rc,
        "ValidationError: a text of an exchange is longer than this SQLite "
        "allows; shorten the body");
  }
  if (z == 0) z = bxNew(1, pErr);
  return ownText(z, z != 0 ? n : 0);
}

/* Appends a text to another one. */
static void appendText(Text *pText, Text more, BxErr *pErr) {
  char *z;
  if (more.z == 0 || pErr->rc != SQLITE_OK) return;
  if (pText->zOwn == 0 || pText->n + more.n >= pText->nAlloc) {
    i64 nAlloc = 2 * (pText->n + more.n) + 16;
    z = sqlite3_realloc64(pText->zOwn, (sqlite3_uint64)nAlloc);
    if (z == 0) {
      bxFail(pErr, SQLITE_NOMEM, "out of memory");
      return;
    }
    if (pText->zOwn == 0 && pText->n > 0) {
      memcpy(z, pText->z, (size_t)pText->n);
    }
    pText->z = pText->zOwn = z;
    pText->nAlloc = nAlloc;
  }
  memcpy(pText->zOwn + pText->n, more.z, (size_t)more.n);
  pText->n += more.n;
  pText->zOwn[pText->n] = 0;
}

/* What a string represents whose content is n bytes at z: a part of the body, if
** it has no escapes. An escape is longer than what it represents, so that there
** is room for a terminator. */
static Text stringText(const char *z, i64 n, BxErr *pErr) {
  Text text = {z, n, 0, 0};
  char *zOut, *zEnd;
  if (memchr(z, '\\', (size_t)n) == 0) return text;
  zOut = sqlite3_malloc64((sqlite3_uint64)n);
  if (zOut == 0) {
    bxFail(pErr, SQLITE_NOMEM, "out of memory");
    return (Text){0, 0, 0, 0};
  }
  zEnd = bxTreeDecode(zOut, z, (int)n);
  *zEnd = 0;
  return ownText(zOut, zEnd - zOut);
}

/* The value as text: a string is what it represents. */
static Text valueText(const BxTree *p, int iNode, BxErr *pErr) {
  const BxNode *pNode = &p->a[iNode];
  sqlite3_str *pStr;
  if (BX_TREE_KIND(p, iNode) == '"') {
    return stringText(p->z + pNode->iAt + 1, pNode->nByte - 2, pErr);
  }
  pStr = sqlite3_str_new(0);
  bxTreeCanon(p, iNode, pStr, pErr);
  return takeText(pStr, pErr);
}

/* A string, or the member text of an object: -1 for none. */
static int textNode(const BxTree *p, int iNode) {
  if (BX_TREE_KIND(p, iNode) == '{') iNode = bxTreeMember(p, iNode, "text", 4);
  return iNode >= 0 && BX_TREE_KIND(p, iNode) == '"' ? iNode : -1;
}

/* The texts of a message: its text, or those of its parts. Counts them, and the
** parts without; *piFirst is the first one, or -1. */
static int countTexts(
    const BxTree *p, int iNode, int *piFirst, int *pnOther) {
  int bArray = BX_TREE_KIND(p, iNode) == '[', n = 0;
  int i = bArray ? iNode + 1 : iNode;
  int iEnd = bArray ? p->a[iNode].iNext : iNode + 1;
  *piFirst = -1;
  *pnOther = 0;
  for (; i < iEnd; i = p->a[i].iNext) {
    int iText = textNode(p, i);
    if (iText < 0) {
      ++*pnOther;
    } else if (n++ == 0) {
      *piFirst = iText;
    }
  }
  return n;
}

/* The same on lines of their own. */
static Text messageText(const BxTree *p, int iNode, int *pnOther, BxErr *pErr) {
  int iFirst, i, iEnd = p->a[iNode].iNext;
  int n = countTexts(p, iNode, &iFirst, pnOther);
  sqlite3_str *pStr;
  if (n == 0) return (Text){0, 0, 0, 0};
  if (n == 1) return valueText(p, iFirst, pErr);
  pStr = sqlite3_str_new(0);
  for (i = iNode + 1; i < iEnd; i = p->a[i].iNext) {
    int iText = textNode(p, i);
    if (iText < 0) continue;
    if (iText != iFirst) sqlite3_str_appendchar(pStr, 1, '\n');
    bxTreeText(p, iText, pStr);
  }
  return takeText(pStr, pErr);
}

/* The result of a call. Parts that have no text stay JSON. */
static Text resultText(const BxTree *p, int iNode, BxErr *pErr) {
  int nOther, iFirst;
  int n = countTexts(p, iNode, &iFirst, &nOther);
  if (n > 0 && nOther == 0 && BX_TREE_KIND(p, iNode) != '{') {
    return messageText(p, iNode, &nOther, pErr);
  }
  return valueText(p, iNode, pErr);
}

/* JSON in its canonical form; text that is none as it is. A terminator follows
** the text, or the rest of a body. */
static Text canonText(Text text, BxErr *pErr) {
  BxTree tree = {0, 0, 0, 0};
  const char *zEnd;
  sqlite3_str *pStr;
  if (text.z == 0) return text;
  zEnd = bxTreeRead(&tree, text.z, 0, 0, pErr);
  if (zEnd != 0 && bxSkipSpace(zEnd) == text.z + text.n) {
    pStr = sqlite3_str_new(0);
    bxTreeCanon(&tree, 0, pStr, pErr);
    setText(&text, takeText(pStr, pErr));
  }
  bxTreeFree(&tree);
  return text;
}

/* Arguments as text: what the body has as a string is what it represents. */
static void needArguments(Call *p, BxErr *pErr) {
  Text *pText = &p->arguments;
  if (p->bWritten && pText->n > 1 && *pText->z == '"') {
    *pText = stringText(pText->z + 1, pText->n - 2, pErr);
  }
  p->bWritten = 0;
}

void bxCallArguments(Call *p, BxErr *pErr) {
  needArguments(p, pErr);
  p->arguments = canonText(p->arguments, pErr);
}

i64 bxCallHash(Call *p, const Formats *pFormats, BxErr *pErr) {
  BxTree *pTree = &pFormats->pRoom->part;
  const char *zEnd;
  needArguments(p, pErr);
  if (p->arguments.z == 0 || pErr->rc != SQLITE_OK) return 0;
  zEnd = bxTreeRead(pTree, p->arguments.z, 0, 0, pErr);
  if (zEnd != 0 && bxSkipSpace(zEnd) == p->arguments.z + p->arguments.n) {
    return (i64)bxTreeHash(pTree, 0, pErr);
  }
  return (i64)bxHashOf(p->arguments.z, p->arguments.n);
}

/*-------------------------------------------------------------- places ----*/

typedef struct Path {
  const BxTree *pTree;
  int iItem; /* the element of the first array on the way */
  void (*xHit)(struct Path *p, int iNode);
  Reader *pReader;
  const Format *pFormat;
  int iFound; /* the first hit, -1 for none */
} Path;

static void follow(Path *p, int iNode, const char *z);

/* The node of dotted names from z to zEnd, or -1. */
static int memberAt(const BxTree *p, int iNode, const char *z, int n) {
  const char *zEnd = z + n;
  while (z < zEnd && iNode >= 0) {
    int nName = 0;
    while (z + nName < zEnd && z[nName] != '.') nName++;
    iNode = bxTreeMember(p, iNode, z, nName);
    z += nName + 1;
  }
  return iNode;
}

/* Whether an element fulfils the conditions a=b,c.d=e before the bracket. */
static int fulfils(const BxTree *p, int iNode, const char *z) {
  while (*z != 0 && *z != ']') {
    int n = (int)strcspn(z, ",]"), nName = (int)strcspn(z, "=,]");
    int i = memberAt(p, iNode, z, nName);
    if (i < 0) return 0;
    if (nName < n && !bxTreeIs(p, i, z + nName + 1, n - nName - 1)) return 0;
    z += n;
    if (*z == ',') z++;
  }
  return 1;
}

/* The elements in brackets at z. */
static void followEach(Path *p, int iNode, const char *z) {
  const BxTree *pTree = p->pTree;
  const char *zRest = z + strcspn(z, "]");
  int bArray = BX_TREE_KIND(pTree, iNode) == '[', bOuter = p->iItem < 0;
  int i = bArray ? iNode + 1 : iNode, iEnd = pTree->a[iNode].iNext;
  if (*zRest != 0) zRest++;
  while (i < iEnd) {
    if (bOuter && bArray) p->iItem = i;
    if (fulfils(pTree, i, z + 1)) follow(p, i, zRest);
    if (!bArray) break;
    i = pTree->a[i].iNext;
  }
  if (bOuter) p->iItem = -1;
}

/* Calls xHit for each node that the path at z leads to. */
static void follow(Path *p, int iNode, const char *z) {
  int n;
  if (*z == '.') z++;
  n = (int)strcspn(z, ".[|=");
  if (n > 0) iNode = bxTreeMember(p->pTree, iNode, z, n);
  if (iNode < 0) return;
  z += n;
  if (*z == '[') {
    followEach(p, iNode, z);
  } else if (*z == '.') {
    follow(p, iNode, z);
  } else {
    p->xHit(p, iNode);
  }
}

/* The alternatives of a path, until one leads somewhere. */
static void followAny(Path *p, int iNode, const char *z) {
  while (z != 0 && p->iFound < 0) {
    if (z[0] == '$' && z[1] == '.') {
      follow(p, p->pReader->iRoot, z + 2);
    } else {
      follow(p, iNode, z);
    }
    z = strchr(z, '|');
    if (z != 0) z++;
  }
}

static void noteFirst(Path *p, int iNode) {
  if (p->iFound < 0 && BX_TREE_KIND(p->pTree, iNode) != 'n') p->iFound = iNode;
}

/* The node of a field of an object, or -1. */
static int fieldNode(Reader *p, int iNode, const char *zPath) {
  Path path = {&p->tree, -1, noteFirst, p, 0, -1};
  if (zPath != 0) followAny(&path, iNode, zPath);
  return path.iFound;
}

static void addHit(Reader *p, const Format *pFormat, int iNode, int iItem) {
  Hit *a;
  if (BX_TREE_KIND(&p->tree, iNode) == 'n') return;
  a = bxGrow(p->aHit, p->nHit, &p->nHitAlloc, sizeof(*a), p->pErr);
  if (a == 0) return;
  p->aHit = a;
  a += p->nHit++;
  a->pFormat = pFormat;
  a->iNode = iNode;
  a->iItem = iItem >= 0 ? iItem : p->iRoot;
}

static void noteHit(Path *p, int iNode) {
  addHit(p->pReader, p->pFormat, iNode, p->iItem);
  if (BX_TREE_KIND(p->pTree, iNode) != 'n') p->iFound = iNode;
}

/* The messages of a request are the array, directly in its body, that has
** messages, calls or results. */
static void noteList(Reader *p, int iNode) {
  const BxNode *a = p->tree.a;
  int i = 1;
  if (p->iList >= 0 || p->eBody != BODY_REQUEST) return;
  while (i + 1 < iNode) i = a[i + 1].iNext;
  if (i + 1 == iNode) p->iList = iNode;
}

static int isElement(const Reader *p, int iNode, const Spot *pSpot) {
  if (pSpot->iIf == 0) return fulfils(&p->tree, iNode, pSpot->zIf);
  iNode = bxTreeNamed(&p->tree, iNode, pSpot->iIf);
  return iNode >= 0 && bxTreeIs(&p->tree, iNode, pSpot->zIs, pSpot->nIs);
}

static void walk(Reader *p, int iNode, const Spot *pSpot, int iItem);

static void walkElement(Reader *p, int iNode, const Spot *pSpot, int iItem) {
  const Spot *aSpot = p->pFormats->aSpot;
  int i;
  for (i = pSpot->iElement; i != 0; i = aSpot[i].iNext) {
    if (isElement(p, iNode, &aSpot[i])) walk(p, iNode, &aSpot[i], iItem);
  }
}

/* What is no array is an array of one. */
static void walkElements(Reader *p, int iNode, const Spot *pSpot, int iItem) {
  const BxNode *a = p->tree.a;
  int i, bOuter = iItem < 0, nOld = 0;
  if (BX_TREE_KIND(&p->tree, iNode) != '[') {
    walkElement(p, iNode, pSpot, iItem);
    return;
  }
  if (bOuter && pSpot->bList) noteList(p, iNode);
  if (iNode == p->iList) nOld = p->nOld;
  for (i = iNode + 1; i < a[iNode].iNext; i = a[i].iNext) {
    if (nOld-- <= 0) walkElement(p, i, pSpot, bOuter ? i : iItem);
  }
}

/* Notes each place that begins with the steps to pSpot, which lead to iNode. */
static void walk(Reader *p, int iNode, const Spot *pSpot, int iItem) {
  const Formats *pFormats = p->pFormats;
  const Spot *aSpot = pFormats->aSpot;
  int i, iMember;
  for (i = pSpot->iFormat; i >= 0; i = pFormats->a[i].iNext) {
    addHit(p, &pFormats->a[i], iNode, iItem);
  }
  if (pSpot->iElement != 0) walkElements(p, iNode, pSpot, iItem);
  for (i = pSpot->iMember; i != 0; i = aSpot[i].iNext) {
    iMember = bxTreeNamed(&p->tree, iNode, aSpot[i].iName);
    if (iMember >= 0) walk(p, iMember, &aSpot[i], iItem);
  }
}

static int compareHits(const void *pLeft, const void *pRight) {
  const Hit *p = pLeft, *q = pRight;
  if (p->iNode != q->iNode) return p->iNode < q->iNode ? -1 : 1;
  if (p->pFormat->eKind != q->pFormat->eKind) {
    return p->pFormat->eKind < q->pFormat->eKind ? -1 : 1;
  }
  return p->pFormat < q->pFormat ? -1 : p->pFormat > q->pFormat;
}

#define FEW_HITS 24 /* that are sorted without a call for each comparison */

static void sortHits(Reader *p) {
  Hit *a = p->aHit;
  i64 i, j;
  if (p->nHit > FEW_HITS) {
    qsort(a, (size_t)p->nHit, sizeof(Hit), compareHits);
    return;
  }
  for (i = 1; i < p->nHit; i++) {
    Hit hit = a[i];
    for (j = i; j > 0 && compareHits(&hit, &a[j - 1]) < 0; j--) a[j] = a[j - 1];
    a[j] = hit;
  }
}

/* Two formats that have the same place find it once; but numbers of tokens have
** other names in each. */
static void dropDoubles(Reader *p) {
  Hit *a = p->aHit;
  i64 i, n = 0;
  for (i = 1; i < p->nHit; i++) {
    if (a[i].iNode != a[n].iNode ||
        a[i].pFormat->eKind != a[n].pFormat->eKind ||
        a[i].pFormat->eKind == FORMAT_USAGE) {
      a[++n] = a[i];
    }
  }
  if (p->nHit > 0) p->nHit = n + 1;
}

/* Finds all places of the formats in the value, in the order of the text. */
static void findHits(Reader *p, FormatBody eBody, int iRoot) {
  const Formats *pFormats = p->pFormats;
  i64 i;
  p->nHit = 0;
  p->eBody = eBody;
  p->iRoot = iRoot;
  p->iList = -1;
  walk(p, iRoot, &pFormats->aSpot[eBody], -1);
  for (i = 0; i < pFormats->n; i++) {
    Path path = {&p->tree, -1, noteHit, p, &pFormats->a[i], -1};
    if (pFormats->a[i].bEither && pFormats->a[i].eBody == eBody) {
      followAny(&path, iRoot, pFormats->a[i].azPath[PATH_PLACE]);
    }
  }
  sortHits(p);
  dropDoubles(p);
}

/*------------------------------------------------------ calls, results ----*/

static Text fieldText(Reader *p, int iNode, const char *zPath) {
  int iField = fieldNode(p, iNode, zPath);
  if (iField < 0) return (Text){0, 0, 0, 0};
  return valueText(&p->tree, iField, p->pErr);
}

static int equalTexts(Text a, Text b) {
  return a.z != 0 && b.z != 0 && a.n == b.n &&
         memcmp(a.z, b.z, (size_t)a.n) == 0;
}

static Call *newCall(Reader *p, int bResult) {
  Exchange *pOut = p->pOut;
  Call *a = bxGrow(pOut->a, pOut->n, &pOut->nAlloc, sizeof(*a), p->pErr);
  if (a == 0) return 0;
  pOut->a = a;
  a += pOut->n++;
  memset(a, 0, sizeof(*a));
  a->bResult = bResult;
  a->bResponse = p->eBody != BODY_REQUEST;
  a->iTurn = pOut->nTurn;
  a->iItem = p->iItem;
  a->iError = bResult ? 0 : -1;
  return a;
}

#define CALLS_BACK 256 /* among which an event or a result finds its call */

/* The call of this stream that an event belongs to, or NULL. */
static Call *findPart(Reader *p, Text part, Text id) {
  i64 i, nLook = 0;
  for (i = p->pOut->n - 1; i >= p->iFirst && nLook < CALLS_BACK; i--) {
    Call *pCall = &p->pOut->a[i];
    if (pCall->bResult) continue;
    nLook++;
    if (part.z == 0 ? id.z == 0 : equalTexts(pCall->part, part)) return pCall;
  }
  return 0;
}

/* Arguments that come in pieces are text; whole ones of an event may be the
** empty object that the pieces replace. */
static void addPiece(Reader *p, Call *pCall, int iNode) {
  Text text;
  int bPiece;
  bPiece = BX_TREE_KIND(&p->tree, iNode) == '"';
  text = valueText(&p->tree, iNode, p->pErr);
  if (!bPiece || (pCall->arguments.z != 0 && pCall->arguments.n == 2 &&
                     memcmp(pCall->arguments.z, "{}", 2) == 0)) {
    setText(&pCall->arguments, text);
    return;
  }
  appendText(&pCall->arguments, text, p->pErr);
  freeText(&text);
}

/* Other arguments are read when somebody asks for them. */
static void addArguments(Reader *p, Call *pCall, const Hit *pHit) {
  int iNode = fieldNode(p, pHit->iNode, pHit->pFormat->azPath[PATH_ARGUMENTS]);
  if (iNode < 0) return;
  if (pHit->pFormat->azPath[PATH_PART] != 0) {
    addPiece(p, pCall, iNode);
  } else {
    const BxNode *pNode = &p->tree.a[iNode];
    setText(&pCall->arguments,
        (Text){p->tree.z + pNode->iAt, pNode->nByte, 0, 0});
    pCall->bWritten = 1;
  }
}

static void addCall(Reader *p, const Hit *pHit) {
  char *const *azPath = pHit->pFormat->azPath;
  Text part = fieldText(p, pHit->iNode, azPath[PATH_PART]);
  Text id = fieldText(p, pHit->iNode, azPath[PATH_ID]);
  Call *pCall = 0;
  if (azPath[PATH_PART] != 0) pCall = findPart(p, part, id);
  if (pCall == 0) pCall = newCall(p, 0);
  if (pCall == 0) {
    freeText(&part);
    freeText(&id);
    return;
  }
  setText(&pCall->part, part);
  if (pCall->id.z == 0 || pCall->id.n == 0) {
    setText(&pCall->id, id);
  } else {
    freeText(&id);
  }
  if (pCall->tool.z == 0) {
    pCall->tool = fieldText(p, pHit->iNode, azPath[PATH_TOOL]);
  }
  addArguments(p, pCall, pHit);
}

/* A flag, or, in the form path=text, a text that says so. */
static int isFlagged(Reader *p, int iNode, const char *zPath) {
  const char *zIs = zPath != 0 ? strchr(zPath, '=') : 0;
  int iField = fieldNode(p, iNode, zPath);
  if (iField < 0) return 0;
  if (zIs == 0) return BX_TREE_KIND(&p->tree, iField) == 't';
  return bxTreeIs(&p->tree, iField, zIs + 1, (int)strlen(zIs + 1));
}

#define ERROR_BYTES 400 /* of a result, in which its text is looked at */

static int saysError(Reader *p, Text result) {
  char zHead[ERROR_BYTES + 1];
  size_t n = result.n < ERROR_BYTES ? (size_t)result.n : ERROR_BYTES;
  i64 i;
  if (result.z == 0) return 0;
  memcpy(zHead, result.z, n);
  zHead[n] = 0;
  for (i = 0; i < p->pFormats->nError; i++) {
    const ErrorText *pError = &p->pFormats->aError[i];
    if (pError->zHas != 0 && strstr(zHead, pError->zHas) == 0) continue;
    if (sqlite3_strglob(pError->z, zHead) == 0) return 1;
  }
  return 0;
}

/* The tool of a result is that of its call. */
static void findTool(Reader *p, Call *pResult) {
  i64 i, nLook = 0;
  for (i = pResult - p->pOut->a - 1; i >= 0 && nLook < CALLS_BACK; i--) {
    const Call *pCall = &p->pOut->a[i];
    if (pCall->bResult) continue;
    nLook++;
    if (pCall->tool.z == 0 || !equalTexts(pCall->id, pResult->id)) continue;
    pResult->tool.z = pCall->tool.z;
    pResult->tool.n = pCall->tool.n;
    return;
  }
}

static void addResult(Reader *p, const Hit *pHit) {
  char *const *azPath = pHit->pFormat->azPath;
  Call *pCall = newCall(p, 1);
  int iResult;
  if (pCall == 0) return;
  pCall->id = fieldText(p, pHit->iNode, azPath[PATH_ID]);
  pCall->tool = fieldText(p, pHit->iNode, azPath[PATH_TOOL]);
  if (pCall->tool.z == 0) findTool(p, pCall);
  iResult = fieldNode(p, pHit->iNode, azPath[PATH_RESULT]);
  if (iResult >= 0) {
    pCall->result = resultText(&p->tree, iResult, p->pErr);
  }
  pCall->iError = isFlagged(p, pHit->iNode, azPath[PATH_ERROR]) ||
                  saysError(p, pCall->result);
}

/*-------------------------------------------------------- other values ----*/

/* The message of a user. One that also brings results begins no turn: it is the
** program that speaks. */
static void addUser(Reader *p, const Hit *pHit) {
  int nOther, iFirst;
  const Hit *pNear = pHit;
  if (countTexts(&p->tree, pHit->iNode, &iFirst, &nOther) == 0) return;
  if (p->pFormats->mKind >> FORMAT_PROMPT & 1) {
    setText(&p->pOut->prompt,
        messageText(&p->tree, pHit->iNode, &nOther, p->pErr));
  }
  while (pNear > p->aHit && pNear[-1].iItem == pHit->iItem) pNear--;
  for (; pNear < p->aHit + p->nHit && pNear->iItem == pHit->iItem; pNear++) {
    if (pNear->pFormat->eKind == FORMAT_RESULT) return;
  }
  p->pOut->nUser++;
  if (p->iItem >= p->nSeen) p->pOut->nTurn++;
}

static void addSaid(Reader *p, const Hit *pHit) {
  int nOther;
  Text text = messageText(&p->tree, pHit->iNode, &nOther, p->pErr);
  if (p->pOut->said.z == 0) {
    p->pOut->said = text;
    return;
  }
  appendText(&p->pOut->said, text, p->pErr);
  freeText(&text);
}

/* A number of tokens. One that no event names stays as it was. */
static i64 readTokens(Reader *p, int iNode, const char *zPath, i64 nBefore) {
  int iField = fieldNode(p, iNode, zPath);
  const char *z;
  if (iField < 0) return nBefore;
  z = &BX_TREE_KIND(&p->tree, iField);
  return *z >= '0' && *z <= '9' ? strtoll(z, 0, 10) : nBefore;
}

static i64 atLeast(i64 n, i64 nLow) {
  return n > nLow ? n : nLow;
}

static void addUsage(Reader *p, const Hit *pHit) {
  const Format *pFormat = pHit->pFormat;
  char *const *azPath = pFormat->azPath;
  Usage *pUsage = &p->pOut->usage;
  i64 nInput = readTokens(p, pHit->iNode, azPath[PATH_INPUT], -1);
  i64 nOutput = readTokens(p, pHit->iNode, azPath[PATH_OUTPUT], -1);
  pUsage->nCacheWrite =
      readTokens(p, pHit->iNode, azPath[PATH_CACHE_WRITE], pUsage->nCacheWrite);
  pUsage->nCacheRead =
      readTokens(p, pHit->iNode, azPath[PATH_CACHE_READ], pUsage->nCacheRead);
  pUsage->nReasoning =
      readTokens(p, pHit->iNode, azPath[PATH_REASONING], pUsage->nReasoning);
  if (nInput >= 0) {
    i64 nCached =
        atLeast(pUsage->nCacheRead, 0) + atLeast(pUsage->nCacheWrite, 0);
    pUsage->nInput = pFormat->bCacheIn ? atLeast(nInput - nCached, 0) : nInput;
  }
  if (nOutput >= 0) {
    pUsage->nOutput = pFormat->bReasoningIn
                          ? nOutput
                          : nOutput + atLeast(pUsage->nReasoning, 0);
  }
}

/* Adds a name to the sorted list of tools: "fn:" and "tool:" before it. */
static void addTool(Reader *p, const Hit *pHit) {
  const char *zMark = pHit->pFormat->eKind == FORMAT_TOOL ? "fn:" : "tool:";
  Text name = valueText(&p->tree, pHit->iNode, p->pErr);
  Text mark = {zMark, (i64)strlen(zMark), 0, 0}, comma = {",", 1, 0, 0};
  if (p->pOut->tools.n > 0) appendText(&p->pOut->tools, comma, p->pErr);
  appendText(&p->pOut->tools, mark, p->pErr);
  appendText(&p->pOut->tools, name, p->pErr);
  freeText(&name);
}

/*-------------------------------------------------------------- bodies ----*/

static void takeHit(Reader *p, const Hit *pHit) {
  switch (pHit->pFormat->eKind) {
    case FORMAT_CALL: addCall(p, pHit); break;
    case FORMAT_RESULT: addResult(p, pHit); break;
    case FORMAT_USER: addUser(p, pHit); break;
    case FORMAT_SAID: addSaid(p, pHit); break;
    case FORMAT_USAGE: addUsage(p, pHit); break;
    case FORMAT_TOOL:
    case FORMAT_CHOICE: addTool(p, pHit); break;
    case FORMAT_MODEL:
      setText(&p->pOut->model, valueText(&p->tree, pHit->iNode, p->pErr));
      break;
    default: break; /* fallbacks of the prompt */
  }
}

/* Goes on to the message that a node is in. */
static void reachItem(Reader *p, int iNode) {
  const BxNode *a = p->tree.a;
  if (p->iList < 0) return;
  while (p->iElement < a[p->iList].iNext && a[p->iElement].iNext <= iNode) {
    p->iElement = a[p->iElement].iNext;
    p->iItem++;
  }
}

/* iItem: the number of the first message that the tree has. */
static void addHits(Reader *p, int iItem) {
  i64 i;
  p->iElement = p->iList + 1;
  p->iItem = iItem;
  for (i = 0; i < p->nHit && p->pErr->rc == SQLITE_OK; i++) {
    reachItem(p, p->aHit[i].iNode);
    takeHit(p, &p->aHit[i]);
  }
}

/* No user said anything: the last message, or the prompt of a request without
** messages. */
static void fallBack(Reader *p) {
  FormatKind eKind = FORMAT_MESSAGE;
  i64 i;
  int nOther;
  if (!(p->pFormats->mKind >> FORMAT_PROMPT & 1)) return;
  while (p->pOut->prompt.z == 0 && eKind <= FORMAT_PROMPT) {
    for (i = p->nHit - 1; i >= 0 && p->pOut->prompt.z == 0; i--) {
      if (p->aHit[i].pFormat->eKind != eKind) continue;
      p->pOut->prompt =
          messageText(&p->tree, p->aHit[i].iNode, &nOther, p->pErr);
    }
    eKind = (FormatKind)(eKind + 1);
  }
  if (p->iList < 0 && p->pOut->prompt.z != 0) {
    p->pOut->nTurn = p->pOut->nUser = 1;
  }
}

/* Whether the n bytes are one value with nothing after it. */
static int readWhole(Reader *p, const char *z, i64 n, FormatBody eBody) {
  const Formats *pFormats = p->pFormats;
  const char *zEnd = bxTreeRead(
      &p->tree, z, &pFormats->ways, pFormats->aiRoot[eBody], p->pErr);
  return zEnd != 0 && bxSkipSpace(zEnd) == z + n;
}

/* The tree of what follows the head, if the request begins with it. */
static int readOn(
    Reader *p, const char *z, i64 n, const Head *pHead, BxHash *pHash) {
  const Formats *pFormats = p->pFormats;
  BxTreeRest rest;
  if (pHead->nByte <= 0 || pHead->iKey <= 0 || pHead->iKey >= pHead->nByte ||
      pHead->nByte > n || *z != '{' ||
      (i64)bxHashUpTo(pHash, z, pHead->nByte) != pHead->hash) {
    return 0;
  }
  rest.iKey = pHead->iKey;
  rest.iAt = pHead->nByte;
  rest.nOld = p->nSeen > pHead->nItem ? p->nSeen - pHead->nItem : 0;
  if (bxTreeResume(&p->tree, z, &rest, &pFormats->ways,
          pFormats->aiRoot[BODY_REQUEST], p->pErr) == 0) {
    return 0;
  }
  p->nOld = rest.nOld;
  return 1;
}

/* The head of this request: all messages but the last. nBefore are not in the
** tree. */
static void moveHead(
    Reader *p, const char *z, Head *pHead, int nBefore, BxHash *pHash) {
  const BxNode *a = p->tree.a;
  int i, nKeep, nItem = nBefore;
  if (p->iList < 0) return;
  for (i = p->iList + 1; i < a[p->iList].iNext; i = a[i].iNext) nItem++;
  p->pOut->nItem = nItem;
  nKeep = nItem - HEAD_BEFORE_END - nBefore;
  if (nKeep <= 0) {
    if (nBefore == 0) memset(pHead, 0, sizeof(*pHead));
    return;
  }
  for (i = p->iList + 1; --nKeep > 0; i = a[i].iNext) {
  }
  pHead->nByte = a[i].iAt + a[i].nByte;
  pHead->iKey = a[p->iList - 1].iAt;
  pHead->nItem = nItem - HEAD_BEFORE_END;
  if (pHash->n > pHead->nByte) bxHashBegin(pHash);
  pHead->hash = (i64)bxHashUpTo(pHash, z, pHead->nByte);
}

/* The first text of the messages: it is the same while a conversation goes on. */
static i64 firstText(Reader *p) {
  i64 i, h = 0;
  int nOther;
  for (i = 0; i < p->nHit && h == 0; i++) {
    FormatKind eKind = p->aHit[i].pFormat->eKind;
    Text text;
    if (eKind != FORMAT_USER && eKind != FORMAT_MESSAGE) continue;
    text = messageText(&p->tree, p->aHit[i].iNode, &nOther, p->pErr);
    if (text.z != 0) h = (i64)bxHashOf(text.z, text.n);
    freeText(&text);
  }
  return h;
}

static void readRequest(Reader *p, const char *z, i64 n, Head *pHead) {
  BxHash hash;
  int nBefore = 0;
  const char *zBegin = bxSkipSpace(z);
  n -= zBegin - z;
  bxHashBegin(&hash);
  if (pHead != 0 && readOn(p, zBegin, n, pHead, &hash)) {
    nBefore = pHead->nItem;
  } else if (!readWhole(p, zBegin, n, BODY_REQUEST)) {
    return;
  }
  findHits(p, BODY_REQUEST, 0);
  addHits(p, nBefore);
  p->nOld = 0;
  fallBack(p);
  if (pHead == 0) return;
  p->pOut->bResumed = nBefore > 0;
  if (nBefore == 0) p->pOut->hFirst = firstText(p);
  moveHead(p, zBegin, pHead, nBefore, &hash);
}

static void readEvent(Reader *p, int iRoot) {
  findHits(p, BODY_EVENT, iRoot);
  addHits(p, 0);
}

/* A stream: JSON on its lines, after "data:" or alone. */
static void readStream(Reader *p, const char *z, i64 n) {
  const char *zLast = z + n, *zEnd;
  while (z < zLast && p->pErr->rc == SQLITE_OK) {
    const char *zLine = memchr(z, '\n', (size_t)(zLast - z));
    if (zLine == 0) zLine = zLast;
    if (zLine - z > 5 && memcmp(z, "data:", 5) == 0) z += 5;
    while (z < zLine && (*z == ' ' || *z == '\t')) z++;
    if (*z == '{') {
      zEnd = bxTreeRead(&p->tree, z, &p->pFormats->ways,
          p->pFormats->aiRoot[BODY_EVENT], p->pErr);
      if (zEnd != 0 && zEnd <= zLine && bxSkipSpace(zEnd) >= zLine) {
        readEvent(p, 0);
      }
    }
    z = zLine + 1;
  }
}

static void readResponse(Reader *p, const char *z, i64 n) {
  p->iFirst = p->pOut->n;
  if (!readWhole(p, z, n, BODY_RESPONSE)) {
    readStream(p, z, n);
  } else if (BX_TREE_KIND(&p->tree, 0) == '[') {
    int i, iEnd = p->tree.a[0].iNext;
    for (i = 1; i < iEnd; i = p->tree.a[i].iNext) readEvent(p, i);
  } else {
    findHits(p, BODY_RESPONSE, 0);
    addHits(p, 0);
    if (p->pOut->n == p->iFirst && p->pOut->said.z == 0) readEvent(p, 0);
  }
}

static int compareNames(const void *pLeft, const void *pRight) {
  return strcmp(*(char *const *)pLeft, *(char *const *)pRight);
}

/* Puts the list of tools into its order. */
static void sortTools(Text *pTools, BxErr *pErr) {
  char **az, *z, *zNext;
  sqlite3_str *pStr;
  i64 i, n = 1;
  if (pTools->z == 0 || pErr->rc != SQLITE_OK) return;
  for (z = pTools->zOwn; *z; z++) n += *z == ',';
  az = bxNew((size_t)n * sizeof(*az), pErr);
  if (az == 0) return;
  for (i = 0, z = pTools->zOwn; i < n; i++, z = zNext) {
    az[i] = z;
    zNext = z + strcspn(z, ",");
    if (*zNext != 0) *zNext++ = 0;
  }
  qsort(az, (size_t)n, sizeof(*az), compareNames);
  pStr = sqlite3_str_new(0);
  for (i = 0; i < n; i++) {
    sqlite3_str_appendf(pStr, i == 0 ? "%s" : ",%s", az[i]);
  }
  sqlite3_free(az);
  setText(pTools, takeText(pStr, pErr));
}

/* The bytes of a body, with a terminator; NULL for none. *pzCopy: they are
** copied. A blob always is: to ask for its text would change its type for whoever
** reads it next. */
static const char *bodyOf(
    sqlite3_value *pBody, int bCopy, i64 *pn, char **pzCopy, BxErr *pErr) {
  int eType = pBody == 0 ? SQLITE_NULL : sqlite3_value_type(pBody);
  const void *z;
  if (eType == SQLITE_BLOB) {
    z = sqlite3_value_blob(pBody);
  } else if (eType == SQLITE_TEXT) {
    z = sqlite3_value_text(pBody);
    if (z == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  } else {
    return 0;
  }
  *pn = sqlite3_value_bytes(pBody);
  if (eType == SQLITE_TEXT && !bCopy) return z;
  *pzCopy = bxNew((size_t)*pn + 1, pErr);
  if (*pn > 0 && *pzCopy != 0) memcpy(*pzCopy, z, (size_t)*pn);
  return *pzCopy;
}

typedef struct Reading {
  sqlite3_value *apBody[2];
  Head *pHead;
  int nSeen;
  int bCopy;
} Reading;

#define ROOM_MOST 100000 /* nodes and hits that are kept */

static void keepRoom(Room *p, Reader *pReader) {
  p->tree = pReader->tree;
  p->aHit = pReader->aHit;
  p->nHitAlloc = pReader->nHitAlloc;
  if (p->tree.nAlloc > ROOM_MOST) bxTreeFree(&p->tree);
  if (p->part.nAlloc > ROOM_MOST) bxTreeFree(&p->part);
  if (p->nHitAlloc > ROOM_MOST) {
    sqlite3_free(p->aHit);
    p->aHit = 0;
    p->nHitAlloc = 0;
  }
}

static void readBodies(Exchange *pOut, const Formats *pFormats,
    const Reading *pReading, BxErr *pErr) {
  static const Usage none = {-1, -1, -1, -1, -1};
  Reader reader;
  const char *z;
  i64 n;
  memset(pOut, 0, sizeof(*pOut));
  pOut->usage = none;
  if (pErr->rc != SQLITE_OK) return;
  memset(&reader, 0, sizeof(reader));
  reader.pOut = pOut;
  reader.pFormats = pFormats;
  reader.pErr = pErr;
  reader.nSeen = pReading->nSeen;
  reader.tree = pFormats->pRoom->tree;
  reader.aHit = pFormats->pRoom->aHit;
  reader.nHitAlloc = pFormats->pRoom->nHitAlloc;
  z = bodyOf(
      pReading->apBody[0], pReading->bCopy, &n, &pOut->azCopy[0], pErr);
  if (z != 0) readRequest(&reader, z, n, pReading->pHead);
  z = bodyOf(
      pReading->apBody[1], pReading->bCopy, &n, &pOut->azCopy[1], pErr);
  if (z != 0) readResponse(&reader, z, n);
  sortTools(&pOut->tools, pErr);
  keepRoom(pFormats->pRoom, &reader);
}

void bxExchangeReadOn(Exchange *pOut, const Formats *pFormats,
    sqlite3_value *pRequest, sqlite3_value *pResponse, Head *pHead, int nSeen,
    BxErr *pErr) {
  Reading reading = {{pRequest, pResponse}, pHead, nSeen, 0};
  readBodies(pOut, pFormats, &reading, pErr);
}

void bxExchangeRead(Exchange *pOut, const Formats *pFormats,
    sqlite3_value *pRequest, sqlite3_value *pResponse, BxErr *pErr) {
  Reading reading = {{pRequest, pResponse}, 0, 0, 1};
  i64 i;
  readBodies(pOut, pFormats, &reading, pErr);
  for (i = 0; i < pOut->n && pErr->rc == SQLITE_OK; i++) {
    bxCallArguments(&pOut->a[i], pErr);
  }
}

void bxExchangeFree(Exchange *p) {
  i64 i;
  for (i = 0; i < p->n; i++) {
    sqlite3_free(p->a[i].id.zOwn);
    sqlite3_free(p->a[i].tool.zOwn);
    sqlite3_free(p->a[i].part.zOwn);
    sqlite3_free(p->a[i].arguments.zOwn);
    sqlite3_free(p->a[i].result.zOwn);
  }
  sqlite3_free(p->a);
  sqlite3_free(p->prompt.zOwn);
  sqlite3_free(p->said.zOwn);
  sqlite3_free(p->model.zOwn);
  sqlite3_free(p->tools.zOwn);
  sqlite3_free(p->azCopy[0]);
  sqlite3_free(p->azCopy[1]);
  memset(p, 0, sizeof(*p));
}
