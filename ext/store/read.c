/*
** read.c: from a reference to its text: store_text(), and the packs that were read
** last.
**
** A connection keeps the bytes of the last READER_PACKS packs that it has read. A
** pack is read again when its token in store__packs has changed, so that what was
** kept is right after a rollback, too.
**
** A pack is decompressed up to the last piece that is wanted, block by block. When
** more of it is wanted later, it is decompressed once more, and then all of it.
**
** Each text has a checksum. If it is wrong, its packs are read to their ends, where
** zstd tests a checksum of each pack, so that the error names the one that is
** damaged. Whether a text has the hash of its reference is tested by
** blackbox_check().
*/
#include "store.h"
#include "../core/vtable.h"
SQLITE_EXTENSION_INIT3

#define ZSTD_STATIC_LINKING_ONLY
#include <string.h>
#include <zstd.h>

#define READER_PACKS 16

typedef struct PackReader {
  ZSTD_DCtx *pUnzip;
  Pack a[READER_PACKS];
  i64 iClock;
  void *pZip; /* bxStoreZip() */
  Seen *pMet;
} PackReader;

static void freeReader(void *pArg) {
  PackReader *p = pArg;
  int i;
  for (i = 0; i < READER_PACKS; i++) {
    sqlite3_free(p->a[i].aAt);
    sqlite3_free(p->a[i].bytes.a);
    sqlite3_free(p->a[i].zDb);
  }
  ZSTD_freeDCtx(p->pUnzip);
  ZSTD_freeCCtx(p->pZip);
  bxSeenFree(p->pMet);
  sqlite3_free(p);
}

static PackReader *readerOf(Bx *bx, BxErr *pErr) {
  BxDomainData *pSlot = bxDomainData(bx, "store");
  if (pSlot->p == 0) pSlot->p = bxZalloc(sizeof(PackReader), pErr);
  if (pSlot->p != 0) pSlot->xFree = freeReader;
  return pSlot->p;
}

void **bxStoreZip(Bx *bx, BxErr *pErr) {
  PackReader *p = readerOf(bx, pErr);
  return p != 0 ? &p->pZip : 0;
}

Seen *bxStoreSeen(Bx *bx, BxErr *pErr) {
  PackReader *p = readerOf(bx, pErr);
  if (p != 0 && p->pMet == 0) p->pMet = bxSeenNew(pErr);
  return p != 0 ? p->pMet : 0;
}

const BxBodies *bxStoreBodies(BxStmts *p, const BxBodies *pLast) {
  const BxDomain *pDomain = p->bx->aDomain, *pEnd = pDomain + p->bx->nDomain;
  int bAfter = pLast == 0;
  for (; pDomain < pEnd; pDomain++) {
    const BxBodies *pBodies = pDomain->pBodies;
    if (bAfter && pBodies != 0 &&
        bxTableExists(p->bx, p->zDb, pDomain->zTable)) {
      return pBodies;
    }
    if (pBodies != 0 && pBodies == pLast) bAfter = 1;
  }
  return 0;
}

BxStmts *bxStoreSchema(Bx *bx, sqlite3_value *pDb, BxErr *pErr) {
  const char *zDb;
  if (pDb == 0) return bxDomainSchema(bx, "store", pErr);
  zDb = bxText(pDb, "schema", 1000, 0, pErr);
  if (zDb == 0) return 0;
  bxRefuseOldFile(bx, zDb, pErr);
  if (pErr->rc == SQLITE_OK && !bxTableExists(bx, zDb, "store__state") &&
      !bxSchemaHasDomain(bx, zDb, "store", pErr)) {
    bxFail(pErr, SQLITE_ERROR,
        "NotInstalledError: schema %s has no body store; run SELECT "
        "blackbox_install(%Q)",
        zDb, zDb);
  }
  return bxSchema(bx, zDb, pErr);
}

void bxStoreKnown(BxStmts *p, BxErr *pErr) {
  static const char zFormat[] =
      "SELECT format FROM main.blackbox_domains WHERE domain = 'store'";
  Bx *bx = p->bx;
  if (bxQueryInt(p, zFormat, pErr, "") <= BX_FORMAT) return;
  bxRequireKnownFormat(bx, pErr); /* that of the caller is told first */
  bxInstalledFormat(
      p, &bx->aDomain[bxDomainData(bx, "store") - bx->aSlot], pErr);
}

