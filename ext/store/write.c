/*
** write.c: store_pack(view, keys[, schema]): packs the values of rows of a view that
** store_users names. keys is a JSON array of the keys of the rows. Each value is
** replaced by a reference, through an INSERT into the view. Returns JSON: rows and
** texts that were packed, their bytes, and the bytes that the store grew by.
**
** A call remembers the pieces that it has met, with their bytes. Most of a text is
** usually a part of the one before, and then comparing the bytes is all that is
** done for it: neither cutting nor hashing. What is new to the call is hashed, looked
** up in store__pieces, and compared with the bytes of the piece that was found; what
** is new to the store is added to the pack that has room.
**
** The lists of the packs are changed in memory and written at the end, or when too
** many are held (settle()). New pieces are written in the order of their keys when
** what was met is forgotten, and texts when the rows that refer to them are.
*/
#include "store.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES (12 << 20) /* most bytes that are remembered */
#define KNOWN_PIECES 16384     /* most pieces */
#define MAX_LISTS 1024         /* lists that are held at most */
#define N_BUCKET 32768
#define MAX_PIECES 4096 /* of a pack, with those that were removed from it */

/* A piece that this call has met. */
typedef struct Known {
  uint64_t uFast; /* bxHashOf() */
  unsigned char aHash[STORE_HASH];
  List *pList;
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

typedef struct Writer {
  BxStmts *p;
  BxErr *pErr;
  sqlite3_stmt *pFind;
  Many texts;     /* rows of store__texts */
  Many pieces;    /* rows of store__pieces */
  NewPiece *aNew; /* pieces that are not written yet */
  i64 nNew, nNewAlloc;
  Gear gear;
  Known *aKnown; /* from 1 on */
  int nKnown;
  int *aBucket;
  unsigned char *aArena;
  i64 nArena, nArenaAlloc;
  List **apList; /* in no order; found by aListBucket */
  i64 nList, nListAlloc;
  List *pOpen; /* the pack that has room, or NULL */
  Bytes open;  /* its bytes */
  int bOpenChanged;
  i64 iOpenSaid; /* the pack that store__state calls open */
  i64 iNextPack; /* its number, if it becomes another */
  i64 iNextText, iFirstText;
  void *pZip;
  Recipe recipe;
  Bytes scratch;
  i64 nTextByte, nPiece, nPieceByte, nKept;
} Writer;

/*--------------------------------------------------------------- rows ----*/

void bxListWrite(BxStmts *p, List *pList, i64 *pnKept, BxErr *pErr) {
  static const char zSql[] =
      "INSERT INTO main.store__uses(pack, list) VALUES(?1, ?2)"
      " ON CONFLICT(pack) DO UPDATE SET list = excluded.list";
  Bytes bytes = {0, 0, 0};
  sqlite3_stmt *pStmt = bxStmt(p, zSql, pErr);
  bxListEncode(pList, &bytes, pErr);
  bxBind(pStmt, pErr, "ix", pList->iPack, bytes.a, bytes.n);
  bxStoreRun(p, pStmt, pErr);
  if (pErr->rc == SQLITE_OK) {
    *pnKept += bytes.n - pList->nStored;
    pList->nStored = bytes.n;
    pList->bChanged = 0;
  }
  sqlite3_free(bytes.a);
}

void bxPackWrite(BxStmts *p, i64 iPack, void *pZip, const unsigned char *z,
    i64 n, i64 *pnKept, BxErr *pErr) {
  static const char zOld[] =
      "SELECT length(data) FROM main.store__packs WHERE pack = ?1";
  static const char zSql[] =
      "INSERT INTO main.store__packs(pack, token, data)"
      " VALUES(?1, abs(random() / 2), ?2)"
      " ON CONFLICT(pack) DO UPDATE SET token = excluded.token,"
      "  data = excluded.data";
  Bytes bytes = {0, 0, 0};
  i64 nOld = bxAsk(p, zOld, pErr, "i", iPack);
  sqlite3_stmt *pStmt = bxStmt(p, zSql, pErr);
  bxZip(pZip, z, n, &bytes, pErr);
  bxBind(pStmt, pErr, "ix", iPack, bytes.a, bytes.n);
  bxStoreRun(p, pStmt, pErr);
  if (pErr->rc == SQLITE_OK) *pnKept += bytes.n - nOld;
  sqlite3_free(bytes.a);
}

void bxStoreCount(BxStmts *p, i64 nText, i64 nTextByte, i64 nPiece,
    i64 nPieceByte, i64 nKept, BxErr *pErr) {
  static const char zSql[] =
      "UPDATE main.store__state SET texts = texts + ?1,"
      " text_bytes = text_bytes + ?2, pieces = pieces + ?3,"
      " piece_bytes = piece_bytes + ?4, kept_bytes = kept_bytes + ?5";
  sqlite3_stmt *pStmt = bxStmt(p, zSql, pErr);
  bxBind(pStmt, pErr, "iiiii", nText, nTextByte, nPiece, nPieceByte, nKept);
  bxStoreRun(p, pStmt, pErr);
}

/*-------------------------------------------------------------- lists ----*/

static List *findList(const Writer *w, i64 iPack) {
  i64 i;
  /* the newest lists are wanted most often */
  for (i = w->nList - 1; i >= 0; i--) {
    if (w->apList[i]->iPack == iPack) return w->apList[i];
  }
  return 0;
}

static List *addList(Writer *w, i64 iPack) {
  List **ap =
      bxGrow(w->apList, w->nList, &w->nListAlloc, sizeof(*w->apList), w->pErr);
  List *pList;
  if (ap == 0) return 0;
  w->apList = ap;
  pList = bxNew(sizeof(*pList), w->pErr);
  if (pList == 0) return 0;
  pList->iPack = iPack;
  ap[w->nList++] = pList;
  return pList;
}

/* The list of a pack, read if it is not held. */
static List *needList(Writer *w, i64 iPack) {
  List *pList = findList(w, iPack);
  if (pList != 0 || w->pErr->rc != SQLITE_OK) return pList;
  pList = addList(w, iPack);
  if (pList != 0) bxListRead(w->p, iPack, pList, w->pErr);
  return w->pErr->rc == SQLITE_OK ? pList : 0;
}

/*------------------------------------------------------- the open pack ----*/

/* Writes the bytes of the open pack. */
static void writeOpen(Writer *w) {
  if (w->pOpen == 0 || !w->bOpenChanged) return;
  if (w->pZip == 0) w->pZip = bxZipContext(w->pErr);
  bxPackWrite(
      w->p, w->pOpen->iPack, w->pZip, w->open.a, w->open.n, &w->nKept, w->pErr);
  w->bOpenChanged = 0;
}

/* Takes up the pack that an earlier call has left open, unless it is damaged. Its
** pieces that were removed stay so: their places are not used again. */
static void resumeOpen(Writer *w) {
  const Pack *pPack;
  if (w->iOpenSaid == 0 || w->pErr->rc != SQLITE_OK) return;
  pPack = bxPackTry(w->p, w->iOpenSaid, STORE_ALL, w->pErr);
  if (pPack != 0) w->pOpen = needList(w, w->iOpenSaid);
  w->iOpenSaid = 0;
  if (w->pOpen == 0) return;
  w->open.n = 0;
  bxBytesAdd(&w->open, pPack->aByte, pPack->nByte, w->pErr);
}

/* Makes sure that the open pack has room for n bytes. */
static void needRoom(Writer *w, i64 n) {
  if (w->pOpen == 0) resumeOpen(w);
  if (w->pOpen != 0 &&
      (w->open.n + n > STORE_PACK_BYTES || w->pOpen->n >= MAX_PIECES)) {
    writeOpen(w);
    bxListWrite(w->p, w->pOpen, &w->nKept, w->pErr); /* a reader needs it */
    w->pOpen = 0;
  }
  if (w->pOpen == 0 && w->pErr->rc == SQLITE_OK) {
    w->pOpen = addList(w, w->iNextPack++);
    w->open.n = 0;
  }
}

static void addNew(Writer *w, i64 iKey, i64 iPlace) {
  NewPiece *a = bxGrow(w->aNew, w->nNew, &w->nNewAlloc, sizeof(*a), w->pErr);
  if (a == 0) return;
  w->aNew = a;
  a[w->nNew].iKey = iKey;
  a[w->nNew++].iPlace = iPlace;
}

static int compareNew(const void *pLeft, const void *pRight) {
  i64 iLeft = ((const NewPiece *)pLeft)->iKey;
  i64 iRight = ((const NewPiece *)pRight)->iKey;
  return (iLeft > iRight) - (iLeft < iRight);
}

/* Writes the new pieces. They can be found in the table then, so this is done
** before what was met is forgotten. */
static void writePieces(Writer *w) {
  Many *p = &w->pieces;
  i64 i;
  if (w->nNew == 0) return;
  qsort(w->aNew, (size_t)w->nNew, sizeof(*w->aNew), compareNew);
  for (i = 0; i < w->nNew && w->pErr->rc == SQLITE_OK; i++) {
    int rc = sqlite3_bind_int64(p->pStmt, bxManyParam(p, 0), w->aNew[i].iKey);
    if (rc == SQLITE_OK) {
      rc = sqlite3_bind_int64(p->pStmt, bxManyParam(p, 1), w->aNew[i].iPlace);
    }
    bxFailDb(w->pErr, w->p->bx->db, rc);
    if (++p->nWait == p->nMost) bxManyRun(p, 1, w->pErr);
  }
  bxManyRun(p, 1, w->pErr);
  w->nNew = 0;
}

/* Adds a piece that the store does not have. */
static void newPiece(Writer *w, Known *pKnown, const unsigned char *z) {
  List *pList;
  Piece *a;
  needRoom(w, pKnown->nByte);
  pList = w->pOpen;
  if (w->pErr->rc != SQLITE_OK) return;
  a = bxGrow(pList->a, pList->n, &pList->nAlloc, sizeof(*a), w->pErr);
  bxBytesAdd(&w->open, z, pKnown->nByte, w->pErr);
  if (a == 0) return;
  pList->a = a;
  a += pList->n;
  a->nByte = (uint32_t)pKnown->nByte;
  a->nUse = 0;
  pKnown->pList = pList;
  pKnown->iPiece = pList->n++;
  w->bOpenChanged = 1;
  w->nPiece++;
  w->nPieceByte += pKnown->nByte;
  addNew(w, bxPieceKey(pKnown->aHash), pList->iPack << 16 | pKnown->iPiece);
}

/*------------------------------------------------------- known pieces ----*/

static void forgetKnown(Writer *w) {
  writePieces(w);
  w->nKnown = 0;
  w->nArena = 0;
  if (w->aBucket != 0) memset(w->aBucket, 0, N_BUCKET * sizeof(int));
}

static void beginKnown(Writer *w) {
  w->aKnown = bxNew((KNOWN_PIECES + 1) * sizeof(Known), w->pErr);
  w->aBucket = bxNew(N_BUCKET * sizeof(int), w->pErr);
}

/* Makes room for the bytes of a piece. */
static void needArena(Writer *w, i64 n) {
  unsigned char *a;
  i64 nNew = w->nArenaAlloc ? w->nArenaAlloc * 2 : 1 << 18;
  if (w->nArena + n <= w->nArenaAlloc) return;
  a = bxGot(sqlite3_realloc64(w->aArena, (sqlite3_uint64)nNew), w->pErr);
  if (a == 0) return;
  w->aArena = a;
  w->nArenaAlloc = nNew;
}

/* Finds a piece by its bytes. 0 if it was not met. */
static int findKnown(
    const Writer *w, uint64_t uFast, const unsigned char *z, i64 n) {
  int i = w->aBucket[uFast % N_BUCKET];
  while (i != 0) {
    const Known *p = &w->aKnown[i];
    if (p->uFast == uFast && p->nByte == n &&
        memcmp(w->aArena + p->iByte, z, (size_t)n) == 0) {
      return i;
    }
    i = p->iChain;
  }
  return 0;
}

/* The bytes of a piece; NULL if it cannot be read. */
static const unsigned char *pieceBytes(
    Writer *w, const List *pList, i64 iPiece) {
  const Pack *pPack;
  i64 i, iAt = 0;
  if (pList == w->pOpen) {
    for (i = 0; i < iPiece; i++) iAt += pList->a[i].nByte;
    return w->open.a + iAt;
  }
  pPack = bxPackTry(w->p, pList->iPack, iPiece + 1, w->pErr);
  return pPack != 0 ? bxPackPiece(pPack, iPiece, pList->a[iPiece].nByte) : 0;
}

/* Whether a place has a piece with these bytes. */
static int isPieceAt(
    Writer *w, const List *pList, i64 iPiece, const unsigned char *z, i64 n) {
  const unsigned char *zPiece;
  if (iPiece >= pList->n || pList->a[iPiece].nByte != n) return 0;
  zPiece = pieceBytes(w, pList, iPiece);
  return zPiece != 0 && memcmp(zPiece, z, (size_t)n) == 0;
}

/* Finds a piece in the store, first where the one before it is followed by one.
** Returns 0 if the store does not have it, or only in a pack that is damaged. */
static int findStored(
    Writer *w, Known *pKnown, const Known *pBefore, const unsigned char *z) {
  List *pList;
  i64 iPlace = 0, n = pKnown->nByte;
  if (pBefore != 0 && isPieceAt(w, pBefore->pList, pBefore->iPiece + 1, z, n)) {
    pKnown->pList = pBefore->pList;
    pKnown->iPiece = pBefore->iPiece + 1;
    return 1;
  }
  bxBind(w->pFind, w->pErr, "i", bxPieceKey(pKnown->aHash));
  if (bxRow(w->pFind, w->pErr)) iPlace = sqlite3_column_int64(w->pFind, 0);
  bxDone(w->pFind, w->pErr);
  if (iPlace <= 0) return 0;
  pList = needList(w, iPlace >> 16);
  if (pList == 0 || !isPieceAt(w, pList, iPlace & 0xffff, z, n)) return 0;
  pKnown->pList = pList;
  pKnown->iPiece = iPlace & 0xffff;
  return 1;
}

/* Takes up a piece that this call has not met. Returns its index, 0 on error. */
static int meetPiece(Writer *w, uint64_t uFast, const unsigned char *z, i64 n,
    int bEnd, int iBefore) {
  int i = w->nKnown + 1, *piBucket = &w->aBucket[uFast % N_BUCKET];
  Known *p = &w->aKnown[i];
  assert(i <= KNOWN_PIECES);
  needArena(w, n);
  if (w->pErr->rc != SQLITE_OK) return 0;
  memset(p, 0, sizeof(*p));
  p->uFast = uFast;
  p->nByte = n;
  p->bEnd = bEnd;
  bxPieceHash(z, n, p->aHash);
  if (!findStored(w, p, iBefore ? &w->aKnown[iBefore] : 0, z)) {
    newPiece(w, p, z);
  }
  if (w->pErr->rc != SQLITE_OK) return 0;
  memcpy(w->aArena + w->nArena, z, (size_t)n);
  p->iByte = w->nArena;
  w->nArena += n;
  p->iChain = *piBucket;
  *piBucket = i;
  return w->nKnown = i;
}

/* The next piece of a text, after piece iBefore of it. If the bytes of the piece
** that followed iBefore the last time are here again, it is that one: a piece
** ends where its own bytes say so. */
static int nextPiece(Writer *w, const unsigned char *z, i64 n, int iBefore) {
  int iNext = iBefore ? w->aKnown[iBefore].iNext : 0, bEnd;
  uint64_t uFast;
  i64 nPiece;
  if (iNext != 0) {
    const Known *p = &w->aKnown[iNext];
    if ((p->nByte == n || (p->nByte < n && !p->bEnd)) &&
        memcmp(w->aArena + p->iByte, z, (size_t)p->nByte) == 0) {
      return iNext;
    }
  }
  nPiece = bxGearCut(&w->gear, z, n, &bEnd);
  uFast = bxHashOf((const char *)z, nPiece);
  iNext = findKnown(w, uFast, z, nPiece);
  if (iNext == 0) iNext = meetPiece(w, uFast, z, nPiece, bEnd, iBefore);
  if (iNext != 0 && iBefore != 0) w->aKnown[iBefore].iNext = iNext;
  return iNext;
}

/*-------------------------------------------------------------- texts ----*/

/* Writes all that is held in memory. */
static void settle(Writer *w) {
  i64 i;
  writeOpen(w);
  writePieces(w);
  bxManyRun(&w->texts, 1, w->pErr);
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
  w->pOpen = 0;
  w->iOpenSaid = iOpen;
  forgetKnown(w);
}

/* Whether a text of n bytes could exceed what may be remembered. */
static void needMemory(Writer *w, i64 n) {
  i64 nPiece = n / STORE_PIECE_MIN + 1;
  if (w->nArena + n > ARENA_BYTES || w->nKnown + nPiece > KNOWN_PIECES) {
    forgetKnown(w);
  }
  if (w->nList > MAX_LISTS) {
    settle(w);
    forgetLists(w);
  }
}

/* Cuts a text, and makes its recipe and its hash. A text of many pieces may need
** more memory than there is for it: then what was met is forgotten on the way. */
static void cutWhole(Writer *w, const unsigned char *z, i64 n, Ref *pRef) {
  SHA256_CTX sha;
  int iBefore = 0;
  bxTextHashBegin(&sha, w->recipe.eType);
  while (n > 0 && w->pErr->rc == SQLITE_OK) {
    Known *p;
    if (w->nKnown == KNOWN_PIECES ||
        w->nArena + STORE_PIECE_MAX > ARENA_BYTES) {
      forgetKnown(w);
      iBefore = 0;
    }
    iBefore = nextPiece(w, z, n, iBefore);
    if (iBefore == 0) return;
    p = &w->aKnown[iBefore];
    bxTextHashAdd(&sha, p->aHash);
    bxRecipeAdd(&w->recipe, p->pList->iPack, p->iPiece, w->pErr);
    p->pList->a[p->iPiece].nUse++;
    p->pList->bChanged = 1;
    z += p->nByte;
    n -= p->nByte;
  }
  bxTextHashEnd(&sha, pRef->aHash);
}

/* The place that the next new piece gets at the earliest. */
static i64 freshPlace(const Writer *w) {
  if (w->pOpen != 0) return w->pOpen->iPack << 16 | w->pOpen->n;
  return (w->iOpenSaid != 0 ? w->iOpenSaid : w->iNextPack) << 16;
}

/* Adds a row to those of store__texts that wait. */
static void addTextRow(
    Writer *w, const unsigned char *z, i64 n, i64 iFresh, const Ref *pRef) {
  Many *p = &w->texts;
  const i64 aiVal[] = {pRef->iText, n, 0, bxTextSum(z, n), iFresh};
  int i, rc = SQLITE_OK;
  for (i = 0; i < 5 && rc == SQLITE_OK; i++) {
    rc = sqlite3_bind_int64(p->pStmt, bxManyParam(p, i), aiVal[i]);
  }
  if (rc == SQLITE_OK) {
    rc = sqlite3_bind_blob(
        p->pStmt, bxManyParam(p, 2), pRef->aHash, STORE_MARK, SQLITE_TRANSIENT);
  }
  if (rc == SQLITE_OK) {
    rc = sqlite3_bind_blob64(p->pStmt, bxManyParam(p, 5), w->scratch.a,
        (sqlite3_uint64)w->scratch.n, SQLITE_TRANSIENT);
  }
  bxFailDb(w->pErr, w->p->bx->db, rc);
  if (++p->nWait == p->nMost) bxManyRun(p, 1, w->pErr);
}

/* Packs one text. */
static void packText(
    Writer *w, const unsigned char *z, i64 n, int eType, Ref *pRef) {
  i64 iFresh;
  needMemory(w, n);
  if (w->pOpen == 0) resumeOpen(w);
  iFresh = freshPlace(w);
  w->recipe.n = 0;
  w->recipe.eType = eType;
  cutWhole(w, z, n, pRef);
  w->scratch.n = 0;
  bxRecipeEncode(&w->recipe, &w->scratch, w->pErr);
  pRef->iText = w->iNextText++;
  if (w->pErr->rc != SQLITE_OK) return;
  addTextRow(w, z, n, iFresh, pRef);
  w->nTextByte += n;
  w->nKept += w->scratch.n;
}

/*------------------------------------------------------------- writer ----*/

static void beginWriter(Writer *w, BxStmts *p, BxErr *pErr) {
  static const char zFindText[] =
      "SELECT place FROM main.store__pieces WHERE \"key\" = ?1";
  static const char zState[] =
      "SELECT next, open, (SELECT max(pack) FROM main.store__uses)"
      " FROM main.store__state";
  sqlite3_stmt *pStmt;
  memset(w, 0, sizeof(*w));
  w->p = p;
  w->pErr = pErr;
  bxGearInit(&w->gear);
  beginKnown(w);
  bxStoreCount(p, 0, 0, 0, 0, 0, pErr); /* the first statement must write */
  bxManyPrepare(&w->texts, p, "store__texts", 6, "", pErr);
  bxManyPrepare(&w->pieces, p, "store__pieces", 2,
      "ON CONFLICT DO UPDATE SET place = excluded.place", pErr);
  w->pFind = bxStmt(p, zFindText, pErr);
  pStmt = bxStmt(p, zState, pErr);
  if (bxRow(pStmt, pErr)) {
    w->iNextText = w->iFirstText = sqlite3_column_int64(pStmt, 0);
    w->iOpenSaid = sqlite3_column_int64(pStmt, 1);
    w->iNextPack = sqlite3_column_int64(pStmt, 2) + 1;
  }
  bxDone(pStmt, pErr);
  if (w->iNextText <= 0 || w->iNextPack <= 0 || w->iOpenSaid < 0) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: store__state in schema %s is damaged, so nothing "
        "can be packed; SELECT payload_unpack() until nothing is left",
        p->zDb);
  }
}

