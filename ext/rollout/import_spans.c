/*
** import_spans.c: lines with the spans, or the log records, of OpenTelemetry, as items.
**
** A span belongs to the conversation that it names, or that the first span of
** its trace names, or else to one that has the name of the trace. So the traces
** of a file are looked through first.
**
** A line may have spans of several conversations. Each conversation then gets
** a line of its own, which is the line without the spans of the others, so that
** its export is a file of the same format, and a conversation that is deleted
** leaves nothing in another one.
**
** A call may tell its history as log records, one for each message, and every call
** tells all of it again. The record of the last message of a call gets "newest" in
** its payload, so that a user's message begins a turn only once.
*/
#include "import.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#ifdef BX_DEBUG
#define MOST_SPAN_BYTES 300 /* so that tests of small files pass here */
#else
#define MOST_SPAN_BYTES 250000 /* of the items of a line that are kept */
#endif

/*--------------------------------------------------------------- traces ----*/

/* Makes the payload of a span, and reads it. Returns 0 if that is impossible. */
static int readMade(Import *p, const char *zItem) {
  p->made.iTop = 0;
  return zItem != 0 && bxTreeRead(&p->made.tree, zItem, (i64)strlen(zItem), 0,
                           0, p->pErr) != 0;
}

static char *makeItem(Import *p) {
  int iResource = -1;
  assert(p->pFormat != 0);
  if (p->iOuter > 0) {
    iResource = bxTreeMember(&p->json.tree, p->iOuter, "resource", 8);
  }
  return bxRolloutSpan(
      p->pRules, p->pFormat, &p->json.tree, p->json.iTop, iResource, p->pErr);
}

static sqlite3_uint64 hashTrace(const char *z) {
  return bxHashOf(z, (i64)strlen(z));
}

static void keepPiece(Import *p, char *zOwned) {
  char **pz = zOwned == 0 ? 0
                          : bxArrayAdd(&p->azPiece, &p->nPiece, &p->nPieceAlloc,
                                sizeof(*pz), p->pErr);
  if (pz == 0) {
    sqlite3_free(zOwned);
  } else {
    *pz = zOwned;
  }
}

/* Where the item is in the file, from 1 on. */
static i64 itemAt(const Import *p) {
  assert(p->json.iTop >= 0 && p->json.iTop < p->json.tree.n);
  return p->json.tree.z + p->json.tree.a[p->json.iTop].iAt + 1 - p->z;
}

/* The names of the span in p->made: its own, or those of its trace. */
static int namesOf(Import *p, char **pzName, char **pzAgent) {
  char *zTrace;
  const i64 *pi;
  if (bxRolloutNames(
          p->pRules, p->pFormat, &p->made, pzName, pzAgent, p->pErr)) {
    return 1;
  }
  zTrace = bxRolloutNameAt(p->pFormat, ROLLOUT_FORMAT_TRACE, &p->made, p->pErr);
  if (zTrace == 0) return 0;
  pi = bxMapAt(&p->traces, hashTrace(zTrace), p->pErr);
  if (pi != 0 && *pi > 0) {
    sqlite3_free(zTrace);
    zTrace = bxPrintf(p->pErr, "%s", p->azPiece[*pi - 1]);
  }
  *pzName = zTrace;
  return p->pErr->rc == SQLITE_OK;
}

int bxImportSpanNames(Import *p, char **pzName, char **pzAgent) {
  char *zItem = makeItem(p);
  int bFound = readMade(p, zItem) && namesOf(p, pzName, pzAgent);
  sqlite3_free(zItem);
  return bFound;
}

/* Whether the item in p->made is a message of a call, whose hash it then has: the
** one of its trace and span. */
static int isMessage(Import *p, sqlite3_uint64 *pHash) {
  char *zTrace, *zSpan;
  int bFound = p->pFormat->newest.n > 0 &&
               bxRolloutFits(p->pRules, p->pFormat->newest, &p->made, p->pErr);
  assert(p->pFormat != 0 && p->made.tree.n > 0);
  if (!bFound) return 0;
  zTrace = bxRolloutNameAt(p->pFormat, ROLLOUT_FORMAT_TRACE, &p->made, p->pErr);
  zSpan =
      bxRolloutNameAt(p->pFormat, ROLLOUT_FORMAT_ITEM_ID, &p->made, p->pErr);
  *pHash = 0;
  if (zTrace != 0 && zSpan != 0) {
    *pHash = bxHashMix(hashTrace(zTrace), hashTrace(zSpan)) | 1;
  }
  sqlite3_free(zTrace);
  sqlite3_free(zSpan);
  return p->pErr->rc == SQLITE_OK;
}

