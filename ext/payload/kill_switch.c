/*
** kill_switch.c: all rows of an agent leave a ring at once: as pinned evidence
** in event_payloads, or as JSON.
**
** Evidence is written first, in one statement, and the ring emptied second, in
** another. Both are undone together: as a function by its savepoint, as a row
** put into the ring as core/transaction.c says. An exchange of the archive is not stored
** twice: see pins.c. What the agent pushes after its stop is added to the evidence,
** one exchange at a time, and stays in the ring.
**
** Where: the archive must be in the ring's own file, or the ring in temp. Two
** files that use a write-ahead log commit one after the other; had the ring's
** file gone first, a crash in between would lose both copies.
*/
#include "payload.h"
#include "../core/log.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

BxStmts *bxRingArchive(Ring *p, BxErr *pErr) {
  Bx *bx = p->base.stmts.bx;
  const char *zDb = p->base.stmts.zDb;
  if (sqlite3_stricmp(zDb, "temp") == 0)
    return bxDomainSchema(bx, "payload", pErr);
  if (bxSchemaHasDomain(bx, zDb, "payload", pErr))
    return bxSchema(bx, zDb, pErr);
  bxFail(pErr, SQLITE_ERROR,
      "PlacementError: ring %s is in schema %s, which has no event_payloads. "
      "Evidence in another file could be lost when the process dies during "
      "COMMIT; run SELECT blackbox_install(%Q), or make the ring in temp",
      p->base.stmts.zTable, zDb, zDb);
  return 0;
}

/* Two schemas have a part in saving, and a template marks one. A ring is in the
** archive's own schema, or in temp: its statements, or those it keeps for the
** archive, and its templates. */
static BxStmts *savingOf(Ring *p, const BxStmts *pArchive, BxErr *pErr) {
  const BxStmts *pRing = &p->base.stmts;
  if (pErr->rc != SQLITE_OK) return 0;
  if (sqlite3_stricmp(pRing->zDb, "temp") != 0) return &p->base.stmts;
  if (p->saving.zDb == 0 || strcmp(p->saving.zDb, pArchive->zDb) != 0 ||
      strcmp(p->saving.zTable, pRing->zTable) != 0) {
    bxStmtsFree(&p->saving);
    bxStmtsInit(&p->saving, pRing->bx, pArchive->zDb, pRing->zTable, pErr);
  }
  return pErr->rc == SQLITE_OK ? &p->saving : 0;
}

/* Whether the archive refuses a row of the ring, as what had one of its keys was
** erased. Such a row stays in the ring. */
/* clang-format off */
#define IS_REFUSED                                                             \
  "(EXISTS (SELECT 1 FROM main.retention__in_force) AND "                      \
  "EXISTS (SELECT 1 FROM main.retention__holds AS r"                           \
  "  WHERE r.kind = 'erased event' AND r.\"key\" = s.event_id"                 \
  "  UNION ALL SELECT 1 FROM main.retention__holds AS r"                       \
  "  WHERE r.kind = 'erased agent' AND r.\"key\" = s.agent_id))"
/* Whether a hold keeps it in the ring as well. */
#define NOT_HELD " AND NOT (" RING_HELD ")"

/* An agent's rows, the oldest first, that are not evidence of this kill switch
** already: ?5, whether it has any. ?1 kill switch, ?2 to ?3 ids of the agent. LIMIT keeps
** the order. (+ keeps the other indexes out: that of created_at finds few rows.) */
#define ROWS(schema)                                                           \
  " FROM (SELECT id AS i FROM " schema ".@_slots WHERE id BETWEEN ?2 AND ?3 "  \
  "  ORDER BY seq LIMIT -1) "                                                  \
  "CROSS JOIN " schema ".@_slots AS s ON s.id = i "                            \
  "WHERE NOT (?5 AND EXISTS (SELECT 1 FROM main.event_payloads AS e"           \
  "  WHERE +e.kill_switch_event_id = ?1"                                       \
  "    AND +e.agent_id = s.agent_id AND +e.event_id = s.event_id"              \
  "    AND e.created_at = strftime("                                           \
  "      '%Y-%m-%dT%H:%M:%fZ', s.timestamp / 1000.0, 'unixepoch')"             \
  "    AND store_text(e.request_body) IS " RING_REQUEST                        \
  "    AND store_text(e.response_body) IS " RING_RESPONSE "))"                 \
  " AND NOT " IS_REFUSED
