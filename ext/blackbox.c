/*
** blackbox.c: the entry point, and the one list of everything that this module
** adds to SQL. A new function or table gets a line here. Its code is in the
** folder of its domain.
*/
#include "core/core.h"
#include "payload/payload.h"
#include "cache/cache.h"
#include "evidence/evidence.h"
#include "rollout/rollout.h"
#include "retention/retention.h"
#include "proof/proof.h"
#include "store/store.h"
#include "report/report.h"
#include "core/file_limit.h"
#include "core/table.h"
#include "core/install.h"
#include "core/prices.h"
SQLITE_EXTENSION_INIT1

#include <stdatomic.h>
#include <string.h>

#define MIN_SQLITE 3038000

/* sql/<domain>.sql, made into C by the build. */
extern const char bxSqlCore[], bxSqlCache[], bxSqlEvidence[], bxSqlRetention[],
    bxSqlReport[], bxSqlPayloadCheck[], bxSqlEvidenceCheck[], bxSqlStoreCheck[],
    bxSqlRolloutCheck[], bxSqlCacheCheck[];

static void checkCore(BxStmts *p, BxProblems *pOut) {
  BxErr err = {SQLITE_OK, 0};
  bxSettingsCheck(p, pOut, &err);
  bxProblemError(pOut, "blackbox_settings", &err);
  bxProofCheck(p, pOut);
}

static const char zCoreFaults[] =
    "SELECT 'retention__clock' AS object, 'the row is missing: no rule removes "
    "anything; run blackbox_install()' AS problem WHERE NOT EXISTS (SELECT 1 "
    "FROM main.retention__clock) UNION ALL SELECT 'blackbox__open', 'it has "
    "removals of a bulk act that did not end' WHERE EXISTS (SELECT 1 FROM "
    "main.blackbox__open WHERE minute = 0) UNION ALL SELECT "
    "'retention__clock', 'the newest time that this file has seen is more than "
    "a day after the clock: holds that have an end are over, and rules wait; "
    "if the clock is right, SELECT retention_confirm_clock()' FROM "
    "main.retention__clock WHERE seen > unixepoch() * 1000 + 86400000";

static const char zPayloadSize[] =
    "SELECT count(*) AS rows, coalesce(sum(size_bytes), 0) AS bytes"
    " FROM main.event_payloads INDEXED BY payload_by_age";

/* What the pins of the archive are on. Packed bodies count as their texts. (The
** others are not copied by store_text().) */
#define TEXT_OF(body)                                                          \
  " iif(typeof(e." body ") = 'blob', store_text(e." body "), e." body ")"      \
  " AS \"row." body "\""
#define PAYLOAD_LOGGED                                                         \
  "e.agent_id AS \"row.agent_id\", e.created_at AS \"row.created_at\","        \
  " e.event_id AS \"row.event_id\", e.id AS \"row.id\","                       \
  " e.kill_switch_event_id AS \"row.kill_switch_event_id\","                   \
  " e.meta AS \"row.meta\", e.purpose AS \"row.purpose\"," TEXT_OF(            \
      "request_body") "," TEXT_OF("response_body")
static const char zPayloadLogged[] =
    "SELECT p.n, p.id, " PAYLOAD_LOGGED " FROM main.payload__pins AS p"
    " JOIN main.event_payloads AS e ON e.id = p.id WHERE p.id = ?2"
    " AND p.n = ?1";
static const char zPayloadLate[] =
    "SELECT p.n, p.id, " PAYLOAD_LOGGED " FROM (SELECT id, event_id, agent_id,"
    "  created_at, kill_switch_event_id, purpose, request_body,"
    "  iif(column1, NULL, meta) AS meta, NULL AS response_body"
    "  FROM main.event_payloads, (VALUES (0), (1)) WHERE id = ?2) AS e"
    " JOIN main.payload__pins AS p ON p.id = e.id AND p.n > ?1";
