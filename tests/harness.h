/*
** harness.h: what the C tests share: connections with the module, faults at a
** chosen moment, and the contents of a database as text.
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

/* 1 if BLACKBOX_FULL asks for every fault point instead of a sample. */
int isFull(void);

/*------------------------------------------------------------- databases --*/

/* Stops the clock, also that of SQLite. Receipts of one minute share a row, and
** the minute must not change between two runs that are compared. Call it before
** faultVfs(). */
void stopClock(void);
/* Opens a file, ":memory:" for NULL, and adds the module. */
sqlite3 *openDb(const char *zFile, const char *zVfs);
/* Opens a database in memory with a copy of the bytes of another. */
sqlite3 *openCopy(const unsigned char *aByte, i64 nByte);
/* Adds the module and checks that it went well. */
void addModule(sqlite3 *db);
/* Runs SQL. Returns the extended result code; message() has the message. */
int run(sqlite3 *db, const char *zSql);
const char *message(void);
/* The same, with all result rows as text. */
int runOut(sqlite3 *db, const char *zSql, char *zOut, int nOut);
/* Runs SQL that must succeed. */
void must(sqlite3 *db, const char *zSql);
/* The first column of the first row. */
i64 number(sqlite3 *db, const char *zSql);
/* The same as text, to sqlite3_free(). */
char *text(sqlite3 *db, const char *zSql);
/*
** Everything that is stored, in every schema, and the rows that wait in the
** queue, as text to sqlite3_free(). It omits what each run makes anew: random
** ids, and the times of receipts.
*/
char *contents(sqlite3 *db);
/* Fails with the first line that differs. */
void mustBeSame(const char *zWhere, const char *zIs, const char *zShould);
/* The problems that blackbox_check() reports, one in a line; "" for none. That a row
** of the log has no leaf is none: the next call of the module gives it one. */
char *problems(sqlite3 *db);
/* Closes, and checks that nothing was left open. */
void closeDb(sqlite3 *db);
void copyFile(const char *zFrom, const char *zTo);

/*---------------------------------------------------------------- faults --*/

typedef enum {
  FAULT_MEMORY,   /* an allocation */
  FAULT_WRITE,    /* a write, sync, truncate or delete of a file */
  FAULT_FULL,     /* a write: the disk is full */
  FAULT_READ,     /* a read of a file */
  FAULT_SYNC,     /* a sync */
  FAULT_JOURNAL,  /* a write of a statement journal: the disk is full */
  FAULT_STEP,     /* a step: the progress handler interrupts */
  FAULT_INTERRUPT /* a step: sqlite3_interrupt() is called */
} FaultKind;

/* Installs the failing allocator. Call it before any other use of SQLite. */
void faultMemory(void);
/* Registers the VFS "faulty", which can fail what it writes. */
void faultVfs(void);
/* Makes event number iPoint fail (0 is the next one) or, with bSticky, that one
** and all later ones. Steps are counted on db. */
void faultArm(FaultKind eKind, int iPoint, int bSticky, sqlite3 *db);
/* Ends this. Returns how many events failed; *pnSeen: how many there were. */
int faultDisarm(int *pnSeen);

/*------------------------------------------------------------ operations --*/

/* Flags of an operation */
/* Rows may stay in the queue if their flush fails. */
#define OP_STAGES 1
/* Not possible inside BEGIN. */
#define OP_ALONE 2
/* Also does expiry work, which may or may not be done. */
#define OP_CARRIES 4
/* Leaves a mark if it can: done without it, or failed with it, is right. */
#define OP_MARKS 8
/* Also makes room in the file, or says that it cannot: a later write may do it. Or
** imports a folder, and notes an error of a file, which a later import may read. Or
** fires the kill switch of a rule: if it cannot, a later push may do it. */
#define OP_LATER 16
/* Clears what it deleted when the transaction commits. */
#define OP_COMMITS 32

/* An operation of the module, to be disturbed. */
typedef struct Operation {
  const char *zName;
  const char *zSetup;  /* stored in the database before */
  const char *zBefore; /* run on the connection before */
  const char *zSql;    /* disturbed */
  int flags;
} Operation;

/* The operations of each domain, ending with a row of zeros. */
extern const Operation aCoreOperation[], aPayloadOperation[],
    aRolloutOperation[], aEvidenceOperation[], aCacheOperation[],
    aRetentionOperation[], aRedactOperation[], aProofOperation[],
    aStoreOperation[], aReportOperation[], aReportOtherOperation[],
    aReportDatabaseOperation[];

/* Reads the optional argument of a program: a pattern of test names, with * and
** ?, or PART/PARTS (0/4 to 3/4), by which several processes share the
** operations. Goes into a new folder, which the end of the program removes: some
** operations write files. */
void chooseOperations(int argc, char **argv);
/* Operation number i of those to run, from 0; NULL if there are no more. */
const Operation *chosenOperation(int i);
/* Operation number i of all. */
const Operation *anyOperation(int i);
/* Whether case iCase of operation iOperation is to run. The quick run takes one
** of nPick cases, a different one for each operation. */
int isPicked(int iCase, int iOperation, int nPick);
/* Whether this is the first of the processes that share the operations. */
int isFirstPart(void);
/* Runs what every operation of the domain expects in its database, and its
** zSetup. */
void prepareDb(sqlite3 *db, const Operation *pOp);

#endif
