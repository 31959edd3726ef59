-- rollout_search.sql: a full-text index of the texts of rollout__texts. rollout_search_install()
-- runs it and fills the index, and blackbox_install() does not, because it needs FTS5. It needs
-- the tables of rollout.sql.
--
-- The module puts words there as they are searched (ext/rollout/search.c), of several texts at
-- once; rowid is n, and whole has the words that are split in text. Nothing is taken out: a text that is gone has no row in
-- rollout__texts. rollout_cleanup_expired() makes the index anew when more are gone than are left.
-- No trigger writes here, so that a connection without FTS5 can write everything else.
CREATE VIRTUAL TABLE IF NOT EXISTS main.rollout_fts
USING fts5(text, whole, content = '', tokenize = 'unicode61 remove_diacritics 2');

-- Each batch of texts is a segment, and 16 of them are merged. The module does it in steps of a
-- few pages, so that no append takes long; small pages make the steps short.
INSERT INTO main.rollout_fts(rollout_fts, rank) VALUES ('automerge', 0);
INSERT INTO main.rollout_fts(rollout_fts, rank) VALUES ('usermerge', 16);
INSERT INTO main.rollout_fts(rollout_fts, rank) VALUES ('crisismerge', 64);
INSERT INTO main.rollout_fts(rollout_fts, rank) VALUES ('pgsz', 2000);

UPDATE main.rollout__act SET search = 1;