/* All of them: both indexes are read in the order of the ids, then the rows in that
** of the log, which is mostly theirs. */
static const char zPayloadAllLogged[] =
    "SELECT k.n, k.id, " PAYLOAD_LOGGED
    " FROM (SELECT p.n AS n, p.id AS id, i.rowid AS rid"
    "  FROM main.payload__pins AS p CROSS JOIN main.event_payloads AS i"
    "  ON i.id = p.id WHERE p.n > ?1 ORDER BY p.n LIMIT -1) AS k"
    " CROSS JOIN main.event_payloads AS e ON e.rowid = k.rid";

/* The log. What a hold keeps is named in it as long as the hold is in force. What a rule
** said of an agent goes with its name. */
static const BxRecords aCoreRecords[] = {
    {.zName = "blackbox_log",
        .zTable =
            "(SELECT *, CASE WHEN kind IN ('hold', 'held', 'release') THEN"
            " substr(subject, instr(subject, ':') + 1) WHEN kind <>"
            " 'erasure' THEN subject END AS thing"
            " FROM main.blackbox__log WHERE kind IS NOT NULL)",
        .zKinds = "agent=agent_id,agent=thing,event=event_id,event=thing,"
                  "kill_switch=kill_switch_event_id,kill_switch=thing,"
                  "rollout=thing,session=thing,",
        .zTexts = "t.actor, t.reason, t.subject, t.detail, t.agent_id,"
                  " t.event_id, t.kill_switch_event_id",
        .zKey = "t.n",
        .zLoses =
            "SELECT n, kind = 'verdict' OR kind = 'kill_switch' AND actor LIKE"
            " 'rule %', actor, reason, iif(kept, NULL, subject) AS subject,"
            " iif(kept OR kind = 'held', NULL, detail) AS detail, iif(kept,"
            " NULL, agent_id) AS agent_id, iif(kept, NULL, event_id) AS"
            " event_id, iif(kept, NULL, kill_switch_event_id) AS"
            " kill_switch_event_id FROM (SELECT l.*, EXISTS (SELECT 1"
            " FROM main.retention__in_force AS f WHERE f.kind || ':' ||"
            " f.\"key\" = substr(l.subject, instr(l.subject, '/') + 1)"
            " OR f.kind || ':' || f.\"key\" = l.subject"
            " OR f.\"key\" = CASE f.kind WHEN 'agent' THEN l.agent_id WHEN"
            " 'event' THEN l.event_id WHEN 'kill_switch' THEN"
            " l.kill_switch_event_id WHEN 'evidence' THEN l.subject END) AS "
            "kept FROM json_each(?1) AS j CROSS JOIN main.blackbox__log AS l "
            "ON l.n = j.value)",
        .bLog = 1},
    {0},
};

