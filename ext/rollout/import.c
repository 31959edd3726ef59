/*
** import.c: rollout_import(text[, source[, time[, format]]]): the file of an agent
** into conversations.
**
** The formats are rows of rollout_formats. The format of a file is the argument,
** or the first one whose marks a line has. If there is none, the file is refused,
** unless the argument is 'unknown': then every line is kept whole. The policy does
** not apply, because the program that wrote the file has already applied its own.
**
** Nothing is lost: what stands between the payloads (the rest of the lines,
** lines that cannot be read) is kept beside the items, so that an export gives
** back the same bytes. A line that cannot be read is counted and reported.
**
** If the source is a UUID, the first conversation of the file gets it; if that
** exists, the lines continue it, so that a large file can be imported in pieces, or
** line by line. Otherwise the file names its conversations (import_session.c). If it
** does not, its path does, which is what any other source is (import_dir.c).
**
** Returns {"rolloutId", "rolloutIds", "format", "known", "lines", "items", "new",
** "bad", "errors": [{"line", "reason"}]}; errors has the first 100.
*/
#include "import.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define ENOUGH 60 /* bytes that tell a file from others */
#ifdef BX_DEBUG
#define MOST_ELEMENTS 1
#else
#define MOST_ELEMENTS 1000 /* of an array, if only what is around is wanted */
#endif
#define NOT_UTF8 "bytes that are not UTF-8; U+FFFD stands for each of them"

/*--------------------------------------------------------------- report ----*/

void bxImportReportBegin(ImportReport *p) {
  memset(p, 0, sizeof(*p));
  p->pBad = sqlite3_str_new(0);
  p->pIds = sqlite3_str_new(0);
}

void bxImportReportFree(ImportReport *p) {
  sqlite3_free(sqlite3_str_finish(p->pBad));
  sqlite3_free(sqlite3_str_finish(p->pIds));
  p->pBad = p->pIds = 0;
}

void bxImportReportReturn(ImportReport *p, const char *zFormat, BxCall *pCall) {
  char *zBad = bxStrFinish(p->pBad, &pCall->err);
  char *zIds = bxStrFinish(p->pIds, &pCall->err);
  assert(p->nId >= 0 && p->nNew <= p->nItem);
  if (pCall->err.rc == SQLITE_OK) {
    bxReturnJson(
        pCall, sqlite3_mprintf("{\"rolloutId\":%.38s,\"rolloutIds\":[%s],"
                               "\"format\":\"%w\",\"known\":%s,\"lines\":%lld,"
                               "\"items\":%lld,\"new\":%lld,\"bad\":%lld,"
                               "\"errors\":[%s]}",
                   zIds ? zIds : "null", zIds ? zIds : "",
                   zFormat ? zFormat : "unknown", zFormat ? "true" : "false",
                   p->nLine, p->nItem, p->nNew, p->nBad, zBad ? zBad : ""));
  }
  sqlite3_free(zBad);
  sqlite3_free(zIds);
}

const char *bxImportFormatName(const Import *p) {
  return p->pFormat != 0 ? p->pFormat->az[ROLLOUT_FORMAT_NAME] : "unknown";
}

/* Lists what is wrong with a line. */
static void listLine(Import *p, const char *zReason) {
  if (p->pReport->nListed++ >= IMPORT_LISTED) return;
  sqlite3_str_appendf(p->pReport->pBad, "%s{\"line\":%lld,\"reason\":\"%s\"}",
      p->pReport->nListed > 1 ? "," : "", p->pReport->nLine, zReason);
}

void bxImportBad(Import *p, const char *zReason, i64 nByte) {
  assert(nByte >= 0);
  if (p->pErr->rc != SQLITE_OK) return;
  if (p->pReport->nBad++ == 0) {
    p->pReport->iBad = p->pReport->nLine;
    p->pReport->zBad = zReason;
  }
  p->nPending++;
  p->nPendingByte += nByte;
  listLine(p, zReason);
}

const char *bxImportItems(const Import *p) {
  const char *z = p->pFormat != 0 ? p->pFormat->az[ROLLOUT_FORMAT_ITEMS] : 0;
  return z != 0 && *z == '$' ? z + 1 : 0;
}

/*---------------------------------------------------------------- frames ----*/

/* Divides what is between two payloads: the end of the line of the last item is
** kept with that item, the rest with the next one. */
RolloutSlice bxImportGap(Import *p, const char *zEnd, RolloutSlice *pAfter) {
  RolloutSlice before = {p->zGap, zEnd - p->zGap};
  const char *zLine;
  pAfter->z = p->zGap;
  pAfter->n = 0;
  if (!p->bLast) return before;
  if (p->bClosed) {
    *pAfter = p->closed;
    if (zEnd != p->zEnd) return before;
    *pAfter = bxImportJoin(p, p->closed, before);
    before.n = 0;
    return before;
  }
  zLine = memchr(p->zGap, '\n', (size_t)before.n);
  if (zLine != 0) pAfter->n = zLine + 1 - p->zGap;
  if (zEnd == p->zEnd) pAfter->n = before.n;
  before.z += pAfter->n;
  before.n -= pAfter->n;
  return before;
}

