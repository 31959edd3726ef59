/*
** case.c: the report of a kill switch, and that of an agent.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define AT "e.created_ms"

static const char zCaseBodies[] =
    "SELECT 'request', request_body, 'response', response_body"
    " FROM main.payload_rows WHERE id = ?1";

/*---------------------------------------------------------------- verdict --*/

/* Marks the items that the verdict names. It names them by their numbers in the
** ring, which evidence has no more: payload_replay() finds the same loop in the
** evidence, and numbers its rows from 1. */
static void markVerdict(ReportRun *p, BxStmts *pHome, i64 iVerdict) {
  static const char zVerdictItems[] =
      "WITH v AS (SELECT rule, agent_id, kill_switch_event_id AS k,"
      "   iif(" BX_JSON_VALID(
          "seqs") ", seqs, '[]') AS seqs"
                  "  FROM main.payload_verdicts WHERE id = ?1),"
                  " e AS (SELECT e.id, row_number() OVER (ORDER BY " AT
                  "   , e.rowid) AS n FROM v JOIN main.event_payloads AS e"
                  "   ON e.kill_switch_event_id = v.k AND e.agent_id = "
                  "v.agent_id)"
                  " SELECT e.id FROM v JOIN payload_replay(v.k) AS r ON r.rule "
                  "= v.rule"
                  "   AND r.agent_id = v.agent_id"
                  "  JOIN json_each(r.seqs) AS j JOIN e ON e.n = j.value"
                  "  WHERE v.k IS NOT NULL"
                  " UNION ALL SELECT j.value FROM v, json_each(v.seqs) AS j"
                  "  WHERE v.k IS NULL";
  sqlite3_stmt *pStmt = bxPrepare(pHome, zVerdictItems, &p->err);
  i64 i;
  bxBind(pStmt, &p->err, "i", iVerdict);
  while (bxReportRow(p, pStmt)) {
    const char *zKey = bxColumnText(pStmt, 0, &p->err);
    for (i = 0; zKey != 0 && i < p->nItem; i++) {
      if (strcmp(p->aItem[i].zKey, zKey) == 0) p->aItem[i].bVerdict = 1;
    }
  }
  sqlite3_finalize(pStmt);
}

/* Reads the verdict whose id a query returns. */
static void readVerdict(ReportRun *p, BxStmts *pHome, const char *zSql) {
  static const char zVerdict[] =
      "SELECT rule, level, count, threshold, tool, turn, sentence, action"
      " FROM main.payload_verdicts WHERE id = ?1";
  sqlite3_stmt *pStmt = 0;
  ReportVerdict *pOut = &p->verdict;
  i64 iVerdict = bxAskOnce(pHome, zSql, &p->err, "t", p->zKey);
  if (p->err.rc == SQLITE_OK && iVerdict != 0) {
    pStmt = bxPrepare(pHome, zVerdict, &p->err);
    bxBind(pStmt, &p->err, "i", iVerdict);
  }
  if (bxReportRow(p, pStmt)) {
    pOut->bAny = 1;
    pOut->zRule = bxReportColumnText(p, pStmt, 0);
    pOut->zLevel = bxReportColumnText(p, pStmt, 1);
    pOut->zCount = bxReportColumnText(p, pStmt, 2);
    pOut->zThreshold = bxReportColumnText(p, pStmt, 3);
    pOut->zTool = bxReportColumnText(p, pStmt, 4);
    pOut->zTurn = bxReportColumnText(p, pStmt, 5);
    pOut->zReason = bxReportColumnText(p, pStmt, 6);
    pOut->zAction = bxReportColumnText(p, pStmt, 7);
    markVerdict(p, pHome, iVerdict);
  }
  sqlite3_finalize(pStmt);
}

/*-------------------------------------------------------------- kill switch --*/

static const ReportColumn aPin[] = {{"Time", REPORT_TIME},
    {"What", REPORT_TEXT}, {"Actor", REPORT_TEXT}, {"Reason", REPORT_TEXT},
    {"Status", REPORT_TEXT}, {0, REPORT_TEXT}};

static const ReportColumn aVerdict[] = {{"When", REPORT_TIME},
    {"Rule", REPORT_TEXT}, {"Level", REPORT_TEXT}, {"Count", REPORT_COUNT},
    {"Threshold", REPORT_COUNT}, {"What was done", REPORT_TEXT},
    {"What was found", REPORT_TEXT}, {0, REPORT_TEXT}};