/* The domains; core is first. */
static const BxDomain aDomain[] = {
    {.zName = "core",
        .zTable = "blackbox_domains",
        .zSql = bxSqlCore,
        .aRecords = aCoreRecords,
        .xCheck = checkCore,
        .zFaults = zCoreFaults,
        .zGuarded = ",blackbox__open,retention_rules,retention__clock,"
                    "retention__in_force,"
                    "blackbox__log,blackbox__tree,blackbox__leaves,"
                    "blackbox__folded,blackbox__erased,"
                    "store_dropped,"},
    {.zName = "payload",
        .bDefault = 1,
        .zTable = "payload__state",
        .zSql = bxSqlPayload,
        .aRecords = bxPayloadRecords,
        .aTexts = bxPayloadTexts,
        .aDue = bxPayloadDue,
        .pBodies = &bxPayloadBodies,
        .pRoom = &bxPayloadFileLimit,
        .xAdopt = bxPayloadAdopt,
        .xMend = bxPayloadMend,
        .xIsWhole = bxPayloadIsWhole,
        .xCheck = bxPayloadCheck,
        .zFaults = bxSqlPayloadCheck,
        .zSize = zPayloadSize,
        .zGuarded = ",event_payloads,payload__state,payload__pins,payload_pins,"
                    "payload_unpins,"
                    "payload__held,payload__packed,",
        .zDerived = ",payload__packed,",
        .zAdopted = "event_payloads",
        .zLogged = zPayloadLogged,
        .zAllLogged = zPayloadAllLogged,
        .zLate = zPayloadLate,
        .zPins = "payload__pins",
        .xExchange = bxPayloadExchange,
        .xNoteHeld = bxPayloadNoteHeld,
        .xCheckHeld = bxPayloadCheckHeld,
        .zPlaces = "source NOT IN ('item', 'event')",
        .xLeave = bxQueueFlush},
    {.zName = "evidence",
        .zTable = "evidence_owners",
        .zSql = bxSqlEvidence,
        .aRecords = bxEvidenceRecords,
        .aTexts = bxEvidenceTexts,
        .zFaults = bxSqlEvidenceCheck,
        .zSize =
            "SELECT coalesce(sum(rows), 0) AS rows, coalesce(sum(bytes), 0)"
            " AS bytes FROM main.evidence_owners", /* not of buffers */
        .zGuarded = ",evidence__pinned,evidence__sweeps,",
        .xLeave = bxEvidenceLeave},
    {.zName = "cache",
        .zTable = "cache_state",
        .zSql = bxSqlCache,
        .aRecords = bxCacheRecords,
        .aTexts = bxCacheTexts,
        .aDue = bxCacheDue,
        .pRoom = &bxCacheFileLimit,
        .zFaults = bxSqlCacheCheck,
        .zSize = bxCacheSize,
        .zGuarded = ",cache_state,cache__limits,cache__note,"},
    {.zName = "rollout",
        .zTable = "rollout__act",
        .zSql = bxSqlRollout,
        .aRecords = bxRolloutRecords,
        .aTexts = bxRolloutTexts,
        .aDue = bxRolloutDue,
        .pRoom = &bxRolloutFileLimit,
        .pBodies = &bxRolloutBodies,
        .xErase = bxRolloutErase,
        .zSession = bxRolloutSession,
        .zFaults = bxSqlRolloutCheck,
        .xCheck = bxRolloutCheck,
        .zGuarded = ",rollout__about,rollout__segments,"
                    "rollout__marks,rollout__packed,",
        .zDerived = ",rollout__packed,",
        .zSize = "SELECT count(*) AS rows, coalesce(sum(bytes), 0) AS bytes "
                 "FROM main.rollout__heads",
        .zFailed = "WriteError: Write failed: ",
        .zPlaces = "source IN ('item', 'event')",
        .zOptional = BX_ROLLOUT_SEARCH},
    {.zName = "retention",
        .zTable = "retention_refusals",
        .zSql = bxSqlRetention,
        .xMend = bxRetentionMend,
        .xIsWhole = bxRetentionIsWhole,
        .xCheck = bxRetentionCheck,
        .zGuarded = ",retention_holds,",
        .xLeave = bxRetentionLeave},
    {.zName = "store",
        .zTable = "store__state",
        .zSql = bxSqlStore,
        .xCheck = bxStoreCheck,
        .pRoom = &bxStoreFileLimit,
        .zFaults = bxSqlStoreCheck,
        .zSize =
            "SELECT texts AS rows, kept_bytes AS bytes FROM main.store__state",
        .zGuarded = ",store__texts,store__packs,store__pieces,"
                    "store__state,",
        .xLeave = bxStoreLeave},
    {.zName = "report", .zTable = "blackbox_secrets", .zSql = bxSqlReport},
};

