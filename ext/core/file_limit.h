/*
** file_limit.h: the limit of a file, and what goes for it.
*/
#ifndef BX_FILE_LIMIT_H
#define BX_FILE_LIMIT_H

#include "command.h"
#include "domain.h"

/* What a domain removes when the file is above its limit. */
struct BxFileLimit {
  const BxDue *pDue; /* its rule, of those in aDue */
  int bDue;          /* its rows are due anyway: its share does not keep them */
  /* Of that table: how the oldest rows are found; about how many bytes a row takes. */
  const char *zIndexed, *zTakes;
  /* (A LIMIT that is a parameter alone makes SQLite prepare a statement anew each time,
  ** from 3.47 on.) */
  /* Queries: about how many bytes all rows take, and of the oldest since time ?1, at most
  ** ?2: the rowid, the bytes, the time, and whether a hold keeps it. */
  const char *zHas, *zOldest;
  const char *zRemove; /* the DELETE of rowid ?1 */
  /* Or a call, with schema ?1 and a size of 1 (with a push) to 4, that gives back some of
  ** what is removed already, and returns whether it has; 2: that was dear. */
  const char *zTend;
};

/* After so many rows were written: removes something if the file is above its limit. bRow:
** by xUpdate. An error is passed over if the record is still there. nRow below 0: it was a
** push, which removes one row at most. */
void bxFileLimitTend(BxStmts *p, i64 nRow, int bRow, BxErr *pErr);
/* Before it: rows iFirst to iLast have just been written, and stay. */
void bxFileLimitWrote(
    BxStmts *p, const BxFileLimit *pRoom, i64 iFirst, i64 iLast);
/* After a write that is undone: the next call looks as if it were the first. */
void bxFileLimitUndone(BxStmts *p);
/* Both, for nMost rows at most; returns how many went, of all domains. */
i64 bxFileLimitTrim(BxStmts *p, i64 nMost, int bRow, BxErr *pErr);
/* The bytes that the file has above its limit; 0 or less: none. */
i64 bxFileLimitExcess(BxStmts *p, BxErr *pErr);
void bxFileLimitCall(BxCall *p); /* blackbox_room(schema) */
/* Of the rows of a rule, those up to the time and the key go; 0: none. Free the key. */
int bxFileLimitReach(
    BxStmts *p, const BxDue *pDue, i64 *piAt, char **pzKey, BxErr *pErr);

#endif
