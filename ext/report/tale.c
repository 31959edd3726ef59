/*
** tale.c: the report of a conversation (kind rollout): its items with turns,
** compactions, rollbacks and the place where it was forked, tokens and costs, its
** forks and sub-agents.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

static const ReportColumn aTaleUsage[] = {{"Model", REPORT_TEXT},
    {"Calls", REPORT_COUNT}, {"Input", REPORT_COUNT},
    {"Cache write", REPORT_COUNT}, {"Cache read", REPORT_COUNT},
    {"Output", REPORT_COUNT}, {"Reasoning", REPORT_COUNT},
    {"Cost", REPORT_MONEY}, {0, REPORT_TEXT}};
static const ReportColumn aTaleOther[] = {{"What", REPORT_TEXT},
    {"Id", REPORT_ID}, {"Created", REPORT_TIME}, {"Items", REPORT_COUNT},
    {"Title", REPORT_TEXT}, {0, REPORT_TEXT}};
static const ReportColumn aTaleHold[] = {{"Time", REPORT_TIME},
    {"What", REPORT_TEXT}, {"Actor", REPORT_TEXT}, {"Reason", REPORT_TEXT},
    {"Status", REPORT_TEXT}, {0, REPORT_TEXT}};
static const ReportColumn aTaleDrop[] = {{"Type", REPORT_TEXT},
    {"Type of the payload", REPORT_TEXT}, {"Items", REPORT_COUNT},
    {"Bytes", REPORT_BYTES}, {0, REPORT_TEXT}};
static const ReportColumn aTaleGone[] = {{"When", REPORT_TIME},
    {"Rule", REPORT_TEXT}, {"Actor", REPORT_TEXT}, {"Rows", REPORT_COUNT},
    {"Bytes", REPORT_BYTES}, {0, REPORT_TEXT}};

/* clang-format off */
static const char zTaleItems[] =
    "WITH h AS (SELECT no FROM main.rollout__heads WHERE id = lower(?1)),"
    " d AS (SELECT d.id AS key, d.id & 4294967295 AS sequence, d.timestamp,"
    "   d.type, d.payload, s.owner, s.owner = h.no AND s.first > 0"
    "    AND s.first = d.id & 4294967295 AS forked"
    "  FROM h JOIN main.rollout__segments AS s ON s.rollout = h.no"
    "  CROSS JOIN main.rollout__data AS d ON d.id BETWEEN (s.owner << 32)"
    "   + s.first AND (s.owner << 32) + s.last)"
    " SELECT d.sequence, d.sequence, d.timestamp,"
    "  length(CAST(d.payload AS BLOB)), NULL,"
    "  CASE WHEN m.kind IS NOT NULL THEN m.kind WHEN d.forked THEN 'fork'"
    "   WHEN lower(d.type) = 'compacted' THEN 'compaction'"
    "   WHEN instr(d.payload, 'compact_boundary') > 0"
    "    AND instr(d.payload, 'compact_boundary') < 400 THEN 'compaction'"
    "   WHEN d.payload GLOB '{\"type\":\"error\"*' THEN 'error' END,"
    "  count(t.number) OVER (ORDER BY d.sequence), NULL, d.type"
    " FROM d LEFT JOIN main.rollout__marks AS m ON m.id = d.key"
    " LEFT JOIN main.rollout__turns AS t ON t.id = d.key"
    " ORDER BY d.sequence DESC";

static const char zTaleFacts[] =
    "SELECT title AS \"text:Title\", id AS \"id:Id\", status AS \"text:Status\","
    " created AS \"time:Created\", updated AS \"time:Updated\","
    " expires_at AS \"time:Expires\", source AS \"text:Source\","
    " cwd AS \"text:Folder\", branch AS \"text:Branch\", model AS \"text:Model\","
    " cli_version AS \"text:Version\", format AS \"text:Format\","
    " source_id AS \"id:Id in the file\", parent AS \"id:Conversation of the caller\","
    " agent AS \"text:Sub-agent\", forked_from AS \"id:Forked from\","
    " item_count AS \"count:Items\", turns AS \"count:Turns\","
    " (SELECT h.last_sequence + 1 - h.behind FROM main.rollout__heads AS h"
    "  WHERE h.id = rollouts.id) AS \"count:Items without turns and usage yet\","
    " bytes AS \"bytes:Size\", updated - created AS \"duration:Time between\""
    " FROM main.rollouts WHERE id = lower(?1)";

static const char zTaleHolds[] =
    "SELECT at, 'hold: ' || kind || ' ' || \"key\", owner || ' (' || actor || ')',"
    "  reason, coalesce('held until ' || strftime('%Y-%m-%d', until / 1000,"
    "   'unixepoch'), 'held')"
    " FROM main.retention_holds WHERE kind = 'rollout' AND \"key\" = lower(?1)"
    " ORDER BY at";
/* clang-format on */

