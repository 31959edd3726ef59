"""Python's sqlite3: python.py MODULE FILE SCENARIO..."""
import sqlite3
import sys

BOUND = ("bound", "né€😀", b"\x00\xff", None, 1760000000000)

db = sqlite3.connect(sys.argv[2], isolation_level=None)
db.enable_load_extension(True)
db.load_extension(sys.argv[1])
db.enable_load_extension(False)
print(sqlite3.sqlite_version)
for scenario in sys.argv[3:]:
    for sql in open(scenario, encoding="utf-8").read().split("\n\n"):
        if sql.startswith("--"):
            continue
        try:
            for row in db.execute(sql, BOUND if "?, ?" in sql else ()):
                print("|".join("" if value is None else str(value) for value in row))
        except sqlite3.Error as error:
            print("error:", error)
db.close()
