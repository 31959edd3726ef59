/*
** harness.h: what the C tests share: connections with the module, faults that
** come at a chosen moment, and the contents of a database as text.
*/
#ifndef BX_HARNESS_H
#define BX_HARNESS_H

#include "../ext/blackbox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

typedef sqlite3_int64 i64;

/* 1 when BLACKBOX_FULL asks for every fault point instead of a sample. */
int isFull(void);

/*------------------------------------------------------------- databases --*/

/* From now on it is always the same moment, for SQLite too: receipts of one
** minute share a row, and the minute must not turn between two runs that are
** compared. Call it before faultVfs(). */
void stopClock(void);
/* Opens a file, ":memory:" for NULL, and adds the module. */
sqlite3 *openDb(const char *zFile, const char *zVfs);
/* Opens a database in memory that has the bytes of another. */
sqlite3 *openCopy(const unsigned char *aByte, i64 nByte);
/* Adds the module and checks that it went well. */
void addModule(sqlite3 *db);
/* Runs SQL; returns the extended result code; message() tells the rest. */
int run(sqlite3 *db, const char *zSql);
const char *message(void);
/* The same, and all rows that came out as text. */
int runOut(sqlite3 *db, const char *zSql, char *zOut, int nOut);
/* Runs SQL that must succeed. */
void must(sqlite3 *db, const char *zSql);
/* The first column of the first row. */
i64 number(sqlite3 *db, const char *zSql);
/* The same as text, to sqlite3_free(). */
char *text(sqlite3 *db, const char *zSql);
/*
** Everything that is stored, in every schema, and what waits in the queue, as
** text to sqlite3_free(). Left out is what each run makes anew: ids that are
** random, and the clock's time of receipts.
*/
char *contents(sqlite3 *db);
/* Fails with the first line that is not the same. */
void mustBeSame(const char *zWhere, const char *zIs, const char *zShould);
/* The problems that blackbox_check() lists, one a line; "" for none. */
char *problems(sqlite3 *db);
/* Closes, and checks that nothing was left open. */
void closeDb(sqlite3 *db);

/*---------------------------------------------------------------- faults --*/

typedef enum {
  FAULT_MEMORY,   /* an allocation */
  FAULT_WRITE,    /* a write, sync, truncate or delete of a file */
  FAULT_FULL,     /* a write, for want of room */
  FAULT_STEP,     /* a step: the progress handler asks for an end */
  FAULT_INTERRUPT /* a step: sqlite3_interrupt() is called then */
} FaultKind;

/* Puts the failing allocator in place. Before any other use of SQLite. */
void faultMemory(void);
/* Registers the VFS "faulty", which can fail what it writes. */
void faultVfs(void);
/* Fails event number iPoint (0 is the next one), or with bSticky that one and
** all that follow. db is where steps are counted. */
void faultArm(FaultKind eKind, int iPoint, int bSticky, sqlite3 *db);
/* Ends it. Returns how many events failed; *pnSeen gets how many there were. */
int faultDisarm(int *pnSeen);

/*------------------------------------------------------------ operations --*/

/* Flags of an operation */
/* Rows may stay in the queue, their flush failing. */
#define OP_STAGES 1
/* Not possible inside BEGIN. */
#define OP_ALONE 2
/* A row of several steps: inside BEGIN, where it has no savepoint, the first
** may stay, but nothing is lost and the next attempt completes it. */
#define OP_PARTLY 4
/* Does expiry work afterwards, done or not. */
#define OP_CARRIES 8
/* Leaves a mark if it can: done without it, or failed with it, is right. */
#define OP_MARKS 16

/* Something that the module does, to be disturbed while it does. */
typedef struct Operation {
  const char *zName;
  const char *zSetup;  /* stored in the database beforehand */
  const char *zBefore; /* on the connection beforehand */
  const char *zSql;    /* disturbed */
  int flags;
} Operation;

/* Of each domain, with a row of zeros at the end. */
extern const Operation aCoreOperation[], aPayloadOperation[],
    aRolloutOperation[], aEvidenceOperation[], aCacheOperation[];

/* Reads a program's argument, if it is given: a pattern of the names of tests,
** with * and ?, or PART/PARTS (0/4 to 3/4), by which several processes share
** the operations. */
void chooseOperations(int argc, char **argv);
/* Operation number i of those to run, from 0; NULL when there are no more. */
const Operation *chosenOperation(int i);
/* Whether case iCase of operation iOperation is to run. The quick run takes one
** of nPick cases, another one with each operation. */
int isPicked(int iCase, int iOperation, int nPick);
/* Whether it is the first of the shared processes that runs. */
int isFirstPart(void);
/* Runs what every operation of the domain finds in its database, and its
** zSetup. */
void prepareDb(sqlite3 *db, const Operation *pOp);

#endif
