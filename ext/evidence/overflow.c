/*
** overflow.c: the second tier of a buffer in temp.
**
** The tables belong to sql/evidence.sql, in the schema that overflow='...'
** names. rec_rows keeps a narrow row for all evidence, wherever it is stored
** (place 1: here), so that counts, prunes and lists do not read this tier.
**
** The two tiers are in two schemas, in which a crash may leave two states. So
** the steps have an order, and can be repeated. A move copies the row before it
** deletes the original. A statement that removes a row from the buffer also
** writes it to rec_gone, and a sweep then removes it here. If the file is
** locked, the next write does the sweep. A failure may leave an extra copy, but
** never loses a row.
**
** Each act first writes the row of the owner. That takes the write lock of the
** file, records that the owner is in use, and proves that no other connection
** has taken over the evidence (resume).
*/
#include "evidence.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define OVER_MARK "over."

const BxRecords bxEvidenceRecords[] = {
    {"evidence__overflow", "main.evidence__overflow",
        "buffer=owner,evidence=owner || '/' || t.id,",
        "t.action, t.screenshot, t.id",
        "t.action_bytes + t.screenshot_bytes + " EV_TEXT(EV_ROW_BYTES),
        BX_HOLD_ON("buffer", "t.owner") " OR " BX_HOLD_ON(
            "evidence", "t.owner || '/' || t.id"),
        "t.pinned <> 0", "UPDATE main.evidence__overflow AS t SET pinned = 0",
        0, "DELETE FROM main.evidence_owners WHERE owner = ?1 AND rows = 0", 0,
        0, 0},
    {0},
};

const BxTexts bxEvidenceTexts[] = {
    {.zName = "evidence__overflow",
        .zFrom = "(SELECT rid AS no, * FROM main.evidence__overflow)",
        .zKind = "buffer",
        .zKey = "t.owner",
        .zRow = "t.id",
        .zColumns = "action"},
    {0},
};

/* Prepares a statement, and explains a missing table. */
static sqlite3_stmt *prepare(
    EvBuffer *p, const char *zOverflow, const char *zSql, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  assert(zSql != 0 || pErr->rc != SQLITE_OK);
  if (pErr->rc != SQLITE_OK) return 0;
  bxWriteNote(p->pOn->bx, pErr);
  pStmt = bxPrepareSql(p->pOn->bx->db, zSql, pErr);
  if (zOverflow != 0 && bxErrContains(pErr, "no such table")) {
    BxErr said = bxErrTake(pErr);
    bxFail(pErr, SQLITE_ERROR,
        "OverflowError: the overflow of %s is not in schema %s (%s); ATTACH "
        "the database that has it",
        p->pOn->zTable, zOverflow, said.zMsg);
    bxErrClear(&said);
  }
  return pStmt;
}

sqlite3_stmt *bxEvPrepareActions(EvBuffer *p, const char *zSql, BxErr *pErr) {
  EvState state = {0};
  sqlite3_stmt *pStmt;
  if (p->bTemp) bxEvLoadState(p, &state, pErr);
  pStmt = prepare(p, state.zOverflow, zSql, pErr);
  bxEvFreeState(&state);
  return pStmt;
}

sqlite3_stmt *bxEvPrepareOver(
    EvBuffer *p, const EvState *pState, const char *zTemplate, BxErr *pErr) {
  const BxStmts *pStmts = p->pOn;
  sqlite3_str *pOut = sqlite3_str_new(0);
  sqlite3_stmt *pStmt;
  const char *z = zTemplate;
  char *zSql;
  assert(pErr->rc != SQLITE_OK || pState->zOverflow != 0);
  while (*z) {
    const char *zMark = strstr(z, OVER_MARK);
    char *zPart =
        bxPrintf(pErr, "%.*s", zMark ? (int)(zMark - z) : (int)strlen(z), z);
    char *zHere = zPart ? bxExpand(zPart, pStmts->zDb, pStmts->zTable) : 0;
    sqlite3_str_appendall(pOut, bxCheckMem(zHere, pErr) ? zHere : "");
    sqlite3_free(zPart);
    sqlite3_free(zHere);
    if (zMark == 0) break;
    sqlite3_str_appendf(pOut, "\"%w\".", pState->zOverflow);
    z = zMark + strlen(OVER_MARK);
  }
  zSql = bxStrFinish(pOut, pErr);
  pStmt = prepare(p, pState->zOverflow, zSql, pErr);
  sqlite3_free(zSql);
  return pStmt;
}

