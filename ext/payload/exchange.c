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
#include "reader.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

struct Room *bxScratchNew(BxErr *pErr) {
  return bxZalloc(sizeof(Room), pErr);
}

void bxScratchFree(struct Room *p) {
  if (p == 0) return;
  bxTreeFree(&p->tree);
  bxTreeFree(&p->part);
  sqlite3_free(p->aHit);
  sqlite3_free(p->azText[0]);
  sqlite3_free(p->azText[1]);
  sqlite3_free(p);
}

/*------------------------------------------------------ calls, results ----*/

/* The node of a field of a place that has a value, or -1. */
static int fieldAt(const Reader *p, int iNode, const char *zPath) {
  int i = bxPathFind(&p->tree, p->aAt[0], iNode, zPath);
  assert(iNode >= 0 && iNode < p->tree.n);
  return i >= 0 && BX_TREE_KIND(&p->tree, i) == 'n' ? -1 : i;
}

static Text fieldText(Reader *p, int iNode, const char *zPath) {
  int iField = fieldAt(p, iNode, zPath);
  if (iField < 0) return (Text){0, 0, 0, 0};
  return bxTextValue(&p->tree, iField, p->pErr);
}

static int equalTexts(Text a, Text b) {
  return a.z != 0 && b.z != 0 && a.n == b.n &&
         memcmp(a.z, b.z, (size_t)a.n) == 0;
}

static Call *newCall(Reader *p, int bResult) {
  Exchange *pOut = p->pOut;
  Call *a = bxArrayAdd(&pOut->a, &pOut->n, &pOut->nAlloc, sizeof(*a), p->pErr);
  assert(bResult == 0 || bResult == 1);
  assert(pOut->n <= pOut->nAlloc);
  if (a == 0) return 0;
  a->bResult = bResult;
  a->bResponse = p->eBody != BX_SOURCE_REQUEST;
  a->iTurn = pOut->nTurn;
  a->iItem = p->iItem;
  a->iError = bResult ? 0 : -1;
  return a;
}

#define CALLS_BACK 256 /* among which an event or a result finds its call */

/* The call of this stream that an event belongs to, or NULL. */
static Call *findPart(Reader *p, Text part, Text id) {
  i64 i, nLook = 0;
  assert(p->iFirst >= 0 && p->iFirst <= p->pOut->n);
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
  assert(iNode >= 0 && iNode < p->tree.n);
  bPiece = BX_TREE_KIND(&p->tree, iNode) == '"';
  text = bxTextValue(&p->tree, iNode, p->pErr);
  if (!bPiece || (pCall->arguments.z != 0 && pCall->arguments.n == 2 &&
                     memcmp(pCall->arguments.z, "{}", 2) == 0)) {
    bxTextSet(&pCall->arguments, text);
    return;
  }
  bxTextAppend(&pCall->arguments, text, p->pErr);
  bxTextFree(&text);
}

/* Other arguments are read when somebody asks for them. */
static void addArguments(Reader *p, Call *pCall, const Hit *pHit) {
  int iNode = fieldAt(p, pHit->iNode, pHit->pPlace->az[BX_PLACE_ARGUMENTS]);
  if (iNode < 0) return;
  if (pHit->pPlace->az[BX_PLACE_PART] != 0) {
    addPiece(p, pCall, iNode);
  } else {
    const BxNode *pNode = &p->tree.a[iNode];
    bxTextSet(
        &pCall->arguments, (Text){p->tree.z + pNode->iAt, pNode->nByte, 0, 0});
    pCall->bWritten = 1;
  }
}

static void addCall(Reader *p, const Hit *pHit) {
  char *const *az = pHit->pPlace->az;
  Text part = fieldText(p, pHit->iNode, az[BX_PLACE_PART]);
  Text id = fieldText(p, pHit->iNode, az[BX_PLACE_ID]);
  Call *pCall = 0;
  assert(pHit->pPlace->eKind == BX_KIND_CALL);
  if (az[BX_PLACE_PART] != 0) pCall = findPart(p, part, id);
  if (pCall == 0) pCall = newCall(p, 0);
  if (pCall == 0) {
    bxTextFree(&part);
    bxTextFree(&id);
    return;
  }
  bxTextSet(&pCall->part, part);
  if (pCall->id.z == 0 || pCall->id.n == 0) {
    bxTextSet(&pCall->id, id);
  } else {
    bxTextFree(&id);
  }
  if (pCall->tool.z == 0) {
    pCall->tool = fieldText(p, pHit->iNode, az[BX_PLACE_TOOL]);
  }
  addArguments(p, pCall, pHit);
}

