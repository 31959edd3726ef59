/*
** core.h: what the domains of blackbox stand on.
**
** One Bx belongs to one connection that has loaded the module. It owns the
** prepared statements that functions keep, knows in which schema each domain
** is installed, and holds each domain's own memory. Core knows no domain: the
** table in blackbox.c tells it which there are.
**
** Error style: every fallible helper takes a BxErr and does nothing once it
** is set, so a chain of calls needs one look at the end. A code from SQLite
** is never replaced by another.
*/
#ifndef BX_CORE_H
#define BX_CORE_H

#include "../blackbox.h"
#include <sqlite3ext.h>
#include <stddef.h>

#ifndef SQLITE_CORE
extern const sqlite3_api_routines *sqlite3_api;
#endif

typedef sqlite3_int64 i64;
typedef struct Bx Bx;
typedef struct BxCall BxCall;
typedef struct BxErr BxErr;
typedef struct BxModule BxModule;
typedef struct BxProblems BxProblems;
typedef struct BxStmts BxStmts;

/*----------------------------------------------------------- error.c ----*/

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

/*------------------------------------------------------- statement.c ----*/

/*
** The statements that one owner keeps prepared, for one schema and, in a
** virtual table, one table name. A template is SQL that stands alone when
** read: "main." marks the schema and "@" begins the owner's table name, so
** main.@_slots becomes "schema"."ring_slots" and @_slots just "ring_slots".
** The address of a template is its key: pass the same constant each time.
*/
struct BxStmts {
  Bx *bx;
  char *zDb;    /* schema name, unquoted */
  char *zTable; /* virtual table's name, or NULL */
  int nStmt;    /* entries used in aStmt */
  int nAlloc;   /* entries allocated */
  struct BxStmt *aStmt;
  BxStmts *pNext; /* next schema of the same Bx */
};

/* Replaces the marks of a template. Returns text to sqlite3_free, or NULL. */
char *bxExpand(const char *zTemplate, const char *zDb, const char *zTable);
void bxStmtsInit(
    BxStmts *p, Bx *bx, const char *zDb, const char *zTable, BxErr *pErr);
/* Finalizes what is still alive. The object may be used again. */
void bxStmtsFinalize(BxStmts *p);
/* Finalizes and frees names; p itself stays the caller's. */
void bxStmtsFree(BxStmts *p);
/*
** The kept statement of a template, reset and without bindings; NULL on
** error. Never finalize it; end each use with bxRun() or bxDone().
*/
sqlite3_stmt *bxStmt(BxStmts *p, const char *zTemplate, BxErr *pErr);
/* Finalizes the kept statement of a template: the next use prepares it anew. */
void bxStmtForget(BxStmts *p, const char *zTemplate);
/* A statement of the caller's own, to finalize. For cursors and rare SQL. */
sqlite3_stmt *bxPrepare(BxStmts *p, const char *zTemplate, BxErr *pErr);
/*
** Binds parameters 1, 2, ... by one letter each: i an i64, t a const char*
** (NULL binds NULL; must live until the statement is done), v a
** sqlite3_value* (NULL binds NULL), s the same without a copy (must live until
** the statement is done), n nothing (NULL), - none: it stays as it is.
*/
void bxBind(sqlite3_stmt *pStmt, BxErr *pErr, const char *zTypes, ...);
/* Steps once. Returns 1 on a row; 0 at the end or on error. */
int bxRow(sqlite3_stmt *pStmt, BxErr *pErr);
/* Text of a column, NULL where that is NULL, or on error: SQLite needs memory
** to give it out. */
const char *bxColumnText(sqlite3_stmt *pStmt, int i, BxErr *pErr);
/* A copy of it, to sqlite3_free(). */
char *bxColumnCopy(sqlite3_stmt *pStmt, int i, BxErr *pErr);
/* Resets, and lets go of bound values. NULL is allowed. */
void bxDone(sqlite3_stmt *pStmt, BxErr *pErr);
/* Steps to the end, then bxDone(). */
void bxRun(sqlite3_stmt *pStmt, BxErr *pErr);
/* The number that a query gives, 0 when it has no row. It is not kept. */
i64 bxNumber(BxStmts *p, const char *zTemplate, BxErr *pErr);
/* A query on a JSON text, its ?1, which it frees. */
sqlite3_stmt *bxJsonRows(Bx *bx, const char *zSql, char *zOwned, BxErr *pErr);
/* Runs a template of one or several statements that are not kept. */
void bxExec(BxStmts *p, const char *zTemplate, BxErr *pErr);