/* name, minimum and maximum number of arguments, kind, implementation */
static const BxFunction aFunctions[] = {
    {"blackbox_erase", 4, 5, BX_ACT, bxRetentionErase},
    {"blackbox_erased", 1, 1, BX_READ, bxRetentionErased},
    {"blackbox_install", 0, 2, BX_OWN, bxInstall},
    {"blackbox_mask", 1, 2, BX_READ, bxReportMask},
    {"blackbox_redact", 4, 4, BX_ACT, bxRetentionRedact},
    {"blackbox_report", 2, 3, BX_READ, bxReportText},
    {"blackbox_report_site", 1, 2, BX_OWN, bxReportSite},
    {"blackbox_room", 1, 1, BX_WRITE, bxFileLimitCall},
    {"blackbox_uninstall", 0, 3, BX_ACT, bxUninstall},
    {"blackbox_use", 1, 1, BX_OWN, bxUse},
    {"payload_cleanup", 0, 3, BX_ACT, bxPayloadCleanup},
    {"payload_clear_archive", 0, 0, BX_ACT, bxPayloadClearArchive},
    {"payload_db_size", 0, 0, BX_READ, bxPayloadDbSize},
    {"payload_extract", 2, 2, BX_WRITE, bxPayloadExtract},
    {"payload_flush", 0, 0, BX_OWN, bxPayloadFlush},
    {"payload_import_har", 1, 2, BX_ACT, bxPayloadImportHar},
    {"payload_kill_switch", 3, 5, BX_ACT, bxPayloadKillSwitch},
    {"payload_pack", 0, 3, BX_ACT, bxPayloadPack},
    {"payload_prompt", 1, 1, BX_READ, bxPayloadPrompt},
    {"payload_queue", 4, 5, BX_ONE, bxPayloadQueue},
    {"payload_save_evidence", 2, 2, BX_ACT, bxPayloadSaveEvidence},
    {"payload_stats", 0, 0, BX_READ, bxPayloadStats},
    {"payload_tend", 2, 3, BX_WRITE, bxPayloadTend},
    {"payload_tools", 1, 1, BX_READ, bxPayloadTools},
    {"payload_unpack", 0, 1, BX_ACT, bxPayloadUnpack},
    {"payload_unpin", 3, 3, BX_ACT, bxPayloadUnpin},
    {"cache_cleanup_orphans", 0, 3, BX_ACT, bxCacheCleanupOrphans},
    {"cache_cleanup_outdated", 0, 3, BX_ACT, bxCacheCleanupOutdated},
    {"cache_clear_session", 1, 1, BX_ONE, bxCacheClear},
    {"cache_delete", 1, 3, BX_WRITE, bxCacheDelete},
    {"cache_quota_check", 2, 3, BX_READ, bxCacheQuotaCheck},
    {"cache_read", 1, 3, BX_OWN, bxCacheRead},
    {"cache_stats", 0, 2, BX_READ, bxCacheStats},
    {"cache_update", 3, 7, BX_ONE, bxCacheUpdate},
    {"cache_use_preset", 1, 1, BX_WRITE, bxCachePreset},
    {"cache_write", 5, 8, BX_ONE, bxCacheWrite},
    {"evidence_clear", 1, 1, BX_ACT, bxEvClear},
    {"evidence_export", 1, 3, BX_OWN, bxEvExport},
    {"evidence_export_puppeteer", 1, 3, BX_OWN, bxEvExportPuppeteer},
    {"evidence_export_replay", 1, 3, BX_OWN, bxEvExportReplay},
    {"evidence_flush", 1, 1, BX_WRITE, bxEvFlush},
    {"evidence_needs_pruning", 1, 1, BX_READ, bxEvNeedsPruning},
    {"evidence_prune", 1, 1, BX_ACT, bxEvPrune},
    {"evidence_prune_for_approval", 1, 2, BX_ACT, bxEvPruneForApproval},
    {"evidence_prune_screenshots", 2, 2, BX_ACT, bxEvPruneScreenshots},
    {"evidence_slim", 1, 2, BX_PURE, bxEvSlim},
    {"evidence_stats", 1, 1, BX_READ, bxEvStats},
    {"proof_bundle", 1, 1, BX_READ, bxProofBundleText},
    {"proof_head", 0, 0, BX_OWN, bxProofHead},
    {"proof_of", 2, 2, BX_READ, bxProofOf},
    {"proof_tile", 1, 1, BX_READ, bxProofTile},
    {"retention_confirm_clock", 0, 0, BX_ACT, bxRetentionConfirm},
    {"retention_hold", 5, 7, BX_ACT, bxRetentionStep},
    {"retention_release", 5, 5, BX_ACT, bxRetentionStep},
    {"retention_sweep", 0, 2, BX_ACT, bxRetentionSweep},
    {"rollout_append", 2, 3, BX_WRITE, bxRolloutAppend},
    {"rollout_archive", 1, 1, BX_WRITE, bxRolloutArchive},
    {"rollout_cleanup_expired", 0, 2, BX_ACT, bxRolloutCleanup},
    {"rollout_create", 1, 5, BX_WRITE, bxRolloutCreate},
    {"rollout_delete", 1, 1, BX_ACT, bxRolloutDelete},
    {"rollout_export", 1, 2, BX_READ, bxRolloutExport},
    {"rollout_flush", 0, 1, BX_OWN, bxRolloutFlush},
    {"rollout_fork", 1, 5, BX_WRITE, bxRolloutFork},
    {"rollout_history", 1, 2, BX_READ, bxRolloutHistory},
    {"rollout_import", 1, 4, BX_WRITE, bxRolloutImport},
    {"rollout_import_dir", 1, 2, BX_WRITE, bxRolloutImportDir},
    {"rollout_import_from", 2, 3, BX_WRITE, bxRolloutImportFrom},
    {"rollout_load_prices", 2, 3, BX_WRITE, bxLoadPrices},
    {"rollout_pack", 0, 1, BX_ACT, bxRolloutPack},
    {"rollout_page", 1, 3, BX_READ, bxRolloutPage},
    {"rollout_rebuild", 0, 1, BX_WRITE, bxRolloutRebuild},
    {"rollout_resume", 1, 2, BX_OWN, bxRolloutResume},
    {"rollout_search_install", 0, 0, BX_WRITE, bxRolloutSearchInstall},
    {"rollout_search_remove", 0, 0, BX_WRITE, bxRolloutSearchRemove},
    {"rollout_shutdown", 1, 1, BX_OWN, bxRolloutShutdown},
    {"rollout_unpack", 0, 1, BX_ACT, bxRolloutUnpack},
    {"coalesce", 7, 7, BX_SAFE, bxStoreFirst},
    {"store_pack", 1, 4, BX_WRITE, bxStorePack},
    {"store_sweep", 0, 2, BX_WRITE, bxStoreSweep},
    {"store_tend", 0, 2, BX_WRITE, bxStoreTend},
    {"store_text", 1, 1, BX_SAFE, bxStoreText},
    /* last: if it exists, the connection has all of them */
    {"blackbox_version", 0, 0, BX_PURE, bxVersion},
};

