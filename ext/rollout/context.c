/*
** context.c: rollout_context(id[, orphans]): what the model sees of a
** conversation; rollout_orphans(id): the calls without a result, and the results
** without a call, in it. A provider refuses a history with such items.
**
** For Codex this is the replacement history of the newest compaction, item by item,
** and after it the response items, compactions and content replacements, without what
** rollbacks took back. Compactions and rollbacks are in rollout__marks once their items
** are derived, so that no search is needed. The conversations of other programs are
** read by messages.c.
**
** A call takes several statements. All of them use the head that the first one
** read, and items never move, so what another connection appends meanwhile is
** not visible. Their parameters are ?1, the number of the conversation, ?2, the marks
** that are not derived yet, as bxRolloutMarks() lists them, and ?3, the last sequence.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* clang-format off */
/* cut: the newest compaction, and the key of its item. back: the ranges that the
** rollbacks after it took back. top: those of them that are in no later one. kept: what
** is left between these. */
#define MARKS                                                                  \
  "WITH g AS MATERIALIZED (SELECT m.id AS id, m.id & 4294967295 AS at, "       \
  "coalesce(m.number, -1) AS low FROM main.rollout__segments AS s "            \
  "CROSS JOIN main.rollout__marks AS m ON m.id BETWEEN (s.owner << 32) + "     \
  "s.first AND (s.owner << 32) + min(s.last, ?3) "                             \
  "WHERE s.rollout = ?1 AND m.kind <> 'turn' UNION ALL "                       \
  "SELECT (?1 << 32) + (value ->> 0), value ->> 0, value ->> 1 "               \
  "FROM json_each(?2)), cut AS MATERIALIZED (SELECT id, at FROM g "            \
  "WHERE low < 0 ORDER BY at DESC LIMIT 1), "                                  \
  "back AS MATERIALIZED (SELECT low, at AS high FROM g "                       \
  "WHERE low >= 0 AND at > coalesce((SELECT at FROM cut), -1)), "              \
  "top AS MATERIALIZED (SELECT low, high FROM (SELECT low, high, "             \
  "min(low) OVER (ORDER BY high DESC "                                         \
  "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS least FROM back) "     \
  "WHERE least IS NULL OR low < least), "                                      \
  "kept AS MATERIALIZED (SELECT low - 1 AS high, 1 + coalesce("                \
  "lag(high) OVER (ORDER BY high), (SELECT at FROM cut), -1) AS low FROM top " \
  "UNION ALL SELECT ?3, 1 + coalesce((SELECT max(high) FROM top), "            \
  "(SELECT at FROM cut), -1)) "
/* clang-format on */

/* Reports a compaction whose payload was damaged. */
static void checkCompaction(BxStmts *p, const RolloutHead *pHead,
    const char *zMarks, sqlite3_value *pId, BxErr *pErr) {
  /* clang-format off */
  static const char zSql[] =
      MARKS "SELECT cut.at FROM cut JOIN main.rollout__items AS d ON d.id = cut.id "
            "WHERE NOT (" BX_JSON_VALID("d.payload") ")";
  /* clang-format on */
  sqlite3_stmt *pStmt = bxStmt(p, zSql, pErr);
  bxBind(pStmt, pErr, "iti", pHead->no, zMarks, pHead->iLast);
  if (bxStep(pStmt, pErr)) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedRolloutError: Corrupted rollout: the payload of item %lld of "
        "%s is not JSON; rollout_items shows all items as text",
        sqlite3_column_int64(pStmt, 0), sqlite3_value_text(pId));
  }
  bxReset(pStmt, pErr);
}

/* A name in either spelling, as the policy compares them; and whether a payload
** is one of the snapshots that a recorder puts among the items for itself. */
#define PAYLOAD_TYPE(json) "lower(replace(" json " ->> 'type', '_', ''))"
#define IS_GHOST(json)                                                         \
  "CASE WHEN instr(lower(" json "), 'ghost') = 0 THEN 0 "                      \
  "WHEN " BX_JSON_VALID(json) " THEN " PAYLOAD_TYPE(                           \
      json) " IS 'ghostsnapshot' ELSE 0 END"

/* clang-format off */
#define CONTEXT                                                                \
  "SELECT cut.at AS sequence, c.timestamp AS timestamp, "                      \
  "'response_item' AS type, e.value AS payload, e.key AS part "                \
  "FROM cut CROSS JOIN main.rollout__items AS c ON c.id = cut.id, "             \
  "json_each(c.payload, CASE WHEN "                                            \
  "json_type(c.payload, '$.replacement_history') = 'array' "                   \
  "THEN '$.replacement_history' ELSE '$.replacementHistory' END) AS e "        \
  "WHERE NOT (" IS_GHOST("e.value") ") "                                       \
  "UNION ALL "                                                                 \
  "SELECT d.id & 4294967295, d.timestamp, d.type, d.payload, 0 "               \
  "FROM kept CROSS JOIN main.rollout__segments AS s "                          \
  "CROSS JOIN main.rollout__items AS d ON d.id BETWEEN "                        \
  "(s.owner << 32) + max(s.first, low) AND "                                   \
  "(s.owner << 32) + min(s.last, high) "                                       \
  "WHERE s.rollout = ?1 AND s.first <= high AND s.last >= low "                \
  "AND lower(replace(d.type, '_', '')) IN "                                    \
  "('responseitem', 'compacted', 'contentreplacement') "                       \
  "AND NOT (" IS_GHOST("d.payload") ") "

/* The calls and results among them, by their ids. A result has a call if one
** stands before it, and a call has a result if one stands after it. */
#define CALLS                                                                  \
  MARKS ", c AS (" CONTEXT "), t AS (SELECT c.*, CASE WHEN type IS NOT NULL AND " \
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

/* Prepares a query on the context of a conversation, and binds its parameters:
** the one of Codex, or that of its format. */
static sqlite3_stmt *openContext(Bx *bx, sqlite3_value *pId, const char *zSql,
    RolloutMessages eWhat, BxErr *pErr) {
  RolloutHead head = bxRolloutLive(bx, pId, bxNow(), pErr);
  RolloutDerive told;
  BxStmts *p = bxRolloutSchema(bx, pErr);
  sqlite3_stmt *pStmt;
  char *zMarks;
  assert(eWhat <= ROLLOUT_ORPHANS);
  if (p == 0) return 0;
  if (bxRolloutHasMessages(p, head.no, pErr)) {
    return bxRolloutMessages(bx, p, &head, eWhat, pErr);
  }
  memset(&told, 0, sizeof(told));
  bxRolloutDerivePending(&told, p, &head, pErr);
  zMarks = bxRolloutMarks(told.aMark, 0, told.nMark, pErr);
  bxRolloutDeriveEnd(&told);
  checkCompaction(p, &head, zMarks, pId, pErr);
  pStmt = bxRolloutQuery(bx, zSql, pErr);
  bxBind(pStmt, pErr, "ici", head.no, zMarks, head.iLast);
  sqlite3_free(zMarks);
  return pStmt;
}

sqlite3_stmt *bxRolloutContext(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zAll[] = MARKS CONTEXT "ORDER BY 1, 5";
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
