"""The oracle and the checkout side by side: each statement runs on both, and the answers must be
the same.

The oracle is the module of an older commit (ORACLE in the Makefile). It says what users see:
answers, their types and order, errors with their codes and messages, the rows that a statement
counts, and whether a transaction is open after it. The answer of a statement is a list of lines:

    columns id, agent_id                            the names of the columns of a result
    ('p1', 'a')                                     a row
    IntegrityError SQLITE_CONSTRAINT_TRIGGER: ...   an error: class, code, message
    3 changes, rowid 7                              of an INSERT, UPDATE or DELETE
    in a transaction

Random ids are the only values that may differ: a UUID of version 4 or 7 that the module made, and
what `random` names. Each must then stand where the other side has one, and the same one each time.
The clock is that of clock.py. Differences that are intended are in intended.py."""
import collections
import contextlib
import re
import sqlite3

import pytest

import intended
from clock import Clock
from conftest import MODULE, ROOT, SUFFIX

COMMIT = re.search(r"^ORACLE = (\w+)", (ROOT / "Makefile").read_text(), re.M).group(1)
ORACLE = ROOT / "build" / "oracle" / COMMIT
ORACLE_MODULE = str(ORACLE / ("blackbox" + SUFFIX))
DOMAINS = "cache,core,evidence,payload,proof,report,retention,rollout,store"
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
ROWID = re.compile(
    r"\s*(INSERT|REPLACE)\b[^(]*\b(event_payloads|ring|rec)\b(?!.* DO UPDATE )", re.I)
ERROR = re.compile(r"\w+Error \w*: ")
SHOWN = 5  # differences of a test

needs_oracle = pytest.mark.skipif(
    not (ORACLE / ("blackbox" + SUFFIX)).exists(),
    reason=f"there is no build of commit {COMMIT}, which needs git and its history: make oracle")


class Side:
    """A connection to a file of its own, with one of the modules."""

    def __init__(self, folder, module):
        folder.mkdir(parents=True)
        self.folder, self.module = folder, module
        self.connect()

    def connect(self):
        path = self.folder / "test.db"
        self.db, self.plain = (
            sqlite3.connect(path, isolation_level=None, timeout=0) for _ in range(2))
        for db in (self.db, self.plain):
            db.text_factory = lambda text: text.decode(errors="surrogateescape")
            db.execute("PRAGMA synchronous = OFF")
        self.db.enable_load_extension(True)
        self.db.load_extension(self.module)

    def close(self):
        self.plain.close()
        self.db.close()

    def answer(self, sql, values, plain=False):
        db = self.plain if plain else self.db
        values = [value.replace("{folder}", str(self.folder)) if isinstance(value, str) else value
                  for value in values]
        lines = []
        try:
            cursor = db.execute(sql, values)
            if cursor.description:
                lines.append("columns " + ", ".join(column[0] for column in cursor.description))
            for row in cursor:
                lines.append(repr(row))
            if cursor.rowcount >= 0:
                told = cursor.rowcount and ROWID.match(sql)
                lines.append(f"{cursor.rowcount} changes"
                             + (f", rowid {cursor.lastrowid}" if told else ""))
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorname", "")
            lines.append(f"{type(error).__name__} {code}: {error}")
        if db.in_transaction:
            lines.append("in a transaction")
        return [line.replace(str(self.folder), "{folder}") for line in lines]

    def derive(self):
        """Derives what follows from the items of plain SQL, as the oracle does at once."""
        for id, in self.db.execute("SELECT id FROM rollouts").fetchall():
            with contextlib.suppress(sqlite3.Error):
                self.db.execute("SELECT rollout_append(?, '[]')", (id,)).fetchall()