static void endWriter(Writer *w) {
  static const char zSql[] =
      "UPDATE main.store__state SET next = ?1, open = ?2";
  sqlite3_stmt *pStmt;
  i64 iOpen;
  settle(w);
  iOpen = w->pOpen ? w->pOpen->iPack : w->iOpenSaid;
  pStmt = bxStmt(w->p, zSql, w->pErr);
  bxBind(pStmt, w->pErr, "ii", w->iNextText, iOpen);
  bxStoreRun(w->p, pStmt, w->pErr);
  bxStoreCount(w->p, w->iNextText - w->iFirstText, w->nTextByte, w->nPiece,
      w->nPieceByte, w->nKept, w->pErr);
}

static void freeWriter(Writer *w) {
  forgetLists(w);
  bxManyFree(&w->texts);
  bxManyFree(&w->pieces);
  sqlite3_free(w->aNew);
  sqlite3_free(w->apList);
  sqlite3_free(w->aKnown);
  sqlite3_free(w->aBucket);
  sqlite3_free(w->aArena);
  sqlite3_free(w->open.a);
  sqlite3_free(w->scratch.a);
  sqlite3_free(w->recipe.a);
  bxZipFree(w->pZip);
}

/*----------------------------------------------------------- function ----*/

/* Whether a value is worth packing, and is not packed yet. */
static int isPackable(Bx *bx, sqlite3_value *pVal, BxErr *pErr) {
  int eType = sqlite3_value_type(pVal);
  TextRow row;
  Ref ref;
  int bFound;
  if ((eType != SQLITE_TEXT && eType != SQLITE_BLOB) ||
      sqlite3_value_bytes(pVal) < STORE_MIN_BYTES) {
    if (!bxRefOf(&ref, pVal)) return 0;
    /* A blob of the user that looks like a reference is packed; a reference is
    ** not. */
    bFound = bxRefFind(bx, &ref, &row, pErr) != 0;
    bxTextRowFree(&row);
    return !bFound;
  }
  return 1;
}

