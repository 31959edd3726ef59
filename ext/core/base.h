/*
** base.h: SQLite's interface, and the names of structures that several headers
** of core use.
*/
#ifndef BX_BASE_H
#define BX_BASE_H

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
typedef struct Bx Bx;                 /* connection.h */
typedef struct BxCall BxCall;         /* command.h */
typedef struct BxDomain BxDomain;     /* domain.h */
typedef struct BxErr BxErr;           /* error.h */
typedef struct BxModule BxModule;     /* vtable.h */
typedef struct BxProblems BxProblems; /* check.h */
typedef struct BxRoom BxRoom;         /* room.h */
typedef struct BxStmts BxStmts;       /* statement.h */
typedef struct BxVtab BxVtab;         /* vtable.h */

#endif
