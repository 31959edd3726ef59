/*
** write.c: store_pack(keys[, schema[, few[, table]]]): moves values of rows into
** the body store.
**
** keys is a JSON array of the keys of rows. The table is that of a domain that uses
** the store (BxBodies): the first one, or the one named. Each value is replaced by a
** reference. The result is JSON: the rows and texts that were packed, their bytes,
** the bytes that the store grew by, how many rows stay as they are because something
** refuses the change, and why the first of them does. In place of keys it takes texts
** that no row has yet (BxPackRows): no reference is announced, and it returns NULL.
**
**   value -> pieces (format.c) -> a piece that is known: one more use of it
**                                 a piece that is new: added to the open pack
**         -> recipe: the ranges of pieces that make up the text
**         -> reference: its hash and its number
**
** Pieces that were met are remembered with their bytes. Most of a text is usually a
** part of the one before, and then comparing bytes is all that is done for it. What
** is new is hashed, looked up in store__pieces, and compared with the bytes of the
** piece that was found. What is new to the store goes to the pack that has room.
**
** The lists of the packs are changed in memory and written at the end, or when too
** many are held (settle()). New pieces are written in the order of their keys when
** what was met is forgotten.
**
** If few is not NULL (2: the rows are the newest ones), packs have STORE_FEW_BYTES,
** and the connection keeps what it has met and the bytes of the pack with room. A
** piece is as it was met if its pack has the same token: a rollback, a sweep or
** another connection changes that. What is new is compressed for itself and added to
** the data of the pack (addRoom). A pack that is nearly full is compressed as a
** whole: that call packs no row, and its result is NULL.
*/
#include "store.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define ARENA_BYTES (12 << 20) /* most bytes that are remembered */
#define KNOWN_PIECES 16384     /* most pieces */
#define MAX_LISTS 1024         /* lists that are held at most */
#define N_BUCKET 32768
#define FEW_ARENA (4 << 20) /* the same for a few rows */
#define FEW_PIECES 2048
#define FEW_BUCKETS 2048
#define MAX_PIECES 4096 /* of a pack, with those that were removed from it */
#define ROOM_BYTES 8192
#define ROOM_LEAST 16
#define MOVE_EVERY 3 /* newest rows; the next rows fill the pages of the rest */

/* A piece that was met. */
typedef struct Known {
  uint64_t uFast; /* bxHashOf() */
  unsigned char aHash[STORE_HASH];
  i64 iPack, iToken; /* its pack, as it was then */
  i64 iPiece;
  i64 iByte, nByte; /* where its bytes are in the arena */
  int bEnd;         /* the end of a text ended it */
  int iNext;        /* the piece that followed it the last time; 0: none */
  int iChain;       /* the next one in its bucket; 0: none */
} Known;

/* A piece that is new to the store. */
typedef struct NewPiece {
  i64 iKey, iPlace;
} NewPiece;

/* What was met: for a few rows the connection keeps it. */
struct Seen {
  char *zDb;     /* the schema */
  Known *aKnown; /* from 1 on */
  int nKnown, nKnownMost;
  i64 nKnownAlloc;
  int *aBucket, nBucket;
  Bytes arena;
  i64 nArenaMost;
  i64 iOpen, iOpenToken; /* the pack of these bytes, as it was then */
  Bytes open;
  i64 nOpenDone; /* of them, that are written */
};

typedef struct Writer {
  BxStmts *p;
  BxErr *pErr;
  const BxBodies *pBodies;
  Seen *pMet, own;
  int bFew, bNewest; /* some rows; they are the newest ones */
  int bBatch;        /* more of them, which are not there yet */
  i64 nPackMost;
  NewPiece *aNew; /* pieces that are not written yet */
  i64 nNew, nNewAlloc;
  Chunker gear;
  List **apList; /* in no order */
  i64 nList, nListAlloc;
  List *pLast;   /* the one that was asked for last */
  List *pOpen;   /* the pack that has room, or NULL; pMet has its bytes */
  i64 iOpenSaid; /* the pack that store__state calls open */
  i64 iNextPack; /* its number, if it becomes another */
  i64 iNextText, iFirstText;
  void *pZip, **ppZip; /* a context of this call, and the one that is used */
  Manifest recipe;
  Bytes scratch;
  i64 nTextByte, nPiece, nPieceByte, nKept;
  i64 nText, nByte; /* of the rows that were packed */
  i64 nLeft;        /* rows that stay as they are */
  char *zWhy;       /* why the first of them does */
} Writer;

void bxListWrite(BxStmts *p, List *pList, i64 *pnKept, BxErr *pErr) {
  Bytes bytes = {0, 0, 0};
  assert(pList->iPack > 0);
  bxListEncode(pList, &bytes, pErr);
  bxStmtExec(p,
      "INSERT INTO main.store__packs(pack, token, data) VALUES(-?1, 0, ?2)"
      " ON CONFLICT(pack) DO UPDATE SET data = excluded.data",
      pErr, "ix", pList->iPack, bytes.a, bytes.n);
  if (pErr->rc == SQLITE_OK) {
    *pnKept += bytes.n - pList->nStored;
    pList->nStored = bytes.n;
    pList->bChanged = 0;
  }
  sqlite3_free(bytes.a);
}