/* A flag, or, in the form path=text, a text that says so. */
static int isFlagged(Reader *p, int iNode, const char *zPath) {
  const char *zIs = zPath != 0 ? strchr(zPath, '=') : 0;
  int iField = fieldAt(p, iNode, zPath);
  if (iField < 0) return 0;
  if (zIs == 0) return BX_TREE_KIND(&p->tree, iField) == 't';
  return bxTreeIs(&p->tree, iField, zIs + 1, (int)strlen(zIs + 1));
}

#define ERROR_BYTES 400 /* of a result, in which its text is looked at */

static int saysError(Reader *p, Text result) {
  char zHead[ERROR_BYTES + 1];
  size_t n = result.n < ERROR_BYTES ? (size_t)result.n : ERROR_BYTES;
  i64 i;
  assert(result.n >= 0);
  if (result.z == 0) return 0;
  memcpy(zHead, result.z, n);
  zHead[n] = 0;
  for (i = 0; i < p->pFormats->places.n; i++) {
    const BxPlace *pError = &p->pFormats->places.a[i];
    const char *zHas = pError->az[BX_PLACE_OTHER];
    if (pError->eKind != BX_KIND_ERROR) continue;
    if (zHas != 0 && strstr(zHead, zHas) == 0) continue;
    if (sqlite3_strglob(pError->az[BX_PLACE_AT], zHead) == 0) return 1;
  }
  return 0;
}

/* The tool of a result is that of its call. */
static void findTool(Reader *p, Call *pResult) {
  i64 i, nLook = 0;
  assert(pResult->bResult);
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
  char *const *az = pHit->pPlace->az;
  Call *pCall = newCall(p, 1);
  int iResult;
  assert(pHit->pPlace->eKind == BX_KIND_RESULT);
  if (pCall == 0) return;
  pCall->id = fieldText(p, pHit->iNode, az[BX_PLACE_ID]);
  pCall->tool = fieldText(p, pHit->iNode, az[BX_PLACE_TOOL]);
  if (pCall->tool.z == 0) findTool(p, pCall);
  iResult = fieldAt(p, pHit->iNode, az[BX_PLACE_RESULT]);
  if (iResult >= 0) {
    pCall->result = bxTextResult(&p->tree, iResult, p->pErr);
  }
  pCall->iError = isFlagged(p, pHit->iNode, az[BX_PLACE_ERROR]) ||
                  saysError(p, pCall->result);
}

/*-------------------------------------------------------- other values ----*/

/* The message of a user. One that also brings results begins no turn: it is the
** program that speaks. */
static void addUser(Reader *p, const Hit *pHit) {
  int nOther, iFirst;
  const Hit *pNear = pHit;
  if (bxTextCount(&p->tree, pHit->iNode, &iFirst, &nOther) == 0) return;
  if (p->pFormats->mKind >> BX_KIND_PROMPT & 1) {
    bxTextSet(&p->pOut->prompt,
        bxTextMessage(&p->tree, pHit->iNode, &nOther, p->pErr));
  }
  while (pNear > p->aHit && pNear[-1].iItem == pHit->iItem) pNear--;
  for (; pNear < p->aHit + p->nHit && pNear->iItem == pHit->iItem; pNear++) {
    if (pNear->pPlace->eKind == BX_KIND_RESULT) return;
  }
  p->pOut->nUser++;
  if (p->iItem < p->nSeen) return;
  p->pOut->nTurn++;
  if (!p->bReply) return;
  bxTextSet(
      &p->pOut->reply, bxTextMessage(&p->tree, pHit->iNode, &nOther, p->pErr));
  p->pOut->bRefused = saysError(p, p->pOut->reply);
}

