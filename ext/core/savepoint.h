/*
** savepoint.h: all that a call changes, or nothing.
*/
#ifndef BX_SAVEPOINT_H
#define BX_SAVEPOINT_H

#include "error.h"

/* Begins what is to be whole, for the function zWho. On error nothing was
** begun; else bxRelease() must follow. */
void bxSavepoint(Bx *bx, const char *zWho, BxErr *pErr);
/* Ends it: keeps what was done when *pErr is clear, and takes it back when it
** is not, or when keeping it fails. */
void bxRelease(Bx *bx, BxErr *pErr);
/* Around statements that make an index or a virtual table: those undo what
** bxRelease() has prepared. Returns NULL on error; bxLetGo() takes that too. */
sqlite3_stmt *bxHold(Bx *bx, BxErr *pErr);
void bxLetGo(Bx *bx, sqlite3_stmt *pHold, BxErr *pErr);

#endif
