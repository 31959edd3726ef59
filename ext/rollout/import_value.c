/*
** import_value.c: files that are one JSON value, with a list of items or over several
** lines.
**
** A program writes such a file anew each time, and may complete what it has written
** before. So the newest file counts as a whole: what stands around its items, the frame,
** is kept with one of them, and the other items print nothing in an export. An item that
** the newest file has in another form stays as it was, and is printed no more.
**
** A frame is a JSON array of texts and of the sequences of items. [5, 3, ","] are three
** items from 5 on, with a comma between them. A conversation that was forked shares
** the frame; a file that was imported into it has one of its own, in an item of its own,
** or in its session_meta.
**
** quiet of the item with the frame   2: the file has a list of items
**                                    3: the file is this item; a conversation may have
**                                       several such files
**                                    4, 5: the same, but before is the file, which is
**                                       not UTF-8
*/
#include "import.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* Copies n bytes to zOut, which may be NULL. Returns the length of the copy. */
static i64 copyValid(char *zOut, const char *z, i64 n) {
  i64 i = 0, iOut = 0;
  while (i < n) {
    unsigned char c = (unsigned char)z[i];
    int nChar = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    int bGood = i + nChar <= n && bxIsUtf8((const unsigned char *)z + i, nChar);
    if (!bGood) nChar = 1;
    if (zOut != 0) {
      memcpy(zOut + iOut, bGood ? z + i : "\xef\xbf\xbd",
          (size_t)(bGood ? nChar : 3));
    }
    iOut += bGood ? nChar : 3;
    i += nChar;
  }
  return iOut;
}

char *bxImportValid(const char *z, i64 n, i64 *pnOut, BxErr *pErr) {
  char *zOut;
  *pnOut = copyValid(0, z, n);
  assert(*pnOut <= 3 * n);
  zOut = bxCheckMem(sqlite3_malloc64((sqlite3_uint64)*pnOut + 1), pErr);
  if (zOut == 0) return 0;
  copyValid(zOut, z, n);
  zOut[*pnOut] = 0;
  return zOut;
}

/*--------------------------------------------- files that are one item ----*/

void bxImportKnownFree(ImportKnown *p) {
  sqlite3_free(p->items.a);
  sqlite3_free(p->files.a);
  memset(p, 0, sizeof(*p));
}

/* The hash by which a file that is an item replaces an older one. */
static sqlite3_uint64 hashFile(const char *zType, const char *zItemId) {
  return bxHashMix(bxHashOf(zType, (i64)strlen(zType)),
      zItemId ? bxHashOf(zItemId, (i64)strlen(zItemId)) : 0);
}

/* The id of an item, to sqlite3_free(); NULL if it has none. */
static char *itemId(Import *p, RolloutJson *pJson, const char *z, i64 n) {
  if (z == 0 || p->pFormat->az[ROLLOUT_FORMAT_ITEM_ID] == 0) return 0;
  pJson->iTop = 0;
  return bxTreeRead(&pJson->tree, z, n, 0, 0, p->pErr) == 0
             ? 0
             : bxRolloutNameAt(
                   p->pFormat, ROLLOUT_FORMAT_ITEM_ID, pJson, p->pErr);
}

static void know(RolloutMap *p, sqlite3_uint64 h, i64 id, BxErr *pErr) {
  i64 *pi = bxMapAt(p, h, pErr);
  if (pi != 0) *pi = id;
}

/* Reads what is stored of the conversation. */
static void readKnown(Import *p, const ImportSession *pPart) {
  static const char zKnown[] =
      "SELECT d.id, d.timestamp, d.type, d.payload, d.changed, "
      "d.quiet " ROLLOUT_FROM_ITEMS
      "AND NOT (d.id & 4294967295 = 0 AND d.quiet IS 1) "
      "ORDER BY s.rollout, s.first, d.id";
  ImportKnown *pKnown = &p->known;
  sqlite3_stmt *pRow = bxStmt(p->pHome, zKnown, p->pErr);
  RolloutJson json = {{0}, 0};
  bxImportKnownFree(pKnown);
  memcpy(pKnown->zId, pPart->work.zId, sizeof(pKnown->zId));
  bxBind(pRow, p->pErr, "i", pPart->work.head.no);
  while (bxStep(pRow, p->pErr)) {
    i64 id = sqlite3_column_int64(pRow, 0),
        iTime = sqlite3_column_int64(pRow, 1);
    const char *zType = bxColumnText(pRow, 2, p->pErr);
    const char *z = bxColumnText(pRow, 3, p->pErr);
    i64 n = sqlite3_column_bytes(pRow, 3);
    if (zType == 0) break;
    if (sqlite3_column_int(pRow, 4)) {
      know(&pKnown->items, bxImportHash(zType, iTime, 0, 0), id, p->pErr);
      know(&pKnown->items, bxImportHash(zType, -1, 0, 0), id, p->pErr);
    } else {
      know(&pKnown->items,
          bxImportHash(zType, pPart->bWhole ? -1 : iTime, z ? z : "", n), id,
          p->pErr);
    }
    if (sqlite3_column_int(pRow, 5) > 1 &&
        sqlite3_column_int(pRow, 5) % 2 == 1) {
      char *zItemId = itemId(p, &json, z, n);
      know(&pKnown->files, hashFile(zType, zItemId), id, p->pErr);
      sqlite3_free(zItemId);
    }
  }
  bxReset(pRow, p->pErr);
  bxTreeFree(&json.tree);
}

