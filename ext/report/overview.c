/*
** overview.c: the report of a database: what is wrong, and then the agents, kill
** switches, recordings, conversations and sessions that it has. Its key is the name of
** a schema.
**
** A row that another report is of has a link after its columns: the kind of that report, a
** colon, and its key. The pages of a site (site.c) are those of the links.
*/
#include "report.h"
#include "../core/vtable.h"
#include "../core/prices.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* The columns of the table of agents that their exchanges tell. */
enum { AGENT_ERRORS = 2, AGENT_TOKENS = 3, AGENT_COST = 4, AGENT_COLUMNS = 9 };

#define SENTENCE(where)                                                        \
  "(SELECT v.sentence FROM main.payload_verdicts AS v WHERE v.agent_id = "     \
  "s.agent_id AND " where " ORDER BY v.id DESC LIMIT 1)"

/* clang-format off */
/* Agents that are stopped, and those that a rule has found within a day before now and
** that nobody has started again since. */
static const char zStopped[] =
    "SELECT agent_id, at, said, link FROM ("
    " SELECT s.agent_id, s.stopped_at AS at, 'is stopped: ' || coalesce("
    SENTENCE("v.kill_switch_event_id = s.kill_switch_event_id") ","
    "   'by ' || s.stopped_by, 'by a program') AS said,"
    "  coalesce('kill_switch:' || s.kill_switch_event_id, 'agent:' || s.agent_id) AS link"
    "  FROM main.payload_agents AS s WHERE s.stopped_at IS NOT NULL"
    " UNION ALL SELECT s.agent_id, s.at, 'was found by a rule: ' || s.sentence,"
    "  'agent:' || s.agent_id FROM main.payload_verdicts AS s"
    "  WHERE s.id IN (SELECT max(id) FROM main.payload_verdicts GROUP BY agent_id)"
    "   AND s.at > unixepoch() * 1000 - 86400000"
    "   AND NOT EXISTS (SELECT 1 FROM main.payload_agents AS a"
    "    WHERE a.agent_id = s.agent_id AND a.stopped_at IS NOT NULL)"
    "   AND NOT EXISTS (SELECT 1 FROM main.blackbox__log AS l"
    "    WHERE l.subject = s.agent_id AND l.kind = 'start' AND l.at >= s.at))"
    " ORDER BY at DESC";

static const char zArchived[] =
    "WITH e AS (SELECT agent_id, count(*) AS n, sum(size_bytes) AS bytes,"
    "  max(created_ms) AS last FROM main.event_payloads GROUP BY agent_id";
/* Of an agent that went on after a stop an exchange is in both. */
#define IN_BOTH                                                                \
  "EXISTS (SELECT 1 FROM main.event_payloads AS p"                             \
  " WHERE p.event_id = r.event_id AND p.agent_id = r.agent_id)"
static const char zInRing[] =
    " UNION ALL SELECT a.agent_id, a.rows - coalesce(d.n, 0),"
    "  a.bytes - coalesce(d.bytes, 0), (SELECT timestamp FROM main.@"
    "   WHERE agent_id = a.agent_id AND seq = a.given)"
    "  FROM main.@_agents AS a LEFT JOIN (SELECT r.agent_id, count(*) AS n,"
    "    sum(r.size_bytes) AS bytes FROM (SELECT DISTINCT agent_id FROM"
    "     main.event_payloads WHERE kill_switch_event_id IS NOT NULL) AS k"
    "    CROSS JOIN main.@ AS r ON r.agent_id = k.agent_id WHERE " IN_BOTH
    "    GROUP BY r.agent_id) AS d ON d.agent_id = a.agent_id WHERE a.rows > 0";
static const char zAgents[] =
    ") SELECT e.agent_id, sum(e.n), NULL, NULL, NULL, sum(e.bytes),"
    "  coalesce(l.stops, 0), max(e.last), s.stopped_at, 'agent:' || e.agent_id"
    " FROM e LEFT JOIN main.payload_agents AS s ON s.agent_id = e.agent_id"
    " LEFT JOIN (SELECT subject, count(*) AS stops FROM main.blackbox__log"
    "  WHERE kind = 'stop' GROUP BY subject) AS l ON l.subject = e.agent_id"
    " GROUP BY e.agent_id ORDER BY 8 DESC, 1";

/* The newest exchanges of agent ?1, at most ?2: what they cost, and whether they
** failed. */
#define EXCHANGES(from)                                                        \
  "SELECT u.model, u.input, u.cache_write, u.cache_read, u.output,"            \
  " u.reasoning, u.cache_write_1h, e.at, e.failed FROM (" from " LIMIT ?2)"    \
  " AS e LEFT JOIN payload_usage(e.q, e.r) AS u"
