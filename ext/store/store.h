/*
** store.h: the body store: long texts in pieces, each piece once.
**
** See sql/store.sql for the tables. A text is cut where its content says so
** (format.c), so that texts with equal parts have equal pieces. write.c packs texts,
** read.c reads them, sweep.c removes what no reference names any more. What the store
** asks of the domain that has the references is in its BxBodies.
*/
#ifndef BX_STORE_H
#define BX_STORE_H

#include "../core/core.h"
#include "../core/digest.h"

#include <stdint.h>

extern const char bxSqlStore[];

/* Shorter values are not packed, because a reference is not much shorter. */
#define STORE_MIN_BYTES 128

/* format.c */
#define STORE_PIECE_MIN 512
#define STORE_PIECE_MAX 8192

typedef struct Chunker {
  uint64_t a[256]; /* a random number for each byte */
} Chunker;

void bxChunkerInit(Chunker *p);
/* The length of the piece with which n bytes begin. *pbEnd: the end of the text
** ended it, so that more bytes could make it longer. */
i64 bxChunkerCut(const Chunker *p, const unsigned char *z, i64 n, int *pbEnd);

#define STORE_HASH 32 /* bytes of a hash */
#define STORE_MARK 8  /* bytes of it in store__texts */

/* The hash of a text is the SHA-256 of its type (one byte: SQLITE_TEXT or
** SQLITE_BLOB) and of the SHA-256 of each of its pieces. */
void bxTextHashBegin(SHA256_CTX *p, int eType);
/* The key of a piece in store__pieces: the beginning of its hash. */
i64 bxChunkKey(const unsigned char aHash[8]);
/* The checksum that each read compares. */
i64 bxTextSum(const unsigned char *z, i64 n);

/* A reference, with its parts. */
#define STORE_REF_MAX (4 + STORE_HASH + 20)
typedef struct Ref {
  i64 iText;
  int nHash; /* bytes of the hash: STORE_HASH or STORE_MARK */
  unsigned char aHash[STORE_HASH];
} Ref;

/* Writes a reference. Returns its length. */
int bxRefWrite(const Ref *p, unsigned char aOut[STORE_REF_MAX]);
/* Whether a value has the form of a reference. */
int bxRefOf(Ref *pOut, sqlite3_value *pVal);

/* Bytes that grow. */
typedef struct Bytes {
  unsigned char *a;
  i64 n, nAlloc;
} Bytes;
/* Makes room for n bytes in all. Returns 0 on error. */
int bxBytesRoom(Bytes *p, i64 n, BxErr *pErr);
void bxBytesAdd(Bytes *p, const void *z, i64 n, BxErr *pErr);

/* Where the first of n elements is whose key is not below iKey: they have nOne bytes
** each, begin with an i64, their key, and are in its order. */
i64 bxStoreSearch(const void *a, i64 n, size_t nOne, i64 iKey);

/* One piece of a pack. nByte is 0 when it was removed. uKey is the beginning of its key in
** store__pieces. */
typedef struct Piece {
  uint32_t nByte, nUse;
  uint16_t uKey;
} Piece;
#define STORE_KEY_SHIFT 48

/* The pieces of a pack. */
typedef struct List {
  i64 iPack;
  i64 n, nAlloc;
  Piece *a;
  i64 nStored; /* length of the row's list; 0: it has no row yet */
  int bChanged;
  int bDead;  /* a piece has no use any more */
  i64 iToken; /* of the pack; 0: it has no row yet */
} List;

/* Parts of a text: count pieces of a pack from first on. */
typedef struct Range {
  i64 iPack, iFirst, nPiece;
} Range;

typedef struct Manifest {
  int eType;
  i64 n, nAlloc;
  Range *a;
} Manifest;

void bxListDecode(List *p, const unsigned char *z, i64 n, BxErr *pErr);
void bxListEncode(const List *p, Bytes *pOut, BxErr *pErr);
void bxListFree(List *p);
void bxManifestFree(Manifest *p);
void bxManifestDecode(Manifest *p, const unsigned char *z, i64 n, BxErr *pErr);
void bxManifestEncode(const Manifest *p, Bytes *pOut, BxErr *pErr);
/* Adds one piece, to the last range if it follows there. */
void bxManifestAdd(Manifest *p, i64 iPack, i64 iPiece, BxErr *pErr);

