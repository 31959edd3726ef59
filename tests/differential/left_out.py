"""The tests of the oracle that are left out: the pattern is one of what a failure says."""
import collections

LeftOut = collections.namedtuple("LeftOut", "pattern why")

# A test of the oracle is left out when one of its statements fails so. The pattern is searched for
# in the statement, a line end and the error.
LEFT_OUT = [
    LeftOut(r"\bno such column: hash$", "a pin has no hash of its own"),
    LeftOut(r"\bpayload_ledger|\bblackbox_ledgers\b", "the pins are rows of the log"),
    LeftOut(r"\b(payload_(agent_log|pins|unpins)|retention_(erasures|hold_log|log|refusals))\b"
            r"[\s\S]*\n.*\bview\b",
            "they are views of the log, and SQLite refuses the write, or the trigger"),
    LeftOut(r"\bretention_(held|hold_state)\b|"
            r"\bno such trigger: retention_(log|erasures|hold_log)_",
            "the holds, receipts and erasures are rows of the log"),
    LeftOut(r"\nno such \w+: (main\.|temp\.)?(payload_(archive|by_event|clear|delete_check|landing|"
            r"made_held_delete|sweep|volume)|ring_\w+|.*\"_(bound|heldrow)|bulk|why|core_check|"
            r"evidence_overflow_\w+|evidence_{1,2}check|store_\w+|rec_\w+)$",
            "the archive, rings, buffers, evidence and the store have fewer inner objects"),
    LeftOut(r"\bevent_payloads has 11 columns but 1[02] values|\bambiguous column name: created_ms$|"
            r"\bno such function: store_text$|\bindex idx_payloads_event_id already exists$",
            "event_payloads has the columns meta and created_ms, other indexes, and it calls "
            "no function"),
    LeftOut(r"\nno such (table|view|trigger): (\w+\.)?(cache_(access|quota|use|presets|limits|victims|due_\w+)|"
            r"rollout_(heads|forks|cleanup|rebuilds|imports|act|about|segments|turns|frames|due))$|"
            r"\bcannot modify rollout_heads|\bcache_access\.(hits|used_at)$",
            "the cache and rollout have fewer inner objects, and fewer ways in"),
    LeftOut(r"\nNotFoundError: the profile '\w+' has no enabled rule", "the message fits blackbox_mask(), too"),
    LeftOut(r"\bInvalidKeyFormatError: session_id, task_id and turn_id must be ",
            "one message for the parts of a key"),
    LeftOut(r"\nno such (table|view): (\w+\.)?(payload_prices|rollout_prices|rollout_days|"
            r"payload_usage_formats|payload_error_texts|payload_history|proof_log|retention_clock)$",
            "one table of prices, one of formats, one view of the log"),
    LeftOut(r"\bNOT NULL constraint failed: event_payloads.id$", "an id is not NULL"),
    LeftOut(r"\nno such table: sqlite_sequence$", "no table of rollout has AUTOINCREMENT"),
    LeftOut(r"\bON main\.blackbox_probe\b", "what a TEMP trigger on an inner table does is found"),
    LeftOut(r"\bproof_(state|leaves|salts|nodes)\b", "the tree of the log is another one"),
    LeftOut(r"\bblackbox_setting_defs\b|\b\w+_config\b[\s\S]*\n.*\bno such column: [kv]$",
            "a setting has a row with a name and a value"),
    LeftOut(r"\nValidationError: the installed domains have no such setting;",
            "the setting is gone"),
    LeftOut(r"\nCHECK constraint failed: ValidationError: the value is not in the range of the "
            r"setting", "another message"),
    LeftOut(r"\n(\w+Error: )*Database not initialized: no schema has the tables of \w+; ",
            "another message, which names the domain"),
    LeftOut(r"\bno such function: payload_(simhash|hamming|similar|normalize)$",
            "the rule similar and its functions are gone"),
    LeftOut(r"\bno such column: version$|\bhas no column named version$|"
            r"\nVersionError: schema .* was made by a build of blackbox before 1\.0",
            "every format is version 1, and a file of an earlier build is refused"),
    LeftOut(r"\bunsafe use of virtual table \"(payload_queue|blackbox_call)\"",
            "commands cannot be used in triggers"),
    LeftOut(r"\nPinnedError: schema \w+ has \d+ pinned rows of event_payloads, and nothing was "
            r"removed; ",
            "blackbox_uninstall(..., 'force') is refused while rows are pinned"),
]
