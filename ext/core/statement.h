/*
** statement.h: SQL templates, the statements kept for them, and the steps of a
** statement.
*/
#ifndef BX_STATEMENT_H
#define BX_STATEMENT_H

#include "error.h"

/* What a connection keeps for a domain. */
typedef struct BxDomainData {
  void *p;               /* memory of the domain */
  void (*xFree)(void *); /* called after the connection has closed */
  /* Called before it closes, when it still can be written; may be NULL. It may stay
  ** open, and be called again. */
  void (*xClosing)(void *);
  void *pKept; /* what was read and may be read again */
  void (*xFreeKept)(void *);
  char *zHome; /* the schema that was found for it, or NULL */
  BxStmts *
      pRoom; /* for file_limit.c: of this schema, rows before time iRoom are passed
                  ** over until iRoomUntil */
  i64 iRoom, iRoomUntil;
  BxStmts
      *pAsked; /* bxOthersRefuse() has looked at this schema, of that version */
  i64 iSchema;
  int bRefuses;
} BxDomainData;

struct Bx {
  sqlite3 *db;
  int nRef;      /* functions and modules that point here */
  int bAnchored; /* blackbox_call is connected: statements may be kept */
  int bClean;    /* when the call began, nothing could be rolled back */
  int bAlone;    /* the savepoint of a call began its transaction */
  int bNewHome;  /* the format of a home was not looked at */
  int bInner;    /* the next function is a part of the call that runs */
  i64 iCall;     /* the call that runs: see bxCallBegin(); 0 if none does */
  i64 nCall;     /* how many have begun */
  i64 iFirst;    /* the call that runs, or the one around all others */
  int nTotal;    /* sqlite3_total_changes() when the last one ended */
  int nOwed;     /* rows of xUpdate, which the statements count at their ends */
  i64 nForeign;  /* how many began after somebody else had changed something */
  int nOwn;      /* rows that an append has changed itself, not by triggers */
  i64 nCommit;   /* transactions that bxRelease() has ended */
  i64 iWrite;    /* the call that is an xUpdate: see bxWriteBegin() */
  int nChange;   /* rows that were changed when bxWriteNote() was called */
  int bWritten;  /* it has written something */
  int nWhole;    /* VM steps of a complete SAVEPOINT */
  int nFunction; /* the functions */
  const struct BxFunction *aFunction;
  int nDomain; /* entries in aDomain and aSlot */
  const BxDomain *aDomain;
  BxDomainData *aSlot;       /* after this structure */
  char *zUse;                /* schema chosen by blackbox_use(), or NULL */
  BxStmts *pStmts;           /* one for each schema in use */
  struct BxLogKnown *pKnown; /* see log.h; NULL: none */
  BxVtab *pVtabs;            /* the connected virtual tables of blackbox */
  BxVtab *pGone;             /* those that went while a call runs */
  void (*xFreeGone)(Bx *);
  int nCheck;                /* checks that run */
  sqlite3 *pModel;           /* during these, the model of core, or NULL */
  const BxModule *aModule;   /* their modules; ends with a NULL name */
  sqlite3_uint64 aJson[256]; /* hashes of texts that were found to be JSON */
};

/* The slot of a domain ("payload"). */
BxDomainData *bxDomainData(Bx *bx, const char *zDomain);
/* The domain of that name, or NULL. */
const BxDomain *bxDomainOf(const Bx *bx, const char *zDomain);
/* Forgets which schema has which domain. */
void bxForgetDomainSchemas(Bx *bx);
/* Around the work of a function, or of xUpdate of a table, which a statement of
** the host calls: meanwhile kept statements are looked up only once. bxCallBegin()
** returns what bxCallEnd() takes. */
i64 bxCallBegin(Bx *bx);
void bxCallEnd(Bx *bx, i64 iOuter);
Bx *bxRef(Bx *bx);
/* The last reference goes when the connection is really closed. */
void bxUnref(void *p);