static void failPack(BxStmts *p, i64 iPack, const char *zWhy, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  char *zKeys;
  if (pErr->rc != SQLITE_OK) return;
  zKeys = bxStoreKeysOfPack(p, iPack, &err);
  if (err.rc == SQLITE_NOMEM || err.rc == SQLITE_INTERRUPT) {
    bxErrMove(pErr, &err);
  }
  bxErrClear(&err);
  bxFail(pErr, SQLITE_CORRUPT_VTAB,
      "CorruptedDataError: pack %lld of the body store in schema %s %s; the "
      "rows concerned: %s; all others can be read, SELECT * FROM "
      "blackbox_check lists the damage",
      iPack, p->zDb, zWhy, zKeys != 0 ? zKeys : "unknown");
  sqlite3_free(zKeys);
}

void bxListRead(BxStmts *p, i64 iPack, List *pOut, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(p,
      "SELECT data, (SELECT token FROM main.store__packs WHERE pack = ?1)"
      " FROM main.store__packs WHERE pack = -?1",
      pErr);
  int bThere;
  memset(pOut, 0, sizeof(*pOut));
  pOut->iPack = iPack;
  bxBind(pStmt, pErr, "i", iPack);
  bThere = bxStep(pStmt, pErr);
  if (bThere) {
    const unsigned char *z = sqlite3_column_blob(pStmt, 0);
    pOut->nStored = sqlite3_column_bytes(pStmt, 0);
    if (z == 0 && pOut->nStored > 0) bxCheckMem(0, pErr);
    pOut->iToken = sqlite3_column_int64(pStmt, 1);
    bxListDecode(pOut, z, pOut->nStored, pErr);
  }
  bxReset(pStmt, pErr);
  if (!bThere) failPack(p, iPack, "has no list", pErr);
}

/* Decompresses data, of one frame or several, up to nWant bytes at least. The checksum
** at the end of a frame is tested if what comes after is wanted, or nothing does.
** Returns 0 if it is damaged. */
static int unzip(
    ZSTD_DCtx *pUnzip, Pack *p, const unsigned char *z, size_t n, i64 nWant) {
  size_t nNext = 0;
  assert(nWant >= 0 && nWant <= p->nByte);
  p->nDone = 0;
  while (p->nDone < nWant || p->nDone == p->nByte) {
    size_t nDone;
    if (nNext == 0 && n == 0) return p->nDone == p->nByte;
    if (nNext == 0 && ZSTD_isError(ZSTD_decompressBegin(pUnzip))) return 0;
    nNext = ZSTD_nextSrcSizeToDecompress(pUnzip);
    nDone = nNext > n ? (size_t)-1
                      : ZSTD_decompressContinue(pUnzip, p->bytes.a + p->nDone,
                            (size_t)(p->nByte - p->nDone), z, nNext);
    if (ZSTD_isError(nDone)) return 0;
    p->nDone += (i64)nDone;
    z += nNext;
    n -= nNext;
    nNext = ZSTD_nextSrcSizeToDecompress(pUnzip);
  }
  return 1;
}

