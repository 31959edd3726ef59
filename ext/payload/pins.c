/*
** pins.c: the hashes in payload_ledger, by which blackbox_check() sees that a
** pinned row was changed behind the guards.
**
** A trigger cannot compute one, so a pin begins without (hash NULL). The kill
** switch, payload_save_evidence, payload_unpin and blackbox_install take the
** hashes of the newest pins that have none. The schema lets a hash be set once.
**
** What is hashed: the columns of the row in the order of the table, as many as
** the ledger's "columns" says (a column that was added later is not among
** them), as digest.c of core does it.
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* The hash of the columns iFirst and after of the row that pRow is on. */
static void hashRow(
    sqlite3_stmt *pRow, int iFirst, int nColumn, char zHex[65], BxErr *pErr) {
  unsigned char a[BX_DIGEST];
  bxDigestRow(pRow, iFirst, nColumn, a, pErr);
  bxHex(a, BX_DIGEST, zHex);
}

/* Takes the hashes of the pins of a list, which it finishes: rows of the pin and
** what it pins. A pin whose row is lost is not on it. */
static void hashPins(BxStmts *p, sqlite3_stmt *pList, BxErr *pErr) {
  static const char zSet[] =
      "UPDATE main.payload_ledger SET hash = ?2, columns = ?3 WHERE pin = ?1";
  int nColumn = sqlite3_column_count(pList) - 1 - bxPacks(p, pErr);
  while (bxRow(pList, pErr)) {
    sqlite3_stmt *pSet = bxStmt(p, zSet, pErr);
    char zHex[65];
    hashRow(pList, 1, nColumn, zHex, pErr);
    bxBind(
        pSet, pErr, "iti", sqlite3_column_int64(pList, 0), zHex, (i64)nColumn);
    bxRun(pSet, pErr);
  }
  bxDone(pList, pErr);
}

/* The pins that a subquery chooses, with their rows. In a file that packs, these
** come from payload_rows, which has the same columns with texts, and one more. */
#define PINNED_ROWS(rows, pins)                                                \
  "SELECT p.pin, e.* FROM (SELECT pin, id FROM main.payload_ledger "           \
  "WHERE hash IS NULL AND at IS NULL " pins ") AS p "                          \
  "CROSS JOIN main." rows " AS e ON e.id = p.id"
#define BOTH_ROWS(pins)                                                        \
  { PINNED_ROWS("event_payloads", pins), PINNED_ROWS("payload_rows", pins) }

void bxPinsHash(BxStmts *p, i64 nLimit, BxErr *pErr) {
  static const char *const azNewest[] = BOTH_ROWS("ORDER BY -pin LIMIT ?1");
  sqlite3_stmt *pList = bxStmt(p, azNewest[bxPacks(p, pErr)], pErr);
  bxBind(pList, pErr, "i", nLimit);
  hashPins(p, pList, pErr);
}

i64 bxPinsLast(BxStmts *p, BxErr *pErr) {
  static const char zLast[] = "SELECT max(pin) FROM main.payload_ledger";
  sqlite3_stmt *pStmt = bxStmt(p, zLast, pErr);
  i64 iPin = bxRow(pStmt, pErr) ? sqlite3_column_int64(pStmt, 0) : 0;
  bxDone(pStmt, pErr);
  return iPin;
}

/* Hashes of pins set without the module, that a call takes with its own. */
#define MORE 100

void bxPinsHashNew(
    BxStmts *p, i64 iPin, const char *zEvent, i64 nSaved, BxErr *pErr) {
  static const char zNew[] =
      "SELECT count(*) FROM main.payload_pins AS p "
      "CROSS JOIN main.event_payloads AS e ON e.id = p.id "
      "WHERE p.pin > ?1 AND e.kill_switch_event_id IS ?2";
  sqlite3_stmt *pStmt = bxStmt(p, zNew, pErr);
  i64 nNew = 0;
  bxBind(pStmt, pErr, "it", iPin, zEvent);
  if (bxRow(pStmt, pErr)) nNew = sqlite3_column_int64(pStmt, 0);
  bxDone(pStmt, pErr);
  if (nNew < nSaved) { /* a trigger of the user's may have kept some from it */
    bxFail(pErr, SQLITE_ERROR,
        "MisuseError: a trigger on event_payloads let only %lld of %lld "
        "exchanges become pinned evidence; drop it and save again",
        nNew, nSaved);
  }
  bxPinsHash(p, nSaved + MORE, pErr);
}

void bxPinsHashOf(BxStmts *p, const char *zId, BxErr *pErr) {
  static const char *const azOne[] = BOTH_ROWS("AND id = ?1");
  sqlite3_stmt *pList = bxStmt(p, azOne[bxPacks(p, pErr)], pErr);
  bxBind(pList, pErr, "t", zId);
  hashPins(p, pList, pErr);
}

void bxPinsHashSome(BxStmts *p, const char *zIds, BxErr *pErr) {
  static const char *const azSome[] =
      BOTH_ROWS("AND id IN (SELECT value FROM json_each(?1))");
  sqlite3_stmt *pList = bxStmt(p, azSome[bxPacks(p, pErr)], pErr);
  bxBind(pList, pErr, "t", zIds);
  hashPins(p, pList, pErr);
}

int bxPinsHold(BxStmts *p, const char *zId, BxErr *pErr) {
  static const char zHolds[] = "SELECT 1 FROM main.payload_pins WHERE id = ?1";
  sqlite3_stmt *pStmt = bxStmt(p, zHolds, pErr);
  int bHolds;
  bxBind(pStmt, pErr, "t", zId);
  bHolds = bxRow(pStmt, pErr);
  bxDone(pStmt, pErr);
  return bHolds;
}

int bxPinsLack(BxStmts *p, BxErr *pErr) {
  return bxNumber(p,
             "SELECT EXISTS (SELECT 1 FROM main.payload_ledger AS l "
             "JOIN main.event_payloads AS e ON e.id = l.id "
             "WHERE l.hash IS NULL AND l.at IS NULL)",
             pErr) != 0;
}

void bxPinsCheck(BxStmts *p, BxProblems *pOut) {
  enum { FIRST = 3 };
  BxErr err = {SQLITE_OK, 0};
#define HASHED_ROWS(rows)                                                      \
  "SELECT p.id, p.hash, p.columns, e.* FROM main.payload_pins AS p "           \
  "JOIN main." rows " AS e ON e.id = p.id WHERE p.hash IS NOT NULL"
  sqlite3_stmt *pStmt = bxPrepare(p,
      bxPacks(p, &err) ? HASHED_ROWS("payload_rows")
                       : HASHED_ROWS("event_payloads"),
      &err);
  int nProblem = 0;
  while (nProblem < BX_MAX_PROBLEMS && bxRow(pStmt, &err)) {
    int nColumn = sqlite3_column_int(pStmt, 2);
    int bSame = nColumn > 0 && nColumn <= sqlite3_column_count(pStmt) - FIRST;
    const char *zHash = bxColumnText(pStmt, 1, &err);
    char zHex[65];
    if (bSame) hashRow(pStmt, FIRST, nColumn, zHex, &err);
    if (err.rc != SQLITE_OK || (bSame && strcmp(zHash, zHex) == 0)) continue;
    nProblem++;
    bxProblem(pOut, "event_payloads",
        "row %s is pinned and was changed: its hash is not that of "
        "payload_pins",
        bxColumnText(pStmt, 0, &err));
  }
  sqlite3_finalize(pStmt);
  bxUnchecked(pOut, "payload_pins", &err);
}
