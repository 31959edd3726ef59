/*
** check.h: blackbox_check(), and the problems that it lists.
*/
#ifndef BX_CHECK_H
#define BX_CHECK_H

#include "error.h"

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

/* The query of blackbox_check. */
sqlite3_stmt *bxCheck(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

#endif
