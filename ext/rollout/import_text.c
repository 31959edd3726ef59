/*
** import_text.c: files of text, whose lines say by how they begin what they are
** (sql/rollout_formats.sql).
**
** Lines of one type, one after the other, are one item. Its payload is an object
** with the format, the type and the text, without what the lines begin with. A
** line that begins a conversation has its text as session. All bytes of the file
** are kept beside the payloads, for the export.
**
** A line between two lines that begin with ``` is part of what is around it, up
** to the beginning of the next conversation: an answer may have been cut off.
*/
#include "import.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* Lines that are one item. */
typedef struct ProseBlock {
  const BxPlace *pLine; /* what they are; NULL: there is none yet */
  sqlite3_str *pText;
  const char *zEnd; /* of the last line that is not blank */
  int nBlank;       /* blank lines after it */
  int bFence;
} ProseBlock;

static int isStart(const BxPlace *p) {
  return p->eKind == BX_KIND_START;
}

/* Whether a row is of lines of text, of a format or, if that is NULL, of any. */
static int isProse(const BxPlace *p, const char *zFormat) {
  return (isStart(p) || p->eKind == BX_KIND_LINE) &&
         (zFormat == 0 || strcmp(p->az[BX_PLACE_FORMAT], zFormat) == 0);
}

/* The row with the longest prefix of a line; NULL if there is none. */
static const BxPlace *proseOf(const RolloutRules *p, const char *zFormat,
    const char *z, const char *zEnd) {
  const BxPlace *pFound = 0;
  i64 i;
  assert(z <= zEnd);
  for (i = 0; i < p->places.n; i++) {
    const BxPlace *pPlace = &p->places.a[i];
    size_t n = strlen(pPlace->az[BX_PLACE_AT]);
    if (isProse(pPlace, zFormat) && (size_t)(zEnd - z) >= n &&
        memcmp(z, pPlace->az[BX_PLACE_AT], n) == 0 &&
        (pFound == 0 || n > strlen(pFound->az[BX_PLACE_AT]))) {
      pFound = pPlace;
    }
  }
  return pFound;
}

static int isProseText(const Import *p) {
  return memchr(p->z, 0, (size_t)(p->zEnd - p->z)) == 0;
}

const RolloutFormat *bxImportTextFormat(Import *p, const char *z) {
  const BxPlace *pLine;
  z = bxJsonSkipSpace(z);
  pLine = proseOf(p->pRules, 0, z, bxImportLineEnd(p, z));
  if (pLine == 0 || !isStart(pLine) || !isProseText(p)) return 0;
  return bxRolloutFormatNamed(p->pRules, pLine->az[BX_PLACE_FORMAT]);
}

int bxImportIsText(const Import *p) {
  i64 i = 0;
  if (p->pFormat == 0) return 0;
  while (i < p->pRules->places.n && !isProse(&p->pRules->places.a[i],
                                        p->pFormat->az[ROLLOUT_FORMAT_NAME])) {
    i++;
  }
  return i < p->pRules->places.n && isProseText(p);
}

void bxImportMember(sqlite3_str *pOut, const char *zKey, const char *z) {
  assert(zKey[0] != 0);
  if (z == 0) return;
  sqlite3_str_appendf(
      pOut, "%c\"%s\":", sqlite3_str_length(pOut) > 0 ? ',' : '{', zKey);
  bxJsonAppend(pOut, z, (int)strlen(z));
}

/* Takes the lines of a block, which it empties, as an item. */
static void giveBlock(Import *p, ProseBlock *pBlock) {
  const BxPlace *pLine = pBlock->pLine;
  sqlite3_str *pOut = sqlite3_str_new(0);
  char *zText = bxStrFinish(pBlock->pText, p->pErr), *zItem;
  char *zName = 0, *zAgent = 0;
  ImportSession *pPart = p->pPart != 0 ? p->pPart : p->apPart[0];
  RolloutLine line;
  assert(pBlock->pLine != 0);
  if (zText != 0 &&
      !bxIsUtf8((const unsigned char *)zText, (int)strlen(zText))) {
    i64 n;
    char *zValid = bxImportValid(zText, (i64)strlen(zText), &n, p->pErr);
    sqlite3_free(zText);
    zText = zValid;
  }
  bxImportMember(pOut, "format", pLine->az[BX_PLACE_FORMAT]);
  bxImportMember(pOut, "type", pLine->az[BX_PLACE_OTHER]);
  bxImportMember(pOut, isStart(pLine) ? "session" : "text", zText ? zText : "");
  sqlite3_str_appendchar(pOut, 1, '}');
  sqlite3_free(zText);
  zItem = bxStrFinish(pOut, p->pErr);
  pBlock->pText = 0;
  pBlock->pLine = 0;
  p->made.iTop = 0;
  if (p->pErr->rc == SQLITE_OK &&
      bxTreeRead(&p->made.tree, zItem, (i64)strlen(zItem), 0, 0, p->pErr)) {
    if (bxRolloutNames(
            p->pRules, p->pFormat, &p->made, &zName, &zAgent, p->pErr)) {
      pPart = bxImportSession(p, zName, zAgent);
    }
    bxRolloutReadLine(p->pHome, p->pFormat, &p->made, &line, p->pErr);
    p->pJson = &p->made;
    if (p->pErr->rc == SQLITE_OK) {
      zItem = bxImportMade(p, pPart, &line, zItem, pBlock->zEnd);
    }
  }
  sqlite3_free(zItem);
}

/* Adds a line to the block, or begins another one with it. */
static void takeLine(
    Import *p, ProseBlock *pBlock, const char *z, const char *zEnd) {
  const char *zName = p->pFormat->az[ROLLOUT_FORMAT_NAME];
  int bFence = zEnd - z >= 3 && memcmp(z, "```", 3) == 0;
  const BxPlace *pLine;
  size_t nPrefix = 0;
  assert(z <= zEnd && p->pFormat != 0);
  if (bxImportSkipBlank(z, zEnd) == zEnd) {
    pBlock->nBlank++;
    return;
  }
  pLine = proseOf(p->pRules, zName, z, zEnd);
  if (pLine != 0 && isStart(pLine)) pBlock->bFence = 0;
  if (pBlock->bFence && pBlock->pLine != 0) {
    pLine = pBlock->pLine;
  } else if (pLine != 0) {
    nPrefix = strlen(pLine->az[BX_PLACE_AT]);
  }
  if (bFence) pBlock->bFence = !pBlock->bFence;
  if (pLine == 0) return;
  if (pBlock->pLine != 0 && (pLine != pBlock->pLine || isStart(pLine))) {
    giveBlock(p, pBlock);
  }
  if (pBlock->pLine == 0) {
    pBlock->pText = sqlite3_str_new(0);
  } else {
    sqlite3_str_appendchar(pBlock->pText, pBlock->nBlank + 1, '\n');
  }
  pBlock->pLine = pLine;
  pBlock->nBlank = 0;
  pBlock->zEnd = zEnd;
  if (zEnd > z && zEnd[-1] == '\r') zEnd--;
  z += nPrefix;
  if (zEnd > z) sqlite3_str_append(pBlock->pText, z, (int)(zEnd - z));
}

void bxImportText(Import *p, const char *z) {
  ProseBlock block;
  memset(&block, 0, sizeof(block));
  while (z < p->zEnd && p->pErr->rc == SQLITE_OK) {
    const char *zEnd = bxImportLineEnd(p, z);
    p->pReport->nLine++;
    takeLine(p, &block, z, zEnd);
    z = zEnd + 1;
  }
  if (block.pLine != 0) giveBlock(p, &block);
}
