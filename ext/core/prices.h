/*
** prices.h: what the tokens of a call cost, by the table blackbox_prices.
*/
#ifndef BX_PRICES_H
#define BX_PRICES_H

#include "command.h"
#include "json_path.h"

/* clang-format off */
/* Of a call: how much of the name of its model is the vendor before the last /, and
** how much is the date at the end. A price may have the name without them. */
#define BX_MODEL_PARTS                                                         \
  "iif(instr(model, '/'), length(rtrim(model, replace(model, '/', ''))), 0) "  \
  "AS vendor, CASE "                                                           \
  "WHEN substr(model, -9) GLOB '[-@]20[0-9][0-9][01][0-9][0-3][0-9]' THEN 9 "  \
  "WHEN substr(model, -11) GLOB '-20[0-9][0-9]-[01][0-9]-[0-3][0-9]' THEN 11 " \
  "WHEN substr(model, -7) = '-latest' THEN 7 ELSE 0 END AS tail"
/* The names that a price of n may have. */
#define BX_NAMES_OF_N                                                          \
  "(n.model, substr(n.model, n.vendor + 1), "                                  \
  "substr(n.model, 1, length(n.model) - n.tail), "                             \
  "substr(n.model, n.vendor + 1, length(n.model) - n.vendor - n.tail))"
#define BX_PROMPT "input_fresh + cache_write + cache_read AS prompt"
/* What the call n with these parts costs, or NULL. Of several prices the one with the
** longest name counts; then the newest of that day or, if all are newer, the oldest
** one; then the highest tier that the prompt exceeds. */
#define BX_PRICE_OF_N                                                          \
  "(SELECT price FROM (SELECT (n.input_fresh * p.input "                       \
  "+ (n.cache_write - n.cache_write_1h) * coalesce(p.cache_write, p.input) "   \
  "+ n.cache_write_1h * coalesce(p.cache_write_1h, 2 * p.input) "              \
  "+ n.cache_read * coalesce(p.cache_read, p.input) "                          \
  "+ (n.output - min(n.reasoning, n.output)) * p.output "                      \
  "+ min(n.reasoning, n.output) * coalesce(p.reasoning, p.output)) / 1e6 "     \
  "AS price, length(p.model) AS fit, "                                         \
  "julianday(p.since) - 2440587.5 - n.day AS away, p.above AS above "          \
  "FROM main.blackbox_prices AS p WHERE p.model IN " BX_NAMES_OF_N             \
  " AND (p.above = 0 OR p.above < n.prompt)) "                                 \
  "ORDER BY fit DESC, away > 0, abs(away), above DESC LIMIT 1)"
/* clang-format on */

/* Sets *prCost to the cost in USD of a call at iTime. Returns 0 if p's schema has no
** price for the model. zModel has nModel bytes. */
int bxCost(BxStmts *p, const char *zModel, i64 nModel, i64 iTime,
    const BxTokens *pTokens, double *prCost, BxErr *pErr);
/* rollout_load_prices() */
void bxLoadPrices(BxCall *p);

#endif
