/*
** case.c: the report of a kill switch, and that of an agent.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define AT BX_DATE_MS("e.created_at")

static const char zCaseBodies[] =
    "SELECT 'request', request_body, 'response', response_body"
    " FROM main.payload_rows WHERE id = ?1";

/*---------------------------------------------------------------- verdict --*/

/* The newest verdict of a query: rule, level, count, threshold, tool, turn,
** sentence, action. */
static void readVerdict(ReportRun *p, BxStmts *pHome, const char *zSql) {
  sqlite3_stmt *pStmt = bxReportAsk(p, pHome, zSql);
  ReportVerdict *pOut = &p->verdict;
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
  }
  sqlite3_finalize(pStmt);
}

/* Marks the items that the verdict names. It names them by their numbers in the
** ring: the newest of them is the last exchange that the kill switch saved. */
static void markVerdict(ReportRun *p, BxStmts *pHome, const char *zSql) {
  sqlite3_stmt *pStmt = bxReportAsk(p, pHome, zSql);
  while (bxReportRow(p, pStmt)) {
    i64 i = p->nItem - 1 - sqlite3_column_int64(pStmt, 0);
    if (i >= 0 && i < p->nItem) p->aItem[i].bVerdict = 1;
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

static void addReceipts(ReportRun *p, BxStmts *pHome) {
  ReportTable *pTable =
      bxReportNewTable(p, "receipts", "What was removed", aReceipt);
  bxReportRows(p, pTable, pHome,
      "SELECT at, rule, actor, rows, bytes, oldest, newest"
      " FROM main.retention_log WHERE domain = 'payload' ORDER BY id DESC");
}

/* clang-format off */
static const char zSwitchPins[] =
    "SELECT v.at, 'kill switch: ' || count(e.id) || ' exchanges pinned',"
    "  coalesce('rule ' || v.rule, 'a caller'), v.sentence,"
    "  sum(e.pinned) || ' pinned now'"
    " FROM main.event_payloads AS e"
    " LEFT JOIN (SELECT min(id), at, rule, sentence, kill_switch_event_id AS k"
    "   FROM main.payload_verdicts WHERE kill_switch_event_id = ?1) AS v"
    "  ON v.k = ?1"
    " WHERE e.kill_switch_event_id = ?1 GROUP BY e.kill_switch_event_id"
    " UNION ALL SELECT at, 'unpinned: event ' || coalesce(event_id, payload_id),"
    "  actor, reason, 'unpinned' FROM main.payload_unpins"
    "  WHERE kill_switch_event_id = ?1"
    " UNION ALL SELECT l.at, 'agent: ' || l.act, l.actor, l.reason, NULL"
    "  FROM main.payload_agent_log AS l WHERE l.agent_id IN (SELECT agent_id"
    "   FROM main.event_payloads WHERE kill_switch_event_id = ?1)"
    " ORDER BY 1";

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
      " main.payload_ledger WHERE kill_switch_event_id = ?1)";
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
  readVerdict(p, pHome,
      "SELECT rule, level, count, threshold, tool, turn, sentence, action"
      " FROM main.payload_verdicts WHERE kill_switch_event_id = ?1"
      " ORDER BY level <> 'stop', id LIMIT 1");
  iSource = bxReportSource(p, pHome, "exchange", zCaseBodies);
  bxReportItems(p, iSource, pHome,
      "SELECT e.id, e.event_id, " AT ", e.size_bytes,"
      " iif(e.pinned, 'pinned', 'unpinned'), NULL, NULL, NULL"
      " FROM main.event_payloads AS e WHERE e.kill_switch_event_id = ?1"
      " ORDER BY " AT " DESC, e.rowid DESC");
  bxReportBound(p);
  markVerdict(p, pHome,
      "SELECT max(j.value) OVER () - j.value FROM (SELECT iif(json_valid(seqs),"
      " seqs, '[]') AS seqs FROM main.payload_verdicts"
      " WHERE kill_switch_event_id = ?1"
      " ORDER BY level <> 'stop', id LIMIT 1) AS v,"
      " json_each(v.seqs) AS j");
  addSwitchPins(p, pHome);
  bxReportRows(p,
      bxReportNewTable(p, "verdicts", "What the rules found", aVerdict), pHome,
      "SELECT at, rule, level, count, threshold, action, sentence"
      " FROM main.payload_verdicts WHERE kill_switch_event_id = ?1"
      " OR agent_id IN (SELECT agent_id FROM main.event_payloads"
      "  WHERE kill_switch_event_id = ?1) ORDER BY id DESC");
  addReceipts(p, pHome);
}
