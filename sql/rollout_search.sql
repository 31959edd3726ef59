-- rollout_search.sql: a full-text index over what users, assistants and tools said.
-- rollout_search_install() runs it and fills the index, and blackbox_install() does
-- not, because every host that writes afterwards needs FTS5 with the trigram
-- tokenizer. It needs the tables of rollout.sql.
--
-- Tables: rollout_fts       the index; rowid is the id of the item
--         rollout__fts_due  items that the next call of the module that writes reads
--                           again
--
-- Invariant: rollout_fts has all that each derived item says, but for those of
-- rollout__fts_due, of which it has nothing. The module puts items there; two triggers
-- on rollout__data take them out.
CREATE VIRTUAL TABLE IF NOT EXISTS main.rollout_fts
USING fts5(text, tokenize = 'trigram');

CREATE TABLE IF NOT EXISTS main.rollout__fts_due(id INTEGER PRIMARY KEY);

-- The next item is read again, because it may repeat this one.
CREATE TRIGGER IF NOT EXISTS main.rollout_fts_update
AFTER UPDATE OF payload ON rollout__data
BEGIN
  DELETE FROM rollout_fts WHERE rowid IN (NEW.id, NEW.id + 1);
  INSERT OR IGNORE INTO rollout__fts_due VALUES (NEW.id), (NEW.id + 1);
END;

CREATE TRIGGER IF NOT EXISTS main.rollout_fts_delete
AFTER DELETE ON rollout__data
BEGIN
  DELETE FROM rollout_fts WHERE rowid = OLD.id;
END;

UPDATE main.rollout__act SET search = 1;
DELETE FROM main.rollout_fts;
DELETE FROM main.rollout__fts_due;
