/*
** context.c: rollout_context(id[, orphans]): what the model sees of a
** conversation; rollout_orphans(id): the calls without a result, and the results
** without a call, in it. A provider refuses a history with such items.
**
** The conversations of other programs than Codex are read by messages.c.
**
** That is the replacement history of the newest compaction, item by item, and
** the response items, compactions and content replacements after it, without
** what rollbacks took back. Compactions and rollbacks are in rollout__marks once
** their items are derived, so that no search is needed.
**
** A call takes several statements. All of them use the head that the first one
** read, and items never move, so what another connection appends meanwhile is
** not visible.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* Sequence of the newest compaction, and the key of its item; -1 for none. */
static i64 findCompaction(
    BxStmts *p, const RolloutHead *pHead, i64 *piKey, BxErr *pErr) {
  static const char zSql[] =
      "SELECT m.id, m.id & 4294967295 FROM main.rollout__segments AS s "
      "CROSS JOIN main.rollout__marks AS m "
      "ON m.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) + s.last "
      "WHERE s.rollout = ?1 AND m.kind = 'compaction' "
      "AND (m.id & 4294967295) <= ?2 "
      "ORDER BY s.rollout DESC, s.first DESC, m.id DESC LIMIT 1";
  sqlite3_stmt *pStmt = bxStmt(p, zSql, pErr);
  i64 iSequence = -1;
  *piKey = 0;
  bxBind(pStmt, pErr, "ii", pHead->no, pHead->iLast);
  if (bxRow(pStmt, pErr)) {
    *piKey = sqlite3_column_int64(pStmt, 0);
    iSequence = sqlite3_column_int64(pStmt, 1);
  }
  bxDone(pStmt, pErr);
  return iSequence;
}

/* Reports a compaction whose payload was damaged. */
static void checkCompaction(
    BxStmts *p, sqlite3_value *pId, i64 iKey, BxErr *pErr) {
  /* clang-format off */
  static const char zSql[] =
      "SELECT " BX_JSON_VALID("payload")
      " FROM main.rollout__data WHERE id = ?1";
  /* clang-format on */
  sqlite3_stmt *pStmt = bxStmt(p, zSql, pErr);
  bxBind(pStmt, pErr, "i", iKey);
  if (bxRow(pStmt, pErr) && !sqlite3_column_int(pStmt, 0)) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedRolloutError: Corrupted rollout: the payload of item %lld of "
        "%s is not JSON; rollout_items shows all items as text",
        iKey & 4294967295, sqlite3_value_text(pId));
  }
  bxDone(pStmt, pErr);
}

/* The ranges that the rollbacks after ?2, up to ?3, took back, in order. */
static const char zTakenBack[] =
    "SELECT max(m.number, ?2 + 1), m.id & 4294967295 "
    "FROM main.rollout__segments AS s CROSS JOIN main.rollout__marks AS m "
    "ON m.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) + s.last "
    "WHERE s.rollout = ?1 AND m.kind = 'rollback' "
    "AND (m.id & 4294967295) > ?2 AND (m.id & 4294967295) <= ?3 ORDER BY 2";

/* Ranges of sequences, in order, which do not overlap. */
typedef struct Ranges {
  i64 (*a)[2]; /* first and last */
  i64 n, nAlloc;
} Ranges;

static void addRange(Ranges *p, i64 iFirst, i64 iLast, BxErr *pErr) {
  void *aNew;
  while (p->n > 0 && p->a[p->n - 1][0] >= iFirst) p->n--;
  aNew = bxGrow(p->a, p->n, &p->nAlloc, sizeof(p->a[0]), pErr);
  if (aNew == 0) return;
  p->a = aNew;
  assert(p->n < p->nAlloc);
  p->a[p->n][0] = iFirst;
  p->a[p->n++][1] = iLast;
}

static void findTakenBack(BxStmts *p, const RolloutHead *pHead, i64 iStart,
    Ranges *pGone, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(p, zTakenBack, pErr);
  bxBind(pStmt, pErr, "iii", pHead->no, iStart, pHead->iLast);
  while (bxRow(pStmt, pErr)) {
    addRange(pGone, sqlite3_column_int64(pStmt, 0),
        sqlite3_column_int64(pStmt, 1), pErr);
  }
  bxDone(pStmt, pErr);
}

