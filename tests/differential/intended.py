"""The differences between the oracle and the checkout that are intended. Each is reviewed.

Patterns are regular expressions, which are searched for. `statement` is the statement with its
values. An answer is a list of lines: each row as Python writes it, or the error with its code;
pair.py says which lines there are beside these. `oracle` must match each line that only the oracle
gives, `checkout` each line that only the checkout gives; None says that there is no such line.

    Difference(r"FROM blackbox_limits", r"'payload\\.old_name'", None, "the setting is gone")
    Translation(r"\\bblackbox_install\\(\\)", "blackbox_install('main', 'all')",
                "without arguments it installs core and payload")

`intended.py`, run as a program after all tests, lists the entries that were of no use."""
import collections
import hashlib
import pathlib
import re
import sys
import remember
from left_out import LEFT_OUT

Difference = collections.namedtuple("Difference", "statement oracle checkout why")
Translation = collections.namedtuple("Translation", "statement instead why")
Test = collections.namedtuple("Test", "file name why")

GONE = r"^\('(\w+\.due_per_write|payload\.vacuum_pages|payload\.window|proof\.enabled|" \
       r"core\.max_clock_jump_days|payload\.queue_max_bytes|payload\.refuse_stopped)', "

# What a statement answers on both sides.
DIFFERENCES = [
    Difference(
        r"\bINTO \S*ring\(", r"changes, rowid \d+$", r"changes, rowid \d+$",
        "the id of a slot has the window"),
    Difference(
        r"^SELECT blackbox_install\(", r"main: (cache, core, evidence|core), payload, proof\b",
        r"main: (core, payload$|cache, core, evidence, payload, report, retention, rollout, "
        r"store')",
        "the domain proof is a part of core"),
    Difference(
        r"FROM blackbox_domains", r"^\('proof',\)$", None, "the domain proof is a part of core"),
    Difference(
        r"FROM blackbox_limits", GONE, None, "these settings are gone: nobody needs to set them"),
    Difference(
        r"FROM blackbox_limits", None, r"^\('(blackbox.max_file_bytes|rollout.import_ttl_days|(payload|rollout).secrets|rollout.pack)', ", "new settings"),
    Difference(
        r"^SELECT retention_sweep\(1000, unixepoch", r'^{"removed":2,.*},"more":false}$',
        r'^{"removed":2,.*},"left":{"pinned":1},"more":false}$', "it says what stays, too"),
    Difference(
        r"FROM store_shared\(", r"^\d+$", r"no such table: store_shared", "nobody asked for it"),
    Difference(
        r"FROM retention_rules", None, r"^\('(cache|payload)\.file_bytes', ", "new rules"),
    Difference(
        r"FROM blackbox_limits", r"^\('(cache.max_(age|idle)_days|rollout.policy)', ",
        r"^\('(cache.max_(age|idle)_days', .*'0.0 to 36500.0'|rollout.policy', .*'a preset of "
        r"rollout_policy')",
        "a range says whether fractions are allowed, and whether it is a list"),
    Difference(
        r"^(INSERT|REPLACE|DELETE)\b[^(]* blackbox_settings\b", r"^\d+ changes$", r"^0 changes$",
        "each setting has its row, which a trigger changes in place of the INSERT or DELETE"),
    Difference(
        r"\bpayload_queue\b",
        r"nothing was stored; INSERT OR REPLACE INTO \"main\"\.blackbox_settings VALUES"
        r"\('payload\.enabled', 1\) to enable the archive, or ",
        r"nothing was stored; UPDATE \"main\"\.blackbox_settings SET value = 1 WHERE name = "
        r"'payload\.enabled' to enable the archive, or ", "how a setting is set now"),
    Difference(
        r"^SELECT object, problem FROM blackbox_check;", r"^blackbox_settings_update\|trigger is "
        r"missing", r"^blackbox_settings_insert\|trigger is missing",
        "the trigger that the session drops is the other one"),
    Difference(
        r"^SELECT \* FROM blackbox_check  \[\]$",
        r"^\('main', '(ring|tape|rec|film)_(erased|held\w*|next|push)', '(trigger|view) (is missing|differs)", None,
        "a ring and a buffer have no triggers and no views"),
    Difference(
        r"^(INSERT|REPLACE)\b[^(]* event_payloads\b", r"ErasedError: ", r"ValidationError: ",
        "of two reasons, another one comes first"),
    Difference(
        r"^INSERT OR |^REPLACE ", r"UNIQUE constraint failed: sqlite_sequence\.rowid$",
        r"SQLITE_CONSTRAINT_TRIGGER: ErasedError: ", "erasures are looked up first"),
    Difference(
        r"^INSERT OR ", r"IntegrityError SQLITE_CONSTRAINT_\w+: (CHECK|NOT NULL) constraint failed",
        r"failed: blackbox__probe\.one$", "the id is looked up first"),
    Difference(
        r"^UPDATE .*event_payloads SET ", r"SQLITE_CONSTRAINT_TRIGGER: (Pinned|Held)Error: ",
        r"SQLITE_CONSTRAINT_TRIGGER: PinnedError: |failed: blackbox__probe\.one$",
        "of several reasons, another one comes first"),
    Difference(
        r"", r"; SELECT id FROM payload_pins lists the pinned rows$", r"; see payload_pins$", "a shorter message"),
    Difference(
        r"event_payloads", r"; use another one, or wait until the time in retention_eras",
        r"for retention\.refuse_days; see retention_erasures( \(19\))?$", "a shorter message"),
    Difference(
        r"^UPDATE .*event_payloads SET .*size_bytes", r"^\d+ changes|PinnedError: |HeldError: ",
        r"ValidationError: size_bytes is the length of both bodies; omit it$",
        "a wrong size is refused, and not corrected"),
    Difference(
        r"", r"CHECK constraint failed: (typeof\(threshold\)|purpose|enabled|level|keep) IN ",
        r"CHECK constraint failed: (threshold>0 AND threshold<9e15$|(purpose|enabled|level|keep) IN\()", "a shorter CHECK"),
    Difference(
        r"\bpayload_rules\b", r"CHECK constraint failed: CASE WHEN rule IN",
        r"CHECK constraint failed: ValidationError: a rule cannot reach a threshold above its span",
        "an error that says what is wrong"),
    Difference(
        r"^INSERT INTO ring VALUES", r"insert agent_id, event_id, request_body, response_body and",
        r"insert agent_id, event_id, request_body, response_body, timestamp and meta only$",
        "a ring has the column meta"),
    Difference(
        r"kill_switch", r"^(\(0,\)|columns payload_kill_switch.*|\d changes.*)$",
        r"NotFoundError: ring '\w+' has never seen agent ", "an agent that a ring does not know"),
    Difference(
        r"^SELECT evidence_prune_for_approval\(", r'"problems":\[', r'"problems":\[',
        "problems stand in the order of the rows"),
    Difference(
        r"", r"SELECT agent_id FROM payload_agents WHERE stopped_at IS NOT NULL lists those that are$",
        r"SELECT \* FROM payload_agents WHERE stopped_at$", "a shorter message"),
    Difference(
        r"^INSERT INTO ring\(ring, ", r"a ring knows 'window', 'max_bytes', 'idle_days' and 'kill_switch'$",
        r"a ring knows 'window', 'max_bytes', 'idle_days', 'kill_switch', 'complete' and 'forget'$",
        "more commands"),
    Difference(
        r"FROM blackbox_limits", r"^\('cache\.lock_tool_results', ", None, "the setting is gone"),
    Difference(
        r"FROM blackbox_limits", r"^\('payload\.pack', ", r"^\('payload\.pack', .*'whether the queue, kill",
        "kill switches pack, too"),
    Difference(
        r"FROM blackbox_limits", r"^\('cache\.on_quota', ",
        r"^\('cache\.on_quota', 'reject', 'reject', 'reject, evict_oldest', ",
        "evict_lru is gone"),
    Difference(
        r"cache_items", r"ValidationError: (description|custom_metadata|data|timestamp|expires_at) must ",
        r"UNIQUE constraint failed: cache_items\.storage_key$|: InvalidKeyFormatError: ",
        "of two reasons, the other one"),
    Difference(
        r"^UPDATE .*event_payloads SET pinned", r"PinnedError: a pinned row cannot be changed; ",
        r"ValidationError: pinned must be 0 or 1$", "of two reasons, the other one"),
    Difference(
        r"FROM retention_log\b", r"'payload', 'payload\.age', None, ",
        r"'payload', 'payload\.age', None, ", "a row is due from the next whole second on"),
    Difference(
        r"^SELECT cache_stats\(", r'"hits":\d+,', r'"hits":\d+,',
        "hits are counted for a session, and stay when an item goes"),
    Difference(
        r"\bblackbox_erase\(", r'"erased":\[|^\(\d+,\)$|^\[\d', r'"from":"blackbox_log"|^\(\d+,\)$',
        "fields of the log that name the key, or have the text, are erased, too"),
    Difference(
        r"FROM retention_hold_log\b", r", 'case-\d', '(hold|release)', ",
        r"^\(\d+, None, None, 'case-\d', ", "the log has a digest of what was erased"),
    Difference(
        r"^UPDATE .*cache_sessions SET last_accessed_at", r"^1 changes$", r"^0 changes$",
        "an older time changes nothing"),
    Difference(
        r"\bUPDATE .*cache_items|cache_items.* DO UPDATE", r"^\d+ changes$|ValidationError: session_id of an item cannot ",
        r"HeldError: a hold keeps this session; ", "a held item is not updated at all"),
    Difference(
        r"\bUPDATE .*cache_items", r"^\d+ changes$",
        r"ValidationError: description must be 1 to cache\.max_description ch",
        "a lower limit holds for each UPDATE of an item"),
    Difference(
        r"cache_|session", r"HeldError: ", r"ValidationError: ", "of two reasons, the other one"),
    Difference(
        r"cache_sessions", r"ErasedError: ", r"^0 changes$", "OR IGNORE looks at the key first"),
    Difference(
        r"FROM retention_erasures\b", r"\|\d+\|\d+$|, \d+, \d+", r"\|\d+\|\d+$|, \d+, \d+",
        "fields of the log that name the key, or have the text, are erased, too"),
    Difference(
        r"^UPDATE .*cache_items SET ",
        r"(session_id of an item cannot change; |UNIQUE constraint failed: cache_items\.storage_key$)",
        r"ValidationError: id and key of an item cannot change; ", "one guard of the key"),
    Difference(
        r" rollouts\b", r"UNIQUE constraint failed: (rollout_heads\.id|sqlite_sequence\.rowid)$|"
        r"RolloutExistsError: (a conver|this conv)",
        r"CHECK constraint failed: RolloutExistsError: this conver", "one guard, which is a CHECK"),
    Difference(
        r"FROM rollouts\b", r"'', 'blackbox', '1\.0\.0', None, None, None, 'codex'",
        r"None, None, None, None, None, None, 'codex'",
        "what follows from the session_meta of plain SQL is derived by the next call that writes"),
    Difference(
        r"^DELETE FROM rollout_items\b", r"(SQLITE_CONSTRAINT_TRIGGER: AppendOnlyError: |^0 changes$)",
        r"SQLITE_ERROR: cannot modify rollout_items because it is a view$",
        "SQLite refuses it itself"),
    Difference(
        r"\b(rollout_items|rollouts)\b", r"a new payload (must have the same|of a rollback)|must keep its rep",
        r"a new payload keeps type, role, n|InvalidSessionMetaError: .* it must be",
        "one message for three, after that of item 0"),
    Difference(r"FROM rollout_usage\b", r"'#\d+'", r"'#\d+'", "numbers are used again"),
    Difference(
        r"FROM retention_log\b", r"'cache', '(clear|idle|expired|abandoned)', ",
        r"'cache', '(clear|idle|expired|abandoned)', ",
        "the receipt has the time of the log, and what has expired goes at another time"),
    Difference(
        r"FROM payload_rules\b", r"^\('(similar|cycle|masked|repeated_text)', ", None,
        "one rule looks for what is new"),
    Difference(
        r"FROM payload_rules\b", r"^\('(no_progress|same_error)', ", r"^\('(no_progress|same_error)', ",
        "one rule looks for what is new"),
    Difference(
        r"FROM payload_rules\b", r"^\('budget_cost', .*, by payload_prices'\)$",
        r"^\('budget_cost', .*, by blackbox_prices'\)$", "one table of prices"),
    Difference(
        r"payload_usage\(request, response\)", r"^gpt-5\|100\|\|800\|20\|$",
        r"^gpt-5\|100\|\|800\|20\|\|$", "the tokens that a cache keeps for an hour"),
    Difference(
        r"SELECT payload_pack\(", r'"rows":\d+,"rawBytes"', r'"rows":\d+,"rawBytes"',
        "rows are packed in the order in which they were stored"),
    Difference(
        r"FROM store_stats", r"^\(\d+, \d+, \d+, \d+\)$", r"^\(\d+, \d+, \d+, \d+\)$",
        "an INSERT that leaves a packed row as it is drops none of its texts"),
    Difference(
        r"", r"SELECT retention_confirm_clock\(\), or UPDATE retention_clock SET seen = "
        r"\(SELECT clock FROM retention_now\)$", r"; if it is right, SELECT "
        r"retention_confirm_clock\(\)$", "one way to confirm a clock"),
    Difference(
        r"FROM payload_loops\(", r"^\('[^']+', 'similar', 'stop', 0, 0, ", None,
        "the rule similar, which was off, is gone"),
    Difference(
        r"^DELETE FROM evidence_due\b", r"; unpin it first: UPDATE evidence_overflow SET pinned = 0$",
        r"; unpin it first: UPDATE evidence__overflow SET pinned = 0$",
        "the names of inner tables have two underscores"),
    Difference(
        r"_cleanup(_orphans|_outdated|)\b",
        r": (ValidationError: (now|days) must be|ClockError: the clock says) ",
        r": ValidationError: (limit must be a whole number from 1 to 1000000000|days must be a "
        r"number of 0 or more), got ",
        "what is given is checked before the clock is read, which may be written"),
    Difference(
        r"\bblackbox_erase\(", r" (ValidationError: (options|actor|reason) must be|HeldError: ) ?",
        r" ValidationError: (actor|reason) must be visible text without control characters; a "
        r"reason may have tabs and line ends$",
        "actor and reason are checked first, with one message"),
    Difference(
        r"\bretention_(hold|release)\b", r" (HeldError|NotFoundError|ValidationError): ",
        r" (HeldError: a hold can be lengthened|NotFoundError: this owner has no hold|"
        r"ValidationError: (owner, actor and reason|actor|reason) must be visible text)",
        "a function says what the view says, and which hold it is"),
    Difference(r"FROM retention_report\(", r"", r"too many arguments on ",
               "what the pages of a domain have, dbstat tells"),
    Difference(r"", r"there is no table '|has no column '|is not unique",
               r"there is no table '.*' with a unique column '|no such column: ",
               "why a rule is not applied, in the words of SQLite"),
    Difference(
        r"\bblackbox_report\(.*'kill_switch', 'k1'",
        r" NotFoundError: there is no kill switch 'k1'; ",
        r"^columns |^\('\{\"format\":\"blackbox\.report\".*\"name\":\"Exchanges\",\"value\":0,",
        "the log has a kill switch whose exchanges are gone"),
    Difference(
        r"FROM retention_plan\b", r"^\('evidence', 'evidence_overflow', ",
        r"^\('evidence', 'evidence__overflow', ",
        "the names of inner tables have two underscores"),
    Difference(
        r"FROM retention_rules\b", r"^\('evidence\.orphans', 'evidence', 'evidence_overflow', ",
        r"^\('evidence\.orphans', 'evidence', 'evidence__overflow', ",
        "the names of inner tables have two underscores"),
    Difference(
        r"^(DELETE FROM|UPDATE) (retention_(log|hold_log|holds)|payload_unpins)\b",
        r"^(0 changes|IntegrityError SQLITE_CONSTRAINT_TRIGGER: .* (be deleted|be changed)\b.*)$",
        r"^OperationalError SQLITE_ERROR: cannot modify \w+ because it is a view$",
        "they are views of the log, and SQLite refuses the write"),
    Difference(
        r"^INSERT OR ", r"UNIQUE constraint failed: (sqlite_sequence\.rowid|event_payloads\.id)$",
        r"UNIQUE constraint failed: blackbox__probe\.one$",
        "the probe for OR IGNORE has a table of its own"),
    Difference(
        r"FROM retention_log\b", r"'core', 'clock confirmed', None, 0, 0, ", None,
        "no receipt, but a row of the log of the kind clock"),
    Difference(
        r"",
        r" the newest time that this file has seen; core\.max_clock_jump_days allows 7; if the "
        r"clock is right, SELECT retention_confirm_clock\(\)$",
        r" the newest time that this file has seen; a jump of more than 7 days stops all rules; if "
        r"the clock is right, SELECT retention_confirm_clock\(\)$",
        "the setting is gone, its default is the rule"),
    Difference(
        r"^(INSERT|REPLACE)\b[^(]* event_payloads\b", r"^1 changes, rowid \d+$",
        r"^1 changes, rowid \d+$", "a row that REPLACE takes goes first, and leaves its rowid"),
    Difference(
        r"FROM retention_log\b", r"'payload', 'payload\.verdicts', None, ", None,
        "the log keeps a verdict that is deleted"),
    Difference(
        r"FROM retention_log\b", None, r"'payload', 'manual', None, ",
        "a row that REPLACE takes has a receipt"),
    Difference(
        r"FROM retention_log\b", r"'payload', 'manual', None, ", r"'payload', 'manual', None, ",
        "a row that REPLACE takes is in the receipt of its minute"),
    Difference(
        r"FROM retention_log\b", r"'rollout', 'rollout\.expired', None, \d+, \d+, \d+, \d+\)$",
        r"'rollout', 'rollout\.expired', None, \d+, \d+, \d+, \d+\)$",
        "oldest and newest of a bulk act are the times of the conversations, as in the receipts "
        "of all other removals, and no longer the times when they expired"),
    Difference(
        r"FROM retention_log\b", r"'cache', 'abandoned', None, 1, ",
        r"'cache', 'abandoned', None, \d+, ", "removals of a rule and minute have one receipt"),
    Difference(
        r"^SELECT event_id, purpose, pinned, size_bytes FROM payload_rows\s+WHERE kill_switch_event_id",
        r"^(in this order:|e\d\|evidence\|1\|22)$", r"^(in this order:|e\d\|evidence\|1\|22)$",
        "rows of one millisecond stand in the order in which they were saved"),
    Difference(
        r"^SELECT count\(\*\) FROM blackbox_check;", r"^0$", r"^1$",
        "what install made anew is told until somebody has looked"),
    Difference(
        r"FROM proof_log\b", r"^\d\|(evidence|pin|unpin)\|\d\|[01]$",
        r"^\d\|(kill_switch|pin|unpin)\|\d\|1$", "a leaf is a row of the log"),
    Difference(
        r"FROM proof_verify;", r"^1\|evidence\|was altered: ", r"^0\|pin\|was altered: ",
        "the leaf of a row of the archive is that of its pin"),
    Difference(r"FROM (report_masks|blackbox_secrets)\b", r"", r"", "one rule set"),
    Difference(
        r"\brollout_import\(", r'"format":', r'"format":',
        "it tells the format of what was imported, and not that of the conversation"),
    Difference(
        r"\brollout_search_install\(\)", r"^\(\d+,\)$", r"^\(\d+,\)$",
        "an item is read by the format in which it came"),
    Difference(r"\brollout_export\(", r"RolloutExpiredError", r"", "what is exported may have expired"),
    Difference(r"FROM rollout_search\(", r"", r"", "it searches words, and ranks"),
    Difference(r"FROM (rollout_(formats|messages|preambles|readings|attributes|usage_formats)|blackbox_places)\b", None, r"",
               "there are more of them"),
    Difference(r"FROM (rollouts|rollout_items)\b", r'"forked_from_id":', r'"blackbox":\{"format":"[\w-]+","id":"',
               "the session_meta of a fork keeps the name that lines of other programs have"),
    Difference(r"FROM rollout_readings\b", r"^\('goose', 'user', 'user', ", None, "another condition"),
    Difference(
        r"\brollout", r"\b17800000080\d\d\b", r"\b17800000090\d\d\b",
        "an item without a time has that of the import that brought it"),
    Difference(
        r"FROM retention_log\b", r"'rollout', 'manual', None, \d, ", r"'rollout', 'manual', None, \d, ",
        "an item is read by the format in which it came, and has other bytes"),
    Difference(
        r"FROM retention_report\b", r"^\('store', \d+, \d+, 0, 0\)$",
        r"^\('store', \d+, \d+, 0, 0\)$", "a list of a pack has two bytes more for each piece"),
    Difference(
        r"", r"; use another one, or wait until the time in "
        r"retention_erased\b", r"; use another one, or wait until the time in retention_erasures\b",
        "the table retention_erased is an inner one"),
]

