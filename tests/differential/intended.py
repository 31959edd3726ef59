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

# What a statement answers on both sides.
DIFFERENCES = [
]

# What the checkout is given in place of a statement of the oracle.
TRANSLATIONS = [
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
