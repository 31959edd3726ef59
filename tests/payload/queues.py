"""What the tests of the queue share."""
from conftest import rows

CALL = "SELECT payload_queue(?, 'a', ?, 'r')"
ROW = ("INSERT INTO payload_queue(event_id, agent_id, request_body, response_body) "
       "VALUES(?, 'a', ?, 'r')")
CALLED = "INSERT INTO blackbox_call VALUES('payload_queue', json_array(?, 'a', ?, 'r'))"


def setting(db, name, value, schema="main"):
    db.execute(f"INSERT OR REPLACE INTO {schema}.blackbox_settings VALUES(?,?)",
               ("payload." + name, value))


def in_memory(db):
    """Enables the archive, with its queue in mode memory."""
    db.execute("PRAGMA synchronous=OFF")
    setting(db, "enabled", 1)
    setting(db, "queue_mode", "memory")
    setting(db, "flush_interval_ms", 60000)
    return db


def put(db, *events, body="q", how=CALL):
    for event in events:
        db.execute(how, (event, body)).fetchall()


def stored(db, schema="main"):
    return [r[0] for r in rows(db, f"SELECT event_id FROM {schema}.event_payloads "
                               "WHERE purpose = 'archive' ORDER BY rowid")]


def waiting(db):
    return [r[0] for r in rows(db, "SELECT event_id FROM payload_queue")]