/* The tokens of all calls. */
static void readTaleUsage(ReportRun *p, BxStmts *pHome) {
  sqlite3_stmt *pStmt = bxReportAsk(p, pHome,
      "SELECT sum(input_fresh), sum(cache_read), sum(cache_write),"
      " sum(output), sum(reasoning), sum(cost),"
      " max(cost_source = 'computed'), max(output_source) IS NOT NULL"
      " FROM main.rollout_usage WHERE rollout = lower(?1)");
  ReportUsage *pUsage = &p->usage;
  if (bxReportRow(p, pStmt) && sqlite3_column_type(pStmt, 0) != SQLITE_NULL) {
    pUsage->bAny = 1;
    pUsage->nInput = sqlite3_column_int64(pStmt, 0);
    pUsage->nCacheRead = sqlite3_column_int64(pStmt, 1);
    pUsage->nCacheWrite = sqlite3_column_int64(pStmt, 2);
    pUsage->nOutput = sqlite3_column_int64(pStmt, 3);
    pUsage->nReasoning = sqlite3_column_int64(pStmt, 4);
    pUsage->bCost = sqlite3_column_type(pStmt, 5) != SQLITE_NULL;
    pUsage->rCost = sqlite3_column_double(pStmt, 5);
    pUsage->zSource =
        sqlite3_column_int(pStmt, 6) ? "blackbox_prices" : "reported";
    pUsage->bRecorded = sqlite3_column_int(pStmt, 7);
  }
  sqlite3_finalize(pStmt);
}

/* The item with a sequence: items are in order, and without gaps. */
static ReportItem *itemOf(ReportRun *p, i64 iSequence) {
  i64 i;
  if (p->nItem == 0) return 0;
  i = iSequence - strtoll(p->aItem[0].zKey, 0, 10);
  return i >= 0 && i < p->nItem ? &p->aItem[i] : 0;
}

/* The model and the tokens of the items that tell them. */
static void readTaleCalls(ReportRun *p, BxStmts *pHome) {
  sqlite3_stmt *pStmt = bxReportAsk(p, pHome,
      "SELECT sequence, model, input_fresh + cache_write + cache_read, output"
      " FROM main.rollout_usage WHERE rollout = lower(?1)");
  while (bxReportRow(p, pStmt)) {
    ReportItem *pItem = itemOf(p, sqlite3_column_int64(pStmt, 0));
    if (pItem == 0 || pItem->nInput >= 0) continue;
    pItem->zModel = bxReportColumnText(p, pStmt, 1);
    pItem->nInput = sqlite3_column_int64(pStmt, 2);
    pItem->nOutput = sqlite3_column_int64(pStmt, 3);
  }
  sqlite3_finalize(pStmt);
}

static void addTaleTables(ReportRun *p, BxStmts *pHome) {
  bxReportRows(p, bxReportNewTable(p, "usage", "Tokens by model", aTaleUsage),
      pHome,
      "SELECT model, count(*), sum(input_fresh), sum(cache_write),"
      " sum(cache_read), sum(output), sum(reasoning), sum(cost)"
      " FROM main.rollout_usage WHERE rollout = lower(?1)"
      " GROUP BY model ORDER BY 2 DESC");
  bxReportRows(p,
      bxReportNewTable(p, "related", "Forks and sub-agents", aTaleOther), pHome,
      "SELECT 'fork', id, created, item_count, title FROM main.rollouts"
      " WHERE forked_from = lower(?1) UNION ALL"
      " SELECT 'sub-agent', id, created, item_count, title FROM main.rollouts"
      " WHERE parent = lower(?1) ORDER BY 3");
  bxReportRows(p,
      bxReportNewTable(p, "dropped", "What the policy did not keep", aTaleDrop),
      pHome,
      "SELECT d.item_type, d.payload_type, d.items, d.bytes"
      " FROM main.rollout_drops AS d JOIN main.rollout__heads AS h"
      " ON h.no = d.no WHERE h.id = lower(?1) ORDER BY 3 DESC");
  bxReportRows(p,
      bxReportNewTable(p, "receipts", "What was removed", aTaleGone), pHome,
      "SELECT at, rule, actor, rows, bytes FROM main.retention_log"
      " WHERE domain = 'rollout' ORDER BY at DESC, id DESC");
}

void bxReportRollout(ReportRun *p) {
  BxStmts *pHome = bxReportNeed(p, "rollout");
  int iSource;
  if (pHome == 0) return;
  bxReportFacts(p, pHome, zTaleFacts);
  if (p->nFact == 0) {
    bxReportNotFound(
        p, "conversation", "SELECT id FROM rollouts lists the conversations");
  }
  iSource = bxReportSource(p, pHome, "item",
      "SELECT 'payload', d.payload FROM main.rollout__heads AS h"
      " JOIN main.rollout__segments AS s ON s.rollout = h.no"
      "  AND CAST(?1 AS INTEGER) BETWEEN s.first AND s.last"
      " JOIN main.rollout__data AS d"
      "  ON d.id = (s.owner << 32) + CAST(?1 AS INTEGER)"
      " WHERE h.id = lower(?2)");
  bxReportItems(p, iSource, pHome, zTaleItems);
  bxReportBound(p);
  readTaleUsage(p, pHome);
  readTaleCalls(p, pHome);
  if (bxReportDomain(p, "retention") == pHome) {
    bxReportRows(p, bxReportNewTable(p, "pins", "Pins and holds", aTaleHold),
        pHome, zTaleHolds);
  }
  addTaleTables(p, pHome);
}
