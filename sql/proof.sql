-- proof.sql: a log of what was recorded, which anyone can verify.
--
-- Every pin, every pinned row, every unpin, step of a hold, receipt, verdict and
-- erasure gets a leaf of a Merkle tree as in RFC 6962. A leaf says of which kind
-- the thing is, its number, and when the leaf was made. It has a commitment to
-- the content and never the content. docs/proof.md is the manual.
--
-- Tables  proof_leaves  the leaves, numbered from 0
--         proof_salts   the salt of each leaf whose content is still there
--         proof_nodes   the hash of each 256 leaves that are complete, of each
--                       256 of these hashes, and so on
--         proof_state   one row: the name of the log, the number of leaves, the
--                       hashes of which the root is made, and what has leaves
-- Views   proof_log     the leaves in words
--         proof_check   contradictions (no rows if all is well)
--
-- This file runs alone after core.sql (sqlite3 my.db < sql/proof.sql), any number
-- of times. Only the module writes the tables. Nothing is noted when a thing is
-- recorded: things have ascending numbers, and those above that in proof_state have
-- no leaf yet. So what was recorded without the module is taken in by the next call
-- of it.
--
-- kinds   1 pin, 2 evidence (the row that the pin is on, with the number of the
--         pin), 3 unpin (the same number), 4 hold (a step), 5 receipt, 6 verdict,
--         7 erasure
-- thing   8 times the number, plus the kind
-- node    its level (1: of 256 leaves) in the bits from 48 on, and its index
--
-- Invariants, on every connection:
--   * a leaf is never changed and never removed; the log only grows
--   * a salt is removed only if the leaf of an unpin says so, or if receipts do
--
-- Limits: no trigger fires for DROP TABLE, DROP TRIGGER, or what a program writes
-- into the file. proof_verify() finds the result of these.

INSERT INTO main.blackbox_settings(name, value, "default", range, meaning)
SELECT column1, column2, column2, column3, column4 FROM (VALUES
  ('proof.enabled', 0, '0 to 1',
   'whether records get a leaf in the log of proof'))
 WHERE 1
ON CONFLICT (name) DO UPDATE
   SET "default" = excluded."default", range = excluded.range,
       meaning = excluded.meaning;

-- open: the salt is still there.
CREATE VIEW IF NOT EXISTS main.proof_log AS
SELECT l.leaf AS leaf,
       CASE l.thing & 7 WHEN 1 THEN 'pin' WHEN 2 THEN 'evidence'
                        WHEN 3 THEN 'unpin' WHEN 4 THEN 'hold'
                        WHEN 5 THEN 'receipt' WHEN 6 THEN 'verdict'
                        WHEN 7 THEN 'erasure' END AS kind,
       l.thing >> 3 AS number, l.at AS at, lower(hex(l.mark)) AS commitment,
       s.thing IS NOT NULL AS open
  FROM proof_leaves AS l
  LEFT JOIN proof_salts AS s ON s.thing = l.thing AND s.leaf = l.leaf
 WHERE l.leaf < (SELECT size FROM proof_state);

CREATE VIEW IF NOT EXISTS main.proof_check AS
SELECT 'proof_leaves' AS object,
       'has ' || n || ' leaves, but proof_state says ' || size AS problem
  FROM (SELECT size, (SELECT count(*) FROM proof_leaves WHERE leaf < size) AS n
          FROM proof_state)
 WHERE n <> size;

-- Of a leaf that has content, the SHA-256 of salt and digest of the content is
-- mark.
CREATE TABLE IF NOT EXISTS main.proof_leaves(
  leaf  INTEGER PRIMARY KEY,
  thing INTEGER NOT NULL,
  at    INTEGER NOT NULL,
  mark  BLOB NOT NULL
);

CREATE TABLE IF NOT EXISTS main.proof_salts(
  thing INTEGER PRIMARY KEY,
  leaf  INTEGER NOT NULL,
  salt  BLOB NOT NULL
);

