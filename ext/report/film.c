/*
** film.c: the report of a recording (kind evidence), whose key is the name of a
** buffer, and that of a session of the cache (kind session).
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

static const ReportColumn aFilmGone[] = {{"When", REPORT_TIME},
    {"Rule", REPORT_TEXT}, {"Rows", REPORT_COUNT},
    {"Screenshots", REPORT_COUNT}, {"Bytes", REPORT_BYTES},
    {"Oldest", REPORT_TIME}, {"Newest", REPORT_TIME}, {0, REPORT_TEXT}};
static const ReportColumn aFilmHold[] = {{"Time", REPORT_TIME},
    {"What", REPORT_TEXT}, {"Actor", REPORT_TEXT}, {"Reason", REPORT_TEXT},
    {"Status", REPORT_TEXT}, {0, REPORT_TEXT}};
static const ReportColumn aCacheGone[] = {{"When", REPORT_TIME},
    {"Rule", REPORT_TEXT}, {"Actor", REPORT_TEXT}, {"Rows", REPORT_COUNT},
    {"Bytes", REPORT_BYTES}, {"Oldest", REPORT_TIME}, {"Newest", REPORT_TIME},
    {0, REPORT_TEXT}};

/* clang-format off */
static const char zBufferHolds[] =
    "SELECT at, 'hold: ' || kind || ' ' || \"key\", owner || ' (' || actor || ')',"
    "  reason, coalesce('held until ' || strftime('%Y-%m-%d', until / 1000,"
    "   'unixepoch'), 'held')"
    " FROM main.retention_holds WHERE kind = 'buffer' AND \"key\" = ?1"
    " ORDER BY at";
static const char zSessionHolds[] =
    "SELECT at, 'hold: ' || kind || ' ' || \"key\", owner || ' (' || actor || ')',"
    "  reason, coalesce('held until ' || strftime('%Y-%m-%d', until / 1000,"
    "   'unixepoch'), 'held')"
    " FROM main.retention_holds WHERE kind = 'session' AND \"key\" = ?1"
    " ORDER BY at";
/* clang-format on */

static void addHoldsOf(ReportRun *p, const char *zSql) {
  bxReportRows(p, bxReportNewTable(p, "pins", "Pins and holds", aFilmHold),
      bxReportDomain(p, "retention"), zSql);
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
  addHoldsOf(p, zBufferHolds);
  bxReportRows(p,
      bxReportNewTable(p, "receipts", "What was removed", aFilmGone), pFrom,
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
  addHoldsOf(p, zSessionHolds);
  bxReportRows(p,
      bxReportNewTable(p, "receipts", "What was removed", aCacheGone), pHome,
      "SELECT at, rule, actor, rows, bytes, oldest, newest"
      " FROM main.retention_log WHERE domain = 'cache' ORDER BY at DESC, id "
      "DESC");
}
