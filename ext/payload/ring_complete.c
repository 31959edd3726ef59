/*
** ring_complete.c: an exchange whose response comes later. The request is pushed
** alone, so that it survives the process that waits for the response:
**
**   pushed, response_body NULL --- complete ---> pushed, with a response
**            | kill switch
**            v
**   evidence, response_body NULL -- complete --> evidence, with a response
**
** That happens once, from NULL. In the evidence a trigger of sql/payload.sql tells
** it in the log, and pins the row anew, so that the leaf of the new pin has the
** response. A held exchange may be completed, too: nothing that it had is changed. What
** is pinned or held keeps its meta; then the log has the late one ('late_meta').
** It may be in the ring and in the evidence, and then is completed in both.
*/
#include "watch.h"
SQLITE_EXTENSION_INIT3

#define LATE_META                                                              \
  "INSERT INTO main.blackbox__log(domain, kind, subject, event_id, agent_id,"  \
  " detail) SELECT 'payload', 'late_meta',"

/* The newest exchange of the event without a response; 0: none. A query that finds
** it soon if it is new, and else reads the window. */
static i64 findOpen(
    Ring *p, const RingPush *pDone, RingAgent *pAgent, BxErr *pErr) {
  static const char zSql[] =
      "SELECT id FROM main.@_slots WHERE id BETWEEN ?1 AND ?2 AND " RING_WITHIN
      " AND event_id = ?4 AND response_body IS NULL ORDER BY id DESC LIMIT 1";
  i64 iSlot = 0, iFirst, iLast;
  int i;
  bxRingAgent(p, pDone->zAgent, pAgent, pErr);
  if (pAgent->iNo == 0 || pErr->rc != SQLITE_OK) return 0;
  for (i = 2; i >= !pAgent->bKept && iSlot == 0; i--) {
    bxRingPart(pAgent, i, &iFirst, &iLast);
    iSlot = bxQueryInt(&p->base.stmts, zSql, pErr, "iiiv", iFirst, iLast,
        pAgent->nGiven - p->nWindow, pDone->pEvent);
  }
  return iSlot;
}

/* Completes evidence: of the time of a slot, or any for 0. Returns whether there
** was some. */
static int completeEvidence(
    Ring *p, i64 iSlot, const RingPush *pDone, BxErr *pErr) {
  static const char zTime[] =
      "SELECT timestamp FROM main.@_slots WHERE id = ?1";
  static const char zFind[] =
      "SELECT rowid FROM main.event_payloads INDEXED BY idx_payloads_event_id "
      "WHERE event_id = ?1 AND agent_id = ?2 AND purpose = 'evidence' AND "
      "response_body IS NULL AND (NOT ?3 OR created_at = "
      "strftime('%Y-%m-%dT%H:%M:%fZ', ?4 / 1000.0, 'unixepoch')) "
      "ORDER BY rowid DESC LIMIT 1";
  static const char zWrite[] =
      "UPDATE main.event_payloads SET response_body = ?2, "
      "meta = coalesce(meta, ?3) WHERE rowid = ?1";
  static const char zLog[] =
      LATE_META " id, event_id, agent_id, ?2 FROM main.event_payloads"
                " WHERE rowid = ?1 AND meta <> coalesce(?2, meta)";
  BxErr err = {SQLITE_OK, 0};
  BxStmts *pArchive = pErr->rc == SQLITE_OK ? bxRingArchive(p, &err) : 0;
  i64 iTime, iRow;
  assert(pDone->zAgent != 0 || pErr->rc != SQLITE_OK);
  if (pArchive == 0 && err.rc == SQLITE_ERROR) bxErrClear(&err); /* none */
  bxErrMove(pErr, &err);
  if (pArchive == 0 || pErr->rc != SQLITE_OK) return 0;
  iTime = iSlot != 0 ? bxQueryInt(&p->base.stmts, zTime, pErr, "i", iSlot) : 0;
  iRow = bxQueryInt(pArchive, zFind, pErr, "vtii", pDone->pEvent, pDone->zAgent,
      (i64)(iSlot != 0), iTime);
  if (iRow == 0 || pErr->rc != SQLITE_OK) return 0;
  bxLogBegin(pArchive, pErr);
  bxStmtExec(pArchive, zLog, pErr, "iv", iRow, pDone->pMeta);
  bxStmtExec(
      pArchive, zWrite, pErr, "ivv", iRow, pDone->pResponse, pDone->pMeta);
  bxLogProveAll(pArchive->bx, pErr);
  return 1;
}