static const ReportColumn aReceipt[] = {{"When", REPORT_TIME},
    {"Rule", REPORT_TEXT}, {"Actor", REPORT_TEXT}, {"Rows", REPORT_COUNT},
    {"Bytes", REPORT_BYTES}, {"Oldest", REPORT_TIME}, {"Newest", REPORT_TIME},
    {0, REPORT_TEXT}};

static void addVerdicts(ReportRun *p, BxStmts *pHome, const char *zSql) {
  bxReportRows(p,
      bxReportNewTable(p, "verdicts", "What the rules found", aVerdict), pHome,
      zSql);
}

static void addReceipts(ReportRun *p, BxStmts *pHome) {
  ReportTable *pTable =
      bxReportNewTable(p, "receipts", "What was removed", aReceipt);
  bxReportRows(p, pTable, pHome,
      "SELECT at, rule, actor, rows, bytes, oldest, newest"
      " FROM main.retention_log WHERE domain = 'payload' ORDER BY at DESC, id "
      "DESC");
}

/* clang-format off */
static const char zSwitchPins[] =
    "SELECT at, what, actor, reason, status FROM ("
    " SELECT n, at, 'kill switch: ' || rows || ' exchanges pinned' AS what,"
    "  coalesce(actor, 'a caller') AS actor, reason,"
    "  (SELECT sum(pinned) || ' pinned now' FROM main.event_payloads"
    "   WHERE kill_switch_event_id = ?1) AS status"
    " FROM main.blackbox__log WHERE subject = ?1 AND kind = 'kill_switch'"
    " UNION ALL SELECT 9e18, at, 'unpinned: event ' || coalesce(event_id, payload_id),"
    "  actor, reason, 'unpinned' FROM main.payload_unpins"
    "  WHERE kill_switch_event_id = ?1"
    " UNION ALL SELECT n, at, 'agent: ' || kind, actor, reason, NULL"
    "  FROM main.blackbox__log WHERE kind IN ('stop', 'start') AND subject IN"
    "   (SELECT agent_id FROM main.event_payloads"
    "    WHERE kill_switch_event_id = ?1))"
    " ORDER BY at, n";

static const char zSwitchHolds[] =
    "SELECT at, 'hold: ' || kind || ' ' || \"key\", owner || ' (' || actor || ')',"
    "  reason, coalesce('held until ' || strftime('%Y-%m-%d', until / 1000,"
    "   'unixepoch'), 'held')"
    " FROM main.retention_holds WHERE (kind, \"key\") IN (SELECT 'kill_switch', ?1"
    "  UNION SELECT 'agent', agent_id FROM main.event_payloads"
    "   WHERE kill_switch_event_id = ?1"
    "  UNION SELECT 'event', event_id FROM main.event_payloads"
    "   WHERE kill_switch_event_id = ?1"
    "  UNION SELECT 'evidence', id FROM main.event_payloads"
    "   WHERE kill_switch_event_id = ?1) ORDER BY at";
/* clang-format on */

static void addSwitchPins(ReportRun *p, BxStmts *pHome) {
  ReportTable *pTable = bxReportNewTable(p, "pins", "Pins and holds", aPin);
  BxStmts *pHolds = bxReportDomain(p, "retention");
  bxReportRows(p, pTable, pHome, zSwitchPins);
  if (pHolds == pHome) bxReportRows(p, pTable, pHome, zSwitchHolds);
}

static void findSwitch(ReportRun *p, BxStmts *pHome) {
  static const char zAny[] =
      "SELECT EXISTS (SELECT 1 FROM main.event_payloads"
      " WHERE kill_switch_event_id = ?1) OR EXISTS (SELECT 1 FROM"
      " main.blackbox__log WHERE kill_switch_event_id = ?1)";
  if (bxAskOnce(pHome, zAny, &p->err, "t", p->zKey) == 0) {
    bxReportNotFound(p, "kill switch",
        "SELECT DISTINCT kill_switch_event_id FROM event_payloads lists them");
  }
}

