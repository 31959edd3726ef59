/*
** usage.c: the tokens that items tell, as rows of rollout_calls, by the rows of
** blackbox_places; and the tables rollout_usage, rollout_usage_days and
** rollout_usage_sums, which show them with their cost by blackbox_prices.
*/
#include "rollout.h"
#include "../core/prices.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

void bxRolloutUsageFree(RolloutDerive *p) {
  i64 i;
  assert(p->nUsage <= p->nUsageAlloc);
  for (i = 0; i < p->nUsage; i++) {
    sqlite3_free(p->aUsage[i].zCall);
    sqlite3_free(p->aUsage[i].zModel);
  }
  sqlite3_free(p->aUsage);
}

/* The text at a place, as a part of an id; NULL if there is none. */
static char *textAt(RolloutDerive *p, const char *zPath1) {
  const BxTree *pTree = &p->pJson->tree;
  int i = bxRolloutPlace(p->pJson, zPath1);
  char cKind = i < 0 ? 'n' : BX_TREE_KIND(pTree, i);
  if (cKind == 'n') return 0;
  if (cKind == '"') return bxTreeString(pTree, i, p->pErr);
  return bxPrintf(
      p->pErr, "%.*s", pTree->a[i].nByte, pTree->z + pTree->a[i].iAt);
}

/* The node of an object at a place, or -1. */
static int objectAt(RolloutDerive *p, const char *zPath1) {
  int i = bxRolloutPlace(p->pJson, zPath1);
  return i >= 0 && BX_TREE_KIND(&p->pJson->tree, i) == '{' ? i : -1;
}

void bxRolloutDeriveUsage(
    RolloutDerive *p, const BxPlace *pPlace, i64 iSequence) {
  const BxTree *pTree = &p->pJson->tree;
  char *const *az = pPlace->az;
  int iNode = objectAt(p, az[BX_PLACE_AT]), iTotal, iCost;
  RolloutUsage usage, *a;
  BxTokens *pTokens = &usage.tokens;
  assert(pPlace->eKind == BX_KIND_USAGE);
  memset(&usage, 0, sizeof(usage));
  usage.iSequence = iSequence;
  usage.iTime = p->iTime;
  usage.pPlace = pPlace;
  if (iNode < 0) return;
  bxTokensRead(pTokens, pPlace, pTree, iNode, p->pErr);
  if (pTokens->nInput + pTokens->nCacheWrite + pTokens->nCacheRead +
          pTokens->nOutput + pTokens->nReasoning <=
      0) {
    return;
  }
  if (pTokens->nCacheWrite1h > pTokens->nCacheWrite) {
    pTokens->nCacheWrite1h = pTokens->nCacheWrite;
  }
  a = bxArrayAdd(&p->aUsage, &p->nUsage, &p->nUsageAlloc, sizeof(*a), p->pErr);
  if (a == 0) return;
  /* what tells the call from others: the totals as they are written, or its ids */
  iTotal = objectAt(p, az[BX_PLACE_OTHER]);
  if (iTotal >= 0) {
    BxPlace total = *pPlace;
    BxTokens tokens = {0, 0, 0, 0, 0, 0};
    total.bCacheIn = 0;
    total.bReasoningIn = 1;
    bxTokensRead(&tokens, &total, pTree, iTotal, p->pErr);
    usage.bTotal = 1;
    usage.zCall = bxPrintf(p->pErr, "%lld:%lld:%lld:%lld", tokens.nInput,
        tokens.nCacheRead, tokens.nOutput, tokens.nReasoning);
  } else {
    char *z1 = textAt(p, az[BX_PLACE_ID]), *z2 = textAt(p, az[BX_PLACE_ID_2]);
    if (z1 != 0 && (z2 != 0 || az[BX_PLACE_ID_2] == 0)) {
      usage.zCall = bxPrintf(p->pErr, "%s:%s", z1, z2 ? z2 : "");
    }
    sqlite3_free(z1);
    sqlite3_free(z2);
  }
  iCost = bxRolloutPlace(p->pJson, az[BX_PLACE_COST]);
  if (iCost >= 0 && strchr("-0123456789", BX_TREE_KIND(pTree, iCost)) != 0) {
    usage.bCost = 1;
    usage.rCost = strtod(pTree->z + pTree->a[iCost].iAt, 0);
  }
  usage.zModel = textAt(p, az[BX_PLACE_MODEL]);
  if (usage.zModel == 0 && p->azNew[BX_KIND_MODEL] != 0) {
    usage.zModel = bxPrintf(p->pErr, "%s", p->azNew[BX_KIND_MODEL]);
  }
  *a = usage;
}

