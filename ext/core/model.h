/*
** model.h: compares a schema with the SQL that makes it.
*/
#ifndef BX_MODEL_H
#define BX_MODEL_H

#include "schema.h"

/* zSql makes the schema: the SQL of a domain or, if p has a table name, the
** template of the tables of a virtual table. */

/* A database in memory with everything that the SQL makes, to sqlite3_close().
** Its temp table core(name) lists the objects of core that the domain needs. */
sqlite3 *bxModel(BxStmts *p, const char *zSql, BxErr *pErr);

typedef enum {
  BX_MISSING,
  BX_ALIEN, /* its name belongs to an object of another type */
  BX_OTHER, /* it exists with another text; of a row: with other values */
  BX_FITS,  /* a table with another text, but with all the columns */
  BX_SAME
} BxState;

/* Something that the SQL makes, and its state in the schema. */
typedef struct BxObject {
  const char *zType; /* trigger, view, index, table or row */
  const char *zName; /* of the object; of a row its table's */
  const char *zKey;  /* of a row, as SQL; else empty */
  BxState eState;
  int bFilled; /* a table into which the SQL puts rows */
  int bLost;   /* a table of a virtual table that differs, and that cannot be
               ** created again */
} BxObject;

/* Calls xEach for everything that the SQL makes: triggers, views, indexes,
** tables and, with bRows, rows. Objects of core are included only for core. No
** statement reads p's schema while xEach runs. */
void bxCompare(BxStmts *p, const char *zSql, int bRows,
    void (*xEach)(BxStmts *p, void *pArg, const BxObject *pObject), void *pArg,
    BxErr *pErr);

/* The same with a model that exists, which is NULL only after an error. */
void bxCompareModel(BxStmts *p, sqlite3 *pModel, const char *zSql, int bRows,
    void (*xEach)(BxStmts *p, void *pArg, const BxObject *pObject), void *pArg,
    BxErr *pErr);

/* Whether a template has a table with that suffix, or the SQL of a domain one of that
** name. */
int bxModelMakes(const char *zSql, const char *zSuffix);
/* Whether it creates that table IF NOT EXISTS: nothing is lost with
** it. */
int bxModelRenews(const char *zSql, const char *zSuffix);

/* A trigger or a unique index of somebody else on a guarded table. */
typedef struct BxStranger {
  const char *zType; /* trigger, temp trigger or unique index */
  const char *zName, *zTable;
} BxStranger;

/* Calls xEach for each of them on the guarded tables of the domain or, if
** pDomain is NULL, on all tables of the model. */
void bxStrangers(BxStmts *p, sqlite3 *pModel, const BxDomain *pDomain,
    void (*xEach)(void *pArg, const BxStranger *pStranger), void *pArg,
    BxErr *pErr);

#endif
