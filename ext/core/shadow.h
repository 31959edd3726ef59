/*
** shadow.h: the tables that a virtual table owns.
*/
#ifndef BX_SHADOW_H
#define BX_SHADOW_H

#include "vtable.h"

/* The template of its tables, with the guards that it has in a file with holds
** if bHeld, to sqlite3_free(). */
char *bxShadowSql(const BxVtab *p, int bHeld, BxErr *pErr);
/* Whether its file has holds, or refuses keys that were erased. */
int bxShadowIsHeld(BxVtab *p, BxErr *pErr);
/* Whether it has these guards. */
int bxShadowIsGuarded(BxVtab *p, BxErr *pErr);
/* Creates them if they are missing, or drops them. */
void bxShadowGuard(BxVtab *p, int bHeld, BxErr *pErr);
/* An owner of a hold on all of it, to sqlite3_free(); NULL if there is none. */
char *bxShadowHolder(BxVtab *p, BxErr *pErr);
/* Creates the tables of a new virtual table. */
void bxShadowCreate(BxVtab *p, BxErr *pErr);
void bxShadowDrop(BxVtab *p, BxErr *pErr);
/* Renames them, and p. */
void bxShadowRename(BxVtab *p, const char *zNew, BxErr *pErr);
/* Whether the tables equal the template, but some views, triggers or indexes do
** not, as somebody dropped one. A table that the
** template creates IF NOT EXISTS may be missing, too. */
int bxShadowIsStale(BxVtab *p, BxErr *pErr);
/* Creates the views and triggers again, and the indexes and such tables that
** are missing. */
void bxShadowMend(BxVtab *p, BxErr *pErr);
/* Whether xShadowName claims the table of a template with that suffix: no, where
** SQLite would not open the file again. */
int bxShadowClaims(const char *zSql, const char *zSuffix);
#endif