/* Table-valued functions. */
static const BxTable aTables[] = {
    {"blackbox_check", "schema, object, problem, only HIDDEN", 3, 0, 1, bxCheck,
        0, 0, 0},
    {"payload_loops",
        "agent_id, rule, level, enabled, count, threshold, \"left\", tool, "
        "seqs, sentence, ring HIDDEN, agent HIDDEN",
        10, 1, 2, bxPayloadLoops, 0, 0, 0},
    {"payload_backtest",
        "agent_id, event_id, at, rule, level, count, threshold, tool, seqs, "
        "tokens, sentence, evidence, calls, what HIDDEN, since HIDDEN, "
        "until HIDDEN",
        13, 1, 3, bxPayloadBacktest, 0, 0, 0},
    {"payload_usage",
        "model, input, cache_write, cache_read, output, reasoning, "
        "cache_write_1h, of_request HIDDEN, of_response HIDDEN",
        7, 0, 2, bxPayloadUsage, 0, 0, 0},
    {"payload_queue",
        "event_id TEXT, agent_id TEXT, request_body, response_body, "
        "timestamp INTEGER, size_bytes INTEGER, id HIDDEN, created_at HIDDEN",
        8, 0, 0, bxQueueRows, bxQueueWrite, 0, 0},
    {"payload_agent_log",
        "id INTEGER, at INTEGER, agent_id TEXT, act TEXT, actor TEXT, reason "
        "TEXT, starts INTEGER",
        7, 0, 0, bxAgentLogRows, bxAgentLogWrite, 0, 0},
    {"payload_waiting", "rows, bytes, oldest, error, waiting_of", 5, 0, 0,
        bxPayloadWaiting, 0, 0, 0},
    {"cache_list",
        "storage_key, description, timestamp, data_size, session_id, "
        "task_id, turn_id, metadata, session HIDDEN",
        8, 0, 1, bxCacheList, 0, 0, 0},
    {"evidence_stats",
        "schema, buffer, total_size, action_count, screenshot_count, "
        "oldest_timestamp, newest_timestamp, capacity_used, using_overflow, "
        "max_size_bytes, memory_bytes, pinned_bytes, needs_pruning, owner, "
        "only HIDDEN",
        14, 0, 1, bxEvStatsTable, 0, 0, 0},
    {"proof_bundle", "line, kill_switch HIDDEN", 1, 1, 1, bxProofBundle, 0, 0,
        0},
    {"proof_export", "path, data", 2, 0, 0, bxProofExport, 0, 0, 0},
    {"proof_pending", "kind, pending, first", 3, 0, 0, bxProofPending, 0, 0, 0},
    {"proof_verify", "leaf, kind, key, problem, head HIDDEN", 4, 0, 1,
        bxProofVerify, 0, 0, 0},
    {"retention_plan",
        "domain, \"table\", key, bytes, rule, at, due, age_ms, reason, "
        "blocked_by, now HIDDEN",
        10, 0, 1, bxRetentionPlan, 0, 0, 0},
    {"retention_report",
        "part, rows, bytes, due_rows, due_bytes, page_bytes, given_back_by, "
        "now HIDDEN",
        7, 0, 1, bxRetentionReport, 0, 0, 0},
    {"rollout_context",
        "sequence, timestamp, type, payload, rollout HIDDEN, orphans HIDDEN", 4,
        1, 2, bxRolloutContext, 0, 0, 0},
    {"rollout_dropped", "item_type, payload_type, items, bytes, rollout HIDDEN",
        4, 1, 1, bxRolloutDropped, 0, 0, 0},
    {"rollout_export", "line, rollout HIDDEN", 1, 1, 1, bxRolloutLines, 0, 0,
        0},
    {"rollout_facts", "id INTEGER, fact, source, value", 4, BX_KEYED, 1,
        bxRolloutFacts, 0, 0, 0},
    {"rollout_list",
        "id, created, updated, item_count, status, title, source, cwd, "
        "first_user_message, cursor, page_size HIDDEN, after HIDDEN, "
        "now HIDDEN",
        10, 1, 3, bxRolloutList, 0, 0, 0},
    {"rollout_orphans",
        "sequence, kind, call_id, type, payload, rollout HIDDEN", 5, 1, 1,
        bxRolloutOrphans, 0, 0, 0},
    {"rollout_range",
        "sequence, timestamp, type, payload, rollout HIDDEN, after HIDDEN, "
        "max_rows HIDDEN, direction HIDDEN",
        4, 1, 4, bxRolloutRange, 0, 0, 0},
    {"rollout_search",
        "rollout, sequence, timestamp, role, snippet, rank, tool, file, "
        "query HIDDEN, max_rows HIDDEN, since HIDDEN, until HIDDEN, "
        "folder HIDDEN, of_role HIDDEN, of_tool HIDDEN, of_file HIDDEN",
        8, 1, 8, bxRolloutSearch, 0, 0, 1 << 4},
    {"rollout_tree",
        "sequence, item_id, item_parent, parent, live, rollout HIDDEN", 5, 1, 1,
        bxRolloutTree, 0, 0, 0},
    {"rollout_usage",
        "rollout TEXT, sequence, model, input_fresh, cache_write, cache_read, "
        "output, reasoning, source, timestamp, call, cost, cost_source, "
        "cache_write_1h, output_source",
        15, BX_KEYED_FROM(9), 2, bxRolloutUsage, 0, 0, 0},
    {"rollout_usage_days",
        "day, model, calls, input_fresh, cache_write, cache_read, output, "
        "reasoning, cost, cost_source, cache_write_1h, output_source",
        12, 0, 0, bxRolloutUsageDays, 0, 0, 0},
    {"rollout_usage_sums",
        "rollout TEXT, subagents, model, calls, input_fresh, cache_write, "
        "cache_read, output, reasoning, cost, cost_source, cache_write_1h, "
        "output_source",
        13, BX_KEYED, 1, bxRolloutUsageSums, 0, 0, 0},
    {"blackbox_call", "command TEXT, arguments TEXT", 2, 0, 0, 0, bxCallWrite,
        &bxCallRows, 0},
    {"payload_calls",
        "n INTEGER, kind TEXT, call_id TEXT, tool TEXT, arguments TEXT, "
        "result TEXT, is_error INTEGER, turn INTEGER, body TEXT, of_request "
        "HIDDEN, of_response HIDDEN",
        9, 0, 2, 0, 0, &bxCallsRows, 0},
    {"blackbox_find_secrets",
        "kind, key, row, \"column\", secret, found INTEGER", 6, 0, 0, 0, 0,
        &bxRetentionSecrets, 0},
    {"blackbox_report_lines", "line, kind HIDDEN, key HIDDEN, options HIDDEN",
        1, 2, 3, 0, 0, &bxReportLines, 0},
};