/* Notes the conversation that a span names for its trace, and a message. */
static void noteTrace(Import *p) {
  char *zItem = makeItem(p), *zName = 0, *zAgent = 0, *zTrace = 0;
  sqlite3_uint64 h;
  i64 *pi;
  int bRead = readMade(p, zItem);
  if (bRead && isMessage(p, &h) && h != 0) {
    pi = bxMapAt(&p->calls, h, p->pErr); /* the last one counts */
    if (pi != 0) *pi = itemAt(p);
  }
  if (bRead && bxRolloutNames(
                   p->pRules, p->pFormat, &p->made, &zName, &zAgent, p->pErr)) {
    zTrace =
        bxRolloutNameAt(p->pFormat, ROLLOUT_FORMAT_TRACE, &p->made, p->pErr);
  }
  pi = zTrace ? bxMapAt(&p->traces, hashTrace(zTrace), p->pErr) : 0;
  if (pi != 0 && *pi == 0) { /* the first one counts */
    keepPiece(p, zName);
    zName = 0;
    *pi = p->pErr->rc == SQLITE_OK ? p->nPiece : 0;
  }
  sqlite3_free(zItem);
  sqlite3_free(zName);
  sqlite3_free(zAgent);
  sqlite3_free(zTrace);
}

/* Marks the payload, which was read, if it is the newest message of its call. */
static char *markNewest(Import *p, char *zOwned) {
  const i64 *pi = 0;
  sqlite3_uint64 h;
  char *z;
  assert(zOwned != 0);
  if (!isMessage(p, &h)) return zOwned;
  if (h != 0) pi = bxMapAt(&p->calls, h, p->pErr);
  if (pi != 0 && *pi > 0 && *pi != itemAt(p)) return zOwned;
  z = bxPrintf(
      p->pErr, "%.*s,\"newest\":true}", (int)strlen(zOwned) - 1, zOwned);
  sqlite3_free(zOwned);
  readMade(p, z);
  return z;
}

void bxImportTraces(Import *p) {
  const char *zItems = bxImportItems(p);
  const char *z = p->z;
  p->xItem = noteTrace;
  while (z < p->zEnd && p->pErr->rc == SQLITE_OK) {
    const char *zEnd = bxImportLineEnd(p, z);
    if (zItems != 0 && bxImportFirst(p, z, zEnd)) {
      bxImportInner(p, 0, zItems);
    }
    z = zEnd + 1;
  }
}

/*---------------------------------------------------------------- pieces ----*/

RolloutSlice bxImportJoin(Import *p, RolloutSlice a, RolloutSlice b) {
  size_t n = (size_t)(a.n + b.n);
  char *z;
  assert(a.n >= 0 && b.n >= 0);
  if (b.n == 0) return a;
  z = bxCheckMem(sqlite3_malloc64(n + 1), p->pErr);
  if (z == 0) return a;
  if (a.n > 0) memcpy(z, a.z, (size_t)a.n);
  memcpy(z + a.n, b.z, (size_t)b.n);
  z[n] = 0;
  keepPiece(p, z);
  a.z = z;
  a.n = (i64)n;
  return p->pErr->rc == SQLITE_OK ? a : b;
}

void bxImportSpansFree(Import *p) {
  i64 i;
  for (i = 0; i < p->nSpan; i++) sqlite3_free(p->aSpan[i].zItem);
  for (i = 0; i < p->nPiece; i++) sqlite3_free(p->azPiece[i]);
  sqlite3_free(p->aSpan);
  sqlite3_free(p->traces.a);
  sqlite3_free(p->calls.a);
  sqlite3_free(p->azPiece);
  bxTreeFree(&p->made.tree);
}

