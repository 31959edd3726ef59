"""The flight recorder for AI agents, inside SQLite.

    import blackbox
    db = blackbox.open("flight.db")
    db.record(client, agent="support")

client is an httpx.Client or AsyncClient, a requests.Session, or a client that stands on one of
them, as those of OpenAI, Anthropic and Google do. blackbox.recorder has the recorder itself.
"""
import pathlib
import sqlite3

__all__ = ["Connection", "load", "loadable_path", "open"]


def loadable_path() -> str:
    """The path of the module. In the sources it is where make has put it."""
    folder = pathlib.Path(__file__).resolve().parent
    for path in (folder, *folder.parents[2:3]):
        for name in ("blackbox.so", "blackbox.dylib"):
            if (path / name).exists():
                return str(path / name)
    raise FileNotFoundError(
        f"LoadError: there is no module in {folder}; install a wheel of this platform")


def load(db: sqlite3.Connection) -> sqlite3.Connection:
    """Loads the module into a connection of sqlite3, and returns the connection.

    The connection may load extensions during the call only.
    """
    if not hasattr(db, "enable_load_extension"):
        raise RuntimeError(
            "LoadError: this Python was built without extensions of SQLite; use one that was "
            "configured with --enable-loadable-sqlite-extensions, as /usr/bin/python3 of Debian")
    db.enable_load_extension(True)
    try:
        db.load_extension(loadable_path())
    finally:
        db.enable_load_extension(False)
    return db


def shared(name) -> str:
    """A text that the package of npm has, too. In the sources it is in the folder of both."""
    folder = pathlib.Path(__file__).resolve().parent
    path = folder / name
    return (path if path.exists() else folder.parents[1] / name).read_text(encoding="utf-8")


def quoted(name):
    """The name of a table for a statement; "schema.table" names a schema."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def load_prices(db):
    """Loads the list of prices of the package into a file that has none."""
    if db.execute("SELECT 1 FROM blackbox_prices").fetchone() is None:
        db.execute("SELECT rollout_load_prices(?, 'prices.json')", (shared("prices.json"),)).fetchone()


class Connection(sqlite3.Connection):
    """A connection of sqlite3 with the module, which can record clients."""

    def record(self, client, agent, ring="ring", **options):
        """Records what a client sends from now on, into a ring of the file, as an agent.

        Returns the recorder, which all clients of a ring share. agent and options: see
        blackbox.recorder.Recorder.
        """
        from blackbox import clients, recorder
        path = self.execute("PRAGMA database_list").fetchone()[2]
        if not path:
            raise ValueError("ValidationError: a database in memory has no recorder; open a file")
        return clients.watch(client, recorder.shared(path, agent, ring, **options))


def open(path, ring="ring", settings=None, timeout=5.0):
    """Opens a file as a flight recorder, and makes what is missing.

    Loads the module, installs it, makes the ring, sets the settings (a dictionary, such as
    {"payload.retention_days": 30}) and the journal mode WAL. In a new file the rules on loops
    record what they find, and the prices of the package are loaded. timeout: the seconds to wait
    for the lock of another. Returns a Connection without implicit transactions.
    """
    db = sqlite3.connect(path, timeout=timeout, isolation_level=None, factory=Connection)
    try:
        load(db)
        is_new = not db.execute(
            "SELECT 1 FROM sqlite_schema WHERE name = 'blackbox_settings'").fetchone()
        db.execute("SELECT blackbox_install()")  # before WAL, which fixes auto_vacuum
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS {quoted(ring)} USING payload_ring")
        if is_new:
            db.execute("UPDATE blackbox_settings SET value = 'record' WHERE name = 'payload.on_loop'")
            load_prices(db)
        for setting, value in (settings or {}).items():
            if not db.execute("UPDATE blackbox_settings SET value = ? WHERE name = ?",
                              (value, setting)).rowcount:
                raise ValueError(f"NotFoundError: there is no setting {setting!r}; "
                                 "see blackbox_settings")
    except BaseException:
        db.close()
        raise
    return db
