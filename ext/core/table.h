/*
** table.h: table-valued functions.
*/
#ifndef BX_TABLE_H
#define BX_TABLE_H

#include "error.h"

/* Rows that C makes, where they are no query. */
typedef struct BxRows {
  /* Arguments as xOpen of BxTable has them. They live until xClose. */
  void *(*xOpen)(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
  int (*xNext)(
      void *p, BxErr *pErr); /* to the first, then the next; 0: no more */
  void (*xColumn)(void *p, sqlite3_context *pCtx, int i);
  void (*xClose)(void *p);
  /* NULL, or for the table that is disconnected when the connection closes, before
  ** SQLite looks whether statements are open. */
  void (*xClosing)(Bx *bx);
} BxRows;

/* The table has one argument and no hidden column: a condition with = on its first
** column is the argument, so that the query can seek. */
#define BX_KEYED (-1)
/* The same, and a second argument: a condition with > or >= on this column, which is
** not the first one. Rows below the value may be left out. */
#define BX_KEYED_FROM(column) (-1 - (column))

/* A table-valued function is a query. Its arguments are hidden columns. */
typedef struct BxTable {
  const char *zName;
  const char *zColumns; /* declared columns, the hidden ones last */
  int nColumn;          /* columns that are not hidden */
  int nRequired, nArg;  /* hidden columns: required (or keyed), and in all */
  /* Prepares the query, binds its parameters, and checks arguments. apArg[i] is
  ** NULL if not given. The cursor finalizes the statement. */
  sqlite3_stmt *(*xOpen)(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
  /* NULL, or the work of xUpdate (transaction.h), which gets its arguments. Then triggers
  ** cannot use the table, and the query has the rowid after its columns. */
  void (*xWrite)(Bx *bx, int argc, sqlite3_value **argv, BxErr *pErr);
  const BxRows *pRows; /* NULL, or what makes its rows instead of xOpen */
  unsigned
      mText; /* columns, by bits, with what SQLite reads from JSON: bytes that are
                  ** no UTF-8, as of half a surrogate pair, become U+FFFD */
} BxTable;

int bxRegisterTables(Bx *bx, const BxTable *aTable, int nTable);
/* create_module with a reference to bx as pAux. */
int bxRegisterModule(Bx *bx, const char *zName, const sqlite3_module *pModule);

#endif