static void addSaid(Reader *p, const Hit *pHit) {
  int nOther;
  Text text = bxTextMessage(&p->tree, pHit->iNode, &nOther, p->pErr);
  if (p->pOut->said.z == 0) {
    p->pOut->said = text;
    return;
  }
  bxTextAppend(&p->pOut->said, text, p->pErr);
  bxTextFree(&text);
}

/* Adds a name to the sorted list of tools: "fn:" and "tool:" before it. */
static void addTool(Reader *p, const Hit *pHit) {
  const char *zMark = pHit->pPlace->eKind == BX_KIND_OFFER ? "fn:" : "tool:";
  Text name = bxTextValue(&p->tree, pHit->iNode, p->pErr);
  Text mark = {zMark, (i64)strlen(zMark), 0, 0}, comma = {",", 1, 0, 0};
  if (p->pOut->tools.n > 0) bxTextAppend(&p->pOut->tools, comma, p->pErr);
  bxTextAppend(&p->pOut->tools, mark, p->pErr);
  bxTextAppend(&p->pOut->tools, name, p->pErr);
  bxTextFree(&name);
}

/*-------------------------------------------------------------- bodies ----*/

static void takeHit(Reader *p, const Hit *pHit) {
  assert(pHit->iNode >= 0 && pHit->iNode < p->tree.n);
  switch (pHit->pPlace->eKind) {
    case BX_KIND_CALL: addCall(p, pHit); break;
    case BX_KIND_RESULT: addResult(p, pHit); break;
    case BX_KIND_USER: addUser(p, pHit); break;
    case BX_KIND_ASSISTANT: addSaid(p, pHit); break;
    case BX_KIND_USAGE:
      bxTokensRead(
          &p->pOut->usage, pHit->pPlace, &p->tree, pHit->iNode, p->pErr);
      break;
    case BX_KIND_OFFER:
    case BX_KIND_CHOICE: addTool(p, pHit); break;
    case BX_KIND_MODEL:
      bxTextSet(&p->pOut->model, bxTextValue(&p->tree, pHit->iNode, p->pErr));
      break;
    default: break; /* fallbacks of the prompt */
  }
}

/* Goes on to the message that a node is in. */
static void reachItem(Reader *p, int iNode) {
  const BxNode *a = p->tree.a;
  assert(iNode >= 0 && iNode < p->tree.n);
  if (p->iList < 0) return;
  while (p->iElement < a[p->iList].iNext && a[p->iElement].iNext <= iNode) {
    p->iElement = a[p->iElement].iNext;
    p->iItem++;
  }
}

/* iItem: the number of the first message that the tree has. */
static void addHits(Reader *p, int iItem) {
  i64 i;
  assert(p->nHit <= p->nHitAlloc);
  p->iElement = p->iList + 1;
  p->iItem = iItem;
  for (i = 0; i < p->nHit && p->pErr->rc == SQLITE_OK; i++) {
    reachItem(p, p->aHit[i].iNode);
    if (p->aHit[i].iItem < p->iRecent &&
        (p->aHit[i].pPlace->eKind == BX_KIND_CALL ||
            p->aHit[i].pPlace->eKind == BX_KIND_RESULT)) {
      continue;
    }
    takeHit(p, &p->aHit[i]);
  }
}

/* No user said anything: the last message, or the prompt of a request without
** messages. */
static void fallBack(Reader *p) {
  BxKind eKind = BX_KIND_MESSAGE;
  i64 i;
  int nOther;
  if (!(p->pFormats->mKind >> BX_KIND_PROMPT & 1)) return;
  while (p->pOut->prompt.z == 0 && eKind <= BX_KIND_PROMPT) {
    for (i = p->nHit - 1; i >= 0 && p->pOut->prompt.z == 0; i--) {
      if (p->aHit[i].pPlace->eKind != eKind) continue;
      p->pOut->prompt =
          bxTextMessage(&p->tree, p->aHit[i].iNode, &nOther, p->pErr);
    }
    eKind = (BxKind)(eKind + 1);
  }
  if (p->iList < 0 && p->pOut->prompt.z != 0) {
    p->pOut->nTurn = p->pOut->nUser = 1;
  }
}

