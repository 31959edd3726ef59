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
from may_fail import MAY_FAIL

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
    Difference(
        r"\bpayload_starts\b", r" NotFoundError: no agent of this name is stopped; ",
        r" ValidationError: (agent_id|actor|reason) must be text", "what is given is checked first"),
    Difference(
        r"\brollout_log\b", r" RolloutNotFoundError: ", r" InvalidItemError: ", "of two reasons, the other one"),
    Difference(
        r"\bblackbox_erase\(", r" ValidationError: ", r"^OperationalError SQLITE_ERROR: malformed JSON$",
        "the options that remember.py adds to must be JSON"),
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
    *(Translation(
        rf"\bFROM (\"(?:[^\"]|\"\")+\"\.|\w+\.|){domain}_check\b",
        "FROM (" + (ROOT / "sql" / f"{domain}_check.sql").read_text().strip("; \n")
        .split("\nUNION ALL\nSELECT 'payload_agents'")[0].replace("main.", r"\1") + "\n)",
        "what a domain checks is a query of the module")
      for domain in ("cache", "payload", "rollout")),
    Translation(
        r"^INSERT INTO (\S*)blackbox_settings SELECT name, 0 FROM \S*blackbox_limits "
        r"WHERE name GLOB '\*\.due_per_write'",
        r"UPDATE \1blackbox_settings SET value = 1000000000000 "
        "WHERE name = 'payload.history_until'",
        "what is due goes with each write, unless it is history"),
    Translation(
        r"^SELECT \* FROM payload_usage\(",
        "SELECT model, input, cache_write, cache_read, output, reasoning FROM payload_usage(",
        "it also has the tokens that a cache keeps for an hour"),
    Translation(r"^DROP TRIGGER cache_items_update$", "DROP TRIGGER cache_update", "another name"),
    Translation(r"^DROP TRIGGER rollout_data_stay$", "SELECT 1", "that an item stays is found, and not stopped"),
    Translation(
        r"\bFROM rollout_texts\b(?: WHERE text IS NOT NULL)?", "FROM rollout_messages",
        "the view of what was said has another name"),
    Translation(
        r"\brollout_heads\(id, stamp\) VALUES \(\?, 1\)", "rollout_heads(id) VALUES (?)",
        "no counter of writes is needed"),
    Translation(
        r"\bstamp = stamp \+ 1, |, stamp = stamp \+ 1$", "",
        "no counter of writes is needed"),
    Translation(
        r"^SELECT count\(\*\) FROM .*\.ring_steps$", "SELECT 0",
        "the row of an exchange has its steps"),
    Translation(
        r"^SELECT written, items_before, rule FROM .+cache_state$", "SELECT NULL, NULL, NULL",
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