void bxZstdFree(void *pZip) {
  ZSTD_freeCCtx(pZip);
}

/* Compresses in blocks of STORE_BLOCK_BYTES, after each of which a reader can
** stop. What stays as it is takes four times as long, and a twelfth less room. */
static void zip(void **ppZip, const Bytes *pIn, i64 iFrom, int bQuick,
    Bytes *pOut, BxErr *pErr) {
  size_t n = (size_t)(pIn->n - iFrom), rc;
  i64 nMost = (i64)ZSTD_compressBound(n) + pIn->n / STORE_BLOCK_BYTES * 16;
  ZSTD_inBuffer in = {pIn->a + iFrom, 0, 0};
  ZSTD_outBuffer out = {0, 0, 0};
  ZSTD_CCtx *p = *ppZip;
  assert(iFrom >= 0 && iFrom <= pIn->n);
  if (p == 0) {
    p = *ppZip = bxZstdCompressor(pErr);
    if (p == 0) return;
    ZSTD_CCtx_setParameter(p, ZSTD_c_checksumFlag, 1);
    ZSTD_CCtx_setParameter(p, ZSTD_c_minMatch, 5); /* quicker, and as small */
  }
  if (!bxBytesRoom(pOut, nMost, pErr)) return;
  out.dst = pOut->a;
  out.size = (size_t)pOut->nAlloc;
  ZSTD_CCtx_reset(p, ZSTD_reset_session_only);
  ZSTD_CCtx_setParameter(p, ZSTD_c_compressionLevel, bQuick ? 3 : 9);
  rc = ZSTD_CCtx_setPledgedSrcSize(p, n);
  while (!ZSTD_isError(rc) && in.size < n) {
    in.size = n - in.size > STORE_BLOCK_BYTES ? in.size + STORE_BLOCK_BYTES : n;
    rc = ZSTD_compressStream2(
        p, &out, &in, in.size < n ? ZSTD_e_flush : ZSTD_e_end);
  }
  if (rc != 0) bxFail(pErr, SQLITE_NOMEM, "out of memory"); /* nothing else */
  pOut->n = (i64)out.pos;
}

/* Room for what follows in an open pack: a frame that decompressors skip, with its
** length in the last eight bytes. So the row keeps its size, and SQLite writes only the
** pages in which it differs. */
static void addRoom(Bytes *p, i64 n, BxErr *pErr) {
  char zLength[9];
  i64 i;
  assert(n >= ROOM_LEAST && n <= ROOM_BYTES);
  if (!bxBytesRoom(p, p->n + n, pErr)) return;
  memset(p->a + p->n, 0, (size_t)n);
  for (i = 0; i < 4; i++) {
    p->a[p->n + i] = (unsigned char)(ZSTD_MAGIC_SKIPPABLE_START >> (8 * i));
    p->a[p->n + 4 + i] = (unsigned char)((n - 8) >> (8 * i));
  }
  sqlite3_snprintf(sizeof(zLength), zLength, "%08lld", n);
  memcpy(p->a + p->n + n - 8, zLength, 8);
  p->n += n;
}

/* The length of the room at the end of a pack. */
static i64 roomLeft(const unsigned char *z, i64 n) {
  i64 nRoom = 0, i;
  for (i = n - 8; n >= ROOM_LEAST && i < n; i++) {
    if (z[i] < '0' || z[i] > '9') return 0;
    nRoom = nRoom * 10 + z[i] - '0';
  }
  return nRoom >= ROOM_LEAST && nRoom <= ROOM_BYTES && nRoom <= n &&
                 memcmp(z + n - nRoom, "P*M\x18", 4) == 0
             ? nRoom
             : 0;
}

i64 bxPackWrite(BxStmts *p, i64 iPack, void **ppZip, const Bytes *pBytes,
    i64 iFrom, int eFor, i64 *pnKept, BxErr *pErr) {
  static const char zData[] =
      "SELECT data FROM main.store__packs WHERE pack = ?1";
  static const char zInsert[] =
      "INSERT INTO main.store__packs(pack, token, data) VALUES(?1, ?2, ?3)"
      " ON CONFLICT(pack) DO UPDATE SET token = excluded.token,"
      "  data = excluded.data";
  sqlite3_stmt *pOld = bxStmt(p, zData, pErr);
  Bytes out = {0, 0, 0}, frame = {0, 0, 0};
  i64 iToken, nOld = 0, nRoom = 0;
  assert(iPack > 0 && iFrom >= 0);
  sqlite3_randomness(sizeof(iToken), &iToken);
  iToken &= INT64_MAX;
  zip(ppZip, pBytes, iFrom, eFor != PACK_SMALL, &frame, pErr);
  bxBind(pOld, pErr, "i", iPack);
  if (bxStep(pOld, pErr)) {
    const unsigned char *z = sqlite3_column_blob(pOld, 0);
    nOld = sqlite3_column_bytes(pOld, 0);
    if (z == 0 && nOld > 0) bxCheckMem(0, pErr);
    if (iFrom > 0 && pErr->rc == SQLITE_OK) {
      nRoom = roomLeft(z, nOld);
      bxBytesRoom(&out, nOld + frame.n + ROOM_BYTES, pErr);
      bxBytesAdd(&out, z, nOld - nRoom, pErr);
    }
  }
  bxReset(pOld, pErr);
  bxBytesAdd(&out, frame.a, frame.n, pErr);
  if (eFor == PACK_OPEN) {
    nRoom -= frame.n;
    addRoom(&out, nRoom >= ROOM_LEAST ? nRoom : ROOM_BYTES, pErr);
  }
  bxStmtExec(p, zInsert, pErr, "iix", iPack, iToken, out.a, out.n);
  if (pErr->rc == SQLITE_OK) *pnKept += out.n - nOld;
  sqlite3_free(out.a);
  sqlite3_free(frame.a);
  return iToken;
}

