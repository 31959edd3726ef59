/*
** write.h: how a virtual table writes: all of a statement, or nothing.
*/
#ifndef BX_WRITE_H
#define BX_WRITE_H

#include "statement.h"

/* An xUpdate that runs. */
typedef struct BxWrite {
  Bx *bx;
  i64 iOuter; /* what bxLeave() takes */
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
** write.c. bxWriteEnd() frees the message.
*/
void bxWriteBegin(BxWrite *p, Bx *bx);
int bxWriteEnd(BxWrite *p, BxErr *pErr, sqlite3_vtab *pVtab);
/*
** Whether a call may succeed although something beside its record has failed with
** this error. p is of the schema into which the record was written before that.
*/
int bxMayPassOver(const BxStmts *p, const BxErr *pErr);
#endif