/* Runs n statements; ?1 is the owner, ?2 a row. */
static void runOver(EvBuffer *p, const EvState *pState,
    const char *const *azSql, int n, i64 iRow, BxErr *pErr) {
  int i;
  assert(pState->zOverflow != 0 || pErr->rc != SQLITE_OK);
  assert(n > 0 && iRow >= 0);
  for (i = 0; i < n && pErr->rc == SQLITE_OK; i++) {
    sqlite3_stmt *pStmt = bxEvPrepareOver(p, pState, azSql[i], pErr);
    bxBind(pStmt, pErr, sqlite3_bind_parameter_count(pStmt) > 1 ? "ti" : "t",
        pState->zOwner, iRow);
    bxStep(pStmt, pErr);
    sqlite3_finalize(pStmt);
  }
}
#define RUN_OVER(azSql, iRow, pErr)                                            \
  runOver(p, pState, azSql, (int)(sizeof(azSql) / sizeof(azSql[0])), iRow, pErr)

/* Reports the error, unless the sweep can be done later: then nothing but space is
** lost. */
static void handOn(BxErr *pFrom, BxErr *pErr) {
  int rc = pFrom->rc & 0xff;
  assert(pFrom != pErr);
  if (rc == SQLITE_BUSY || rc == SQLITE_LOCKED || rc == SQLITE_READONLY ||
      (rc == SQLITE_ERROR &&
          !bxErrIs(pFrom, "OwnerError"))) { /* it is detached */
    bxErrClear(pFrom);
  }
  bxErrMove(pErr, pFrom);
}

/* Steps a statement that changes at most one row, and finalizes it. Returns
** whether it changed one. (SQLite 3.38 ignores RETURNING while it creates a
** virtual table.) */
static int changesRow(sqlite3_stmt *pStmt, BxErr *pErr) {
  int nChange = 0;
  assert(pStmt != 0 || pErr->rc != SQLITE_OK);
  bxStep(pStmt, pErr);
  if (pErr->rc == SQLITE_OK) {
    nChange = sqlite3_changes(sqlite3_db_handle(pStmt));
  }
  sqlite3_finalize(pStmt);
  return nChange > 0;
}

/* Writes the owner's row. Returns 0 if it belongs to another buffer. */
static int writeOwner(EvBuffer *p, const EvState *pState, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxEvPrepareOver(p, pState,
      pState->nOverflow > 0
          ? "UPDATE over.evidence_owners SET seen = max(seen, ?1),"
            " removed = ?4 WHERE owner = ?2 AND claim = ?3"
          : "INSERT INTO over.evidence_owners(owner, buffer, claim, seen,"
            " removed) VALUES(?2, ?5, ?3, ?1, ?4) ON CONFLICT (owner) DO UPDATE"
            " SET seen = max(seen, excluded.seen), removed = excluded.removed"
            " WHERE claim = excluded.claim",
      pErr);
  assert(p->bTemp && pState->nOverflow >= 0);
  bxBind(pStmt, pErr, pState->nOverflow > 0 ? "itti" : "ittit", bxNow(),
      pState->zOwner, pState->zClaim, pState->nRemoved, p->pOn->zTable);
  return changesRow(pStmt, pErr);
}

/* The first write of every act (see above). A buffer with rows here must be in the
** list of owners. One without rows may be missing there, and is added; if its owner
** belongs to another buffer, it gets a new one, and what was still to be swept for the
** old one no longer belongs to it. */
static void claim(EvBuffer *p, EvState *pState, BxErr *pErr) {
  char zOwner[37], zClaim[37];
  assert(pState->zOverflow != 0);
  assert(p->bTemp);
  if (writeOwner(p, pState, pErr) || pErr->rc != SQLITE_OK) return;
  if (pState->nOverflow > 0) {
    bxFail(pErr, SQLITE_ERROR,
        "OwnerError: the overflowed evidence of %s (owner %s) was taken over "
        "by another buffer, or removed; the rows in memory (storage = "
        "'memory') can still be read: copy them, DROP TABLE \"%w\" and create "
        "a new buffer",
        p->pOn->zTable, pState->zOwner, p->pOn->zTable);
    return;
  }
  bxUuid(zOwner);
  bxUuid(zClaim);
  bxStmtExec(p->pOn, "UPDATE main.@_state SET owner = ?1, claim = ?2", pErr,
      "tt", zOwner, zClaim);
  bxStmtExec(p->pOn, "DELETE FROM main.@_gone", pErr, "");
  sqlite3_free(pState->zOwner);
  sqlite3_free(pState->zClaim);
  pState->zOwner = bxPrintf(pErr, "%s", zOwner);
  pState->zClaim = bxPrintf(pErr, "%s", zClaim);
  writeOwner(p, pState, pErr);
}

