/*
** kind.c: the kinds of a report: what is said of a kill switch, an agent, a
** conversation (rollout), a recording (evidence), and a session of the cache. That of a
** database is in overview.c.
*/
#include "report.h"
#include "../core/vtable.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

#define AT "e.created_ms"
#define RECEIPTS(domain)                                                       \
  "SELECT at, rule, actor, rows, bytes, oldest, newest"                        \
  " FROM main.retention_log WHERE domain = '" domain                           \
  "' ORDER BY at DESC, id DESC"
#define META                                                                   \
  " " REPORT_FAILED                                                            \
  ", CASE WHEN json_valid(meta) THEN meta ->> '$.duration_ms' END"

static const char zCaseBodies[] =
    "SELECT 'request', request_body, 'response', response_body"
    " FROM main.payload_rows WHERE id = ?1";

/* Reads the verdict whose id a query returns, and marks the items that it names. It
** names them by their numbers in the ring, which evidence has no more:
** payload_backtest() finds the same loop in the evidence, and numbers its rows from 1. */
static void readVerdict(ReportRun *p, BxStmts *pHome, const char *zSql) {
  static const char zVerdictItems[] =
      "WITH v AS (SELECT rule, agent_id, kill_switch_event_id AS k,"
      "   iif(" BX_JSON_VALID(
          "seqs") ", seqs, '[]') AS seqs"
                  "  FROM main.payload_verdicts WHERE id = ?1),"
                  " e AS (SELECT e.id, row_number() OVER (ORDER BY " AT
                  ", e.rowid) AS n"
                  "  FROM v JOIN main.event_payloads AS e"
                  "   ON e.kill_switch_event_id = v.k AND e.agent_id = "
                  "v.agent_id)"
                  " SELECT e.id FROM v JOIN payload_backtest(v.k) AS r ON "
                  "r.rule "
                  "= v.rule"
                  "   AND r.agent_id = v.agent_id"
                  "  JOIN json_each(r.seqs) AS j JOIN e ON e.n = j.value"
                  "  WHERE v.k IS NOT NULL"
                  " UNION ALL SELECT j.value FROM v, json_each(v.seqs) AS j"
                  "  WHERE v.k IS NULL";
  sqlite3_stmt *pStmt;
  i64 i, iVerdict = bxQueryIntOnce(pHome, zSql, &p->err, "t", p->zKey);
  if (p->err.rc != SQLITE_OK || iVerdict == 0) return;
  pStmt = bxPrepare(pHome,
      "SELECT rule, level, count, threshold, tool, turn, sentence, action"
      " FROM main.payload_verdicts WHERE id = ?1",
      &p->err);
  bxBind(pStmt, &p->err, "i", iVerdict);
  p->verdict.bAny = bxReportRow(p, pStmt);
  for (i = 0; i < VERDICT_TEXTS && p->verdict.bAny; i++) {
    p->verdict.az[i] = bxReportColumnText(p, pStmt, (int)i);
  }
  sqlite3_finalize(pStmt);
  if (!p->verdict.bAny) return;
  pStmt = bxPrepare(pHome, zVerdictItems, &p->err);
  bxBind(pStmt, &p->err, "i", iVerdict);
  while (bxReportRow(p, pStmt)) {
    const char *zKey = bxColumnText(pStmt, 0, &p->err);
    for (i = 0; zKey != 0 && i < p->nItem; i++) {
      if (strcmp(p->aItem[i].zKey, zKey) == 0) p->aItem[i].bVerdict = 1;
    }
  }
  sqlite3_finalize(pStmt);
}

#define VERDICTS                                                               \
  "verdicts", "What the rules found",                                          \
      "time:When|text:Rule|text:Level|count:Count|count:Threshold|"            \
      "text:What was done|text:What was found"