/* Takes a span of the text at z as an item. */
static void giveSpan(Import *p, ImportSpan *pSpan, const char *z) {
  RolloutLine line;
  if (p->pErr->rc != SQLITE_OK || !pSpan->bItem) return;
  if (pSpan->zItem != 0) {
    readMade(p, pSpan->zItem);
  } else {
    p->json.iTop = pSpan->iNode;
    p->iOuter = pSpan->iOuter;
    pSpan->zItem = makeItem(p);
    if (readMade(p, pSpan->zItem)) pSpan->zItem = markNewest(p, pSpan->zItem);
  }
  if (p->pErr->rc != SQLITE_OK) return;
  bxRolloutReadLine(p->pHome, p->pFormat, &p->made, &line, p->pErr);
  p->pJson = &p->made;
  if (p->pErr->rc != SQLITE_OK) return;
  pSpan->zItem =
      bxImportMade(p, pSpan->pPart, &line, pSpan->zItem, z + pSpan->iEnd);
}

/* Appends the value without the spans of other parts, and notes where the spans
** of this part end. */
static void appendPiece(Import *p, const ImportSession *pPart,
    RolloutSlice value, sqlite3_str *pOut) {
  const BxTree *pTree = &p->json.tree;
  const char *zFrom = value.z;
  i64 i;
  int bAny = 0;
  assert(p->nSpan > 0);
  for (i = 0; i < p->nSpan; i++) {
    ImportSpan *pSpan = &p->aSpan[i];
    const char *z = pTree->z + pTree->a[pSpan->iNode].iAt;
    int bNext = i > 0 && pSpan[-1].iList == pSpan->iList;
    if (!bNext) { /* up to the first span of a list */
      sqlite3_str_append(pOut, zFrom, (int)(z - zFrom));
      bAny = 0;
    }
    if (pSpan->pPart == pPart) {
      if (bAny) sqlite3_str_append(pOut, zFrom, (int)(z - zFrom));
      sqlite3_str_append(pOut, z, pTree->a[pSpan->iNode].nByte);
      pSpan->iEnd = sqlite3_str_length(pOut);
      bAny = 1;
    }
    zFrom = z + pTree->a[pSpan->iNode].nByte;
  }
  sqlite3_str_append(pOut, zFrom, (int)(value.z + value.n - zFrom));
}

/* Reads the spans of a part as those of a line of its own, which ends with what
** follows the value. */
static void readPiece(
    Import *p, ImportSession *pPart, RolloutSlice value, RolloutSlice rest) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  RolloutSlice after, before = bxImportGap(p, value.z, &after);
  const char *zLast;
  char *z;
  i64 i, n;
  assert(value.n >= 0 && rest.n >= 0);
  bxImportEnd(p, after);
  sqlite3_str_append(pOut, before.z, (int)before.n);
  appendPiece(p, pPart, value, pOut);
  sqlite3_str_append(pOut, rest.z, (int)rest.n);
  n = sqlite3_str_length(pOut);
  z = bxStrFinish(pOut, p->pErr);
  keepPiece(p, z);
  if (p->pErr->rc != SQLITE_OK) return;
  p->bLast = p->bClosed = 0;
  p->zGap = z;
  for (i = 0; i < p->nSpan; i++) {
    if (p->aSpan[i].pPart != pPart) continue;
    giveSpan(p, &p->aSpan[i], z);
    sqlite3_free(p->aSpan[i].zItem);
    p->aSpan[i].zItem = 0;
  }
  zLast = p->zGap;
  p->closed.z = zLast;
  p->closed.n = z + n - zLast;
  p->bClosed = 1;
  p->zGap = value.z; /* nothing is before the next piece */
}

/* Reads the spans of each part. What follows the value on its line is repeated, if that
** is only white space. */
static void readPieces(Import *p, RolloutSlice value, const char *zEnd) {
  static const RolloutSlice newline = {"\n", 1};
  const char *zNext = value.z + value.n;
  RolloutSlice rest = {zNext, zEnd - zNext + (zEnd < p->zEnd)};
  int bBlank = bxJsonSkipSpace(zNext) >= zEnd;
  i64 i, j;
  assert(value.z + value.n <= zEnd);
  for (i = 0; i < p->nSpan; i++) {
    for (j = 0; j < i && p->aSpan[j].pPart != p->aSpan[i].pPart;) j++;
    if (j == i) readPiece(p, p->aSpan[i].pPart, value, bBlank ? rest : newline);
  }
  p->zGap = bBlank ? rest.z + rest.n : zNext;
}

