-- store.sql: the body store. It keeps long texts cut into pieces, each piece once,
-- however many texts contain it.
--
-- A packed value is replaced, in the table that it belongs to, by a reference: a
-- blob of X'B1627801', the 32 bytes of a hash of the text (ext/store/format.c), and
-- the number of the text in decimal digits. The store does not know the table that
-- has references: the module has the statements for it (BxBodies).
--
-- Tables  store__texts    one row for each packed value: where its pieces are
--         store__packs    pieces, about 256 KB of them together, compressed by zstd;
--                        and for each pack the length, the uses and the key of each
--                        piece, in a row with the number below 0
--         store__pieces   where the piece with a given hash is
--         store__state    one row: totals
-- Views   store_stats    texts, pieces, packs, bytes
--
-- This file runs alone after core.sql (sqlite3 my.db < sql/store.sql), any number of
-- times.
--
-- Invariants: only functions of the module write here, except that everybody may
-- write store_dropped. An entry of it removes nothing: the sweep first asks whether a
-- reference names the text. A pack never changes its number, nor a piece its place, so that places stay valid
-- when other pieces of a pack are removed.
--
-- Limits: what others write into these tables is found by blackbox_check().

-- dropped and dropped_bytes: texts that wait for the sweep, with their full length.
CREATE VIEW IF NOT EXISTS main.store_stats AS
SELECT s.texts - d.n AS texts, s.text_bytes - d.b AS text_bytes,
       (SELECT count(*) FROM store__packs WHERE pack > 0) AS packs, s.pieces AS pieces,
       s.piece_bytes AS piece_bytes, s.kept_bytes AS kept_bytes,
       d.n AS dropped, d.b AS dropped_bytes
  FROM store__state AS s,
       (SELECT count(*) AS n, coalesce(sum(t.bytes), 0) AS b
          FROM store_dropped AS x JOIN store__texts AS t ON t.text = x.text) AS d;

-- bytes is the length of the text. mark is the beginning of the hash in its
-- reference. sum is a checksum of the text. recipe: see ext/store/format.c.
CREATE TABLE IF NOT EXISTS main.store__texts(
  text   INTEGER PRIMARY KEY,
  bytes INTEGER NOT NULL, mark BLOB NOT NULL, sum INTEGER NOT NULL,
  recipe BLOB NOT NULL
);

-- token is another number each time that the data is written. The row of a list has the
-- number -pack and the token 0.
CREATE TABLE IF NOT EXISTS main.store__packs(
  pack  INTEGER PRIMARY KEY,
  token INTEGER NOT NULL,
  data  BLOB NOT NULL
);

-- key: the first eight bytes of the hash. place: the pack * 65536 + the number of
-- the piece in it.
CREATE TABLE IF NOT EXISTS main.store__pieces(
  "key" INTEGER PRIMARY KEY,
  place INTEGER NOT NULL
);

-- open is the pack that has room for more. next is the number of the next text.
CREATE TABLE IF NOT EXISTS main.store__state(
  one         INTEGER PRIMARY KEY CHECK (one = 1),
  next INTEGER NOT NULL, open INTEGER NOT NULL, texts INTEGER NOT NULL,
  text_bytes INTEGER NOT NULL, pieces INTEGER NOT NULL, piece_bytes INTEGER NOT NULL,
  kept_bytes  INTEGER NOT NULL
);

INSERT INTO main.store__state(one, next, open, texts, text_bytes, pieces, piece_bytes,
  kept_bytes)
SELECT 1, 1, 0, 0, 0, 0, 0, 0 WHERE NOT EXISTS (SELECT 1 FROM main.store__state);

INSERT INTO main.blackbox_domains(domain, format) VALUES ('store', 1) ON CONFLICT (domain) DO UPDATE SET format = excluded.format;
