"""ODBC, through pyodbc: odbc.py MODULE FILE SCENARIO..."""
import re
import sys

import pyodbc

BOUND = ("bound", "né€😀", b"\x00\xff", None, 1760000000000)

db = pyodbc.connect(f"Driver=SQLite3;Database={sys.argv[2]};LoadExt={sys.argv[1]};BigInt=1", autocommit=True)
print(db.execute("SELECT sqlite_version()").fetchone()[0])
for scenario in sys.argv[3:]:
    for sql in open(scenario, encoding="utf-8").read().split("\n\n"):
        if sql.startswith("--"):
            continue
        try:
            cursor = db.execute(sql, BOUND if "?, ?" in sql else ())
            for row in cursor.fetchall() if cursor.description else ():
                print("|".join("" if value is None else str(value) for value in row))
        except pyodbc.Error as error:
            # '[HY000] [SQLite]message (19) (19) (SQLExecDirectW)'
            print("error:", re.sub(r"^.*?\[SQLite\]|( \(\d+\))+ \(\w+\)$", "", error.args[1]))
db.close()
