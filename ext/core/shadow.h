/*
** shadow.h: the tables that a virtual table owns.
*/
#ifndef BX_SHADOW_H
#define BX_SHADOW_H

#include "vtable.h"

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