void bxEvOverflowOurs(EvBuffer *p, EvState *pState, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  if (pErr->rc != SQLITE_OK || pState->nOverflow == 0) return;
  claim(p, pState, &err);
  handOn(&err, pErr);
}

void bxEvOverflowClaim(EvBuffer *p, EvState *pState, BxErr *pErr) {
  if (pErr->rc == SQLITE_OK && pState->nOverflow > 0) claim(p, pState, pErr);
}

void bxEvOverflowRename(EvBuffer *p, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  EvState state = {0};
  sqlite3_stmt *pStmt;
  if (pErr->rc == SQLITE_OK && p->bTemp) bxEvLoadState(p, &state, pErr);
  if (state.zOverflow != 0) {
    pStmt = bxEvPrepareOver(p, &state,
        "UPDATE over.evidence_owners SET buffer = ?2 WHERE owner = ?1", &err);
    bxBind(pStmt, &err, "tt", state.zOwner, p->pOn->zTable);
    bxStep(pStmt, &err);
    sqlite3_finalize(pStmt);
  }
  bxEvFreeState(&state);
  handOn(&err, pErr);
}

void bxEvOverflowExpect(EvBuffer *p, const char *zDb, BxErr *pErr) {
  if (!p->bTemp) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: overflow is for buffers in temp; %s is in a file "
        "(schema %s); omit overflow",
        p->pOn->zTable, p->pOn->zDb);
  }
  if (sqlite3_stricmp(zDb, "temp") == 0 ||
      sqlite3_db_readonly(p->pOn->bx->db, zDb) < 0) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: overflow must name main or an attached database, "
        "got %Q; ATTACH it first",
        zDb);
  }
}

/* Takes over the rows that a lost buffer left. The caller counts them. */
static void resume(EvBuffer *p, const EvState *pState, BxErr *pErr) {
  static const char *const azSql[] = {
      "INSERT INTO main.@_rows(id, timestamp, action_bytes, screenshot_bytes,"
      " pruned, pinned, confidence, place) SELECT id, timestamp, action_bytes,"
      " screenshot_bytes, pruned, pinned, confidence, 1"
      " FROM over.evidence__overflow WHERE owner = ?1 ORDER BY timestamp, rid",
      "UPDATE main.@_state SET removed ="
      " (SELECT removed FROM over.evidence_owners WHERE owner = ?1)"};
  sqlite3_stmt *pStmt = bxEvPrepareOver(p, pState,
      "UPDATE over.evidence_owners SET claim = ?2, buffer = ?3, "
      "seen = max(seen, ?4) WHERE owner = ?1",
      pErr);
  assert(pState->zOwner != 0 || pErr->rc != SQLITE_OK);
  bxBind(pStmt, pErr, "ttti", pState->zOwner, pState->zClaim, p->pOn->zTable,
      bxNow());
  if (!changesRow(pStmt, pErr)) {
    bxFail(pErr, SQLITE_ERROR,
        "NotFoundError: no overflowed evidence of owner %Q in schema %s; "
        "SELECT owner, buffer, rows, bytes FROM evidence_owners lists the "
        "owners",
        pState->zOwner, pState->zOverflow);
  }
  RUN_OVER(azSql, 0, pErr);
}

