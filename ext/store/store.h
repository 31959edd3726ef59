/*
** store.h: the body store: long texts in pieces, each piece once.
**
** See sql/store.sql for the tables. A text is cut where its content says so
** (cut.c), so that texts with equal parts have equal pieces. write.c packs texts,
** read.c reads them, sweep.c removes what no reference names any more.
*/
#ifndef BX_STORE_H
#define BX_STORE_H

#include "../core/core.h"

#include <stdint.h>

extern const char bxSqlStore[];

/* Shorter values are not packed, because a reference is not much shorter. */
#define STORE_MIN_BYTES 128

/*--------------------------------------------------- cut.c: the pieces ----*/

#define STORE_PIECE_MIN 512
#define STORE_PIECE_MAX 8192

typedef struct Gear {
  uint64_t a[256]; /* a random number for each byte */
} Gear;

void bxGearInit(Gear *p);
/* The length of the piece with which n bytes begin. *pbEnd: the end of the text
** ended it, so that more bytes could make it longer. */
i64 bxGearCut(const Gear *p, const unsigned char *z, i64 n, int *pbEnd);

/*--------------------------------------------------- hash.c: the hashes ---*/

#define STORE_HASH 32 /* bytes of a hash */
#define STORE_MARK 8  /* bytes of it in store__texts */

/* The hash of a text is the SHA-256 of its type (one byte: SQLITE_TEXT or
** SQLITE_BLOB) and of the SHA-256 of each of its pieces. */
void bxPieceHash(
    const unsigned char *z, i64 n, unsigned char aHash[STORE_HASH]);
void bxTextHashBegin(SHA256_CTX *p, int eType);
void bxTextHashAdd(SHA256_CTX *p, const unsigned char aHash[STORE_HASH]);
void bxTextHashEnd(SHA256_CTX *p, unsigned char aHash[STORE_HASH]);
/* The hash of a whole value. */
void bxTextHash(
    const unsigned char *z, i64 n, int eType, unsigned char aHash[STORE_HASH]);
/* The key of a piece in store__pieces: the beginning of its hash. */
i64 bxPieceKey(const unsigned char aHash[8]);
/* The checksum that each read compares. */
i64 bxTextSum(const unsigned char *z, i64 n);

/* A reference, with its parts. */
#define STORE_REF_MAX (4 + STORE_HASH + 20)
typedef struct Ref {
  i64 iText;
  unsigned char aHash[STORE_HASH];
} Ref;

/* Writes a reference. Returns its length. */
int bxRefWrite(const Ref *p, unsigned char aOut[STORE_REF_MAX]);
/* Whether n bytes have the form of a reference. */
int bxRefRead(Ref *pOut, const unsigned char *z, i64 n);
/* The same for a value. */
int bxRefOf(Ref *pOut, sqlite3_value *pVal);

/*-------------------------------------------- recipe.c: lists, recipes ----*/

/* Bytes that grow. */
typedef struct Bytes {
  unsigned char *a;
  i64 n, nAlloc;
} Bytes;
void bxBytesAdd(Bytes *p, const void *z, i64 n, BxErr *pErr);
void bxBytesVarint(Bytes *p, uint64_t u, BxErr *pErr);
/* Reads a number at *pz, and moves it on. 0 with *pz NULL after the end. */
uint64_t bxVarint(const unsigned char **pz, const unsigned char *zEnd);

/* One piece of a pack. nByte is 0 when it was removed. */
typedef struct Piece {
  uint32_t nByte, nUse;
} Piece;

/* The pieces of a pack. */
typedef struct List {
  i64 iPack;
  i64 n, nAlloc;
  Piece *a;
  i64 nStored; /* length of the row's list; 0: it has no row yet */
  int bChanged;
  int bDead; /* a piece has no use any more */
} List;

/* Parts of a text: count pieces of a pack from first on. */
typedef struct Range {
  i64 iPack, iFirst, nPiece;
} Range;

typedef struct Recipe {
  int eType;
  i64 n, nAlloc;
  Range *a;
} Recipe;

void bxListDecode(List *p, const unsigned char *z, i64 n, BxErr *pErr);
void bxListEncode(const List *p, Bytes *pOut, BxErr *pErr);
void bxListFree(List *p);
void bxRecipeDecode(Recipe *p, const unsigned char *z, i64 n, BxErr *pErr);
void bxRecipeEncode(const Recipe *p, Bytes *pOut, BxErr *pErr);
/* Adds one piece, to the last range if it follows there. */
void bxRecipeAdd(Recipe *p, i64 iPack, i64 iPiece, BxErr *pErr);

/*--------------------------------------------------- read.c: the texts ----*/

typedef struct PackReader PackReader;

/* Most bytes of pieces in a pack. */
#define STORE_PACK_BYTES 262144
/* A pack is compressed in blocks of so many bytes. */
#define STORE_BLOCK_BYTES 65536
/* A number of pieces: all those of a pack. */
#define STORE_ALL 65536

/* What is read of a pack: the bytes of its first pieces, and where each piece
** begins. Valid until the next call. */
typedef struct Pack {
  i64 iPack, iToken;
  i64 nPiece, nPieceAlloc;
  uint32_t *aAt; /* nPiece + 1 positions */
  unsigned char *aByte;
  i64 nByte, nByteAlloc;
  i64 nDone; /* bytes that are decompressed */
  i64 iUsed; /* when it was last used */
  char *zDb; /* its schema */
} Pack;

