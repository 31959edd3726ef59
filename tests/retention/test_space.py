"""A file that nobody tends does not grow with its traffic: each write gives back a little more
than it takes."""
import random
import sys
import time

import pytest

from conftest import FULL, ROOT, connect, one, problems, rows, some

sys.path.insert(0, str(ROOT / "tests/differential"))
from clock import Clock  # noqa: E402

MB = 1_000_000
WRITES = {"row": "INSERT INTO payload_queue(event_id, agent_id, request_body, response_body)"
                 " VALUES(?, ?, ?, ?)",
          "call": "SELECT payload_queue(?, ?, ?, ?)"}
PUSH = "INSERT INTO ring(event_id, agent_id, request_body, response_body) VALUES(?, ?, ?, ?)"

make = random.Random(0)
WORDS = ["".join(make.choices("abcdefghij", k=make.randint(2, 8))) for _ in range(50_000)]


def installed(path, pack, *settings):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'payload,store,retention')")
    db.execute("PRAGMA synchronous = OFF")
    for name, value in ("payload.enabled", 1), ("payload.pack", pack), *settings:
        db.execute("UPDATE blackbox_settings SET value = ? WHERE name = ?", (value, name))
    return db


def exchanges(count, seed=1):
    """Exchanges of ten agents, each of which repeats what was said before."""
    make = random.Random(seed)
    said = {}

    def words(n):
        return " ".join(make.choices(WORDS, k=n // 6))

    for i in range(count):
        agent = f"a{make.randrange(10)}"
        before = said.get(agent, "")
        said[agent] = before + " " + words(600) if len(before) < 6000 else words(1500)
        yield f"e{i}", agent, said[agent], words(700)


def sizes(db, tmp_path):
    """Bytes: of the file, of its pages in use, and of the file that VACUUM INTO makes."""
    pages, free, size = (one(db, f"PRAGMA {name}")
                         for name in ("page_count", "freelist_count", "page_size"))
    copy = tmp_path / "copy.db"
    copy.unlink(missing_ok=True)
    db.execute("VACUUM INTO ?", (str(copy),))
    return pages * size, (pages - free) * size, copy.stat().st_size


@pytest.mark.parametrize("pack, how", some(
    [(pack, how) for pack in (0, 1) for how in WRITES], 3))
def test_in_a_year_of_writes_a_file_grows_to_what_it_keeps(path, tmp_path, pack, how):
    db = installed(path, pack, ("payload.retention_days", 7))
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=20)")
    files, count = [], 3650 if FULL else 1500
    with Clock() as clock:
        db.execute("UPDATE retention__clock SET seen = unixepoch() * 1000")
        for i, exchange in enumerate(exchanges(count)):
            clock.now += 8_640_000
            db.execute(WRITES[how], exchange).fetchall()
            db.execute(PUSH, exchange)
            if i % (count // 4) == count // 4 - 1:
                files.append(sizes(db, tmp_path))
        one(db, "SELECT proof_head()")
        assert problems(db) == []
    assert one(db, "SELECT count(*) FROM event_payloads") <= 72
    for file, used, vacuumed in files:
        assert used <= 1.3 * vacuumed + 0.2 * MB and file <= used + 0.6 * MB
    assert files[-1][0] <= 1.1 * files[1][0] + 0.2 * MB
    if pack:
        assert rows(db, "SELECT text FROM store_dropped WHERE text < 0 AND -text & (1 << 48) - 1"
                        " NOT IN (SELECT pack FROM store__packs)") == []
        assert one(db, "SELECT count(DISTINCT key) FROM payload__packed") >= 65
        kept = one(db, "SELECT kept_bytes FROM store_stats")
        one(db, "SELECT store_sweep()")
        assert kept <= 1.8 * one(db, "SELECT kept_bytes FROM store_stats") + 0.1 * MB


@pytest.mark.parametrize("pack", some([1, 0]))
def test_in_months_of_writes_the_log_grows_to_what_it_keeps(path, pack):
    """Each row that goes leaves a receipt, as no two go in one minute: they get leaves as fast as
    they come, and those of days before the last 30 become one a day."""
    db = installed(path, pack, ("payload.retention_days", 1))
    counts = []
    with Clock() as clock:
        db.execute("UPDATE retention__clock SET seen = unixepoch() * 1000")
        for i, exchange in enumerate(exchanges(80 * 50 if FULL else 60 * 50)):
            clock.now += 1_728_000
            db.execute(WRITES["row"], exchange)
            if i % 500 == 499:
                counts.append(one(db, "SELECT count(*) FROM blackbox__log"))
                assert one(db, "SELECT max(n) - size FROM blackbox__log, blackbox__tree") < 60
    assert 1400 < counts[3] and counts[-1] < 1.2 * counts[3], counts
    one(db, "SELECT proof_head()")
    assert problems(db) == []


class Steps(list):
    """Steps of the virtual machine for each write, after those that warm up, in units of `every`."""

    def __init__(self, db, warm, every):
        super().__init__()
        self.db, self.warm, self.every, self.written = db, warm, every, 0

    def step(self):
        self[-1] += 1

    def write(self, sql, exchange):
        counts = self.written > self.warm
        self.written += 1
        if counts:
            self.append(0)
        self.db.set_progress_handler(self.step if counts else None, self.every)
        self.db.execute(sql, exchange)
        self.db.set_progress_handler(None, self.every)


@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("pack", [0, 1])
def test_no_write_takes_more_than_four_times_the_steps_of_the_median(path, pack, leaves):
    """Steps of the virtual machine, in tens, with those of what a write carries along."""
    db = installed(path, pack, ("payload.retention_days", 7))
    steps = Steps(db, 100, 10)
    with Clock() as clock:
        db.execute("UPDATE retention__clock SET seen = unixepoch() * 1000")
        for exchange in exchanges(500):
            clock.now += 8_640_000 * leaves
            steps.write(WRITES["row"], exchange)
    steps = sorted(steps)
    assert 0 < steps[-1] <= 4 * steps[len(steps) // 2], steps


def test_a_write_that_closes_a_pack_packs_no_row_and_the_next_ones_do(path):
    db = installed(path, 1)
    packed, closed = 0, 0
    for n, exchange in enumerate(exchanges(200), 1):
        db.execute(WRITES["row"], exchange)
        before, packed = packed, one(db, "SELECT count(DISTINCT key) FROM payload__packed")
        if n > 2 and one(db, "SELECT open FROM store__state") == 0:
            closed += 1
            assert packed == before
        assert packed >= n - 2
    assert closed >= 2 and problems(db) == []


def test_a_push_for_which_nothing_is_due_looks_at_the_clock_only(path):
    """Steps of the virtual machine, with an archive of which no row is due."""
    db = installed(path, 0, ("payload.retention_days", 365))
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=20)")
    steps = Steps(db, 100, 1)
    with Clock() as clock:
        db.execute("UPDATE retention__clock SET seen = unixepoch() * 1000")
        db.execute(WRITES["row"], ("e", "a", "q", "r"))
        for exchange in exchanges(200):
            clock.now += 8_640_000
            steps.write(PUSH, exchange)
        assert one(db, "SELECT seen FROM retention__clock") > clock.now - 9 * 8_640_000
    steps = sorted(steps)
    assert steps[-1] <= 1000, steps


@pytest.mark.parametrize("pack", [0, 1])
def test_no_push_takes_more_than_five_times_the_steps_of_the_median(path, pack):
    """Steps of the virtual machine, with those of rows, texts and packs that go beside a push.
    The first of a connection looks whether somebody could refuse that a row goes."""
    db = installed(path, pack, ("payload.retention_days", 7))
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=20)")
    steps = Steps(db, 80, 10)
    with Clock() as clock:
        db.execute("UPDATE retention__clock SET seen = unixepoch() * 1000")
        for exchange in exchanges(80):
            db.execute(WRITES["row"], exchange)
        for exchange in exchanges(800):
            clock.now += 8_640_000
            steps.write(PUSH, exchange)
    assert one(db, "SELECT count(*) FROM event_payloads") == 0
    if pack:
        assert rows(db, "SELECT packs, texts FROM store_stats") == [(0, 0)]
    steps = sorted(steps)
    assert 0 < steps[-1] <= 5 * steps[len(steps) // 2], steps
    assert one(db, "SELECT proof_head() IS NOT NULL") and problems(db) == []


def test_packs_of_which_a_tenth_is_left_are_not_much_larger_than_new_ones(path):
    db = installed(path, 1)
    for exchange in exchanges(900):
        db.execute(WRITES["row"], exchange)
    ids = [row[0] for row in rows(db, "SELECT id FROM event_payloads ORDER BY rowid")]
    gone = random.Random(3).sample(ids, 9 * len(ids) // 10)
    db.executemany("DELETE FROM event_payloads WHERE id = ?", [(id,) for id in gone])
    while one(db, "SELECT store_tend()"):
        pass
    kept = one(db, "SELECT kept_bytes FROM store_stats")
    assert one(db, "SELECT packs FROM store_stats") > 5 and problems(db) == []
    one(db, "SELECT payload_unpack(1000)")
    one(db, "SELECT store_sweep()")
    one(db, "SELECT payload_pack(1000)")
    assert one(db, "SELECT packs FROM store_stats") <= 2
    assert kept <= 1.3 * one(db, "SELECT kept_bytes FROM store_stats")


def test_pushes_sweep_the_texts_of_rows_that_are_gone(path):
    db = installed(path, 1)
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=20)")
    for exchange in exchanges(100):
        db.execute(WRITES["row"], exchange)
    db.execute("DELETE FROM event_payloads")
    for exchange in exchanges(500):
        db.execute(PUSH, exchange)
    assert one(db, "SELECT count(*) FROM store_dropped WHERE text > 0") < 10
    assert one(db, "SELECT packs FROM store_stats") <= 2 and problems(db) == []


def test_pushes_remove_rows_of_the_archive_that_are_due(path):
    """One for each push that looks, which is every second while some are due, and every eighth
    otherwise."""
    db = installed(path, 0)
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=20)")
    with Clock() as clock:
        db.execute("UPDATE retention__clock SET seen = unixepoch() * 1000")
        for exchange in exchanges(60):
            db.execute(WRITES["row"], exchange)
        for exchange in exchanges(80):
            clock.now += 2 * 3_600_000
            db.execute(PUSH, exchange)
        assert rows(db, "SELECT count(*) FROM event_payloads") == [(60,)]
        clock.now += 9 * 3_600_000
        for i, exchange in enumerate(exchanges(60 * 2 + 40)):
            db.execute(PUSH, exchange)
            assert one(db, "SELECT count(*) FROM event_payloads") >= 60 - (i // 2 + 1)
        assert rows(db, "SELECT count(*) FROM event_payloads") == [(0,)]
        assert rows(db, "SELECT sum(rows) FROM retention_log WHERE rule = 'payload.age'") == [(60,)]
        one(db, "SELECT proof_head()")
        assert problems(db) == []


def test_a_limit_in_bytes_is_one_of_the_file(path, tmp_path):
    db = installed(path, 1, ("payload.max_bytes", 2_000_000))
    for exchange in exchanges(3000):
        db.execute(WRITES["row"], exchange)
    file, used, vacuumed = sizes(db, tmp_path)
    assert used <= 1.3 * vacuumed + 0.2 * MB and file <= 6 * MB


def test_a_file_that_shrinks_in_steps_gives_pages_back_with_its_writes(path):
    db = installed(path, 0)
    db.execute("BEGIN")
    for exchange in exchanges(1500):
        db.execute(WRITES["row"], exchange)
    db.execute("COMMIT")
    one(db, "SELECT payload_clear_archive()")
    before = one(db, "PRAGMA page_count")
    for exchange in exchanges(100, seed=2):
        db.execute(WRITES["row"], exchange)
    assert one(db, "PRAGMA page_count") < before - 500
    assert rows(db, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("how", WRITES)
def test_a_clean_up_that_fails_is_undone_and_the_row_stays(path, how, begin):
    """A trigger in the store, where nobody should have one, refuses a text half-way."""
    db = installed(path, 1, ("payload.flush_interval_ms", 1000))
    db.execute("CREATE TRIGGER keep AFTER INSERT ON store__texts"
               " WHEN NEW.text = 8 BEGIN SELECT RAISE(ABORT, 'not this one'); END")
    db.execute(begin)
    for exchange in exchanges(12):
        db.execute(WRITES[how], exchange).fetchall()
    db.execute(begin and "COMMIT")
    assert one(db, "SELECT count(*) FROM event_payloads") == 12
    assert rows(db, "SELECT event_id FROM event_payloads WHERE id IN (SELECT key FROM"
                    " payload__packed) ORDER BY rowid") == [("e0",), ("e1",), ("e2",)]
    assert one(db, "SELECT texts FROM store_stats") == 6
    assert "not this one" in one(db, "SELECT error FROM payload_waiting")
    db.execute("DROP TRIGGER keep")
    assert problems(db) == []
    time.sleep(1.1)
    db.execute(WRITES[how], ("e12", "a", "q" * 3000, "r")).fetchall()
    assert one(db, "SELECT error FROM payload_waiting") is None
    assert one(db, "SELECT count(DISTINCT key) FROM payload__packed") == 7  # its own, and three


@pytest.mark.parametrize("how", WRITES)
def test_writes_pack_past_a_row_that_a_trigger_keeps(path, how):
    db = installed(path, 1)
    db.execute("CREATE TRIGGER keep AFTER UPDATE OF request_body ON event_payloads"
               " WHEN NEW.event_id = 'e3' BEGIN SELECT RAISE(ABORT, 'not this one'); END")
    for exchange in exchanges(12):
        db.execute(WRITES[how], exchange).fetchall()
    assert one(db, "SELECT error FROM payload_waiting") is None
    assert rows(db, "SELECT event_id FROM event_payloads WHERE id NOT IN (SELECT key FROM"
                    " payload__packed)") == [("e3",)]
    assert rows(db, "SELECT rule, message FROM retention_refusals") == [("payload.pack", "not this one")]
    db.execute("DROP TRIGGER keep")
    assert problems(db) == []


def test_an_erasure_cleans_packs_of_which_writes_have_left_a_part(path):
    """A piece that no text has any more is in its pack until a third of the pack is unused."""
    db = installed(path, 0)
    for exchange in exchanges(60):
        db.execute(WRITES["row"], exchange)
    one(db, "SELECT payload_pack()")
    db.execute("DELETE FROM event_payloads WHERE rowid <= 6")
    one(db, "SELECT store_tend()")
    assert rows(db, "SELECT text FROM store_dropped WHERE text < 0") == [(-1,)]
    pieces = one(db, "SELECT pieces FROM store_stats")
    one(db, "SELECT blackbox_erase('event', 'e59', 'ann', 'asked')")
    assert rows(db, "SELECT * FROM store_dropped") == []
    assert one(db, "SELECT pieces FROM store_stats") < pieces - 3
    assert problems(db) == []
