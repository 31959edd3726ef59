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
int bxIsNamed(const char *zList, const char *zDomain);
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
void bxDebug(BxCall *p);     /* blackbox_debug() */

#endif
