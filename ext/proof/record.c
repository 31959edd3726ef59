/*
** record.c: the things that get leaves: where they are, and what of them is
** hashed.
**
** All of them have ascending numbers, which their tables never use twice, so that
** a mark tells up to which number all have leaves. Unpins are the exception: an
** unpin has the number of its pin. payload_state counts them, and they are found
** by their time.
**
** What is hashed of a thing are the columns of its row that cannot change by the
** rules, as digest.c of core does it. For evidence that is what the ledger of pins
** hashes too, so that a kill switch hashes each exchange once. The view
** payload_rows has texts also where the table has references to them, and one more
** column, the time.
**
** A table of a domain that is not installed has no things. A verdict whose number
** somebody has chosen and made very large waits for ever.
*/
#include "proof.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

typedef struct Record {
  const char *zName;
  const char *azAsk[3]; /* by ProofAsk */
} Record;

/* Things with a number above the mark. */
#define ABOVE(number, from)                                                    \
  "SELECT " number " FROM " from " WHERE " number " > ?1 ORDER BY " number     \
  " LIMIT ?2"
/* Things of kind k that have no leaf. */
#define LACKING(number, k, from)                                               \
  "SELECT " number " FROM " from " WHERE " number " BETWEEN ?1 AND ?2"         \
  " AND NOT EXISTS (SELECT 1 FROM main.proof_salts WHERE thing = " number      \
  " * 8 + " k ") ORDER BY " number

static const Record aRecord[] = {
    {0, {0, 0, 0}},
    {"pin", {ABOVE("pin", "main.payload_ledger"),
                "SELECT NULL, pin, id, token FROM main.payload_ledger"
                " WHERE pin = ?1",
                LACKING("pin", "1", "main.payload_ledger")}},
    {"evidence",
        {0,
            "SELECT l.columns, e.* FROM main.payload_ledger AS l"
            " JOIN main.payload_rows AS e ON e.id = l.id"
            " WHERE l.pin = ?1 AND l.at IS NULL",
            "SELECT pin FROM main.payload_pins WHERE pin BETWEEN ?1 AND ?2"
            " AND NOT EXISTS (SELECT 1 FROM main.proof_salts"
            "  WHERE thing = pin * 8 + 2) ORDER BY pin"}},
    {"unpin",
        {"SELECT pin FROM main.payload_ledger WHERE at IS NOT NULL"
         " ORDER BY at DESC, pin DESC",
            "SELECT NULL, pin, id, at, actor, reason, event_id, agent_id,"
            " kill_switch_event_id FROM main.payload_ledger"
            " WHERE pin = ?1 AND at IS NOT NULL",
            "SELECT pin FROM main.payload_ledger WHERE at IS NOT NULL"
            " AND pin BETWEEN ?1 AND ?2 AND NOT EXISTS (SELECT 1"
            "  FROM main.proof_salts WHERE thing = pin * 8 + 3) ORDER BY pin"}},
    {"hold", {ABOVE("step", "main.retention_hold_log"),
                 "SELECT NULL, step, at, kind, \"key\", owner, act, until, "
                 "actor, reason, found FROM main.retention_hold_log "
                 "WHERE step = ?1",
                 LACKING("step", "4", "main.retention_hold_log")}},
    {"receipt",
        {"SELECT id FROM main.blackbox__receipts WHERE id > ?1"
         " AND CASE WHEN minute IS NULL THEN rows > 0 ELSE minute < ?3 END"
         " AND NOT EXISTS (SELECT 1 FROM main.proof_salts"
         "  WHERE thing = id * 8 + 5) ORDER BY id LIMIT ?2",
            "SELECT NULL, id, at, domain, rule, actor, rows, bytes, oldest, "
            "newest,"
            " minute FROM main.blackbox__receipts WHERE id = ?1",
            LACKING("id", "5", "main.blackbox__receipts")}},
    {"verdict",
        {ABOVE("id", "main.payload_verdicts"),
            "SELECT NULL, id, at, ring, agent_id, rule, level, count, "
            "threshold,"
            " tool, turn, thing, seqs, tokens, sentence, action,"
            " kill_switch_event_id FROM main.payload_verdicts WHERE id = ?1",
            LACKING("id", "6", "main.payload_verdicts")}},
    {"erasure",
        {ABOVE("id", "main.retention_erasures"),
            "SELECT NULL, id, at, kind, salt, digest, actor, reason, rows, "
            "bytes,"
            " held_back, until FROM main.retention_erasures WHERE id = ?1",
            LACKING("id", "7", "main.retention_erasures")}},
};