/* read.c */
/* Most bytes of pieces in a pack; and in one to which a few rows are added. */
#define STORE_PACK_BYTES 262144
#define STORE_FEW_BYTES 106496
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
  Bytes bytes;   /* n is not used: */
  i64 nByte;     /* bytes of the pack */
  i64 nDone;     /* bytes that are decompressed */
  i64 iUsed;     /* when it was last used */
  char *zDb;     /* its schema */
} Pack;

/* What is kept between calls that concern a few rows: a context of zstd, where it is
** or is to be, and what was met (write.c). */
typedef struct Seen Seen;
void **bxStoreZip(Bx *bx, BxErr *pErr);
Seen *bxStoreSeen(Bx *bx, BxErr *pErr);
Seen *bxSeenNew(BxErr *pErr);
void bxSeenFree(Seen *p);

/* The next domain, after pLast or NULL, whose values the store of p's schema may have.
** NULL after the last one. */
const BxBodies *bxStoreBodies(BxStmts *p, const BxBodies *pLast);
/* The schema whose store is meant: the one that is named, or the home. */
BxStmts *bxStoreSchema(Bx *bx, sqlite3_value *pDb, BxErr *pErr);
/* Refuses a store of a later format, into which nothing may be written. */
void bxStoreKnown(BxStmts *p, BxErr *pErr);
/* Reads the first nPiece pieces of a pack. NULL on error; CorruptedDataError if they
** are damaged. */
const Pack *bxPackRead(BxStmts *p, i64 iPack, i64 nPiece, BxErr *pErr);
/* The same, but it is no error if the pack is damaged. */
const Pack *bxPackTry(BxStmts *p, i64 iPack, i64 nPiece, BxErr *pErr);
/* The bytes of a piece, if the pack as it was read has it, with this length; NULL
** otherwise: the list may have been changed without its pack. */
const unsigned char *bxPackChunk(const Pack *p, i64 iPiece, i64 nByte);
/* The error if it is needed. */
void bxListChanged(i64 iPack, BxErr *pErr);
/* Reads the list of a pack. */
void bxListRead(BxStmts *p, i64 iPack, List *pOut, BxErr *pErr);
/* A row of store__texts. */
typedef struct TextRow {
  i64 iText, nByte, iSum;
  unsigned char aMark[STORE_MARK];
  Manifest recipe;
} TextRow;
/* Whether there is such a row. Free its recipe in any case. */
int bxTextRowFind(BxStmts *p, i64 iText, TextRow *pOut, BxErr *pErr);
/* The bytes of a text, to sqlite3_free(), with a NUL after them. */
unsigned char *bxTextRowRead(BxStmts *p, const TextRow *pRow, BxErr *pErr);
/* Finds the store that has the text of a reference; NULL if none has it. Free the
** recipe of *pRow in any case. */
BxStmts *bxRefFind(Bx *bx, const Ref *pRef, TextRow *pRow, BxErr *pErr);

void bxStoreText(BxCall *p);  /* store_text() */
void bxStoreFirst(BxCall *p); /* coalesce() of seven values */

/* write.c */
void bxListWrite(BxStmts *p, List *pList, i64 *pnKept, BxErr *pErr);
/* What a pack is written for: it becomes small; a write of one row does it, and is not to
** take long; and more will follow. */
enum { PACK_SMALL, PACK_QUICK, PACK_OPEN };
/* Writes the bytes of a pack, or adds those from iFrom on. *pnKept grows by what they
** take. *ppZip: a context of zstd, or NULL at first; bxZstdFree() frees it. Returns the
** new token. */
i64 bxPackWrite(BxStmts *p, i64 iPack, void **ppZip, const Bytes *pBytes,
    i64 iFrom, int eFor, i64 *pnKept, BxErr *pErr);
void bxZstdFree(void *pZip);
/* Adds to the totals of store__state. */
void bxStoreCount(BxStmts *p, i64 nText, i64 nTextByte, i64 nPiece,
    i64 nPieceByte, i64 nKept, BxErr *pErr);
void bxStorePack(BxCall *p); /* store_pack() */

/* sweep.c */
void bxStoreSweep(BxCall *p); /* store_sweep() */
void bxStoreTend(BxCall *p);  /* store_tend() */

/* check.c */
void bxStoreCheck(BxStmts *p, BxProblems *pOut);
extern const BxFileLimit bxStoreFileLimit; /* sweep.c */
void bxStoreLeave(BxStmts *p, BxErr *pErr);
/* The keys of some rows whose texts need a pack, to sqlite3_free(). */
char *bxStoreKeysOfPack(BxStmts *p, i64 iPack, BxErr *pErr);

#endif
