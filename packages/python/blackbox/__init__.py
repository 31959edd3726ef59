"""The flight recorder for AI agents, inside SQLite: finds the module, and loads it.

    import sqlite3, blackbox
    db = sqlite3.connect("flight.db", isolation_level=None)
    blackbox.load(db)

blackbox.recorder has the recorder; blackbox.httpx and blackbox.requests use it.
"""
import pathlib
import sqlite3

__all__ = ["load", "loadable_path"]


def loadable_path() -> str:
    """The path of the module."""
    folder = pathlib.Path(__file__).resolve().parent
    for name in ("blackbox.so", "blackbox.dylib"):
        if (folder / name).exists():
            return str(folder / name)
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