/* Fills the place of a pack with its first nPiece pieces. Returns 0 on error, or if
** the pack is damaged. */
static int fillPack(
    BxStmts *p, ZSTD_DCtx *pUnzip, Pack *pPack, i64 nPiece, BxErr *pErr) {
  List list;
  sqlite3_stmt *pStmt;
  i64 i, nWant;
  int bWhole = 0;
  assert(nPiece >= 0 && pPack->iPack > 0);
  bxListRead(p, pPack->iPack, &list, pErr);
  if (pErr->rc == SQLITE_OK && list.n >= pPack->nPieceAlloc) {
    uint32_t *a = bxCheckMem(
        sqlite3_realloc64(pPack->aAt, ((sqlite3_uint64)list.n + 1) * 4), pErr);
    if (a != 0) {
      pPack->aAt = a;
      pPack->nPieceAlloc = list.n + 1;
    }
  }
  pPack->nByte = 0;
  for (i = 0; i <= list.n && pErr->rc == SQLITE_OK; i++) {
    pPack->aAt[i] = (uint32_t)pPack->nByte;
    if (i < list.n) pPack->nByte += list.a[i].nByte;
  }
  pPack->nPiece = list.n;
  bxListFree(&list);
  if (pErr->rc != SQLITE_OK || pPack->nByte > STORE_PACK_BYTES ||
      !bxBytesRoom(&pPack->bytes, pPack->nByte + 1, pErr)) {
    return 0;
  }
  nWant = nPiece < pPack->nPiece ? pPack->aAt[nPiece] : pPack->nByte;
  pStmt = bxStmt(p, "SELECT data FROM main.store__packs WHERE pack = ?1", pErr);
  bxBind(pStmt, pErr, "i", pPack->iPack);
  if (bxStep(pStmt, pErr)) {
    const void *pData = sqlite3_column_blob(pStmt, 0);
    int n = sqlite3_column_bytes(pStmt, 0);
    if (pData == 0 && n > 0) bxCheckMem(0, pErr);
    bWhole =
        pErr->rc == SQLITE_OK && unzip(pUnzip, pPack, pData, (size_t)n, nWant);
  }
  bxReset(pStmt, pErr);
  return bWhole && pErr->rc == SQLITE_OK;
}

/* Reads the first nPiece pieces of a pack. Returns NULL, or what is wrong with it. */
static const char *readPack(
    BxStmts *p, i64 iPack, i64 nPiece, const Pack **ppOut, BxErr *pErr) {
  PackReader *pReader = readerOf(p->bx, pErr);
  Pack *pPack;
  i64 iToken;
  int i, bHere = 0;
  assert(nPiece >= 0);
  if (pReader != 0 && pReader->pUnzip == 0)
    pReader->pUnzip = bxZstdDecompressor(pErr);
  iToken = bxQueryInt(p,
      "SELECT coalesce((SELECT token FROM main.store__packs WHERE pack = ?1),"
      " -2)",
      pErr, "i", iPack);
  if (pErr->rc != SQLITE_OK) return 0;
  if (iToken < 0) return iToken == -2 ? "is missing" : "has a token below 0";
  pPack =
      &pReader->a[0]; /* its own place, or that of the least recently used */
  for (i = 0; i < READER_PACKS && !bHere; i++) {
    Pack *pOne = &pReader->a[i];
    bHere = pOne->iPack == iPack && pOne->zDb != 0 &&
            strcmp(pOne->zDb, p->zDb) == 0;
    if (bHere || pOne->iUsed < pPack->iUsed) pPack = pOne;
  }
  pPack->iUsed = ++pReader->iClock;
  *ppOut = pPack;
  if (bHere && pPack->iToken == iToken) {
    if (pPack->nDone == pPack->nByte ||
        (nPiece < pPack->nPiece && pPack->aAt[nPiece] <= pPack->nDone)) {
      return 0;
    }
    nPiece = STORE_ALL; /* more of what was read before: then all of it */
  }
  if (pPack->zDb == 0 || strcmp(pPack->zDb, p->zDb) != 0) {
    sqlite3_free(pPack->zDb);
    pPack->zDb = bxPrintf(pErr, "%s", p->zDb);
  }
  pPack->iPack = iPack;
  pPack->iToken = -1; /* not valid, until it is filled */
  if (!fillPack(p, pReader->pUnzip, pPack, nPiece, pErr)) return "is damaged";
  pPack->iToken = iToken;
  return 0;
}

const Pack *bxPackRead(BxStmts *p, i64 iPack, i64 nPiece, BxErr *pErr) {
  const Pack *pPack = 0;
  const char *zWhy = readPack(p, iPack, nPiece, &pPack, pErr);
  if (zWhy != 0) failPack(p, iPack, zWhy, pErr);
  return pErr->rc == SQLITE_OK ? pPack : 0;
}

