/*
** import_value.c: files that are one JSON value, with a list of items or over several
** lines.
**
** A program writes such a file anew each time, and may complete what it has written
** before. So the newest file counts as a whole: what stands around its items lies in
** the frame of the first one, as a JSON array of texts and of the keys of items, and
** the other items print nothing in an export. An item that the newest file has in
** another form stays as it was, and is printed no more.
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

char *bxImportValid(const char *z, i64 n, i64 *pnOut, BxErr *pErr) {
  char *zOut = bxCheckMem(sqlite3_malloc64(3 * (sqlite3_uint64)n + 1), pErr);
  i64 i = 0, iOut = 0;
  while (zOut != 0 && i < n) {
    unsigned char c = (unsigned char)z[i];
    int nChar = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (i + nChar <= n && bxIsUtf8((const unsigned char *)z + i, nChar)) {
      memcpy(zOut + iOut, z + i, (size_t)nChar);
      iOut += nChar;
      i += nChar;
    } else {
      memcpy(zOut + iOut, "\xef\xbf\xbd", 3);
      iOut += 3;
      i++;
    }
  }
  assert(iOut <= 3 * n);
  if (zOut != 0) zOut[iOut] = 0;
  *pnOut = iOut;
  return zOut;
}

void bxImportValueItem(
    Import *p, ImportSession *pPart, int bNew, RolloutSlice gap) {
  static const RolloutSlice empty = {"", 0}, line = {"\n", 1};
  RolloutWork *pWork = &pPart->work;
  RolloutItem *pItem;
  ImportRef *pRef;
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
  pRef = bxArrayAdd(&p->aRef, &p->nRef, &p->nRefAlloc, sizeof(*pRef), p->pErr);
  if (pRef == 0) return;
  pRef->gap = gap;
  pRef->id = bNew ? -pWork->nItem : pPart->iMatched;
}

/* Writes the frame of the item with key id, and takes away what it replaces. */
static void putFrame(Import *p, i64 id, const char *z, i64 n, int eQuiet) {
  static const char zPut[] =
      "UPDATE main.rollout__data SET before = CAST(?2 AS BLOB), quiet = ?3 "
      "WHERE id = ?1 AND (quiet, before) IS NOT (?3, CAST(?2 AS BLOB))";
  static const char zOld[] =
      "UPDATE main.rollout__data SET before = x'', quiet = 1 "
      "WHERE id BETWEEN (?1 >> 32) << 32 AND ?1 | 4294967295 AND id <> ?1 "
      "AND quiet > 1 AND quiet & 1 = ?2 AND (?2 = 0 OR (type, iif(?3 IS NULL, "
      "0, payload ->> ?3)) IS (SELECT type, iif(?3 IS NULL, 0, payload ->> ?3) "
      "FROM main.rollout__data WHERE id = ?1))";
  const char *zItemId = p->pFormat->az[ROLLOUT_FORMAT_ITEM_ID];
  assert(id > 0 && eQuiet >= 2 && eQuiet <= 5);
  bxStmtExec(p->pHome, zPut, p->pErr, "ibi", id, z, n, (i64)eQuiet);
  if (p->apPart[0]->work.head.no > 0) {
    bxStmtExec(p->pHome, zOld, p->pErr, "iit", id, (i64)(eQuiet & 1), zItemId);
  }
}

void bxImportValuePut(Import *p) {
  ImportSession *pPart = p->apPart[0];
  int eQuiet = bxImportItems(p) != 0 ? 2 : 3;
  sqlite3_str *pOut;
  RolloutHead head;
  char *zOut, cBefore = '[';
  i64 i, iFirst = 0;
  assert(p->nRef > 0 && p->zDocument != 0);
  if (!bxRolloutFind(p->pHome, 0, pPart->work.zId, &head, p->pErr)) return;
  pOut = sqlite3_str_new(0);
  for (i = 0; i < p->nRef; i++) {
    ImportRef *pRef = &p->aRef[i];
    if (pRef->id < 0) {
      pRef->id = bxRolloutKey(head.no, pPart->work.head.iLast - pRef->id);
    }
    if (iFirst == 0 && pRef->id >> 32 == head.no) iFirst = pRef->id;
    sqlite3_str_appendchar(pOut, 1, cBefore);
    bxJsonAppend(pOut, pRef->gap.z, (int)pRef->gap.n);
    sqlite3_str_appendf(pOut, ",%lld", pRef->id);
    cBefore = ',';
  }
  sqlite3_str_appendchar(pOut, 1, ',');
  bxJsonAppend(pOut, p->zGap, (int)(p->zEnd - p->zGap));
  sqlite3_str_appendchar(pOut, 1, ']');
  i = sqlite3_str_length(pOut);
  zOut = bxStrFinish(pOut, p->pErr);
  if (iFirst != 0 && p->raw.z != 0) {
    putFrame(p, iFirst, p->raw.z, p->raw.n, eQuiet + 2);
  } else if (iFirst != 0) {
    putFrame(p, iFirst, zOut, i, eQuiet);
  }
  sqlite3_free(zOut);
}