#define PUT_CALL                                                               \
  "INSERT INTO main.rollout_calls(id, call, at, model, input_fresh, "          \
  "cache_write, cache_read, output, reasoning, cost, format, "                 \
  "cache_write_1h) "                                                           \
  "VALUES (?1, coalesce(?2, '#' || ?1), ?12, coalesce(?3, "                    \
  "(SELECT model FROM main.rollout__about WHERE no = ?1 >> 32), ''), "         \
  "?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (call) DO "
static const char zNewCall[] = PUT_CALL "NOTHING";
static const char zPutCall[] =
    PUT_CALL "UPDATE SET output = excluded.output, "
             "reasoning = excluded.reasoning WHERE excluded.output > output";

/* Adds the calls from ?1 to ?2 to the sums ?3 times: 1 or -1. */
static const char zAddSums[] =
    "INSERT OR IGNORE INTO main.rollout__sums SELECT id >> 32, at / 86400000, "
    "model, "
    "format, told, ?3, ?3 * input_fresh, ?3 * cache_write, ?3 * cache_read, "
    "?3 * output, ?3 * reasoning, ?3 * cost, ?3 * cache_write_1h, prompt, "
    "prompt "
    "FROM (SELECT *, " BX_PROMPT
    ", (cost IS NOT NULL) + 2 * (reasoning > output)"
    " AS told FROM main.rollout_calls WHERE id BETWEEN ?1 AND ?2) WHERE 1 "
    "ON CONFLICT DO UPDATE SET calls = calls + excluded.calls, "
    "input_fresh = input_fresh + excluded.input_fresh, "
    "cache_write = cache_write + excluded.cache_write, "
    "cache_read = cache_read + excluded.cache_read, "
    "output = output + excluded.output, reasoning = reasoning + "
    "excluded.reasoning, cost = cost + excluded.cost, cache_write_1h = "
    "cache_write_1h + excluded.cache_write_1h, low = min(low, excluded.low), "
    "high = max(high, excluded.high)";

void bxRolloutSumsPut(BxStmts *p, BxErr *pErr) {
  bxExec(p, "DELETE FROM main.rollout__sums", pErr);
  bxStmtExec(p, zAddSums, pErr, "iii", (i64)0, (i64)0x7fffffffffffffff, (i64)1);
}

/* The root of the forks to which the conversation belongs, to sqlite3_free(). */
static char *readFamily(RolloutDerive *p, BxErr *pErr) {
  static const char zFamily[] =
      "SELECT iif(a.forked_from IS NULL, h.id, "
      "(WITH RECURSIVE up(id, steps) AS (SELECT h.id, 0 UNION "
      "SELECT a.forked_from, up.steps + 1 FROM up "
      "JOIN main.rollout__heads AS p ON p.id = up.id "
      "JOIN main.rollout__about AS a ON a.no = p.no "
      "WHERE a.forked_from IS NOT NULL AND up.steps < 1000) "
      "SELECT id FROM up ORDER BY steps DESC LIMIT 1)) "
      "FROM main.rollout__heads AS h "
      "LEFT JOIN main.rollout__about AS a ON a.no = h.no WHERE h.no = ?1";
  sqlite3_stmt *pRow = bxStmt(p->pHome, zFamily, pErr);
  char *z = 0;
  bxBind(pRow, pErr, "i", p->no);
  if (bxStep(pRow, pErr)) z = bxColumnCopy(pRow, 0, pErr);
  bxReset(pRow, pErr);
  return z;
}

/* The id of a call, to sqlite3_free(); NULL for that of its item. */
static char *callOf(const RolloutUsage *p, const char *zRoot, BxErr *pErr) {
  assert(!p->bTotal || zRoot != 0 || pErr->rc != SQLITE_OK);
  if (p->zCall == 0) return 0;
  return p->bTotal ? bxPrintf(pErr, "%s:%s", zRoot, p->zCall)
                   : bxPrintf(pErr, "%s", p->zCall);
}