/* clang-format off */
static const char zSwitchPins[] =
    "SELECT at, what, actor, reason, status, link FROM ("
    " SELECT n, at, 'kill switch: ' || rows || ' exchanges pinned' AS what,"
    "  coalesce(actor, 'a caller') AS actor, reason,"
    "  (SELECT sum(pinned) || ' pinned now' FROM main.event_payloads"
    "   WHERE kill_switch_event_id = ?1) AS status, NULL AS link"
    " FROM main.blackbox__log WHERE subject = ?1 AND kind = 'kill_switch'"
    " UNION ALL SELECT 9e18, at, 'unpinned: event ' || coalesce(event_id, payload_id),"
    "  actor, reason, 'unpinned', NULL FROM main.payload_unpins"
    "  WHERE kill_switch_event_id = ?1"
    " UNION ALL SELECT n, at, 'agent: ' || kind, actor, reason, NULL, 'agent:' || subject"
    "  FROM main.blackbox__log WHERE kind IN ('stop', 'start') AND subject IN"
    "   (SELECT agent_id FROM main.event_payloads"
    "    WHERE kill_switch_event_id = ?1))"
    " ORDER BY at, n";

static const char zSwitchHolds[] = REPORT_HOLDS(
    " WHERE (kind, \"key\") IN (SELECT 'kill_switch', ?1"
    "  UNION SELECT 'agent', agent_id FROM main.event_payloads"
    "   WHERE kill_switch_event_id = ?1"
    "  UNION SELECT 'event', event_id FROM main.event_payloads"
    "   WHERE kill_switch_event_id = ?1"
    "  UNION SELECT 'evidence', id FROM main.event_payloads"
    "   WHERE kill_switch_event_id = ?1)");
/* clang-format on */

/* Pins, verdicts and receipts. */
static void addCase(ReportRun *p, BxStmts *pHome, const char *zPins,
    const char *zHolds, const char *zVerdicts) {
  ReportTable *pTable =
      bxReportNewTable(p, "pins", "Pins and holds", REPORT_PINS);
  assert(zPins != 0 && zHolds != 0);
  bxReportRows(p, pTable, pHome, zPins);
  if (bxReportDomain(p, "retention") == pHome) {
    bxReportRows(p, pTable, pHome, zHolds);
  }
  bxReportTable(p, VERDICTS, pHome, zVerdicts);
  bxReportTable(p, "receipts", "What was removed", REPORT_GONE, pHome,
      RECEIPTS("payload"));
}