# What has two underscores in its name now, with one, unless another thing has that name.
ROOT = pathlib.Path(__file__).resolve().parents[2]
SQL = "".join(path.read_text() for path in sorted((ROOT / "sql").glob("*.sql")))
INNER = {f"{domain}_{name}" for domain, name in
         re.findall(r"\bCREATE [^;(]*?\b(?!blackbox)([a-z]+)__(\w+)", SQL)}
INNER = "|".join(sorted(INNER.difference(re.findall(r"\w+", SQL))))

# What the checkout is given in place of a statement of the oracle.
TRANSLATIONS = [
    *map(Translation._make, remember.TRANSLATIONS),
    Translation(
        r"\brollout_import\(\?\)", "json_remove(rollout_import(?, NULL, NULL, 'unknown'), '$.known')",
        "a file of no known format is an error, unless asked for"),
    Translation(
        r"\brollout_import\(\?, \?, \?\)",
        "json_remove(rollout_import(?, ?, ?, 'unknown'), '$.known')", "the same"),
    Translation(
        r"json_remove\(value, '\$\.leaf'\)(?= FROM json_each\(blackbox_report\()",
        "json_remove(value, '$.leaf', '$.role', '$.error', '$.said', '$.asked', '$.quiet', "
        "'$.other', '$.duration')", "an item of a report says more"),
    Translation(r"\bpayload_replay\b", "payload_backtest", "replay is what is done to an agent"),
    Translation(
        r"SELECT payload_cleanup\(([^()]*)\)", r"SELECT payload_cleanup(\1) ->> '$.rows'",
        "it returns what it has done"),
    Translation(
        r"SELECT (cache_cleanup_\w+\([^()]*\))", r"SELECT json_remove(\1, '$.left')",
        "it returns what stays, too"),
    Translation(
        r"SELECT retention_sweep\(([^()]*)\)", r"SELECT json_remove(retention_sweep(\1), '$.left')",
        "it returns what stays, too"),
    Translation(
        r"INTO rollout_log\(rollout_id, item((, timestamp)?)\) VALUES \(\?, \?(, \?)?\)",
        r"INTO rollout_log(rollout_id, type, payload\1) SELECT ?1, ?2 ->> 'type', "
        r"?2 -> 'payload'\3", "an item is written as type and payload"),
    Translation(
        r"INTO rollouts\(id, created, expires_at, title, instructions\) VALUES\(.*\)",
        "INTO rollouts(id, created, expires_at, title, session_meta) SELECT ?1, ?2, ?3, ?4, "
        "CASE WHEN ?5 IS NOT NULL THEN json_object('id', NULL, 'timestamp', NULL, 'cwd', '', "
        "'originator', 'blackbox', 'cli_version', '1.0.0', 'instructions', ?5) END",
        "the instructions are in the session_meta"),
    Translation(
        r"FROM rollout_readings", "FROM (SELECT *, kind AS fact FROM blackbox_places "
        "WHERE type <> '' AND kind NOT IN ('usage', 'line', 'start'))", "one table of formats"),
    Translation(
        r"FROM rollout_preambles", "FROM (SELECT place AS prefix FROM blackbox_places "
        "WHERE kind = 'preamble')", "one table of formats"),
    Translation(
        r"FROM rollout_lines", "FROM (SELECT format, place AS prefix, type, kind = 'start' AS "
        "first FROM blackbox_places WHERE kind IN ('line', 'start'))", "one table of formats"),
    Translation(
        r"FROM rollout_usage_formats", "FROM (SELECT * FROM blackbox_places "
        "WHERE type <> '' AND kind = 'usage')", "one table of formats"),
    Translation(
        r"\bINTO payload_starts\(", "INTO payload_agent_log(", "the log of agents takes the starts"),
    Translation(
        r"\bring_agents SET half = ", "ring_agents SET kept = ",
        "rows are not in two halves: the id of a slot has the window"),
    Translation(
        r"^INSERT (OR REPLACE )?INTO (\"?\w+\"?\.|)blackbox_settings VALUES ?\('(proof\.enabled|"
        r"\w+\.due_per_write)', (\?|1|2)\)(;?)$", r"SELECT 1 WHERE \4 < 0\5",
        "what these settings switched on is always on"),
    Translation(
        r"^SELECT blackbox_install\(\)", "SELECT blackbox_install('main', 'all')",
        "without a list it installs core and payload"),
    Translation(
        r"^SELECT blackbox_install\(('[^']*'|\?)\)", r"SELECT blackbox_install(\1, 'all')",
        "without a list it installs core and payload"),
    Translation(
        r"^INSERT INTO ring VALUES\(\?, \?, \?, \?, \?, 9, 9\)",
        "INSERT INTO ring VALUES(?, ?, ?, ?, ?, 9, 9, NULL)", "a ring has the column meta"),
    Translation(
        r"\bINTO payload_prices VALUES ?\('gpt-5'",
        "INTO blackbox_prices(model, input, cache_write, cache_read, output) VALUES('gpt-5'",
        "one table of prices"),
    Translation(
        r"\bFROM proof_log\b", "FROM (SELECT n - 1 AS leaf, kind, n AS number, 1 AS open "
        "FROM blackbox_log WHERE n IS NOT NULL)", "a leaf is a row of the log"),
    Translation(
        r"\bFROM (\S+\.)?(cache|rollout)_check\b", "FROM (SELECT 1 WHERE 0)",
        "what a domain checks is a query of the module"),
    Translation(
        r"^SELECT written, items_before, rule FROM \S+cache_state$", "SELECT NULL, NULL, NULL",
        "a write of the cache leaves no mark in a table"),
    Translation(
        r"^SELECT json_remove\((blackbox_erase\(.*\)), '\$\.erasure', '\$\.salt', '\$\.digest'\)",
        r"SELECT json_set(json_remove(\1, '$.erasure', '$.salt', '$.digest'), '$.then', "
        r"'PRAGMA wal_checkpoint(TRUNCATE); VACUUM')", "the steps are in another order"),
    Translation(
        r"^DROP TRIGGER payload_update_check\b", "DROP TRIGGER payload_guard",
        "another trigger guards a row"),
    Translation(
        r"^DROP TRIGGER blackbox_settings_update\b", "DROP TRIGGER blackbox_settings_insert",
        "blackbox_settings has another trigger"),
    Translation(
        r"^SELECT (step|id), (.* FROM retention_(hold_log|erasures);)",
        r"SELECT row_number() OVER (ORDER BY \1), \2", "the numbers are those of the log"),
    Translation(
        r"\bFROM ring_agents;$", "FROM ring_agents ORDER BY agent_id;",
        "agents lie in the order of their numbers"),
    Translation(
        r"\bblackbox_limits\b", "blackbox_settings", "blackbox_settings shows every setting"),
    Translation(
        r"(, )?\('(\w+\.due_per_write', 2|proof\.enabled', 1)\)", "",
        "what these settings switched on is always on"),
    Translation(
        r"\bINTO (\"(?:[^\"]|\"\")+\"\.|\w+\.|)blackbox_settings (VALUES ?\(|SELECT )",
        r"INTO \1blackbox_settings(name, value) \2",
        "blackbox_settings has more columns"),
    Translation(
        r"\bFROM blackbox_check\b(\([^()]+\)|(?!\())",
        r"FROM (SELECT * FROM blackbox_check\1 WHERE problem NOT GLOB 'row * has no leaf yet*')",
        "what plain SQL wrote into the log is proved by the next call, and counted until then"),
    Translation(
        r"\bFROM payload_ledger WHERE id IN\b",
        "FROM blackbox_log WHERE kind = 'pin' AND subject IN",
        "the pins are rows of the log"),
    Translation(
        rf"\b(?=(?:{INNER})\b)([a-z]+)_", r"\1__",
        "the names of inner tables, views and triggers have two underscores"),
]

