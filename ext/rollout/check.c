/*
** check.c: what blackbox_check() tests of conversations beside the query of
** sql/rollout_check.sql: the payloads, and what was derived from them. All items of
** each conversation are told in memory, and the result is compared with what is stored,
** up to the first item that is not derived yet.
*/
#include "rollout.h"
#include "../core/install.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* clang-format off */
/* Of conversation ?1. From the items follow: ?2 its own turns, ?3 its own marks, ?4
** the number of turns, ?5 the first user event, ?6 the item of the first user
** message, ?7 its text, ?8 to ?11 title, cwd, model and branch, ?12 an item whose
** usage is missing. */
static const char zDiffers[] =
    "WITH x AS (SELECT h.*, a.cwd, a.model, a.branch, a.prompt_id, a.format,"
    "  a.first_user_message, a.forked_from AS fork, (SELECT d.payload ->> 'cwd'"
    "   FROM main.rollout__items AS d WHERE d.id = ?1 << 32"
    "    AND " BX_JSON_VALID("d.payload") ") AS first_cwd"
    "  FROM main.rollout__heads AS h"
    "  LEFT JOIN main.rollout__about AS a ON a.no = h.no WHERE h.no = ?1) "
    "SELECT id, 'turns is ' || turns || ', the items have ' || ?4 FROM x"
    " WHERE turns <> ?4 "
    "UNION ALL SELECT id, 'user_sequence is ' || coalesce(user_sequence, 'NULL')"
    "  || ', the first user event is item ' || coalesce(?5, 'NULL') FROM x"
    " WHERE user_sequence IS NOT ?5"
    "  AND NOT coalesce(min(coalesce(user_sequence, behind),"
    "   coalesce(?5, behind)) >= behind, 0) "
    "UNION ALL SELECT id, 'its turns are not those of its items;"
    " rollout_rebuild() derives them' FROM x"
    " WHERE ?2 <> (SELECT json_group_array(json_array(id & 4294967295, number))"
    "  FROM (SELECT id, number FROM main.rollout__marks WHERE id BETWEEN ?1 << 32"
    "   AND (?1 << 32) + 4294967295 AND kind = 'turn' ORDER BY id)) "
    "UNION ALL SELECT id, 'its compactions and rollbacks are not those of its"
    " items; rollout_rebuild() derives them' FROM x"
    " WHERE ?3 <> (SELECT json_group_array(json_array(id & 4294967295,"
    "   coalesce(number, -1))) FROM (SELECT id, number FROM main.rollout__marks"
    "   WHERE id BETWEEN ?1 << 32 AND (?1 << 32) + 4294967295 AND kind <> 'turn'"
    "   ORDER BY id)) "
    "UNION ALL SELECT id, 'its ' || f.column1 || ' is not the newest that its"
    " items say; rollout_rebuild() derives it'"
    " FROM x, (VALUES ('title'), ('cwd'), ('model'), ('branch')) AS f"
    " WHERE CASE f.column1 WHEN 'title' THEN behind IS NULL"
    "   AND NOT named AND title IS NOT coalesce(?8, title)"
    "  WHEN 'cwd' THEN format IS NOT NULL"
    "   AND cwd IS NOT coalesce(?9, iif(fork IS NULL, first_cwd, cwd))"
    "  WHEN 'model' THEN model IS NOT coalesce(?10, model)"
    "  ELSE branch IS NOT coalesce(?11, branch) END "
    "UNION ALL SELECT id, 'first_user_message is not that of its first turn;"
    " rollout_rebuild() derives it' FROM x WHERE prompt_id IS NOT ?6"
    "  OR first_user_message IS NOT substr(?7, 1, 200)"
    "   AND NOT (first_user_message IS NULL AND behind IS NOT NULL) "
    "UNION ALL SELECT x.id, 'source and the like are not those of its"
    " session_meta; rollout_rebuild() derives them'"
    " FROM x JOIN main.rollout__about AS a ON a.no = ?1"
    " JOIN " ROLLOUT_META " AS m ON m.no = ?1"
    " WHERE (a.format IS NOT NULL OR x.behind IS NULL)"
    "  AND (a.source, a.originator, a.cli_version, a.model_provider,"
    "   a.forked_from, a.format, a.source_id, a.parent, a.agent) IS NOT"
    "  (m.source, m.originator, m.cli_version, m.model_provider, m.forked_from,"
    "   m.format, m.source_id, m.parent, m.agent) "
    "UNION ALL SELECT id, 'item ' || ?12 || ': its usage is missing or wrong;"
    " rollout_rebuild() derives it' FROM x WHERE ?12 IS NOT NULL";
