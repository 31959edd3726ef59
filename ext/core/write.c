/*
** write.c: how a virtual table writes: all of a statement, or nothing.
**
** SQLite makes no savepoint around xUpdate of an INSERT of one row. Inside BEGIN,
** what xUpdate has written before it fails would stay. So the code of the error
** decides:
**
**   NOMEM, FULL, IOERR, INTERRUPT   SQLite undoes the statement or, if it cannot,
**                                   rolls back the whole transaction
**   any other                       SQLite undoes the statement if it has made a
**                                   savepoint for it, and otherwise nothing
**
** Three rules make every xUpdate atomic, with as many inner statements as it needs:
**
**   1. It checks everything that can be refused, and prepares every statement,
**      before its first write. So an error of the first kind is the only one to
**      expect after that.
**   2. An error of the second kind may come all the same: from a trigger, an index
**      or a foreign key of the user, an authorizer, a limit, a lock, a statement
**      that has to be prepared again. After the first write it leaves xUpdate as
**      SQLITE_FULL, with its own message.
**   3. What fails beside the record may be passed over only if the record is still
**      there. After an error of the first kind, or RAISE(ROLLBACK), it is not.
**
** A first write that fails is undone by SQLite. So an error of it keeps its code, and
** the host its transaction.
**
** What has been written is seen from the count of rows that the connection has
** changed: when bxDo() has run a statement, or another one is given out.
** SQLite does not count what a trigger did before RAISE(FAIL), which keeps it.
**
** With journal_mode=OFF, SQLite rolls nothing back, and nothing is promised.
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

/* Whether SQLite itself undoes what a statement with this error has done. */
static int isUndone(int rc) {
  switch (rc & 0xff) {
    case SQLITE_NOMEM:
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_INTERRUPT: return 1;
    default: return 0;
  }
}

void bxWriteBegin(BxWrite *p, Bx *bx) {
  p->bx = bx;
  p->iOuter = bxEnter(bx);
  p->iWrite = bx->iWrite;
  p->nChange = bx->nChange;
  p->bWritten = bx->bWritten;
  bx->iWrite = bx->iCall;
  bx->nChange = sqlite3_total_changes(bx->db);
  bx->bWritten = 0;
}

/* Whether something has been written, or the transaction is not there any more, in
** which the statement of the host has begun to write. (After RAISE(ROLLBACK) the
** code is that of RAISE(ABORT), with which INSERT OR IGNORE would succeed.) */
static int hasWritten(const BxWrite *p) {
  return p->bx->bWritten || sqlite3_txn_state(p->bx->db, 0) != SQLITE_TXN_WRITE;
}

int bxWriteEnd(BxWrite *p, BxErr *pErr, sqlite3_vtab *pVtab) {
  if (pErr->rc != SQLITE_OK && !isUndone(pErr->rc) && hasWritten(p)) {
    pErr->rc = SQLITE_FULL;
  }
  p->bx->iWrite = p->iWrite;
  p->bx->nChange = p->nChange;
  p->bx->bWritten = p->bWritten;
  bxLeave(p->bx, p->iOuter);
  if (p->iOuter == 0) {
    if (pErr->rc == SQLITE_OK) p->bx->nOwed++;
    if (pErr->rc != SQLITE_OK) p->bx->nForeign++;
  }
  return bxReportVtab(pErr, pVtab);
}

/* After a plain SQLITE_CORRUPT inside BEGIN, SQLite refuses to commit. */
int bxMayPassOver(const BxStmts *p, const BxErr *pErr) {
  sqlite3 *db = p->bx->db;
  if (pErr->zMsg == 0 || isUndone(pErr->rc)) return 0;
  if (pErr->rc == SQLITE_CORRUPT && !sqlite3_get_autocommit(db)) return 0;
  return sqlite3_txn_state(db, p->zDb) == SQLITE_TXN_WRITE;
}
