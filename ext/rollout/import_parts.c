/*
** import_parts.c: the conversations of a file, the parts: found by their names, and written.
**
** Items wait in memory only until there are some thousand of them. What is written
** then is what a first piece of the file would have been: the parts go on with the
** rest as with a further piece.
*/
#include "import.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define MAX_IDS 1000 /* the most ids in the result */
#ifdef BX_DEBUG
#define MOST_HELD 2 /* so that tests of small files pass here */
#else
#define MOST_HELD 2000 /* new items in memory ... */
#endif
#define MOST_HELD_BYTES 250000 /* ... and bytes of those not in the file */

/*---------------------------------------------------------------- parts ----*/

ImportSession *bxImportPartAdd(Import *p, char *zName, char *zAgent) {
  ImportSession **ap =
      bxArrayGrow(p->apPart, p->nPart, &p->nPartAlloc, sizeof(*ap), p->pErr);
  ImportSession *pPart = ap != 0 ? bxZalloc(sizeof(*pPart), p->pErr) : 0;
  assert(p->nPart <= p->nPartAlloc);
  if (ap != 0) p->apPart = ap;
  if (pPart == 0) {
    sqlite3_free(zName);
    sqlite3_free(zAgent);
    return 0;
  }
  p->apPart[p->nPart++] = pPart;
  pPart->zName = zName;
  pPart->zAgent = zAgent;
  pPart->bWhole =
      p->pFormat == 0 || p->pFormat->az[ROLLOUT_FORMAT_PAYLOAD] == 0;
  return pPart;
}

/* The number of the part with these names, from 1 on, in the map: 0 if there is none.
** NULL on error. */
static i64 *partNumber(Import *p, const char *zName, const char *zAgent) {
  sqlite3_uint64 h = bxHashOf(zName, (i64)strlen(zName));
  i64 *pi;
  assert(zName != 0 && p->nPart > 0);
  if (zAgent != 0) h = bxHashMix(h, bxHashOf(zAgent, (i64)strlen(zAgent)));
  for (;; h = bxHashMix(h, 1)) { /* goes on while the names are others */
    pi = bxMapAt(&p->names, h, p->pErr);
    if (pi == 0 || *pi == 0 ||
        (bxSameText(p->apPart[*pi - 1]->zName, zName) &&
            bxSameText(p->apPart[*pi - 1]->zAgent, zAgent))) {
      return pi;
    }
  }
}

void bxImportPartId(
    const Import *p, const char *zName, const char *zAgent, char zId[37]) {
  int bApart = p->pFormat != 0 && p->pFormat->bApart;
  bxImportSessionId(bxImportFormatName(p), bApart, zName, zAgent, zId);
}

/* What follows a text has only new items. */
void bxImportPartOpen(Import *p, ImportSession *pPart) {
  if (p->pErr->rc != SQLITE_OK) return;
  assert(pPart->work.zId[0] != 0);
  bxImportSessionOpen(pPart, p->pHome, p->iNow, p->pErr);
  if (p->zTail != 0) pPart->eMatch = PART_NEW;
}

void bxImportPartResume(Import *p, ImportSession *pPart) {
  if (!bxImportSessionResume(pPart, p->pHome, p->pErr)) return;
  if (p->apOpen[p->iOpen] != 0) bxImportSessionPause(p->apOpen[p->iOpen]);
  p->apOpen[p->iOpen] = pPart;
  p->iOpen = (p->iOpen + 1) % IMPORT_OPEN;
}

/* The part to which an item belongs. Frees the names. */
ImportSession *bxImportSession(Import *p, char *zName, char *zAgent) {
  i64 *pi = zName != 0 ? partNumber(p, zName, zAgent) : 0;
  ImportSession *pPart;
  assert(zName != 0 || p->pErr->rc != SQLITE_OK);
  assert(p->nPart > 0); /* the first part is there from the beginning */
  if (pi == 0 || *pi > 0) {
    sqlite3_free(zName);
    sqlite3_free(zAgent);
    return pi != 0 ? p->apPart[*pi - 1] : 0;
  }
  if (p->apPart[0]->zName == 0) { /* the first name is that of the first part */
    p->apPart[0]->zName = zName;
    p->apPart[0]->zAgent = zAgent;
    *pi = 1;
    return p->apPart[0];
  }
  pPart = bxImportPartAdd(p, zName, zAgent);
  if (pPart == 0) return 0;
  *pi = p->nPart;
  bxImportPartId(p, zName, zAgent, pPart->work.zId);
  bxImportPartOpen(p, pPart);
  return pPart;
}

/*------------------------------------------------------- session_meta ----*/

