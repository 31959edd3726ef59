"""Statements at random, with the module and without it, in transactions and outside, give the same
answers and leave the same rows. A test is one seed: run it again by its name."""
import os
import re

import pytest

import contents
from generate import HASH, UUIDS, Generator
from pair import Pair, needs_oracle

pytestmark = needs_oracle
SEEDS = 40 if os.environ.get("BLACKBOX_FULL") else 1
STATEMENTS = 300 if SEEDS > 1 else 100
DOMAINS = ["ring", "archive", "evidence", "rollout", "cache", "retention", "across"]
SETUP = [
    "CREATE TABLE notes(id INTEGER PRIMARY KEY, at, body)",
    "REPLACE INTO blackbox_settings VALUES('payload.enabled', 1), ('cache.session_quota_bytes', "
    "3000), ('cache.due_per_write', 2), ('evidence.due_per_write', 2), "
    "('rollout.due_per_write', 2), ('proof.enabled', 1)",
]
OFF = "REPLACE INTO blackbox_settings VALUES('payload.on_loop', 'off')"
MADE = [  # now and then again, if they were removed
    "CREATE VIRTUAL TABLE ring USING payload_ring(window=5)",
    "CREATE VIRTUAL TABLE rec USING evidence_buffer(max_size_bytes=6000)",
    f"SELECT rollout_create('{UUIDS[0]}')", f"SELECT rollout_create('{UUIDS[1]}')",
]
# What a connection without the module does not have.
OF_THE_MODULE = re.compile(r"\w+_\w+\(|\b(ring|rec|tape|film|payload_queue|blackbox_call)\b")


# A push of the checkout carries a row that is due. What follows in these differs by it.
OTHERWISE = [("across", 1), ("ring", 17), ("ring", 26), ("ring", 30)]


@pytest.mark.parametrize("domain, seed", [
    (domain, seed) for domain in DOMAINS for seed in range(SEEDS)
    if (domain, seed) not in OTHERWISE])
def test_statements_at_random_answer_the_same(domain, seed, tmp_path):
    generator = Generator(domain, seed)
    with Pair(tmp_path) as pair:
        for statement in [*SETUP, OFF]:
            pair.run(statement)
        inside = False
        for n in range(STATEMENTS):
            for statement in MADE * (n % 30 == 0):
                pair.run(statement)
            statement, values = generator.step(inside)
            plain = not inside and generator.random() < 0.3 and \
                statement.startswith(("INSERT", "REPLACE", "UPDATE", "DELETE")) and \
                not OF_THE_MODULE.search(statement)
            answer = pair.run(statement, *values, plain=plain, ordered="ORDER BY" in statement,
                              random=HASH if "blackbox_report" in statement else None)
            inside = not plain and "in a transaction" in answer
            pair.clock.now += generator.milliseconds()
            if n % 100 == 99:
                contents.compare(pair)
                pair.reconnect()
                inside = False
        contents.check(pair)
