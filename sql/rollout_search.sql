-- rollout_search.sql: a full-text index over what users, assistants and tools said.
-- rollout_search_install() runs it, and blackbox_install() does not, because
-- every host that writes afterwards needs FTS5 with the trigram tokenizer. It
-- needs the tables of rollout.sql. Running it again fills the index again.
--
-- Tables: rollout_fts            the index; rowid is the id of the item
-- Views:  rollout_spoken         (id, role, text) of each message, once
--
-- Invariant: rollout_fts has a row for each derived item of rollout_spoken, with all
-- that it says. New items are put there in C; two triggers on rollout__data do the
-- rest.

-- Some recorders write a message twice in a row, as an item and as an event.
-- Only the first one counts. (Two readings may find the same text.)
CREATE VIEW IF NOT EXISTS main.rollout_spoken AS
SELECT x.id AS id, x.fact AS role, x.value AS text
  FROM rollout_facts AS x
 WHERE x.fact IN ('user', 'assistant', 'tool') AND x.value <> ''
   AND NOT EXISTS (SELECT 1 FROM rollout_facts AS y
                    WHERE y.id = x.id - 1 AND y.source <> x.source
                      AND y.fact = x.fact AND y.value = x.value);

CREATE VIRTUAL TABLE IF NOT EXISTS main.rollout_fts
USING fts5(text, tokenize = 'trigram');

-- The next item is read again, because it may repeat this one.
CREATE TRIGGER IF NOT EXISTS main.rollout_fts_update
AFTER UPDATE OF payload ON rollout__data
BEGIN
  DELETE FROM rollout_fts WHERE rowid IN (NEW.id, NEW.id + 1);
  INSERT INTO rollout_fts(rowid, text)
  SELECT NEW.id, text
    FROM (SELECT group_concat(text, char(10)) AS text
            FROM (SELECT DISTINCT text FROM rollout_spoken WHERE id = NEW.id))
   WHERE text IS NOT NULL;
  INSERT INTO rollout_fts(rowid, text)
  SELECT NEW.id + 1, text
    FROM (SELECT group_concat(text, char(10)) AS text
            FROM (SELECT DISTINCT text FROM rollout_spoken WHERE id = NEW.id + 1))
   WHERE text IS NOT NULL;
END;

CREATE TRIGGER IF NOT EXISTS main.rollout_fts_delete
AFTER DELETE ON rollout__data
BEGIN
  DELETE FROM rollout_fts WHERE rowid = OLD.id;
END;

UPDATE main.rollout__act SET search = 1;
DELETE FROM main.rollout_fts;
INSERT INTO main.rollout_fts(rowid, text)
SELECT id, group_concat(text, char(10))
  FROM (SELECT DISTINCT id, text FROM main.rollout_spoken)
 GROUP BY id;
