/*
** overview.c: the report of a database, whose key is the name of a schema: what is in
** it, what it keeps for whom, what was removed, and what is wrong with it.
**
** No body is read, and of the archive only its indexes.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define VIEW_AT "created_ms"

static const ReportColumn aDomainColumn[] = {
    {"Domain", REPORT_TEXT}, {"Format", REPORT_COUNT}, {0, REPORT_TEXT}};
static const ReportColumn aSizeColumn[] = {{"Part", REPORT_TEXT},
    {"Rows", REPORT_COUNT}, {"Bytes", REPORT_BYTES}, {"Due rows", REPORT_COUNT},
    {"Due bytes", REPORT_BYTES}, {"Bytes of pages", REPORT_BYTES},
    {"Given back by", REPORT_TEXT}, {0, REPORT_TEXT}};
static const ReportColumn aAgentColumn[] = {{"Agent", REPORT_TEXT},
    {"Exchanges", REPORT_COUNT}, {"First", REPORT_TIME}, {"Last", REPORT_TIME},
    {"Stopped", REPORT_TIME}, {0, REPORT_TEXT}};
static const ReportColumn aSwitchColumn[] = {{"Kill switch", REPORT_ID},
    {"Exchanges", REPORT_COUNT}, {"Last", REPORT_TIME}, {"Rule", REPORT_TEXT},
    {0, REPORT_TEXT}};
static const ReportColumn aRingColumn[] = {{"Ring", REPORT_TEXT},
    {"Window", REPORT_COUNT}, {"Agents", REPORT_COUNT}, {"Given", REPORT_COUNT},
    {"Rolled out", REPORT_COUNT}, {"Saved", REPORT_COUNT},
    {"Rows", REPORT_COUNT}, {"Bytes", REPORT_BYTES}, {0, REPORT_TEXT}};
static const ReportColumn aTaleColumn[] = {{"Conversation", REPORT_ID},
    {"Updated", REPORT_TIME}, {"Status", REPORT_TEXT}, {"Items", REPORT_COUNT},
    {"Turns", REPORT_COUNT}, {"Bytes", REPORT_BYTES}, {"Title", REPORT_TEXT},
    {0, REPORT_TEXT}};
static const ReportColumn aSessionColumn[] = {{"Session", REPORT_ID},
    {"Results", REPORT_COUNT}, {"Bytes", REPORT_BYTES},
    {"Last used", REPORT_TIME}, {0, REPORT_TEXT}};
static const ReportColumn aLogColumn[] = {{"Newest", REPORT_TIME},
    {"Domain", REPORT_TEXT}, {"Rule", REPORT_TEXT}, {"Receipts", REPORT_COUNT},
    {"Rows", REPORT_COUNT}, {"Bytes", REPORT_BYTES}, {0, REPORT_TEXT}};
static const ReportColumn aHoldColumn[] = {{"Time", REPORT_TIME},
    {"What", REPORT_TEXT}, {"Actor", REPORT_TEXT}, {"Reason", REPORT_TEXT},
    {"Status", REPORT_TEXT}, {0, REPORT_TEXT}};
static const ReportColumn aCheckColumn[] = {
    {"Object", REPORT_TEXT}, {"Problem", REPORT_TEXT}, {0, REPORT_TEXT}};

/* Whether the schema of the report is the one in which functions find a domain. */
static int carriesHere(ReportRun *p, BxStmts *pFrom, const char *zDomain) {
  return p->err.rc == SQLITE_OK &&
         bxCarries(p->bx, pFrom->zDb, zDomain, &p->err);
}

static void addSizes(ReportRun *p, BxStmts *pFrom) {
  bxReportRows(p, bxReportNewTable(p, "domains", "Domains", aDomainColumn),
      pFrom, "SELECT domain, format FROM main.blackbox_domains ORDER BY 1");
  if (!carriesHere(p, pFrom, "retention") ||
      bxReportDomain(p, "retention") != pFrom) {
    return;
  }
  bxReportRows(p, bxReportNewTable(p, "sizes", "Sizes", aSizeColumn), pFrom,
      "SELECT part, rows, bytes, due_rows, due_bytes, page_bytes,"
      " given_back_by FROM retention_report()");
}

static void addArchive(ReportRun *p, BxStmts *pFrom) {
  if (!carriesHere(p, pFrom, "payload")) return;
  bxReportRows(p, bxReportNewTable(p, "agents", "Agents", aAgentColumn), pFrom,
      "SELECT agent_id, n, first, last, (SELECT a.stopped_at FROM"
      "  main.payload_agents AS a WHERE a.agent_id = e.agent_id)"
      " FROM (SELECT agent_id, count(*) AS n, min(" VIEW_AT ") AS first,"
      "  max(" VIEW_AT ") AS last FROM main.event_payloads"
      "  GROUP BY agent_id) AS e ORDER BY last DESC");
  bxReportRows(p,
      bxReportNewTable(p, "switches", "Kill switches", aSwitchColumn), pFrom,
      "SELECT k, n, last, (SELECT v.rule FROM main.payload_verdicts AS v"
      "  WHERE v.kill_switch_event_id = k LIMIT 1)"
      " FROM (SELECT kill_switch_event_id AS k, count(*) AS n,"
      "  max(" VIEW_AT ") AS last FROM main.event_payloads"
      "  WHERE kill_switch_event_id IS NOT NULL GROUP BY 1) ORDER BY last "
      "DESC");
}