/* Whether the n bytes are one value with nothing after it. */
static int readWhole(Reader *p, const char *z, i64 n, BxSource eBody) {
  const Formats *pFormats = p->pFormats;
  const char *zEnd = bxTreeRead(
      &p->tree, z, n, &pFormats->ways, pFormats->aiRoot[eBody], p->pErr);
  assert(n >= 0 && eBody <= BX_SOURCE_STREAM);
  return zEnd != 0 && bxJsonSkipSpace(zEnd) == z + n;
}

#define KEY_BYTES 256 /* of the head, from the key of the messages on */

/* The tree of what follows the head, with which the request begins. Of the head only
** the first byte and the key of the messages are copied to zText. */
static int readOn(
    Reader *p, char *zText, const char *z, i64 n, const Head *pHead) {
  const Formats *pFormats = p->pFormats;
  i64 nKey = pHead->nByte - pHead->iKey;
  BxTreeRest rest = {0};
  assert(pHead->iKey > 0 && pHead->iKey < pHead->nByte && pHead->nByte <= n);
  if (*z != '{') return 0;
  if (nKey > KEY_BYTES) nKey = KEY_BYTES;
  *zText = *z;
  memcpy(zText + pHead->iKey, z + pHead->iKey, (size_t)nKey);
  zText[pHead->iKey + nKey] = 0;
  memcpy(zText + pHead->nByte, z + pHead->nByte, (size_t)(n - pHead->nByte));
  zText[n] = 0;
  rest.iKey = pHead->iKey;
  rest.iAt = pHead->nByte;
  rest.nByte = n;
  rest.nOld = p->nSeen > pHead->nItem ? p->nSeen - pHead->nItem : 0;
  if (bxTreeResume(&p->tree, zText, &rest, &pFormats->ways,
          pFormats->aiRoot[BX_SOURCE_REQUEST], p->pErr) == 0) {
    return 0;
  }
  p->nOld = rest.nOld;
  return 1;
}

/* The head of this request: all messages but the last. nBefore are not in the
** tree. */
static void moveHead(Reader *p, Head *pHead, i64 iAt, int nBefore) {
  const BxNode *a = p->tree.a;
  int i, nKeep, nItem = nBefore;
  assert(nBefore >= 0);
  if (p->iList < 0) return;
  for (i = p->iList + 1; i < a[p->iList].iNext; i = a[i].iNext) nItem++;
  p->pOut->nItem = nItem;
  nKeep = nItem - HEAD_BEFORE_END - nBefore;
  pHead->iAt = iAt;
  if (nKeep <= 0) {
    if (nBefore == 0) memset(pHead, 0, sizeof(*pHead));
    return;
  }
  for (i = p->iList + 1; --nKeep > 0; i = a[i].iNext) {
  }
  pHead->nByte = a[i].iAt + a[i].nByte;
  pHead->iKey = a[p->iList - 1].iAt;
  pHead->nItem = nItem - HEAD_BEFORE_END;
}

/* A hash of the first text of the messages and of the first one by a user: they are
** the same while a conversation goes on, and differ where agents share a prompt of
** the system. 0 if there is none. */
static i64 firstTexts(Reader *p) {
  sqlite3_uint64 h = 0;
  i64 i;
  int nOther, bUser = 0;
  for (i = 0; i < p->nHit && !bUser; i++) {
    BxKind eKind = p->aHit[i].pPlace->eKind;
    Text text;
    if (eKind != BX_KIND_USER && (eKind != BX_KIND_MESSAGE || h != 0)) continue;
    text = bxTextMessage(&p->tree, p->aHit[i].iNode, &nOther, p->pErr);
    if (text.z != 0) h = bxHashMix(h, bxHashOf(text.z, text.n));
    bUser = eKind == BX_KIND_USER && text.z != 0;
    bxTextFree(&text);
  }
  return (i64)h;
}