static const char zArchiveUsage[] =
    EXCHANGES("SELECT created_ms AS at, store_text(request_body) AS q,"
    " store_text(response_body) AS r, " REPORT_FAILED " AS failed FROM main.event_payloads"
    " WHERE agent_id = ?1 ORDER BY rowid DESC");
static const char zRingUsage[] =
    EXCHANGES("SELECT timestamp AS at, request_body AS q, response_body AS r, "
    REPORT_FAILED " AS failed FROM main.@ AS r WHERE agent_id = ?1 AND NOT " IN_BOTH
    " ORDER BY seq DESC");
/* clang-format on */

typedef struct AgentUses {
  sqlite3_stmt *ap[REPORT_SOURCES]; /* of the archive and of rings */
  int n;
  i64 nLeft; /* exchanges that may be read yet */
} AgentUses;

/* Adds up what the exchanges of an agent tell. */
static void readAgent(ReportRun *p, BxStmts *pFrom, AgentUses *pUses,
    const char *zAgent, char **azCell) {
  i64 nTokens = 0, nErrors = 0, nRead = 0, iLast = -1;
  char *zFailed = 0; /* how the newest one did */
  sqlite3_stmt *pWrong;
  double rCost = 0, r;
  int i, k, bCost = 0;
  for (i = 0; i < pUses->n && p->err.rc == SQLITE_OK; i++) {
    sqlite3_stmt *pStmt = pUses->ap[i];
    bxBind(pStmt, &p->err, "ti", zAgent, pUses->nLeft);
    while (bxReportRow(p, pStmt)) {
      BxTokens tokens;
      i64 *const apToken[] = {&tokens.nInput, &tokens.nCacheWrite,
          &tokens.nCacheRead, &tokens.nOutput, &tokens.nReasoning,
          &tokens.nCacheWrite1h};
      memset(&tokens, 0, sizeof(tokens));
      for (k = 0; k < 6; k++) *apToken[k] = sqlite3_column_int64(pStmt, k + 1);
      for (k = 0; k < 4; k++) nTokens += *apToken[k];
      nErrors += sqlite3_column_type(pStmt, 8) != SQLITE_NULL;
      nRead++;
      if (sqlite3_column_int64(pStmt, 7) > iLast) {
        iLast = sqlite3_column_int64(pStmt, 7);
        sqlite3_free(zFailed);
        zFailed = bxColumnCopy(pStmt, 8, &p->err);
      }
      if (sqlite3_column_type(pStmt, 0) == SQLITE_TEXT &&
          bxCost(pFrom, (const char *)sqlite3_column_text(pStmt, 0),
              sqlite3_column_bytes(pStmt, 0), sqlite3_column_int64(pStmt, 7),
              &tokens, &r, &p->err)) {
        rCost += r;
        bCost = 1;
      }
    }
    pUses->nLeft -= nRead;
    nRead = 0;
    bxReset(pStmt, &p->err);
  }
  azCell[AGENT_ERRORS] = bxPrintf(&p->err, "%lld", nErrors);
  azCell[AGENT_TOKENS] = bxPrintf(&p->err, "%lld", nTokens);
  if (bCost) azCell[AGENT_COST] = bxPrintf(&p->err, "%.4f", rCost);
  if (zFailed != 0) {
    pWrong = bxPrepareSql(p->bx->db,
        "SELECT ?1, ?2, 'its newest exchange failed: ' || ?3, 'agent:' || ?1",
        &p->err);
    bxBind(pWrong, &p->err, "tit", zAgent, iLast, zFailed);
    bxReportTake(p, &p->aTable[0], pWrong);
  }
  sqlite3_free(zFailed);
}