/*
** The statements that one owner keeps prepared, for one schema and, for a
** virtual table, one table name. A template is SQL in which "main." marks the
** schema and "@" stands for the name of the owner's table, so that main.@_slots
** becomes "schema"."ring_slots", and @_slots becomes "ring_slots". '@' becomes
** the name as text. The address of a template is its key: pass the same constant
** each time.
*/
struct BxStmts {
  Bx *bx;
  char *zDb;    /* schema name, unquoted */
  char *zTable; /* virtual table's name, or NULL */
  int nStmt;    /* entries used in aStmt */
  i64 nAlloc;   /* entries allocated */
  struct {
    i64 nLeft,
        nStep;  /* rows until bxFileLimitTend() looks at the file, of so many */
    int bAgain; /* it has seen rows that stay alone */
    int bSwept; /* this write has done a dear step for it */
    int bWaits; /* the next push removes a row, and not the last one */
    i64 nSize;  /* 1: it removes one row at most */
    i64 nOver;  /* what it has found */
    i64 nMost;  /* as many rows may still go; 0: no matter how many */
    const BxFileLimit
        *pNew; /* of these, the rows that were written last: they stay */
    i64 iNew, iNewLast;
    i64 nPageSize, iSchema; /* since that version of the schema */
  } room;
  i64 iFound; /* the call in which its statements were last looked up */
  struct BxStmt *aStmt;
  BxStmts *pNext; /* next schema of the same Bx */
};

/* The statements for a schema by name, with or without domains. */
BxStmts *bxSchema(Bx *bx, const char *zDb, BxErr *pErr);
/* Creates the object that finalizes kept statements before SQLite's busy
** check. */
void bxAnchor(Bx *bx, BxErr *pErr);
/* Replaces the marks of a template. Returns text to sqlite3_free, or NULL. */
char *bxExpand(const char *zTemplate, const char *zDb, const char *zTable);
void bxStmtsInit(
    BxStmts *p, Bx *bx, const char *zDb, const char *zTable, BxErr *pErr);
/* Finalizes all statements that still exist. The object may be used again. */
void bxStmtsFinalize(BxStmts *p);
/* Finalizes the statements and frees the names; the caller owns p itself. */
void bxStmtsFree(BxStmts *p);
/*
** The kept statement of a template, reset and without bindings; NULL on
** error. Never finalize it; end each use with bxStmtRun() or bxReset().
*/
sqlite3_stmt *bxStmt(BxStmts *p, const char *zTemplate, BxErr *pErr);
/* The same for n templates, at most BX_STMT_SET, in less time. */
#define BX_STMT_SET 8
void bxStmtSet(BxStmts *p, const char *const *azTemplate, int n,
    sqlite3_stmt **apStmt, BxErr *pErr);
/* Finalizes the kept statement of a template: the next use prepares it again. */
void bxStmtForget(BxStmts *p, const char *zTemplate);
/* Takes the kept statement of a template out, or prepares one, for a use that may
** meet another of the same template. NULL on error. bxStmtGive() resets it and keeps
** it again, or finalizes it if another one is kept. */
sqlite3_stmt *bxStmtTake(BxStmts *p, const char *zTemplate, BxErr *pErr);
void bxStmtGive(BxStmts *p, const char *zTemplate, sqlite3_stmt *pStmt);
/* Ends a statement of a cursor: gives it back, or finalizes what was prepared. */
void bxStmtDone(Bx *bx, sqlite3_stmt *pStmt);
/* Prepares SQL that is not a template. The caller finalizes the statement. */
sqlite3_stmt *bxPrepareSql(sqlite3 *db, const char *zSql, BxErr *pErr);
/* The same, and frees the SQL. */
sqlite3_stmt *bxPrepareOwned(sqlite3 *db, char *zOwned, BxErr *pErr);
/* Whether the tables that SQL names exist. Frees the SQL, and does not run it.
*/
int bxCanPrepare(Bx *bx, char *zOwned, BxErr *pErr);
/* Prepares a statement that the caller finalizes. For cursors and rare SQL. */
sqlite3_stmt *bxPrepare(BxStmts *p, const char *zTemplate, BxErr *pErr);
/* The same, and frees the template. */
sqlite3_stmt *bxPrepareMade(BxStmts *p, char *zOwned, BxErr *pErr);
/*
** Binds parameters 1, 2, ... by one letter each: i an i64; d a double; t a const char*
** (NULL binds NULL; must exist until the statement is done); c a copy of one;
** b the same as t with its length, a const char* and an i64; x a blob, the same
** with a const void*;
** v a sqlite3_value* (NULL binds NULL); s the same without a copy (must exist
** until the statement is done); n NULL; - leaves the parameter as it is.
*/
void bxBind(sqlite3_stmt *pStmt, BxErr *pErr, const char *zTypes, ...);
/* Steps once. Returns 1 on a row; 0 at the end or on error. */
int bxStep(sqlite3_stmt *pStmt, BxErr *pErr);
/* The text of a column. NULL if the column is NULL, or on error, because SQLite
** may need memory to return it. */
const char *bxColumnText(sqlite3_stmt *pStmt, int i, BxErr *pErr);
/* A copy of it, to sqlite3_free(). */
char *bxColumnCopy(sqlite3_stmt *pStmt, int i, BxErr *pErr);
/* Resets the statement and clears its bindings. NULL is allowed. */
void bxReset(sqlite3_stmt *pStmt, BxErr *pErr);
/* Steps to the end, then bxReset(). */
void bxStmtRun(sqlite3_stmt *pStmt, BxErr *pErr);
/* Runs a kept statement, with parameters as for bxBind(). */
void bxStmtExec(
    BxStmts *p, const char *zTemplate, BxErr *pErr, const char *zTypes, ...);