# The tests of the oracle that may fail with the checkout's module: why, in which files, which.
MAY_FAIL = {
    "make demo counts in other words": """
        rollout/test_demo.py
            test_a_folder_is_imported_and_its_figures_are_shown""",
    "Markdown escapes what would be misread, and no more":
        "report/test_report_kinds.py test_markdown_is_text_that_means_nothing",
    "the message shows the value": "rollout/test_functions.py test_bad_items_write_nothing",
    "the export of a fork names the fork": "rollout/test_formats.py test_a_format_is_found_read_and_given_back",
    "the search finds whole words": "rollout/test_spans.py test_spans_of_each_dialect_say_the_same",
    "it writes the inner table of heads, which is found and not stopped; rollouts refuses it": """
        rollout/test_schema.py
            test_history_cannot_be_broken
            test_a_trigger_that_skips_others_lets_no_replace_through""",
    "the texts of a ring are in a table of their own, and an agent's number is its rowid": """
        payload/test_ring.py
            test_reading_without_bodies_reads_no_body_page
        payload/test_ring_damage.py
            test_check_finds_every_damage_of_a_ring""",
    "it names inner objects, or their columns": """
        core/test_hostile_check.py
            test_check_finds_each_change_that_sql_cannot_stop
        core/test_hostile_receipts.py
            test_a_delete_always_has_its_receipt
            test_a_receipt_has_whole_numbers
        core/test_hostile_tricks.py
            test_the_row_of_payload_state_stays
        core/test_install.py
            test_check_finds_dropped_and_changed_guard_and_install_mends_it
            test_check_finds_rows_that_are_gone_and_install_brings_them_back
            test_check_sees_a_table_that_was_dropped_and_install_makes_it
        core/test_refused_calls.py
            test_a_check_that_may_not_read_is_not_reported_as_a_problem
        core/test_uninstall.py
            test_a_schema_that_the_stock_shell_installed_is_removed_as_well
            test_a_table_that_another_program_made_stays_with_its_rows
            test_refuses_what_would_lose_data_and_names_it
        evidence/test_hostile_evidence.py
            test_no_blob_is_written_in_place
        payload/test_archive_guards.py
            test_check_finds_what_was_taken_away
        payload/test_archive_plans.py
            test_documented_queries_seek_and_need_no_sort
            test_statements_inside_the_functions_seek
            test_statements_inside_triggers_seek
        payload/test_queue_durable.py
            test_a_call_that_is_stopped_before_the_row_has_stored_nothing
        retention/test_erase.py
            test_after_its_time_a_key_can_be_used_again
            test_check_finds_a_broken_record_and_install_makes_lost_guards
            test_the_overflow_of_a_lost_buffer_goes
        retention/test_holds.py
            test_check_finds_what_is_held_and_gone
            test_ten_thousand_holds_do_not_scan
        retention/test_plan.py
            test_the_plan_lists_the_due_rows_of_every_domain_in_the_order_they_fell_due
        retention/test_work.py
            test_a_new_item_never_fails_because_an_expired_one_cannot_go
            test_the_look_for_work_seeks
        rollout/test_derived.py
            test_an_item_that_a_trigger_ignores_is_not_counted
            test_the_schema_alone_rebuilds""",
    "it has statements for the shell, which are not translated": """
        cache/test_cache_schema.py
            test_in_the_shell_with_defensive_mode
        payload/test_loops.py
            test_defensive_mode_and_an_untrusted_schema
        rollout/test_functions.py
            test_the_functions_work_in_defensive_mode
        rollout/test_transfer.py
            test_memory_does_not_grow_with_the_file""",
    "a row keeps its id, an INSERT alone makes room, and packed texts count in full": """
        payload/test_archive_adoption.py
            test_pinned_rows_found_there_are_guarded
        payload/test_archive_bytes.py
            test_a_lower_limit_makes_room_and_0_or_a_delete_ends_it
            test_a_row_that_is_larger_than_the_limit_is_refused
            test_payload_cleanup_removes_what_a_lower_limit_left
            test_plain_sql_makes_room_on_request
        payload/test_archive_guards.py
            test_evidence_cannot_be_overwritten_at_rowid_minus_one
        payload/test_pack.py
            test_the_limit_in_bytes_counts_what_packed_rows_really_take
        retention/test_holds.py
            test_a_held_row_of_the_archive_can_become_evidence""",
    "one message for the values of a row, and for its right size": """
        payload/test_archive_guards.py
            test_bad_values_are_refused_in_new_and_changed_rows""",
    "the newest texts wait for the index of the search, and are searched all the same": """
        retention/test_erase.py
            test_no_part_of_a_text_is_left_in_the_search_index""",
    "one message for the actor and the reason of an unpin": """
        core/test_hostile_unpins.py
            test_who_unpins_and_why_can_be_seen
        payload/test_archive_guards.py
            test_unpin_needs_actor_reason_and_a_pinned_row""",
    "what TEMP triggers, and writes into inner tables, do is found, and no longer refused": """
        core/test_hostile_receipts.py
            test_no_conversation_is_deleted_without_a_receipt
        core/test_hostile_tricks.py
            test_a_row_with_rowid_minus_one_is_not_pinned_until_it_has_another
            test_no_pin_is_set_while_the_ledger_cannot_be_counted
            test_the_ledger_is_always_counted
        retention/test_erase.py
            test_no_statement_changes_the_record
        retention/test_hostile_holds.py
            test_no_trick_of_several_statements""",
    "incremental blob I/O is found by the log, and no longer refused": """
        core/test_hostile_statements.py
            test_no_incremental_blob_write_changes_pinned_rows
        retention/test_holds.py
            test_no_incremental_write_changes_a_step""",
    "a plain INSERT takes an id and the session_meta whole, and what that says is derived": """
        rollout/test_schema.py
            test_insert_keeps_every_column
            test_insert_refuses_values_that_it_could_not_keep
            test_insert_without_id_makes_one
            test_redaction_reaches_list_and_size
            test_session_meta_stays_one""",
    "an item is written as type and payload": """
        rollout/test_triggers.py
            test_a_trigger_records_into_another_conversation_or_is_refused
            test_half_a_surrogate_pair_is_refused_as_a_type_in_plain_sql""",
    "the pins are rows of the log, and each has a leaf in place of a hash": """
        core/test_hostile_hashes.py
            test_a_pin_without_the_module_has_its_hash_from_the_next_call
            test_hashes_of_every_length
            test_the_hash_is_what_the_docs_say
        payload/test_archive_cleanup.py
            test_stats_count_rows_bytes_and_pins
        payload/test_pack.py
            test_no_function_puts_another_text_into_a_pinned_row
            test_the_door_needs_the_hash_of_the_row""",
    "a report answers first, a call is named by its tool, and items share blocks": """
        report/test_report_kinds.py
            test_a_conversation_has_turns_marks_tokens_and_relations
            test_a_line_is_no_longer_than_an_item
        report/test_report_page.py
            test_the_shell_is_small""",
    "a phrase hides nothing, and a secret has a digit": """
        report/test_report_masks.py
            test_an_anchor_may_stay
            test_keys_of_vendors_are_masked_wherever_they_stand
            test_members_are_masked_at_every_depth_and_json_stays_json""",
    "a report shows the rows of the log, with their proofs": """
        report/test_report_kinds.py
            test_a_kill_switch_says_who_unpinned_and_what_went
            test_a_kill_switch_says_why_it_was_pulled
        report/test_report_proof.py
            test_a_row_can_be_recomputed_from_the_page
            test_what_is_masked_cannot_be_recomputed_and_the_page_says_so
            test_without_leaves_there_is_no_proof""",
    "blackbox_install() installs core and payload": """
        core/test_install.py
            test_a_row_of_blackbox_call_needs_no_arguments
            test_install_as_a_row_leaves_nothing_when_it_fails""",
    "blackbox_settings shows every setting, and takes text that is a number": """
        cache/test_cache_schema.py
            test_a_preset_is_applied_by_a_row_and_users_can_add_one
        payload/test_archive_bytes.py
            test_refuses_other_limits
        payload/test_archive_cleanup.py
            test_settings_have_default_and_range
        payload/test_queue.py
            test_the_statement_that_the_message_names_turns_it_on
        payload/test_queue_durable.py
            test_a_history_that_is_rolled_back_marks_nothing
        retention/test_work.py
            test_the_settings_are_kept_as_numbers""",
    "the work that due_per_write switched on is always on": """
        cache/test_cache_lifetime.py
            test_an_expired_item_is_not_there_and_is_swept
        retention/test_erase.py
            test_rows_that_wait_elsewhere_do_not_come_back_and_do_not_block_the_others
        retention/test_work.py
            test_a_new_buffer_removes_orphaned_evidence_if_it_is_asked_to
            test_a_new_conversation_removes_expired_ones_if_it_is_asked_to
            test_a_new_item_removes_expired_ones_if_it_is_asked_to
            test_a_setting_says_how_many
            test_other_numbers_are_refused""",
    "the overflow has no guards, and a column of the cache is computed": """
        cache/test_cache_lifetime.py
            test_eviction_is_bounded_alike_in_sql_and_in_c
            test_protected_follows_the_metadata_whatever_is_written
        cache/test_cache_schema.py
            test_check_finds_what_was_damaged_behind_the_triggers
        evidence/test_hostile_evidence.py
            test_an_owner_with_evidence_stays
            test_no_column_of_the_overflow_frees_a_pinned_row
            test_no_statement_changes_a_pinned_row_of_the_overflow
        evidence/test_overflow.py
            test_a_screenshot_deleted_from_the_overflow_has_a_receipt_and_is_reported
            test_no_statement_moves_a_row_of_evidence_to_another_rid
            test_overflowed_rows_can_be_changed_and_deleted
            test_plain_sql_keeps_the_overflow_counters
        retention/test_holds.py
            test_a_temporary_buffers_overflow_is_kept_for_its_owner
            test_check_finds_what_was_done_behind_the_guards
        retention/test_work.py
            test_a_new_buffer_removes_two_rows_of_orphaned_evidence
            test_new_things_of_every_domain_remember_the_time""",
    "every format is version 1, and a file of an earlier build is refused": """
        payload/test_loops.py
            test_a_ring_of_an_older_version_gets_its_table
        payload/test_ring_sql.py
            test_an_install_repairs_an_older_ring
        report/test_report_kinds.py
            test_a_database_shows_what_is_in_it_and_what_is_wrong
        retention/test_clock.py
            test_an_older_file_is_told_to_install""",
    "the rule similar is gone, with the columns for it": """
        payload/test_loops.py
            test_a_rule_that_is_off_by_default_is_reached_when_it_is_enabled
            test_a_rule_that_nobody_knows_and_an_allow_without_a_reason_are_refused
            test_the_ranges_of_an_agent
            test_the_score_counts_prompts_answers_and_tools""",
    "commands cannot be used in triggers": """
        payload/test_queue_flush.py
            test_a_row_that_a_trigger_queues_during_a_flush_waits_for_the_next""",
    "an error after the first write of a row ends the transaction": """
        payload/test_kill_switch.py
            test_a_ring_that_cannot_be_emptied_saves_nothing_by_the_function
            test_a_trigger_that_would_lose_exchanges_makes_the_kill_switch_fail""",
    "receipts of refusals and of the clock are rows of the log: once a day, without a minute": """
        payload/test_archive_bytes.py
            test_a_write_goes_on_if_no_room_can_be_made_and_the_log_says_it
        payload/test_loops.py
            test_replay_finds_in_the_evidence_what_was_found
        retention/test_clock.py
            test_a_confirmed_clock_goes_on
        retention/test_plan.py
            test_a_rule_that_cannot_be_applied_is_a_problem_and_stops_no_other
        retention/test_report.py
            test_the_domain_goes_alone
        retention/test_sweep.py
            test_a_rule_whose_table_is_gone_is_refused_and_stops_no_other
        retention/test_work.py
            test_a_write_never_fails_because_a_row_cannot_go""",
    "a hold and a rule say it in other words, and dbstat tells the pages of a domain": """
        retention/test_holds.py
            test_a_hold_cannot_be_shortened
            test_a_release_of_what_is_not_held_is_an_error
            test_no_statement_changes_the_record
        retention/test_plan.py
            test_a_rule_that_cannot_be_applied_is_a_problem_and_stops_no_other
        retention/test_report.py
            test_a_file_that_can_shrink_in_steps_says_so
            test_a_report_only_reads
            test_an_empty_file
            test_arguments_are_checked
            test_pages_of_a_domain_are_counted_where_sqlite_can
            test_the_write_ahead_log_counts
            test_what_a_sweep_frees_in_an_older_file_only_vacuum_gives_back
            test_what_each_domain_uses_and_what_a_sweep_would_remove
        retention/test_sweep.py
            test_a_refusal_is_written_once_a_day_and_another_one_at_once""",
    "the numbers of erasures are those of the log": """
        retention/test_erase.py
            test_the_certificate_tells_what_is_held_back_and_by_whom""",
    "the limit of a jump of the clock is no setting, and the message says so": """
        retention/test_clock.py
            test_the_error_says_both_times_and_the_limit""",
    "a hold changes rows, and no guards": """
        retention/test_holds_archive.py
            test_a_first_hold_as_a_row_is_refused_without_guards
            test_an_archive_that_is_installed_after_the_hold_is_guarded
            test_guards_that_are_left_after_the_last_release_are_no_problem
            test_the_guards_exist_only_while_there_are_holds
        retention/test_holds_tables.py
            test_a_row_without_guards_is_refused_and_the_function_makes_them
            test_the_guards_exist_only_while_there_are_holds""",
    "a hold never keeps a cap from making a row, and never stops a kill switch": """
        retention/test_holds_archive.py
            test_a_trigger_of_the_user_is_no_way_around_a_hold
            test_held_rows_count_for_max_bytes_and_a_write_without_room_fails
        retention/test_holds_tables.py
            test_a_full_ring_refuses_a_push_and_names_the_hold""",
    "the tables of a ring have no triggers: what is written into them is found": """
        payload/test_ring_sql.py
            test_plain_sql_keeps_the_counters
            test_the_stock_shell_loads_it_under_a_made_up_name
            test_the_stock_shell_pushes
        retention/test_holds_tables.py
            test_a_hold_released_without_the_module_lets_a_push_through
            test_rows_of_a_ring_survive_every_statement
            test_the_row_of_an_agent_is_no_way_around_the_guards""",
    "a verdict that a trigger of the user refuses is left out": """
        payload/test_loops.py
            test_a_trigger_that_pushes_into_the_ring_is_refused
            test_a_trigger_that_refuses_the_verdict_refuses_the_push""",
    "the queue is a table of the connection: a ROLLBACK takes queued rows back": """
        payload/test_queue.py
            test_a_failed_flush_keeps_every_row_in_order_and_reports
            test_at_the_byte_limit_a_transaction_is_told
            test_inside_a_transaction_rows_are_only_staged
            test_more_rows_than_a_batch_in_one_statement
            test_payload_queue_works_as_a_row_of_blackbox_call
            test_rows_go_to_the_schema_that_they_were_queued_for
        payload/test_queue_drop.py
            test_rows_deleted_in_a_transaction_come_back_with_its_rollback
        payload/test_queue_flush.py
            test_a_flush_that_is_stopped_at_its_very_end_writes_no_row_twice
            test_a_row_that_is_packed_at_once_is_not_taken_back
            test_rows_before_one_that_fails_in_another_table_leave_the_queue""",
    "what a packed body is stands in payload__packed, and a pack changes no schema": """
        payload/test_pack.py
            test_a_blob_of_the_user_is_never_misread
            test_a_pinned_row_that_is_packed_keeps_its_text
            test_columns_of_an_adopted_table_are_shown
            test_rows_that_cannot_be_unpacked_do_not_stop_the_others
            test_unpacking_leaves_the_file_as_it_was
            test_unpinned_rows_may_change_and_their_texts_go""",
    "rows are packed in the order in which they were stored, and with each write of the queue": """
        payload/test_pack.py
            test_packing_is_bounded_oldest_first_and_by_age""",
    "only the module writes the tables of a buffer, and pinned rows have a table of the domain": """
        evidence/test_buffer.py
            test_plain_connection_keeps_the_rules
        evidence/test_hostile_evidence.py
            test_no_statement_changes_a_pinned_row_of_the_overflow""",
    "retention_clock is a view": """
        retention/test_clock.py
            test_a_clock_that_has_jumped_ahead_stops_every_rule""",
    "the archive has other triggers, columns and plans": """
        core/test_hostile_check.py
            test_a_trigger_that_skips_ours_can_hide_the_delete_of_a_row_that_is_not_pinned
        payload/test_archive_adoption.py
            test_adoption_by_the_plain_sql_files
        payload/test_dates.py
            test_a_date_is_one_number
            test_a_date_that_cannot_be_computed_is_refused
            test_each_millisecond_is_read_as_it_was_written
            test_the_expression_of_a_date_is_the_same_everywhere
        payload/test_evidence_archived.py
            test_the_search_for_the_archived_row_is_bounded""",
    "what an install makes anew, and damage that it found, is told": """
        retention/test_clock.py
            test_a_lost_row_stops_the_rules_and_is_a_problem""",
}
TESTS = [Test(path, name, why) for why, names in MAY_FAIL.items()
         for path, tests in re.findall(r"(\S+\.py)((?:\s+test_\w+)+)", names)
         for name in tests.split()]

