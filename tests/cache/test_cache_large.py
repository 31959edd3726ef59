"""Items of megabytes, thousands of items, and real tool results."""
import gzip
import json
import sqlite3

import pytest

from cache_helpers import A, T0, exact, key, setting, text
from conftest import DATA, connect, needs_data, one, overwrite_pages, rows

LIST = ("SELECT storage_key, description, timestamp, data_size FROM cache_list(?)")


def overflow_pages(db):
    """The numbers of the overflow pages."""
    try:
        return [r[0] for r in db.execute(
            "SELECT pageno FROM dbstat WHERE name = 'cache_items'"
            " AND pagetype = 'overflow'")]
    except sqlite3.OperationalError:
        pytest.skip("this SQLite has no dbstat")


def fill(db, items, size):
    db.execute("BEGIN")
    for i in range(items):
        one(db, "SELECT cache_write(?,?,'turn0000',?,?,?,?)", A, "%08d" % i,
            text(size), "x" * 300, '{"kind":"tool_result"}' if i % 5 == 0 else None,
            T0 + i)
    db.execute("COMMIT")


def test_an_item_of_five_mebibytes_is_written_and_read(db):
    most = 5 * 1024 * 1024
    data = text(most)
    meta = json.loads(one(db, "SELECT cache_write(?,'task0001','turn0001',?,'d')", A, data))
    assert meta["dataSize"] == most
    raw = one(db, "SELECT cache_read(?)", meta["storageKey"])
    assert '"data":' + data + "," in raw
    with pytest.raises(sqlite3.DataError, match=f"at most {most} bytes.*got {most + 1}"):
        db.execute("SELECT cache_write(?,NULL,NULL,?,'d')", (A, text(most + 1)))
    for i in range(2, 11):
        one(db, "SELECT cache_write(?,?,'turn0001',?,'d')", A, "task%04d" % i, data)
    assert one(db, "SELECT cache_quota_check(?,0)", A) == 0  # ten of them fill it
    with pytest.raises(sqlite3.IntegrityError, match="QuotaExceededError"):
        db.execute("SELECT cache_write(?,NULL,NULL,'1','d')", (A,))
    exact(db)


def test_lists_work_when_every_data_page_is_gone(db, path):
    """Lists do not read data pages: all of them are overwritten with rubbish."""
    fill(db, 60, 40_000)
    pages, size = overflow_pages(db), one(db, "PRAGMA page_size")
    assert len(pages) > 60 * 8
    expected = rows(db, LIST, A)
    stats = one(db, "SELECT cache_stats(?,?)", A, T0)
    db.close()
    overwrite_pages(path, pages, size)
    db = connect(path)
    assert rows(db, LIST, A) == expected and len(expected) == 60
    assert one(db, "SELECT cache_stats(?,?)", A, T0) == stats
    assert one(db, "SELECT sum(data_size) FROM cache_items") == 60 * 40_000
    assert one(db, "SELECT cache_quota_check(?,1,?)", A, key(A, "00000000")) > 0
    one(db, "SELECT blackbox_install('main', 'retention')")
    setting(db, "max_age_days", 1)
    assert one(db, "SELECT count(*) FROM retention_plan WHERE rule = 'cache.age'") == 60
    with pytest.raises(sqlite3.DatabaseError):  # and there the data was
        db.execute("SELECT cache_read(?)", (key(A, "00000001"),)).fetchone()


@pytest.mark.parametrize("size", [1_000, 200_000])
def test_pages_read_for_a_list_do_not_grow_with_the_data(path, size):
    apsw = pytest.importorskip("apsw")
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    setting(db, "session_quota_bytes", 10**9)
    fill(db, 50, size)
    db.close()
    fresh = apsw.Connection(str(path))
    fresh.enableloadextension(True)
    from conftest import MODULE
    fresh.loadextension(MODULE)
    list(fresh.cursor().execute("SELECT * FROM cache_list('nobody')"))

    def misses():
        return fresh.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)[0]

    start = misses()
    assert len(list(fresh.cursor().execute(
        "SELECT storage_key, description FROM cache_list(?)", (A,)))) == 50
    assert misses() - start <= 50 + 8  # a leaf for each row, the index, the root