/* Removes two rows that are due: of the oldest 100, the first that nothing blocks.
** Never fails because of them: it removes none while something could refuse it, or
** the clock is in doubt. */
static void removeOrphans(BxStmts *pOver, BxErr *pErr) {
  static const char zSql[] =
      "DELETE FROM main.evidence_due WHERE rid IN (SELECT rid FROM"
      " (SELECT rid, blocked_by FROM main.evidence_due WHERE at <"
      " ?1 - 86400000 * (SELECT value"
      " FROM main.blackbox_settings WHERE name = 'evidence.orphan_days')"
      " ORDER BY at LIMIT 100) WHERE blocked_by IS NULL LIMIT 2)";
  BxErr due = {SQLITE_OK, 0};
  i64 iNow = bxTrustedTime(pOver, 1, pErr);
  if (bxOthersRefuse(pOver, "evidence.orphans", 0, pErr)) return;
  if (pErr->rc != SQLITE_OK) return;
  bxStmtExec(pOver, zSql, &due, "i", iNow);
  bxErrBeside(pOver, pErr, &due);
}

void bxEvOverflowOpen(
    EvBuffer *p, const char *zDb, const char *zResume, BxErr *pErr) {
  /* A buffer that is in use is added again. */
  static const char *const azSql[] = {
      "DELETE FROM over.evidence_owners WHERE rows = 0 AND owner <> ?1"};
  char zUuid[37], zClaim[37];
  EvState state = {0}, *pState = &state;
  assert(zDb != 0 && zDb[0] != 0);
  bxEvOverflowExpect(p, zDb, pErr);
  if (pErr->rc != SQLITE_OK) return;
  bxUuid(zUuid);
  bxUuid(zClaim);
  bxInstallMissing(p->pOn->bx, zDb, "evidence", pErr);
  state.zOverflow = bxPrintf(pErr, "%s", zDb);
  state.zOwner = bxPrintf(pErr, "%s", zResume ? zResume : zUuid);
  state.zClaim = bxPrintf(pErr, "%s", zClaim);
  RUN_OVER(azSql, 0, pErr);
  if (zResume != 0) resume(p, &state, pErr);
  removeOrphans(bxSchema(p->pOn->bx, zDb, pErr), pErr);
  bxQueryIntOnce(p->pOn,
      "UPDATE main.@_state SET overflow = ?1, owner = ?2, claim = ?3", pErr,
      "ttt", state.zOverflow, state.zOwner, state.zClaim);
  bxEvFreeState(&state);
}

void bxEvOverflowDrop(EvBuffer *p, EvState *pState, BxErr *pErr) {
  static const char *const azSql[] = {
      ("UPDATE over.evidence__overflow SET pinned = 0, released = 1"
       " WHERE owner = ?1"),
      "DELETE FROM over.evidence__overflow WHERE owner = ?1",
      "DELETE FROM over.evidence_owners WHERE owner = ?1"};
  BxErr err = {SQLITE_OK, 0};
  assert(p->bTemp || pState->zOverflow == 0);
  if (pErr->rc != SQLITE_OK || pState->zOverflow == 0) return;
  claim(p, pState, &err);
  if (err.rc == SQLITE_ERROR) {
    bxErrClear(&err); /* it is another buffer's, or the schema is detached */
    return;
  }
  RUN_OVER(azSql, 0, &err);
  *pErr = err;
}

#define THIS "owner = ?1 AND id = (SELECT id FROM main.@_rows WHERE rid = ?2)"

/* The steps that move row ?2 of owner ?1. They first remove an extra copy that
** an earlier failure left. */
static const char *const azMove[] = {
    "UPDATE over.evidence__overflow SET pinned = 0, released = 1 WHERE " THIS,
    "DELETE FROM over.evidence__overflow WHERE " THIS,
    "INSERT INTO over.evidence__overflow(owner, id, timestamp, action_bytes,"
    " screenshot_bytes, pruned, pinned, confidence, action, screenshot)"
    " SELECT ?1, r.id, r.timestamp, r.action_bytes, r.screenshot_bytes,"
    " r.pruned, r.pinned, r.confidence, a.action,"
    " iif(r.screenshot_bytes > 0, s.screenshot, NULL) FROM main.@_rows AS r"
    " LEFT JOIN main.@_actions AS a ON a.rid = iif(r.pruned, -r.rid, r.rid)"
    " LEFT JOIN main.@_shots AS s ON s.rid = r.rid WHERE r.rid = ?2",
    "UPDATE main.@_rows SET place = 1 WHERE rid = ?2",
    "DELETE FROM main.@_actions WHERE rid IN (?2, -?2)",
    "DELETE FROM main.@_shots WHERE rid = ?2",
    "DELETE FROM main.@_gone WHERE id ="
    " (SELECT id FROM main.@_rows WHERE rid = ?2)"};
