"""The file that the command line looks into, and the statements of its commands.

commands.json and commands.sql are those that the package of npm has, too.
"""
import json
import os
import re
import sqlite3
import time

import blackbox
from blackbox import quoted

__all__ = ["ABOUT", "Failure", "File"]

ABOUT = json.loads(blackbox.shared("commands.json"))


class Failure(Exception):
    """What is told, and the exit code."""

    def __init__(self, text, code=1):
        super().__init__(text)
        self.code = code


class File:
    """A flight recorder's file. It is not changed, unless it is opened for an import."""

    def __init__(self, options, writes=False):
        self.path = options["db"]
        if self.path is None:
            self.path = os.environ.get("BLACKBOX_DB") or "flight.db"
        self.options = options
        if not self.path or (not writes and not os.path.exists(self.path)):
            raise Failure(f"there is no file {self.path}; name one with --db")
        try:
            self.db = blackbox.load(self.connect())
            if writes:
                self.db.execute("SELECT blackbox_install('main', 'payload,rollout')").fetchone()
                self.db.execute("PRAGMA journal_mode = WAL").fetchone()
                blackbox.load_prices(self.db)
            else:
                self.db.execute("PRAGMA query_only = 1")
            self.domains = {None}
            if self.values("SELECT 1 FROM sqlite_schema WHERE name = 'blackbox_domains'"):
                self.domains |= {name for name, in self.values("SELECT domain FROM blackbox_domains")}
            if self.values("SELECT 1 FROM sqlite_schema WHERE name = 'rollout_fts'"):
                self.domains.add("search")
            if "core" not in self.domains:
                raise Failure(ABOUT["none"].replace("{file}", self.path))
            self.has_ring = bool(self.values(
                "SELECT 1 FROM sqlite_schema WHERE name = ?", (options["ring"].split(".")[-1],)))
            if not self.has_ring and options["ring"] != ABOUT["options"]["ring"]["default"]:
                raise Failure(f"{self.path} has no ring {options['ring']}")
        except sqlite3.Error as error:
            hint = ABOUT["readonly"] if "readonly" in str(error) and not writes else ""
            raise Failure(f"{self.path}: {error}{hint}") from error

    def connect(self):
        return sqlite3.connect(self.path, timeout=5, isolation_level=None, check_same_thread=False)

    def values(self, sql, values=()):
        return self.db.execute(sql, values).fetchall()

    def sections(self, wanted):
        """The statements of a command that the file can answer."""
        parts = re.split(r"^--: (\w+) ?(\w*)\n", blackbox.shared("commands.sql"), flags=re.M)[1:]
        found = list(zip(parts[::3], parts[1::3], parts[2::3]))
        used = next(sql for name, _, sql in found if name == "used")
        ring = self.options["ring"]
        for name, needs, sql in found:
            sql = sql.replace("{used}", used)
            if name == wanted and (needs or None) in self.domains \
                    and (self.has_ring or "{ring" not in sql):
                yield sql.replace("{ring_agents}", quoted(ring + "_agents")).replace(
                    "{ring}", quoted(ring))

    def rows(self, command, **values):
        """The rows of a command, as dictionaries."""
        values = {"key": None, "rows": self.options["rows"], "now": int(time.time() * 1000),
                  "indexed": "search" in self.domains, **values}
        for sql in self.sections(command):
            cursor = self.db.execute(sql, values)
            names = [column[0] for column in cursor.description]
            for row in cursor:
                yield dict(zip(names, row))

    def page(self, kind, key, form, folder=None):
        """The parts of a report, or what was done to make those of the file in a folder. JSON is one line."""
        whole = form == "json"
        self.allow_reports()
        if folder:
            self.db.execute("PRAGMA query_only = 0")
        for line, in self.db.execute(ABOUT["commands"]["report"]["site" if folder else "lines"],
                                     {"kind": kind, "key": key, "format": form, "folder": folder}):
            yield line.replace("\n", "") if whole else line + "\n"
        yield "\n" if whole else ""

    def allow_reports(self):
        """Installs report beside the file, which is not changed."""
        if "report" not in self.domains:
            self.db.execute("PRAGMA query_only = 0")
            self.db.execute("ATTACH ':memory:' AS report")
            self.values("SELECT blackbox_install('report', 'report')")
            self.db.execute("SELECT blackbox_use('main')").fetchone()
            self.domains.add("report")
