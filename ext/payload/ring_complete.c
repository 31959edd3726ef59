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
static i64 findOpen(Ring *p, const RingPush *pDone, BxErr *pErr) {
  static const char zSql[] =
      "SELECT id FROM main.@_slots WHERE id BETWEEN ?1 AND ?2 AND seq > ?3 "
      "AND event_id = ?4 AND response_body IS NULL ORDER BY id DESC LIMIT 1";
  RingAgent agent;
  i64 iSlot = 0;
  int i;
  bxRingAgent(p, pDone->zAgent, &agent, pErr);
  if (agent.iNo == 0 || pErr->rc != SQLITE_OK) return 0;
  for (i = 0; i < 2 + agent.bParked && iSlot == 0; i++) {
    i64 iSplit = BX_RING_SPLIT(&agent);
    iSlot = bxAsk(&p->base.stmts, zSql, pErr, "iiiv",
        i == 0   ? BX_RING_BASE(&agent)
        : i == 1 ? iSplit + 1
                 : RING_PARK(&agent),
        i == 0   ? iSplit
        : i == 1 ? BX_RING_LAST(&agent)
                 : RING_PARK_LAST(&agent),
        i < 2 ? agent.nGiven - agent.nAllowed : 0, pDone->pEvent);
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
  if (pArchive == 0 && err.rc == SQLITE_ERROR) bxClear(&err); /* none */
  bxPass(pErr, &err);
  if (pArchive == 0 || pErr->rc != SQLITE_OK) return 0;
  iTime = iSlot != 0 ? bxAsk(&p->base.stmts, zTime, pErr, "i", iSlot) : 0;
  iRow = bxAsk(pArchive, zFind, pErr, "vtii", pDone->pEvent, pDone->zAgent,
      (i64)(iSlot != 0), iTime);
  if (iRow == 0 || pErr->rc != SQLITE_OK) return 0;
  bxLogBegin(pArchive, pErr);
  bxDo(pArchive, zLog, pErr, "iv", iRow, pDone->pMeta);
  bxDo(pArchive, zWrite, pErr, "ivv", iRow, pDone->pResponse, pDone->pMeta);
  bxLogFollow(pArchive->bx, pErr);
  return 1;
}

/* Writes the row of a slot again, with the response. */
static void completeRow(Ring *p, i64 iSlot, RingPush *pDone, BxErr *pErr) {
  static const char zRow[] =
      "SELECT " RING_SLOT("?2") ", timestamp, request_body, meta "
                                "FROM main.@_slots AS s WHERE id = ?1";
  static const char zLog[] =
      LATE_META " '@' || '/' || seq, event_id, agent_id, ?2 FROM main.@_slots"
                " WHERE id = ?1";
  RingAgent agent;
  RingSlot slot;
  RingCount count = {0, 0, 0, 0, 0};
  RingRoll *pRoll = 0;
  sqlite3_stmt *pRow = bxPrepare(&p->base.stmts, zRow, pErr), *pWrite;
  int bBound = p->nMaxByte > 0 || p->nIdleDay > 0;
  int bNew = sqlite3_value_type(pDone->pMeta) != SQLITE_NULL;
  bxRingAgent(p, pDone->zAgent, &agent, pErr);
  bxBind(pRow, pErr, "it", iSlot, pDone->zAgent);
  if (bxRow(pRow, pErr)) {
    slot.iId = iSlot;
    bxRingReadSlot(pRow, 0, &slot);
    agent.nGiven = slot.iSeq;
    pDone->iTime = sqlite3_column_int64(pRow, 4);
    pDone->pRequest = sqlite3_column_value(pRow, 5);
    if (bNew && sqlite3_column_type(pRow, 6) != SQLITE_NULL &&
        bxRingIsHeld(p, iSlot, pErr)) {
      bxDo(&p->base.stmts, zLog, pErr, "iv", iSlot, pDone->pMeta);
      bNew = 0;
    }
    if (!bNew) pDone->pMeta = sqlite3_column_value(pRow, 6);
    count.nByte = bxBytes(pDone->pResponse);
    pDone->nByte = slot.nByte + count.nByte;
    if (bBound) pRoll = bxRingChoose(p, &agent, count.nByte, iSlot, pErr);
    pWrite = bxStmt(&p->base.stmts, bxRingAppendSql(&slot), pErr);
    if (bBound) bxRingRoll(p, pRoll, agent.iNo, pErr);
    bxRingAppend(p, pWrite, &agent, pDone, &slot, pErr);
    bxRingCount(p, agent.iNo, &count, pErr);
    if (p->mWatch & RING_HOLDS) bxRingNoteHeld(p, iSlot, pDone, pErr);
    bxRingTellFull(p, pDone, pErr);
    bxRingLooked(p);
  }
  sqlite3_finalize(pRow);
}

static void complete(Ring *p, i64 iSlot, RingPush *pDone, BxErr *pErr) {
  int bDone = 0;
  if (iSlot == 0 || p->mWatch & RING_HOLDS) {
    bDone = completeEvidence(p, iSlot, pDone, pErr);
    /* a trigger on it may have pushed something */
    if (bDone && iSlot != 0) iSlot = findOpen(p, pDone, pErr);
  }
  if (iSlot != 0 && pErr->rc == SQLITE_OK) {
    completeRow(p, iSlot, pDone, pErr);
  } else if (!bDone) {
    bxFail(pErr, SQLITE_ERROR,
        "NotFoundError: neither ring %s nor the evidence has an exchange of "
        "agent %s and event %s without a response; an exchange is completed "
        "once, after its request was inserted",
        p->base.stmts.zTable, pDone->zAgent,
        (const char *)sqlite3_value_text(pDone->pEvent));
  }
}

void bxRingComplete(Ring *p, RingPush *pDone, BxErr *pErr) {
  i64 iSlot = findOpen(p, pDone, pErr);
  if (pErr->rc == SQLITE_OK) complete(p, iSlot, pDone, pErr);
}

void bxRingCompleteSlot(Ring *p, i64 iSlot, RingPush *pDone, BxErr *pErr) {
  static const char zRow[] =
      "SELECT agent_id, event_id, seq FROM main.@_slots WHERE id = ?1";
  static const char zSeq[] = "SELECT seq FROM main.@_slots WHERE id = ?1";
  sqlite3_stmt *pRow = bxPrepare(&p->base.stmts, zRow, pErr);
  bxBind(pRow, pErr, "i", iSlot);
  if (bxRow(pRow, pErr)) {
    i64 iSeq = sqlite3_column_int64(pRow, 2), iOpen;
    pDone->zAgent = bxColumnText(pRow, 0, pErr);
    pDone->pEvent = sqlite3_column_value(pRow, 1);
    iOpen = findOpen(p, pDone, pErr);
    if (iOpen == iSlot) {
      complete(p, iSlot, pDone, pErr);
    } else if (bxAsk(&p->base.stmts, zSeq, pErr, "i", iOpen) < iSeq) {
      bxFail(pErr, SQLITE_CONSTRAINT,
          "ReadOnlyError: a recorded exchange cannot be changed, and exchange "
          "%lld of agent %s has its response; add AND response_body IS NULL",
          iSeq, pDone->zAgent);
    }
  }
  sqlite3_finalize(pRow);
}