/* From which message on the calls and results count of a request that is read as a
** whole. */
static void findRecent(Reader *p, const Shared *pShared) {
  const BxNode *a = p->tree.a;
  i64 i = p->nHit;
  while (i > 0 && p->aHit[i - 1].pPlace->eKind != BX_KIND_CALL) i--;
  if (i > 0) p->iRecent = p->aHit[i - 1].iItem;
  if (p->iList >= 0 && p->pOut->hFirst == pShared->hFirst) {
    int iSeen = p->iList + 1, n = p->nSeen;
    while (n-- > 0 && iSeen < p->iRecent) iSeen = a[iSeen].iNext;
    if (iSeen < p->iRecent) p->iRecent = iSeen;
  }
}

/* zText has room for the n bytes and a terminator. */
static void readRequest(Reader *p, char *zText, const char *z, i64 n,
    const Shared *pShared, Head *pHead) {
  int nBefore = 0;
  assert(n >= 0);
  if (pHead != 0 && pHead->iKey > 0 && pHead->iKey < pHead->nByte &&
      pShared->iFrom == pHead->iAt && pHead->nByte <= pShared->n &&
      pHead->nByte <= n && readOn(p, zText, z, n, pHead)) {
    nBefore = pHead->nItem;
  } else {
    memcpy(zText, z, (size_t)n);
    zText[n] = 0;
    if (!readWhole(p, zText, n, BX_SOURCE_REQUEST)) return;
  }
  bxFormatsFind(p, BX_SOURCE_REQUEST, 0);
  if (pHead != 0 && nBefore == 0) {
    p->pOut->hFirst = firstTexts(p);
    findRecent(p, pShared);
  }
  addHits(p, nBefore);
  p->nOld = p->iRecent = 0;
  fallBack(p);
  if (pHead == 0) return;
  p->pOut->bResumed = nBefore > 0;
  moveHead(p, pHead, pShared->iAt, nBefore);
}

static void readEvent(Reader *p, int iRoot) {
  bxFormatsFind(p, BX_SOURCE_STREAM, iRoot);
  addHits(p, 0);
}

/* A stream: JSON on its lines, after "data:" or alone. */
static void readStream(Reader *p, const char *z, i64 n) {
  const char *zLast = z + n, *zEnd;
  assert(n >= 0);
  while (z < zLast && p->pErr->rc == SQLITE_OK) {
    const char *zLine = memchr(z, '\n', (size_t)(zLast - z));
    if (zLine == 0) zLine = zLast;
    if (zLine - z > 5 && memcmp(z, "data:", 5) == 0) z += 5;
    while (z < zLine && (*z == ' ' || *z == '\t')) z++;
    if (*z == '{') {
      zEnd = bxTreeRead(&p->tree, z, zLast - z, &p->pFormats->ways,
          p->pFormats->aiRoot[BX_SOURCE_STREAM], p->pErr);
      if (zEnd != 0 && zEnd <= zLine && bxJsonSkipSpace(zEnd) >= zLine) {
        readEvent(p, 0);
      }
    }
    z = zLine + 1;
  }
}

