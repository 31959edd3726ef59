/*
** shadow.h: the tables that a virtual table owns.
*/
#ifndef BX_SHADOW_H
#define BX_SHADOW_H

#include "vtable.h"

/* Whether its file has holds, or refuses keys that were erased. */
int bxShadowIsHeld(BxVtab *p, BxErr *pErr);
/* An owner of a hold on all of it, to sqlite3_free(); NULL if there is none. */
char *bxShadowHolder(BxVtab *p, BxErr *pErr);
/* Creates the tables of a new virtual table. */
void bxShadowCreate(BxVtab *p, BxErr *pErr);
void bxShadowDrop(BxVtab *p, BxErr *pErr);
/* Renames them, and p. */
void bxShadowRename(BxVtab *p, const char *zNew, BxErr *pErr);
/* Replaces the table name in the statements. */
void bxShadowTakeName(BxVtab *p, const char *zNew, BxErr *pErr);
/* Whether the tables equal the template, but some indexes are missing. A table that
** the template creates IF NOT EXISTS may be missing, too. */
int bxShadowIsStale(BxVtab *p, BxErr *pErr);
/* Creates the indexes and such tables that are missing. */
char *bxShadowMend(BxVtab *p, BxErr *pErr);
#endif
