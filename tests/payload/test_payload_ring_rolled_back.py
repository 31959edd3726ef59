"""Bodies that a connection has in memory, after what it wrote was rolled back."""
import random

import pytest

from conftest import one, rows


@pytest.mark.parametrize("seed", range(3))
def test_a_body_that_was_rolled_back_can_be_pushed_again(db, seed):
    """The connection keeps the texts of four conversations. After a rollback it has some twice."""
    dice = random.Random(seed)
    bodies = ["".join(dice.choice("abcdefgh") for _ in range(500)) for _ in range(6)]
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=4)")
    true = []
    for step in range(600):
        db.execute("BEGIN")
        pushed = [dice.choice(bodies) for _ in range(dice.randint(1, 4))]
        for i, body in enumerate(pushed):
            db.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES('a', ?, ?)",
                       (f"{step}.{i}", body))
        kept = dice.random() > 0.7
        db.execute("COMMIT" if kept else "ROLLBACK")
        true += pushed if kept else []
    assert [r[0] for r in rows(db, "SELECT request_body FROM ring ORDER BY seq")] == true[-4:]
    assert one(db, "SELECT count(*) FROM blackbox_check") == 0