/* Rows are written when they have so many bytes, so that their pages are still in
** the cache of SQLite. */
#define MANY_BYTES 500000

typedef struct Rows {
  sqlite3_stmt *pFrom; /* the rows of the view */
  Many into;           /* those with references */
  i64 nWritten;        /* bytes of the texts of those that are written */
} Rows;

/* Writes the rows that wait, after their texts. */
static void writeReferences(Writer *w, Rows *p) {
  bxManyRun(&w->texts, 1, w->pErr);
  bxManyRun(&p->into, 0, w->pErr);
  p->nWritten = w->nTextByte;
}

/* Packs a value, and binds its reference. */
static void packValue(Writer *w, Rows *p, sqlite3_value *pVal, int iParam) {
  int eType = sqlite3_value_type(pVal);
  const void *z = eType == SQLITE_TEXT ? (const void *)sqlite3_value_text(pVal)
                                       : sqlite3_value_blob(pVal);
  unsigned char aRef[STORE_REF_MAX];
  Ref ref;
  if (bxGot((void *)z, w->pErr) == 0) return;
  packText(w, z, sqlite3_value_bytes(pVal), eType, &ref);
  if (w->pErr->rc != SQLITE_OK) return;
  bxFailDb(w->pErr, w->p->bx->db,
      sqlite3_bind_blob(p->into.pStmt, iParam, aRef, bxRefWrite(&ref, aRef),
          SQLITE_TRANSIENT));
}

