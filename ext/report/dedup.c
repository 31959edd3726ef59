/*
** dedup.c: bodies in pieces, each of which is kept once.
**
** A request repeats what was said before, and adds to it. So a body is cut into
** spans: at the members of its JSON object and at the elements of their arrays;
** other text, at ends of lines. A span that was seen before is not kept again:
** the body names the place where it is. Spans that follow each other there are one
** piece. A body that would need more than SPAN_PIECES pieces is kept whole again,
** so that a long conversation does not name more and more pieces.
**
** Spans are told apart by their SHA-256. What was recorded may be made to deceive,
** and must not be able to show one text in place of another.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define SPAN_PIECES 64 /* most pieces of a body */
#define SPAN_SHORT 64  /* a shorter span is not worth a piece of its own */
#define SPAN_LEAST 32  /* no span is shorter, but for the last */
#define SPAN_LINES 256 /* the same, where lines are cut */

/* The ends of the spans of a text. */
typedef struct Cuts {
  i64 *a;
  i64 n, nAlloc;
  i64 nLeast;
} Cuts;

static void cutSpanAt(Cuts *p, i64 i, BxErr *pErr) {
  i64 *a;
  if (i - (p->n > 0 ? p->a[p->n - 1] : 0) < p->nLeast) return;
  a = bxArrayAdd(&p->a, &p->n, &p->nAlloc, sizeof(*a), pErr);
  if (a != 0) *a = i;
}

/* Cuts JSON at zAt before each member of an object, and before and after each element of
** an array, which may be a member. Returns its end, NULL if it is no JSON. */
static const char *cutSpans(
    Cuts *p, const char *z, const char *zAt, const char *zEnd, BxErr *pErr) {
  int bObject = *zAt == '{';
  zAt = bxJsonSkipSpace(zAt + 1);
  while (*zAt != ']' && *zAt != '}' && pErr->rc == SQLITE_OK) {
    cutSpanAt(p, zAt - z, pErr);
    if (bObject) {
      zAt = bxJsonSkipString(zAt, zEnd);
      if (zAt == 0 || *(zAt = bxJsonSkipSpace(zAt)) != ':') return 0;
      zAt = bxJsonSkipSpace(zAt + 1);
    }
    zAt = bObject && *zAt == '[' ? cutSpans(p, z, zAt, zEnd, pErr)
                                 : bxJsonSkipValue(zAt, zEnd);
    if (zAt == 0) return 0;
    if (!bObject) cutSpanAt(p, zAt - z, pErr);
    zAt = bxJsonSkipSpace(zAt);
    if (*zAt == ',') zAt = bxJsonSkipSpace(zAt + 1);
  }
  return pErr->rc == SQLITE_OK ? zAt + 1 : 0;
}

static i64 slotOfSpan(
    const SeenPieces *p, const unsigned char aHash[BX_DIGEST]) {
  sqlite3_uint64 h;
  i64 i;
  assert(p->n < p->nAlloc); /* a free one is found */
  memcpy(&h, aHash, sizeof(h));
  i = (i64)(h & (sqlite3_uint64)(p->nAlloc - 1));
  for (; p->a[i].n > 0; i = (i + 1) & (p->nAlloc - 1)) {
    if (memcmp(p->a[i].aHash, aHash, BX_DIGEST) == 0) break;
  }
  return i;
}

SeenPiece *bxReportSeen(SeenPieces *p, const char *z, i64 n, BxErr *pErr) {
  unsigned char aHash[BX_DIGEST];
  SeenPiece *pSpan;
  i64 i;
  if (p->n * 2 >= p->nAlloc && pErr->rc == SQLITE_OK) { /* room for one more */
    SeenPieces larger = *p;
    larger.nAlloc = p->nAlloc ? 2 * p->nAlloc : 256;
    larger.a = bxZalloc(sizeof(SeenPiece) * (size_t)larger.nAlloc, pErr);
    if (larger.a == 0) return 0;
    for (i = 0; i < p->nAlloc; i++) {
      if (p->a[i].n > 0) larger.a[slotOfSpan(&larger, p->a[i].aHash)] = p->a[i];
    }
    sqlite3_free(p->a);
    *p = larger;
  }
  if (pErr->rc != SQLITE_OK) return 0;
  bxDigestTwo(z, (size_t)n, "", 0, aHash);
  pSpan = &p->a[slotOfSpan(p, aHash)];
  if (pSpan->n == 0) {
    memcpy(pSpan->aHash, aHash, sizeof(aHash));
    pSpan->iBlock = -1;
    pSpan->n = n;
    p->n++;
  }
  return pSpan;
}

