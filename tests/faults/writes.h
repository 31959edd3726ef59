/*
** writes.h: what the files of the program writes share: the ways in which a
** statement inside xUpdate fails, and a virtual table to show the rule with.
*/
#ifndef BX_WRITES_H
#define BX_WRITES_H

#include "../harness.h"

/*-------------------------------------------------------------- failures --*/

/* Flags of a failure */
/* It strikes at a statement, and not at a table. */
#define AT_STATEMENT 1
/* It needs a connection whose cache another one shares. */
#define SHARED 2
/* It takes a part of the tables away, so that nothing more can be compared. */
#define DAMAGES 4
/* It locks the file. */
#define LOCKS 8
/* SQLite tells nobody of it. */
#define SILENT 16
/* In a trigger that another trigger fires, it is known to leave a half write. */
#define KNOWN 32
/* It is an error of the file. */
#define FILES 64
/* From then on nothing can be written, so that the log cannot tell what was left out. */
#define MUTES 128

/* A way in which a statement inside xUpdate fails. */
typedef struct Failure {
  const char *zName;
  /* AT_STATEMENT: called when that statement begins. */
  void (*xStrike)(sqlite3 *db);
  /* SQL that is run before. <db>, <tab>, <key> and <last> stand for the names of the
  ** table, of its schema, its key and its last column, <op> for INSERT and so on. */
  const char *zArrange;
  /* The same for another connection, which stays. */
  const char *zOther;
  int flags;
} Failure;

/* Ends with a row of zeros. */
extern const Failure aFailure[];

/* A table that a statement writes, itself or by a trigger. */
typedef struct Written {
  char zDb[20], zTable[60], zOp[10];
  int bTrigger;
} Written;

/* Registers fails(), which the failures need, and the trace that strikes. */
void failureReady(sqlite3 *db);
/* Prepares the failure, for the table. Returns 0 if that is not possible. */
int failureArrange(
    sqlite3 *db, sqlite3 *pOther, const Failure *p, const Written *pWritten);
/* From now on the failure happens: at inner statement iPoint that writes, if it is
** AT_STATEMENT. p is NULL for none. */
void failureArm(sqlite3 *db, const Failure *p, int iPoint);
/* Ends it. Returns whether it was reached; *pnPoint: the inner statements that
** have begun to write. */
int failureCalm(int *pnPoint);
/* Runs a statement, and lists the tables that it writes, at most nMax. */
int failureLearn(sqlite3 *db, const char *zSql, Written *aOut, int nMax);

/*------------------------------------------------------------------ tiny --*/

/*
** CREATE VIRTUAL TABLE t USING tiny(schema, rule): a row is written by two inner
** statements, into t_record and schema.t_counter. The second keeps the sum of n. A
** third one writes into t_log, beside the record. With rule 0, xUpdate ends as
** SQLite's documentation has it, and passes over every error of the third.
*/
void tinyRegister(sqlite3 *db);

#endif