CREATE TABLE IF NOT EXISTS main.proof_nodes(
  node INTEGER PRIMARY KEY,
  hash BLOB NOT NULL
);

-- These indexes never have an entry. SQLite refuses an incremental blob write to a
-- table with an index on an expression, so such a write cannot change a row.
CREATE INDEX IF NOT EXISTS main.proof_leaves_whole
ON proof_leaves(-leaf) WHERE mark IS NULL;

CREATE INDEX IF NOT EXISTS main.proof_salts_whole
ON proof_salts(-leaf) WHERE salt IS NULL;

CREATE INDEX IF NOT EXISTS main.proof_nodes_whole
ON proof_nodes(-node) WHERE hash IS NULL;

-- origin is the first line of each head. frontier: the hashes of the complete
-- subtrees of the tree, 32 bytes each, the largest subtree first. pins and so on:
-- all with numbers up to this one have leaves. Of unpins, which have no order of
-- their own, it is how many. Receipts may have leaves above it, because that of a
-- minute gets its leaf when the minute is over.
CREATE TABLE IF NOT EXISTS main.proof_state(
  one      INTEGER PRIMARY KEY CHECK (one = 1),
  origin   TEXT NOT NULL,
  size     INTEGER NOT NULL,
  frontier BLOB NOT NULL,
  pins     INTEGER NOT NULL DEFAULT 0,
  unpins   INTEGER NOT NULL DEFAULT 0,
  holds    INTEGER NOT NULL DEFAULT 0,
  receipts INTEGER NOT NULL DEFAULT 0,
  verdicts INTEGER NOT NULL DEFAULT 0,
  erasures INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS main.proof_state_whole
ON proof_state(-one) WHERE origin IS NULL;

INSERT INTO main.proof_state(one, origin, size, frontier)
SELECT 1, 'blackbox/' || lower(hex(randomblob(16))), 0, x''
 WHERE NOT EXISTS (SELECT 1 FROM main.proof_state);

------------------------------------------------------------------ guards --

-- Leaves beyond the size are those of a call that failed; they do not count.
CREATE TRIGGER IF NOT EXISTS main.proof_leaves_insert
BEFORE INSERT ON proof_leaves
WHEN NOT coalesce(NEW.leaf >= (SELECT size FROM proof_state)
                  AND typeof(NEW.thing) = 'integer' AND NEW.thing > 7
                  AND typeof(NEW.at) = 'integer'
                  AND typeof(NEW.mark) = 'blob' AND length(NEW.mark) = 32, 0)
BEGIN
  SELECT RAISE(ABORT, 'ProofError: proof_leaves is written by the module only; SELECT proof_head() takes in what has no leaf');
END;

CREATE TRIGGER IF NOT EXISTS main.proof_leaves_update
BEFORE UPDATE ON proof_leaves
BEGIN
  SELECT RAISE(ABORT, 'ProofError: a leaf of the log cannot be changed');
END;

CREATE TRIGGER IF NOT EXISTS main.proof_leaves_delete
BEFORE DELETE ON proof_leaves
WHEN NOT coalesce(OLD.leaf >= (SELECT size FROM proof_state), 0)
BEGIN
  SELECT RAISE(ABORT, 'ProofError: a leaf of the log cannot be deleted');
END;

CREATE TRIGGER IF NOT EXISTS main.proof_salts_insert
BEFORE INSERT ON proof_salts
WHEN NOT coalesce(NEW.leaf >= (SELECT size FROM proof_state)
                  AND NEW.thing > 7
                  AND typeof(NEW.salt) = 'blob' AND length(NEW.salt) = 32
                  AND NOT EXISTS (SELECT 1 FROM proof_salts
                                   WHERE thing = NEW.thing), 0)
BEGIN
  SELECT RAISE(ABORT, 'ProofError: proof_salts is written by the module only; SELECT proof_head() takes in what has no leaf');
END;

-- A salt is overwritten with zeros before it is deleted.
CREATE TRIGGER IF NOT EXISTS main.proof_salts_update
BEFORE UPDATE ON proof_salts
WHEN NOT coalesce(NEW.thing = OLD.thing AND NEW.leaf = OLD.leaf
                  AND NEW.salt = zeroblob(32)
                  AND CASE OLD.thing & 7
                        WHEN 2 THEN EXISTS (SELECT 1 FROM proof_salts
                                             WHERE thing = OLD.thing + 1)
                        WHEN 5 THEN OLD.thing >> 3 <=
                                    (SELECT receipts - 10000 FROM proof_state)
                        ELSE OLD.thing & 7 = 6
                      END, 0)
BEGIN
  SELECT RAISE(ABORT, 'ProofError: a salt of the log cannot be changed');
END;

CREATE TRIGGER IF NOT EXISTS main.proof_salts_delete
BEFORE DELETE ON proof_salts
WHEN NOT coalesce(OLD.salt = zeroblob(32)
                  OR OLD.leaf >= (SELECT size FROM proof_state), 0)
BEGIN
  SELECT RAISE(ABORT, 'ProofError: a salt of the log cannot be deleted while its content must stay');
END;

-- A node is written before the size includes the last of its leaves.
CREATE TRIGGER IF NOT EXISTS main.proof_nodes_insert
BEFORE INSERT ON proof_nodes
WHEN NOT coalesce(typeof(NEW.hash) = 'blob' AND length(NEW.hash) = 32
                  AND ((NEW.node & 281474976710655) + 1) << 8 * (NEW.node >> 48)
                      > (SELECT size FROM proof_state), 0)
BEGIN
  SELECT RAISE(ABORT, 'ProofError: proof_nodes is written by the module only');
END;

CREATE TRIGGER IF NOT EXISTS main.proof_nodes_update
BEFORE UPDATE ON proof_nodes
BEGIN
  SELECT RAISE(ABORT, 'ProofError: a hash of the log cannot be changed');
END;

CREATE TRIGGER IF NOT EXISTS main.proof_nodes_delete
BEFORE DELETE ON proof_nodes
WHEN NOT coalesce(((OLD.node & 281474976710655) + 1) << 8 * (OLD.node >> 48)
                  > (SELECT size FROM proof_state), 0)
BEGIN
  SELECT RAISE(ABORT, 'ProofError: a hash of the log cannot be deleted');
END;

CREATE TRIGGER IF NOT EXISTS main.proof_state_update
BEFORE UPDATE ON proof_state
WHEN NOT coalesce(NEW.one = OLD.one AND NEW.origin = OLD.origin
                  AND NEW.size >= OLD.size
                  AND EXISTS (SELECT 1 FROM proof_leaves
                               WHERE leaf = NEW.size - 1)
                  AND NEW.pins >= OLD.pins AND NEW.unpins >= OLD.unpins
                  AND NEW.holds >= OLD.holds AND NEW.receipts >= OLD.receipts
                  AND NEW.verdicts >= OLD.verdicts
                  AND NEW.erasures >= OLD.erasures, 0)
BEGIN
  SELECT RAISE(ABORT, 'ProofError: the size of the log is written by the module only, and the log only grows');
END;

CREATE TRIGGER IF NOT EXISTS main.proof_state_insert
BEFORE INSERT ON proof_state
WHEN EXISTS (SELECT 1 FROM proof_state)
BEGIN
  SELECT RAISE(ABORT, 'ProofError: proof_state has one row, which stays');
END;

CREATE TRIGGER IF NOT EXISTS main.proof_state_delete
BEFORE DELETE ON proof_state
BEGIN
  SELECT RAISE(ABORT, 'ProofError: proof_state has one row, which stays');
END;

INSERT INTO main.blackbox_domains(domain, format) VALUES ('proof', 1)
ON CONFLICT (domain) DO UPDATE SET format = excluded.format;
