"""The clock of SQLite stands still until a test moves it, for every connection of the process.

Both builds read the time through SQLite's VFS. So they see the same times, and no time in an
answer has to be left out of a comparison. The log of the oracle cuts the Julian day to
milliseconds, by which every other time loses one; that of the checkout rounds it. So the clock
stops only at times that the oracle tells right."""
import ctypes
import sqlite3

import pytest

START = 1_780_000_000_000  # 2026-05-28
JULIAN = 210_866_760_000_000  # 1970-01-01, in milliseconds since the Julian epoch
METHODS = ("open delete access full_pathname dl_open dl_error dl_sym dl_close randomness sleep "
           "current_time get_last_error current_time_int64").split()


class Vfs(ctypes.Structure):
    """sqlite3_vfs, version 2."""
    _fields_ = [("version", ctypes.c_int), ("file_size", ctypes.c_int),
                ("max_pathname", ctypes.c_int), ("next", ctypes.c_void_p),
                ("name", ctypes.c_char_p), ("data", ctypes.c_void_p),
                *((method, ctypes.c_void_p) for method in METHODS)]


def cut(now):
    """The milliseconds that the log of the oracle makes of a time."""
    return int(((now + JULIAN) / 86400000.0 - 2440587.5) * 86400000.0)


class Clock:
    def __init__(self):
        self.now = START

    def __enter__(self):
        try:
            library = ctypes.CDLL("libsqlite3.so.0")
            library.sqlite3_vfs_find.restype = ctypes.POINTER(Vfs)
            self.vfs = library.sqlite3_vfs_find(None).contents
        except (OSError, AttributeError, ValueError):
            pytest.skip("the clock of SQLite cannot be set here")
        self.method = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64))(self.read)
        self.real = self.vfs.current_time_int64
        self.vfs.current_time_int64 = ctypes.cast(self.method, ctypes.c_void_p)
        db = sqlite3.connect(":memory:")
        seen = db.execute("SELECT CAST(strftime('%s', 'now') AS INTEGER)").fetchone()[0]
        db.close()
        if seen != START // 1000:
            self.__exit__()
            pytest.skip("Python has another SQLite than the system")
        return self

    def read(self, _, julian):
        now = self.now
        while cut(now) != now:
            now += 1
        julian[0] = now + JULIAN
        return 0

    def __exit__(self, *_):
        self.vfs.current_time_int64 = self.real