i64 bxRolloutUsageDiffers(RolloutDerive *p, BxErr *pErr) {
  static const char zIsThere[] =
      "SELECT EXISTS (SELECT 1 FROM main.rollout_calls AS c "
      "WHERE c.call = coalesce(?2, '#' || ?1) AND c.output >= ?6 "
      "AND (c.id <> ?1 OR (c.input_fresh, c.cache_write, c.cache_read, "
      "c.cache_write_1h) = (?3, ?4, ?5, ?7)))";
  char *zRoot = p->nUsage > 0 ? readFamily(p, pErr) : 0;
  i64 i, iFound = -1;
  for (i = 0; i < p->nUsage && iFound < 0 && pErr->rc == SQLITE_OK; i++) {
    const RolloutUsage *pUsage = &p->aUsage[i];
    const BxTokens *a = &pUsage->tokens;
    char *zCall = callOf(pUsage, zRoot, pErr);
    if (!bxQueryInt(p->pHome, zIsThere, pErr, "itiiiii",
            bxRolloutKey(p->no, pUsage->iSequence), zCall, a->nInput,
            a->nCacheWrite, a->nCacheRead, a->nOutput, a->nCacheWrite1h)) {
      iFound = pUsage->iSequence;
    }
    sqlite3_free(zCall);
  }
  sqlite3_free(zRoot);
  return iFound;
}