void bxReportKillSwitch(ReportRun *p) {
  BxStmts *pHome = bxReportNeed(p, "payload");
  int iSource;
  if (pHome == 0) return;
  if (bxQueryIntOnce(pHome,
          "SELECT EXISTS (SELECT 1 FROM main.event_payloads"
          " WHERE kill_switch_event_id = ?1) OR EXISTS (SELECT 1 FROM"
          " main.blackbox__log WHERE kill_switch_event_id = ?1)",
          &p->err, "t", p->zKey) == 0) {
    bxReportNotFound(p, "kill switch",
        "SELECT DISTINCT kill_switch_event_id FROM event_payloads lists them");
  }
  bxReportFacts(p, pHome,
      "SELECT group_concat(DISTINCT e.agent_id) AS \"text:Agent\","
      " ?1 AS \"id:Kill switch\", count(*) AS \"count:Exchanges\","
      " min(" AT ") AS \"time:First\", max(" AT ") AS \"time:Last\","
      " max(" AT ") - min(" AT ") AS \"duration:From first to last\","
      " sum(e.size_bytes) AS \"bytes:Size\", sum(e.pinned) AS \"count:Pinned\""
      " FROM main.event_payloads AS e WHERE e.kill_switch_event_id = ?1");
  bxReportFacts(p, pHome,
      "WITH stops AS (SELECT subject AS agent, at, actor, coalesce("
      "  (SELECT went_on FROM main.payload_agents WHERE agent_id = subject"
      "    AND kill_switch_event_id = ?1),"
      "  (SELECT s.detail ->> '$.went_on' FROM main.blackbox__log AS s"
      "    WHERE s.subject = l.subject AND s.kind = 'start' AND s.n > l.n"
      "    ORDER BY s.n LIMIT 1)) AS more FROM main.blackbox__log AS l"
      " WHERE kill_switch_event_id = ?1 AND kind = 'stop'"
      " UNION ALL SELECT agent_id, stopped_at, stopped_by, went_on"
      "  FROM main.payload_agents WHERE stopped_at IS NOT NULL"
      "   AND kill_switch_event_id IS NULL AND agent_id IN"
      "   (SELECT agent_id FROM main.event_payloads"
      "    WHERE kill_switch_event_id = ?1))"
      " SELECT at AS \"time:Agent stopped\", actor AS \"text:Stopped by\","
      " 'stopped at ' || strftime('%H:%M:%S', at / 1000, 'unixepoch') ||"
      " '; went on: ' || coalesce(more, 0) ||"
      " iif(more = 1, ' call after', ' calls after')"
      " AS \"text:Stop\" FROM stops");
  iSource = bxReportSource(p, pHome, "exchange", zCaseBodies);
  p->aSource[iSource].bProof = bxReportProves(p, pHome);
  bxReportItems(p, iSource, pHome,
      "SELECT e.id, e.event_id, " AT ", e.size_bytes,"
      " iif(e.pinned, NULL, 'unpinned'), NULL, NULL, NULL, NULL," META
      " FROM main.event_payloads AS e WHERE e.kill_switch_event_id = ?1"
      " ORDER BY " AT " DESC, e.rowid DESC");
  bxReportBound(p);
  readVerdict(p, pHome,
      "SELECT id FROM main.payload_verdicts WHERE kill_switch_event_id = ?1"
      " ORDER BY level <> 'stop', id LIMIT 1");
  addCase(p, pHome, zSwitchPins, zSwitchHolds,
      "SELECT at, rule, level, count, threshold, action, sentence"
      " FROM main.payload_verdicts WHERE kill_switch_event_id = ?1"
      " OR agent_id IN (SELECT agent_id FROM main.event_payloads"
      "  WHERE kill_switch_event_id = ?1) ORDER BY id DESC");
}

/* clang-format off */
static const char zAgentPins[] =
    "SELECT NULL, count(*) || ' pinned exchanges', NULL, NULL, 'pinned', NULL"
    " FROM main.event_payloads WHERE agent_id = ?1 AND pinned = 1"
    " GROUP BY agent_id"
    " UNION ALL SELECT at, 'unpinned: event ' || coalesce(event_id, payload_id),"
    "  actor, reason, 'unpinned', NULL FROM main.payload_unpins WHERE agent_id = ?1"
    " UNION ALL SELECT at, 'agent: ' || kind, actor, reason, NULL,"
    "  'kill_switch:' || kill_switch_event_id"
    "  FROM main.blackbox__log WHERE subject = ?1"
    "  AND kind IN ('stop', 'start') ORDER BY 1";

/* clang-format on */

void bxReportVtabs(ReportRun *p, ReportTable *pRings, BxStmts *pFrom,
    const char *zModule, const char *zCounters, int bItems) {
  sqlite3_stmt *pStmt = pFrom ? bxVtabNames(pFrom, zModule, &p->err) : 0;
  assert(p->nSource <= REPORT_SOURCES);
  while (bxReportRow(p, pStmt)) {
    const char *zName = bxColumnText(pStmt, 0, &p->err);
    BxVtab *pRing =
        zName ? bxVtabIn(p->bx, zModule, pFrom->zDb, zName, &p->err) : 0;
    if (pRing == 0 || p->nSource == REPORT_SOURCES) continue;
    if (bItems) {
      int iSource = bxReportSource(p, &pRing->stmts, "exchange",
          "SELECT 'request', request_body, 'response', response_body"
          " FROM main.@ WHERE agent_id = ?2 AND seq = CAST(?1 AS INTEGER)");
      bxReportItems(p, iSource, &pRing->stmts,
          "SELECT seq, event_id, timestamp, size_bytes, 'in the ring ' || '@',"
          " NULL, NULL, NULL, NULL," META
          " FROM main.@ WHERE agent_id = ?1 ORDER BY seq DESC");
    }
    bxReportRows(p, pRings, &pRing->stmts, zCounters);
  }
  sqlite3_finalize(pStmt);
}