void bxStoreCount(BxStmts *p, i64 nText, i64 nTextByte, i64 nPiece,
    i64 nPieceByte, i64 nKept, BxErr *pErr) {
  bxStmtExec(p,
      "UPDATE main.store__state SET texts = texts + ?1,"
      " text_bytes = text_bytes + ?2, pieces = pieces + ?3,"
      " piece_bytes = piece_bytes + ?4, kept_bytes = kept_bytes + ?5",
      pErr, "iiiii", nText, nTextByte, nPiece, nPieceByte, nKept);
}

static List *addList(Writer *w, i64 iPack) {
  List *pList = bxZalloc(sizeof(*pList), w->pErr);
  List **ap = pList ? bxArrayAdd(&w->apList, &w->nList, &w->nListAlloc,
                          sizeof(*ap), w->pErr)
                    : 0;
  if (ap == 0) {
    sqlite3_free(pList);
    return 0;
  }
  pList->iPack = iPack;
  return *ap = pList;
}

/* The list of a pack, read if it is not held. */
static List *needList(Writer *w, i64 iPack) {
  List *pList;
  i64 i;
  assert(iPack > 0);
  if (w->pLast != 0 && w->pLast->iPack == iPack) return w->pLast;
  /* the newest lists are wanted most often */
  for (i = w->nList - 1; i >= 0; i--) {
    if (w->apList[i]->iPack == iPack) return w->pLast = w->apList[i];
  }
  pList = addList(w, iPack);
  if (pList != 0) bxListRead(w->p, iPack, pList, w->pErr);
  return w->pLast = w->pErr->rc == SQLITE_OK ? pList : 0;
}

static const char zPackToken[] =
    "SELECT token FROM main.store__packs WHERE pack = ?1";

/* The list of a piece that was met. NULL on error, and if its pack has changed. */
static List *listOf(Writer *w, const Known *p) {
  List *pList = w->pLast;
  i64 i;
  if (pList != 0 && pList->iPack == p->iPack && pList->iToken == p->iToken) {
    return pList;
  }
  for (i = w->nList - 1; i >= 0 && w->apList[i]->iPack != p->iPack; i--) {
  }
  if (i < 0 &&
      bxQueryInt(w->p, zPackToken, w->pErr, "i", p->iPack) != p->iToken) {
    return 0;
  }
  pList = needList(w, p->iPack);
  return pList != 0 && pList->iToken == p->iToken ? pList : 0;
}

/* Writes the bytes of the open pack. With bWhole nothing is added to it later, and what
** some rows have added is compressed anew, together. (A batch adds enough of it.) */
static void writeOpen(Writer *w, int bWhole) {
  Seen *pMet = w->pMet;
  int bAnew = bWhole && w->bFew && !w->bBatch, i;
  i64 iFrom = bAnew || !w->bFew ? 0 : pMet->nOpenDone, iToken;
  assert(w->pOpen == 0 || w->pMet->nOpenDone <= w->pMet->open.n);
  if (w->pOpen == 0 || (pMet->nOpenDone == pMet->open.n && !bAnew)) return;
  iToken = bxPackWrite(w->p, w->pOpen->iPack, w->ppZip, &pMet->open, iFrom,
      !w->bFew ? PACK_SMALL
      : bWhole ? PACK_QUICK
               : PACK_OPEN,
      &w->nKept, w->pErr);
  for (i = 1; i <= pMet->nKnown; i++) {
    Known *p = &pMet->aKnown[i];
    if (p->iPack == w->pOpen->iPack && p->iToken == w->pOpen->iToken) {
      p->iToken = iToken;
    }
  }
  w->pOpen->iToken = pMet->iOpenToken = iToken;
  pMet->iOpen = w->pOpen->iPack;
  pMet->nOpenDone = pMet->open.n;
}