def test_list_of_a_session_needs_no_sort(db):
    fill(db, 50, 100)
    cursor = db.execute("SELECT storage_key FROM cache_list(?)", (A,))
    cursor.fetchone()
    try:
        found = rows(db, "SELECT nsort, nscan FROM sqlite_stmt WHERE sql LIKE"
                     " 'SELECT storage_key, description%'")
    except sqlite3.OperationalError:
        pytest.skip("this SQLite has no sqlite_stmt")
    assert found == [(0, 0)]


def test_thousands_of_items_are_written_listed_and_cleared(db):
    fill(db, 3000, 100)
    assert len(rows(db, LIST, A)) == 3000
    exact(db)
    assert one(db, "SELECT cache_clear_session(?)", A) == 3000
    assert rows(db, "SELECT rows, bytes FROM retention_log") == [(3000, 300_000)]
    exact(db)


def test_no_write_reads_more_pages_when_more_is_stored(db):
    """The number of VM steps of a write, a check and an overwrite does not depend on the number
    of items."""
    def steps(sql, *args):
        count = [0]
        db.set_progress_handler(lambda: count.__setitem__(0, count[0] + 1), 1)
        db.execute(sql, args).fetchall()
        db.set_progress_handler(None, 0)
        return count[0]

    def measure(n):
        task = "t%07d" % n
        return [
            steps("SELECT cache_write(?,?,'turn0000','[1]','d')", A, task),
            steps("SELECT cache_write(?,?,'turn0000','[1,2]','d')", A, task),
            steps("SELECT cache_quota_check(?,10,?)", A, key(A, task)),
            steps("UPDATE cache_items SET data = '1' WHERE storage_key = ?", key(A, task)),
            steps("DELETE FROM cache_items WHERE storage_key = ?", key(A, task)),
        ]

    setting(db, "total_quota_bytes", 10**12)
    fill(db, 10, 10)
    measure(1)
    few = measure(2)
    fill_from = 2000
    db.execute("BEGIN")
    for i in range(fill_from):
        one(db, "SELECT cache_write(?,?,'turn0000','1','d')", A, "%08d" % (i + 100))
        one(db, "SELECT cache_write(?,?,'turn0000','1','d')",
            "conv_00000000-0000-4000-8000-%012d" % i, "task0000")
    db.execute("COMMIT")
    # the first receipt of a minute takes more steps
    many = [min(steps) for steps in zip(measure(3), measure(4))]
    assert all(0 < m <= f + 10 for f, m in zip(few, many)), (few, many)


def tool_results():
    for file in sorted((DATA / "toolresults").iterdir()):
        raw = file.read_bytes()
        if file.suffix == ".gz":
            raw = gzip.decompress(raw)
        try:
            json.loads(raw)
            yield file.name, raw.decode()
        except ValueError:  # JSON lines: each is one result
            for i, line in enumerate(raw.decode().splitlines()):
                yield f"{file.name} {i}", line


@needs_data
def test_real_tool_results_come_back_byte_for_byte(db):
    kept = {}
    for i, (name, data) in enumerate(tool_results()):
        meta = json.loads(one(db, "SELECT cache_write(?,NULL,NULL,?,?)", A, data, name))
        assert meta["dataSize"] == len(data.encode())
        kept[meta["storageKey"]] = data
    assert len(kept) > 8
    for k, data in kept.items():
        raw = one(db, "SELECT cache_read(?)", k)
        assert '"data":' + data + "," in raw
        assert json.loads(raw)["data"] == json.loads(data)
    exact(db)
    total = sum(len(d.encode()) for d in kept.values())
    assert one(db, "SELECT total_size FROM cache_sessions") == total