/* Bodies are read only where the archive has rows of the event. */
#define WHERE_THERE(body)                                                      \
  "iif(EXISTS (SELECT 1 FROM main.event_payloads AS a INDEXED BY "             \
  "idx_payloads_event_id WHERE a.event_id = s.event_id), " body ", NULL)"
#define FIND(schema)                                                           \
  "SELECT id, event_id, agent_id, " WHERE_THERE(RING_REQUEST)                  \
  ", " WHERE_THERE(RING_RESPONSE) ", timestamp" ROWS(schema)
/* ?4: the ids of those that are in the archive. */
#define SAVE(schema)                                                           \
  "INSERT INTO main.event_payloads(id, purpose, pinned, kill_switch_event_id," \
  "  size_bytes, agent_id, event_id, request_body, response_body, meta,"       \
  "  created_at) "                                                             \
  "SELECT coalesce(?4 ->> ('$.' || id), " EVIDENCE_ID "), 'evidence', 1, ?1,"  \
  "  size_bytes, agent_id, event_id, " RING_REQUEST ", " RING_RESPONSE         \
  ", meta, strftime("                                                          \
  "    '%Y-%m-%dT%H:%M:%fZ', timestamp / 1000.0, 'unixepoch')" ROWS(schema)    \
  EVIDENCE_THERE
/* The same where nothing is evidence of this kill switch, and with all that is saved. */
#define MOVE(schema)                                                           \
  "SELECT id, event_id, agent_id, " RING_REQUEST ", " RING_RESPONSE            \
  ", timestamp, meta, EXISTS (SELECT 1 FROM main.event_payloads AS a"          \
  " INDEXED BY idx_payloads_event_id WHERE a.event_id = s.event_id)"           \
  " FROM (SELECT id AS i FROM " schema ".@_slots WHERE id BETWEEN ?2 AND ?3"   \
  "  ORDER BY seq LIMIT -1) CROSS JOIN " schema ".@_slots AS s ON s.id = i"
#define OF_AGENT(schema)                                                       \
  " FROM " schema ".@_slots AS s WHERE id BETWEEN ?1 AND ?2"
/* clang-format on */

static const char zFindMain[] = FIND("main");
static const char zFindTemp[] = FIND("temp");
static const char zMoveMain[] = MOVE("main");
static const char zMoveTemp[] = MOVE("temp");
static const char zSave[] = SAVE("main");
static const char zSaveTemp[] = SAVE("temp");
/* What is skipped, which the log is told, and what is taken out. */
#define SKIPPED(schema)                                                        \
  "INSERT INTO main.blackbox__log(domain, kind, subject, reason, rows, "       \
  "bytes, detail, agent_id, kill_switch_event_id) SELECT 'payload', "          \
  "'passed_over', ?3, 'what had these events was erased, and the archive "     \
  "refuses them; they stay in the ring', count(*), sum(size_bytes), "          \
  "json_object('ring', '@'), agent_id, ?3" OF_AGENT(                           \
      schema) " AND " IS_REFUSED " GROUP BY agent_id"
static const char zSkip[] = SKIPPED("main");
static const char zSkipTemp[] = SKIPPED("temp");
static const char zDropMain[] =
    "DELETE" OF_AGENT("main") " AND NOT " IS_REFUSED NOT_HELD;
static const char zDropTemp[] =
    "DELETE" OF_AGENT("temp") " AND NOT " IS_REFUSED;

