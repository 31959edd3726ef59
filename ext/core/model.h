/*
** model.h: a schema compared with the SQL that makes it.
*/
#ifndef BX_MODEL_H
#define BX_MODEL_H

#include "connection.h"

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

#endif
