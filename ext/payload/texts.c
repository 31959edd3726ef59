/*
** texts.c: the texts of an exchange, and the canonical form of arguments.
**
** A Text points into the body if the body has it without escapes. Otherwise it is
** decoded into memory of its own. Arguments are compared by a hash of their canonical
** form: JSON without white space, its keys sorted.
*/
#include "reader.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

void bxTextFree(Text *pText) {
  sqlite3_free(pText->zOwn);
  memset(pText, 0, sizeof(*pText));
}

void bxTextSet(Text *pText, Text value) {
  sqlite3_free(pText->zOwn);
  *pText = value;
}

static Text ownText(char *z, i64 n) {
  Text text = {z, n, z, 0};
  return text;
}

Text bxTextTake(sqlite3_str *pStr, BxErr *pErr) {
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
  if (z == 0) z = bxZalloc(1, pErr);
  return ownText(z, z != 0 ? n : 0);
}

void bxTextAppend(Text *pText, Text more, BxErr *pErr) {
  char *z;
  assert(pText->n >= 0 && more.n >= 0);
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
  assert(n >= 0);
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

Text bxTextValue(const BxTree *p, int iNode, BxErr *pErr) {
  const BxNode *pNode = &p->a[iNode];
  sqlite3_str *pStr;
  assert(iNode >= 0 && iNode < p->n);
  if (BX_TREE_KIND(p, iNode) == '"') {
    return stringText(p->z + pNode->iAt + 1, pNode->nByte - 2, pErr);
  }
  pStr = sqlite3_str_new(0);
  bxTreeCanon(p, iNode, pStr, pErr);
  return bxTextTake(pStr, pErr);
}

/* A string, or the member text of an object: -1 for none. */
static int textNode(const BxTree *p, int iNode) {
  if (BX_TREE_KIND(p, iNode) == '{') iNode = bxTreeMember(p, iNode, "text", 4);
  return iNode >= 0 && BX_TREE_KIND(p, iNode) == '"' ? iNode : -1;
}

int bxTextCount(const BxTree *p, int iNode, int *piFirst, int *pnOther) {
  int bArray = BX_TREE_KIND(p, iNode) == '[', n = 0;
  int i = bArray ? iNode + 1 : iNode;
  int iEnd = bArray ? p->a[iNode].iNext : iNode + 1;
  assert(iNode >= 0 && iNode < p->n);
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

Text bxTextMessage(const BxTree *p, int iNode, int *pnOther, BxErr *pErr) {
  int iFirst, i, iEnd = p->a[iNode].iNext;
  int n = bxTextCount(p, iNode, &iFirst, pnOther);
  sqlite3_str *pStr;
  if (n == 0) return (Text){0, 0, 0, 0};
  if (n == 1) return bxTextValue(p, iFirst, pErr);
  pStr = sqlite3_str_new(0);
  for (i = iNode + 1; i < iEnd; i = p->a[i].iNext) {
    int iText = textNode(p, i);
    if (iText < 0) continue;
    if (iText != iFirst) sqlite3_str_appendchar(pStr, 1, '\n');
    bxTreeText(p, iText, pStr);
  }
  return bxTextTake(pStr, pErr);
}

Text bxTextResult(const BxTree *p, int iNode, BxErr *pErr) {
  int nOther, iFirst;
  int n = bxTextCount(p, iNode, &iFirst, &nOther);
  if (n > 0 && nOther == 0 && BX_TREE_KIND(p, iNode) != '{') {
    return bxTextMessage(p, iNode, &nOther, pErr);
  }
  return bxTextValue(p, iNode, pErr);
}

/* JSON in its canonical form; text that is none as it is. A terminator follows
** the text, or the rest of a body. */
static Text canonText(Text text, BxErr *pErr) {
  BxTree tree = {0};
  const char *zEnd;
  sqlite3_str *pStr;
  if (text.z == 0) return text;
  zEnd = bxTreeRead(&tree, text.z, text.n, 0, 0, pErr);
  if (zEnd != 0 && bxJsonSkipSpace(zEnd) == text.z + text.n) {
    pStr = sqlite3_str_new(0);
    bxTreeCanon(&tree, 0, pStr, pErr);
    bxTextSet(&text, bxTextTake(pStr, pErr));
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
  zEnd = bxTreeRead(pTree, p->arguments.z, p->arguments.n, 0, 0, pErr);
  if (zEnd != 0 && bxJsonSkipSpace(zEnd) == p->arguments.z + p->arguments.n) {
    return (i64)bxTreeHash(pTree, 0, pErr);
  }
  return (i64)bxHashOf(p->arguments.z, p->arguments.n);
}