const Pack *bxPackTry(BxStmts *p, i64 iPack, i64 nPiece, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  const Pack *pPack = 0;
  if (pErr->rc != SQLITE_OK) return 0;
  if (readPack(p, iPack, nPiece, &pPack, &err) != 0) pPack = 0;
  if (err.rc == SQLITE_CORRUPT_VTAB) bxErrClear(&err);
  bxErrMove(pErr, &err);
  return pErr->rc == SQLITE_OK ? pPack : 0;
}

const unsigned char *bxPackChunk(const Pack *p, i64 iPiece, i64 nByte) {
  i64 iAt;
  assert(iPiece >= 0 && p->nDone <= p->nByte);
  if (iPiece >= p->nPiece) return 0;
  iAt = p->aAt[iPiece];
  if (p->aAt[iPiece + 1] - iAt != nByte || iAt + nByte > p->nDone) return 0;
  return p->bytes.a + iAt;
}

void bxListChanged(i64 iPack, BxErr *pErr) {
  bxFail(pErr, SQLITE_CORRUPT_VTAB,
      "CorruptedDataError: the list of pack %lld in store__packs was changed "
      "without its pack; SELECT * FROM blackbox_check names the rows concerned",
      iPack);
}

int bxTextRowFind(BxStmts *p, i64 iText, TextRow *pOut, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(p,
      "SELECT bytes, sum, mark, recipe FROM main.store__texts"
      " WHERE text = ?1",
      pErr);
  int bThere;
  memset(pOut, 0, sizeof(*pOut));
  pOut->iText = iText;
  bxBind(pStmt, pErr, "i", iText);
  bThere = bxStep(pStmt, pErr);
  if (bThere) {
    const void *pMark = sqlite3_column_blob(pStmt, 2), *pRecipe;
    pOut->nByte = sqlite3_column_int64(pStmt, 0);
    pOut->iSum = sqlite3_column_int64(pStmt, 1);
    if (pMark != 0 && sqlite3_column_bytes(pStmt, 2) == STORE_MARK) {
      memcpy(pOut->aMark, pMark, STORE_MARK);
    }
    pRecipe = sqlite3_column_blob(pStmt, 3);
    if (pRecipe == 0 && sqlite3_column_bytes(pStmt, 3) > 0) bxCheckMem(0, pErr);
    bxManifestDecode(
        &pOut->recipe, pRecipe, sqlite3_column_bytes(pStmt, 3), pErr);
  }
  bxReset(pStmt, pErr);
  return bThere && pErr->rc == SQLITE_OK;
}

static void failText(BxStmts *p, i64 iText, BxErr *pErr) {
  bxFail(pErr, SQLITE_CORRUPT_VTAB,
      "CorruptedDataError: text %lld of the body store in schema %s does not "
      "agree with its pieces; SELECT * FROM blackbox_check names the row",
      iText, p->zDb);
}

