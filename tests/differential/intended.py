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

Difference = collections.namedtuple("Difference", "statement oracle checkout why")
Translation = collections.namedtuple("Translation", "statement instead why")
Test = collections.namedtuple("Test", "pattern why")

GONE = r"^\('(\w+\.due_per_write|payload\.vacuum_pages|payload\.window|proof\.enabled|" \
       r"core\.max_clock_jump_days)', "

# What a statement answers on both sides.
DIFFERENCES = [
    Difference(
        r"^SELECT blackbox_install\(", r"main: (cache, core, evidence|core), payload, proof\b",
        r"main: (core, payload$|cache, core, evidence, payload, report, retention, rollout, store')",
        "the domain proof is a part of core"),
    Difference(
        r"FROM blackbox_domains", r"^\('proof',\)$", None, "the domain proof is a part of core"),
    Difference(
        r"FROM blackbox_limits", GONE, None, "these settings are gone: nobody needs to set them"),
    Difference(
        r"FROM blackbox_limits", r"^\('(cache.max_(age|idle)_days|rollout.policy)', ",
        r"^\('(cache.max_(age|idle)_days', .*'0.0 to 36500.0'|rollout.policy', .*'a preset of "
        r"rollout_policy')", "a range says whether fractions are allowed, and whether it is a list"),
    Difference(
        r"^(INSERT|REPLACE|DELETE)\b[^(]* blackbox_settings\b", r"^\d+ changes$", r"^0 changes$",
        "each setting has its row, which a trigger changes in place of the INSERT or DELETE"),
    Difference(
        r"INTO blackbox_settings\b", r"ValidationError: unknown setting;",
        r"ValidationError: the installed domains have no such setting;", "another message"),
    Difference(
        r"\b(blackbox_settings|cache_use\w*)\b", r"ValidationError: the value of a setting is out of range;",
        r"ValidationError: (the value is not in the range of the setting;|rollout\.policy must be "
        r"a preset of rollout_policy)",
        "another message, of a CHECK in place of a trigger"),
    Difference(
        r"\bpayload_queue\b", r"nothing was stored; INSERT OR REPLACE INTO \"main\"\.blackbox_settings "
        r"VALUES\('payload\.enabled', 1\) to enable the archive, or ",
        r"nothing was stored; UPDATE \"main\"\.blackbox_settings SET value = 1 WHERE name = "
        r"'payload\.enabled' to enable the archive, or ", "how a setting is set now"),
    Difference(
        r"^SELECT object, problem FROM blackbox_check;", r"^blackbox_settings_update\|trigger is "
        r"missing", r"^blackbox_settings_insert\|trigger is missing",
        "the trigger that the session drops is the other one"),
    Difference(
        r"^SELECT \* FROM blackbox_check;$", None,
        r"^main\|blackbox__log\|row \d+: has no leaf yet, nor have 0 after it: they were written "
        r"without the module; SELECT proof_head\(\) takes them in$",
        "each row of the log is proved, and what plain SQL wrote waits for the next call"),
    Difference(
        r"FROM payload_rules\b", r"^\('similar', ", None, "the rule similar is gone"),
    Difference(
        r"FROM payload_loops\(", r"^\('\w+', 'similar', 'stop', 0, 0, ", None,
        "the rule similar, which was off, is gone"),
    Difference(
        r"FROM retention_rules\b", r"^\('evidence\.orphans', 'evidence', 'evidence_overflow', ",
        r"^\('evidence\.orphans', 'evidence', 'evidence__overflow', ",
        "the names of inner tables have two underscores"),
    Difference(
        r"^INSERT INTO ring\(ring, value\)",
        r"^IntegrityError SQLITE_CONSTRAINT_TRIGGER: HeldError: a hold keeps this exchange, ",
        r"^OperationalError SQLITE_FULL: HeldError: a hold keeps this exchange, ",
        "an error after the first write of a row has a code with which SQLite undoes it"),
    Difference(
        r"^(DELETE FROM|UPDATE) (retention_log|retention_hold_log|retention_holds|payload_unpins)\b",
        r"^(0 changes|IntegrityError SQLITE_CONSTRAINT_TRIGGER: .* (be deleted|be changed)\b.*)$",
        r"^OperationalError SQLITE_ERROR: cannot modify \w+ because it is a view$",
        "they are views of the log, and SQLite refuses the write"),
    Difference(
        r"^INSERT OR ", r"UNIQUE constraint failed: sqlite_sequence\.rowid$",
        r"UNIQUE constraint failed: blackbox__probe\.one$",
        "the probe for OR IGNORE has a table of its own"),
    Difference(
        r"FROM retention_log\b", r"'core', 'clock confirmed', None, 0, 0, ", None,
        "no receipt, but a row of the log of the kind clock"),
    Difference(
        r"", r" the newest time that this file has seen; core\.max_clock_jump_days allows 7; if the "
        r"clock is right, SELECT retention_confirm_clock\(\)$",
        r" the newest time that this file has seen; a jump of more than 7 days stops all rules; if "
        r"the clock is right, SELECT retention_confirm_clock\(\)$",
        "the setting is gone, its default is the rule"),
    Difference(
        r"\bretention_holds?\b",
        r"ValidationError: (until must be a time in the future|(owner|actor|reason) must be visible)",
        r"ValidationError: owner, actor and reason must be visible text",
        "one message for all three, which comes before that of the time"),
    Difference(
        r"FROM retention_log\b", r"'rollout', 'rollout\.expired', None, \d+, \d+, \d+, \d+\)$",
        r"'rollout', 'rollout\.expired', None, \d+, \d+, \d+, \d+\)$",
        "oldest and newest of a bulk act are the times of the conversations, as in the receipts "
        "of all other removals, and no longer the times when they expired"),
    Difference(
        r"FROM proof_log\b", r"^\d\|(evidence|pin|unpin)\|\d\|[01]$",
        r"^\d\|(kill_switch|pin|unpin)\|\d\|1$", "a leaf is a row of the log"),
    Difference(
        r"FROM proof_verify;", r"^1\|evidence\|was altered: ", r"^0\|pin\|was altered: ",
        "the leaf of a row of the archive is that of its pin"),
    Difference(
        r"", r"; use another one, or wait until the time in "
        r"retention_erased\b", r"; use another one, or wait until the time in retention_erasures\b",
        "the table retention_erased is an inner one"),
]