/* The payload of the session_meta of a part whose file has none at its beginning, to
** sqlite3_free(): that of one that comes later, or what is known. */
static char *makeMeta(Import *p, ImportSession *pPart) {
  static const char zMeta[] =
      "SELECT json_patch(json_object('id', ?1, 'timestamp', " ROLLOUT_ISO(
          "?2") ", 'cwd', coalesce(?7, ''), 'originator', ?3, 'cli_version', "
                "'1.0.0', "
                "'instructions', NULL), iif(?3 IN ('codex', 'blackbox'), '{}', "
                "json_object('blackbox', json_patch('{}', json_object("
                "'format', ?3, 'id', ?4, 'agent', ?5, 'parent', ?6)))))";
  const char *zFormat = bxImportFormatName(p), *zId = pPart->work.zId;
  const char *zName = pPart->zName;
  char zParent[37] = "";
  assert(pPart->work.zId[36] == 0);
  if (pPart->meta.z != 0) {
    return bxPrintf(p->pErr, "%.*s", (int)pPart->meta.n, pPart->meta.z);
  }
  if (pPart->zAgent !=
      0) { /* it belongs to the conversation with the same name */
    const i64 *pi = partNumber(p, zName, 0);
    if (pi != 0 && *pi > 0) {
      memcpy(zParent, p->apPart[*pi - 1]->work.zId, 37);
    } else {
      bxImportPartId(p, zName, 0, zParent);
    }
  }
  return bxQueryText(p->pHome, zMeta, p->pErr, "tittttt", zId, pPart->iFirst,
      strcmp(zFormat, "codex") == 0 ? "blackbox" : zFormat,
      zName && sqlite3_stricmp(zName, zId) == 0 ? 0 : zName, pPart->zAgent,
      *zParent ? zParent : 0, p->azPath[BX_PATH_CWD]);
}

/*--------------------------------------------------------------- writing ----*/

/* The session_meta of a new part that the file does not have. */
static void putMadeMeta(Import *p, ImportSession *pPart) {
  RolloutItem *pItem = pPart->work.aItem;
  if (!pPart->bMade) return;
  assert(pPart->work.head.no == 0 && pPart->work.nItem > 0);
  pItem->zOwned = makeMeta(p, pPart);
  pItem->payload.z = pItem->zOwned;
  pItem->payload.n = pItem->zOwned ? (i64)strlen(pItem->zOwned) : 0;
  pPart->bMade = 0;
}

/* Whether a session_meta may come later in the file. Only payloads inside of lines are
** one. */
static int mayHaveMeta(Import *p, const ImportSession *pPart) {
  if (!pPart->bMade || pPart->bWhole || pPart->meta.z != 0) return 0;
  if (p->eLater == 0) {
    p->eLater = strlen(p->z) < (size_t)(p->zEnd - p->z) ||
                        strstr(p->zGap, "ession_meta") != 0 ||
                        strstr(p->zGap, "essionMeta") != 0
                    ? 1
                    : -1;
  }
  return p->eLater > 0;
}

void bxImportPartsFlush(Import *p) {
  i64 i;
  if (p->nHeld < MOST_HELD && p->nHeldByte < MOST_HELD_BYTES) return;
  p->nHeld = p->nHeldByte = 0;
  for (i = 0; i < p->nPart && p->pErr->rc == SQLITE_OK; i++) {
    ImportSession *pPart = p->apPart[i];
    RolloutWork *pWork = &pPart->work;
    char zId[37];
    if (pWork->nItem == 0 || mayHaveMeta(p, pPart)) continue;
    assert(pPart->eMatch == PART_NEW || pPart->eMatch == PART_BAG);
    bxImportSessionPause(pPart);
    putMadeMeta(p, pPart);
    bxRolloutWorkPut(pWork, p->pHome, p->iNow, p->pErr);
    bxRolloutWorkEnd(pWork);
    memcpy(zId, pWork->zId, sizeof(zId));
    memset(pWork, 0, sizeof(*pWork));
    memcpy(pWork->zId, zId, sizeof(zId));
    bxRolloutFind(p->pHome, 0, zId, &pWork->head, p->pErr);
    bxRolloutWorkBegin(pWork, p->pHome, p->pErr);
  }
}

void bxImportPartsPut(Import *p) {
  i64 i;
  int bAny = 0;
  assert(p->nPart <= p->nPartAlloc);
  bxImportValueEnd(p);
  for (i = 0; i < p->nPart && p->pErr->rc == SQLITE_OK; i++) {
    ImportSession *pPart = p->apPart[i];
    RolloutWork *pWork = &pPart->work;
    int bHas = pWork->head.no > 0 || pWork->nItem > 0;
    bxImportSessionPause(pPart);
    putMadeMeta(p, pPart);
    if ((bHas || (i == 0 && !p->bStore)) && p->pReport->nId++ < MAX_IDS) {
      sqlite3_str_appendf(p->pReport->pIds, "%s\"%s\"",
          p->pReport->nId > 1 ? "," : "", pWork->zId);
    }
    if (!bHas) continue;
    bAny = 1;
    bxRolloutDrop(
        pWork, "damaged line", "", pPart->nBad, pPart->nBadByte, p->pErr);
    bxRolloutWorkPut(pWork, p->pHome, p->iNow, p->pErr);
  }
  if (!bAny && !p->bStore) {
    bxFail(p->pErr, SQLITE_CONSTRAINT,
        "ValidationError: Invalid rollout file: none of its %lld lines can be "
        "read; a line must be JSON, or text in UTF-8",
        p->pReport->nLine);
  }
  if (p->zFrame != 0) bxImportValuePut(p);
  bxRolloutCatchUp(p->pHome, 0, p->pErr);
}