void bxReportAgent(ReportRun *p) {
  static const char zCounters[] =
      "SELECT '@', given, rolled, cleared, saved, rows, bytes"
      " FROM main.@_agents WHERE agent_id = ?1";
  BxStmts *pHome = bxReportNeed(p, "payload");
  ReportTable *pRings;
  int iSource;
  if (pHome == 0) return;
  bxReportFacts(p, pHome,
      "SELECT ?1 AS \"id:Agent\", count(*) AS \"count:In the archive\","
      " min(" AT ") AS \"time:First in the archive\","
      " max(" AT ") AS \"time:Last in the archive\""
      " FROM main.event_payloads AS e WHERE e.agent_id = ?1");
  bxReportFacts(p, pHome,
      "SELECT stopped_at AS \"time:Stopped\", stopped_by AS \"text:Stopped "
      "by\","
      " nullif(went_on, 0) AS \"count:Calls after the stop\""
      " FROM main.payload_agents WHERE agent_id = ?1");
  /* Only the rows that are shown are read; the others are counted in an index. */
  pRings = bxReportNewTable(p, "rings", "Rings",
      "text:Ring|count:Given|count:Rolled out|count:Cleared|count:Saved|"
      "count:Rows|bytes:Bytes");
  iSource = bxReportSource(p, pHome, "exchange", zCaseBodies);
  p->aSource[iSource].bProof = bxReportProves(p, pHome);
  bxReportItems(p, iSource, pHome,
      "SELECT x.id, x.event_id, e.at, x.size_bytes,"
      " x.purpose || iif(x.pinned, ', pinned', ''), NULL, NULL, NULL, "
      "NULL," META " FROM (SELECT e.rowid AS rid, " AT
      " AS at FROM main.event_payloads AS e"
      "  WHERE e.agent_id = ?1 ORDER BY " AT
      " DESC, e.rowid DESC LIMIT ?2) AS e"
      " CROSS JOIN main.event_payloads AS x ON x.rowid = e.rid"
      " ORDER BY e.at DESC, e.rid DESC");
  p->nLeftItems += bxQueryIntOnce(pHome,
      "SELECT max(count(*) - ?2, 0) FROM main.event_payloads"
      " WHERE agent_id = ?1",
      &p->err, "ti", p->zKey, p->opt.nItem);
  bxReportVtabs(p, pRings, pHome, "payload_ring", zCounters, 1);
  bxReportVtabs(p, pRings, bxSchema(p->bx, "temp", &p->err), "payload_ring",
      zCounters, 1);
  if (p->nItem == 0 && pRings->nCell == 0) {
    bxReportNotFound(p, "agent",
        "SELECT DISTINCT agent_id FROM event_payloads lists those of the "
        "archive, and SELECT agent_id FROM ring_agents those of a ring");
  }
  bxReportBound(p);
  readVerdict(p, pHome,
      "SELECT id FROM main.payload_verdicts WHERE agent_id = ?1"
      " ORDER BY id DESC LIMIT 1");
  addCase(p, pHome, zAgentPins,
      REPORT_HOLDS(" WHERE kind = 'agent' AND \"key\" = ?1"),
      "SELECT at, rule, level, count, threshold, action, sentence"
      " FROM main.payload_verdicts WHERE agent_id = ?1 ORDER BY id DESC");
}

