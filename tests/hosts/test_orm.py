"""Beside an ORM: what docs/hosts.md recommends for SQLAlchemy and Alembic."""
import re

import pytest

from conftest import ROOT, load

sa = pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")

from alembic.autogenerate import compare_metadata
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from sqlalchemy import event

PAGE = (ROOT / "docs" / "hosts.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)
FILTER = next(block for block in BLOCKS if "def blackbox_filter" in block)
# As another program makes it.
THEIRS = """CREATE TABLE event_payloads (
  id TEXT PRIMARY KEY NOT NULL, event_id TEXT NOT NULL,
  agent_id TEXT NOT NULL, purpose TEXT NOT NULL, created_at TEXT NOT NULL)"""


@pytest.fixture
def engine(path):
    engine = sa.create_engine(f"sqlite:///{path}")
    event.listen(engine, "connect", lambda db, _: load(db))
    with engine.begin() as db:
        db.exec_driver_sql("CREATE TABLE orders(id INTEGER PRIMARY KEY NOT NULL)")
    yield engine
    engine.dispose()


def install(engine):
    with engine.begin() as db:
        for sql in ["SELECT blackbox_install('main', 'all')", "SELECT rollout_search_install()",
                    "CREATE VIRTUAL TABLE tape USING payload_ring(window=3)",
                    "CREATE VIRTUAL TABLE rec USING evidence_buffer"]:
            db.exec_driver_sql(sql).close()


def models(*more):
    metadata = sa.MetaData()
    sa.Table("orders", metadata, sa.Column("id", sa.Integer, primary_key=True))
    for table in more:
        table(metadata)
    return metadata


def proposed(engine, metadata, filtered=True):
    """What autogenerate would put into a migration: (act, name)."""
    names = {}
    exec(FILTER, names)
    with engine.connect() as db:
        options = {}
        if filtered:
            options["include_object"] = names["blackbox_filter"](db)
        context = MigrationContext.configure(db, opts=options)
        found = compare_metadata(context, metadata)
    flat = [act for one in found for act in (one if isinstance(one, list) else [one])]
    return sorted((act[0], getattr(act[-1], "name", None)) for act in flat)


def test_without_the_filter_autogenerate_would_drop_our_tables(engine):
    install(engine)
    acts = proposed(engine, models(), filtered=False)
    assert ("remove_table", "event_payloads") in acts
    assert ("remove_table", "tape_slots") in acts


def test_with_the_filter_it_proposes_nothing(engine):
    install(engine)
    assert proposed(engine, models()) == []


def test_with_the_filter_it_still_sees_the_users_own_tables(engine):
    install(engine)
    with engine.begin() as db:
        db.exec_driver_sql("CREATE TABLE left_over(x)")
        db.exec_driver_sql("CREATE INDEX orders_id ON orders(id)")

    def cache_of_mine(metadata):
        sa.Table("cache_of_mine", metadata, sa.Column("x", sa.Integer))

    assert proposed(engine, models(cache_of_mine)) == [
        ("add_table", "cache_of_mine"),
        ("remove_index", "orders_id"),
        ("remove_table", "left_over"),
    ]


def test_with_the_filter_a_table_that_was_taken_over_keeps_what_was_added(engine):
    with engine.begin() as db:
        db.exec_driver_sql(THEIRS)

    def event_payloads(metadata):
        text = [sa.Column(name, sa.Text, nullable=False)
                for name in ["event_id", "agent_id", "purpose", "created_at"]]
        sa.Table("event_payloads", metadata,
                 sa.Column("id", sa.Text, primary_key=True), *text)

    theirs = models(event_payloads)
    assert proposed(engine, theirs) == []
    install(engine)
    unfiltered = proposed(engine, theirs, filtered=False)
    assert ("remove_column", "pinned") in unfiltered
    assert proposed(engine, theirs) == []


def test_with_the_recipe_a_rollback_takes_back_what_a_function_did(path, tmp_path):
    block = next(block for block in BLOCKS if "attach_recorder" in block)
    block = block.replace("sqlite:///app.db", f"sqlite:///{path}")
    block = block.replace("flight.db", str(tmp_path / "flight.db"))
    names = {"print": lambda *_: None}
    exec(block.replace("./blackbox", str(ROOT / "blackbox")), names)
    engine = names["engine"]
    state = ("SELECT (SELECT count(*) FROM flight.ring),"
             " (SELECT count(*) FROM flight.event_payloads)")
    with engine.connect() as db:
        with db.begin() as transaction:
            db.exec_driver_sql(
                "INSERT INTO flight.ring(agent_id, event_id) VALUES('support', 'e2')")
            transaction.commit()
        before = tuple(db.exec_driver_sql(state).one())
    with engine.connect() as db:
        transaction = db.begin()
        db.exec_driver_sql(
            "SELECT payload_kill_switch('flight.ring', 'support', 'loop-2')").all()
        assert tuple(db.exec_driver_sql(state).one()) == (0, 2)
        transaction.rollback()
    with engine.connect() as db:
        assert tuple(db.exec_driver_sql(state).one()) == before == (1, 1)
    engine.dispose()


def test_a_table_that_was_taken_over_can_get_a_column(engine):
    with engine.begin() as db:
        db.exec_driver_sql(THEIRS)
        db.exec_driver_sql("INSERT INTO event_payloads VALUES"
                           "('t1', 'e', 'a', 'evidence', '2026-01-01 00:00:00')")
    install(engine)
    with engine.begin() as db:
        operations = Operations(MigrationContext.configure(db))
        operations.add_column("event_payloads", sa.Column("plain", sa.Text))
        assert "plain" in str(db.exec_driver_sql("SELECT * FROM blackbox_check").all())
        db.exec_driver_sql("SELECT blackbox_install()").all()
        assert db.exec_driver_sql("SELECT * FROM blackbox_check").all() == []
        with pytest.raises(sa.exc.IntegrityError, match="PinnedError"):
            db.exec_driver_sql("UPDATE event_payloads SET plain = 'x'")


def test_after_an_uninstall_it_can_be_made_anew_and_taken_over_again(engine):
    with engine.begin() as db:
        db.exec_driver_sql(THEIRS)
        db.exec_driver_sql("INSERT INTO event_payloads VALUES"
                           "('t1', 'e', 'a', 'evidence', '2026-01-01 00:00:00')")
        db.exec_driver_sql("SELECT blackbox_install('main', 'payload')").all()
        pins = db.exec_driver_sql("SELECT id FROM payload_pins").all()
        db.exec_driver_sql("SELECT blackbox_uninstall('main', 'payload', 'force')").all()
        operations = Operations(MigrationContext.configure(db))
        with operations.batch_alter_table("event_payloads", recreate="always") as batch:
            batch.add_column(sa.Column("note", sa.Text))
        db.exec_driver_sql("SELECT blackbox_install('main', 'payload')").all()
        assert pins == db.exec_driver_sql("SELECT id FROM payload_pins").all()
        assert db.exec_driver_sql("SELECT * FROM blackbox_check").all() == []
