/*
** prices.h: what the tokens of a call cost, by the table blackbox_prices.
*/
#ifndef BX_PRICES_H
#define BX_PRICES_H

#include "command.h"
#include "places.h"

/* Sets *prCost to the cost in USD of a call at iTime. Returns 0 if p's schema has no
** price for the model. zModel has nModel bytes. */
int bxCost(BxStmts *p, const char *zModel, i64 nModel, i64 iTime,
    const BxTokens *pTokens, double *prCost, BxErr *pErr);
/* rollout_load_prices() */
void bxLoadPrices(BxCall *p);

#endif
