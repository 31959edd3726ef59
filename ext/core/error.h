/*
** error.h: the first error of a chain of calls.
*/
#ifndef BX_ERROR_H
#define BX_ERROR_H

#include "base.h"

/* The first error of a chain. Start it as {SQLITE_OK, 0}. */
struct BxErr {
  int rc;     /* extended SQLite result code */
  char *zMsg; /* from sqlite3_malloc; NULL when out of memory */
};

/* Sets rc and the formatted message, unless an error is set already. Damage
** that was found is SQLITE_CORRUPT_VTAB: after a plain SQLITE_CORRUPT SQLite
** lets the host's transaction do nothing but roll back. */
void bxFail(BxErr *pErr, int rc, const char *zFormat, ...);
/* Takes over the code and message of the statement that failed on db. */
void bxFailDb(BxErr *pErr, sqlite3 *db, int rc);
/* Hands the error *pFrom on to *pErr, unless an error is set there. *pFrom is
** clear afterwards. */
void bxPass(BxErr *pErr, BxErr *pFrom);
/* Takes an error out: *pErr is clear afterwards. */
BxErr bxTake(BxErr *pErr);
/* Whether the error has that name: its message begins "<zName>: ". */
int bxIs(const BxErr *pErr, const char *zName);
/* Whether the error has a name, as every error of blackbox has, and none of
** SQLite's. */
int bxHasName(const BxErr *pErr);
/* Whether an error of SQLite's says these words. Only for what SQLite has no
** code of its own for. */
int bxSays(const BxErr *pErr, const char *zWords);
/* Puts zTo, which begins with a name, in the place of the name zFrom. */
void bxRename(BxErr *pErr, const char *zFrom, const char *zTo);
/* Puts zPrefix, which begins with a name, before the message of an error that
** has none. */
void bxPrefix(BxErr *pErr, const char *zPrefix);
/* Hands the error to a SQL function; frees the message. */
void bxReport(BxErr *pErr, sqlite3_context *pCtx);
/* Hands the error to a virtual table; frees the message. Returns the code. */
int bxReportVtab(BxErr *pErr, sqlite3_vtab *pVtab);
/* Forgets an error. */
void bxClear(BxErr *pErr);

#endif