#define N_MOVE ((int)(sizeof(azMove) / sizeof(azMove[0])))

i64 bxEvOverflowMove(EvBuffer *p, EvState *pState, i64 nGoal, BxErr *pErr) {
  sqlite3_stmt *apStep[N_MOVE] = {0};
  EvChoice chosen = {0, 0, 0};
  i64 iRow;
  int i;
  assert(nGoal >= -1);
  if (pErr->rc == SQLITE_OK) {
    bxEvChooseMemory(p, pState, nGoal, &chosen, pErr);
  }
  if (chosen.nRow > 0) claim(p, pState, pErr);
  for (i = 0; i < N_MOVE && chosen.nRow > 0 && pErr->rc == SQLITE_OK; i++) {
    apStep[i] = bxEvPrepareOver(p, pState, azMove[i], pErr);
  }
  for (iRow = 0; iRow < chosen.nRow && pErr->rc == SQLITE_OK; iRow++) {
    EvRecord *pRow = &chosen.aRow[iRow];
    for (i = 0; i < N_MOVE && pErr->rc == SQLITE_OK; i++) {
      bxBind(apStep[i], pErr, "ti", pState->zOwner, pRow->iRow);
      bxStmtRun(apStep[i], pErr);
    }
    bxEvMove(pState, pRow, EV_OVERFLOW);
  }
  for (i = 0; i < N_MOVE; i++) sqlite3_finalize(apStep[i]);
  sqlite3_free(chosen.aRow);
  return iRow;
}

/* The row in the overflow. Its screenshot may be missing. */
#define OVER_BACK                                                              \
  " FROM main.@_rows AS r JOIN over.evidence__overflow AS o"                   \
  " ON o.owner = ?1 AND o.id = r.id WHERE r.rid = ?2 AND r.place = 1"          \
  " AND o.action IS NOT NULL"

void bxEvOverflowBack(
    EvBuffer *p, EvState *pState, EvRecord *pRow, BxErr *pErr) {
  static const char *const azSql[] = {
      "INSERT OR REPLACE INTO main.@_actions(rid, action)"
      " SELECT iif(r.pruned, -r.rid, r.rid), o.action" OVER_BACK,
      "INSERT OR REPLACE INTO main.@_shots(rid, screenshot)"
      " SELECT r.rid, o.screenshot" OVER_BACK
      " AND r.screenshot_bytes > 0 AND o.screenshot IS NOT NULL"};
  sqlite3_stmt *pStmt;
  assert(pRow->ePlace == EV_OVERFLOW);
  if (pErr->rc != SQLITE_OK) return;
  claim(p, pState, pErr);
  if (pErr->rc != SQLITE_OK) return;
  /* A row that comes back must have the size that it had when it was moved. */
  pStmt = bxEvPrepareOver(p, pState,
      "SELECT r.action_bytes = length(CAST(o.action AS BLOB)) AND"
      " (r.screenshot_bytes = 0 OR coalesce(length(o.screenshot),"
      "  r.screenshot_bytes) = r.screenshot_bytes)" OVER_BACK,
      pErr);
  bxBind(pStmt, pErr, "ti", pState->zOwner, pRow->iRow);
  if (!bxStep(pStmt, pErr)) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: row %lld of %s is missing in the overflow of "
        "schema %s; DELETE it from %s",
        pRow->iRow, p->pOn->zTable, pState->zOverflow, p->pOn->zTable);
  } else if (!sqlite3_column_int(pStmt, 0)) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "CorruptedDataError: row %lld in the overflow is not the row that was "
        "moved there; DELETE the row",
        pRow->iRow);
  }
  sqlite3_finalize(pStmt);
  RUN_OVER(azSql, pRow->iRow, pErr);
  bxStmtExec(p->pOn, "UPDATE main.@_rows SET place = 0 WHERE rid = ?1", pErr,
      "i", pRow->iRow);
  bxEvMarkGone(p, pRow->iRow, 1, pErr);
  bxEvMove(pState, pRow, EV_MEMORY);
}

/* After sizes have changed. */
static const char zOverCount[] =
    "UPDATE over.evidence_owners SET bytes = (SELECT coalesce("
    "sum(action_bytes + screenshot_bytes + " EV_TEXT(
        EV_ROW_BYTES) "), 0)"
                      " FROM over.evidence__overflow WHERE owner = ?1) WHERE "
                      "owner = ?1";

