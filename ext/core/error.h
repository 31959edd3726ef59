/*
** error.h: SQLite's interface, the names that several headers use, and the first error
** of a chain of calls.
*/
#ifndef BX_ERROR_H
#define BX_ERROR_H

/* assert() states what must hold; tests and fuzzing are built with BX_DEBUG. */
#if !defined(BX_DEBUG) && !defined(NDEBUG)
#define NDEBUG 1
#endif

#include "../blackbox.h"
#include <assert.h>
#include <sqlite3ext.h>
#include <stddef.h>

#ifndef SQLITE_CORE
extern const sqlite3_api_routines *sqlite3_api;
#endif

typedef sqlite3_int64 i64;
typedef struct Bx Bx;                   /* statement.h */
typedef struct BxCall BxCall;           /* command.h */
typedef struct BxDomain BxDomain;       /* domain.h */
typedef struct BxErr BxErr;             /* error.h */
typedef struct BxModule BxModule;       /* vtable.h */
typedef struct BxProblems BxProblems;   /* install.h */
typedef struct BxFileLimit BxFileLimit; /* file_limit.h */
typedef struct BxStmts BxStmts;         /* statement.h */
typedef struct BxVtab BxVtab;           /* vtable.h */

/* The first error of a chain. Start it as {SQLITE_OK, 0}. */
struct BxErr {
  int rc;     /* extended SQLite result code */
  char *zMsg; /* from sqlite3_malloc; NULL when out of memory */
};

/* Sets rc and the formatted message, unless an error is already set. Damaged
** data is SQLITE_CORRUPT_VTAB: after a plain SQLITE_CORRUPT, SQLite allows the
** host's transaction nothing but a rollback. */
void bxFail(BxErr *pErr, int rc, const char *zFormat, ...);
/* A text as sqlite3_mprintf() makes it, to sqlite3_free(). NULL on error. */
char *bxPrintf(BxErr *pErr, const char *zFormat, ...);
/* Returns p. If it is NULL, the error is "out of memory". */
void *bxCheckMem(void *p, BxErr *pErr);
/* Ends a text: NULL if it is empty. An error of pOut becomes the error. */
char *bxStrFinish(sqlite3_str *pOut, BxErr *pErr);
/* Zeroed memory, to sqlite3_free(). NULL on error. */
void *bxZalloc(size_t nByte, BxErr *pErr);
/* An array of n elements of nOne bytes, with room for *pnAlloc, gets room for
** one more. NULL on error; the array then stays where it is. */
void *bxArrayGrow(void *a, i64 n, i64 *pnAlloc, size_t nOne, BxErr *pErr);
/* Adds an element of nOne zero bytes to an array of *pn, and returns it; NULL on
** error. pArray is the address of the pointer to the array. */
void *bxArrayAdd(void *pArray, i64 *pn, i64 *pnAlloc, size_t nOne, BxErr *pErr);
/* Copies the code and message of the statement that failed on db. */
void bxFailDb(BxErr *pErr, sqlite3 *db, int rc);
/* Moves the error *pFrom to *pErr, unless an error is set there. *pFrom is
** clear after that. */
void bxErrMove(BxErr *pErr, BxErr *pFrom);
/* The same, but one of SQLite with these words is passed over: see bxErrContains(). */
void bxErrMoveBut(BxErr *pErr, BxErr *pFrom, const char *zWords);
/* Moves an error out; *pErr is clear after that. */
BxErr bxErrTake(BxErr *pErr);
/* Whether the error has this name, that is, begins with "<zName>: ". */
int bxErrIs(const BxErr *pErr, const char *zName);
/* Whether the message of an error of SQLite contains these words. Use it only
** for errors for which SQLite has no code. */
int bxErrContains(const BxErr *pErr, const char *zWords);
/* Replaces the message. NULL (out of memory) leaves it as it is. */
void bxErrReword(BxErr *pErr, char *zOwned);
/* Replaces the name zFrom by zTo, which begins with a name. */
void bxErrRename(BxErr *pErr, const char *zFrom, const char *zTo);
/* Adds zPrefix, which begins with a name, to the message of an error that has
** no name. */
void bxErrPrefix(BxErr *pErr, const char *zPrefix);
/* Makes the error the result of a SQL function, and frees the message. */
void bxErrResult(BxErr *pErr, sqlite3_context *pCtx);
/* Makes the error that of a virtual table, and frees the message. Returns the
** code. */
int bxErrVtab(BxErr *pErr, sqlite3_vtab *pVtab);
/* Clears an error. */
void bxErrClear(BxErr *pErr);

#endif