/* Takes up the pack that an earlier call has left open, unless it is damaged. Its
** pieces that were removed stay so: their places are not used again. */
static void resumeOpen(Writer *w) {
  Seen *pMet = w->pMet;
  const Pack *pPack;
  i64 iPack = w->iOpenSaid;
  if (iPack == 0 || w->pErr->rc != SQLITE_OK) return;
  w->iOpenSaid = 0;
  if (pMet->iOpen == iPack &&
      bxQueryInt(w->p, zPackToken, w->pErr, "i", iPack) == pMet->iOpenToken) {
    w->pOpen = needList(w, iPack);
    return;
  }
  pPack = bxPackTry(w->p, iPack, STORE_ALL, w->pErr);
  if (pPack != 0) w->pOpen = needList(w, iPack);
  if (w->pOpen == 0) return;
  pMet->open.n = 0;
  bxBytesAdd(&pMet->open, pPack->bytes.a, pPack->nByte, w->pErr);
  pMet->nOpenDone = pMet->open.n;
  pMet->iOpen = iPack;
  pMet->iOpenToken = w->pOpen->iToken;
}

static int compareNew(const void *pLeft, const void *pRight) {
  i64 iLeft = ((const NewPiece *)pLeft)->iKey;
  i64 iRight = ((const NewPiece *)pRight)->iKey;
  return (iLeft > iRight) - (iLeft < iRight);
}

/* Writes the new pieces. They can be found in the table then, so this is done
** before what was met is forgotten. */
static void writePieces(Writer *w) {
  static const char zPiece[] =
      "INSERT INTO main.store__pieces VALUES(?1, ?2)"
      " ON CONFLICT DO UPDATE SET place = excluded.place";
  i64 i;
  if (w->nNew == 0) return;
  qsort(w->aNew, (size_t)w->nNew, sizeof(*w->aNew), compareNew);
  for (i = 0; i < w->nNew; i++) {
    bxStmtExec(w->p, zPiece, w->pErr, "ii", w->aNew[i].iKey, w->aNew[i].iPlace);
  }
  w->nNew = 0;
}

static void closeOpen(Writer *w) {
  assert(w->pOpen != 0);
  writeOpen(w, 1);
  bxListWrite(w->p, w->pOpen, &w->nKept, w->pErr); /* a reader needs it */
  w->pOpen = 0;
}

/* Compressing a pack as a whole takes some times what a few rows take. So a call does it
** alone when the pack is nearly full, and returns 1. */
static int closeFull(Writer *w) {
  if (!w->bFew || w->bBatch) return 0;
  resumeOpen(w);
  if (w->pOpen == 0 || w->pErr->rc != SQLITE_OK ||
      w->pMet->open.n < STORE_FEW_BYTES - STORE_PIECE_MAX) {
    return 0;
  }
  closeOpen(w);
  return 1;
}

/* Adds a piece that the store does not have to the open pack, or to a new one. */
static void newPiece(Writer *w, Known *pKnown, const unsigned char *z) {
  i64 n = pKnown->nByte;
  List *pList;
  Piece *pPiece;
  NewPiece *pNew;
  assert(pKnown->nByte > 0 && pKnown->nByte <= STORE_PIECE_MAX);
  if (w->pOpen == 0) resumeOpen(w);
  if (w->pOpen != 0 &&
      (w->pMet->open.n + n > w->nPackMost || w->pOpen->n >= MAX_PIECES)) {
    closeOpen(w);
  }
  if (w->pOpen == 0 && w->pErr->rc == SQLITE_OK) {
    w->pOpen = addList(w, w->iNextPack++);
    w->pMet->open.n = w->pMet->nOpenDone = 0;
  }
  pList = w->pOpen;
  if (w->pErr->rc != SQLITE_OK) return;
  bxBytesAdd(&w->pMet->open, z, n, w->pErr);
  pPiece = bxArrayAdd(
      &pList->a, &pList->n, &pList->nAlloc, sizeof(*pPiece), w->pErr);
  pNew = bxArrayAdd(&w->aNew, &w->nNew, &w->nNewAlloc, sizeof(*pNew), w->pErr);
  if (pNew == 0) return;
  pPiece->nByte = (uint32_t)n;
  pKnown->iPack = pList->iPack;
  pKnown->iToken = pList->iToken;
  pKnown->iPiece = pList->n - 1;
  pNew->iKey = bxChunkKey(pKnown->aHash);
  pPiece->uKey = (uint16_t)((uint64_t)pNew->iKey >> STORE_KEY_SHIFT);
  pNew->iPlace = pList->iPack << 16 | pKnown->iPiece;
  w->nPiece++;
  w->nPieceByte += n;
}

static void forgetKnown(Writer *w) {
  Seen *pMet = w->pMet;
  writePieces(w);
  pMet->nKnown = 0;
  pMet->arena.n = 0;
  if (pMet->aBucket != 0) {
    memset(pMet->aBucket, 0, (size_t)pMet->nBucket * sizeof(int));
  }
}

/* Whether a place has a piece with these bytes. 0 as well if its pack is damaged. */
static int isPieceAt(
    Writer *w, const List *pList, i64 iPiece, const unsigned char *z, i64 n) {
  const unsigned char *zPiece;
  assert(iPiece >= 0 && n > 0);
  if (iPiece >= pList->n || pList->a[iPiece].nByte != n) return 0;
  if (pList == w->pOpen) {
    i64 i;
    zPiece = w->pMet->open.a;
    for (i = 0; i < iPiece; i++) zPiece += pList->a[i].nByte;
  } else {
    const Pack *pPack = bxPackTry(w->p, pList->iPack, iPiece + 1, w->pErr);
    zPiece = pPack != 0 ? bxPackChunk(pPack, iPiece, n) : 0;
  }
  return zPiece != 0 && memcmp(zPiece, z, (size_t)n) == 0;
}