static void addRingsOf(ReportRun *p, BxStmts *pFrom) {
  ReportTable *pTable = bxReportNewTable(p, "rings", "Rings", aRingColumn);
  sqlite3_stmt *pStmt = bxVtabNames(pFrom, "payload_ring", &p->err);
  while (bxReportRow(p, pStmt)) {
    const char *zName = bxColumnText(pStmt, 0, &p->err);
    BxVtab *pRing =
        zName ? bxVtabIn(p->bx, "payload_ring", pFrom->zDb, zName, &p->err) : 0;
    if (pRing == 0) continue;
    bxReportRows(p, pTable, &pRing->stmts,
        "SELECT '@', (SELECT value FROM main.@_config WHERE name = 'window'),"
        " count(*), sum(given), sum(rolled), sum(saved), sum(rows), sum(bytes)"
        " FROM main.@_agents");
  }
  sqlite3_finalize(pStmt);
}

static void addOthers(ReportRun *p, BxStmts *pFrom) {
  if (carriesHere(p, pFrom, "rollout")) {
    bxReportRows(p,
        bxReportNewTable(p, "rollouts", "Conversations", aTaleColumn), pFrom,
        "SELECT h.id, h.updated, h.status, h.last_sequence + 1, h.turns,"
        " h.bytes, coalesce(h.title, a.title, a.first_user_message)"
        " FROM main.rollout__heads AS h"
        " LEFT JOIN main.rollout__about AS a ON a.no = h.no"
        " ORDER BY h.updated DESC");
  }
  if (carriesHere(p, pFrom, "cache")) {
    bxReportRows(p,
        bxReportNewTable(
            p, "sessions", "Sessions of the cache", aSessionColumn),
        pFrom,
        "SELECT session_id, item_count, total_size, last_accessed_at"
        " FROM main.cache_sessions ORDER BY last_accessed_at DESC");
  }
  if (carriesHere(p, pFrom, "retention")) {
    bxReportRows(p, bxReportNewTable(p, "pins", "Pins and holds", aHoldColumn),
        pFrom,
        "SELECT at, 'hold: ' || kind || ' ' || \"key\","
        " owner || ' (' || actor || ')', reason,"
        " coalesce('held until ' || strftime('%Y-%m-%d', until / 1000,"
        "  'unixepoch'), 'held') FROM main.retention_holds ORDER BY at");
  }
  bxReportRows(p,
      bxReportNewTable(p, "receipts", "What was removed", aLogColumn), pFrom,
      "SELECT max(at), domain, rule, count(*), sum(rows), sum(bytes)"
      " FROM main.retention_log GROUP BY domain, rule ORDER BY 1 DESC");
}

static void addChecks(ReportRun *p, BxStmts *pFrom) {
  bxReportRows(p, bxReportNewTable(p, "checks", "What is wrong", aCheckColumn),
      pFrom, "SELECT object, problem FROM blackbox_check(?1)");
}

/* The head of the log, as it stands: nothing is taken in. */
static void readLogHead(ReportRun *p, BxStmts *pFrom) {
  sqlite3_stmt *pStmt;
  if (!bxReportProves(p, pFrom) ||
      bxAskOnce(pFrom, "SELECT size FROM main.blackbox__tree", &p->err, "") ==
          0) {
    return;
  }
  pStmt = bxPlain(p->bx->db, "SELECT proof_tile('checkpoint')", &p->err);
  if (bxReportRow(p, pStmt)) p->zHead = bxColumnCopy(pStmt, 0, &p->err);
  if (p->zHead != 0) p->zProof = "ok";
  sqlite3_finalize(pStmt);
}

void bxReportDatabase(ReportRun *p) {
  BxStmts *pFrom;
  bxRefuseEarlier(p->bx, p->zKey, &p->err);
  if (!bxCarries(p->bx, p->zKey, "core", &p->err)) {
    bxReportNotFound(p, "schema with tables of blackbox named",
        "main is the name of the file that was opened; PRAGMA database_list "
        "lists the schemas");
    return;
  }
  pFrom = bxSchema(p->bx, p->zKey, &p->err);
  bxReportHold(p, pFrom);
  bxReportFacts(p, pFrom,
      "SELECT ?1 AS \"text:Schema\", sqlite_version() AS \"text:SQLite\","
      " blackbox_version() AS \"text:blackbox\"");
  addSizes(p, pFrom);
  addArchive(p, pFrom);
  addRingsOf(p, pFrom);
  addOthers(p, pFrom);
  addChecks(p, pFrom);
  readLogHead(p, pFrom);
}