void bxReportKillSwitch(ReportRun *p) {
  BxStmts *pHome = bxReportNeed(p, "payload");
  int iSource;
  if (pHome == 0) return;
  findSwitch(p, pHome);
  bxReportFacts(p, pHome,
      "SELECT group_concat(DISTINCT e.agent_id) AS \"text:Agent\","
      " ?1 AS \"id:Kill switch\", count(*) AS \"count:Exchanges\","
      " min(" AT ") AS \"time:First\", max(" AT ") AS \"time:Last\","
      " max(" AT ") - min(" AT ") AS \"duration:From first to last\","
      " sum(e.size_bytes) AS \"bytes:Size\", sum(e.pinned) AS \"count:Pinned\""
      " FROM main.event_payloads AS e WHERE e.kill_switch_event_id = ?1");
  bxReportFacts(p, pHome,
      "SELECT a.stopped_at AS \"time:Agent stopped\","
      " a.stopped_by AS \"text:Stopped by\" FROM main.payload_agents AS a"
      " WHERE a.stopped_at IS NOT NULL AND a.agent_id IN (SELECT agent_id FROM"
      " main.event_payloads WHERE kill_switch_event_id = ?1)");
  iSource = bxReportSource(p, pHome, "exchange", zCaseBodies);
  p->aSource[iSource].bProof = bxReportProves(p, pHome);
  bxReportItems(p, iSource, pHome,
      "SELECT e.id, e.event_id, " AT ", e.size_bytes,"
      " iif(e.pinned, 'pinned', 'unpinned'), NULL, NULL, NULL, NULL"
      " FROM main.event_payloads AS e WHERE e.kill_switch_event_id = ?1"
      " ORDER BY " AT " DESC, e.rowid DESC");
  bxReportBound(p);
  readVerdict(p, pHome,
      "SELECT id FROM main.payload_verdicts WHERE kill_switch_event_id = ?1"
      " ORDER BY level <> 'stop', id LIMIT 1");
  addSwitchPins(p, pHome);
  addVerdicts(p, pHome,
      "SELECT at, rule, level, count, threshold, action, sentence"
      " FROM main.payload_verdicts WHERE kill_switch_event_id = ?1"
      " OR agent_id IN (SELECT agent_id FROM main.event_payloads"
      "  WHERE kill_switch_event_id = ?1) ORDER BY id DESC");
  addReceipts(p, pHome);
}

/*------------------------------------------------------------------ agent --*/

/* clang-format off */
static const char zAgentPins[] =
    "SELECT NULL, count(*) || ' pinned exchanges', NULL, NULL, 'pinned'"
    " FROM main.event_payloads WHERE agent_id = ?1 AND pinned = 1"
    " GROUP BY agent_id"
    " UNION ALL SELECT at, 'unpinned: event ' || coalesce(event_id, payload_id),"
    "  actor, reason, 'unpinned' FROM main.payload_unpins WHERE agent_id = ?1"
    " UNION ALL SELECT at, 'agent: ' || kind, actor, reason, NULL"
    "  FROM main.blackbox__log WHERE subject = ?1"
    "  AND kind IN ('stop', 'start') ORDER BY 1";

static const char zAgentHolds[] =
    "SELECT at, 'hold: ' || kind || ' ' || \"key\", owner || ' (' || actor || ')',"
    "  reason, coalesce('held until ' || strftime('%Y-%m-%d', until / 1000,"
    "   'unixepoch'), 'held')"
    " FROM main.retention_holds WHERE kind = 'agent' AND \"key\" = ?1"
    " ORDER BY at";
/* clang-format on */

static const ReportColumn aRing[] = {{"Ring", REPORT_TEXT},
    {"Given", REPORT_COUNT}, {"Rolled out", REPORT_COUNT},
    {"Cleared", REPORT_COUNT}, {"Saved", REPORT_COUNT}, {"Rows", REPORT_COUNT},
    {"Bytes", REPORT_BYTES}, {0, REPORT_TEXT}};

