/*
** clock.h: the time for which rules are applied.
*/
#ifndef BX_CLOCK_H
#define BX_CLOCK_H

#include "statement.h"

/* The argument as it is or, if there is none, the clock. ClockError if the clock
** has jumped too far ahead. With bWrite, a time of the clock is remembered in
** p's schema, at most once an hour. */
i64 bxRuleTime(BxStmts *p, sqlite3_value *pNow, int bWrite, BxErr *pErr);
/* The clock, or 0 if it has jumped too far ahead, so that nothing is due. */
i64 bxTrustedTime(BxStmts *p, int bWrite, BxErr *pErr);

/* SQL: the clock of the machine, as in the log. */
#define BX_CLOCK "CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)"

/* SQL: whether triggers or tables of others could refuse the DELETE of a row of a domain
** by a rule. A write removes nothing then, because it could not go on after an error. */
#define BX_OTHERS_REFUSE(domain)                                               \
  "EXISTS (SELECT 1 FROM main.sqlite_schema NOT INDEXED WHERE "                \
  "iif(type = 'trigger', tbl_name LIKE '" domain                               \
  "%' AND name NOT LIKE '" domain                                              \
  "%' AND sql LIKE '%delete%', type = 'table' AND sql LIKE "                   \
  "'%references%" domain "%'))"

#endif
