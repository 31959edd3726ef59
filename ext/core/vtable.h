/*
** vtable.h: virtual tables that own tables.
*/
#ifndef BX_VTABLE_H
#define BX_VTABLE_H

#include "domain.h"

/* A module whose virtual tables own tables. */
struct BxModule {
  const char *zName; /* "payload_ring" */
  const char *zSql;  /* template of the tables: sql/<name>.sql */
  /* The end of the name of one of its tables, and a column that this table has only
  ** if a build before 1.0 made it. */
  const char *zTable, *zEarlier;
  const BxRecords *aRecords; /* the virtual table as a table with records */
  const BxTexts *pTexts;     /* its texts */
  /* Sets VersionError for tables that a newer module made. */
  void (*xKnown)(BxVtab *p, BxErr *pErr);
  /* The checks that SQL cannot do. May be NULL. */
  void (*xCheck)(BxVtab *p, BxProblems *pOut);
  /* Called after a hold was placed. May be NULL. */
  void (*xHeld)(BxVtab *p, BxErr *pErr);
};

/*
** The base of every virtual table that a user creates with a module of
** blackbox, so that functions find it by its name.
*/
struct BxVtab {
  sqlite3_vtab base; /* must be first, for SQLite */
  const BxModule *pModule;
  BxStmts stmts;            /* schema and table name; kept statements */
  void (*xFree)(BxVtab *p); /* frees what is its own; may be NULL */
  BxVtab *pNext;
};

/* Allocates nByte (beginning with a BxVtab) for table zName of schema zDb.
** VersionError if a build before 1.0 made it, or its file. */
BxVtab *bxVtabNew(size_t nByte, Bx *bx, const char *zModule, const char *zDb,
    const char *zName, BxErr *pErr);
/* Removes it from the list, finalizes its statements, and frees it: at the end of the
** call that runs, which may use it. An error in a statement of that call may roll
** back, and then SQLite forgets a schema that was changed, and disconnects its tables. */
void bxVtabFree(BxVtab *p);
/* A cursor of nByte zero bytes, for xOpen. */
int bxCursorNew(size_t nByte, sqlite3_vtab_cursor **ppCursor);
/* Whether schema zDb has a table of that name, which need not work. */
int bxTableExists(Bx *bx, const char *zDb, const char *zName);
/* The connected table zName of schema zDb, or NULL if there is none. */
BxVtab *bxVtabIn(Bx *bx, const char *zModule, const char *zDb,
    const char *zName, BxErr *pErr);
/*
** Finds the table that a user names: 'ring' in temp, main, then the attached
** schemas, or 'schema.ring'. Error: "NotFoundError: ..." (SQLITE_ERROR).
*/
BxVtab *bxVtabFind(
    Bx *bx, const char *zModule, sqlite3_value *pName, BxErr *pErr);
/* The virtual tables of p's schema, one after the other. A walk begins as {p, 0, 0} and
** ends when this returns NULL: not before, as a query is open. */
typedef struct BxVtabWalk {
  BxStmts *p;
  const BxModule *pModule;
  sqlite3_stmt *pNames;
} BxVtabWalk;
BxVtab *bxVtabNext(BxVtabWalk *p, BxErr *pErr);
/* A query of the names of tables in p's schema that seem to belong to the
** module according to their text; the caller finalizes it. bxVtabIn() confirms
** it. */
sqlite3_stmt *bxVtabNames(BxStmts *p, const char *zModule, BxErr *pErr);
/* Whether a name is in the comma-separated list zColumns, ignoring case. */
int bxIsColumn(const char *zName, const char *zColumns);
/*
** Splits one CREATE argument "key = value" (quotes optional). Writes key and
** value to aKey[nKey] and aVal[nVal], terminated. The error names the argument.
*/
void bxVtabArg(
    const char *zArg, char *zKey, int nKey, char *zVal, int nVal, BxErr *pErr);

/*--------------------------------------------------------- their tables ----*/

/* Whether its file has holds, or refuses keys that were erased. */
int bxShadowIsHeld(BxVtab *p, BxErr *pErr);
/* An owner of a hold on all of it, to sqlite3_free(); NULL if there is none. */
char *bxShadowHolder(BxVtab *p, BxErr *pErr);
/* Creates the tables of a new virtual table. */
void bxShadowCreate(BxVtab *p, BxErr *pErr);
void bxShadowDrop(BxVtab *p, BxErr *pErr);
/* Renames them, and p. */
void bxShadowRename(BxVtab *p, const char *zNew, BxErr *pErr);
/* Replaces the table name in the statements. */
void bxShadowSetName(BxVtab *p, const char *zNew, BxErr *pErr);
/* Whether the tables equal the template, but some indexes are missing. A table that
** the template creates IF NOT EXISTS may be missing, too. */
int bxShadowIsIncomplete(BxVtab *p, BxErr *pErr);
/* Creates the indexes and such tables that are missing. */
char *bxShadowRepair(BxVtab *p, BxErr *pErr);

#endif
