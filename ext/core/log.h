/*
** log.h: the log: what blackbox did, a row each, and the Merkle tree of its rows.
*/
#ifndef BX_LOG_H
#define BX_LOG_H

#include "merkle.h"
#include "schema.h"

/*-------------------------------------------------------- log.c: rows ----*/

/* For what writes rows: takes the lock on p's schema, as bxLock() does. If the newest
** rows were removed, others must not get their numbers, which have leaves. */
void bxLogBegin(BxStmts *p, BxErr *pErr);

/* For a record that must be kept: if what failed is that a table is missing, makes those
** of core, and tells it in the log. Returns 1 if the caller can try again. */
int bxLogRemake(BxStmts *p, BxErr *pErr);

/* A row to be written. */
typedef struct BxLogRow {
  const char *zDomain, *zKind; /* of others than these NULL means NULL */
  const char *zSubject, *zActor, *zReason, *zDetail;
  i64 iAt; /* 0: now */
} BxLogRow;
/* Writes it; its leaf follows at the end of the call. Returns its n. */
i64 bxLogAppend(BxStmts *p, const BxLogRow *pRow, BxErr *pErr);

/* Records that a rule could not be applied, once a day for each reason. */
void bxLogRefusal(BxStmts *p, const char *zDomain, const char *zRule,
    const char *zWhy, BxErr *pErr);

/* SQL: a row says who did it, and why, or did until that was erased. What ends a pin or
** a hold, and does not say so, was not written by blackbox. */
#define BX_LOG_SIGNED(l)                                                       \
  "(2 <= ((trim(" l ".actor) > '') IS TRUE)"                                   \
  "  + ((trim(" l ".reason) > '') IS TRUE)"                                    \
  "  + (SELECT count(*) FROM main.blackbox__erased AS e WHERE e.n = " l        \
  ".n AND e.type = 3 AND e.name IN ('actor', 'reason')))"

/* Erases fields of row n: zNames has their names, with commas between them. Their hashes
** stay, so that the leaf can still be verified, and another row names them. */
void bxLogErase(BxStmts *p, i64 n, const char *zNames, BxErr *pErr);

/* Digests of rows that holds keep, of at most so many bytes (BxDomain.xNoteHeld). */
void bxLogNoteHeld(BxStmts *p, i64 nMost, BxErr *pErr);
#define BX_HELD_SOME 1000000  /* in a call that writes */
#define BX_HELD_MANY 64000000 /* in retention_hold() and proof_head() */

/* So many numbers in a row may be missing. Rows after more of them get others. */
#define BX_LOG_GAP 20000
#define BX_LOG_MOST ((i64)1 << 40) /* most leaves */
/* Gives leaves to at most nMost rows that have none, and folds old receipts.
** p's schema must be locked for writing. Returns how many leaves. */
i64 bxLogProve(BxStmts *p, i64 nMost, BxErr *pErr);
/* The same at the end of a call, in its transaction, for each schema that it has
** written. What is wrong with the tree does not make the call fail. */
void bxLogProveAll(Bx *bx, BxErr *pErr);

/*--------------------------------------------------- log_leaf.c: leaf ----*/

/* A field of a row, as its leaf has it. */
typedef struct BxLogField {
  const char *zName; /* constant, or a column of the domain's query */
  int eType;         /* SQLITE_INTEGER ... SQLITE_NULL */
  int bErased;       /* there is no salt any more */
  MerkleHash salt, hash;
} BxLogField;
#define BX_LOG_FIELDS 24
#define BX_LOG_LEAF 63 /* bytes of the data of a leaf */
/* A row as its leaf has it. */
typedef struct BxLeaf {
  i64 n;
  int bKept; /* it is no receipt, so that it is never folded */
  enum {
    BX_NO_PIN,
    BX_PIN_HERE,   /* it pins a row of a domain, which is among the fields */
    BX_PIN_ENDED,  /* there is no such row */
    BX_PIN_UNKNOWN /* the domain is not installed */
  } ePin;
  int nField;
  BxLogField aField[BX_LOG_FIELDS];
  SHA256_CTX sha;
  MerkleHash fields;   /* their digest */
  sqlite3_str *pShown; /* NULL, or gets the fields with their values */
  const void *aSalt;   /* of the row */
  int nSalt;
  MerkleHash salt;
} BxLeaf;
/* The data of the leaf of row n, and its hash. nKept: how many rows are no receipts,
** up to this one. */
void bxLogLeafData(i64 n, i64 nKept, const MerkleHash *pFields,
    unsigned char aOut[BX_LOG_LEAF]);
MerkleHash bxLogLeafHash(i64 n, i64 nKept, const MerkleHash *pFields);
/* Columns of the log, and what reads a row of it by its n. Those from the third on are
** the fields of a leaf, in their order. */
enum {
  BX_LOG_N,
  BX_LOG_SALT,
  BX_LOG_ACTOR,
  BX_LOG_AGENT,
  BX_LOG_AT,
  BX_LOG_BYTES,
  BX_LOG_DETAIL,
  BX_LOG_DOMAIN,
  BX_LOG_EVENT,
  BX_LOG_KILL_SWITCH,
  BX_LOG_KIND,
  BX_LOG_NEWEST,
  BX_LOG_OLDEST,
  BX_LOG_REASON,
  BX_LOG_ROWS,
  BX_LOG_SUBJECT,
  BX_LOG_WIDTH
};
#define BX_LOG_COLUMNS                                                         \
  "n, coalesce(salt, (SELECT secret FROM main.blackbox__tree)), actor,"        \
  " agent_id, at, bytes, detail, domain, event_id,"                            \
  " kill_switch_event_id, kind, newest, oldest, reason, rows, subject"