/* Writes a call by one of these statements. Returns whether it did. */
static int putUsage(RolloutDerive *p, const char *zPut, const RolloutUsage *a,
    const char *zCall, BxErr *pErr) {
  const BxTokens *pTokens = &a->tokens;
  sqlite3_stmt *pStmt = bxStmt(p->pHome, zPut, pErr);
  bxBind(pStmt, pErr, "ittiiiii-tii", bxRolloutKey(p->no, a->iSequence), zCall,
      a->zModel, pTokens->nInput, pTokens->nCacheWrite, pTokens->nCacheRead,
      pTokens->nOutput, pTokens->nReasoning, a->pPlace->az[BX_PLACE_FORMAT],
      pTokens->nCacheWrite1h, a->iTime);
  if (pErr->rc == SQLITE_OK && a->bCost) {
    sqlite3_bind_double(pStmt, 9, a->rCost);
  }
  bxStmtRun(pStmt, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  p->pHome->bx->nOwn += sqlite3_changes(p->pHome->bx->db);
  return sqlite3_changes(p->pHome->bx->db) > 0;
}

void bxRolloutUsagePut(RolloutDerive *p, BxErr *pErr) {
  /* a call that was told before, and now with a larger output */
  static const char zGrows[] =
      "SELECT coalesce((SELECT id FROM main.rollout_calls WHERE call = ?1 "
      "AND output < ?2 AND id NOT BETWEEN ?3 AND ?4), -1)";
  char *zRoot = 0;
  i64 i, iFirst, iLast, iGrows = -1;
  if (p->nUsage == 0) return;
  zRoot = readFamily(p, pErr);
  iFirst = bxRolloutKey(p->no, p->aUsage[0].iSequence);
  iLast = bxRolloutKey(p->no, p->aUsage[p->nUsage - 1].iSequence);
  for (i = 0; i < p->nUsage && pErr->rc == SQLITE_OK; i++) {
    const RolloutUsage *pUsage = &p->aUsage[i];
    char *zOwned = callOf(pUsage, zRoot, pErr);
    if (!putUsage(p, zNewCall, pUsage, zOwned, pErr)) {
      if (zOwned != 0) {
        iGrows = bxQueryInt(p->pHome, zGrows, pErr, "tiii", zOwned,
            pUsage->tokens.nOutput, iFirst, iLast);
      }
      if (iGrows >= 0) {
        bxStmtExec(p->pHome, zAddSums, pErr, "iii", iGrows, iGrows, (i64)-1);
      }
      putUsage(p, zPutCall, pUsage, zOwned, pErr);
    }
    if (iGrows >= 0) {
      bxStmtExec(p->pHome, zAddSums, pErr, "iii", iGrows, iGrows, (i64)1);
    }
    iGrows = -1;
    sqlite3_free(zOwned);
  }
  bxStmtExec(p->pHome, zAddSums, pErr, "iii", iFirst, iLast, (i64)1);
  sqlite3_free(zRoot);
}

/*---------------------------------------------------------------- tables ----*/

/* clang-format off */
#define OUTPUT_SOURCE                                                          \
  "CASE WHEN n.format IN (SELECT format FROM main.blackbox_places"             \
  " WHERE source = 'item' AND kind = 'usage' AND output_recorded) "            \
  "THEN 'as recorded' END"
/* The calls of these tables, with their price. told: it is their own. */
#define COSTS(from, more)                                                      \
  "(SELECT n.*, n.cost IS NOT NULL AS told, coalesce(n.cost, " BX_PRICE_OF_N   \
  ") AS price, " OUTPUT_SOURCE " AS output_source"                             \
  " FROM (SELECT c.*, at / 86400000 AS day, " BX_PROMPT ", " BX_MODEL_PARTS     \
  " FROM " from ") AS n" more ") AS c "
#define CALLS_OF_K                                                             \
  "k CROSS JOIN main.rollout_calls AS c ON c.id BETWEEN k.low AND k.high "     \
  "AND (?2 IS NULL OR c.at >= ?2)"
/* The cost of a sum is named within, so that SQLite computes that of a call once. */
#define SUMS                                                                   \
  "count(*) AS calls, sum(c.input_fresh) AS input_fresh, "                     \
  "sum(c.cache_write) AS cache_write, sum(c.cache_read) AS cache_read, "       \
  "sum(c.output) AS output, sum(c.reasoning) AS reasoning, "                   \
  "sum(c.price) AS cost, sum(c.told) AS told, "                                \
  "sum(c.cache_write_1h) AS cache_write_1h, "                                  \
  "max(c.output_source) AS output_source "
#define SUMMED                                                                 \
  "calls, input_fresh, cache_write, cache_read, output, reasoning, cost, "     \
  "CASE WHEN told = calls THEN 'reported' WHEN told THEN 'mixed' "             \
  "WHEN cost IS NOT NULL THEN 'computed' END, cache_write_1h, output_source "
/* clang-format on */

static sqlite3_stmt *usageRows(
    Bx *bx, const char *zSql, sqlite3_value **apArg, BxErr *pErr) {
  sqlite3_stmt *pRow = bxRolloutQuery(bx, zSql, pErr);
  int i, n = sqlite3_bind_parameter_count(pRow);
  for (i = 0; i < n && pErr->rc == SQLITE_OK; i++) {
    if (apArg[i] != 0) pErr->rc = sqlite3_bind_value(pRow, i + 1, apArg[i]);
  }
  return pRow;
}

sqlite3_stmt *bxRolloutUsage(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zCalls[] =
      "WITH k(low, high) AS (SELECT no << 32, (no << 32) + 4294967295 "
      "FROM main.rollout__heads WHERE id = ?1 "
      "UNION ALL SELECT 0, 9223372036854775807 WHERE ?1 IS NULL AND ?2 IS NULL "
      /* no call is newer than its conversation; some forks have lost theirs */
      "UNION ALL SELECT no << 32, (no << 32) + 4294967295 "
      "FROM main.rollout__heads WHERE ?1 IS NULL AND updated >= ?2 "
      "UNION ALL SELECT DISTINCT owner << 32, (owner << 32) + 4294967295 "
      "FROM main.rollout__segments WHERE ?1 IS NULL AND ?2 IS NOT NULL "
      "AND owner NOT IN (SELECT no FROM main.rollout__heads)) "
      "SELECT h.id, c.id & 4294967295, c.model, c.input_fresh, c.cache_write, "
      "c.cache_read, c.output, c.reasoning, c.format, c.at, c.call, c.price, "
      "CASE WHEN c.told THEN 'reported' WHEN c.price IS NOT NULL "
      "THEN 'computed' END, c.cache_write_1h, c.output_source "
      /* LIMIT -1: a price is computed once */
      "FROM " COSTS(CALLS_OF_K, " LIMIT -1") " LEFT JOIN main.rollout__heads "
                                             "AS h ON h.no = c.id >> 32";
  return usageRows(bx, zCalls, apArg, pErr);
}

/* clang-format off */
/* The sums of conversations are added up, and then priced, which is right because a
** price is so much a token. Calls are looked at (o) where there are none, because a
** fork has lost the conversation that it shares, and where a tier begins between them. */
static const char zDays[] =
    "WITH lost(no) AS MATERIALIZED (SELECT DISTINCT owner"
    "  FROM main.rollout__segments"
    "  WHERE owner NOT IN (SELECT no FROM main.rollout__heads)), "
    "tier(model, above) AS MATERIALIZED (SELECT DISTINCT n.model, p.above"
    "  FROM (SELECT model, " BX_MODEL_PARTS " FROM ("
    "   SELECT model FROM main.rollout__sums UNION SELECT c.model FROM lost"
    "   CROSS JOIN main.rollout_calls AS c"
    "   ON c.id BETWEEN no << 32 AND (no << 32) + 4294967295)) AS n"
    "  CROSS JOIN main.blackbox_prices AS p"
    "  ON p.model IN " BX_NAMES_OF_N " WHERE p.above > 0), "
    "o(no) AS MATERIALIZED (SELECT no FROM lost"
    "  UNION SELECT s.no FROM tier AS t CROSS JOIN main.rollout__sums AS s"
    "  WHERE s.model = t.model AND s.low <= t.above AND s.high > t.above), "
    "c AS (SELECT day, model, format, told, calls, input_fresh, cache_write,"
    "   cache_read, output, reasoning, cost, cache_write_1h, high AS prompt"
    "  FROM main.rollout__sums WHERE calls > 0 AND no NOT IN (SELECT no FROM o)"
    "  UNION ALL SELECT at / 86400000, model, format, cost IS NOT NULL"
    "   + 2 * (reasoning > output), 1, input_fresh, cache_write, cache_read,"
    "   output, reasoning, cost, cache_write_1h, " BX_PROMPT
    "  FROM o CROSS JOIN main.rollout_calls"
    "  ON id BETWEEN no << 32 AND (no << 32) + 4294967295), "
    "n AS (SELECT day, model, format, told & 1 AS told, sum(calls) AS calls,"
    "   sum(input_fresh) AS input_fresh, sum(cache_write) AS cache_write,"
    "   sum(cache_read) AS cache_read, sum(output) AS output,"
    "   sum(reasoning) AS reasoning, sum(cost) AS cost,"
    "   sum(cache_write_1h) AS cache_write_1h, max(prompt) AS prompt, "
    BX_MODEL_PARTS " FROM c GROUP BY day, model, format, c.told,"
    "  (SELECT max(above) FROM tier AS t"
    "   WHERE t.model = c.model AND t.above < c.prompt)) "
    "SELECT day, model, " SUMMED " FROM (SELECT"
    "  date(day * 86400, 'unixepoch') AS day, model, sum(calls) AS calls,"
    "  sum(input_fresh) AS input_fresh, sum(cache_write) AS cache_write,"
    "  sum(cache_read) AS cache_read, sum(output) AS output,"
    "  sum(reasoning) AS reasoning, sum(price) AS cost, sum(told * calls) AS told,"
    "  sum(cache_write_1h) AS cache_write_1h, max(" OUTPUT_SOURCE ") AS output_source"
    "  FROM (SELECT n.*, iif(told, cost, " BX_PRICE_OF_N ") AS price FROM n LIMIT -1)"
    "  AS n GROUP BY n.day, n.model)";
/* clang-format on */

sqlite3_stmt *bxRolloutUsageDays(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  return usageRows(bx, zDays, apArg, pErr);
}

sqlite3_stmt *bxRolloutUsageSums(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zSums[] =
      "WITH RECURSIVE tree(root, no) AS ("
      "SELECT no, no FROM main.rollout__heads WHERE id = ?1 "
      "UNION SELECT no, no FROM main.rollout__heads WHERE ?1 IS NULL "
      "UNION SELECT t.root, a.no FROM tree AS t "
      "JOIN main.rollout__heads AS h ON h.no = t.no "
      "JOIN main.rollout__about AS a ON a.parent = h.id) "
      "SELECT rollout, subagents, model, " SUMMED
      "FROM (SELECT h.id AS rollout, t.no <> t.root AS subagents, "
      "c.model AS model, " SUMS
      "FROM tree AS t JOIN main.rollout__heads AS h ON h.no = t.root "
      "CROSS JOIN " COSTS("main.rollout_calls AS c",
          "") "ON c.id BETWEEN t.no << 32 AND (t.no << "
              "32) + 4294967295 "
              "GROUP BY h.id, t.no <> t.root, c.model)";
  return usageRows(bx, zSums, apArg, pErr);
}