const char *bxProofKindName(ProofKind eKind) {
  assert(eKind >= PROOF_PIN && eKind <= PROOF_ERASURE);
  return aRecord[eKind].zName;
}

ProofKind bxProofKindOf(const char *zName) {
  int i;
  for (i = PROOF_PIN; i <= PROOF_ERASURE; i++) {
    if (strcmp(aRecord[i].zName, zName) == 0) return (ProofKind)i;
  }
  return (ProofKind)0;
}

sqlite3_stmt *bxProofAsk(
    BxStmts *p, ProofKind eKind, ProofAsk eAsk, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  if (pErr->rc != SQLITE_OK || aRecord[eKind].azAsk[eAsk] == 0) return 0;
  pStmt = bxStmt(p, aRecord[eKind].azAsk[eAsk], &err);
  if (bxSays(&err, "no such table")) bxClear(&err);
  bxPass(pErr, &err);
  return pStmt;
}

int bxProofRow(sqlite3_stmt *pStmt, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  int bRow;
  if (pErr->rc != SQLITE_OK) return 0;
  bRow = bxRow(pStmt, &err);
  if (bxSays(&err, "no such table")) {
    bxClear(&err);
    sqlite3_reset(pStmt); /* which would return the error again */
  }
  bxPass(pErr, &err);
  return bRow;
}

sqlite3_stmt *bxProofPendingOf(
    ProofLog *pLog, ProofKind eKind, i64 nMost, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxProofAsk(pLog->p, eKind, PROOF_PENDING, pErr);
  if (pStmt == 0) return 0;
  bxBind(pStmt, pErr, eKind == PROOF_RECEIPT ? "iii" : "ii", pLog->aMark[eKind],
      nMost, bxNow() / 60000 - 1);
  return pStmt;
}

/* The number that a query on payload's tables returns, 0 without these. */
static i64 askPayload(BxStmts *p, const char *zSql, i64 iPin, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  i64 n;
  if (pErr->rc != SQLITE_OK) return 0;
  n = bxAsk(p, zSql, &err, "i", iPin);
  if (bxSays(&err, "no such table")) bxClear(&err);
  bxPass(pErr, &err);
  return n;
}

i64 bxProofUnpinned(ProofLog *pLog, BxErr *pErr) {
  static const char zClosed[] =
      "SELECT closed - ?1 FROM main.payload_state WHERE one = 1";
  return askPayload(pLog->p, zClosed, pLog->aMark[PROOF_UNPIN], pErr);
}

int bxProofEnded(BxStmts *p, i64 iPin, BxErr *pErr) {
  static const char zEnded[] = "SELECT at IS NOT NULL FROM main.payload_ledger"
                               " WHERE pin = ?1";
  return askPayload(p, zEnded, iPin, pErr) != 0;
}

int bxProofContent(
    BxStmts *p, i64 iThing, unsigned char aOut[BX_DIGEST], BxErr *pErr) {
  sqlite3_stmt *pStmt = bxProofAsk(p, PROOF_KIND(iThing), PROOF_CONTENT, pErr);
  int nHashed = 0;
  if (pStmt == 0) return 0;
  bxBind(pStmt, pErr, "i", PROOF_NUMBER(iThing));
  if (bxProofRow(pStmt, pErr)) {
    int n = sqlite3_column_count(pStmt) - 1 -
            (PROOF_KIND(iThing) == PROOF_EVIDENCE);
    if (sqlite3_column_type(pStmt, 0) == SQLITE_INTEGER &&
        sqlite3_column_int(pStmt, 0) > 0 && sqlite3_column_int(pStmt, 0) < n) {
      n = sqlite3_column_int(pStmt, 0);
    }
    bxDigestRow(pStmt, 1, n, aOut, pErr);
    nHashed = n;
  }
  bxDone(pStmt, pErr);
  return nHashed;
}