/*------------------------------------------------------ connection.c ----*/

/* Memory that a domain keeps for a connection. */
typedef struct BxSlot {
  void *p;
  void (*xFree)(void *); /* called when the connection has closed */
} BxSlot;

typedef struct BxDomain BxDomain;
typedef struct BxVtab BxVtab;

/* Texts that were found to be JSON, by their hashes. */
typedef struct BxSeen {
  sqlite3_uint64 iSeed; /* 0: nothing was seen yet */
  sqlite3_uint64 aHash[256];
} BxSeen;

struct Bx {
  sqlite3 *db;
  int nRef;      /* functions and modules that point here */
  int bAnchored; /* blackbox_call is connected: kept statements allowed */
  int bAlone;    /* our savepoint began its transaction */
  int nWhole;    /* steps of SQLite's machine that a whole SAVEPOINT takes */
  int nDomain;   /* entries in aDomain and aSlot */
  const BxDomain *aDomain;
  BxSlot *aSlot;
  char **azHome;           /* schema found for each domain, or NULL */
  char *zUse;              /* schema chosen by blackbox_use(), or NULL */
  BxStmts *pStmts;         /* one for each schema in use */
  BxVtab *pVtabs;          /* connected virtual tables of our modules */
  const BxModule *aModule; /* of those; ends with a NULL name */
  BxSeen seen;
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

/* The memory slot of a domain ("payload"), or NULL for an unknown name. */
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

/*---------------------------------------------------------- vtable.c ----*/

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

/*----------------------------------------------------------- value.c ----*/

/* SQL: the milliseconds of a date that is text, NULL when it is none; the same
** number on every SQLite. sql/payload.sql says how, and has it in its indexes. */
#define BX_DATE_MS(text)                                                       \
  "CASE WHEN substr(" text ", 24) = 'Z' AND substr(" text ", 20, 1) = '.' "    \
  "AND substr(" text ", 12, 2) < '24' THEN unixepoch(" text                    \
  ") * 1000 + substr(" text ", 21, 3) "                                        \
  "WHEN substr(" text ", 5, 1) <> '-' OR substr(" text                         \
  ", 12, 2) = '24' THEN NULL "                                                 \
  "WHEN substr(" text ", 14, 1) = ':' AND substr(" text                        \
  ", 20, 1) <> '.' THEN unixepoch(" text ") * 1000 "                           \
  "WHEN substr(" text ", 14, 1) = ':' THEN unixepoch(substr(" text             \
  ", 1, 21) || ltrim(substr(" text ", 22), "                                   \
  "'0123456789')) * 1000 + CAST(substr(" text                                  \
  ", 20, 4) * 1000 + 0.5 AS INTEGER) "                                         \
  "WHEN length(" text ") = 10 THEN unixepoch(" text " || ' 00:00') * 1000 END"

#define BX_MAX_TIME 253402300799999 /* 9999-12-31, in milliseconds */
#define BX_MS_PER_DAY 86400000

/* Now, in milliseconds since 1970 UTC, as SQLite's own date functions see. */
i64 bxNow(void);
/* Writes a random UUID (version 4, lower case) and its terminator. */
void bxUuid(char zOut[37]);
/* What a message shows of a value: 'text', 12, NULL, a blob of 3 bytes. */
char *bxShow(sqlite3_value *pVal);
/* Whether n bytes are well-formed UTF-8 (RFC 3629). */
int bxIsUtf8(const unsigned char *z, int n);
/*
** Text of an argument. Refused: NULL (unless bNull, then NULL comes back),
** a blob, an embedded NUL, the empty string, more than nMax bytes, bytes that
** are no UTF-8.
*/
const char *bxText(
    sqlite3_value *pVal, const char *zWhat, int nMax, int bNull, BxErr *pErr);
/* A whole number from iLow to iHigh; a real that is whole passes. */
i64 bxInt(
    sqlite3_value *pVal, const char *zWhat, i64 iLow, i64 iHigh, BxErr *pErr);
/* A time in milliseconds since 1970 UTC; NULL or no value means now. */
i64 bxTime(sqlite3_value *pVal, const char *zWhat, BxErr *pErr);
/* Bytes of a text or blob as stored; 0 for NULL. */
i64 bxBytes(sqlite3_value *pVal);

/*------------------------------------------------------------ json.c ----*/

/* SQL: whether SQLite takes a text for JSON. When memory runs out, json_valid()
** of SQLite before 3.45 says no instead of failing. So a no is asked again, of
** a text that has to be made first, which fails. */
#define BX_JSON_VALID(json)                                                    \
  "CASE WHEN json_valid(" json ") THEN 1 ELSE json_valid(" json " || ' ') END"

/* SQL: whether a JSON string stands for text with a NUL. (What SQLite makes of
** it may end before that.) */
#define BX_JSON_HAS_NUL(json)                                                  \
  "instr(replace(" json ", '\\\\', ''), '\\u0000') > 0"
/* SQL: the text that a JSON string stands for, with its NULs: three characters
** that Unicode gives no meaning take their place on the way. */
#define BX_JSON_TEXT(json)                                                     \
  "CASE WHEN instr(" json ", '\\u0000') THEN replace("                         \
  "replace(replace(" json ", '\\\\', '\\u005c'), '\\u0000',"                   \
  " '\\ufdd0\\ufdd1\\ufdd0') ->> '$', char(64976, 64977, 64976), char(0)) "    \
  "ELSE " json " ->> '$' END"

/* 1: json_valid() accepts these n bytes, behind which a NUL stands; 0: ask it.
*/
int bxSurelyJson(const char *z, i64 n);
/* Writes a text as a JSON string, without a NUL after it. Returns its end. */
char *bxPutJson(char *zOut, const char *z, int n);
#define BX_JSON_ROOM 6 /* bytes that it may write for one, and the quotes */
/* Whether these n bytes, behind which a NUL stands, are JSON. 0 for NULL. */
int bxIsJson(Bx *bx, const char *z, i64 n, BxErr *pErr);
/* The same for a text that this connection may read again: one that was found
** to be JSON before is recognised by its hash, many times faster. */
int bxIsJsonAgain(Bx *bx, const char *z, i64 n, BxErr *pErr);

/* What to do with a member: leave it out, go on inside it, cut a string to
** BX_CUT_CHARS characters, or nothing. */
typedef enum {
  BX_CUT_NOTHING,
  BX_CUT_ALL,
  BX_CUT_MEMBERS,
  BX_CUT_ELEMENTS,
  BX_CUT_TEXT
} BxHow;

#define BX_CUT_CHARS 100

/* The member of that name. zKind has the characters with which a value of the
** kind expected begins, NULL for any kind. A list ends with zKey NULL, and has
** at most 64. */
typedef struct BxCut {
  const char *zKey;
  BxHow eHow;
  const char *zKind;
  const struct BxCut *aInside; /* of its members, or of its elements' members */
} BxCut;

/* What came of it: BX_CUT_UNSURE where bxSurelyJson() says no; BX_CUT_ODD where
** a key has an escape, or one that a list names comes twice, so that what it
** stands for is in doubt; BX_CUT_STRANGE where a member is not of the kind that
** its list says, or an element of BX_CUT_ELEMENTS is no object. */
typedef enum {
  BX_CUT_UNSURE,
  BX_CUT_DONE,
  BX_CUT_STRANGE,
  BX_CUT_ODD
} BxCutResult;

/*
** Appends the value of those n bytes to pOut, cut as *pCut tells; a value that
** is not of the kind expected is left whole. Unless it returns BX_CUT_DONE or
** BX_CUT_STRANGE, what was appended is of no use.
*/
BxCutResult bxJsonCut(
    const char *z, i64 n, const BxCut *pCut, sqlite3_str *pOut);

/*--------------------------------------------------------- command.c ----*/

#define BX_READ 0  /* reads; may be used anywhere but in a schema */
#define BX_WRITE 1 /* changes data: one savepoint around it, top level only */
#define BX_OWN 2   /* changes data and looks after its own transaction */
#define BX_PURE 4  /* a constant function of its arguments */

typedef struct BxFunction {
  const char *zName;
  int nMin, nMax; /* number of arguments */
  int flags;
  void (*xRun)(BxCall *);
} BxFunction;

/* One call of a named function, or one row put into blackbox_call. */
struct BxCall {
  Bx *bx;
  const BxFunction *pDef;
  int nArg;
  sqlite3_value **aArg;
  sqlite3_context *pCtx; /* NULL for a row */
  BxErr err;
};

/* Argument i, or NULL when it was not given or is SQL NULL. */
sqlite3_value *bxArg(BxCall *p, int i);
/* Results. A call that came as a row has no use for them. */
void bxReturnInt(BxCall *p, i64 iVal);
void bxReturnText(BxCall *p, char *zOwned); /* frees it with sqlite3_free */
void bxReturnJson(BxCall *p, char *zOwned); /* the same, marked as JSON */
void bxReturnValue(BxCall *p, sqlite3_value *pVal);

int bxRegisterFunctions(Bx *bx, const BxFunction *aFunction, int nFunction);
int bxRegisterCall(Bx *bx, const BxFunction *aFunction, int nFunction);

/*------------------------------------------------------- savepoint.c ----*/

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

/*----------------------------------------------------------- table.c ----*/

/*
** A table-valued function is a query. Hidden columns are its arguments; with
** xOpen NULL, zSql runs on the schema that carries zDomain with the arguments
** bound to ?1, ?2, ... in order (NULL where not given).
*/
typedef struct BxTable {
  const char *zName;
  const char *zColumns; /* declared columns, the hidden ones last */
  int nColumn;          /* columns that are not hidden */
  int nRequired, nArg;  /* hidden columns: needed, and in all */
  const char *zDomain;
  const char *zSql;
  /* Prepares the query with its parameters bound, checks arguments. apArg[i]
  ** is NULL where not given. The cursor finalizes the statement. */
  sqlite3_stmt *(*xOpen)(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
} BxTable;

int bxRegisterTables(Bx *bx, const BxTable *aTable, int nTable);
/* create_module with a reference to bx as pAux. */
int bxRegisterModule(Bx *bx, const char *zName, const sqlite3_module *pModule);

/*------------------------------ install.c, uninstall.c and check.c ----*/

#define BX_MAX_PROBLEMS 100 /* listed of one kind */

struct BxProblems {
  sqlite3 *db;
  char *zJson;     /* elements [schema, object, problem]; NULL for none */
  const char *zDb; /* the schema that is looked at */
  BxErr err;
};
void bxProblem(BxProblems *p, const char *zObject, const char *zFormat, ...);
/* An error of one check becomes a problem; but one that is no fault of what is
** checked, such as an interrupt, ends them all. */
void bxUnchecked(BxProblems *p, const char *zObject, BxErr *pErr);

/* The schema and the list of domains that arguments 0 and 1 name: main and NULL
** when they are not given. The schema is there, not temp, and in UTF-8. */
BxStmts *bxInstallArguments(BxCall *p, const char **pzList);
/* Whether a comma-separated list names the domain. NULL names all. */
int bxIsNamed(const char *zList, const char *zDomain);
/* Version of an installed domain, 0 when it is not said, -1 when there is
** none. VersionError for one that is newer than this module. */
i64 bxInstalledVersion(BxStmts *p, const BxDomain *pDomain, BxErr *pErr);
/* Returns the schema and the domains that it has: "main: core, payload". */
void bxReturnDomains(BxCall *p, BxStmts *pStmts);

void bxInstall(BxCall *p);   /* blackbox_install() */
void bxUninstall(BxCall *p); /* blackbox_uninstall() */
void bxUse(BxCall *p);       /* blackbox_use() */
void bxVersion(BxCall *p);   /* blackbox_version() */
void bxDebug(BxCall *p);     /* blackbox_debug() */
sqlite3_stmt *bxCheck(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
/*----------------------------------------------------------- model.c ----*/

/* zSql is what makes a schema: a domain's SQL, or, when p has a table name, the
** template of a virtual table's tables. */

/* A database in memory with what the SQL makes, to sqlite3_close(). Its temp
** table core(name) lists what is there for the domain to stand on. */
sqlite3 *bxModel(BxStmts *p, const char *zSql, BxErr *pErr);
/* A query on it, to finalize. */
sqlite3_stmt *bxModelAsk(sqlite3 *pModel, const char *zSql, BxErr *pErr);

typedef enum {
  BX_MISSING,
  BX_ALIEN, /* its name belongs to an object of another type */
  BX_OTHER, /* it is there with another text; of a row, with other values */
  BX_FITS,  /* a table with another text, but with all the columns */
  BX_SAME
} BxState;

/* Something that the SQL makes, and how the schema has it. */
typedef struct BxObject {
  const char *zType; /* trigger, view, index, table or row */
  const char *zName; /* of the object; of a row its table's */
  const char *zKey;  /* of a row, as SQL; else empty */
  BxState eState;
  int bFilled; /* a table into which the SQL puts rows */
} BxObject;

/* Calls xEach for all that the SQL makes: triggers, views, indexes, tables, and
** with bRows the rows. Core's objects belong to core alone. No statement reads
** p's schema while xEach runs. */
void bxCompare(BxStmts *p, const char *zSql, int bRows,
    void (*xEach)(BxStmts *p, void *pArg, const BxObject *pObject), void *pArg,
    BxErr *pErr);

/* A trigger or a unique index of somebody else's on a guarded table. */
typedef struct BxStranger {
  const char *zType; /* trigger, temp trigger or unique index */
  const char *zName, *zTable;
} BxStranger;

/* Calls xEach for every one of them on the domain's guarded tables; on all that
** the SQL makes, when pDomain is NULL. */
void bxStrangers(BxStmts *p, const char *zSql, const BxDomain *pDomain,
    void (*xEach)(void *pArg, const BxStranger *pStranger), void *pArg,
    BxErr *pErr);

/*---------------------------------------------------------- shadow.c ----*/

/* Makes the tables of a new virtual table. */
void bxShadowCreate(BxVtab *p, BxErr *pErr);
void bxShadowDrop(BxVtab *p, BxErr *pErr);
/* Gives them, and p, the new name. */
void bxShadowRename(BxVtab *p, const char *zNew, BxErr *pErr);
/* Whether the tables stand as the template makes them, but some views, triggers
** or indexes do not: an older module made them, or one was dropped. */
int bxShadowIsStale(BxVtab *p, BxErr *pErr);
/* Makes the views and triggers anew, and the indexes that are missing. */
void bxShadowMend(BxVtab *p, BxErr *pErr);
/* For xShadowName: whether a template makes a table of that suffix. */
int bxShadowClaims(const char *zSql, const char *zSuffix);

#endif