/* The agents of the archive and of the rings. */
static void addAgents(ReportRun *p, BxStmts *pFrom) {
  ReportTable *pTable = bxReportNewTable(p, "agents", "Agents",
      "text:Agent|count:Exchanges|count:Errors|count:Tokens|money:Cost|"
      "bytes:Bytes|count:Stops|time:Last|time:Stopped");
  sqlite3_stmt *pNames = bxVtabNames(pFrom, "payload_ring", &p->err);
  sqlite3_str *pSql = sqlite3_str_new(0);
  AgentUses uses;
  char *z;
  i64 i;
  memset(&uses, 0, sizeof(uses));
  uses.nLeft = p->opt.nItem;
  z = bxExpand(zArchived, pFrom->zDb, 0);
  uses.ap[uses.n++] = bxPrepare(pFrom, zArchiveUsage, &p->err);
  while (bxReportRow(p, pNames) && uses.n < REPORT_SOURCES) {
    const char *zName = bxColumnText(pNames, 0, &p->err);
    BxVtab *pRing =
        zName ? bxVtabIn(p->bx, "payload_ring", pFrom->zDb, zName, &p->err) : 0;
    if (pRing == 0) continue;
    if (z != 0) sqlite3_str_appendall(pSql, z);
    sqlite3_free(z);
    z = bxExpand(zInRing, pFrom->zDb, pRing->stmts.zTable);
    uses.ap[uses.n++] = bxPrepare(&pRing->stmts, zRingUsage, &p->err);
  }
  sqlite3_finalize(pNames);
  if (z != 0) sqlite3_str_appendall(pSql, z);
  sqlite3_free(z);
  z = bxCheckMem(bxExpand(zAgents, pFrom->zDb, 0), &p->err);
  if (z != 0) sqlite3_str_appendall(pSql, z);
  sqlite3_free(z);
  z = bxStrFinish(pSql, &p->err);
  if (z != 0) {
    bxReportTake(p, pTable, bxPrepareSql(p->bx->db, z, &p->err));
  }
  sqlite3_free(z);
  for (i = 0; i < pTable->nLink && p->err.rc == SQLITE_OK; i++) {
    readAgent(p, pFrom, &uses, strchr(pTable->azLink[i], ':') + 1,
        pTable->azCell + i * AGENT_COLUMNS);
  }
  for (i = 0; i < uses.n; i++) sqlite3_finalize(uses.ap[i]);
}

static void addPayload(ReportRun *p, BxStmts *pFrom) {
  addAgents(p, pFrom);
  bxReportTable(p, "switches", "Kill switches",
      "id:Kill switch|count:Exchanges|bytes:Bytes|time:Last|text:Rule", pFrom,
      "SELECT k, n, bytes, last, (SELECT v.rule FROM main.payload_verdicts AS v"
      "  WHERE v.kill_switch_event_id = k LIMIT 1), 'kill_switch:' || k"
      " FROM (SELECT kill_switch_event_id AS k, count(*) AS n,"
      "  sum(size_bytes) AS bytes, max(created_ms) AS last"
      "  FROM main.event_payloads WHERE kill_switch_event_id IS NOT NULL"
      "  GROUP BY 1) ORDER BY last DESC");
}

static void addOthers(ReportRun *p, BxStmts *pFrom) {
  const char *zDb = pFrom->zDb;
  BxErr *pErr = &p->err;
  if (bxSchemaHasDomain(p->bx, zDb, "evidence", pErr)) {
    bxReportVtabs(p,
        bxReportNewTable(p, "recordings", "Recordings",
            "id:Buffer|count:Actions|count:Screenshots|bytes:Bytes|"
            "bytes:Pinned|time:Last"),
        pFrom, "evidence_buffer",
        "SELECT '@', actions, screenshots, bytes, pinned_bytes,"
        " (SELECT max(timestamp) FROM main.@), 'evidence:' || '@'"
        " FROM main.@_state",
        0);
  }
  if (bxSchemaHasDomain(p->bx, zDb, "rollout", pErr)) {
    bxReportTable(p, "rollouts", "Conversations",
        "text:Conversation|time:Updated|text:Status|count:Items|count:Turns|"
        "count:Tokens|money:Cost|bytes:Bytes|id:Id",
        pFrom,
        "SELECT coalesce(h.title, a.first_user_message, h.id), h.updated,"
        " h.status, h.last_sequence + 1, h.turns, u.tokens, u.cost, h.bytes,"
        " h.id, 'rollout:' || h.id FROM main.rollout__heads AS h"
        " LEFT JOIN main.rollout__about AS a ON a.no = h.no"
        " LEFT JOIN (SELECT rollout, sum(input_fresh + cache_write +"
        "  cache_read + output) AS tokens, sum(cost) AS cost"
        "  FROM rollout_usage_sums WHERE subagents = 0 GROUP BY rollout) AS u"
        "  ON u.rollout = h.id ORDER BY h.updated DESC");
  }
  if (bxSchemaHasDomain(p->bx, zDb, "cache", pErr)) {
    bxReportTable(p, "sessions", "Sessions of the cache",
        "id:Session|count:Results|bytes:Bytes|time:Last used", pFrom,
        "SELECT session_id, item_count, total_size, last_accessed_at,"
        " 'session:' || session_id FROM main.cache_sessions"
        " ORDER BY last_accessed_at DESC");
  }
  bxReportVtabs(p,
      bxReportNewTable(p, "rings", "Rings",
          "text:Ring|count:Window|count:Agents|count:Given|count:Rolled out|"
          "count:Saved|count:Rows|bytes:Bytes"),
      pFrom, "payload_ring",
      "SELECT '@', (SELECT body FROM main.@_texts WHERE id = -1),"
      " count(*), sum(given), sum(rolled), sum(saved), sum(rows), sum(bytes)"
      " FROM main.@_agents",
      0);
}