/* The state of the store on a connection. */
typedef struct StoreSlot {
  int nWriting; /* store_writing(): a function of the store writes now */
  PackReader *pReader;
} StoreSlot;

int bxStoreRegister(Bx *bx);
StoreSlot *bxStoreSlot(Bx *bx);
/* The schema whose store is meant: the one that is named, or the home. */
BxStmts *bxStoreHome(Bx *bx, sqlite3_value *pDb, BxErr *pErr);
/* Runs a statement that writes into a table of the store. */
void bxStoreRun(BxStmts *p, sqlite3_stmt *pStmt, BxErr *pErr);
/* Reads the first nPiece pieces of a pack. NULL on error; CorruptedDataError if they
** are damaged. */
const Pack *bxPackRead(BxStmts *p, i64 iPack, i64 nPiece, BxErr *pErr);
/* The same, but it is no error if the pack is damaged. */
const Pack *bxPackTry(BxStmts *p, i64 iPack, i64 nPiece, BxErr *pErr);
/* The bytes of a piece, if the pack as it was read has it, with this length; NULL
** otherwise: the list may have been changed without its pack. */
const unsigned char *bxPackPiece(const Pack *p, i64 iPiece, i64 nByte);
/* The error if it is needed. */
void bxListChanged(i64 iPack, BxErr *pErr);
/* Reads the list of a pack. */
void bxListRead(BxStmts *p, i64 iPack, List *pOut, BxErr *pErr);
/* A row of store__texts. */
typedef struct TextRow {
  i64 iText, nByte, iSum, iFresh;
  unsigned char aMark[STORE_MARK];
  Recipe recipe;
} TextRow;
/* Whether there is such a row. Free its recipe in any case. */
int bxTextRowFind(BxStmts *p, i64 iText, TextRow *pOut, BxErr *pErr);
void bxTextRowFree(TextRow *p);
/* The bytes of a text, to sqlite3_free(), with a NUL after them. */
unsigned char *bxTextRowRead(BxStmts *p, const TextRow *pRow, BxErr *pErr);
/* Finds the store that has the text of a reference; NULL if none has it. Free the
** recipe of *pRow in any case. */
BxStmts *bxRefFind(Bx *bx, const Ref *pRef, TextRow *pRow, BxErr *pErr);

void bxStoreText(BxCall *p);    /* store_text() */
void bxStoreSame(BxCall *p);    /* store_same() */
void bxStoreWriting(BxCall *p); /* store_writing() */

/*------------------------------------------------------------- many.c -----*/

#define MANY_ROWS 64

/* Rows that one statement writes. */
typedef struct Many {
  BxStmts *pStmts;
  sqlite3_stmt *pStmt;
  int nColumn;
  int nMost; /* rows; fewer than MANY_ROWS if the host limits parameters */
  int nWait; /* rows that are bound */
} Many;

/* Prepares INSERT INTO zInto, a table or a view. Free it in any case. */
void bxManyPrepare(Many *p, BxStmts *pStmts, const char *zInto, int nColumn,
    const char *zAfter, BxErr *pErr);
/* The parameter of a column of the next row. Count it in nWait when all are
** bound. */
int bxManyParam(const Many *p, int iColumn);
/* Writes the rows that wait. bOwn: into a table of the store. */
void bxManyRun(Many *p, int bOwn, BxErr *pErr);
void bxManyFree(Many *p);

/*------------------------------------------------------------ write.c -----*/

/* Memory for zstd comes from SQLite. */
void *bxZipContext(BxErr *pErr);
void bxZipFree(void *pZip);
/* Compresses bytes. */
void bxZip(void *pZip, const unsigned char *z, i64 n, Bytes *pOut, BxErr *pErr);

void bxListWrite(BxStmts *p, List *pList, i64 *pnKept, BxErr *pErr);
/* Writes the bytes of a pack. *pnKept grows by what they take. */
void bxPackWrite(BxStmts *p, i64 iPack, void *pZip, const unsigned char *z,
    i64 n, i64 *pnKept, BxErr *pErr);
/* Adds to the totals of store__state. */
void bxStoreCount(BxStmts *p, i64 nText, i64 nTextByte, i64 nPiece,
    i64 nPieceByte, i64 nKept, BxErr *pErr);
void bxStorePack(BxCall *p); /* store_pack() */

/*------------------------------------------------------------ sweep.c -----*/

/* Calls xEach with the names of the views of each user of the store. */
void bxStoreUsers(BxStmts *p,
    void (*xEach)(BxStmts *p, const char *zBodies, const char *zTexts,
        void *pArg, BxErr *pErr),
    void *pArg, BxErr *pErr);
/* A query of the references to text ?1, with their keys; NULL if the store has no
** user. The caller finalizes it. */
sqlite3_stmt *bxStoreNamed(BxStmts *p, BxErr *pErr);
void bxStoreSweep(BxCall *p); /* store_sweep() */
void bxStoreErase(BxCall *p); /* store_erase() */

/* shared.c, check.c */
sqlite3_stmt *bxStoreShared(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
void bxStoreCheck(BxStmts *p, BxProblems *pOut);
void bxStoreLeave(BxStmts *p, BxErr *pErr);
/* The keys of some rows whose texts need a pack, to sqlite3_free(). */
char *bxStoreConcerned(BxStmts *p, i64 iPack, BxErr *pErr);

#endif