/* Takes up a piece that this call has not met. It is looked for in the store, first
** where the one before it is followed by one. Returns its index, 0 on error. */
static int meetPiece(Writer *w, uint64_t uFast, const unsigned char *z, i64 n,
    int bEnd, int iBefore) {
  Seen *pMet = w->pMet;
  int i = pMet->nKnown + 1;
  int *piBucket = &pMet->aBucket[uFast % (unsigned)pMet->nBucket];
  Known *p =
      bxArrayGrow(pMet->aKnown, i, &pMet->nKnownAlloc, sizeof(*p), w->pErr);
  const Known *pBefore = iBefore && p ? &p[iBefore] : 0;
  List *pList = pBefore ? listOf(w, pBefore) : 0;
  i64 iPiece = pList ? pBefore->iPiece + 1 : 0, iPlace = 0;
  assert(n > 0 && n <= STORE_PIECE_MAX);
  assert(pMet->nKnown < pMet->nKnownMost);
  assert(i <= pMet->nKnownMost);
  if (p == 0) return 0;
  pMet->aKnown = p;
  p += i;
  memset(p, 0, sizeof(*p));
  p->uFast = uFast;
  p->nByte = n;
  p->bEnd = bEnd;
  bxDigestTwo(z, (size_t)n, "", 0, p->aHash);
  if (pList == 0 || !isPieceAt(w, pList, iPiece, z, n)) {
    pList = 0;
    iPlace = bxQueryInt(w->p,
        "SELECT place FROM main.store__pieces WHERE \"key\" = ?1", w->pErr, "i",
        bxChunkKey(p->aHash));
    iPiece = iPlace & 0xffff;
    if (iPlace > 0) pList = needList(w, iPlace >> 16);
    if (pList != 0 && !isPieceAt(w, pList, iPiece, z, n)) pList = 0;
  }
  if (pList == 0) {
    newPiece(w, p, z);
  } else {
    p->iPack = pList->iPack;
    p->iToken = pList->iToken;
    p->iPiece = iPiece;
  }
  p->iByte = pMet->arena.n;
  bxBytesAdd(&pMet->arena, z, n, w->pErr);
  if (w->pErr->rc != SQLITE_OK) return 0;
  p->iChain = *piBucket;
  *piBucket = i;
  return pMet->nKnown = i;
}

/* The next piece of a text, after piece iBefore of it. If the bytes of the piece
** that followed iBefore the last time are here again, it is that one: a piece
** ends where its own bytes say so. */
static int nextPiece(Writer *w, const unsigned char *z, i64 n, int iBefore) {
  Seen *pMet = w->pMet;
  int i = iBefore ? pMet->aKnown[iBefore].iNext : 0, bEnd;
  const Known *p = &pMet->aKnown[i];
  uint64_t uFast;
  i64 nPiece;
  assert(n > 0 && iBefore <= w->pMet->nKnown);
  if (i != 0 && (p->nByte == n || (p->nByte < n && !p->bEnd)) &&
      memcmp(pMet->arena.a + p->iByte, z, (size_t)p->nByte) == 0 &&
      listOf(w, p) != 0) {
    return i;
  }
  nPiece = bxChunkerCut(&w->gear, z, n, &bEnd);
  uFast = bxHashOf((const char *)z, nPiece);
  for (i = pMet->aBucket[uFast % (unsigned)pMet->nBucket]; i != 0;
       i = p->iChain) {
    p = &pMet->aKnown[i];
    if (p->uFast == uFast && p->nByte == nPiece &&
        memcmp(pMet->arena.a + p->iByte, z, (size_t)nPiece) == 0 &&
        listOf(w, p) != 0) {
      break;
    }
  }
  if (i == 0) i = meetPiece(w, uFast, z, nPiece, bEnd, iBefore);
  if (i != 0 && iBefore != 0) pMet->aKnown[iBefore].iNext = i;
  return i;
}

/* Writes all that is held in memory. */
static void settle(Writer *w) {
  i64 i;
  writeOpen(w, 0);
  writePieces(w);
  for (i = 0; i < w->nList && w->pErr->rc == SQLITE_OK; i++) {
    List *p = w->apList[i];
    if (p->bChanged) bxListWrite(w->p, p, &w->nKept, w->pErr);
  }
}

/* Forgets what is held, after settle(). */
static void forgetLists(Writer *w) {
  i64 i, iOpen = w->pOpen ? w->pOpen->iPack : w->iOpenSaid;
  for (i = 0; i < w->nList; i++) {
    bxListFree(w->apList[i]);
    sqlite3_free(w->apList[i]);
  }
  w->nList = 0;
  w->pOpen = w->pLast = 0;
  w->iOpenSaid = iOpen;
}

