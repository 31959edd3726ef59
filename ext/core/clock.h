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

/* Whether triggers or tables of others could refuse the DELETE of a row of a table, or of
** the domain of a rule, such as cache.idle. A write removes nothing then by the rule,
** because it could not go on after an error. */
int bxOthersRefuse(
    BxStmts *p, const char *zRule, const char *zTable, BxErr *pErr);

#endif