/* The exchanges of the agent in a ring, and the counters of these. */
static void addRing(ReportRun *p, ReportTable *pRings, BxVtab *pRing) {
  int iSource;
  if (pRing == 0 || p->nSource == REPORT_SOURCES) return;
  iSource = bxReportSource(p, &pRing->stmts, "exchange",
      "SELECT 'request', request_body, 'response', response_body"
      " FROM main.@ WHERE agent_id = ?2 AND seq = CAST(?1 AS INTEGER)");
  bxReportItems(p, iSource, &pRing->stmts,
      "SELECT seq, event_id, timestamp, size_bytes, 'in the ring ' || '@',"
      " NULL, NULL, NULL, NULL FROM main.@ WHERE agent_id = ?1"
      " ORDER BY seq DESC");
  bxReportRows(p, pRings, &pRing->stmts,
      "SELECT '@', given, rolled, cleared, saved, rows, bytes"
      " FROM main.@_agents WHERE agent_id = ?1");
}

/* The same for all rings of a schema. */
static void addRings(ReportRun *p, ReportTable *pRings, BxStmts *pFrom) {
  sqlite3_stmt *pStmt = pFrom ? bxVtabNames(pFrom, "payload_ring", &p->err) : 0;
  while (bxReportRow(p, pStmt)) {
    const char *zName = bxColumnText(pStmt, 0, &p->err);
    if (zName == 0) break;
    addRing(
        p, pRings, bxVtabIn(p->bx, "payload_ring", pFrom->zDb, zName, &p->err));
  }
  sqlite3_finalize(pStmt);
}

/* Only the rows that are shown are read; the others are counted in an index. */
static void addAgentItems(ReportRun *p, BxStmts *pHome) {
  ReportTable *pRings = bxReportNewTable(p, "rings", "Rings", aRing);
  int iSource = bxReportSource(p, pHome, "exchange", zCaseBodies);
  p->aSource[iSource].bProof = bxReportProves(p, pHome);
  bxReportItems(p, iSource, pHome,
      "SELECT x.id, x.event_id, e.at, x.size_bytes,"
      " x.purpose || iif(x.pinned, ', pinned', ''), NULL, NULL, NULL, NULL"
      " FROM (SELECT e.rowid AS rid, " AT " AS at FROM main.event_payloads AS e"
      "  WHERE e.agent_id = ?1 ORDER BY " AT
      " DESC, e.rowid DESC LIMIT ?2) AS e"
      " CROSS JOIN main.event_payloads AS x ON x.rowid = e.rid"
      " ORDER BY e.at DESC, e.rid DESC");
  p->nLeftItems += bxAskOnce(pHome,
      "SELECT max(count(*) - ?2, 0) FROM main.event_payloads"
      " WHERE agent_id = ?1",
      &p->err, "ti", p->zKey, p->opt.nItem);
  addRings(p, pRings, pHome);
  addRings(p, pRings, bxSchema(p->bx, "temp", &p->err));
  if (p->nItem == 0 && pRings->nCell == 0) {
    bxReportNotFound(p, "agent",
        "SELECT DISTINCT agent_id FROM event_payloads lists those of the "
        "archive, and SELECT agent_id FROM ring_agents those of a ring");
  }
  bxReportBound(p);
}

void bxReportAgent(ReportRun *p) {
  BxStmts *pHome = bxReportNeed(p, "payload");
  ReportTable *pTable;
  if (pHome == 0) return;
  bxReportFacts(p, pHome,
      "SELECT ?1 AS \"id:Agent\", count(*) AS \"count:In the archive\","
      " min(" AT ") AS \"time:First in the archive\","
      " max(" AT ") AS \"time:Last in the archive\""
      " FROM main.event_payloads AS e WHERE e.agent_id = ?1");
  bxReportFacts(p, pHome,
      "SELECT stopped_at AS \"time:Stopped\", stopped_by AS \"text:Stopped by\""
      " FROM main.payload_agents WHERE agent_id = ?1");
  addAgentItems(p, pHome);
  readVerdict(p, pHome,
      "SELECT id FROM main.payload_verdicts WHERE agent_id = ?1"
      " ORDER BY id DESC LIMIT 1");
  pTable = bxReportNewTable(p, "pins", "Pins and holds", aPin);
  bxReportRows(p, pTable, pHome, zAgentPins);
  if (bxReportDomain(p, "retention") == pHome) {
    bxReportRows(p, pTable, pHome, zAgentHolds);
  }
  addVerdicts(p, pHome,
      "SELECT at, rule, level, count, threshold, action, sentence"
      " FROM main.payload_verdicts WHERE agent_id = ?1 ORDER BY id DESC");
  addReceipts(p, pHome);
}
