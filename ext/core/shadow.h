/*
** shadow.h: the tables that a virtual table owns.
*/
#ifndef BX_SHADOW_H
#define BX_SHADOW_H

#include "vtable.h"

/* Creates the tables of a new virtual table. */
void bxShadowCreate(BxVtab *p, BxErr *pErr);
void bxShadowDrop(BxVtab *p, BxErr *pErr);
/* Renames them, and p. */
void bxShadowRename(BxVtab *p, const char *zNew, BxErr *pErr);
/* Whether the tables equal the template, but some views, triggers or indexes do
** not: an older module made them, or somebody dropped one. A table that the
** template creates IF NOT EXISTS may be missing, too. */
int bxShadowIsStale(BxVtab *p, BxErr *pErr);
/* Creates the views and triggers again, and the indexes and such tables that
** are missing. */
void bxShadowMend(BxVtab *p, BxErr *pErr);
/* Whether a template has a table with that suffix. */
int bxShadowMakes(const char *zSql, const char *zSuffix);
/* The same for xShadowName: no, where SQLite would not open the file again. */
int bxShadowClaims(const char *zSql, const char *zSuffix);
/* Whether it creates that table IF NOT EXISTS: nothing is lost with it. */
int bxShadowRenews(const char *zSql, const char *zSuffix);

#endif