/* Packs the values of the row on which pFrom stands. Returns whether there was
** anything to pack. If there was not, the next row takes its place. */
static int packRow(Writer *w, Rows *p) {
  int i, bAny = 0;
  for (i = 0; i < p->into.nColumn && w->pErr->rc == SQLITE_OK; i++) {
    sqlite3_value *pVal = sqlite3_column_value(p->pFrom, i);
    int iParam = bxManyParam(&p->into, i);
    if (i > 0 && isPackable(w->p->bx, pVal, w->pErr)) {
      packValue(w, p, pVal, iParam);
      bAny = 1;
    } else {
      bxFailDb(w->pErr, w->p->bx->db,
          sqlite3_bind_value(p->into.pStmt, iParam, pVal));
    }
  }
  p->into.nWait += bAny;
  if (p->into.nWait == p->into.nMost ||
      w->nTextByte - p->nWritten > MANY_BYTES) {
    writeReferences(w, p);
  }
  return bAny;
}

/* Prepares both statements for a view that is in store_users. */
static void prepareView(
    BxStmts *p, const char *zView, Rows *pOut, BxErr *pErr) {
  char *zSql;
  memset(pOut, 0, sizeof(*pOut));
  if (!bxAskOnce(p, "SELECT 1 FROM main.store_users WHERE bodies = ?1", pErr,
          "t", zView)) {
    bxFail(pErr, SQLITE_ERROR,
        "NotFoundError: %Q is not a view in store_users of schema %s; INSERT "
        "INTO store_users(bodies, texts) first",
        zView, p->zDb);
    return;
  }
  zSql = bxPrintf(pErr,
      "SELECT v.* FROM json_each(?1) AS j CROSS JOIN \"%w\".\"%w\" AS v"
      " WHERE v.key = j.value",
      p->zDb, zView);
  if (zSql != 0) pOut->pFrom = bxPlain(p->bx->db, zSql, pErr);
  sqlite3_free(zSql);
  if (pOut->pFrom == 0) return;
  bxManyPrepare(
      &pOut->into, p, zView, sqlite3_column_count(pOut->pFrom), "", pErr);
}

void bxStorePack(BxCall *p) {
  BxStmts *pStore;
  const char *zView = bxText(p->aArg[0], "view", 1000, 0, &p->err);
  Rows rows;
  Writer w;
  i64 nRow = 0;
  bxRefuseInside(p);
  pStore = bxStoreHome(p->bx, bxArg(p, 2), &p->err);
  if (pStore == 0) return;
  beginWriter(&w, pStore, &p->err);
  prepareView(pStore, zView, &rows, &p->err);
  bxBind(rows.pFrom, &p->err, "v", p->aArg[1]);
  while (bxRow(rows.pFrom, &p->err)) nRow += packRow(&w, &rows);
  writeReferences(&w, &rows);
  sqlite3_finalize(rows.pFrom);
  bxManyFree(&rows.into);
  endWriter(&w);
  if (p->err.rc == SQLITE_OK) {
    bxReturnJson(
        p, sqlite3_mprintf("{\"rows\":%lld,\"texts\":%lld,\"rawBytes\":%lld,"
                           "\"keptBytes\":%lld}",
               nRow, w.iNextText - w.iFirstText, w.nTextByte, w.nKept));
  }
  freeWriter(&w);
}