static void addKept(ReportRun *p, BxStmts *pFrom) {
  if (bxSchemaHasDomain(p->bx, pFrom->zDb, "retention", &p->err)) {
    if (bxReportDomain(p, "retention") == pFrom) {
      bxReportTable(p, "sizes", "Sizes",
          "text:Part|count:Rows|bytes:Bytes|count:Due rows|bytes:Due bytes|"
          "bytes:Bytes of pages|text:Given back by",
          pFrom,
          "SELECT part, rows, bytes, due_rows, due_bytes, page_bytes,"
          " given_back_by FROM retention_report()");
    }
    bxReportTable(
        p, "pins", "Pins and holds", REPORT_PINS, pFrom, REPORT_HOLDS(""));
  }
  bxReportTable(p, "domains", "Domains", "text:Domain|count:Format", pFrom,
      "SELECT domain, format FROM main.blackbox_domains ORDER BY 1");
  bxReportTable(p, "receipts", "What was removed",
      "time:Newest|text:Domain|text:Rule|count:Receipts|count:Rows|bytes:Bytes",
      pFrom,
      "SELECT max(at), domain, rule, count(*), sum(rows), sum(bytes)"
      " FROM main.retention_log GROUP BY domain, rule ORDER BY 1 DESC");
}

void bxReportDatabase(ReportRun *p) {
  ReportTable *pWrong;
  BxStmts *pFrom;
  sqlite3_stmt *pStmt;
  int bPayload;
  i64 n;
  bxRefuseOldFile(p->bx, p->zKey, &p->err);
  if (!bxSchemaHasDomain(p->bx, p->zKey, "core", &p->err)) {
    bxReportNotFound(p, "schema with tables of blackbox named",
        "main is the name of the file that was opened; PRAGMA database_list "
        "lists the schemas");
    return;
  }
  pFrom = bxSchema(p->bx, p->zKey, &p->err);
  bxReportPin(p, pFrom);
  bPayload = bxSchemaHasDomain(p->bx, p->zKey, "payload", &p->err);
  pWrong = bxReportNewTable(
      p, "wrong", "What is wrong", "text:What|time:When|text:Problem");
  if (bPayload) {
    bxReportRows(p, pWrong, pFrom, zStopped);
    addPayload(p, pFrom);
  }
  bxReportRows(p, pWrong, pFrom,
      "SELECT object, NULL, problem FROM blackbox_check(?1)"
      " WHERE problem NOT GLOB 'row *: has no leaf yet;*'"); /* it is to come */
  n = pWrong->nCell / pWrong->nColumn + pWrong->nLeft;
  sqlite3_free(p->zTitle);
  p->zTitle =
      n == 0   ? bxPrintf(&p->err, "Nothing is wrong in %s", p->zShown)
      : n == 1 ? bxPrintf(&p->err, "1 thing is wrong in %s", p->zShown)
               : bxPrintf(&p->err, "%lld things are wrong in %s", n, p->zShown);
  addOthers(p, pFrom);
  addKept(p, pFrom);
  bxReportFacts(p, pFrom,
      "SELECT ?1 AS \"text:Schema\", sqlite_version() AS \"text:SQLite\","
      " blackbox_version() AS \"text:blackbox\"");
  /* The head of the log, as it stands: nothing is taken in. */
  if (!bxReportProves(p, pFrom) ||
      bxQueryIntOnce(
          pFrom, "SELECT size FROM main.blackbox__tree", &p->err, "") == 0) {
    return;
  }
  pStmt = bxPrepareSql(p->bx->db, "SELECT proof_tile('checkpoint')", &p->err);
  if (bxReportRow(p, pStmt)) p->zHead = bxColumnCopy(pStmt, 0, &p->err);
  if (p->zHead != 0) p->zProof = "ok";
  sqlite3_finalize(pStmt);
}
