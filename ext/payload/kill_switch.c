/*
** kill_switch.c: all rows of an agent leave a ring at once: as pinned evidence
** in event_payloads, or as JSON.
**
** Evidence is written first and the ring emptied second. As a function both
** are one savepoint; as a row put into the ring, the statement around it
** rolls both back, and in the one case where SQLite does not (a single row
** inside BEGIN, the second step failing) the evidence stands twice, once in
** the ring: firing again saves nothing twice and empties it.
**
** Where: the archive must be in the ring's own file, or the ring in temp. Two
** files that use a write-ahead log commit one after the other; had the ring's
** file gone first, a crash in between would lose both copies.
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

/* The archive that a ring's evidence goes to. */
static BxStmts *archiveOf(Ring *p, BxErr *pErr) {
  Bx *bx = p->base.stmts.bx;
  const char *zDb = p->base.stmts.zDb;
  if (sqlite3_stricmp(zDb, "temp") == 0) return bxHome(bx, "payload", pErr);
  if (bxCarries(bx, zDb, "payload", pErr)) return bxSchema(bx, zDb, pErr);
  bxFail(pErr, SQLITE_ERROR,
      "PlacementError: ring %s is in schema %s, which has no event_payloads. "
      "Evidence in another file could be lost when the process dies during "
      "COMMIT; run SELECT blackbox_install(%Q), or make the ring in temp",
      p->base.stmts.zTable, zDb, zDb);
  return 0;
}

/* Whether evidence of this kill switch is there already. */
static int hasEvidence(BxStmts *pArchive, const char *zEvent, BxErr *pErr) {
  static const char zSql[] =
      "SELECT 1 FROM main.event_payloads WHERE kill_switch_event_id = ?1";
  sqlite3_stmt *pStmt = bxStmt(pArchive, zSql, pErr);
  int bFound;
  bxBind(pStmt, pErr, "t", zEvent);
  bFound = bxRow(pStmt, pErr);
  bxDone(pStmt, pErr);
  return bFound;
}

/* ?1 kill switch, ?2 agent, ?3 event, ?4 request, ?5 response, ?6 size, ?7 time
** in milliseconds. VALUES and no SELECT: where a table has triggers, SQLite
** copies the rows of a SELECT into a table of its own first. */
#define SAVE                                                                   \
  "INSERT INTO main.event_payloads(id, kill_switch_event_id, agent_id,"        \
  "  event_id, request_body, response_body, size_bytes, created_at, purpose,"  \
  "  pinned) "
#define SAVED                                                                  \
  BX_PAYLOAD_NEW_ID ", ?1, ?2, ?3, ?4, ?5, ?6,"                                \
                    "  strftime('%Y-%m-%dT%H:%M:%fZ', ?7 / 1000.0, "           \
                    "'unixepoch'), 'evidence', 1"

static const char zSaveNew[] = SAVE "VALUES(" SAVED ")";

/* The same for a kill switch that has evidence: only what it has not yet. */
static const char zSaveAgain[] = SAVE
    "SELECT " SAVED " WHERE NOT EXISTS (SELECT 1 FROM main.event_payloads AS e"
    "  WHERE e.kill_switch_event_id = ?1 AND e.agent_id = ?2"
    "    AND e.event_id = ?3 AND e.request_body IS ?4"
    "    AND e.response_body IS ?5 AND e.created_at ="
    "      strftime('%Y-%m-%dT%H:%M:%fZ', ?7 / 1000.0, 'unixepoch'))";

