/*
** prices.c: what a call costs, and rollout_load_prices(list, name[, date]), which
** reads a price list into blackbox_prices.
**
** list is a JSON object of models. A model has either the prices of a million
** tokens in USD, in an object with the columns of blackbox_prices or an array of
** such objects; or those of one token, as LiteLLM names them. What has no prices
** for input and output is left out. Rows of the list replace those with the same
** model and date. A list may say its date at $.about.date.
*/
#include "core.h"
#include "prices.h"
#include "digest.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/*----------------------------------------------------------------- cost ----*/

static const char zCost[] =
    "SELECT " BX_PRICE_OF_N " FROM (SELECT *, " BX_PROMPT ", " BX_MODEL_PARTS
    " FROM (SELECT "
    "?1 AS model, ?2 AS day, ?3 AS input_fresh, ?4 AS cache_write, "
    "?5 AS cache_write_1h, ?6 AS cache_read, ?7 AS output, ?8 AS reasoning)) "
    "AS n";

static i64 tokens(i64 n, i64 nMost) {
  return n < 0 ? 0 : n > nMost ? nMost : n;
}

int bxCost(BxStmts *p, const char *zModel, i64 nModel, i64 iTime,
    const BxTokens *pTokens, double *prCost, BxErr *pErr) {
  i64 nMost = (i64)1 << 52; /* a double has it exactly */
  i64 nWrite = tokens(pTokens->nCacheWrite, nMost);
  i64 nOutput = tokens(pTokens->nOutput, nMost);
  sqlite3_stmt *pStmt;
  int bPriced;
  assert(nModel >= 0);
  if (zModel == 0) return 0;
  pStmt = bxStmt(p, zCost, pErr);
  bxBind(pStmt, pErr, "biiiiiii", zModel, nModel, iTime / BX_MS_PER_DAY,
      tokens(pTokens->nInput, nMost), nWrite,
      tokens(pTokens->nCacheWrite1h, nWrite),
      tokens(pTokens->nCacheRead, nMost), nOutput,
      tokens(pTokens->nReasoning, nOutput));
  bPriced = bxStep(pStmt, pErr) && sqlite3_column_type(pStmt, 0) != SQLITE_NULL;
  if (bPriced) *prCost = sqlite3_column_double(pStmt, 0);
  bxReset(pStmt, pErr);
  return bPriced && pErr->rc == SQLITE_OK;
}

/*----------------------------------------------------------------- load ----*/

/* clang-format off */
#define IS_PRICE(path) "json_type(v, " path ") IN ('integer', 'real')"
#define PRICE(name, each)                                                      \
  "CASE WHEN tail = '' AND " IS_PRICE("'$." name "'") " THEN v ->> '$." name "' " \
  "WHEN " IS_PRICE("'$." each "' || tail") " "                                 \
  "THEN round((v ->> ('$." each "' || tail)) * 1e6, 9) END AS " name

/* Rows of a list, ?1; ?3 is its date. LiteLLM names the prices of a tier with a
** tail, such as input_cost_per_token_above_200k_tokens. */
#define PRICE_ROWS                                                             \
  "WITH said(model, v, tail, above, since) AS ("                               \
  "SELECT m.key, e.value, '', coalesce(e.value ->> '$.above', 0), "            \
  "coalesce(e.value ->> '$.since', ?3) FROM json_each(?1) AS m, "              \
  "json_each(CASE m.type WHEN 'array' THEN m.value ELSE '[' || m.value || ']' END) " \
  "AS e WHERE m.type IN ('object', 'array') AND e.type = 'object' "            \
  "UNION ALL SELECT m.key, m.value, substr(k.key, 21), "                       \
  "1000 * CAST(substr(k.key, 28) AS INTEGER), ?3 "                             \
  "FROM json_each(?1) AS m, json_each(m.value) AS k WHERE m.type = 'object' "  \
  "AND k.key GLOB 'input_cost_per_token_above_[0-9]*k_tokens'), "              \
  "priced AS (SELECT model, since, above, "                                    \
  PRICE("input", "input_cost_per_token") ", "                                  \
  PRICE("output", "output_cost_per_token") ", "                                \
  PRICE("cache_write", "cache_creation_input_token_cost") ", "                 \
  PRICE("cache_write_1h", "cache_creation_input_token_cost_above_1hr") ", "    \
  PRICE("cache_read", "cache_read_input_token_cost") ", "                      \
  PRICE("reasoning", "output_cost_per_reasoning_token") " FROM said "          \
  "WHERE model <> ''), "                                                       \
  "listed AS (SELECT * FROM priced WHERE input >= 0 AND output >= 0 "          \
  "AND min(coalesce(cache_write, 0), coalesce(cache_write_1h, 0), "            \
  "coalesce(cache_read, 0), coalesce(reasoning, 0)) >= 0 "                     \
  "AND (input > 0 OR output > 0)) "