/* The row that pRow is on, which has these columns. The names of the fields exist
** until the next call. pPinned: NULL, or a statement of BxDomain.zAllLogged, which is
** on the row that is pinned, if it is on one at all. */
void bxLogLeaf(BxStmts *p, sqlite3_stmt *pRow, sqlite3_stmt *pPinned,
    BxLeaf *pOut, BxErr *pErr);
/* Leaves of rows of the log that the call has made when it wrote them, so that the rows
** that are pinned need not be read again: n rows from iFirst on. Bx.pKnown is that of
** the call that runs. */
typedef struct BxLogKnown {
  BxStmts *p;
  i64 iFirst, n, nAlloc;
  MerkleHash *aFields;
} BxLogKnown;
/* Makes the leaf of row n, which comes next, if the call has a BxLogKnown. pPinned: see
** bxLogLeaf(). */
void bxLogKnow(BxStmts *p, i64 n, sqlite3_stmt *pPinned, BxErr *pErr);
/* The fields of row n; NULL if they are not known. */
const MerkleHash *bxLogKnownFields(BxStmts *p, i64 n);
/* The domain whose row this row of the log pins, or NULL. */
const BxDomain *bxLogPins(BxStmts *p, sqlite3_stmt *pRow, BxErr *pErr);
/* The same for row n. Returns 0 if there is none. pShown: NULL, or gets the fields with
** their values, as bxLogFieldJson() writes them. */
int bxLogLeafOf(
    BxStmts *p, i64 n, BxLeaf *pOut, sqlite3_str *pShown, BxErr *pErr);
/* Appends a field as JSON; with its value in place of its hash if that is given. */
void bxLogFieldJson(sqlite3_str *pOut, const BxLogField *pField,
    const void *pValue, size_t nValue);

/* How many rows are no receipts up to that of a leaf, as blackbox__leaves says. */
i64 bxLogKept(BxStmts *p, i64 iLeaf, BxErr *pErr);
/* Whether a row is what its leaf says. */
int bxLogIsLeaf(
    BxStmts *p, const BxLeaf *pLeaf, const MerkleHash *pStored, BxErr *pErr);

/* Copies a blob of 32 bytes. Returns 0 for anything else. */
int bxLogReadHash(sqlite3_stmt *pRow, int i, MerkleHash *pOut);

/*--------------------------------------------------- log_tree.c: tree ----*/

#define BX_LOG_LEVEL 8 /* heights between two levels of nodes */
/* Of less than so many leaves either are some given, or a step folds: not both. */
#define BX_LOG_FEW 32
#define BX_LOG_TILE 256 /* 1 << BX_LOG_LEVEL */
#define BX_LOG_ORIGIN 200
/* The tree of a schema. Its leaf i is that of row i + 1. */
typedef struct BxLog {
  Merkle tree; /* must be first */
  BxStmts *p;
  char zOrigin[BX_LOG_ORIGIN + 1];
  Frontier now;  /* all leaves */
  i64 nKept;     /* of the last one, for who adds leaves */
  i64 iFold;     /* rows before this one were looked at for folding */
  i64 iReplaced; /* a leaf that was there before it was added; 0 if none was */
} BxLog;
/* Reads its row. A schema whose log has none: CorruptedDataError. */
void bxLogOpen(BxLog *pLog, BxStmts *p, BxErr *pErr);
/* The same for who adds leaves. If the row has another size than the leaves, what it
** says is not used: returns 1, and *pnTold is the size that it told. */
int bxLogOpenToWrite(BxLog *pLog, BxStmts *p, i64 *pnTold, BxErr *pErr);
/* If the leaves have another root, it is theirs from now on: returns 1. bNewest: only the
** newest ones are looked at. */
int bxLogRepairFrontier(BxLog *pLog, int bNewest, BxErr *pErr);
/* Adds the leaf after the last one. bKept: its row is no receipt. */
void bxLogAddLeaf(
    BxLog *pLog, const MerkleHash *pFields, int bKept, BxErr *pErr);
/* Writes the row, with which new leaves count. */
void bxLogSave(BxLog *pLog, BxErr *pErr);
/* Removes the leaves from n on that were added. */
void bxLogTruncate(BxLog *pLog, i64 n, BxErr *pErr);
/* The key of a subtree in blackbox__leaves. */
i64 bxLogNodeKey(int nHeight, i64 iIndex);

/*--------------------------------------------------- log_fold.c: fold ----*/

/* Folds receipts that are old, in one step of at most so many rows, if all rows have
** leaves. The sums have none yet. Returns 0 if there was nothing to look at. */
int bxLogFold(BxLog *pLog, i64 nMost, BxErr *pErr);

#endif