/* What remains after iStart, up to iLast, as JSON: [[first, last], ...]. */
static char *keptRanges(
    const Ranges *pGone, i64 iStart, i64 iLast, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  i64 i;
  sqlite3_str_appendchar(pOut, 1, '[');
  for (i = 0; i < pGone->n; i++) {
    sqlite3_str_appendf(pOut, "[%lld,%lld],", iStart + 1, pGone->a[i][0] - 1);
    iStart = pGone->a[i][1];
  }
  sqlite3_str_appendf(pOut, "[%lld,%lld]]", iStart + 1, iLast);
  return bxFinish(pOut, pErr);
}

/* A name in either spelling, as the policy compares them; and whether a payload
** is one of the snapshots that a recorder puts among the items for itself. */
#define PAYLOAD_TYPE(json) "lower(replace(" json " ->> 'type', '_', ''))"
#define IS_GHOST(json)                                                         \
  "CASE WHEN instr(lower(" json "), 'ghost') = 0 THEN 0 "                      \
  "WHEN " BX_JSON_VALID(json) " THEN " PAYLOAD_TYPE(                           \
      json) " IS 'ghostsnapshot' ELSE 0 END"

/* ?1 is the number of the conversation, ?2 the item of the compaction, ?3 the
** ranges that are left. */
/* clang-format off */
#define CONTEXT                                                                \
  "SELECT c.id & 4294967295 AS sequence, c.timestamp AS timestamp, "           \
  "'response_item' AS type, e.value AS payload, e.key AS part "                \
  "FROM main.rollout__data AS c, json_each(c.payload, CASE WHEN "               \
  "json_type(c.payload, '$.replacement_history') = 'array' "                   \
  "THEN '$.replacement_history' ELSE '$.replacementHistory' END) AS e "        \
  "WHERE c.id = ?2 AND NOT (" IS_GHOST("e.value") ") "                         \
  "UNION ALL "                                                                 \
  "SELECT d.id & 4294967295, d.timestamp, d.type, d.payload, 0 "               \
  "FROM json_each(?3) AS kept CROSS JOIN main.rollout__segments AS s "          \
  "CROSS JOIN main.rollout__data AS d ON d.id BETWEEN "                         \
  "(s.owner << 32) + max(s.first, kept.value ->> 0) AND "                      \
  "(s.owner << 32) + min(s.last, kept.value ->> 1) "                           \
  "WHERE s.rollout = ?1 AND s.first <= kept.value ->> 1 "                      \
  "AND s.last >= kept.value ->> 0 AND lower(replace(d.type, '_', '')) IN "     \
  "('responseitem', 'compacted', 'contentreplacement') "                       \
  "AND NOT (" IS_GHOST("d.payload") ") "

/* The calls and results among them, by their ids. A result has a call if one
** stands before it, and a call has a result if one stands after it. */
#define CALLS                                                                  \
  "WITH c AS (" CONTEXT "), t AS (SELECT c.*, CASE WHEN type IS NOT NULL AND " \
  "lower(replace(type, '_', '')) = 'responseitem' AND "                        \
  "CASE WHEN instr(payload, 'call') THEN " BX_JSON_VALID("payload") " END "    \
  "THEN CASE WHEN " PAYLOAD_TYPE("payload") " IN ('functioncall', "            \
  "'customtoolcall', 'localshellcall', 'toolsearchcall') THEN 'call' "         \
  "WHEN " PAYLOAD_TYPE("payload") " IN ('functioncalloutput', "                \
  "'customtoolcalloutput', 'toolsearchoutput') THEN 'result' END END AS kind " \
  "FROM c), k AS (SELECT t.*, CASE WHEN kind IS NOT NULL THEN "                \
  "coalesce(payload ->> 'call_id', payload ->> 'id') END AS call_id FROM t), " \
  "n AS MATERIALIZED (SELECT kind, call_id, min(sequence * 1000000 + part) "   \
  "AS first, max(sequence * 1000000 + part) AS last FROM k "                   \
  "WHERE kind IS NOT NULL GROUP BY 1, 2), "                                    \
  "o AS (SELECT k.*, kind IS NOT NULL AND NOT EXISTS (SELECT 1 FROM n "        \
  "WHERE n.call_id = k.call_id AND n.kind <> k.kind AND CASE k.kind "          \
  "WHEN 'call' THEN n.last > k.sequence * 1000000 + k.part "                   \
  "ELSE n.first < k.sequence * 1000000 + k.part END) AS orphan FROM k) "