/* clang-format on */

/* Compares the conversation of a row of bxRolloutCheck(). */
static void checkOne(BxStmts *p, sqlite3_stmt *pHead, int *pnLeft,
    BxProblems *pOut, BxErr *pErr) {
  static const RolloutHead none = {0, -1, 0, 0, -1, 0, -1, 0, 0};
  i64 no = sqlite3_column_int64(pHead, 0);
  i64 iLast = sqlite3_column_int64(pHead, 1); /* that is derived */
  const char *zId = bxColumnText(pHead, 2, pErr);
  i64 nByte = sqlite3_column_int64(pHead, 3);
  i64 iUpdated = sqlite3_column_int64(pHead, 4);
  RolloutTally tally = {0};
  RolloutDerive tale;
  sqlite3_stmt *pRow;
  char *zTurns, *zMarks;
  i64 iUsage, iText, i;
  assert(*pnLeft > 0);
  assert(pErr->rc == SQLITE_OK);
  memset(&tale, 0, sizeof(tale));
  tale.bTexts = 1;
  tale.pTally = &tally;
  bxRolloutDeriveBegin(&tale, p, &none, pErr);
  bxRolloutDeriveStored(&tale, no, 1, iLast, pErr);
  tale.no = no;
  iUsage = bxRolloutUsageDiffers(&tale, pErr);
  iText = bxRolloutTextsDiffer(&tale, iLast, pErr);
  zTurns = bxRolloutMarks(tale.aTurn, tale.nTurnOld, tale.nTurnNew, pErr);
  zMarks = bxRolloutMarks(tale.aMark, tale.nMarkOld, tale.nMark, pErr);
  pRow = bxStmt(p, zDiffers, pErr);
  bxBind(pRow, pErr, "ittiiittttti", no, zTurns, zMarks, tale.nTurn, tale.iUser,
      tale.iPromptKey, tale.zPrompt, tale.azNew[BX_KIND_TITLE],
      tale.azNew[BX_KIND_CWD], tale.azNew[BX_KIND_MODEL],
      tale.azNew[BX_KIND_BRANCH], iUsage);
  if (pErr->rc == SQLITE_OK) {
    if (tale.iUser < 0) sqlite3_bind_null(pRow, 5);
    if (tale.iPromptKey < 0) sqlite3_bind_null(pRow, 6);
    if (iUsage < 0) sqlite3_bind_null(pRow, 12);
  }
  while (bxStep(pRow, pErr) && *pnLeft > 0) {
    bxProblem(pOut, (const char *)sqlite3_column_text(pRow, 0), "%s",
        sqlite3_column_text(pRow, 1));
    --*pnLeft;
  }
  bxReset(pRow, pErr);
  if (pErr->rc == SQLITE_OK && nByte != tally.nByte && *pnLeft > 0) {
    bxProblem(pOut, zId, "bytes is %lld, its own items have %lld", nByte,
        tally.nByte);
    --*pnLeft;
  }
  if (pErr->rc == SQLITE_OK && iUpdated != tally.iNewest && *pnLeft > 0) {
    bxProblem(pOut, zId, "updated is %lld, its newest own item is of %lld",
        iUpdated, tally.iNewest);
    --*pnLeft;
  }
  for (i = 0; i<tally.nBad && * pnLeft> 0; i++) {
    bxProblem(pOut, zId, "item %lld: the payload is not JSON",
        tally.aBad[i] & ROLLOUT_LAST);
    --*pnLeft;
  }
  if (iText >= 0 && *pnLeft > 0) {
    bxProblem(pOut, zId,
        "item %lld: what it says is not in rollout__texts; rollout_rebuild() "
        "derives it",
        iText);
    --*pnLeft;
  }
  sqlite3_free(tally.aBad);
  sqlite3_free(zTurns);
  sqlite3_free(zMarks);
  bxRolloutDeriveEnd(&tale);
}

void bxRolloutCheck(BxStmts *p, BxProblems *pOut) {
  BxErr err = {SQLITE_OK, 0};
  int nLeft = BX_MAX_PROBLEMS;
  sqlite3_stmt *pHead = bxPrepare(p,
      "SELECT no, coalesce(behind - 1, last_sequence), id, bytes, updated "
      "FROM main.rollout__heads ORDER BY no",
      &err);
  while (nLeft > 0 && bxStep(pHead, &err) && pOut->err.rc == SQLITE_OK) {
    checkOne(p, pHead, &nLeft, pOut, &err);
  }
  sqlite3_finalize(pHead);
  bxProblemError(pOut, "rollout", &err);
  bxRolloutSearchCheck(p, pOut);
}