/* Cuts a text, and makes its recipe and its hash. A text of many pieces may need
** more memory than there is for it: then what was met is forgotten on the way. */
static void cutWhole(Writer *w, const unsigned char *z, i64 n, Ref *pRef) {
  SHA256_CTX sha;
  int iBefore = 0;
  bxTextHashBegin(&sha, w->recipe.eType);
  while (n > 0 && w->pErr->rc == SQLITE_OK) {
    const Known *p;
    List *pList;
    if (w->pMet->nKnown == w->pMet->nKnownMost ||
        w->pMet->arena.n + STORE_PIECE_MAX > w->pMet->nArenaMost) {
      forgetKnown(w);
      iBefore = 0;
    }
    iBefore = nextPiece(w, z, n, iBefore);
    if (iBefore == 0) return;
    p = &w->pMet->aKnown[iBefore];
    pList = listOf(w, p);
    if (pList == 0) return; /* on error */
    SHA256_Update(&sha, p->aHash, STORE_HASH);
    bxManifestAdd(&w->recipe, p->iPack, p->iPiece, w->pErr);
    pList->a[p->iPiece].nUse++;
    pList->bChanged = 1;
    z += p->nByte;
    n -= p->nByte;
  }
  SHA256_Final(pRef->aHash, &sha);
}

/* Packs one text. */
static void packText(
    Writer *w, const unsigned char *z, i64 n, int eType, Ref *pRef) {
  static const char zText[] =
      "INSERT INTO main.store__texts VALUES(?1, ?2, ?3, ?4, ?5)";
  assert(n >= 0 && (eType == SQLITE_TEXT || eType == SQLITE_BLOB));
  if (w->pMet->arena.n + n > w->pMet->nArenaMost ||
      w->pMet->nKnown + n / STORE_PIECE_MIN + 1 > w->pMet->nKnownMost) {
    forgetKnown(w);
  }
  if (w->nList > MAX_LISTS) {
    settle(w);
    forgetLists(w);
    forgetKnown(w);
  }
  if (w->pOpen == 0) resumeOpen(w);
  w->recipe.n = 0;
  w->recipe.eType = eType;
  cutWhole(w, z, n, pRef);
  w->scratch.n = 0;
  bxManifestEncode(&w->recipe, &w->scratch, w->pErr);
  pRef->iText = w->iNextText++;
  if (w->pErr->rc != SQLITE_OK) return;
  bxStmtExec(w->p, zText, w->pErr, "iixix", pRef->iText, n, pRef->aHash,
      (i64)STORE_MARK, bxTextSum(z, n), w->scratch.a, w->scratch.n);
  w->nTextByte += n;
  w->nKept += w->scratch.n;
}

static void metClear(Seen *p) {
  sqlite3_free(p->zDb);
  sqlite3_free(p->aKnown);
  sqlite3_free(p->aBucket);
  sqlite3_free(p->arena.a);
  sqlite3_free(p->open.a);
  memset(p, 0, sizeof(*p));
}

Seen *bxSeenNew(BxErr *pErr) {
  return bxZalloc(sizeof(Seen), pErr);
}

void bxSeenFree(Seen *p) {
  if (p != 0) metClear(p);
  sqlite3_free(p);
}

/* Makes room for what is met, unless there is. */
static void metBegin(Writer *w, BxErr *pErr) {
  Seen *p = w->pMet;
  if (p == 0 || (p->zDb != 0 && strcmp(p->zDb, w->p->zDb) == 0)) return;
  bxStoreKnown(w->p, pErr);
  metClear(p);
  p->nArenaMost = w->bFew ? FEW_ARENA : ARENA_BYTES;
  p->nKnownMost = w->bFew ? FEW_PIECES : KNOWN_PIECES;
  p->nBucket = w->bFew ? FEW_BUCKETS : N_BUCKET;
  p->aKnown = bxArrayGrow(0, 0, &p->nKnownAlloc, sizeof(Known), pErr);
  p->aBucket = bxZalloc((size_t)p->nBucket * sizeof(int), pErr);
  p->zDb = bxPrintf(pErr, "%s", w->p->zDb);
}

/* Prepares to pack rows. */
static void beginWriter(
    Writer *w, BxStmts *p, int bFew, sqlite3_value *pTable, BxErr *pErr) {
  const char *zTable = bxText(pTable, "table", 1000, 1, pErr);
  sqlite3_stmt *pStmt;
  memset(w, 0, sizeof(*w));
  w->p = p;
  w->pErr = pErr;
  do {
    w->pBodies = bxStoreBodies(p, w->pBodies);
  } while (w->pBodies && zTable && strcmp(w->pBodies->zTable, zTable) != 0);
  if (w->pBodies == 0) {
    bxFail(pErr, SQLITE_ERROR,
        "NotInstalledError: schema %s has no table %s whose texts the store "
        "has; run SELECT blackbox_install(%Q)",
        p->zDb, zTable ? zTable : "", p->zDb);
  }
  w->bFew = bFew;
  w->ppZip = bFew ? bxStoreZip(p->bx, pErr) : &w->pZip;
  w->pMet = bFew ? bxStoreSeen(p->bx, pErr) : &w->own;
  w->nPackMost = bFew ? STORE_FEW_BYTES : STORE_PACK_BYTES;
  bxChunkerInit(&w->gear);
  bxStoreCount(p, 0, 0, 0, 0, 0, pErr); /* the first statement must write */
  metBegin(w, pErr);
  pStmt = bxStmt(p,
      "SELECT next, open, (SELECT -min(pack) FROM main.store__packs)"
      " FROM main.store__state",
      pErr);
  if (bxStep(pStmt, pErr)) {
    w->iNextText = w->iFirstText = sqlite3_column_int64(pStmt, 0);
    w->iOpenSaid = sqlite3_column_int64(pStmt, 1);
    w->iNextPack = sqlite3_column_int64(pStmt, 2) + 1;
  }
  bxReset(pStmt, pErr);
  if (w->iNextText <= 0 || w->iNextPack <= 0 || w->iOpenSaid < 0) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: store__state in schema %s is damaged, so nothing "
        "can be packed; SELECT payload_unpack() until nothing is left",
        p->zDb);
  }
}