/* Stores what follows the last item. */
void bxImportEnd(Import *p, RolloutSlice after) {
  ImportSession *pPart = p->pPart;
  int bUsual = after.n == 2 && memcmp(after.z, "}\n", 2) == 0;
  assert(after.n >= 0);
  assert(!p->bLast || pPart != 0);
  if (!p->bLast || p->pErr->rc != SQLITE_OK) return;
  if (p->bLastNew) {
    RolloutItem *pItem = &pPart->work.aItem[pPart->work.nItem - 1];
    if (pItem->bQuiet || !bUsual) pItem->after = after;
  } else if (pPart->eMatch != PART_BAG &&
             (bUsual ? pPart->nAfter >= 0
                     : pPart->nAfter != after.n ||
                           memcmp(pPart->zAfter ? pPart->zAfter : "", after.z,
                               (size_t)after.n) != 0)) {
    /* the file has grown since, or its last line is whole now */
    if (bUsual) after.z = 0;
    pPart->work.iTail = pPart->iMatched;
    pPart->work.tail = after;
  }
}

/*----------------------------------------------------------------- items ----*/

/* Counts the damaged lines since the last item, if they are new. */
static void countBad(Import *p, ImportSession *pPart, int bNew) {
  if (bNew) {
    pPart->nBad += p->nPending;
    pPart->nBadByte += p->nPendingByte;
  }
  p->nPending = p->nPendingByte = 0;
}

/* Adds a new item, with what stands before it. A payload that was made is not in
** the file. A new conversation without a session_meta gets one, whose payload is made
** at the end, when more is known. */
static void addItem(Import *p, ImportSession *pPart, const RolloutLine *pLine,
    i64 iTime, RolloutSlice before) {
  static const RolloutSlice none = {"{}", 2}, empty = {"", 0};
  RolloutWork *pWork = &pPart->work;
  RolloutSlice payload = pLine->payload;
  char *zOwned = 0;
  RolloutItem *pItem;
  int bMeta =
      bxNameEquals(pLine->zType, (i64)strlen(pLine->zType), "session_meta") &&
      !pLine->bWhole && *payload.z == '{';
  assert(pLine->payload.n >= 0);
  if (pWork->head.no == 0 && !bMeta && pWork->nItem == 0) {
    pItem = bxRolloutAdd(pWork, iTime, "session_meta", none, 0, p->pErr);
    if (pItem == 0) return;
    pItem->before = pItem->after = empty;
    pItem->bQuiet = pPart->bMade = 1;
    pPart->iFirst = iTime;
  }
  if (pPart->bMade && bMeta && pPart->meta.z == 0) pPart->meta = payload;
  if (pLine->bMade && p->zMade == payload.z) {
    zOwned = p->zMade;
    p->zMade = 0;
  } else if (pLine->bMade) {
    zOwned = bxPrintf(p->pErr, "%.*s", (int)payload.n, payload.z);
    if (zOwned == 0) return;
    payload.z = zOwned;
  }
  p->nHeld++;
  if (zOwned != 0) p->nHeldByte += payload.n;
  if (p->pJson != 0 && (pWork->head.no > 0 || pWork->nItem > 0)) {
    bxRolloutDeriveWrite(&pWork->tale, pWork->head.iLast + 1 + pWork->nItem,
        iTime, pLine->zType, p->pJson);
  }
  pItem = bxRolloutAdd(pWork, iTime, pLine->zType, payload, zOwned, p->pErr);
  if (pItem == 0) return;
  pItem->bQuiet = pLine->bMade;
  if (!pLine->bUsual || before.n != pLine->nUsual) pItem->before = before;
  p->pReport->nNew++;
}

char *bxImportMade(Import *p, ImportSession *pPart, RolloutLine *pLine,
    char *zOwned, const char *zFrom) {
  pLine->bMade = 1;
  p->zMade = zOwned;
  bxImportItem(p, pPart, pLine, zFrom, zFrom);
  zOwned = p->zMade;
  p->zMade = 0;
  return zOwned;
}