/*----------------------------------------------------------------- lines ----*/

/* Notes a span of the line, and the part to which it belongs. One that can be no item
** has none. */
static void noteSpan(Import *p) {
  ImportSpan *a =
      bxArrayAdd(&p->aSpan, &p->nSpan, &p->nSpanAlloc, sizeof(*a), p->pErr);
  char *zItem = makeItem(p), *zName = 0, *zAgent = 0;
  const char *zWrong = 0;
  if (a == 0 || zItem == 0) {
    sqlite3_free(zItem);
    return;
  }
  a->iNode = p->json.iTop;
  a->iList = p->iList;
  if (strlen(zItem) > ROLLOUT_MAX_PAYLOAD) {
    zWrong = BX_IMPORT_TOO_LONG;
  } else if (!readMade(p, zItem)) {
    zWrong = "a span that is nested too deeply; it is kept for the export";
  }
  if (zWrong != 0) {
    sqlite3_free(zItem);
    bxImportBad(p, zWrong, p->json.tree.a[a->iNode].nByte);
    return;
  }
  a->pPart = p->pPart != 0 ? p->pPart : p->apPart[0];
  a->bItem = 1;
  a->iOuter = p->iOuter;
  a->zItem = markNewest(p, zItem);
  if (a->zItem != 0 && namesOf(p, &zName, &zAgent)) {
    ImportSession *pPart = bxImportSession(p, zName, zAgent);
    if (pPart != 0) a->pPart = pPart;
  }
  p->nSpanByte += a->zItem ? (i64)strlen(a->zItem) : 0;
  if (p->nSpanByte > MOST_SPAN_BYTES) { /* it is made again when it is taken */
    sqlite3_free(a->zItem);
    a->zItem = 0;
  }
}

void bxImportSpans(
    Import *p, const char *z, const char *zNext, const char *zEnd) {
  const BxTree *pTree = &p->json.tree;
  const char *zItems = bxImportItems(p);
  RolloutSlice value = {z, zNext - z};
  ImportSession *pPart = 0;
  int bSeveral = 0;
  i64 i;
  assert(z <= zNext && zNext <= zEnd);
  /* what is between the last item and the value belongs to that item, if both are on
  ** one line */
  if (p->bLast && !p->bClosed &&
      memchr(p->zGap, '\n', (size_t)(z - p->zGap)) == 0) {
    p->closed.z = p->zGap;
    p->closed.n = z - p->zGap;
    p->bClosed = 1;
    p->zGap = z;
  }
  p->xItem = noteSpan;
  p->json.iTop = 0;
  if (zItems != 0) bxImportInner(p, 0, zItems);
  /* spans that can be no items stay with those before them, or else with the first one
  ** that can, so that an export has them */
  for (i = 0; i < p->nSpan && pPart == 0; i++) pPart = p->aSpan[i].pPart;
  for (i = 0; i < p->nSpan; i++) {
    const BxNode *pNode = &pTree->a[p->aSpan[i].iNode];
    if (!p->aSpan[i].bItem) p->aSpan[i].pPart = pPart;
    pPart = p->aSpan[i].pPart;
    p->aSpan[i].iEnd = pTree->z + pNode->iAt + pNode->nByte - z;
    if (p->aSpan[i].pPart != p->aSpan[0].pPart) bSeveral = 1;
  }
  if (p->pErr->rc == SQLITE_OK && bSeveral) readPieces(p, value, zEnd);
  for (i = 0; i < p->nSpan; i++) {
    if (!bSeveral) giveSpan(p, &p->aSpan[i], z);
    sqlite3_free(p->aSpan[i].zItem);
    p->aSpan[i].zItem = 0;
  }
  p->nSpan = p->nSpanByte = 0;
}