/* Whether a value is worth packing, and is not packed yet. A blob of the user that
** looks like a reference is packed; a reference is not. */
static int isPackable(Bx *bx, sqlite3_value *pVal, BxErr *pErr) {
  int eType = sqlite3_value_type(pVal), bFound;
  TextRow row;
  Ref ref;
  if ((eType == SQLITE_TEXT || eType == SQLITE_BLOB) &&
      sqlite3_value_bytes(pVal) >= STORE_MIN_BYTES) {
    return 1;
  }
  if (!bxRefOf(&ref, pVal)) return 0;
  bFound = bxRefFind(bx, &ref, &row, pErr) != 0;
  bxManifestFree(&row.recipe);
  return !bFound;
}

/* Packs a value. */
static void packValue(Writer *w, sqlite3_value *pVal, BxPackedText *pOut) {
  int eType = sqlite3_value_type(pVal);
  const void *z = eType == SQLITE_TEXT ? (const void *)sqlite3_value_text(pVal)
                                       : sqlite3_value_blob(pVal);
  Ref ref;
  pOut->nRef = 0;
  pOut->nByte = sqlite3_value_bytes(pVal);
  assert(sizeof(pOut->aRef) >= STORE_REF_MAX);
  if (bxCheckMem((void *)z, w->pErr) == 0) return;
  packText(w, z, pOut->nByte, eType, &ref);
  if (w->pErr->rc != SQLITE_OK) return;
  ref.nHash = w->pBodies->bShort ? STORE_MARK : STORE_HASH;
  pOut->iText = ref.iText;
  pOut->nRef = bxRefWrite(&ref, pOut->aRef);
}

/* The same for a row of a table: announces the reference, and binds it. Returns the
** length of the text. */
static i64 packInto(Writer *w, sqlite3_value *pKey, sqlite3_value *pVal,
    sqlite3_stmt *pInto, int iParam) {
  BxPackedText text;
  packValue(w, pVal, &text);
  if (w->pErr->rc != SQLITE_OK) return 0;
  bxStmtExec(w->p, w->pBodies->zRefer, w->pErr, "vixi", pKey, text.iText,
      text.aRef, (i64)text.nRef, text.nByte);
  bxFailDb(w->pErr, w->p->bx->db,
      sqlite3_bind_blob(pInto, iParam, text.aRef, text.nRef, SQLITE_TRANSIENT));
  return text.nByte;
}

/* Packs both texts of a row that no table has yet. */
static void packPair(
    Writer *w, BxPackRows *p, sqlite3_value **apVal, int bSkip) {
  int i;
  for (i = 0; i < 2; i++) {
    if (sqlite3_value_type(apVal[i]) == SQLITE_BLOB) bSkip = 1;
  }
  p->bSkipped |= bSkip;
  for (i = 0; i < 2; i++) {
    BxPackedText *pText =
        bxArrayAdd(&p->aText, &p->nText, &p->nAlloc, sizeof(*pText), w->pErr);
    if (pText == 0) break;
    memset(pText, 0, sizeof(*pText));
    if (!bSkip && sqlite3_value_type(apVal[i]) == SQLITE_TEXT &&
        sqlite3_value_bytes(apVal[i]) >= STORE_MIN_BYTES) {
      packValue(w, apVal[i], pText);
    }
  }
}

static void packNew(Writer *w, BxPackRows *p) {
  if (p->pRows == 0) packPair(w, p, p->apVal, 0);
  while (p->pRows != 0 && bxStep(p->pRows, w->pErr)) {
    sqlite3_value *apVal[] = {sqlite3_column_value(p->pRows, p->iColumn),
        sqlite3_column_value(p->pRows, p->iColumn + 1)};
    packPair(w, p, apVal, sqlite3_column_int(p->pRows, p->iSkip));
  }
}