void bxEvOverflowSweep(EvBuffer *p, EvState *pState, BxErr *pErr) {
  assert(p->bTemp || pState->zOverflow == 0);
#define MARKED(whole)                                                          \
  " WHERE owner = ?1 AND id IN (SELECT id FROM main.@_gone WHERE whole "       \
  "= " whole ")"
  const char *const azSql[] = {
      "UPDATE over.evidence__overflow SET pinned = 0, released = 1" MARKED("1"),
      "DELETE FROM over.evidence__overflow" MARKED("1"),
      "INSERT INTO over.retention_log(domain, rule, rows, bytes, oldest)"
      " SELECT 'evidence', 'released', 0,"
      " screenshot_bytes, timestamp FROM over.evidence__overflow" MARKED("0"),
      "UPDATE over.evidence__overflow SET screenshot_bytes = 0,"
      " screenshot = NULL" MARKED("0"),
      zOverCount,
      ("DELETE FROM over.evidence_owners WHERE owner = ?1 AND rows = 0"
       " AND (SELECT overflowed FROM main.@_state) = 0"),
      "DELETE FROM main.@_gone WHERE ?1 <> ''"};
#undef MARKED
  BxErr err = {SQLITE_OK, 0};
  if (pErr->rc != SQLITE_OK || pState->zOverflow == 0) return;
  if (!bxQueryInt(p->pOn, "SELECT 1 FROM main.@_gone LIMIT 1", pErr, ""))
    return;
  claim(p, pState, &err);
  RUN_OVER(azSql, 0, &err);
  handOn(&err, pErr);
}

#define OURS                                                                   \
  "SELECT o.rid FROM over.evidence__overflow AS o JOIN main.@_rows AS r "      \
  "ON r.id = o.id WHERE o.owner = ?1 AND r.place = 1 AND r.pinned = 0 "        \
  "AND r.pruned = 0"
/* The copy in the overflow is reduced first; a repetition does the rest. */
void bxEvOverflowApprove(EvBuffer *p, EvState *pState, BxErr *pErr) {
  static const char *const azTake[] = {
      "UPDATE main.@_rows SET pruned = o.pruned, action_bytes = o.action_bytes"
      " FROM over.evidence__overflow AS o WHERE o.owner = ?1"
      " AND o.id = @_rows.id AND o.pruned = 1 AND @_rows.place = 1"
      " AND @_rows.pinned = 0 AND @_rows.pruned = 0"};
  const char *azSql[] = {0,
      "UPDATE over.evidence__overflow"
      " SET action_bytes = length(CAST(action AS BLOB))"
      " WHERE rid IN (" OURS ") AND pruned = 1",
      zOverCount};
  char *zApproved, *zSql;
  sqlite3_stmt *pLost;
  assert(pState->nOverflow >= 0);
  if (pErr->rc != SQLITE_OK || pState->nOverflow == 0) return;
  claim(p, pState, pErr);
  zApproved = bxEvApproved("timestamp", pErr);
  azSql[0] = zSql = bxPrintf(pErr,
      "UPDATE over.evidence__overflow SET action = %s, pruned = 1"
      " WHERE rid IN (" OURS ") AND CASE WHEN " BX_JSON_VALID(
          "action") " THEN " EV_OBJECT("action") " END",
      zApproved);
  RUN_OVER(azSql, 0, pErr);
  sqlite3_free(zSql);
  sqlite3_free(zApproved);
  pLost = bxEvPrepareOver(p, pState,
      "SELECT sum(r.action_bytes - o.action_bytes), min(r.timestamp),"
      " max(r.timestamp) FROM over.evidence__overflow AS o JOIN main.@_rows AS"
      " r ON r.id = o.id WHERE o.owner = ?1 AND o.pruned = 1 AND r.place = 1"
      " AND r.pinned = 0 AND r.pruned = 0 AND r.action_bytes > o.action_bytes",
      pErr);
  bxBind(pLost, pErr, "t", pState->zOwner);
  bxEvNoteApproved(p, pLost, pErr);
  sqlite3_finalize(pLost);
  RUN_OVER(azTake, 0, pErr);
  bxEvCountRows(p, pState, pErr);
}