/* Virtual tables that own tables. */
static const BxModule aModule[] = {
    {"payload_ring", bxSqlPayloadRing, "_config", "k", bxRingRecords,
        &bxRingTexts, bxRingKnown, bxRingCheck, bxRingHeld},
    {EV_MODULE, bxSqlEvidenceBuffer, "_state", "version", bxEvBufferRecords,
        &bxEvBufferTexts, bxEvKnown, bxEvCheck, 0},
    {0, 0, 0, 0, 0, 0, 0, 0, 0},
};

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

static Bx *newConnection(sqlite3 *db) {
  BxErr err = {SQLITE_OK, 0};
  Bx *bx = bxZalloc(sizeof(*bx) + COUNT(aDomain) * sizeof(BxDomainData), &err);
  bxErrClear(&err);
  if (bx == 0) return 0;
  bx->db = db;
  bx->nRef = 1;
  bx->nDomain = COUNT(aDomain);
  bx->aDomain = aDomain;
  bx->aModule = aModule;
  bx->aSlot = (BxDomainData *)&bx[1];
  assert(strcmp(aDomain[0].zName, "core") == 0);
  return bx;
}

/* SQLITE_ROW if the connection already has this version of blackbox;
** SQLITE_ERROR, with a message, if it has another version. */
static int alreadyLoaded(sqlite3 *db, char **pzErr) {
  sqlite3_stmt *pStmt = 0;
  int rc = sqlite3_prepare_v2(db, "SELECT blackbox_version()", -1, &pStmt, 0);
  if (rc == SQLITE_NOMEM || rc == SQLITE_INTERRUPT) return rc;
  if (rc != SQLITE_OK) { /* no such function */
    /* Clears the error of the connection: sqlite3_open() reads it there to
    ** detect an error of an automatic extension. */
    rc = sqlite3_prepare_v2(db, "SELECT 1", -1, &pStmt, 0);
    sqlite3_finalize(pStmt);
    return rc;
  }
  rc = sqlite3_step(pStmt);
  if (rc == SQLITE_ROW) {
    const char *z = (const char *)sqlite3_column_text(pStmt, 0);
    if (z == 0) {
      rc = SQLITE_NOMEM;
    } else if (strcmp(z, BLACKBOX_VERSION) != 0) {
      rc = SQLITE_ERROR;
      *pzErr = sqlite3_mprintf(
          "blackbox %s is loaded on this connection already, cannot load %s", z,
          BLACKBOX_VERSION);
    }
  }
  sqlite3_finalize(pStmt);
  return rc;
}