/* Saves the rows of slots iFirst to iEnd, with pins after row iLast of the log. Returns
** how many. */
static i64 save(Ring *p, BxStmts *pArchive, const char *zEvent, i64 iLast,
    i64 iFirst, i64 iEnd, BxErr *pErr) {
  static const char zHas[] =
      "SELECT EXISTS (SELECT 1 FROM main.event_payloads WHERE "
      "kill_switch_event_id = ?1)";
  i64 bHas = bxQueryInt(pArchive, zHas, pErr, "t", zEvent);
  BxStmts *pSaving = savingOf(p, pArchive, pErr);
  int bTemp = pSaving == &p->saving;
  sqlite3_stmt *pRows, *pSave;
  assert(iFirst <= iEnd || pErr->rc != SQLITE_OK);
  if (!bHas && iFirst < iEnd && bxPinsAlone(pArchive, pErr)) {
    pRows = bxStmt(pSaving, bTemp ? zMoveTemp : zMoveMain, pErr);
    bxBodyUse(p, pRows, pErr);
    bxBind(pRows, pErr, "-ii", iFirst, iEnd);
    return bxPinsMove(pArchive, zEvent, pRows, pErr);
  }
  pRows = bxStmt(pSaving, bTemp ? zFindTemp : zFindMain, pErr);
  pSave = bxStmt(pSaving, bTemp ? zSaveTemp : zSave, pErr);
  bxBodyUse(p, pRows, pErr);
  bxBodyUse(p, pSave, pErr);
  bxBind(pRows, pErr, "tii-i", zEvent, iFirst, iEnd, bHas);
  bxBind(pSave, pErr, "tii-i", zEvent, iFirst, iEnd, bHas);
  return bxPinsSave(pArchive, zEvent, iLast, pRows, pSave, pErr);
}