/* Writes the response into a slot. A held row keeps a meta that it has: the log gets the
** other one. */
static void completeRow(
    Ring *p, i64 iSlot, RingAgent *pAgent, RingPush *pDone, BxErr *pErr) {
  static const char zRow[] = "SELECT seq, timestamp, " RING_REQUEST ", meta "
                             "FROM main.@_slots AS s WHERE id = ?1";
  static const char zLog[] =
      LATE_META " '@' || '/' || seq, event_id, agent_id, ?2 FROM main.@_slots"
                " WHERE id = ?1";
  static const char zWrite[] =
      "UPDATE main.@_slots SET response_body = ?2, meta = coalesce(?3, meta), "
      "size_bytes = size_bytes + ?4, steps = coalesce(?5, steps) WHERE id = ?1";
  static const char zPage[] =
      "UPDATE main.@_agents SET page = ?2, at = coalesce(?3, at) WHERE no = ?1";
  static const char *const azSql[] = {zWrite, zPage};
  i64 nByte = bxBytes(pDone->pResponse);
  Watched watched;
  RingBody response;
  sqlite3_stmt *pRow = bxPrepare(&p->base.stmts, zRow, pErr), *apStmt[2];
  assert(iSlot != 0);
  bxBodyUse(p, pRow, pErr);
  bxBind(pRow, pErr, "i", iSlot);
  if (bxStep(pRow, pErr)) {
    i64 iNewest = pAgent->nGiven;
    pDone->bLate = 1;
    pDone->iTime = sqlite3_column_int64(pRow, 1);
    pDone->pRequest = sqlite3_column_value(pRow, 2);
    if (sqlite3_value_type(pDone->pMeta) != SQLITE_NULL &&
        sqlite3_column_type(pRow, 3) != SQLITE_NULL &&
        bxRingIsHeld(p, iSlot, pErr)) {
      bxStmtExec(&p->base.stmts, zLog, pErr, "iv", iSlot, pDone->pMeta);
      pDone->pMeta = sqlite3_column_value(pRow, 3);
    }
    bxRingFits(p, bxBytes(pDone->pRequest) + nByte, pErr);
    bxRingWatchBegin(p, pDone, &watched, pErr);
    bxStmtSet(&p->base.stmts, azSql, 2, apStmt, pErr);
    bxRingMakeRoom(p, pAgent, nByte, iSlot, pErr);
    bxBodyOpen(p, pAgent->iNo, pErr);
    bxBodyAppend(p, pDone->pResponse, 0, &response, pErr);
    /* the rules see it, unless a newer request has told them */
    if (sqlite3_column_int64(pRow, 0) == iNewest) {
      bxRingWatchRead(&watched, pAgent, &(Shared){.iFrom = -1});
    }
    bxRingBindSteps(&watched, apStmt[0], 5);
    bxBind(apStmt[0], pErr, "i-vi", iSlot, pDone->pMeta, nByte);
    bxBodyBind(apStmt[0], 2, &response, pDone->pResponse, pErr);
    bxStmtRun(apStmt[0], pErr);
    bxWriteNote(p->base.stmts.bx, pErr);
    bxBodyPage(p, apStmt[1], 2, pErr);
    bxBind(apStmt[1], pErr, "i", pAgent->iNo);
    if (pAgent->iTurn != 0) bxBind(apStmt[1], pErr, "--i", pAgent->iTurn);
    bxStmtRun(apStmt[1], pErr);
    bxRingCount(p, pAgent->iNo, 0, 0, nByte, pErr);
    bxRingAfterWrite(p, pDone, iSlot, &watched, pErr);
  }
  sqlite3_finalize(pRow);
}

/* iSlot: where findOpen() found it, or 0. */
static void complete(
    Ring *p, i64 iSlot, RingAgent *pAgent, RingPush *pDone, BxErr *pErr) {
  int bDone = 0;
  assert(iSlot == 0 || iSlot >> 29 == pAgent->iNo);
  if (pErr->rc != SQLITE_OK) return;
  if (iSlot == 0 || p->mWatch & (RING_HOLDS | RING_AGENTS)) {
    bDone = completeEvidence(p, iSlot, pDone, pErr);
    /* a trigger on it may have pushed something */
    if (bDone && iSlot != 0) iSlot = findOpen(p, pDone, pAgent, pErr);
  }
  if (iSlot != 0 && pErr->rc == SQLITE_OK) {
    completeRow(p, iSlot, pAgent, pDone, pErr);
  } else if (!bDone) {
    bxFail(pErr, SQLITE_ERROR,
        "NotFoundError: neither ring %Q nor the evidence has an exchange of "
        "agent %Q and event %Q without a response; an exchange is completed "
        "once, after its request was inserted",
        p->base.stmts.zTable, pDone->zAgent,
        (const char *)sqlite3_value_text(pDone->pEvent));
  }
}

void bxRingComplete(Ring *p, RingPush *pDone, BxErr *pErr) {
  RingAgent agent;
  if (pErr->rc != SQLITE_OK) return;
  complete(p, findOpen(p, pDone, &agent, pErr), &agent, pDone, pErr);
}

void bxRingCompleteSlot(Ring *p, i64 iSlot, RingPush *pDone, BxErr *pErr) {
  static const char zRow[] =
      "SELECT agent_id, event_id, seq FROM main.@_slots WHERE id = ?1";
  static const char zSeq[] = "SELECT seq FROM main.@_slots WHERE id = ?1";
  RingAgent agent;
  sqlite3_stmt *pRow = bxPrepare(&p->base.stmts, zRow, pErr);
  bxBind(pRow, pErr, "i", iSlot);
  if (bxStep(pRow, pErr)) {
    i64 iSeq = sqlite3_column_int64(pRow, 2), iOpen;
    pDone->zAgent = bxColumnText(pRow, 0, pErr);
    pDone->pEvent = sqlite3_column_value(pRow, 1);
    iOpen = findOpen(p, pDone, &agent, pErr);
    if (iOpen == iSlot) {
      complete(p, iSlot, &agent, pDone, pErr);
    } else if (bxQueryInt(&p->base.stmts, zSeq, pErr, "i", iOpen) < iSeq) {
      bxFail(pErr, SQLITE_CONSTRAINT,
          "ReadOnlyError: a recorded exchange cannot be changed, and exchange "
          "%lld of agent %Q has its response; add AND response_body IS NULL",
          iSeq, pDone->zAgent);
    }
  }
  sqlite3_finalize(pRow);
}
