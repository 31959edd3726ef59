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

#endif
