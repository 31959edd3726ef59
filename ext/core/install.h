/*
** install.h: blackbox_install(), blackbox_uninstall() and what they share.
*/
#ifndef BX_INSTALL_H
#define BX_INSTALL_H

#include "command.h"
#include "connection.h"

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
void bxVersion(BxCall *p);   /* blackbox_version() */
void bxDebug(BxCall *p);     /* blackbox_debug() */

#endif