/* Saves the agent's rows and takes them out. */
static i64 fire(Ring *p, BxStmts *pArchive, const char *zAgent,
    const char *zEvent, i64 iLast, BxErr *pErr) {
  RingAgent agent, after;
  BxStmts *pSaving;
  i64 nSaved;
  int bTemp;
  assert(zAgent != 0 && zEvent != 0);
  bxRingAgent(p, zAgent, &agent, pErr);
  if (agent.iNo == 0) {
    bxFail(pErr, SQLITE_ERROR,
        "NotFoundError: ring %Q has never seen agent %Q; SELECT agent_id FROM "
        "\"%w_agents\" lists those that it knows",
        p->base.stmts.zTable, zAgent, p->base.stmts.zTable);
  }
  bxRingSettle(p, &agent, pErr);
  bxRingAgent(p, zAgent, &agent, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  nSaved = save(p, pArchive, zEvent, iLast, RING_FIRST(agent.iNo),
      RING_LAST(agent.iNo), pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  bxRingAgent(p, zAgent, &after, pErr);
  if (memcmp(&after, &agent, sizeof(agent)) != 0) {
    bxFail(pErr, SQLITE_ERROR,
        "MisuseError: a trigger on event_payloads writes into ring %s, from "
        "which evidence is being saved; nothing is taken out of it",
        p->base.stmts.zTable);
  }
  bTemp = (pSaving = savingOf(p, pArchive, pErr)) == &p->saving;
  bxStmtExec(pSaving, bTemp ? zSkipTemp : zSkip, pErr, "iit",
      RING_FIRST(agent.iNo), RING_LAST(agent.iNo), zEvent);
  bxRingTakeOut(p, pSaving, bTemp ? zDropTemp : zDropMain, &agent, 1, pErr);
  return nSaved;
}

void bxRingPuller(sqlite3_value *pActor, sqlite3_value *pReason,
    RingPuller *pOut, BxErr *pErr) {
  pOut->zActor = pActor ? bxText(pActor, "actor", 1024, 1, pErr) : 0;
  pOut->zReason = pReason ? bxText(pReason, "reason", 65536, 1, pErr) : 0;
  pOut->iVerdict = 0;
}

/* Writes into the log who pulled the switch, when and why. Its pins come after row
** iLast. */
static void logSwitch(const Ring *p, BxStmts *pArchive, const char *zAgent,
    const char *zEvent, const RingPuller *pPuller, i64 nSaved, i64 iLast,
    BxErr *pErr) {
  static const char zLog[] =
      "INSERT INTO main.blackbox__log(domain, kind, subject, actor, reason,"
      " rows, detail, agent_id, kill_switch_event_id) SELECT 'payload',"
      " 'kill_switch', ?1, coalesce(?2, 'rule ' || v.rule),"
      " coalesce(?3, v.sentence), ?4, json_object('after', ?8, 'ring', ?5), "
      "?6, ?1"
      " FROM (SELECT 1) LEFT JOIN (SELECT rule, sentence"
      "  FROM main.payload_verdicts WHERE id = ?7"
      "  AND kill_switch_event_id = ?1) AS v";
  assert(nSaved >= 0);
  bxStmtExec(pArchive, zLog, pErr, "tttittii", zEvent, pPuller->zActor,
      pPuller->zReason, nSaved, p->base.stmts.zTable, zAgent, pPuller->iVerdict,
      iLast);
}

static i64 pullSwitch(Ring *p, const char *zAgent, const char *zEvent,
    const RingPuller *pPuller, BxErr *pErr) {
  Bx *bx = p->base.stmts.bx;
  BxLogKnown known = {0, 0, 0, 0, 0}, *pBefore = bx->pKnown;
  BxStmts *pArchive;
  i64 nSaved, iLast;
  assert(
      !sqlite3_get_autocommit(p->base.stmts.bx->db) || pErr->rc == SQLITE_OK);
  bxRingLock(p, pErr); /* before anything is read */
  pArchive = bxRingArchive(p, pErr);
  if (pArchive == 0) return 0;
  bxLogBegin(pArchive, pErr);
  bxLogRemake(pArchive, pErr);
  iLast = bxPinsLast(pArchive, pErr);
  bx->pKnown = &known;
  nSaved = fire(p, pArchive, zAgent, zEvent, iLast, pErr);
  if (bxLogRemake(pArchive, pErr)) {
    nSaved = fire(p, pArchive, zAgent, zEvent, iLast, pErr);
  }
  logSwitch(p, pArchive, zAgent, zEvent, pPuller, nSaved, iLast, pErr);
  bxLogProveAll(bx, pErr);
  bx->pKnown = pBefore;
  sqlite3_free(known.aFields);
  return nSaved;
}

i64 bxRingKillSwitch(Ring *p, const char *zAgent, const char *zEvent,
    const RingPuller *pPuller, BxErr *pErr) {
  i64 nSaved;
  if (p->bFiring) {
    bxFail(pErr, SQLITE_MISUSE,
        "MisuseError: the kill switch of ring %s was fired from inside itself, "
        "by a trigger on event_payloads; take the trigger off",
        p->base.stmts.zTable);
    return 0;
  }
  p->bFiring = 1;
  nSaved = pullSwitch(p, zAgent, zEvent, pPuller, pErr);
  p->bFiring = 0;
  return nSaved;
}

void bxRingWentOn(Ring *p, const char *zAgent, i64 iSlot, BxErr *pErr) {
  static const char zCount[] = "UPDATE main.payload_agents SET went_on = "
                               "went_on + 1 WHERE agent_id = ?1";
  static const char zStop[] =
      "SELECT kill_switch_event_id FROM main.payload_agents "
      "WHERE agent_id = ?1 AND kill_switch_event_id > '' AND went_on <= ?2";
  BxStmts *pArchive = bxRingArchive(p, pErr);
  sqlite3_stmt *pStmt;
  char *zEvent = 0;
  if (pArchive == 0) return;
  bxLogBegin(pArchive, pErr);
  bxStmtExec(pArchive, zCount, pErr, "t", zAgent);
  pStmt = bxStmt(pArchive, zStop, pErr);
  bxBind(pStmt, pErr, "ti", zAgent, p->nWindow);
  if (bxStep(pStmt, pErr)) zEvent = bxColumnCopy(pStmt, 0, pErr);
  bxReset(pStmt, pErr);
  if (zEvent != 0 && !p->bFiring) {
    p->bFiring = 1; /* a trigger on event_payloads may push more */
    save(p, pArchive, zEvent, bxPinsLast(pArchive, pErr), iSlot, iSlot, pErr);
    p->bFiring = 0;
  }
  sqlite3_free(zEvent);
  bxLogProveAll(pArchive->bx, pErr);
}

void bxPayloadKillSwitch(BxCall *p) {
  Ring *pRing = (Ring *)bxVtabFind(p->bx, "payload_ring", p->aArg[0], &p->err);
  const char *zAgent = bxText(p->aArg[1], "agent_id", 1024, 0, &p->err);
  const char *zEvent =
      bxText(p->aArg[2], "kill_switch_event_id", 1024, 0, &p->err);
  RingPuller puller;
  bxRingPuller(bxArg(p, 3), bxArg(p, 4), &puller, &p->err);
  if (p->err.rc != SQLITE_OK) return;
  bxReturnInt(p, bxRingKillSwitch(pRing, zAgent, zEvent, &puller, &p->err));
}

/* JSON has no type for a blob. */
static void refuseBlob(
    Ring *p, const char *zAgent, const RingAgent *pAgent, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxPrepare(&p->base.stmts,
      "SELECT event_id, seq, CASE typeof(" RING_REQUEST ") WHEN 'blob' "
      "THEN 'request_body' ELSE 'response_body' END FROM main.@_slots AS s "
      "WHERE id BETWEEN ?1 AND ?2 "
      "AND 'blob' IN (typeof(" RING_REQUEST "), typeof(" RING_RESPONSE ")) "
      "ORDER BY seq LIMIT 1",
      pErr);
  bxBodyUse(p, pStmt, pErr);
  bxBind(pStmt, pErr, "ii", RING_FIRST(pAgent->iNo), RING_LAST(pAgent->iNo));
  if (bxStep(pStmt, pErr)) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: %s of event %s (seq %lld) of agent %s is a blob, for "
        "which JSON has no type; nothing was taken out. SELECT the rows from "
        "%s and DELETE them, or save them with payload_kill_switch()",
        bxColumnText(pStmt, 2, pErr), bxColumnText(pStmt, 0, pErr),
        sqlite3_column_int64(pStmt, 1), zAgent, p->base.stmts.zTable);
  }
  sqlite3_finalize(pStmt);
}

