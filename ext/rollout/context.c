/*
** context.c: rollout_context(id): what the model sees of a conversation.
**
** That is the replacement history of the newest compaction, item by item, and
** the response items, compactions and content replacements after it, without
** what rollbacks took back. The triggers write compactions and rollbacks to
** rollout_marks as they are appended, so that no search is needed.
**
** A call takes several statements. All of them use the head that the first one
** read, and items never move, so what another connection appends meanwhile is
** not visible.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

/* Sequence of the newest compaction, and the key of its item; -1 for none. */
static i64 findCompaction(
    BxStmts *p, const RolloutHead *pHead, i64 *piKey, BxErr *pErr) {
  static const char zSql[] =
      "SELECT m.id, m.id & 4294967295 FROM main.rollout_segments AS s "
      "CROSS JOIN main.rollout_marks AS m "
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
      " FROM main.rollout_data WHERE id = ?1";
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
    "SELECT max(m.first, ?2 + 1), m.id & 4294967295 "
    "FROM main.rollout_segments AS s CROSS JOIN main.rollout_marks AS m "
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

static const char zContext[] =
    "SELECT c.id & 4294967295, c.timestamp, 'response_item', e.value, e.key "
    "FROM main.rollout_data AS c, json_each(c.payload, CASE WHEN "
    "json_type(c.payload, '$.replacement_history') = 'array' "
    "THEN '$.replacement_history' ELSE '$.replacementHistory' END) AS e "
    "WHERE c.id = ?2 "
    "UNION ALL "
    "SELECT d.id & 4294967295, d.timestamp, d.type, d.payload, 0 "
    "FROM json_each(?3) AS kept CROSS JOIN main.rollout_segments AS s "
    "CROSS JOIN main.rollout_data AS d ON d.id BETWEEN "
    "(s.owner << 32) + max(s.first, kept.value ->> 0) AND "
    "(s.owner << 32) + min(s.last, kept.value ->> 1) "
    "WHERE s.rollout = ?1 AND s.first <= kept.value ->> 1 "
    "AND s.last >= kept.value ->> 0 AND lower(replace(d.type, '_', '')) IN "
    "('responseitem', 'compacted', 'contentreplacement') ORDER BY 1, 5";

sqlite3_stmt *bxRolloutContext(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  RolloutHead head = bxRolloutLive(bx, apArg[0], bxNow(), pErr);
  Ranges gone = {0, 0, 0};
  i64 iKey = 0, iStart;
  BxStmts *p = bxRolloutHome(bx, pErr);
  sqlite3_stmt *pStmt;
  char *zKept;
  if (p == 0) return 0;
  iStart = findCompaction(p, &head, &iKey, pErr);
  checkCompaction(p, apArg[0], iKey, pErr);
  findTakenBack(p, &head, iStart, &gone, pErr);
  zKept = keptRanges(&gone, iStart, head.iLast, pErr);
  pStmt = bxRolloutQuery(bx, zContext, pErr);
  bxBind(pStmt, pErr, "iic", head.no, iKey, zKept);
  sqlite3_free(zKept);
  sqlite3_free(gone.a);
  return pStmt;
}