int bxImportValueHas(
    Import *p, ImportSession *pPart, const RolloutLine *pLine, i64 iTime) {
  ImportKnown *pKnown = &p->known;
  char *zItemId;
  const i64 *pi = 0;
  assert(p->zDocument != 0);
  if (strcmp(pKnown->zId, pPart->work.zId) != 0 ||
      pKnown->iLast != pPart->work.head.iLast) {
    readKnown(p, pPart);
  }
  pKnown->iLast = pPart->work.head.iLast;
  zItemId = p->pFormat->az[ROLLOUT_FORMAT_ITEM_ID]
                ? bxRolloutNameAt(
                      p->pFormat, ROLLOUT_FORMAT_ITEM_ID, &p->json, p->pErr)
                : 0;
  pKnown->hFile = hashFile(pLine->zType, zItemId);
  sqlite3_free(zItemId);
  pKnown->hItem = bxImportHash(pLine->zType, pPart->bWhole ? -1 : iTime,
      pLine->payload.z, pLine->payload.n);
  pi = bxMapAt(&pKnown->items, pKnown->hItem, p->pErr);
  if (pi != 0 && *pi == 0) {
    pi = bxMapAt(&pKnown->items,
        bxImportHash(pLine->zType, pLine->iTime < 0 ? -1 : iTime, 0, 0),
        p->pErr);
  }
  if (p->pErr->rc != SQLITE_OK || *pi == 0) return 0;
  pPart->iMatched = *pi;
  return 1;
}

/*---------------------------------------------------------------- frames ----*/

/* Ends the items that follow each other with the same text between them. */
static void endRun(Import *p) {
  if (p->nRun == 1) {
    sqlite3_str_appendf(p->pFrame, ",%lld", p->iRun);
  } else if (p->nRun > 1) {
    sqlite3_str_appendf(p->pFrame, ",[%lld,%lld,", p->iRun, p->nRun);
    bxJsonAppend(p->pFrame, p->runGap.z, (int)p->runGap.n);
    sqlite3_str_appendchar(p->pFrame, 1, ']');
  }
  p->nRun = 0;
}

static void addGap(Import *p, const char *z, i64 n) {
  endRun(p);
  sqlite3_str_appendchar(p->pFrame, 1, p->bFramed ? ',' : '[');
  bxJsonAppend(p->pFrame, z, (int)n);
  p->bFramed = 1;
}

void bxImportValueItem(
    Import *p, ImportSession *pPart, int bNew, RolloutSlice gap) {
  static const RolloutSlice empty = {"", 0}, line = {"\n", 1};
  RolloutWork *pWork = &pPart->work;
  RolloutItem *pItem;
  i64 iSequence;
  if (p->pErr->rc != SQLITE_OK) return;
  if (bNew) {
    assert(pWork->nItem > 0);
    pItem = &pWork->aItem[pWork->nItem - 1];
    pItem->before = pItem->after = empty;
    pItem->bQuiet = 1;
    if (pPart !=
        p->apPart[0]) { /* of another conversation: a line of its own */
      pItem->bQuiet = 0;
      pItem->after = line;
    }
  }
  if (pPart != p->apPart[0]) return;
  iSequence = bNew ? pPart->work.head.iLast + pWork->nItem
                   : pPart->iMatched & ROLLOUT_LAST;
  if (p->iCarrier == 0 &&
      (bNew || pPart->iMatched >> 32 == pPart->work.head.no)) {
    p->iCarrier = iSequence;
  }
  if (p->pFrame == 0) p->pFrame = sqlite3_str_new(0);
  if (p->nRun == 1 && iSequence == p->iRun + 1) p->runGap = gap;
  if (p->nRun > 0 && iSequence == p->iRun + p->nRun && gap.n == p->runGap.n &&
      memcmp(gap.z, p->runGap.z, (size_t)gap.n) == 0) {
    p->nRun++;
    return;
  }
  addGap(p, gap.z, gap.n);
  p->iRun = iSequence;
  p->nRun = 1;
}