/* Adds n bytes to the part: as a piece, or to its last one. */
static void addReportPiece(ReportRun *p, ReportPart *pPart, int iBlock, i64 iAt,
    i64 n, int bFresh, int bAlone) {
  ReportPiece *a = p->aPiece, *pLast = pPart->nPiece ? &a[p->nPiece - 1] : 0;
  if (pLast != 0 && !bAlone && pLast->iBlock == iBlock &&
      pLast->iAt + pLast->n == iAt && pLast->bFresh == bFresh) {
    pLast->n += n;
    return;
  }
  a = bxArrayAdd(&p->aPiece, &p->nPiece, &p->nPieceAlloc, sizeof(*a), &p->err);
  if (a == 0) return;
  a->iBlock = iBlock;
  a->iAt = iAt;
  a->n = n;
  a->bFresh = bFresh;
  pPart->nPiece++;
}

/* Adds the spans as pieces. bWhole: all of them are kept again. A span that was seen
** is named by its place if it is long, or in the head, or if it follows what the last
** piece has. */
static void addSpanPieces(ReportRun *p, ReportItem *pItem, ReportPart *pPart,
    const char *z, const Cuts *pCuts, int bWhole) {
  i64 i, iAt = 0;
  for (i = 0; i < pCuts->n && p->err.rc == SQLITE_OK; i++) {
    i64 n = pCuts->a[i] - iAt;
    SeenPiece *pSpan = bxReportSeen(&p->spans, z + iAt, n, &p->err);
    const ReportPiece *pLast = pPart->nPiece ? &p->aPiece[p->nPiece - 1] : 0;
    if (pSpan == 0) return;
    assert(bWhole || pLast != 0 ||
           pPart->iNew < 0); /* after the head something is new */
    if (!bWhole && pSpan->iBlock >= 0 &&
        (pSpan->n >= SPAN_SHORT || pPart->iNew < 0 ||
            (!pLast->bFresh && pLast->iBlock == pSpan->iBlock &&
                pLast->iAt + pLast->n == pSpan->iAt))) {
      addReportPiece(p, pPart, pSpan->iBlock, pSpan->iAt, n, 0, 0);
    } else {
      if (pPart->iNew < 0) {
        pPart->iNew = pPart->nPiece;
        pPart->nHead = iAt;
      }
      if (bWhole || pSpan->iBlock < 0) {
        pSpan->iBlock = pItem->iBlock;
        pSpan->iAt = p->nInBlock + pItem->nOwn;
      }
      addReportPiece(p, pPart, pItem->iBlock, p->nInBlock + pItem->nOwn, n, 1,
          bWhole && iAt == pPart->nHead);
      pItem->nOwn += n;
    }
    iAt += n;
  }
}

void bxReportPieces(ReportRun *p, ReportItem *pItem, ReportPart *pPart) {
  int bJson = strcmp(pPart->zType, "application/json") == 0;
  Cuts cuts = {0, 0, 0, bJson ? SPAN_LEAST : SPAN_LINES};
  i64 nOwn = pItem->nOwn, n = pPart->nByte;
  const char *z = pPart->z, *zAt = bxJsonSkipSpace(z), *zEnd = z + n;
  pPart->iPiece = p->nPiece;
  pPart->nPiece = pPart->nHead = 0;
  pPart->iNew = -1;
  if (n > 0 && p->opt.eBodies == REPORT_ALL) {
    addReportPiece(p, pPart, pItem->iBlock, p->nInBlock + pItem->nOwn, n, 1, 0);
    pItem->nOwn += n;
    pPart->iNew = 0;
  } else if (n > 0) {
    if (bJson) cutSpans(&cuts, z, zAt, zEnd, &p->err);
    for (zAt = z; !bJson && zAt < zEnd;) { /* at the ends of lines */
      zAt = memchr(zAt, '\n', (size_t)(zEnd - zAt));
      if (zAt == 0) break;
      cutSpanAt(&cuts, ++zAt - z, &p->err);
    }
    cuts.nLeast = 0;
    cutSpanAt(&cuts, n, &p->err);
    addSpanPieces(p, pItem, pPart, z, &cuts, 0);
    if (pPart->nPiece > SPAN_PIECES) {
      p->nPiece = pPart->iPiece;
      pPart->nPiece = 0;
      pItem->nOwn = nOwn;
      if (pPart->iNew >= 0) pPart->iNew = pPart->nHead > 0;
      addSpanPieces(p, pItem, pPart, z, &cuts, 1);
    }
  }
  if (pPart->iNew < 0) { /* nothing is new */
    pPart->iNew = pPart->nPiece;
    pPart->nHead = pPart->nByte;
  }
  sqlite3_free(cuts.a);
}