class Pair:
    """Use it in a `with` statement, at the end of which all differences are reported."""

    def __init__(self, folder, domains=DOMAINS, modules=(ORACLE_MODULE, MODULE),
                 differences=intended.DIFFERENCES, translations=intended.TRANSLATIONS,
                 strict=False):
        self.strict = strict  # every statement succeeds
        self.folder, self.domains, self.modules = folder, domains, modules
        self.differences, self.translations = differences, translations
        self.names = {}     # the oracle's id for each random id of the checkout
        self.given = set()  # ids of statements
        self.found = []
        self.count = 0

    def __enter__(self):
        self.clock = Clock().__enter__()
        try:
            self.sides = [Side(self.folder / name, module)
                          for name, module in zip(("oracle", "checkout"), self.modules)]
            if self.domains:
                self.run("SELECT blackbox_install('main', ?)", self.domains)
                # Imported conversations of the oracle expire as others do.
                self.sides[1].answer("UPDATE blackbox_settings SET value = 60"
                                     " WHERE name = 'rollout.import_ttl_days'", [])
        except BaseException:
            self.clock.__exit__()
            raise
        return self

    def __exit__(self, failed, *_):
        try:
            for side in self.sides:
                side.close()
        finally:
            self.clock.__exit__()
        if not failed:
            self.report()

    def report(self):
        assert not self.found, "\n".join(self.found)

    def reconnect(self):
        for side in self.sides:
            side.close()
            side.connect()

    def run(self, sql, *values, plain=False, random=None, ordered=True):
        """Runs a statement on both sides. Returns the lines that the oracle answered.

        plain: on a connection without the module. random: a pattern of what may differ beside
        UUIDs. ordered: whether the order of the rows is a part of the answer."""
        self.count += 1
        for text in (sql, *values):
            if isinstance(text, str):
                self.given.update(re.findall(UUID, text))
        instead = intended.translated(sql, self.translations)
        answers = [side.answer(text, values, plain)
                   for side, text in zip(self.sides, (sql, instead))]
        if instead != sql:  # a column without a name has that of its text
            answers = [[line for line in lines if not line.startswith("columns ")]
                       for lines in answers]
        assert not (self.strict and any(ERROR.match(line) for line in answers[0][-2:])), answers[0]
        if re.search(r"\binto rollout_(log|items)\b|\bupdate\b.* rollout_items\b", instead, re.I):
            self.sides[1].derive()
        if answers[0] != answers[1]:
            self.compare(f"{sql}  {list(values)!r}", *answers, random, ordered)
        return answers[0]

    def compare(self, statement, oracle, checkout, random, ordered):
        pattern = re.compile(f"{UUID}|{random}" if random else UUID)
        checkout = [pattern.sub(self.name, line) for line in checkout]
        self.learn(pattern, oracle, checkout)
        checkout = [pattern.sub(self.name, line) for line in checkout]
        oracle, checkout = ([self.masked(pattern, line) for line in lines]
                            for lines in (oracle, checkout))
        if not ordered:
            oracle, checkout = sorted(oracle), sorted(checkout)
        alone = intended.unexplained(statement, oracle, checkout, self.differences)
        if alone != [[], []]:
            self.found.append(told(self.count, statement, *alone))
            if len(self.found) == SHOWN:
                self.report()

    def known(self):
        return self.given.union(self.names, self.names.values())

    def masked(self, pattern, line):
        """The line with ? for the ids of which nobody knows what they are on the other side."""
        known = self.known()
        return pattern.sub(lambda id: id.group() if id.group() in known else "?", line)

    def learn(self, pattern, oracle, checkout):
        """Random ids that stand in the same places of a line, which each side has once, are the
        same from now on."""
        places = [collections.defaultdict(list) for _ in range(2)]
        for side, lines in zip(places, (oracle, checkout)):
            for line in lines:
                side[self.masked(pattern, line)].append(pattern.findall(line))
        known = self.known()
        for text, theirs in places[0].items():
            if len(theirs) == len(places[1][text]) == 1:
                for a, b in zip(theirs[0], places[1][text][0]):
                    if a != b and a not in known and b not in known:
                        self.names[b] = a
                        known |= {a, b}

    def name(self, match):
        return self.names.get(match.group(), match.group())


def told(count, statement, oracle, checkout):
    """A difference, as a person reads it: of long lines what is around the first difference."""
    lines = [f"statement {count}: {clip(statement, 0, 500)}"]
    at = 0
    if oracle and checkout:
        same = [a == b for a, b in zip(oracle[0], checkout[0])]
        at = max((same + [False]).index(False) - 100, 0)
    for name, side in (("oracle", oracle), ("checkout", checkout)):
        lines += [f"  {name + ':':10}{clip(line, at, 400)}" for line in side[:5]] or \
            [f"  {name + ':':10}has no such line"]
    return "\n".join(lines)


def clip(text, at, length):
    return "..." * (at > 0) + text[at:at + length] + "..." * (len(text) > at + length)