# What the checkout is given in place of a statement of the oracle.
TRANSLATIONS = [
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
        r"^DROP TRIGGER blackbox_settings_update\b", "DROP TRIGGER blackbox_settings_insert",
        "blackbox_settings has another trigger"),
    Translation(
        r"^SELECT (step|id), (.* FROM retention_(hold_log|erasures);)",
        r"SELECT row_number() OVER (ORDER BY \1), \2", "the numbers are those of the log"),
    Translation(
        r"\bblackbox_limits\b", "blackbox_settings", "blackbox_settings shows every setting"),
    Translation(
        r"(, )?\('(\w+\.due_per_write', 2|proof\.enabled', 1)\)", "",
        "what these settings switched on is always on"),
    Translation(
        r"\bINTO (\"?\w+\"?\.|)blackbox_settings (VALUES ?\(|SELECT )",
        r"INTO \1blackbox_settings(name, value) \2",
        "blackbox_settings has more columns"),
]

# The tests of the oracle that may fail with the checkout's module: a pattern of their names, as of
# files (with * in place of what stands in brackets), and why.
TESTS = [
]

USED = pathlib.Path(__file__).resolve().parents[2] / "build" / "oracle" / "used"


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


def unexplained(statement, oracle, checkout, differences=DIFFERENCES):
    """The lines that only one side has, without those that are intended: two lists."""
    alone = [list((collections.Counter(a) - collections.Counter(b)).elements())
             for a, b in ((oracle, checkout), (checkout, oracle))]
    if alone == [[], []] and oracle != checkout:
        first = [a == b for a, b in zip(oracle, checkout)].index(False)
        alone = [["in this order:", *oracle[first:]], ["in this order:", *checkout[first:]]]
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
    return [entry for entry in [*DIFFERENCES, *TRANSLATIONS, *TESTS]
            if hashlib.sha256(repr(entry).encode()).hexdigest() not in used]


if __name__ == "__main__" and USED.is_dir():
    for entry in stale():
        print("tests/differential/intended.py: of no use any more:", *entry)
    sys.exit(bool(stale()))