static void readResponse(Reader *p, const char *z, i64 n) {
  assert(n >= 0);
  p->iFirst = p->pOut->n;
  if (!readWhole(p, z, n, BX_SOURCE_RESPONSE)) {
    readStream(p, z, n);
  } else if (BX_TREE_KIND(&p->tree, 0) == '[') {
    int i, iEnd = p->tree.a[0].iNext;
    for (i = 1; i < iEnd; i = p->tree.a[i].iNext) readEvent(p, i);
  } else {
    bxFormatsFind(p, BX_SOURCE_RESPONSE, 0);
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
  az = bxZalloc((size_t)n * sizeof(*az), pErr);
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
  bxTextSet(pTools, bxTextTake(pStr, pErr));
}

typedef struct Reading {
  sqlite3_value *apBody[2];
  const Shared *pShared;
  Head *pHead; /* NULL to read all, into memory of the exchange */
} Reading;

/* The bytes of a body, without a terminator, and room for them with one; NULL for
** none. The type of the value does not change for whoever reads it next, and a long text
** is not copied only to end with 0. */
static const char *bodyOf(Exchange *pOut, Room *pRoom, const Reading *p, int i,
    i64 *pn, char **pzText, BxErr *pErr) {
  int eType =
      p->apBody[i] == 0 ? SQLITE_NULL : sqlite3_value_type(p->apBody[i]);
  const char *z;
  assert(i == 0 || i == 1);
  if ((eType != SQLITE_BLOB && eType != SQLITE_TEXT) || pErr->rc != SQLITE_OK) {
    return 0;
  }
  *pn = sqlite3_value_bytes(p->apBody[i]); /* first, as it makes it UTF-8 */
  z = sqlite3_value_blob(p->apBody[i]);
  if (*pn == 0 || bxCheckMem((void *)z, pErr) == 0) return 0;
  if (p->pHead == 0) {
    *pzText = pOut->azCopy[i] = bxZalloc((size_t)*pn + 1, pErr);
  } else if (*pn >= pRoom->anText[i]) {
    sqlite3_free(pRoom->azText[i]);
    pRoom->anText[i] = *pn + *pn / 4 + 256;
    *pzText = pRoom->azText[i] =
        bxCheckMem(sqlite3_malloc64((sqlite3_uint64)pRoom->anText[i]), pErr);
    if (*pzText == 0) pRoom->anText[i] = 0;
  } else {
    *pzText = pRoom->azText[i];
  }
  return *pzText == 0 ? 0 : z;
}

#define ROOM_MOST 100000    /* nodes and hits that are kept */
#define TEXT_MOST (4 << 20) /* bytes */

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
  static const BxTokens none = {-1, -1, -1, -1, -1, -1};
  Room *pRoom;
  Reader reader;
  const char *z;
  char *zText;
  i64 n;
  memset(pOut, 0, sizeof(*pOut));
  pOut->usage = none;
  if (pErr->rc != SQLITE_OK) return;
  pRoom = pFormats->pRoom;
  memset(&reader, 0, sizeof(reader));
  reader.pOut = pOut;
  reader.pFormats = pFormats;
  reader.pErr = pErr;
  if (pReading->pShared != 0) reader.nSeen = pReading->pShared->nItem;
  reader.bReply = pReading->pHead != 0;
  reader.tree = pRoom->tree;
  reader.aHit = pRoom->aHit;
  reader.nHitAlloc = pRoom->nHitAlloc;
  z = bodyOf(pOut, pRoom, pReading, 0, &n, &zText, pErr);
  if (z != 0) {
    readRequest(&reader, zText, z, n, pReading->pShared, pReading->pHead);
  }
  z = bodyOf(pOut, pRoom, pReading, 1, &n, &zText, pErr);
  if (z != 0) {
    memcpy(zText, z, (size_t)n);
    zText[n] = 0;
    readResponse(&reader, zText, n);
  }
  sortTools(&pOut->tools, pErr);
  keepRoom(pRoom, &reader);
}

void bxExchangeReadOn(Exchange *pOut, const Formats *pFormats,
    sqlite3_value *pRequest, sqlite3_value *pResponse, const Shared *pShared,
    Head *pHead, BxErr *pErr) {
  Reading reading = {{pRequest, pResponse}, pShared, pHead};
  Room *pRoom = pFormats->pRoom;
  int i;
  for (i = 0; i < 2; i++) { /* what a large body left behind */
    if (pRoom->anText[i] <= TEXT_MOST) continue;
    sqlite3_free(pRoom->azText[i]);
    pRoom->azText[i] = 0;
    pRoom->anText[i] = 0;
  }
  readBodies(pOut, pFormats, &reading, pErr);
}

void bxExchangeRead(Exchange *pOut, const Formats *pFormats,
    sqlite3_value *pRequest, sqlite3_value *pResponse, BxErr *pErr) {
  Reading reading = {{pRequest, pResponse}, 0, 0};
  i64 i;
  readBodies(pOut, pFormats, &reading, pErr);
  for (i = 0; i < pOut->n && pErr->rc == SQLITE_OK; i++) {
    bxCallArguments(&pOut->a[i], pErr);
  }
}

void bxExchangeFree(Exchange *p) {
  i64 i;
  assert(p->n <= p->nAlloc);
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
  sqlite3_free(p->reply.zOwn);
  sqlite3_free(p->model.zOwn);
  sqlite3_free(p->tools.zOwn);
  sqlite3_free(p->azCopy[0]);
  sqlite3_free(p->azCopy[1]);
  memset(p, 0, sizeof(*p));
}