#ifndef SQLITE_CORE
/* The routines of the first SQLite library that loaded this file. A second
** library in the process would replace them while the first still uses them. */
static _Atomic(const sqlite3_api_routines *) pOwner;

static int takeApi(const sqlite3_api_routines *pApi, char **pzErr) {
  const sqlite3_api_routines *pNone = 0;
  assert(pApi != 0);
  if (pApi->libversion_number() < MIN_SQLITE) {
    if (pzErr != 0) {
      *pzErr =
          pApi->mprintf("blackbox needs SQLite 3.38.0 or later, this is %s",
              pApi->libversion());
    }
    return SQLITE_ERROR;
  }
  if (!atomic_compare_exchange_strong(&pOwner, &pNone, pApi) && pNone != pApi) {
    if (pzErr != 0) {
      *pzErr = pApi->mprintf(
          "blackbox is in use by another copy of the SQLite library in this "
          "process; load a copy of the file under another path");
    }
    return SQLITE_ERROR;
  }
  sqlite3_api = pApi;
  return SQLITE_OK;
}
#endif

/* Adds everything to one connection. */
static int addTo(sqlite3 *db) {
  Bx *bx = newConnection(db);
  int rc;
  assert(
      strcmp(aFunctions[COUNT(aFunctions) - 1].zName, "blackbox_version") == 0);
  if (bx == 0) return SQLITE_NOMEM;
  assert(bx->nRef > 0 && bx->aModule == aModule);
  /* first, with the memory that the following calls may use */
  rc = bxRegisterModule(bx, "payload_ring", &bxRingModule);
  if (rc == SQLITE_OK) rc = bxBodyRegister(bx->db);
  if (rc == SQLITE_OK) rc = bxQueueRegister(bx);
  if (rc == SQLITE_OK) rc = bxEvRegister(bx);
  if (rc == SQLITE_OK) rc = bxRegisterTables(bx, aTables, COUNT(aTables));
  if (rc == SQLITE_OK) {
    rc = bxRegisterFunctions(bx, aFunctions, COUNT(aFunctions));
  }
  bxUnref(bx);
  return rc;
}

