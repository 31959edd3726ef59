"""What the tests of the store share: a table of notes that uses the store."""
import random

from conftest import one, problems, rows

# A user of the store: a table, its two views, and the triggers by which the store replaces
# values and removes rows, and hears of rows that are gone.
REFERENCE = "(typeof({0}) = 'blob' AND substr({0}, 1, 4) = x'b1627801')"
NUMBER = "CAST(substr({0}, 37) AS INTEGER)"
NOTES = f"""
CREATE TABLE S.notes(id INTEGER PRIMARY KEY, a, b);
CREATE VIEW S.notes_bodies AS SELECT id AS key, a, b FROM notes;
CREATE VIEW S.notes_texts AS
SELECT {NUMBER.format("a")} AS text, a AS reference, id AS key FROM notes
 WHERE {REFERENCE.format("a")}
UNION ALL
SELECT {NUMBER.format("b")}, b, id FROM notes WHERE {REFERENCE.format("b")};
CREATE INDEX S.notes_a ON notes({NUMBER.format("a")}) WHERE {REFERENCE.format("a")};
CREATE INDEX S.notes_b ON notes({NUMBER.format("b")}) WHERE {REFERENCE.format("b")};
CREATE TRIGGER S.notes_put INSTEAD OF INSERT ON notes_bodies BEGIN
  UPDATE notes SET a = NEW.a, b = NEW.b WHERE id = NEW.key;
END;
CREATE TRIGGER S.notes_remove INSTEAD OF DELETE ON notes_bodies BEGIN
  DELETE FROM notes WHERE id = OLD.key;
END;
CREATE TRIGGER S.notes_gone AFTER DELETE ON notes BEGIN
  INSERT INTO store_dropped(text) SELECT {NUMBER.format("OLD.a")}
   WHERE {REFERENCE.format("OLD.a")};
  INSERT INTO store_dropped(text) SELECT {NUMBER.format("OLD.b")}
   WHERE {REFERENCE.format("OLD.b")};
END;
INSERT INTO S.store_users VALUES('notes_bodies', 'notes_texts');
"""


def make_notes(db, schema="main"):
    db.executescript(NOTES.replace("S.", '"' + schema.replace('"', '""') + '".'))
    return db


def add(db, id, a, b=None, schema="main"):
    db.execute(f'INSERT INTO "{schema}".notes VALUES(?,?,?)', (id, a, b))


def pack(db, *ids):
    """Packs notes, all of them if none is named. Returns what store_pack() says."""
    keys = "[" + ",".join(map(str, ids)) + "]" if ids else \
        one(db, "SELECT json_group_array(id) FROM notes")
    return one(db, "SELECT store_pack('notes_bodies', ?)", keys)


def texts(db):
    """All notes as they read, without references."""
    return rows(db, "SELECT id, store_text(a), store_text(b) FROM notes ORDER BY id")


def stats(db):
    names = [row[1] for row in db.execute("PRAGMA table_info(store_stats)")]
    return dict(zip(names, db.execute("SELECT * FROM store_stats").fetchone()))


def whole(db):
    found = problems(db)
    assert not found, found


def words(seed, n):
    """Text of about n bytes, which is the same for the same seed."""
    make = random.Random(seed)
    parts = []
    while n > 0:
        word = "".join(make.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(make.randint(2, 9)))
        parts.append(word)
        n -= len(word) + 1
    return " ".join(parts)


def noise(seed, n):
    """Bytes that cannot be compressed."""
    return random.Random(seed).randbytes(n)
