/*
** transaction.h: a call changes everything that it should, or nothing.
*/
#ifndef BX_TRANSACTION_H
#define BX_TRANSACTION_H

#include "statement.h"

/* Takes the write lock on p's schema. The first statement of a change must
** write: after a read, SQLite refuses to wait for another writer. */
void bxLock(BxStmts *p, BxErr *pErr);
/* Whether p's schema has a write-ahead log. */
int bxIsWal(BxStmts *p, BxErr *pErr);
/* Whether a statement that writes is running: then no savepoint can begin. */
int bxIsWriting(Bx *bx);
/* Whether what the running statement changes would be lost: in a read of dqlite. */
int bxIsReplayedRead(Bx *bx);
/* Fails in that case. zWho is the function that would change data. */
void bxRefuseRead(Bx *bx, const char *zWho, BxErr *pErr);
/* Begins the atomic part of the function zWho. On error nothing was begun;
** otherwise bxRelease() must follow. */
void bxSavepoint(Bx *bx, const char *zWho, BxErr *pErr);
/* Ends it: keeps the changes if *pErr is clear, and undoes them if it is not,
** or if keeping them fails. */
void bxRelease(Bx *bx, BxErr *pErr);
/* For use around statements that create an index or a virtual table, because
** these expire what bxRelease() has prepared. Returns NULL on error, which
** bxGuardEnd() accepts. */
sqlite3_stmt *bxGuardBegin(Bx *bx, BxErr *pErr);
void bxGuardEnd(Bx *bx, sqlite3_stmt *pHold, BxErr *pErr);

/*-------------------------------------------------------------- xUpdate ----*/

/* An xUpdate that runs. */
typedef struct BxWrite {
  Bx *bx;
  i64 iOuter; /* what bxCallEnd() takes */
  /* of the xUpdate around this one */
  i64 iWrite;
  int nChange, bWritten;
} BxWrite;

/*
** Around all that xUpdate does:
**
**   BxErr err = {SQLITE_OK, 0};
**   BxWrite write;
**   bxWriteBegin(&write, bx);
**   ... check all that can be refused, and prepare every statement (bxStmtSet())
**   ... run them
**   return bxWriteEnd(&write, &err, pVtab);
**
** An error after the first write becomes SQLITE_FULL, with its own message: see
** transaction.c. bxWriteEnd() frees the message.
*/
void bxWriteBegin(BxWrite *p, Bx *bx);
int bxWriteEnd(BxWrite *p, BxErr *pErr, sqlite3_vtab *pVtab);
/*
** Whether a call may succeed although something beside its record has failed with
** this error. p is of the schema into which the record was written before that.
*/
int bxErrMayIgnore(const BxStmts *p, const BxErr *pErr);
/* Moves such an error, unless it is passed over. */
void bxErrBeside(const BxStmts *p, BxErr *pErr, BxErr *pBeside);

#endif