/* Takes an item of the part to which it belongs. In the file it is, or its
** payload is, from zFrom to zEnd. */
void bxImportItem(Import *p, ImportSession *pPart, const RolloutLine *pLine,
    const char *zFrom, const char *zEnd) {
  int bValue = p->zDocument != 0 && !p->pFormat->bSpans, bNew;
  int bTimed = p->pFormat == 0 || p->pFormat->az[ROLLOUT_FORMAT_TIME] != 0;
  RolloutSlice before, after;
  i64 iTime = pLine->iTime;
  if (iTime < 0) iTime = pPart->iTime >= 0 ? pPart->iTime : p->iTime;
  if (!bTimed && p->iWritten > iTime) iTime = p->iWritten;
  assert(zFrom <= zEnd);
  assert(pLine->zType[0] != 0);
  if (pLine->payload.n > ROLLOUT_MAX_PAYLOAD) {
    bxImportBad(p, BX_IMPORT_TOO_LONG, pLine->payload.n);
    return;
  }
  before = bxImportGap(p, zFrom, &after);
  bxImportEnd(p, after);
  bxImportPartsFlush(p);
  if (!bValue || bxImportItems(p) != 0) bxImportPartResume(p, pPart);
  bNew = bValue && bxImportItems(p) == 0
             ? !bxImportValueHas(p, pPart, pLine, iTime)
             : !bxImportSessionHas(pPart, pLine, &iTime, p->pErr);
  countBad(p, pPart, bNew);
  if (bNew && p->pErr->rc == SQLITE_OK) {
    addItem(p, pPart, pLine, iTime, before);
  }
  if (bValue) bxImportValueItem(p, pPart, bNew, before);
  pPart->iTime = iTime;
  p->pPart = pPart;
  p->pReport->nItem++;
  if (bValue && pPart != p->apPart[0]) return;
  p->zGap = zEnd;
  if (bValue) return;
  p->bLast = 1;
  p->bClosed = 0;
  p->bLastNew = bNew;
}

/* Reads the item at p->json.iTop. A line that has a list of items may repeat
** those before: they are kept for the export, as what is between the others. */
static void readItem(Import *p) {
  int bListed = p->json.iTop != 0;
  RolloutLine line;
  char *zName = 0, *zAgent = 0;
  ImportSession *pPart = p->pNamed  ? p->pNamed
                         : p->pPart ? p->pPart
                                    : p->apPart[0];
  assert(p->nPart > 0 && p->json.iTop < p->json.tree.n);
  if (p->pFormat != 0 && !p->pFormat->bOnce &&
      bxRolloutNames(
          p->pRules, p->pFormat, &p->json, &zName, &zAgent, p->pErr)) {
    pPart = bxImportSession(p, zName, zAgent);
  }
  if (pPart == 0) return;
  bxRolloutReadLine(p->pHome, p->pFormat, &p->json, &line, p->pErr);
  p->pJson = &p->json;
  if (p->pErr->rc != SQLITE_OK) return;
  if (bxImportItems(p) != 0 && p->zDocument == 0 &&
      bxImportSessionSeen(pPart, line.payload, p->pErr) && bListed) {
    return;
  }
  if (p->zLineEnd != 0) { /* it is read from a copy of its line */
    line.bMade = 1;
    line.bUsual = 0;
    bxImportItem(p, pPart, &line, p->zLineEnd, p->zLineEnd);
    return;
  }
  bxImportItem(
      p, pPart, &line, line.payload.z, line.payload.z + line.payload.n);
}

static void noteName(Import *p) {
  assert(p->pFormat != 0);
  if (p->zName != 0) return;
  if (p->pFormat->bSpans) {
    bxImportSpanNames(p, &p->zName, &p->zAgent);
    return;
  }
  bxRolloutNames(
      p->pRules, p->pFormat, &p->json, &p->zName, &p->zAgent, p->pErr);
}

/* Notes an item of a list. */
static void noteItem(Import *p) {
  const BxNode *pNode = &p->json.tree.a[p->json.iTop];
  assert(p->json.iTop >= 0 && p->json.iTop < p->json.tree.n);
  if (p->first.z == 0) {
    p->first.z = p->json.tree.z + pNode->iAt;
    p->first.n = pNode->nByte;
  }
  noteName(p);
}

/* Reads the elements of the array at iArray, one after the other; noteItem() only while
** one may name the conversation. */
static i64 listItems(Import *p, int iArray) {
  RolloutJson whole = p->json;
  const char *z = whole.tree.z + whole.tree.a[iArray].iAt + 1;
  i64 nFound = 0;
  assert(z[-1] == '[' && p->zDocument != 0);
  memset(&p->json, 0, sizeof(p->json));
  z = bxJsonSkipSpace(z);
  while (*z != ']' && p->pErr->rc == SQLITE_OK &&
         (nFound == 0 || p->xItem != noteItem ||
             (p->zName == 0 &&
                 p->pFormat->az[ROLLOUT_FORMAT_CONVERSATION] != 0))) {
    z = bxTreeRead(&p->json.tree, z, p->zEnd - z, 0, 0, p->pErr);
    if (z == 0) break; /* not without an error, as it was read before */
    p->json.iTop = 0;
    p->xItem(p);
    nFound++;
    z = bxJsonSkipSpace(z);
    if (*z == ',') z = bxJsonSkipSpace(z + 1);
  }
  bxTreeFree(&p->json.tree);
  p->json = whole;
  return nFound;
}

