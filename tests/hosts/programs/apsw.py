"""APSW: apsw.py MODULE FILE SCENARIO..."""
import sys

sys.path.pop(0)  # this folder, where apsw.py is
import apsw

BOUND = ("bound", "né€😀", b"\x00\xff", None, 1760000000000)

db = apsw.Connection(sys.argv[2])
db.enableloadextension(True)
db.loadextension(sys.argv[1])
db.enableloadextension(False)
print(apsw.sqlitelibversion())
for scenario in sys.argv[3:]:
    for sql in open(scenario, encoding="utf-8").read().split("\n\n"):
        if sql.startswith("--"):
            continue
        try:
            for row in db.cursor().execute(sql, BOUND if "?, ?" in sql else ()):
                print("|".join("" if value is None else str(value) for value in row))
        except apsw.Error as error:
            # APSW puts the name of the result code before the message.
            print("error:", str(error).split(": ", 1)[1])
db.close()