/* clang-format off */
static const char zTaleItems[] =
    "WITH h AS (SELECT no FROM main.rollout__heads WHERE id = lower(?1)),"
    " d AS (SELECT d.id AS key, d.id & 4294967295 AS sequence, d.timestamp,"
    "   d.type, d.payload, s.owner, s.owner = h.no AND s.first > 0"
    "    AND s.first = d.id & 4294967295 AS forked"
    "  FROM h JOIN main.rollout__segments AS s ON s.rollout = h.no"
    "  CROSS JOIN main.rollout__items AS d ON d.id BETWEEN (s.owner << 32)"
    "   + s.first AND (s.owner << 32) + s.last)"
    " SELECT d.sequence, d.sequence, d.timestamp,"
    "  length(CAST(d.payload AS BLOB)), NULL,"
    "  CASE WHEN m.kind <> 'turn' THEN m.kind WHEN d.forked THEN 'fork'"
    "   WHEN lower(d.type) = 'compacted' THEN 'compaction'"
    "   WHEN instr(d.payload, 'compact_boundary') > 0"
    "    AND instr(d.payload, 'compact_boundary') < 400 THEN 'compaction'"
    "   WHEN d.payload GLOB '{\"type\":\"error\"*' THEN 'error' END,"
    "  count(iif(m.kind = 'turn', 1, NULL)) OVER (ORDER BY d.sequence), NULL, d.type"
    " FROM d LEFT JOIN main.rollout__marks AS m ON m.id = d.key"
    " ORDER BY d.sequence DESC";

static const char zTaleFacts[] =
    "SELECT coalesce(title, first_user_message) AS \"text:Asked first\","
    " id AS \"id:Id\", status AS \"text:Status\","
    " created AS \"time:Created\", updated AS \"time:Updated\","
    " expires_at AS \"time:Expires\", source AS \"text:Source\","
    " cwd AS \"text:Folder\", branch AS \"text:Branch\", model AS \"text:Model\","
    " cli_version AS \"text:Version\", format AS \"text:Format\","
    " source_id AS \"id:Id in the file\", parent AS \"id:Conversation of the caller\","
    " agent AS \"text:Sub-agent\", forked_from AS \"id:Forked from\","
    " item_count AS \"count:Items\", turns AS \"count:Turns\","
    " (SELECT nullif(h.last_sequence + 1 - h.behind, 0) FROM main.rollout__heads AS h"
    "  WHERE h.id = rollouts.id) AS \"count:Items without turns and usage yet\","
    " bytes AS \"bytes:Size\", updated - created AS \"duration:Time between\""
    " FROM main.rollouts WHERE id = lower(?1)";

/* clang-format on */

/* The tokens of all calls, and the model and the tokens of the items that tell them.
** Items are in order, and without gaps. */
static void readTaleUsage(ReportRun *p, BxStmts *pHome) {
  sqlite3_stmt *pStmt = bxReportQuery(p, pHome,
      "SELECT sum(input_fresh), sum(cache_read), sum(cache_write),"
      " sum(output), sum(reasoning), sum(cost),"
      " max(cost_source = 'computed'), max(output_source) IS NOT NULL"
      " FROM main.rollout_usage WHERE rollout = lower(?1)");
  ReportUsage *pUsage = &p->usage;
  i64 i;
  if (bxReportRow(p, pStmt) && sqlite3_column_type(pStmt, 0) != SQLITE_NULL) {
    pUsage->bAny = 1;
    for (i = 0; i < USAGE_NUMBERS; i++) {
      pUsage->an[i] = sqlite3_column_int64(pStmt, (int)i);
    }
    pUsage->bCost = sqlite3_column_type(pStmt, 5) != SQLITE_NULL;
    pUsage->rCost = sqlite3_column_double(pStmt, 5);
    if (pUsage->bCost) {
      pUsage->zSource =
          sqlite3_column_int(pStmt, 6) ? "blackbox_prices" : "reported";
    }
    pUsage->bRecorded = sqlite3_column_int(pStmt, 7);
  }
  sqlite3_finalize(pStmt);
  pStmt = bxReportQuery(p, pHome,
      "SELECT sequence, model, input_fresh + cache_write + cache_read, output"
      " FROM main.rollout_usage WHERE rollout = lower(?1)");
  while (bxReportRow(p, pStmt)) {
    i = sqlite3_column_int64(pStmt, 0);
    if (p->nItem > 0) i -= strtoll(p->aItem[0].zKey, 0, 10);
    if (i < 0 || i >= p->nItem || p->aItem[i].nInput >= 0) continue;
    p->aItem[i].zModel = bxReportColumnText(p, pStmt, 1);
    p->aItem[i].nInput = sqlite3_column_int64(pStmt, 2);
    p->aItem[i].nOutput = sqlite3_column_int64(pStmt, 3);
  }
  sqlite3_finalize(pStmt);
}