/* Reads the items at one of the places. */
static i64 innerItems(Import *p, int iNode, const char *zPath) {
  const BxTree *pTree = &p->json.tree;
  char zOnly[200];
  size_t n = strcspn(zPath, "[|");
  i64 nFound = 0;
  int i, iArray;
  assert(iNode >= 0 && iNode < p->json.tree.n);
  if (*zPath == 0 || *zPath == '|') {
    p->json.iTop = iNode;
    p->xItem(p);
    return 1;
  }
  if (n + 2 > sizeof(zOnly)) return 0;
  zOnly[0] = '$';
  memcpy(zOnly + 1, zPath, n);
  zOnly[n + 1] = 0;
  p->json.iTop = iNode;
  iArray = bxRolloutPlace(&p->json, zOnly);
  if (iArray < 0 || BX_TREE_KIND(pTree, iArray) != '[') return 0;
  zPath += n + (zPath[n] == '[' ? 2 : 0);
  if (p->json.tree.nMost > 0) return listItems(p, iArray);
  for (i = iArray + 1; i < pTree->a[iArray].iNext; i = pTree->a[i].iNext) {
    if (iNode == 0) p->iOuter = i;
    p->iList = iArray;
    nFound += innerItems(p, i, zPath);
  }
  return nFound;
}

i64 bxImportInner(Import *p, int iNode, const char *zPaths) {
  i64 nFound = 0;
  const char *z;
  for (z = zPaths; z != 0; z = strchr(z, '|')) {
    if (*z == '|') z += 2; /* and the dollar */
    nFound += innerItems(p, iNode, z);
  }
  return nFound;
}

/*----------------------------------------------------------------- lines ----*/

/* A byte order mark at the beginning of a file is not part of its first line. Files
** that were joined, as an export may be, have one at the beginning of another line. */
const char *bxImportSkipMark(const char *z) {
  return strncmp(z, "\xef\xbb\xbf", 3) == 0 ? z + 3 : z;
}

const char *bxImportSkipBlank(const char *z, const char *zEnd) {
  while (z < zEnd && (*z == ' ' || *z == '\n' || *z == '\t' || *z == '\r')) z++;
  return z;
}

/* Whether the items of a file that is one value are elements of an array, each of which
** is read on its own: so the tree of all is not needed. */
static int isListed(const Import *p) {
  const char *z = p->pFormat ? bxImportItems(p) : "[]";
  if (z == 0 || (p->pFormat != 0 && p->pFormat->bSpans)) return 0;
  for (; (z = strstr(z, "[]")) != 0; z += 2) {
    if (z[2] != 0 && z[2] != '|') return 0;
  }
  return 1;
}

/* The value at z, which must end on its line. Returns its end, or NULL. */
const char *bxImportValue(Import *p, const char *z, const char *zEnd) {
  const char *zNext;
  assert(z <= zEnd);
  p->json.iTop = 0;
  p->json.tree.nMost =
      (p->zDocument != 0 || p->bScan) && isListed(p) ? MOST_ELEMENTS : 0;
  zNext = bxTreeRead(&p->json.tree, z, zEnd - z, 0, 0, p->pErr);
  return zNext != 0 && zNext <= zEnd ? zNext : 0;
}

int bxImportFirst(Import *p, const char *z, const char *zEnd) {
  z = bxImportSkipBlank(bxImportSkipMark(z), zEnd);
  return z < zEnd && bxIsUtf8((const unsigned char *)z, (int)(zEnd - z)) &&
         bxImportValue(p, z, zEnd) != 0;
}

/* Why a line cannot be read. */
const char *bxImportWhyBad(const Import *p, const char *z, const char *zEnd) {
  size_t n = (size_t)(zEnd - z);
  if (memchr(z, 0, n) != 0) return "it has a NUL; it is kept for the export";
  if (!bxIsUtf8((const unsigned char *)z, (int)n) && p->bStore) {
    return "not UTF-8; correct the row, and import again";
  }
  if (zEnd == p->zEnd) {
    return "not JSON, and maybe cut off: import the file again when it is "
           "complete";
  }
  return "not JSON; it is kept for the export";
}

/* Keeps a line of a file that has no format, as a JSON string. */
static void keepText(Import *p, const char *z, const char *zEnd) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  RolloutLine line;
  char *zJson;
  assert(z <= zEnd);
  memset(&line, 0, sizeof(line));
  bxJsonAppend(pOut, z, (int)(zEnd - z));
  line.payload.n = sqlite3_str_length(pOut);
  zJson = bxStrFinish(pOut, p->pErr);
  if (zJson == 0) return;
  line.payload.z = zJson;
  memcpy(line.zType, "text", 5);
  line.iTime = -1;
  line.bWhole = 1;
  p->pJson = 0;
  sqlite3_free(
      bxImportMade(p, p->pPart ? p->pPart : p->apPart[0], &line, zJson, zEnd));
}

