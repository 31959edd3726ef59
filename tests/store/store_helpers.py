"""What the tests of the store share: rows whose texts it has."""
import random

from conftest import one, problems, rows

# Rows of the archive as notes: what the store has are the texts of these.
NOTES = """
CREATE VIEW S.notes AS
SELECT CAST(id AS INTEGER) AS id, request_body AS a, response_body AS b FROM event_payloads;
CREATE TRIGGER S.notes_insert INSTEAD OF INSERT ON notes BEGIN
  INSERT INTO event_payloads(id, event_id, agent_id, purpose, request_body, response_body)
  VALUES(NEW.id, 'e', 'a', 'archive', NEW.a, NEW.b);
END;
CREATE TRIGGER S.notes_update INSTEAD OF UPDATE ON notes BEGIN
  UPDATE event_payloads SET request_body = NEW.a, response_body = NEW.b WHERE id = NEW.id;
END;
CREATE TRIGGER S.notes_delete INSTEAD OF DELETE ON notes BEGIN
  DELETE FROM event_payloads WHERE id = OLD.id;
END;
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
    return one(db, "SELECT store_pack(?)", keys)


def erase(db, id, schema="main"):
    """Deletes a note and sweeps its texts. Returns how many notes went."""
    db.execute("BEGIN")
    try:
        name = schema.replace('"', '""')
        gone = db.execute(f'DELETE FROM "{name}".event_payloads WHERE id = ?', (id,)).rowcount
        one(db, "SELECT store_sweep(1000, ?)", schema)
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
    return gone


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
