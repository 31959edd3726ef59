/*
** vtable.h: virtual tables that own tables.
*/
#ifndef BX_VTABLE_H
#define BX_VTABLE_H

#include "statement.h"

/* A module whose virtual tables own tables. */
struct BxModule {
  const char *zName; /* "payload_ring" */
  const char *zSql;  /* template of the tables: sql/<name>.sql */
  /* VersionError for tables that a newer module made. */
  void (*xKnown)(BxVtab *p, BxErr *pErr);
  /* Part of blackbox_check() that SQL cannot say. May be NULL. */
  void (*xCheck)(BxVtab *p, BxProblems *pOut);
};

/*
** Base of every virtual table that a user creates with one of our modules,
** so that functions find it by the name they are given.
*/
struct BxVtab {
  sqlite3_vtab base; /* first, as SQLite wants it */
  const BxModule *pModule;
  BxStmts stmts; /* schema and table name; kept statements */
  BxVtab *pNext;
};

/* Allocates nByte (with a BxVtab first) for schema zDb and table zName. */
BxVtab *bxVtabNew(size_t nByte, Bx *bx, const char *zModule, const char *zDb,
    const char *zName, BxErr *pErr);
/* Finalizes its statements, takes it off the list, frees it. */
void bxVtabFree(BxVtab *p);
/*
** Whether xShadowName may claim a module's tables, which protects them from
** other statements in defensive mode. SQLite 3.44 and later, in that mode,
** take a trigger on a claimed table for damage when they read the schema, and
** nothing in the file can be read then. Tables of ours carry triggers.
*/
int bxMayClaim(void);
/* A cursor of nByte bytes, all zero, for xOpen; and xClose for one that holds
** nothing. */
int bxCursorNew(size_t nByte, sqlite3_vtab_cursor **ppCursor);
int bxCursorFree(sqlite3_vtab_cursor *pCursor);
/* The table zName of schema zDb, connected; NULL when there is none. */
BxVtab *bxVtabIn(Bx *bx, const char *zModule, const char *zDb,
    const char *zName, BxErr *pErr);
/*
** Finds the table that a user names: 'ring' in temp, main, then the attached
** schemas, or 'schema.ring'. Error "NotFoundError: ..." (SQLITE_ERROR).
*/
BxVtab *bxVtabFind(
    Bx *bx, const char *zModule, sqlite3_value *pName, BxErr *pErr);
/* A query of the names in p's schema of the tables that seem to be the module's
** by their text, to finalize. bxVtabIn() tells which are. */
sqlite3_stmt *bxVtabNames(BxStmts *p, const char *zModule, BxErr *pErr);
/* Whether a name is one of the comma-separated zColumns, in any case. */
int bxIsColumn(const char *zName, const char *zColumns);
/*
** Splits one CREATE argument "key = value" (quotes optional). Key and value
** go to aKey[nKey] and aVal[nVal], terminated. Error names the argument.
*/
void bxVtabArg(
    const char *zArg, char *zKey, int nKey, char *zVal, int nVal, BxErr *pErr);

#endif