/* The items that a value has, or the value itself. A value with a list of items
** may name the conversation of all of them. */
static void readValue(Import *p) {
  const char *zItems = bxImportItems(p);
  char *zName, *zAgent;
  p->json.iTop = 0;
  p->pNamed = 0;
  if (zItems != 0 && !p->pFormat->bOnce &&
      bxRolloutNames(
          p->pRules, p->pFormat, &p->json, &zName, &zAgent, p->pErr)) {
    p->pNamed = bxImportSession(p, zName, zAgent);
  }
  if (zItems == 0 || bxImportInner(p, 0, zItems) == 0) {
    p->json.iTop = 0;
    if (p->json.tree.nMost > 0) { /* the value is an item itself */
      p->json.tree.nMost = 0;
      bxTreeRead(&p->json.tree, p->json.tree.z, p->zEnd - p->json.tree.z, 0, 0,
          p->pErr);
    }
    if (p->pErr->rc == SQLITE_OK) p->xItem(p);
  }
}

static void readLine(Import *p, const char *z, const char *zEnd);

/* Reads a copy of a line that is not UTF-8, in which U+FFFD stands for each byte that
** cannot be read. Its own bytes are what stands before the next item. */
static void readLineCopy(Import *p, const char *z, const char *zEnd) {
  i64 n, nBad;
  char *zCopy = bxImportValid(z, zEnd - z, &n, p->pErr);
  if (zCopy == 0) return;
  nBad = p->pReport->nBad;
  p->zLineEnd = zEnd;
  readLine(p, zCopy, zCopy + n);
  p->zLineEnd = 0;
  if (p->pReport->nBad == nBad) listLine(p, NOT_UTF8);
  sqlite3_free(zCopy);
}

/* Finds the values of a line. A line that cannot be read, or its rest, is bad. If
** nothing is known of the file, the whole line is a text. */
static void readLine(Import *p, const char *z, const char *zEnd) {
  int bUtf8 = bxIsUtf8((const unsigned char *)z, (int)(zEnd - z));
  assert(z <= zEnd && (p->zLineEnd != 0 || zEnd <= p->zEnd));
  if (!bUtf8 && !p->bStore && !(p->pFormat && p->pFormat->bSpans)) {
    readLineCopy(p, z, zEnd);
    return;
  }
  z = bxImportSkipBlank(bxImportSkipMark(z), zEnd);
  if (bUtf8 && p->pFormat == 0 && memchr(z, 0, (size_t)(zEnd - z)) == 0) {
    const char *zAt = z;
    while (zAt != 0 && zAt < zEnd) {
      zAt = bxImportValue(p, zAt, zEnd);
      if (zAt != 0) zAt = bxImportSkipBlank(zAt, zEnd);
    }
    if (zAt == 0) {
      keepText(p, z, zEnd);
      return;
    }
  }
  for (; z < zEnd && p->pErr->rc == SQLITE_OK; z = bxImportSkipBlank(z, zEnd)) {
    const char *zNext = bUtf8 ? bxImportValue(p, z, zEnd) : 0;
    if (zNext == 0) {
      bxImportBad(p, bxImportWhyBad(p, z, zEnd), zEnd - z);
      return;
    }
    if (p->pFormat != 0 && p->pFormat->bSpans) {
      bxImportSpans(p, z, zNext, zEnd);
    } else {
      readValue(p);
    }
    z = zNext;
  }
}

const char *bxImportLineEnd(const Import *p, const char *z) {
  const char *zEnd;
  assert(z >= p->z && z <= p->zEnd);
  if (p->zDocument != 0 && z < p->zDocument) z = p->zDocument;
  zEnd = memchr(z, '\n', (size_t)(p->zEnd - z));
  return zEnd != 0 ? zEnd : p->zEnd;
}

static void readLines(Import *p) {
  const char *z = p->zGap;
  RolloutSlice after;
  assert(p->nPart > 0 && p->zGap <= p->zEnd);
  if (p->bProse) {
    bxImportText(p, bxImportSkipMark(z));
    z = p->zEnd;
  }
  while (z < p->zEnd && p->pErr->rc == SQLITE_OK) {
    const char *zEnd = bxImportLineEnd(p, z);
    p->pReport->nLine++;
    readLine(p, z, zEnd);
    z = zEnd + 1;
  }
  bxImportGap(p, p->zEnd, &after);
  bxImportEnd(p, after);
  if (p->bLast) countBad(p, p->pPart, p->bLastNew);
}

/*---------------------------------------------------------------- format ----*/

