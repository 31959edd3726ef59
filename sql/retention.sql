-- retention.sql: what is built on the rules of all domains.
--
-- The rules and their receipts are in core.sql, and each domain says in a due
-- view of its own what its rules remove. retention_plan() reads them.
--
-- Continued in sql/retention_holds.sql
-- Continued in sql/retention_erase.sql
--
-- Tables  retention_refusals  rules that could not be applied, and why
-- Views   retention_check     contradictions (no rows if all is well)
--
-- The files run alone after core.sql, in this order, any number of times.
--
-- Invariants: a refusal stays until there are 10,000 newer ones. Receipts are in
-- another table, so that neither displaces the other.

CREATE VIEW IF NOT EXISTS main.retention_check AS
SELECT 'retention_refusals' AS object,
       'refusal ' || id || ' has no rule or message' AS problem
  FROM retention_refusals
 WHERE rule = '' OR message = ''
UNION ALL
SELECT object, problem FROM retention_hold_check
UNION ALL
SELECT object, problem FROM retention_erasure_check;

-- A refusal that is repeated is counted in its row: at is the last time.
CREATE TABLE IF NOT EXISTS main.retention_refusals(
  id      INTEGER PRIMARY KEY,
  at      INTEGER NOT NULL,
  domain  TEXT NOT NULL,
  rule    TEXT NOT NULL,
  message TEXT NOT NULL,
  times   INTEGER NOT NULL DEFAULT 1
);

CREATE INDEX IF NOT EXISTS main.retention_refusals_rule
ON retention_refusals(rule);

CREATE TRIGGER IF NOT EXISTS main.retention_refusals_cap
AFTER INSERT ON retention_refusals
BEGIN
  DELETE FROM retention_refusals WHERE id <= NEW.id - 10000;
END;

-- A large id would make the cap delete all other refusals. (NEW.id is -1 if the
-- statement gave none.)
CREATE TRIGGER IF NOT EXISTS main.retention_refusals_insert
BEFORE INSERT ON retention_refusals
WHEN NEW.id IS NOT NULL AND NEW.id <> -1
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: retention_refusals assigns the id of a refusal; omit the id');
END;

CREATE TRIGGER IF NOT EXISTS main.retention_refusals_update
BEFORE UPDATE ON retention_refusals
WHEN (NEW.id, NEW.domain, NEW.rule, NEW.message)
     IS NOT (OLD.id, OLD.domain, OLD.rule, OLD.message)
  OR NOT coalesce(NEW.times > OLD.times, 0)
BEGIN
  SELECT RAISE(ABORT, 'ReceiptError: a refusal of retention_refusals cannot be changed');
END;

CREATE TRIGGER IF NOT EXISTS main.retention_refusals_delete
BEFORE DELETE ON retention_refusals
WHEN OLD.id > (SELECT max(id) FROM retention_refusals) - 10000
BEGIN
  SELECT RAISE(ABORT, 'ReceiptError: a refusal of retention_refusals cannot be deleted; the table keeps its newest 10,000');
END;

INSERT INTO main.blackbox_domains(domain, format) VALUES ('retention', 1)
ON CONFLICT (domain) DO UPDATE SET format = excluded.format;
