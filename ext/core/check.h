/*
** check.h: blackbox_check(), and the problems that it lists.
*/
#ifndef BX_CHECK_H
#define BX_CHECK_H

#include "error.h"

#define BX_MAX_PROBLEMS 100 /* most problems of one kind */

struct BxProblems {
  sqlite3_str *pJson; /* array of [schema, object, problem], not closed */
  int bAny;
  const char *zDb; /* the schema that is checked */
  BxErr err;
};
void bxProblem(BxProblems *p, const char *zObject, const char *zFormat, ...);
/* An error of one check becomes a problem. But an error that does not come from
** the checked data, such as an interrupt, ends all checks. */
void bxUnchecked(BxProblems *p, const char *zObject, BxErr *pErr);

/* Each row of pOwned, an object and what is wrong with it, is a problem of zName; of
** more than BX_MAX_PROBLEMS it tells the number. bPart: the object has only the last
** part of its name, which begins with zName. An error is told as bxUnchecked() does. */
void bxProblemRows(BxProblems *p, sqlite3_stmt *pOwned, const char *zName,
    int bPart, BxErr *pErr);

/* The check of core that SQL cannot do: the values of settings. */
void bxSettingsCheck(BxStmts *p, BxProblems *pOut);
/* The query of blackbox_check. */
sqlite3_stmt *bxCheck(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

#endif