void bxReportRollout(ReportRun *p) {
  BxStmts *pHome = bxReportNeed(p, "rollout");
  int iSource;
  if (pHome == 0) return;
  bxReportFacts(p, pHome, zTaleFacts);
  if (p->nFact == 0) {
    bxReportNotFound(
        p, "conversation", "SELECT id FROM rollouts lists the conversations");
  } else if (strcmp(p->aFact[0].zName, "Asked first") == 0) {
    sqlite3_free(p->zTitle);
    p->zTitle = bxPrintf(&p->err, "%s", p->aFact[0].zValue);
    if (p->zTitle != 0) bxReportFirstLine(p->zTitle, REPORT_TITLE);
  }
  iSource = bxReportSource(p, pHome, "item",
      "SELECT 'payload', d.payload FROM main.rollout__heads AS h"
      " JOIN main.rollout__segments AS s ON s.rollout = h.no"
      "  AND CAST(?1 AS INTEGER) BETWEEN s.first AND s.last"
      " JOIN main.rollout__items AS d"
      "  ON d.id = (s.owner << 32) + CAST(?1 AS INTEGER)"
      " WHERE h.id = lower(?2)");
  bxReportItems(p, iSource, pHome, zTaleItems);
  bxReportBound(p);
  readTaleUsage(p, pHome);
  if (bxReportDomain(p, "retention") == pHome) {
    bxReportTable(p, "pins", "Pins and holds", REPORT_PINS, pHome,
        REPORT_HOLDS(" WHERE kind = 'rollout' AND \"key\" = lower(?1)"));
  }
  bxReportTable(p, "usage", "Tokens by model",
      "text:Model|count:Calls|count:Input|count:Cache write|count:Cache read|"
      "count:Output|count:Reasoning|money:Cost",
      pHome,
      "SELECT model, count(*), sum(input_fresh), sum(cache_write),"
      " sum(cache_read), sum(output), sum(reasoning), sum(cost)"
      " FROM main.rollout_usage WHERE rollout = lower(?1)"
      " GROUP BY model ORDER BY 2 DESC");
  bxReportTable(p, "related", "Forks and sub-agents",
      "text:What|id:Id|time:Created|count:Items|text:Title", pHome,
      "SELECT 'fork', id, created, item_count, title, 'rollout:' || id"
      " FROM main.rollouts WHERE forked_from = lower(?1) UNION ALL"
      " SELECT 'sub-agent', id, created, item_count, title, 'rollout:' || id"
      " FROM main.rollouts WHERE parent = lower(?1) UNION ALL"
      " SELECT iif(p.id = r.parent, 'caller', 'forked from'), p.id, p.created, "
      "p.item_count, p.title,"
      "  'rollout:' || p.id FROM main.rollouts AS r JOIN main.rollouts AS p"
      "  ON p.id IN (r.parent, r.forked_from) WHERE r.id = lower(?1)"
      " ORDER BY 3");
  bxReportTable(p, "dropped", "What the policy did not keep",
      "text:Type|text:Type of the payload|count:Items|bytes:Bytes", pHome,
      "SELECT d.item_type, d.payload_type, d.items, d.bytes"
      " FROM main.rollout_drops AS d JOIN main.rollout__heads AS h"
      " ON h.no = d.no WHERE h.id = lower(?1) ORDER BY 3 DESC");
  bxReportTable(p, "receipts", "What was removed",
      "time:When|text:Rule|text:Actor|count:Rows|bytes:Bytes", pHome,
      "SELECT at, rule, actor, rows, bytes FROM main.retention_log"
      " WHERE domain = 'rollout' ORDER BY at DESC, id DESC");
}