/* Packs the values of a row. Returns whether it did. If a trigger of somebody refuses
** that, the row stays, and the sweep finds the texts that it does not name. */
static int packRow(Writer *w, sqlite3_value *pKey) {
  sqlite3_stmt *pFrom = bxStmt(w->p, w->pBodies->zRow, w->pErr);
  int bStays = w->bNewest && w->iNextText % MOVE_EVERY != 0;
  sqlite3_stmt *pInto = bxStmt(
      w->p, bStays ? w->pBodies->zInPlace : w->pBodies->zReplace, w->pErr);
  BxErr err = {SQLITE_OK, 0};
  i64 nByte = 0, iFirst = w->iNextText;
  int i;
  assert(w->iNextText > 0 || w->pErr->rc != SQLITE_OK);
  bxBind(pFrom, w->pErr, "v", pKey);
  bxBind(pInto, w->pErr, "v", pKey);
  if (bxStep(pFrom, w->pErr)) {
    for (i = 0; i < sqlite3_column_count(pFrom); i++) {
      sqlite3_value *pVal = sqlite3_column_value(pFrom, i);
      if (w->pErr->rc != SQLITE_OK) break;
      if (isPackable(w->p->bx, pVal, w->pErr)) {
        nByte += packInto(w, pKey, pVal, pInto, i + 2);
      } else {
        bxFailDb(w->pErr, w->p->bx->db, sqlite3_bind_value(pInto, i + 2, pVal));
      }
    }
  }
  bxReset(pFrom, w->pErr);
  if (nByte == 0) {
    bxReset(pInto, w->pErr);
    return 0;
  }
  if (w->pBodies->zCount != 0) {
    bxStmtExec(w->p, w->pBodies->zCount, w->pErr, "vi", pKey, nByte);
  }
  if (w->pErr->rc == SQLITE_OK) bxStmtRun(pInto, &err);
  if (err.rc == SQLITE_OK && sqlite3_changes(w->p->bx->db) > 0) {
    w->nText += w->iNextText - iFirst;
    w->nByte += nByte;
    return 1;
  }
  if (err.rc == SQLITE_OK || bxErrMayIgnore(w->p, &err)) {
    bxStmtExec(w->p, w->pBodies->zStays, w->pErr, "vi", pKey, iFirst);
    w->nLeft++;
    if (w->zWhy == 0) {
      w->zWhy = bxPrintf(w->pErr, "%s",
          err.zMsg ? err.zMsg : "a trigger keeps the row as it is");
    }
    bxErrClear(&err);
  }
  bxErrMove(w->pErr, &err);
  return 0;
}

void bxStorePack(BxCall *p) {
  static const char zSaid[] =
      "SELECT json_object('rows', ?1, 'texts', ?2, 'rawBytes', ?3, 'keptBytes',"
      " ?4, 'left', ?5, 'why', ?6)";
  BxPackRows *pRows = sqlite3_value_pointer(p->aArg[0], BX_PACK_ROWS);
  BxStmts *pStore;
  sqlite3_stmt *pKeys = 0;
  Writer w;
  i64 nRow = 0;
  int bRows;
  bxRefuseInTransaction(p);
  pStore = bxStoreSchema(p->bx, bxArg(p, 1), &p->err);
  if (pStore == 0) return;
  beginWriter(&w, pStore, bxArg(p, 2) != 0, bxArg(p, 3), &p->err);
  w.bNewest = bxArg(p, 2) != 0 && sqlite3_value_int(p->aArg[2]) == 2;
  w.bBatch = pRows != 0 && !w.bNewest;
  bRows = !closeFull(&w);
  if (bRows && pRows != 0) {
    packNew(&w, pRows);
    bRows = 0;
  }
  if (bRows) {
    pKeys = bxStmt(pStore, "SELECT value FROM json_each(?1)", &p->err);
    bxBind(pKeys, &p->err, "v", p->aArg[0]);
  }
  while (bRows && bxStep(pKeys, &p->err)) {
    nRow += packRow(&w, sqlite3_column_value(pKeys, 0));
  }
  bxReset(pKeys, &p->err);
  if (bxErrContains(&p->err, "malformed JSON")) {
    bxErrPrefix(&p->err, "ValidationError: keys must be a JSON array: ");
  }
  settle(&w);
  bxStmtExec(pStore,
      "UPDATE main.store__state SET texts = texts + ?1 - next, next = ?1,"
      " open = ?2, text_bytes = text_bytes + ?3, pieces = pieces + ?4,"
      " piece_bytes = piece_bytes + ?5, kept_bytes = kept_bytes + ?6",
      &p->err, "iiiiii", w.iNextText, w.pOpen ? w.pOpen->iPack : w.iOpenSaid,
      w.nTextByte, w.nPiece, w.nPieceByte, w.nKept);
  if (p->err.rc == SQLITE_OK && bRows) {
    pKeys = bxStmt(pStore, zSaid, &p->err);
    bxBind(pKeys, &p->err, "iiiiit", nRow, w.nText, w.nByte, w.nKept, w.nLeft,
        w.zWhy);
    if (bxStep(pKeys, &p->err))
      bxReturnJson(p, bxColumnCopy(pKeys, 0, &p->err));
    bxReset(pKeys, &p->err);
  }
  sqlite3_free(w.zWhy);
  forgetLists(&w);
  if (w.pMet != 0 && (w.pMet == &w.own || p->err.rc != SQLITE_OK)) {
    metClear(w.pMet);
  }
  sqlite3_free(w.aNew);
  sqlite3_free(w.apList);
  sqlite3_free(w.scratch.a);
  sqlite3_free(w.recipe.a);
  bxZstdFree(w.pZip);
}