/* Saves one part of the agent's layout. Returns the rows saved. */
static i64 savePart(sqlite3_stmt *pSlots, sqlite3_stmt *pSave,
    const char *zEvent, i64 iFrom, i64 iTo, const RingAgent *pAgent,
    BxErr *pErr) {
  enum { AGENT = 1, EVENT, REQUEST, RESPONSE, TIME, SIZE }; /* after the id */
  i64 nSaved = 0;
  if (pErr->rc != SQLITE_OK) return 0;
  bxBind(pSlots, pErr, "iii", iFrom, iTo, pAgent->nGiven - pAgent->nAllowed);
  while (bxRow(pSlots, pErr)) {
    bxBind(pSave, pErr, "tvvssvv", zEvent, sqlite3_column_value(pSlots, AGENT),
        sqlite3_column_value(pSlots, EVENT),
        sqlite3_column_value(pSlots, REQUEST),
        sqlite3_column_value(pSlots, RESPONSE),
        sqlite3_column_value(pSlots, SIZE), sqlite3_column_value(pSlots, TIME));
    bxRun(pSave, pErr);
    if (pErr->rc == SQLITE_OK) {
      nSaved += sqlite3_changes(sqlite3_db_handle(pSave));
    }
  }
  bxDone(pSlots, pErr);
  return nSaved;
}

i64 bxRingKillSwitch(
    Ring *p, const char *zAgent, const char *zEvent, BxErr *pErr) {
  sqlite3_stmt *pSlots, *pSave;
  BxStmts *pArchive;
  RingAgent agent;
  i64 nSaved;
  bxRingLock(p, pErr); /* before anything is read */
  pArchive = archiveOf(p, pErr);
  if (pArchive == 0) return 0;
  bxLock(pArchive, pErr);
  bxRingAgent(p, zAgent, &agent, pErr);
  if (pErr->rc != SQLITE_OK || agent.iNo == 0) return 0;
  pSlots = bxRingSlots(p, 1, 0, pErr);
  pSave = bxStmt(pArchive,
      hasEvidence(pArchive, zEvent, pErr) ? zSaveAgain : zSaveNew, pErr);
  nSaved = savePart(pSlots, pSave, zEvent, BX_RING_SPLIT(&agent) + 1,
      BX_RING_LAST(&agent), &agent, pErr);
  nSaved += savePart(pSlots, pSave, zEvent, BX_RING_BASE(&agent),
      BX_RING_SPLIT(&agent), &agent, pErr);
  sqlite3_finalize(pSlots);
  bxRingTakeOut(p, zAgent, 1, pErr);
  return nSaved;
}

void bxPayloadKillSwitch(BxCall *p) {
  Ring *pRing = (Ring *)bxVtabFind(p->bx, "payload_ring", p->aArg[0], &p->err);
  const char *zAgent = bxText(p->aArg[1], "agent_id", 1024, 0, &p->err);
  const char *zEvent =
      bxText(p->aArg[2], "kill_switch_event_id", 1024, 0, &p->err);
  if (p->err.rc != SQLITE_OK) return;
  bxReturnInt(p, bxRingKillSwitch(pRing, zAgent, zEvent, &p->err));
}

void bxPayloadExtract(BxCall *p) {
  Ring *pRing = (Ring *)bxVtabFind(p->bx, "payload_ring", p->aArg[0], &p->err);
  const char *zAgent = bxText(p->aArg[1], "agent_id", 1024, 0, &p->err);
  sqlite3_stmt *pStmt;
  RingAgent agent;
  if (p->pCtx == 0) {
    bxFail(&p->err, SQLITE_ERROR,
        "MisuseError: payload_extract() returns what it takes out, and a row "
        "returns nothing; call it in a SELECT");
  }
  if (p->err.rc != SQLITE_OK) return;
  bxRingLock(pRing, &p->err);
  bxRingAgent(pRing, zAgent, &agent, &p->err);
  pStmt = bxPrepare(&pRing->base.stmts,
      "SELECT json_group_array(json_object('eventId', event_id, 'agentId', "
      "agent_id, 'requestBody', request_body, 'responseBody', response_body, "
      "'timestamp', timestamp)) FROM (SELECT * FROM main.@_slots WHERE id "
      "BETWEEN ?1 AND ?1 + 65535 ORDER BY seq)",
      &p->err);
  bxBind(pStmt, &p->err, "i", agent.iNo << 16);
  if (bxRow(pStmt, &p->err)) {
    bxReturnJson(
        p, sqlite3_mprintf("%s", (const char *)sqlite3_column_text(pStmt, 0)));
  }
  sqlite3_finalize(pStmt);
  if (agent.iNo != 0) bxRingTakeOut(pRing, zAgent, 0, &p->err);
}