static const char zUnlist[] = PRICE_ROWS
    "DELETE FROM main.blackbox_prices WHERE (model, since) IN "
    "(SELECT model, since FROM listed)";
static const char zEnlist[] = PRICE_ROWS
    "INSERT INTO main.blackbox_prices(model, since, above, input, output, "
    "cache_write, cache_write_1h, cache_read, reasoning, list, list_date, "
    "list_digest) SELECT model, since, above, input, output, cache_write, "
    "cache_write_1h, cache_read, reasoning, ?2, ?3, ?4 FROM listed WHERE 1 "
    "ON CONFLICT DO NOTHING";
static const char zModels[] = PRICE_ROWS "SELECT count(DISTINCT model) FROM listed";
/* clang-format on */

void bxLoadPrices(BxCall *p) {
  /* if it is not given, what the list says, or today */
  static const char zDateSaid[] =
      "SELECT said FROM (SELECT coalesce(?1, ?2 ->> '$.about.date', "
      "date('now')) AS said) WHERE date(said) = said";
  const char *zList = bxText(p->aArg[0], "list", 1000000000, 0, &p->err);
  const char *zName = bxText(p->aArg[1], "name", 1000, 0, &p->err);
  const char *zGiven = bxText(bxArg(p, 2), "date", 100, 1, &p->err);
  BxStmts *pHome = bxDomainSchema(p->bx, "core", &p->err);
  char zDigest[7 + 2 * BX_DIGEST + 1], *zDate;
  unsigned char aDigest[BX_DIGEST];
  i64 nModel = 0;
  if (p->err.rc != SQLITE_OK) return;
  bxLock(pHome, &p->err);
  if (p->err.rc == SQLITE_OK &&
      (*bxJsonSkipSpace(zList) != '{' ||
          !bxIsJson(p->bx, zList, (i64)strlen(zList), &p->err))) {
    bxFail(&p->err, SQLITE_CONSTRAINT,
        "ValidationError: list must be a JSON object of models, such as "
        "{\"a-model\":{\"input\":5,\"output\":25}}, in USD for a million "
        "tokens; check the file");
  }
  zDate = bxQueryText(pHome, zDateSaid, &p->err, "tt", zGiven, zList);
  if (zDate == 0) {
    bxFail(&p->err, SQLITE_CONSTRAINT,
        "ValidationError: date must be the date of the list, such as "
        "2026-11-01, got %Q; omit it for about.date of the list, or today",
        zGiven);
  }
  if (p->err.rc == SQLITE_OK) {
    nModel = bxQueryInt(pHome, zModels, &p->err, "t-t", zList, zDate);
  }
  if (p->err.rc == SQLITE_OK && nModel == 0) {
    bxFail(&p->err, SQLITE_CONSTRAINT,
        "ValidationError: the list has no model with prices for input and "
        "output; it must be an object of models, such as "
        "{\"a-model\":{\"input\":5,\"output\":25}}");
  }
  if (p->err.rc == SQLITE_OK) {
    bxDigestTwo(zList, strlen(zList), "", 0, aDigest);
    memcpy(zDigest, "sha256:", 7);
    bxHex(aDigest, BX_DIGEST, zDigest + 7);
    bxStmtExec(pHome, zUnlist, &p->err, "t-t", zList, zDate);
    bxStmtExec(pHome, zEnlist, &p->err, "tttt", zList, zName, zDate, zDigest);
  }
  if (p->err.rc == SQLITE_OK) bxReturnInt(p, nModel);
  sqlite3_free(zDate);
}