/* Writes the frame of the item with key id, and takes away what it replaces. */
static void putFrame(Import *p, i64 id, const char *z, i64 n, int eQuiet) {
  static const char zPut[] =
      "UPDATE main.rollout__data SET before = CAST(?2 AS BLOB), after = x'', "
      "quiet = ?3 WHERE id = ?1 AND (quiet, before) IS NOT (?3, CAST(?2 AS "
      "BLOB))";
  static const char zOld[] =
      "UPDATE main.rollout__data SET before = x'', quiet = 1 "
      "WHERE id BETWEEN (?1 >> 32) << 32 AND ?1 | 4294967295 AND id <> ?1 "
      "AND quiet IN (2, 4)";
  static const char zOldFile[] = "UPDATE main.rollout__data SET before = x'', "
                                 "quiet = 1 WHERE id = ?1 AND quiet IN (3, 5)";
  i64 *pi;
  assert(id > 0 && eQuiet >= 2 && eQuiet <= 5);
  bxStmtExec(p->pHome, zPut, p->pErr, "ibi", id, z, n, (i64)eQuiet);
  if (eQuiet & 1) {
    pi = bxMapAt(&p->known.files, p->known.hFile, p->pErr);
    if (pi != 0 && *pi != 0 && *pi != id && *pi >> 32 == id >> 32) {
      bxStmtExec(p->pHome, zOldFile, p->pErr, "i", *pi);
    }
    if (p->pErr->rc == SQLITE_OK) *pi = id;
    know(&p->known.items, p->known.hItem, id, p->pErr);
  } else if (p->apPart[0]->work.head.no > 0) {
    bxStmtExec(p->pHome, zOld, p->pErr, "i", id);
  }
}

/* Whether the file has a list of items, and is not UTF-8. */
static int frameKind(const Import *p) {
  return (bxImportItems(p) != 0 ? 2 : 3) + (p->raw.z != 0 ? 2 : 0);
}

/* An item that is not written yet is written with the frame, so that a large one is not
** written twice. */
void bxImportValueEnd(Import *p) {
  static const RolloutSlice empty = {"", 0};
  RolloutWork *pWork = &p->apPart[0]->work;
  i64 i = p->iCarrier - 1 - pWork->head.iLast;
  if (p->pFrame == 0) return;
  assert(p->zDocument != 0 && p->zFrame == 0);
  addGap(p, p->zGap, p->zEnd - p->zGap);
  sqlite3_str_appendchar(p->pFrame, 1, ']');
  p->frame.n = sqlite3_str_length(p->pFrame);
  p->frame.z = p->zFrame = bxStrFinish(p->pFrame, p->pErr);
  p->pFrame = 0;
  if (p->raw.z != 0) p->frame = p->raw;
  if (p->iCarrier > 0 && i >= 0 && i < pWork->nItem && p->zFrame != 0) {
    pWork->aItem[i].before = p->frame;
    pWork->aItem[i].after = empty;
    pWork->aItem[i].bQuiet = frameKind(p);
  }
}

void bxImportValuePut(Import *p) {
  static const char zSame[] =
      "SELECT d.before IS CAST(?2 AS BLOB) " ROLLOUT_FROM_ITEMS
      "AND d.quiet > 1 ORDER BY d.id DESC LIMIT 1";
  RolloutHead head;
  assert(p->zDocument != 0);
  if (p->pErr->rc != SQLITE_OK ||
      !bxRolloutFind(p->pHome, 0, p->apPart[0]->work.zId, &head, p->pErr)) {
    return;
  }
  p->known.iLast = head.iLast;
  /* a fork whose items are all those of others has it in its session_meta */
  if (p->iCarrier > 0 || !bxQueryInt(p->pHome, zSame, p->pErr, "ib", head.no,
                             p->frame.z, p->frame.n)) {
    putFrame(p, bxRolloutKey(head.no, p->iCarrier), p->frame.z, p->frame.n,
        frameKind(p));
  }
}