/* The first column of the first row, 0 if there is no row; or as a text to
** sqlite3_free(), NULL if there is none. Parameters as for bxBind(). */
#define BX_QUERY_ONCE 1 /* the statement is not kept */
/* a function in it that changes data becomes a part of the caller's savepoint: the
** caller must fail if it fails */
#define BX_QUERY_INNER 2
#define BX_QUERY_OWNED 4 /* frees the template */
i64 bxQueryNumberHow(BxStmts *p, const char *zTemplate, int eHow, BxErr *pErr,
    const char *zTypes, ...);
char *bxQueryTextHow(BxStmts *p, const char *zTemplate, int eHow, BxErr *pErr,
    const char *zTypes, ...);
#define bxQueryInt(p, z, ...) bxQueryNumberHow(p, z, 0, __VA_ARGS__)
#define bxQueryIntInner(p, z, ...)                                             \
  bxQueryNumberHow(p, z, BX_QUERY_INNER, __VA_ARGS__)
#define bxQueryIntOnce(p, z, ...)                                              \
  bxQueryNumberHow(p, z, BX_QUERY_ONCE, __VA_ARGS__)
#define bxQueryNumber(p, z, pErr) bxQueryIntOnce(p, z, pErr, "")
#define bxQueryIntMade(p, z, ...)                                              \
  bxQueryNumberHow(p, z, BX_QUERY_ONCE | BX_QUERY_OWNED, __VA_ARGS__)
#define bxQueryTextMade(p, z, ...)                                             \
  bxQueryTextHow(p, z, BX_QUERY_ONCE | BX_QUERY_OWNED, __VA_ARGS__)
#define bxQueryText(p, z, ...) bxQueryTextHow(p, z, BX_QUERY_ONCE, __VA_ARGS__)
#define bxQueryTextInner(p, z, ...)                                            \
  bxQueryTextHow(p, z, BX_QUERY_ONCE | BX_QUERY_INNER, __VA_ARGS__)
/* A query on a JSON text, its ?1, which it frees. */
sqlite3_stmt *bxJsonRows(Bx *bx, const char *zSql, char *zOwned, BxErr *pErr);
/* Notes what has changed until now, when a statement has ended with *pErr, or is
** about to begin. Every function that gives out a statement does it. */
void bxWriteNote(Bx *bx, const BxErr *pErr);
/* Notes that the schema has changed, of which there is no count. */
void bxWriteSchema(Bx *bx);
/* Runs SQL that is not a template, and frees it: CREATE, DROP and the like, as
** after it xUpdate counts as having written (transaction.h). */
void bxExecSql(Bx *bx, char *zOwned, BxErr *pErr);
/* The same with a template, of one or several statements that are not kept. */
void bxExec(BxStmts *p, const char *zTemplate, BxErr *pErr);
/* The same, and frees the template. */
void bxExecMade(BxStmts *p, char *zOwned, BxErr *pErr);

#endif