/* The first format whose mark the value of p->json fulfils. Those whose paths end as
** that of the file come before others. */
static const RolloutFormat *formatOf(Import *p) {
  const RolloutFormat *pFound = 0;
  i64 i;
  assert(p->json.tree.n > 0);
  for (i = 0; i < p->pRules->nFormat; i++) {
    const RolloutFormat *pFormat = &p->pRules->aFormat[i];
    int bPath =
        bxImportPath(pFormat->az[ROLLOUT_FORMAT_PATH], p->zPath, 0, p->pErr);
    if (!pFormat->bClosed && (bPath || (pFound == 0 && !pFormat->bPath)) &&
        bxRolloutFits(p->pRules, pFormat->mark, &p->json, p->pErr)) {
      pFound = pFormat;
      if (bPath || p->zPath == 0) break;
    }
  }
  return pFound;
}

/* Looks through the lines for the format, or for the first name. */
static void scan(Import *p) {
  const char *z = p->z;
  int bFormat = p->pFormat == 0;
  assert(p->z <= p->zEnd);
  while (z < p->zEnd && p->pErr->rc == SQLITE_OK &&
         (bFormat ? p->pFormat == 0 : p->zName == 0)) {
    const char *zEnd = bxImportLineEnd(p, z), *zItems;
    p->bScan = bFormat;
    if (bxImportFirst(p, z, zEnd)) {
      zItems = bFormat ? 0 : bxImportItems(p);
      if (bFormat) p->pFormat = formatOf(p);
      if (p->pFormat != 0 && !p->bTime) { /* the first time in the file */
        RolloutLine line;
        bxRolloutReadLine(p->pHome, p->pFormat, &p->json, &line, p->pErr);
        p->json.iTop = 0;
        p->bTime = line.iTime >= 0;
        if (p->bTime) p->iTime = line.iTime;
      }
      if (zItems != 0 && !p->pFormat->bSpans) noteName(p);
      if (!bFormat && (zItems == 0 || bxImportInner(p, 0, zItems) == 0)) {
        p->json.iTop = 0;
        noteName(p);
      }
    }
    z = zEnd + 1;
  }
  p->bScan = 0;
}

/* Finds out whether the file is one value: of a format with a list of items, or over
** several lines. If it is not UTF-8, a copy is read in which U+FFFD stands for each byte
** that cannot be read. */
static void findValue(Import *p) {
  const RolloutFormat *pFormat = p->pFormat;
  const char *z = bxJsonSkipSpace(bxImportSkipMark(p->z)), *zNext;
  i64 n = p->zEnd - z;
  if ((*z != '{' && *z != '[') || (pFormat != 0 && bxImportItems(p) == 0)) {
    return;
  }
  p->zDocument = z; /* as if it were, until it is known */
  zNext = bxImportValue(p, z, p->zEnd);
  p->zDocument = 0;
  if (zNext == 0 || bxJsonSkipSpace(zNext) < p->zEnd) return;
  if (pFormat == 0) p->pFormat = formatOf(p);
  if (p->pFormat == 0 || memchr(z, 0, (size_t)n) != 0 ||
      (bxImportItems(p) == 0 && memchr(z, '\n', (size_t)(zNext - z)) == 0)) {
    p->pFormat = pFormat;
    return;
  }
  if (!bxIsUtf8((const unsigned char *)z, (int)n)) {
    if (p->pFormat->bSpans) return;
    p->raw.z = p->z;
    p->raw.n = p->zEnd - p->z;
    p->zValid = bxImportValid(z, n, &n, p->pErr);
    if (p->zValid == 0) return;
    p->z = p->zGap = p->zValid;
    p->zEnd = p->z + n;
    p->zDocument = p->z;
    zNext = bxImportValue(p, p->z, p->zEnd);
    p->zDocument = 0;
    if (zNext == 0) return;
    listLine(p, NOT_UTF8);
  }
  p->zDocument = zNext;
}

/* The format that is given or that a conversation has, or the one that the file
** shows. */
static void findFormat(Import *p, const char *zGiven, const char *zId) {
  static const char zHas[] = "SELECT a.format FROM main.rollout__heads AS h "
                             "JOIN main.rollout__about AS "
                             "a ON a.no = h.no WHERE h.id = ?1";
  int bUnknown = zGiven != 0 && strcmp(zGiven, "unknown") == 0;
  RolloutSlice begin = {p->z, p->zEnd - p->z};
  const char *zFormat;
  char *zClosed;
  char *zHad =
      zGiven == 0 && *zId ? bxQueryText(p->pHome, zHas, p->pErr, "t", zId) : 0;
  if (zGiven != 0 || zHad != 0) {
    p->pFormat = bxRolloutFormatNamed(p->pRules, zGiven ? zGiven : zHad);
  }
  p->bAsked = bUnknown || zHad != 0;
  sqlite3_free(zHad);
  if (zGiven != 0 && p->pFormat == 0 && !bUnknown) {
    bxFail(p->pErr, SQLITE_CONSTRAINT,
        "ValidationError: there is no format %Q; SELECT format FROM "
        "rollout_formats lists them, or omit it to find the format by the "
        "content",
        zGiven);
  }
  if (p->pErr->rc != SQLITE_OK || p->zTail != 0) return;
  findValue(p);
  if (p->pFormat == 0)
    p->pFormat = bxImportTextFormat(p, bxImportSkipMark(p->z));
  p->bProse = bxImportIsText(p);
  if (p->pFormat == 0) scan(p);
  if (p->pFormat != 0 && p->pFormat->bChanges) bxImportChanges(p);
  if (p->pFormat == 0 && !p->bAsked && bxJsonSkipSpace(p->z) < p->zEnd) {
    zClosed = bxImportClosed(p->pRules, p->zPath, &begin, &zFormat, p->pErr);
    if (zClosed != 0) {
      bxFail(p->pErr, SQLITE_CONSTRAINT,
          "ValidationError: Invalid rollout file: %s", zClosed);
    }
    sqlite3_free(zClosed);
    bxImportUnknown(p->pRules, p->pErr);
  }
}

