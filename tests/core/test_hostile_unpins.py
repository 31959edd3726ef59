"""Who unpins a row, and why, is text that can be seen."""
import sqlite3

import pytest

from conftest import connect
from hostile_helpers import fresh, made

UNSEEN = (0, 1, 9, 10, 13, 27, 31, 32, 127, 128, 133, 155, 159, 160, 173, 847, 1564, 4447,
          5760, 6158, 8192, 8203, 8205, 8206, 8232, 8238, 8288, 8294, 10240, 12288, 12644,
          65024, 65039, 65279, 65440, 65529, 917505, 917760)


@pytest.mark.parametrize("code", UNSEEN)
@pytest.mark.parametrize("column", ["actor", "reason"])
def test_who_unpins_and_why_can_be_seen(fresh, code, column):
    db = sqlite3.connect(fresh, isolation_level=None)
    for text in (chr(code), chr(code) * 3, " " + chr(code), "\u00e9" + chr(code) + "b"):
        record = {"actor": "Ann", "reason": "closed", column: text}
        db.execute("BEGIN")
        if text[0] == "\u00e9" and (code > 159 or code in (9, 10, 13, 32)):
            db.execute("INSERT INTO payload_unpins(payload_id, actor, reason) "
                       "VALUES('victim', :actor, :reason)", record)
        else:
            with pytest.raises(sqlite3.IntegrityError, match="visible text"):
                db.execute("INSERT INTO payload_unpins(payload_id, actor, reason) "
                           "VALUES('victim', :actor, :reason)", record)
        if db.in_transaction:
            db.execute("ROLLBACK")