/* clang-format on */

/* The newest compaction, and what was taken back, among the items that are not
** derived yet. */
static i64 addPending(
    const RolloutTale *pTale, i64 no, i64 iStart, i64 *piKey) {
  i64 i;
  for (i = 0; i < pTale->nMark; i++) {
    if (pTale->aMark[i].iFirst >= 0) continue;
    iStart = pTale->aMark[i].iSequence;
    *piKey = bxRolloutKey(no, iStart);
  }
  return iStart;
}

static void takeBackPending(
    const RolloutTale *pTale, i64 iStart, Ranges *pGone, BxErr *pErr) {
  i64 i;
  for (i = 0; i < pTale->nMark; i++) {
    const RolloutMark *pMark = &pTale->aMark[i];
    if (pMark->iFirst < 0 || pMark->iSequence <= iStart) continue;
    addRange(pGone, pMark->iFirst > iStart ? pMark->iFirst : iStart + 1,
        pMark->iSequence, pErr);
  }
}

/* Prepares a query on the context of a conversation, and binds its parameters:
** the one of Codex, or that of its format. */
static sqlite3_stmt *openContext(Bx *bx, sqlite3_value *pId, const char *zSql,
    RolloutMessages eWhat, BxErr *pErr) {
  RolloutHead head = bxRolloutLive(bx, pId, bxNow(), pErr);
  Ranges gone = {0, 0, 0};
  RolloutTale told;
  i64 iKey = 0, iStart;
  BxStmts *p = bxRolloutHome(bx, pErr);
  sqlite3_stmt *pStmt;
  char *zKept;
  if (p == 0) return 0;
  if (bxRolloutHasMessages(p, head.no, pErr)) {
    return bxRolloutMessages(bx, p, &head, eWhat, pErr);
  }
  memset(&told, 0, sizeof(told));
  bxRolloutTellPending(&told, p, &head, pErr);
  iStart = findCompaction(p, &head, &iKey, pErr);
  iStart = addPending(&told, head.no, iStart, &iKey);
  checkCompaction(p, pId, iKey, pErr);
  findTakenBack(p, &head, iStart, &gone, pErr);
  takeBackPending(&told, iStart, &gone, pErr);
  bxRolloutTaleEnd(&told);
  zKept = keptRanges(&gone, iStart, head.iLast, pErr);
  pStmt = bxRolloutQuery(bx, zSql, pErr);
  bxBind(pStmt, pErr, "iic", head.no, iKey, zKept);
  sqlite3_free(zKept);
  sqlite3_free(gone.a);
  return pStmt;
}

sqlite3_stmt *bxRolloutContext(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zAll[] = CONTEXT "ORDER BY 1, 5";
  static const char zComplete[] =
      CALLS "SELECT sequence, timestamp, type, payload FROM o WHERE NOT orphan "
            "ORDER BY sequence, part";
  const char *zOrphans = bxText(apArg[1], "orphans", 20, 1, pErr);
  int bComplete = zOrphans != 0 && strcmp(zOrphans, "without") == 0;
  if (zOrphans != 0 && !bComplete && strcmp(zOrphans, "with") != 0) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: orphans must be 'with' or 'without', got %Q; omit it "
        "for 'with'",
        zOrphans);
  }
  return openContext(bx, apArg[0], bComplete ? zComplete : zAll,
      bComplete ? ROLLOUT_COMPLETE : ROLLOUT_ALL, pErr);
}

sqlite3_stmt *bxRolloutOrphans(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zOrphans[] =
      CALLS "SELECT sequence, kind, call_id, payload ->> 'type', payload "
            "FROM o WHERE orphan ORDER BY sequence, part";
  return openContext(bx, apArg[0], zOrphans, ROLLOUT_ORPHANS, pErr);
}
