/*
** install.h: blackbox_install(), blackbox_uninstall() and what they share.
*/
#ifndef BX_INSTALL_H
#define BX_INSTALL_H

#include "command.h"
#include "schema.h"

/* The schema and the list of domains of arguments 0 and 1: main and NULL by
** default. Checks that the schema exists, is not temp, and is in UTF-8. */
BxStmts *bxInstallArguments(BxCall *p, const char **pzList);
/* Whether a comma-separated list names the domain. NULL and 'all' name all. */
int bxDomainInList(const char *zList, const char *zDomain);
/* Installs a domain, and core, in schema zDb unless they are there: for a CREATE
** VIRTUAL TABLE, which needs them and undoes it if it fails. For temp: in main, unless
** some other schema has it. */
void bxInstallMissing(
    Bx *bx, const char *zDb, const char *zDomain, BxErr *pErr);
/* Makes the schema and its domains the result: "main: core, payload". */
void bxReturnDomains(BxCall *p, BxStmts *pStmts);

void bxInstall(BxCall *p);   /* blackbox_install() */
void bxUse(BxCall *p);       /* blackbox_use() */
void bxUninstall(BxCall *p); /* blackbox_uninstall() */
void bxVersion(BxCall *p);   /* blackbox_version() */

/*---------------------------------------------------------------- check ----*/

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
void bxProblemError(BxProblems *p, const char *zObject, BxErr *pErr);

/* Each row of pOwned, an object and what is wrong with it, is a problem of zName; of
** more than BX_MAX_PROBLEMS it tells the number. bPart: the object has only the last
** part of its name, which begins with zName. An error is told as bxProblemError() does. */
void bxProblemRows(BxProblems *p, sqlite3_stmt *pOwned, const char *zName,
    int bPart, BxErr *pErr);

/* The check of core that SQL cannot do: whether each value is in the range of its setting,
** whatever a connection that ignores constraints has written. pOut may be NULL. */
int bxSettingsCheck(BxStmts *p, BxProblems *pOut, BxErr *pErr);
/* The query of blackbox_check. */
sqlite3_stmt *bxCheck(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

#endif