/* The first part of what follows a text is named as the conversation is. */
static void nameTail(Import *p, ImportSession *pPart) {
  static const char zNames[] =
      "SELECT coalesce(iif(a.forked_from IS NULL, a.source_id, NULL), h.id), "
      "a.agent, (SELECT max(d.timestamp) "
      "FROM main.rollout__items AS d WHERE d.id = (h.no << 32) + "
      "h.last_sequence) FROM main.rollout__heads AS h LEFT JOIN "
      "main.rollout__about AS a ON a.no = h.no WHERE h.id = ?1";
  sqlite3_stmt *pRow = bxStmt(p->pHome, zNames, p->pErr);
  bxBind(pRow, p->pErr, "t", p->zTail);
  if (bxStep(pRow, p->pErr)) {
    char *zName = bxColumnCopy(pRow, 0, p->pErr);
    char *zAgent = sqlite3_column_type(pRow, 1) == SQLITE_NULL
                       ? 0
                       : bxColumnCopy(pRow, 1, p->pErr);
    pPart->iTime = sqlite3_column_int64(pRow, 2);
    bxImportSession(p, zName, zAgent);
  }
  bxReset(pRow, p->pErr);
}

/* The first part: its id is given, or named in the file or by its path, or made from what
** tells the file from others and stays as it is when it grows: its first item, or line. A
** line may be short, and the same in many files. */
static void firstPart(Import *p, const char *zId) {
  ImportSession *pPart = bxImportPartAdd(p, 0, 0);
  i64 iTime = -1;
  if (pPart == 0) return;
  p->xItem = noteItem;
  if (!*zId && p->pFormat != 0 && !p->bProse) scan(p);
  if (!*zId) bxImportReadPath(p);
  if (p->pErr->rc != SQLITE_OK) return;
  if (*zId) {
    memcpy(pPart->work.zId, zId, 37);
    pPart->bPiece = p->zDocument == 0;
    if (p->zTail != 0) {
      nameTail(p, pPart);
      iTime = pPart->iTime;
    }
  } else if (p->zName != 0) {
    char *zAgent = p->zAgent ? bxPrintf(p->pErr, "%s", p->zAgent) : 0;
    bxImportSession(p, bxPrintf(p->pErr, "%s", p->zName), zAgent);
    bxImportPartId(p, p->zName, p->zAgent, pPart->work.zId);
  } else {
    const char *z = bxJsonSkipSpace(bxImportSkipMark(p->z));
    RolloutSlice text = {z, bxImportLineEnd(p, z) - z};
    char *zText;
    while (text.n < ENOUGH && z + text.n < p->zEnd) {
      text.n = bxImportLineEnd(p, z + text.n + 1) - z;
    }
    if (p->zDocument != 0 && p->first.z != 0) text = p->first;
    zText = bxPrintf(p->pErr, "%.*s", (int)text.n, text.z);
    if (zText != 0)
      bxImportSessionUuid(bxImportFormatName(p), zText, 0, pPart->work.zId);
    sqlite3_free(zText);
  }
  bxImportPartOpen(p, pPart);
  pPart->iTime = iTime;
}

/* Takes what rollout.secrets makes of the text, to sqlite3_free(). */
static char *maskLines(Import *p) {
  i64 n = p->zEnd - p->z;
  char *z = bxRolloutMask(p->pHome, &p->z, &n, p->pErr);
  p->zEnd = p->z + n;
  p->zGap = p->z;
  return z;
}