void bxReportEvidence(ReportRun *p) {
  BxVtab *pBuffer = bxVtabFind(p->bx, "evidence_buffer", p->pKey, &p->err);
  BxStmts *pFrom;
  int iSource;
  if (pBuffer == 0) return;
  pFrom = &pBuffer->stmts;
  bxReportFacts(p, pFrom,
      "SELECT '@' AS \"id:Buffer\", s.actions AS \"count:Actions\","
      " s.screenshots AS \"count:Screenshots\", s.bytes AS \"bytes:Size\","
      " s.pinned_bytes AS \"bytes:Pinned\","
      " s.max_size_bytes AS \"bytes:Largest size\","
      " s.retention_policy AS \"text:What a prune removes first\","
      " s.removed AS \"count:Actions that were removed\","
      " (SELECT min(timestamp) FROM main.@) AS \"time:First\","
      " (SELECT max(timestamp) FROM main.@) AS \"time:Last\""
      " FROM main.@_state AS s");
  iSource = bxReportSource(p, pFrom, "action",
      "SELECT 'action', action, 'screenshot', screenshot"
      " FROM main.@ WHERE id = ?1");
  bxReportItems(p, iSource, pFrom,
      "SELECT id, id, timestamp, size_bytes,"
      " nullif(trim(iif(pinned, 'pinned ', '') || iif(pruned, 'approved', '')"
      "  || iif(storage = 'disk', '', ' in ' || storage)), ''),"
      " NULL, NULL, NULL, NULL FROM main.@ ORDER BY timestamp DESC,"
      " rowid DESC");
  bxReportBound(p);
  bxReportTable(p, "pins", "Pins and holds", REPORT_PINS,
      bxReportDomain(p, "retention"),
      REPORT_HOLDS(" WHERE kind = 'buffer' AND \"key\" = ?1"));
  bxReportTable(p, "receipts", "What was removed",
      "time:When|text:Rule|count:Rows|count:Screenshots|bytes:Bytes|"
      "time:Oldest|time:Newest",
      pFrom,
      "SELECT at, rule, rows, screenshots, bytes, oldest, newest"
      " FROM main.@_log ORDER BY id DESC");
}

void bxReportSession(ReportRun *p) {
  BxStmts *pHome = bxReportNeed(p, "cache");
  int iSource;
  if (pHome == 0) return;
  bxReportFacts(p, pHome,
      "SELECT s.session_id AS \"id:Session\", s.item_count AS "
      "\"count:Results\","
      " s.total_size AS \"bytes:Size\", iif(min(l.session_quota, "
      "l.total_quota) < 1125899906842624,"
      " min(l.session_quota - s.total_size, l.total_quota - q.bytes), NULL) AS "
      "\"bytes:Left of the quota\","
      " s.created_at AS \"time:Created\","
      " s.last_accessed_at AS \"time:Last used\""
      " FROM main.cache_sessions AS s LEFT JOIN main.cache_state AS q"
      " LEFT JOIN main.cache__limits AS l"
      " WHERE s.session_id = ?1");
  if (p->nFact == 0) {
    bxReportNotFound(p, "session of the cache",
        "SELECT session_id FROM cache_sessions lists them");
  }
  iSource = bxReportSource(p, pHome, "result",
      "SELECT 'output', data, 'metadata', custom_metadata"
      " FROM main.cache_items WHERE storage_key = ?1");
  bxReportItems(p, iSource, pHome,
      "SELECT storage_key, storage_key, timestamp, data_size,"
      " iif(protected, 'protected', NULL), NULL, NULL, description, NULL"
      " FROM main.cache_items WHERE session_id = ?1"
      " ORDER BY timestamp DESC, id DESC");
  bxReportBound(p);
  bxReportTable(p, "pins", "Pins and holds", REPORT_PINS,
      bxReportDomain(p, "retention"),
      REPORT_HOLDS(" WHERE kind = 'session' AND \"key\" = ?1"));
  bxReportTable(
      p, "receipts", "What was removed", REPORT_GONE, pHome, RECEIPTS("cache"));
}