static int startModule(
    sqlite3 *db, char **pzErr, const sqlite3_api_routines *pApi) {
  char *zErr = 0;
  int rc;
#ifdef SQLITE_CORE
  (void)pApi;
#else
  rc = takeApi(pApi, pzErr);
  if (rc != SQLITE_OK) return rc;
#endif
  rc = alreadyLoaded(db, &zErr);
  assert(rc == SQLITE_ROW || rc != SQLITE_OK || zErr == 0);
  if (rc == SQLITE_ROW) return SQLITE_OK;
  if (rc == SQLITE_OK) rc = addTo(db);
  if (rc == SQLITE_OK) return SQLITE_OK;
  /* SQLite 3.48 and later read the schema before any statement, so that a locked or
  ** damaged file can fail here. The message of SQLite says which it is. */
  if (zErr == 0) {
    int bTold = sqlite3_errcode(db) == (rc & 0xff);
    zErr = sqlite3_mprintf("blackbox is not loaded: %s",
        bTold ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
  }
  if (pzErr != 0) {
    *pzErr = zErr;
  } else {
    sqlite3_free(zErr);
  }
  return rc;
}

/* The exported functions do not call each other: SQLite shares the symbols of
** all modules in a process, so that a call would reach another copy of this
** file. */
int sqlite3_blackbox_init(
    sqlite3 *db, char **pzErr, const sqlite3_api_routines *pApi) {
  return startModule(db, pzErr, pApi);
}

#ifndef SQLITE_CORE
/* The name that SQLite tries first, whatever the name of the file is. (A
** program that links several modules can have only one function of this
** name.) */
BLACKBOX_EXPORT int sqlite3_extension_init(
    sqlite3 *db, char **pzErr, const sqlite3_api_routines *pApi);

int sqlite3_extension_init(
    sqlite3 *db, char **pzErr, const sqlite3_api_routines *pApi) {
  return startModule(db, pzErr, pApi);
}
#endif