/* Reads the lines, of a format that is known by now, and writes their items. */
static void importLines(Import *p, const char *zId) {
  i64 i;
  if (p->pErr->rc == SQLITE_OK && p->pFormat != 0 && p->pFormat->bSpans) {
    bxImportTraces(p);
  }
  if (p->pErr->rc == SQLITE_OK) firstPart(p, zId);
  p->xItem = readItem;
  if (p->pErr->rc == SQLITE_OK) readLines(p);
  bxTreeFree(&p->json.tree);
  bxTreeFree(&p->made.tree);
  if (p->pErr->rc == SQLITE_OK) bxImportPartsPut(p);
  if (p->zPath != 0) bxImportNoteSource(p);
  for (i = 0; i < p->nPart; i++) {
    bxImportSessionClose(p->apPart[i]);
    sqlite3_free(p->apPart[i]);
  }
  for (i = 0; i < BX_PATH_NAMES; i++) sqlite3_free(p->azPath[i]);
  sqlite3_free(p->apPart);
  sqlite3_free(p->names.a);
  sqlite3_free(p->zName);
  sqlite3_free(p->zAgent);
  sqlite3_free(sqlite3_str_finish(p->pFrame));
  sqlite3_free(p->zFrame);
  sqlite3_free(p->zValid);
  bxTreeFree(&p->json.tree);
  bxImportSpansFree(p);
}

void bxImportRead(Import *p, const char *zFormat, const char *zId) {
  char *zMasked = maskLines(p);
  assert(p->z <= p->zEnd && (p->zTail == 0 || zFormat != 0));
  if (p->z == p->zEnd) {
    bxFail(p->pErr, SQLITE_CONSTRAINT,
        "ValidationError: Invalid rollout file: the lines must be text (or a "
        "blob, as from readfile()) that is not empty");
  }
  if (p->pErr->rc == SQLITE_OK) findFormat(p, zFormat, zId);
  if (p->zPath != 0 && p->pFormat != 0) bxImportForgetUnknown(p);
  importLines(p, zId);
  bxRolloutMaskEnd(p->pHome, zMasked);
}

void bxRolloutImportMade(BxStmts *pHome, const RolloutFormat *pFormat,
    const char *z, i64 n, i64 iNow, ImportReport *pReport, BxErr *pErr) {
  Import import, *p = &import;
  char *zMasked;
  assert(n >= 0 && z[n] == 0 && pFormat != 0);
  memset(p, 0, sizeof(*p));
  p->pErr = pErr;
  p->pHome = pHome;
  p->pRules = bxRolloutRules(pHome, 1, pErr);
  p->pFormat = pFormat;
  p->pReport = pReport;
  p->z = z;
  p->zEnd = z + n;
  p->bStore = 1;
  p->iNow = p->iTime = iNow;
  zMasked = maskLines(p);
  importLines(p, "");
  bxRolloutMaskEnd(p->pHome, zMasked);
}

void bxRolloutImport(BxCall *pCall) {
  Import import, *p = &import;
  int eType = sqlite3_value_type(pCall->aArg[0]);
  const char *zSource = 0, *zFormat;
  ImportReport report;
  char zId[37] = "";
  RolloutHead head;
  memset(p, 0, sizeof(*p));
  p->pErr = &pCall->err;
  p->pReport = &report;
  if (bxArg(pCall, 1)) {
    zSource = bxText(pCall->aArg[1], "id, or path,", 4096, 0, p->pErr);
    if (zSource != 0 && !bxRolloutUuid(zSource, (int)strlen(zSource), zId)) {
      p->zPath = zSource;
      zId[0] = 0;
    } else {
      bxRolloutId(pCall->aArg[1], zId, p->pErr);
    }
  }
  p->iNow = p->iTime = p->iWritten = bxTime(bxArg(pCall, 2), "time", p->pErr);
  zFormat = bxText(bxArg(pCall, 3), "format", 1000, 1, p->pErr);
  if (p->pErr->rc == SQLITE_OK &&
      (eType == SQLITE_BLOB || eType == SQLITE_TEXT)) {
    p->z = (const char *)sqlite3_value_text(pCall->aArg[0]);
    if (p->z == 0) bxFail(p->pErr, SQLITE_NOMEM, "out of memory");
  }
  p->nSize = p->z != 0 ? sqlite3_value_bytes(pCall->aArg[0]) : 0;
  p->zEnd = p->z + p->nSize;
  p->pHome = bxRolloutSchema(pCall->bx, p->pErr);
  if (p->pErr->rc != SQLITE_OK) return;
  bxRolloutFind(p->pHome, 1, zId, &head, p->pErr); /* takes the write lock */
  p->pRules = bxRolloutRules(p->pHome, 1, p->pErr);
  bxImportReportBegin(&report);
  bxImportRead(p, zFormat, zId);
  bxImportKnownFree(&p->known);
  bxFileLimitTend(p->pHome, report.nNew, pCall->pCtx == 0, p->pErr);
  bxRolloutExplain(p->pErr, "WriteError: Write failed: ");
  bxImportReportReturn(
      &report, p->pFormat ? p->pFormat->az[ROLLOUT_FORMAT_NAME] : 0, pCall);
}