USED = ROOT / "build" / "oracle" / "used"


def use(entry):
    """Remembers that an entry was of use."""
    USED.mkdir(parents=True, exist_ok=True)
    (USED / hashlib.sha256(repr(entry).encode()).hexdigest()).touch()


def translated(statement, translations=TRANSLATIONS):
    for entry in translations:
        statement, n = re.subn(entry.statement, entry.instead, statement)
        if n:
            use(entry)
    return statement


def error(line):
    """What an error is called, and its code; None: the line is no error that has a name."""
    name = re.search(r" ([A-Z]\w+Error): ", line)
    return name and (name[1], *re.findall(r"SQLITE_[A-Z]+|\(\d+\)$", line)[:1])


def unexplained(statement, oracle, checkout, differences=DIFFERENCES):
    """The lines that only one side has, without those that are intended: two lists. The words of
    a message may differ."""
    alone = [list((collections.Counter(a) - collections.Counter(b)).elements())
             for a, b in ((oracle, checkout), (checkout, oracle))]
    if alone == [[], []] and oracle != checkout:
        first = [a == b for a, b in zip(oracle, checkout)].index(False)
        alone = [["in this order:", *oracle[first:]], ["in this order:", *checkout[first:]]]
    names = [{error(line) for line in lines} - {None} for lines in alone]
    alone = [[line for line in lines if error(line) not in others]
             for lines, others in zip(alone, reversed(names))]
    for entry in differences:
        if alone == [[], []]:
            break
        if re.search(entry.statement, statement):
            patterns = entry.oracle, entry.checkout
            if all(pattern is None or any(re.search(pattern, line) for line in lines)
                   for pattern, lines in zip(patterns, alone)):
                alone = [[line for line in lines if pattern is None or not re.search(pattern, line)]
                         for pattern, lines in zip(patterns, alone)]
                use(entry)
    return alone


def stale():
    """The entries that no test has used."""
    used = {path.name for path in USED.glob("*")}
    return [entry for entry in [*DIFFERENCES, *TRANSLATIONS, *LEFT_OUT, *TESTS]
            if hashlib.sha256(repr(entry).encode()).hexdigest() not in used]


if __name__ == "__main__" and USED.is_dir():
    for entry in stale():
        print("tests/differential/intended.py: of no use any more:", *entry)
    sys.exit(bool(stale()))
