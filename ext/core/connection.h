/*
** connection.h: what blackbox knows of a connection, and what a domain is.
*/
#ifndef BX_CONNECTION_H
#define BX_CONNECTION_H

#include "statement.h"

/* Memory that a domain keeps for a connection. */
typedef struct BxSlot {
  void *p;
  void (*xFree)(void *); /* called when the connection has closed */
} BxSlot;

typedef struct BxDomain BxDomain;

struct Bx {
  sqlite3 *db;
  int nRef;      /* functions and modules that point here */
  int bAnchored; /* blackbox_call is connected: kept statements allowed */
  int bAlone;    /* our savepoint began its transaction */
  int nWhole;    /* steps of SQLite's machine that a whole SAVEPOINT takes */
  int nDomain;   /* entries in aDomain and aSlot */
  const BxDomain *aDomain;
  BxSlot *aSlot;
  char **azHome;             /* schema found for each domain, or NULL */
  char *zUse;                /* schema chosen by blackbox_use(), or NULL */
  BxStmts *pStmts;           /* one for each schema in use */
  BxVtab *pVtabs;            /* connected virtual tables of our modules */
  const BxModule *aModule;   /* of those; ends with a NULL name */
  sqlite3_uint64 aJson[256]; /* hashes of texts that were found to be JSON */
};

/* One of the five words. */
struct BxDomain {
  const char *zName;   /* "payload" */
  const char *zTable;  /* a table that only an installed domain has */
  const char *zNewest; /* one that no older version has, or NULL */
  int iVersion;        /* of the schema in sql/ */
  const char *zSql;    /* sql/<name>.sql */
  /* Before the SQL runs on schema p->zDb: makes room for tables that another
  ** program or an older version left there. May be NULL. */
  void (*xAdopt)(BxStmts *p, BxErr *pErr);
  /* After the SQL: makes what depends on the tables that were found. xIsWhole
  ** says whether there is nothing of that to do. May be NULL, both. */
  void (*xMend)(BxStmts *p, BxErr *pErr);
  int (*xIsWhole)(BxStmts *p, BxErr *pErr);
  /* Part of blackbox_check() that SQL cannot say. May be NULL. */
  void (*xCheck)(BxStmts *p, BxProblems *pOut);
  /* Tables on which nobody else's trigger or unique index may be, each between
  ** commas; may be NULL. Triggers that xMend makes are named <domain>_made_*.
  */
  const char *zGuarded;
  /* One of them that may be another program's: xCheck looks at its unique
  ** indexes. May be NULL. */
  const char *zAdopted;
  /* What the errors of its functions begin with when beginning or ending their
  ** savepoint fails ("Write failed: "); may be NULL. */
  const char *zFailed;
  /* What it makes on request, outside its SQL, in the order in which it is to
  ** be dropped: names between commas; may be NULL. */
  const char *zOptional;
  /* Refuses that the domain leaves p's schema while the connection keeps
  ** something for it; may be NULL. */
  void (*xLeave)(BxStmts *p, BxErr *pErr);
};

/* The memory slot of a domain ("payload"). */
BxSlot *bxSlot(Bx *bx, const char *zDomain);
/*
** The statements for the schema that carries a domain. Errors: "Database not
** initialized: ..." and "ambiguous: ...".
*/
BxStmts *bxHome(Bx *bx, const char *zDomain, BxErr *pErr);
/* The statements for a schema by name, whatever it carries. */
BxStmts *bxSchema(Bx *bx, const char *zDb, BxErr *pErr);
/* Whether schema zDb carries the domain: has its tables. Nothing is read, as a
** read in a transaction must not come before the caller's first write. */
int bxCarries(Bx *bx, const char *zDb, const char *zDomain, BxErr *pErr);
/* VersionError unless the domain that zDb carries is of this version, as the
** tables of an older one are others. bxHome() asks this itself. */
void bxNeedVersion(Bx *bx, const char *zDb, const char *zDomain, BxErr *pErr);
/* Forgets which schema carries what. */
void bxForgetHomes(Bx *bx);
/* Takes the write lock on p's schema. The first statement of what changes data
** must write: after a read, SQLite refuses to wait for another writer. */
void bxLock(BxStmts *p, BxErr *pErr);
/* EncodingError unless p's schema stores text as UTF-8. */
void bxNeedUtf8(BxStmts *p, BxErr *pErr);
/* Value of a setting in p's schema. */
i64 bxSettingInt(BxStmts *p, const char *zName, BxErr *pErr);
/* Makes the object that finalizes kept statements before the busy check. */
void bxAnchor(Bx *bx, BxErr *pErr);
Bx *bxRef(Bx *bx);
void bxUnref(void *p);

void bxUse(BxCall *p); /* blackbox_use() */

#endif
