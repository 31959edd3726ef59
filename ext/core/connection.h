/*
** connection.h: the state of blackbox for a connection, and the description of
** a domain.
*/
#ifndef BX_CONNECTION_H
#define BX_CONNECTION_H

#include "statement.h"

/* What a connection keeps for a domain. */
typedef struct BxSlot {
  void *p;               /* memory of the domain */
  void (*xFree)(void *); /* called after the connection has closed */
  char *zHome;           /* the schema that was found for it, or NULL */
} BxSlot;

typedef struct BxDomain BxDomain;

struct Bx {
  sqlite3 *db;
  int nRef;      /* functions and modules that point here */
  int bAnchored; /* blackbox_call is connected: statements may be kept */
  int bAlone;    /* the savepoint of a call began its transaction */
  int bNewHome;  /* the version of a home was not looked at */
  int bInner;    /* the next function is a part of the call that runs */
  i64 iCall;     /* the call that runs: see bxEnter(); 0 if none does */
  i64 nCall;     /* how many have begun */
  i64 iWrite;    /* the call that is an xUpdate: see bxWriteBegin() */
  int nChange;   /* rows that were changed when bxWriteNote() was called */
  int bWritten;  /* it has written something */
  int nWhole;    /* VM steps of a complete SAVEPOINT */
  int nDomain;   /* entries in aDomain and aSlot */
  const BxDomain *aDomain;
  BxSlot *aSlot;             /* after this structure */
  char *zUse;                /* schema chosen by blackbox_use(), or NULL */
  BxStmts *pStmts;           /* one for each schema in use */
  BxVtab *pVtabs;            /* the connected virtual tables of blackbox */
  const BxModule *aModule;   /* their modules; ends with a NULL name */
  sqlite3_uint64 aJson[256]; /* hashes of texts that were found to be JSON */
};

/* One of the five words. */
struct BxDomain {
  const char *zName;  /* "payload" */
  const char *zTable; /* a table that only an installed domain has */
  /* A table that no older version has, or a table WHERE a column that it has in
  ** no older version. May be NULL. */
  const char *zNewest;
  int iVersion;     /* of the schema in sql/ */
  const char *zSql; /* sql/<name>.sql */
  /* A table that only a schema in the larger form has. In that form lines of
  ** zSql that begin with "--| " count; lines that end with "--|" do not, nor
  ** those from "--|{" to "--|}"; and the version is iLarger. May be NULL. */
  const char *zLarger;
  int iLarger;
  /* Called before the SQL runs on schema p->zDb, to handle tables of another
  ** program or of an older version. May be NULL. */
  void (*xAdopt)(BxStmts *p, BxErr *pErr);
  /* Called after the SQL: creates what depends on the tables that were found.
  ** xIsWhole tells whether all of that exists. Both may be NULL. */
  void (*xMend)(BxStmts *p, BxErr *pErr);
  int (*xIsWhole)(BxStmts *p, BxErr *pErr);
  /* Makes the guards that exist only while the file has holds, or drops them if it
  ** has none. bEarly: the first is about to be placed. May be NULL. */
  void (*xGuard)(BxStmts *p, int bEarly, BxErr *pErr);
  /* The checks that SQL cannot do. May be NULL. */
  void (*xCheck)(BxStmts *p, BxProblems *pOut);
  /* Tables on which others must not have triggers or unique indexes, each
  ** between commas; may be NULL. Triggers that xMend creates are named
  ** <domain>_made_*. */
  const char *zGuarded;
  /* The one of these tables that may belong to another program: xCheck examines
  ** its unique indexes. May be NULL. */
  const char *zAdopted;
  /* Tables whose rows are computed from those of others, so that an uninstall
  ** loses nothing with them: names, each between commas; may be NULL. */
  const char *zDerived;
  /* The prefix of errors of its functions if beginning or ending their
  ** savepoint fails ("Write failed: "); may be NULL. */
  const char *zFailed;
  /* The objects that it creates on request, outside its SQL, in the order of
  ** dropping: names between commas; may be NULL. */
  const char *zOptional;
  /* Fails if the domain must not be removed from p's schema, because the
  ** connection keeps something for it; may be NULL. */
  void (*xLeave)(BxStmts *p, BxErr *pErr);
  /* The setting that turns it on, and what the domain then does about records
  ** (pins, receipts ...) that others have written into p's schema: bxFollow()
  ** calls it. Both may be NULL. */
  const char *zFollows;
  void (*xFollow)(BxStmts *p, int bWhole, BxErr *pErr);
};

/* The slot of a domain ("payload"). */
BxSlot *bxSlot(Bx *bx, const char *zDomain);
/*
** The statements for the schema that has a domain. Errors: "Database not
** initialized: ..." and "ambiguous: ...".
*/
BxStmts *bxHome(Bx *bx, const char *zDomain, BxErr *pErr);
/* The statements for a schema by name, with or without domains. */
BxStmts *bxSchema(Bx *bx, const char *zDb, BxErr *pErr);
/* Whether schema zDb has the tables of the domain. Reads nothing, because a
** read in a transaction must not precede the first write of the caller. */
int bxCarries(Bx *bx, const char *zDb, const char *zDomain, BxErr *pErr);
/* VersionError unless the domain in zDb has this version, because older
** versions have other tables. bxHome() calls this itself. */
void bxNeedVersion(Bx *bx, const char *zDb, const char *zDomain, BxErr *pErr);
/* VersionError if a schema that bxHome() has found since the last call has a newer
** version of its domain. This is looked at after a function has run, and only in a
** schema that it has read, because that is a read, too. A function that keeps
** something in memory, which no savepoint takes back, calls it before that. */
void bxNeedKnown(Bx *bx, BxErr *pErr);
/* Whether the domain in p's schema has the larger form. Reads nothing. */
int bxIsLarger(BxStmts *p, const BxDomain *pDomain, BxErr *pErr);
/* The SQL of the domain for p's schema, to sqlite3_free(). */
char *bxDomainSql(BxStmts *p, const BxDomain *pDomain, BxErr *pErr);
/* Forgets which schema has which domain. */
void bxForgetHomes(Bx *bx);

/* Around the work of a function, or of xUpdate of a table, which a statement of the
** host calls: meanwhile kept statements are looked up only once. bxEnter() returns
** what bxLeave() takes. */
i64 bxEnter(Bx *bx);
void bxLeave(Bx *bx, i64 iOuter);
/* Takes the write lock on p's schema. The first statement of a change must
** write: after a read, SQLite refuses to wait for another writer. */
void bxLock(BxStmts *p, BxErr *pErr);
/* Called at the end of a call that has written records, in its transaction: lets
** the domains follow that want to know, in every schema that was written.
** bWhole: no statement of the host is running, so that the records are
** complete. */
void bxFollow(Bx *bx, int bWhole, BxErr *pErr);
/* Whether p's schema has a write-ahead log. */
int bxIsWal(BxStmts *p, BxErr *pErr);
/* EncodingError unless p's schema stores text as UTF-8. */
void bxNeedUtf8(BxStmts *p, BxErr *pErr);
/* The value of a setting in p's schema. */
double bxSettingReal(BxStmts *p, const char *zName, BxErr *pErr);
i64 bxSettingInt(BxStmts *p, const char *zName, BxErr *pErr);
/* Creates the object that finalizes kept statements before SQLite's busy
** check. */
void bxAnchor(Bx *bx, BxErr *pErr);
Bx *bxRef(Bx *bx);
void bxUnref(void *p);

void bxUse(BxCall *p); /* blackbox_use() */

#endif