#define EXCHANGE                                                               \
  "'eventId', event_id, 'agentId', agent_id, 'requestBody', request_body, "    \
  "'responseBody', response_body, 'timestamp', timestamp"

void bxPayloadExtract(BxCall *p) {
  Ring *pRing = (Ring *)bxVtabFind(p->bx, "payload_ring", p->aArg[0], &p->err);
  const char *zAgent = bxText(p->aArg[1], "agent_id", 1024, 0, &p->err);
  static const char zDropAll[] = "DELETE" OF_AGENT("main");
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
  bxRingRefuseHeld(pRing, RING_FIRST(agent.iNo), RING_LAST(agent.iNo), &p->err);
  bxRingSettle(pRing, &agent, &p->err);
  refuseBlob(pRing, zAgent, &agent, &p->err);
  pStmt = bxPrepare(&pRing->base.stmts,
      "SELECT json_group_array(iif(meta IS NULL, json_object(" EXCHANGE "), "
      "json_object(" EXCHANGE ", 'meta', json(meta)))) FROM (SELECT agent_id, "
      "event_id, timestamp, meta, " RING_REQUEST
      " AS request_body, " RING_RESPONSE
      " AS response_body FROM main.@_slots AS s WHERE id BETWEEN ?1 AND ?2 "
      "ORDER BY seq LIMIT -1)",
      &p->err);
  bxBodyUse(pRing, pStmt, &p->err);
  bxBind(pStmt, &p->err, "ii", RING_FIRST(agent.iNo), RING_LAST(agent.iNo));
  if (bxStep(pStmt, &p->err)) {
    bxReturnJson(p, bxColumnCopy(pStmt, 0, &p->err));
  }
  sqlite3_finalize(pStmt);
  if (agent.iNo != 0 && p->err.rc == SQLITE_OK) {
    bxRingTakeOut(pRing, &pRing->base.stmts, zDropAll, &agent, 0, &p->err);
  }
}
