/*
** prices.c: rollout_load_prices(list, name[, date]): a price list as rows of
** rollout_prices.
**
** list is a JSON object of models. A model has either the prices of a million
** tokens in USD: input, output, cache_write and cache_read; or those of one
** token, as LiteLLM names them: input_cost_per_token, output_cost_per_token,
** cache_creation_input_token_cost and cache_read_input_token_cost. A model
** without prices for input and output is left out. Without a price for a cache,
** its tokens cost what input costs. Models that the list does not have keep the
** price of the list before.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* clang-format off */
#define PRICE(name, each)                                                      \
  "CASE WHEN json_type(m.value, '$." name "') IN ('integer', 'real') "         \
  "THEN m.value ->> '$." name "' "                                             \
  "WHEN json_type(m.value, '$." each "') IN ('integer', 'real') "              \
  "THEN round((m.value ->> '$." each "') * 1e6, 9) END"

static const char zLoad[] =
    "INSERT INTO main.rollout_prices(model, input, cache_write, cache_read, "
    "output, list, list_date, list_digest) "
    "SELECT model, input, coalesce(cache_write, input), "
    "coalesce(cache_read, input), output, ?2, ?3, ?4 FROM ("
    "SELECT m.key AS model, "
    PRICE("input", "input_cost_per_token") " AS input, "
    PRICE("output", "output_cost_per_token") " AS output, "
    PRICE("cache_write", "cache_creation_input_token_cost") " AS cache_write, "
    PRICE("cache_read", "cache_read_input_token_cost") " AS cache_read "
    "FROM json_each(?1) AS m WHERE m.type = 'object' AND m.key <> '') "
    "WHERE input >= 0 AND output >= 0 AND coalesce(cache_write, 0) >= 0 "
    "AND coalesce(cache_read, 0) >= 0 AND (input > 0 OR output > 0) "
    "ON CONFLICT (model) DO UPDATE SET input = excluded.input, "
    "cache_write = excluded.cache_write, cache_read = excluded.cache_read, "
    "output = excluded.output, list = excluded.list, "
    "list_date = excluded.list_date, list_digest = excluded.list_digest";
/* clang-format on */

/* The SHA-256 of the list, as text. */
static void digestOf(const char *z, char zOut[80]) {
  unsigned char a[BX_DIGEST];
  SHA256_CTX sha;
  SHA256_Init(&sha);
  SHA256_Update(&sha, (const uint8_t *)z, strlen(z));
  SHA256_Final(a, &sha);
  memcpy(zOut, "sha256:", 7);
  bxHex(a, BX_DIGEST, zOut + 7);
}

/* The date of the list, to sqlite3_free(): today, if it is not given. */
static char *dateSaid(BxStmts *pHome, const char *zGiven, BxErr *pErr) {
  static const char zDate[] = "SELECT CASE WHEN ?1 IS NULL THEN date('now') "
                              "WHEN date(?1) = ?1 THEN ?1 END";
  char *z = bxAskText(pHome, zDate, pErr, "t", zGiven);
  if (z == 0 && pErr->rc == SQLITE_OK) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: date must be the date of the list, such as "
        "2026-11-01, got %Q; omit it for today",
        zGiven);
  }
  return z;
}

static void checkPrices(BxStmts *pHome, const char *zList, BxErr *pErr) {
  if (pErr->rc != SQLITE_OK ||
      (*bxSkipSpace(zList) == '{' &&
          bxIsJson(pHome->bx, zList, (i64)strlen(zList), pErr))) {
    return;
  }
  bxFail(pErr, SQLITE_CONSTRAINT,
      "ValidationError: list must be a JSON object of models, such as "
      "{\"a-model\":{\"input\":5,\"output\":25}}, in USD for a million tokens; "
      "check the file");
}

void bxRolloutLoadPrices(BxCall *p) {
  const char *zList = bxText(p->aArg[0], "list", ROLLOUT_MAX_TEXT, 0, &p->err);
  const char *zName = bxText(p->aArg[1], "name", 1000, 0, &p->err);
  const char *zGiven = bxText(bxArg(p, 2), "date", 100, 1, &p->err);
  BxStmts *pHome = bxRolloutHome(p->bx, &p->err);
  char zDigest[80], *zDate;
  if (p->err.rc != SQLITE_OK) return;
  bxLock(pHome, &p->err);
  checkPrices(pHome, zList, &p->err);
  zDate = dateSaid(pHome, zGiven, &p->err);
  if (p->err.rc == SQLITE_OK) {
    digestOf(zList, zDigest);
    bxDo(pHome, zLoad, &p->err, "tttt", zList, zName, zDate, zDigest);
  }
  if (p->err.rc == SQLITE_OK && sqlite3_changes(p->bx->db) == 0) {
    bxFail(&p->err, SQLITE_CONSTRAINT,
        "ValidationError: the list has no model with prices for input and "
        "output; it must be an object of models, such as "
        "{\"a-model\":{\"input\":5,\"output\":25}}");
  }
  bxRolloutExplain(&p->err, "WriteError: Write failed: ");
  if (p->err.rc == SQLITE_OK) bxReturnInt(p, sqlite3_changes(p->bx->db));
  sqlite3_free(zDate);
}