unsigned char *bxTextRowRead(BxStmts *p, const TextRow *pRow, BxErr *pErr) {
  i64 i, n = 0;
  unsigned char *z;
  assert(pRow->recipe.n >= 0);
  if (pRow->nByte < 0 || pRow->nByte > 0x7fffffff)
    failText(p, pRow->iText, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  z = bxCheckMem(sqlite3_malloc64((sqlite3_uint64)pRow->nByte + 1), pErr);
  for (i = 0; i < pRow->recipe.n && pErr->rc == SQLITE_OK; i++) {
    const Range *pRange = &pRow->recipe.a[i];
    i64 iEnd = pRange->iFirst + pRange->nPiece, nPart;
    const Pack *pPack = bxPackRead(p, pRange->iPack, iEnd, pErr);
    if (pPack == 0) break;
    nPart = iEnd <= pPack->nPiece
                ? (i64)pPack->aAt[iEnd] - pPack->aAt[pRange->iFirst]
                : -1;
    if (nPart < 0 || n + nPart > pRow->nByte) {
      failText(p, pRow->iText, pErr);
      break;
    }
    memcpy(z + n, pPack->bytes.a + pPack->aAt[pRange->iFirst], (size_t)nPart);
    n += nPart;
  }
  if (pErr->rc == SQLITE_OK &&
      (n != pRow->nByte || bxTextSum(z, n) != pRow->iSum)) {
    /* if one of its packs is damaged, the error names it */
    for (i = 0; i < pRow->recipe.n && pErr->rc == SQLITE_OK; i++) {
      bxPackRead(p, pRow->recipe.a[i].iPack, STORE_ALL, pErr);
    }
    failText(p, pRow->iText, pErr);
  }
  if (pErr->rc != SQLITE_OK) {
    sqlite3_free(z);
    return 0;
  }
  z[n] = 0;
  return z;
}

/* Whether the store of p has the text of a reference. */
static int hasText(BxStmts *p, const Ref *pRef, TextRow *pRow, BxErr *pErr) {
  assert(pRef->iText > 0);
  if (bxTextRowFind(p, pRef->iText, pRow, pErr) &&
      memcmp(pRow->aMark, pRef->aHash, STORE_MARK) == 0) {
    return 1;
  }
  bxManifestFree(&pRow->recipe);
  return 0;
}

BxStmts *bxRefFind(Bx *bx, const Ref *pRef, TextRow *pRow, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  BxStmts *p, *pFound = 0;
  sqlite3_stmt *pStmt;
  memset(pRow, 0, sizeof(*pRow));
  if (pErr->rc != SQLITE_OK) return 0;
  p = bxDomainSchema(
      bx, "store", &err); /* fails if there is none, or if two have it */
  if (err.rc == SQLITE_ERROR) bxErrClear(&err);
  bxErrMove(pErr, &err);
  if (p != 0 && hasText(p, pRef, pRow, pErr)) return p;
  if (pErr->rc != SQLITE_OK) return 0;
  pStmt = bxPrepareSql(bx->db, "PRAGMA database_list", pErr);
  while (pFound == 0 && bxStep(pStmt, pErr)) {
    const char *zDb = bxColumnText(pStmt, 1, pErr);
    if (zDb == 0 || strcmp(zDb, "temp") == 0) continue;
    if (!bxSchemaHasDomain(bx, zDb, "store", pErr)) continue;
    p = bxSchema(bx, zDb, pErr);
    if (p != 0 && hasText(p, pRef, pRow, pErr)) pFound = p;
  }
  sqlite3_finalize(pStmt);
  return pFound;
}

/* Returns the text of a reference, and any other value as it is. With bNamed a short
** reference that names no text is damage: nobody else writes a blob there. */
static void returnStored(BxCall *p, int bNamed) {
  Ref ref;
  TextRow row;
  BxStmts *pStore;
  unsigned char *z;
  if (!bxRefOf(&ref, p->aArg[0])) {
    bxReturnValue(p, p->aArg[0]);
    return;
  }
  pStore = bxRefFind(p->bx, &ref, &row, &p->err);
  if (pStore == 0) {
    if (p->err.rc == SQLITE_OK && bNamed && ref.nHash == STORE_MARK) {
      bxFail(&p->err, SQLITE_CORRUPT_VTAB,
          "CorruptedDataError: no body store has text %lld with the hash of "
          "its reference; SELECT * FROM blackbox_check names the row",
          ref.iText);
    }
    if (p->err.rc == SQLITE_OK) bxReturnValue(p, p->aArg[0]);
  } else {
    z = bxTextRowRead(pStore, &row, &p->err);
    if (z != 0 && row.recipe.eType == SQLITE_TEXT) {
      sqlite3_result_text64(p->pCtx, (char *)z, (sqlite3_uint64)row.nByte,
          sqlite3_free, SQLITE_UTF8);
    } else if (z != 0) {
      sqlite3_result_blob64(
          p->pCtx, z, (sqlite3_uint64)row.nByte, sqlite3_free);
    }
  }
  bxManifestFree(&row.recipe);
}

void bxStoreText(BxCall *p) {
  returnStored(p, 0);
}

/* In the views of conversations, store_text(): they also work where only SQLite's
** coalesce() is. For the statements of others it is what that is. */
void bxStoreFirst(BxCall *p) {
  int n = p->nArg;
  assert(n > 0);
  while (--n > 0 && sqlite3_value_type(p->aArg[0]) == SQLITE_NULL) p->aArg++;
  returnStored(p, 1);
}
