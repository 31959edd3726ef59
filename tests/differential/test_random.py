"""Statements at random, with the module and without it, in transactions and outside, give the same
answers and leave the same rows. A test is one seed: run it again by its name."""
import os
import re

import pytest

import contents
from generate import HASH, UUIDS, Generator
from pair import Pair, needs_oracle

pytestmark = needs_oracle
SEEDS = 40 if os.environ.get("BLACKBOX_FULL") else 2
STATEMENTS = 300
DOMAINS = ["ring", "archive", "evidence", "rollout", "cache", "retention", "across"]
SETUP = [
    "CREATE TABLE notes(id INTEGER PRIMARY KEY, at, body)",
    "INSERT INTO blackbox_settings VALUES('payload.enabled', 1)",
    "INSERT INTO blackbox_settings VALUES('cache.session_quota_bytes', 3000)",
]
MORE = {
    "ring": "INSERT INTO blackbox_settings VALUES('payload.on_loop', 'kill_switch')",
    "across": "INSERT INTO blackbox_settings VALUES('proof.enabled', 1)",
}
MADE = [  # now and then again, if they were removed
    "CREATE VIRTUAL TABLE ring USING payload_ring(window=5)",
    "CREATE VIRTUAL TABLE rec USING evidence_buffer(max_size_bytes=6000)",
    f"SELECT rollout_create('{UUIDS[0]}')", f"SELECT rollout_create('{UUIDS[1]}')",
]
# What a connection without the module does not have.
OF_THE_MODULE = re.compile(r"\b(ring|rec|tape|film|payload_queue|blackbox_call)\b")

# What is said to have an order.
IN_ORDER = re.compile(r"ORDER BY|SELECT due|cache_list|payload_calls|report_lines|"
                      r"rollout_(list|range|context|orphans|export)")


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("domain", DOMAINS)
def test_statements_at_random_answer_the_same(domain, seed, tmp_path):
    generator = Generator(domain, seed)
    with Pair(tmp_path) as pair:
        for statement in [*SETUP, MORE.get(domain, "SELECT 1")]:
            pair.run(statement)
        inside, dropped = False, False
        for n in range(STATEMENTS):
            if n % 30 == 0 or dropped and n % 5 == 0:
                for statement in MADE:
                    pair.run(statement)
                dropped = False
            statement, values = generator.step(inside)
            plain = not inside and generator.random() < 0.3 and \
                statement.startswith(("INSERT", "REPLACE", "UPDATE", "DELETE")) and \
                not OF_THE_MODULE.search(statement)
            answer = pair.run(statement, *values, plain=plain,
                              ordered=bool(IN_ORDER.search(statement)),
                              random=HASH if "blackbox_report" in statement else None)
            inside = not plain and "in a transaction" in answer
            dropped |= statement.startswith(("DROP", "ALTER", "ROLLBACK"))
            pair.clock.now += generator.milliseconds()
            if n % 100 == 99:
                contents.compare(pair)
                pair.reconnect()
                inside = False
        contents.check(pair)
