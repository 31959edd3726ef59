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

/* SQL: everything that the SQL makes, as the table found.
**
**   type    trigger, view, index, table or row
**   name    of the object; of a row its table's
**   key     of a row, as SQL; else empty
**   state   0 it is missing
**           1 its name belongs to an object of another type
**           2 it has another text; a row: other values
**           3 a table with another text, but with all the columns
**           4 it is the same
**   filled  a table into which the SQL puts rows
**   lost    a table of a virtual table that differs, and cannot be created again
**   at      in this order things depend on what follows */
#define BX_FOUND                                                               \
  "WITH found AS MATERIALIZED (SELECT value ->> 0 AS type, value ->> 1 AS "    \
  "name,"                                                                      \
  " value ->> 2 AS \"key\", value ->> 3 AS state, value ->> 4 AS filled,"      \
  " value ->> 5 AS lost, f.\"key\" AS at FROM json_each(?1) AS f"              \
  " WHERE f.type = 'array') "

/* A query that begins with BX_FOUND, to sqlite3_finalize(). Its parameters from ?2 on
** are the caller's. Rows are in it with bRows; objects of core only for core. */
sqlite3_stmt *bxFound(
    BxStmts *p, const char *zSql, int bRows, const char *zQuery, BxErr *pErr);

/* Whether the SQL of a domain makes an object of that name, or a template a table with
** that suffix. */
int bxModelMakes(const char *zSql, const char *zName);

#endif
