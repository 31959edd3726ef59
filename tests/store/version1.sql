BEGIN TRANSACTION;
CREATE TABLE blackbox_domains(
  domain  TEXT PRIMARY KEY,
  version INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "blackbox_domains" VALUES('core',3);
INSERT INTO "blackbox_domains" VALUES('store',1);
CREATE TABLE blackbox_ledgers(
  domain  TEXT PRIMARY KEY,
  entries INTEGER NOT NULL,
  closed  INTEGER NOT NULL,
  digest  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE blackbox_probe(
  one INTEGER PRIMARY KEY AUTOINCREMENT
);
CREATE TABLE blackbox_setting_defs(
  name    TEXT PRIMARY KEY,
  kind    TEXT NOT NULL CHECK (kind IN ('integer', 'real', 'choice')),
  preset  NOT NULL,
  low     NUMERIC,
  high    NUMERIC,
  choices TEXT,
  meaning TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "blackbox_setting_defs" VALUES('core.max_clock_jump_days','integer',7,1,36500,NULL,'days that the clock may be ahead of the newest time seen before all rules stop');
CREATE TABLE blackbox_settings(
  name  TEXT PRIMARY KEY,
  value NOT NULL
) WITHOUT ROWID;
CREATE TABLE notes(id INTEGER PRIMARY KEY, a, b);
INSERT INTO "notes" VALUES(1,X'B162780145CEEDD11C5E52F6E56A50BD30F3D84470F104BC46A453790963793CF22A818031',X'B1627801339E9C2B52A5B00F3D9443BECD1F3F31B8EF8D03E8A7EAB0174A6284A8B002BA32');
INSERT INTO "notes" VALUES(3,X'B1627801445DB8CB26223F83334E0F9FE9089E603A84B35267DDEE1CB9576E930EA24D9635',X'B162780150B8EF054D13BC647FFFADE776EE27D6FCEC5B9E09D73F649CE79100D74495CC36');
INSERT INTO "notes" VALUES(4,X'B1627801A8ADCE84BB54C1D3738F5048C9DDE0E6CA21ECD76F446ADD284B9043541D928737',NULL);
CREATE TABLE retention_clock(
  one  INTEGER PRIMARY KEY CHECK (one = 1),
  seen INTEGER NOT NULL
);
INSERT INTO "retention_clock" VALUES(1,1795377425528);
CREATE TABLE retention_erased(
  kind  TEXT NOT NULL,
  "key" TEXT NOT NULL,
  until INTEGER NOT NULL,
  PRIMARY KEY (kind, "key")
) WITHOUT ROWID;
CREATE TABLE retention_held(
  kind  TEXT NOT NULL,
  "key" TEXT NOT NULL,
  owner TEXT NOT NULL,
  until INTEGER,
  step  INTEGER NOT NULL,
  PRIMARY KEY (kind, "key", owner)
) WITHOUT ROWID;
CREATE TABLE retention_log(
  id     INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  domain TEXT NOT NULL,
  rule   TEXT NOT NULL,
  actor  TEXT,
  rows   INTEGER NOT NULL,
  bytes  INTEGER NOT NULL,
  oldest INTEGER,
  newest INTEGER,
  minute INTEGER
);
CREATE TABLE retention_rules(
  rule    TEXT PRIMARY KEY,
  domain  TEXT NOT NULL DEFAULT 'user',
  "view"  TEXT,
  setting TEXT,
  unit_ms INTEGER,
  "table" TEXT,
  "key"   TEXT,
  "time"  TEXT,
  format  TEXT NOT NULL DEFAULT 'ms',
  age_ms  INTEGER
) WITHOUT ROWID;
CREATE TABLE store_dropped(
  text INTEGER PRIMARY KEY
);
CREATE TABLE store_lists(
  pack INTEGER PRIMARY KEY,
  list BLOB NOT NULL
);
INSERT INTO "store_lists" VALUES(1,X'C60403C948243648EF7FE3F8697AD88AB7168ABF0415D6CB3D49119025F97C7FAA37CDB3698B810E01D9CD4329752F95330463CE25384C564B8407014930F7A2C1668F486DE3DF413D84F0890000F12301281F74153DC3618110CC95E4EDD1F78F8407010C6C6F1CCBFD664B35B31758DE604E8CAD2901C26422A2066D10299E3CD378F74A6A20');
CREATE TABLE store_packs(
  pack  INTEGER PRIMARY KEY,
  token INTEGER NOT NULL,
  data  BLOB NOT NULL
);
INSERT INTO "store_packs" VALUES(1,1566121385147572970,X'28B52FFD642C38A5070036DB1D14B027CB018008614338DA362A0E53910C8E63140625000E000E00FFFFFFFFFFFFFFFFFFC749200C1328C6912005801887604A910C0EC5291453CE614A621004FFFFFFFFFFFFFFFFFFFFFFFFFF3FFFFFFFFFFFFFFFFFFFFFFFFFFF3FA5AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAEA1F8196A821F88DFD33C127A9D5011248B0155F52FEFFFF241DE4B2444C67987486B1A7221AA800807BE095DA0228BDD18D8C6E36BA93D14D836E1ABAD9C84DA36B1A9DE9E846A33B1A5D7712DF4A0D00EF925498690C95CE306A8DA259239639643AC3B4D309513F003034F81F06F632A5A96F293DA8C9C707AA0ADF753563');
CREATE TABLE store_pieces(
  "key" INTEGER PRIMARY KEY,
  place INTEGER NOT NULL
);
INSERT INTO "store_pieces" VALUES(-4439385253392609239,65544);
INSERT INTO "store_pieces" VALUES(-3942861658192379933,65536);
INSERT INTO "store_pieces" VALUES(-2969212145284143623,65537);
INSERT INTO "store_pieces" VALUES(-2752469951914732237,65538);
INSERT INTO "store_pieces" VALUES(895212595412035147,65543);
INSERT INTO "store_pieces" VALUES(2891157120374497665,65542);
INSERT INTO "store_pieces" VALUES(5273987442052337480,65539);
CREATE TABLE store_state(
  one         INTEGER PRIMARY KEY CHECK (one = 1),
  next        INTEGER NOT NULL,
  open        INTEGER NOT NULL,
  texts       INTEGER NOT NULL,
  text_bytes  INTEGER NOT NULL,
  pieces      INTEGER NOT NULL,
  piece_bytes INTEGER NOT NULL,
  kept_bytes  INTEGER NOT NULL
);
INSERT INTO "store_state" VALUES(1,8,1,5,27300,7,14636,473);
CREATE TABLE store_texts(
  text   INTEGER PRIMARY KEY,
  bytes  INTEGER NOT NULL,
  mark   BLOB NOT NULL,
  sum    INTEGER NOT NULL,
  fresh  INTEGER NOT NULL,
  recipe BLOB NOT NULL
);
INSERT INTO "store_texts" VALUES(1,6400,X'45CEEDD11C5E52F6',1138694279,65536,X'03020002000101000101000101000101000101000102');
INSERT INTO "store_texts" VALUES(2,900,X'339E9C2B52A5B00F',4082081772,65539,X'04020301');
INSERT INTO "store_texts" VALUES(5,9200,X'445DB8CB26223F83',2509261228,65542,X'03020002000101000101000101000101000101000101000601');
INSERT INTO "store_texts" VALUES(6,900,X'50B8EF054D13BC64',1900233511,65543,X'04020701');
INSERT INTO "store_texts" VALUES(7,9900,X'A8ADCE84BB54C1D3',975536578,65544,X'03020002000101000101000101000101000101000101000801');
CREATE TABLE store_users(
  bodies TEXT PRIMARY KEY,
  texts  TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "store_users" VALUES('notes_bodies','notes_texts');
CREATE VIEW blackbox_limits AS
SELECT d.name AS name,
       CASE d.kind
         WHEN 'integer' THEN CAST(coalesce(s.value, d.preset) AS INTEGER)
         ELSE coalesce(s.value, d.preset)
       END AS value,
       d.preset AS "default",
       CASE d.kind
         WHEN 'choice' THEN d.choices
         ELSE d.low || ' to ' || d.high
       END AS range,
       d.meaning AS meaning
  FROM blackbox_setting_defs AS d
  LEFT JOIN blackbox_settings AS s ON s.name = d.name;
CREATE VIEW blackbox_setting_test AS
SELECT NULL AS name, NULL AS value WHERE 0;
CREATE VIEW core_check AS
SELECT s.name AS object,
       CASE WHEN d.name IS NULL THEN 'unknown setting'
            ELSE 'setting out of range' END AS problem
  FROM blackbox_settings AS s
  LEFT JOIN blackbox_setting_defs AS d ON d.name = s.name
 WHERE d.name IS NULL
    OR NOT CASE d.kind
         -- Some languages have no integers: 3.0 is 3.
         WHEN 'integer' THEN typeof(s.value) IN ('integer', 'real')
                             AND s.value = CAST(s.value AS INTEGER)
                             AND s.value BETWEEN d.low AND d.high
         WHEN 'real' THEN typeof(s.value) IN ('integer', 'real')
                          AND s.value BETWEEN d.low AND d.high
         ELSE typeof(s.value) = 'text' AND s.value <> ''
              AND instr(s.value, ',') = 0
              AND instr(', ' || coalesce(d.choices, '') || ', ',
                        ', ' || s.value || ', ') > 0
       END
UNION ALL
SELECT 'retention_log',
       'receipt ' || id || ' has fewer than 0 rows'
  FROM retention_log WHERE rows < 0
UNION ALL
SELECT 'retention_clock', 'the row is missing: no rule removes anything; run blackbox_install()'
 WHERE NOT EXISTS (SELECT 1 FROM retention_clock);
CREATE VIEW retention_jump AS
SELECT coalesce((SELECT value FROM blackbox_settings
                  WHERE name = 'core.max_clock_jump_days'), preset) AS days
  FROM blackbox_setting_defs
 WHERE name = 'core.max_clock_jump_days';
CREATE VIEW retention_now AS
SELECT CASE WHEN CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER) <=
                 seen + 86400000 * (SELECT days FROM retention_jump)
            THEN CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)
       END AS now,
       CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER) AS clock, seen
  FROM retention_clock
 WHERE one = 1;
CREATE VIEW retention_tick AS
SELECT seen AS now
  FROM retention_clock
 WHERE one = 1
   AND seen < (julianday('now') - 2440587.5) * 86400000.0 - 3600000;
CREATE VIEW retention_refusers AS
SELECT r.rule AS rule, s.name AS name
  FROM retention_rules AS r, sqlite_schema AS s
 WHERE (s.type = 'trigger'
        AND (s.tbl_name = r."table" COLLATE NOCASE
             OR (instr(s.tbl_name, r.domain) = 1 AND instr(s.tbl_name, r.domain || '_') = 1))
        AND instr(s.name, r.domain || '_') <> 1 AND instr(s.name, r."table" || '_') <> 1
        AND instr(lower(s.sql), 'delete') > 0)
    OR (s.type = 'table' AND s.sql LIKE '%references%' -- quicker than lower()
        AND (instr(lower(s.sql), lower(r."table")) > 0
             OR instr(lower(s.sql), r.domain || '_') > 0));
CREATE VIEW retention_note AS
SELECT NULL AS at, NULL AS domain, NULL AS rule, NULL AS rows, NULL AS bytes,
       NULL AS oldest, NULL AS newest
 WHERE 0;
CREATE VIEW retention_time AS
SELECT iif((julianday('now') - 2440587.5) * 86400000.0 - seen BETWEEN 0 AND 86400000,
           (julianday('now') - 2440587.5) * 86400000.0, seen) AS now
  FROM retention_clock
 WHERE one = 1;
CREATE VIEW retention_in_force AS
SELECT kind, "key", owner, until, step
  FROM retention_held
 WHERE until IS NULL
    OR (until > (SELECT now FROM retention_time)) IS NOT 0;
CREATE VIEW retention_refused AS
SELECT kind, "key", until
  FROM retention_erased
 WHERE (until > (SELECT now FROM retention_time)) IS NOT 0;
CREATE VIEW retention_visible AS
SELECT char(9, 10, 13, 32, 160, 173, 847, 1564, 4447, 4448) ||
       char(5760, 6068, 6069, 6155, 6156, 6157, 6158, 10240, 12288) ||
       char(8192, 8193, 8194, 8195, 8196, 8197, 8198, 8199, 8200) ||
       char(8201, 8202, 8203, 8204, 8205, 8206, 8207, 8232, 8233) ||
       char(8234, 8235, 8236, 8237, 8238, 8239, 8287, 8288, 8289) ||
       char(8290, 8291, 8292, 8293, 8294, 8295, 8296, 8297, 8298) ||
       char(8299, 8300, 8301, 8302, 8303, 12644, 65024, 65025) ||
       char(65026, 65027, 65028, 65029, 65030, 65031, 65032) ||
       char(65033, 65034, 65035, 65036, 65037, 65038, 65039) ||
       char(65279, 65440, 65529, 65530, 65531) AS unseen;
CREATE VIEW retention_controls AS
WITH control(c) AS (
  SELECT 0 UNION ALL
  SELECT CASE c WHEN 31 THEN 127 ELSE c + 1 END FROM control WHERE c < 159)
SELECT char(c) AS control, c IN (9, 10, 13) AS parts_text FROM control;
CREATE TRIGGER blackbox_setting_test_insert
INSTEAD OF INSERT ON blackbox_setting_test
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: unknown setting; SELECT name, range FROM blackbox_limits lists all settings')
   WHERE NOT EXISTS (SELECT 1 FROM blackbox_setting_defs WHERE name = NEW.name);
  SELECT RAISE(ABORT, 'ValidationError: the value of a setting is out of range; SELECT name, range FROM blackbox_limits lists the ranges')
    FROM blackbox_setting_defs AS d
   WHERE d.name = NEW.name AND CASE d.kind
         -- Some languages have no integers: 3.0 is 3.
         WHEN 'integer' THEN typeof(NEW.value) IN ('integer', 'real')
                             AND NEW.value = CAST(NEW.value AS INTEGER)
                             AND NEW.value BETWEEN d.low AND d.high
         WHEN 'real' THEN typeof(NEW.value) IN ('integer', 'real')
                          AND NEW.value BETWEEN d.low AND d.high
         ELSE typeof(NEW.value) = 'text' AND NEW.value <> ''
              AND instr(NEW.value, ',') = 0
              AND instr(', ' || coalesce(d.choices, '') || ', ',
                        ', ' || NEW.value || ', ') > 0
       END IS NOT TRUE;
END;
CREATE TRIGGER blackbox_settings_insert
BEFORE INSERT ON blackbox_settings
BEGIN
  INSERT INTO blackbox_setting_test(name, value) VALUES (NEW.name, NEW.value);
END;
CREATE TRIGGER blackbox_settings_update
BEFORE UPDATE ON blackbox_settings
BEGIN
  INSERT INTO blackbox_setting_test(name, value) VALUES (NEW.name, NEW.value);
END;
CREATE INDEX retention_log_minute
ON retention_log(domain, rule, minute) WHERE minute IS NOT NULL;
CREATE INDEX retention_log_whole
ON retention_log(-id) WHERE rows IS NULL;
CREATE TRIGGER retention_log_cap
AFTER INSERT ON retention_log
BEGIN
  DELETE FROM retention_log WHERE id <= NEW.id - 10000;
END;
CREATE TRIGGER retention_log_insert
BEFORE INSERT ON retention_log
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: retention_log assigns the id of a receipt; omit the id')
   WHERE NEW.id <> -1;
  SELECT RAISE(ABORT, 'ValidationError: rows and bytes of a receipt are integers from 0')
   WHERE (typeof(NEW.rows) = 'integer' AND typeof(NEW.bytes) = 'integer'
          AND NEW.rows >= 0 AND NEW.bytes >= 0) IS NOT TRUE;
END;
CREATE TRIGGER retention_log_update
BEFORE UPDATE ON retention_log
WHEN NEW.id IS NOT OLD.id OR NEW.domain IS NOT OLD.domain
  OR NEW.rule IS NOT OLD.rule OR NEW.actor IS NOT OLD.actor
  OR NEW.minute IS NOT OLD.minute
  OR (NEW.rows >= OLD.rows AND NEW.bytes >= OLD.bytes AND NEW.at >= OLD.at
      AND (OLD.oldest IS NULL OR NEW.oldest <= OLD.oldest)
      AND (OLD.newest IS NULL OR NEW.newest >= OLD.newest)) IS NOT TRUE
BEGIN
  SELECT RAISE(ABORT, 'ReceiptError: a receipt of retention_log cannot be changed');
END;
CREATE TRIGGER retention_log_delete
BEFORE DELETE ON retention_log
WHEN NOT (OLD.minute IS NULL AND OLD.rows = 0)
 AND OLD.id > (SELECT max(id) FROM retention_log) - 10000
BEGIN
  SELECT RAISE(ABORT, 'ReceiptError: a receipt of retention_log cannot be deleted; the log keeps its newest 10,000');
END;
CREATE TRIGGER retention_note_insert
INSTEAD OF INSERT ON retention_note
BEGIN
  INSERT INTO retention_log(at, domain, rule, rows, bytes, minute)
  SELECT NEW.at, NEW.domain, NEW.rule, 0, 0, NEW.at / 60000
   WHERE NOT EXISTS (SELECT 1 FROM retention_log
                      WHERE domain = NEW.domain AND rule = NEW.rule
                        AND minute = NEW.at / 60000);
  UPDATE retention_log
     SET at = max(at, NEW.at), rows = rows + NEW.rows, bytes = bytes + NEW.bytes,
         oldest = min(coalesce(oldest, NEW.oldest), coalesce(NEW.oldest, oldest)),
         newest = max(coalesce(newest, NEW.newest, NEW.oldest),
                      coalesce(NEW.newest, NEW.oldest, newest))
   WHERE id = (SELECT max(id) FROM retention_log
                WHERE domain = NEW.domain AND rule = NEW.rule
                  AND minute = NEW.at / 60000);
  SELECT RAISE(ABORT, 'MisuseError: a trigger on retention_log prevents the receipt; drop the trigger')
   WHERE changes() = 0;
END;
CREATE TRIGGER retention_rules_insert
BEFORE INSERT ON retention_rules
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: a rule needs a name, and a view or a table with key, time and age_ms; name its columns as text, and give age_ms in milliseconds above 0')
   WHERE NOT coalesce(
           typeof(NEW.rule) = 'text' AND NEW.rule <> ''
           AND (typeof(NEW."view") = 'text'
                OR (typeof(NEW."table") = 'text' AND typeof(NEW."key") = 'text'
                    AND typeof(NEW."time") = 'text'
                    AND typeof(NEW.age_ms) = 'integer' AND NEW.age_ms > 0)), 0);
  SELECT RAISE(ABORT, 'ValidationError: format must be ms, s or text')
   WHERE NEW.format NOT IN ('ms', 's', 'text');
END;
CREATE TRIGGER retention_rules_update
BEFORE UPDATE ON retention_rules
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: a rule needs a name, and a view or a table with key, time and age_ms; name its columns as text, and give age_ms in milliseconds above 0')
   WHERE NOT coalesce(
           typeof(NEW.rule) = 'text' AND NEW.rule <> ''
           AND (typeof(NEW."view") = 'text'
                OR (typeof(NEW."table") = 'text' AND typeof(NEW."key") = 'text'
                    AND typeof(NEW."time") = 'text'
                    AND typeof(NEW.age_ms) = 'integer' AND NEW.age_ms > 0)), 0);
  SELECT RAISE(ABORT, 'ValidationError: format must be ms, s or text')
   WHERE NEW.format NOT IN ('ms', 's', 'text');
END;
CREATE TRIGGER retention_tick_insert
INSTEAD OF INSERT ON retention_tick
BEGIN
  UPDATE retention_clock SET seen = NEW.now
   WHERE one = 1 AND seen + 3600000 < NEW.now;
END;
CREATE TRIGGER retention_clock_update
BEFORE UPDATE ON retention_clock
WHEN NEW.seen <> (SELECT clock FROM retention_now)
BEGIN
  SELECT RAISE(ABORT, 'ClockError: retention_clock can only be set to the current time; SELECT retention_confirm_clock(), or UPDATE retention_clock SET seen = (SELECT clock FROM retention_now)');
END;
CREATE TRIGGER retention_clock_confirmed
AFTER UPDATE ON retention_clock
WHEN NEW.seen < OLD.seen
  OR NEW.seen > OLD.seen + 86400000 * (SELECT days FROM retention_jump)
BEGIN
  INSERT INTO retention_note(at, domain, rule, rows, bytes, oldest, newest)
  VALUES (NEW.seen, 'core', 'clock confirmed', 0, 0,
          min(OLD.seen, NEW.seen), max(OLD.seen, NEW.seen));
END;
CREATE TRIGGER retention_clock_insert
BEFORE INSERT ON retention_clock
WHEN EXISTS (SELECT 1 FROM retention_clock)
BEGIN
  SELECT RAISE(ABORT, 'ClockError: retention_clock already has its row; SELECT retention_confirm_clock()');
END;
CREATE TRIGGER retention_clock_delete
BEFORE DELETE ON retention_clock
BEGIN
  SELECT RAISE(ABORT, 'ClockError: the row of retention_clock cannot be deleted; SELECT retention_confirm_clock()');
END;
CREATE VIEW store_stats AS
SELECT s.texts - d.n AS texts, s.text_bytes - d.b AS text_bytes,
       (SELECT count(*) FROM store_packs) AS packs, s.pieces AS pieces,
       s.piece_bytes AS piece_bytes, s.kept_bytes AS kept_bytes,
       d.n AS dropped, d.b AS dropped_bytes
  FROM store_state AS s,
       (SELECT count(*) AS n, coalesce(sum(t.bytes), 0) AS b
          FROM store_dropped AS x JOIN store_texts AS t ON t.text = x.text) AS d;
CREATE VIEW store_size AS
SELECT texts AS rows, kept_bytes AS bytes FROM store_state;
CREATE VIEW store_check AS
SELECT 'store_state' AS object, 'has not the one row that it must have' AS problem
 WHERE (SELECT count(*) FROM store_state) <> 1
UNION ALL
SELECT 'store_state', 'its totals are not those of the texts, packs and lists'
  FROM store_state AS s,
       (SELECT count(*) AS n, coalesce(sum(bytes), 0) AS b,
               coalesce(sum(length(recipe)), 0) AS k FROM store_texts) AS t,
       (SELECT coalesce(sum(length(data)), 0) AS k FROM store_packs) AS p,
       (SELECT coalesce(sum(length(list)), 0) AS k FROM store_lists) AS l,
       (SELECT count(*) AS n FROM store_pieces) AS x
 WHERE (s.texts, s.text_bytes, s.kept_bytes) IS NOT (t.n, t.b, t.k + p.k + l.k)
    OR s.pieces < x.n
UNION ALL
SELECT 'store_lists', 'pack ' || pack || ' has no list of its pieces'
  FROM store_packs WHERE pack NOT IN (SELECT pack FROM store_lists)
UNION ALL
SELECT 'store_lists', 'the list of pack ' || pack || ' has no pack'
  FROM store_lists WHERE pack NOT IN (SELECT pack FROM store_packs);
CREATE TRIGGER store_texts_insert
BEFORE INSERT ON store_texts WHEN store_writing() IS NOT 1
BEGIN
  SELECT RAISE(ABORT, 'StoreError: store_texts is written by functions of blackbox only');
END;
CREATE TRIGGER store_texts_update
BEFORE UPDATE ON store_texts WHEN store_writing() IS NOT 1
BEGIN
  SELECT RAISE(ABORT, 'StoreError: store_texts is written by functions of blackbox only');
END;
CREATE TRIGGER store_texts_delete
BEFORE DELETE ON store_texts WHEN store_writing() IS NOT 1
BEGIN
  SELECT RAISE(ABORT, 'StoreError: store_texts is written by functions of blackbox only');
END;
CREATE TRIGGER store_packs_insert
BEFORE INSERT ON store_packs WHEN store_writing() IS NOT 1
BEGIN
  SELECT RAISE(ABORT, 'StoreError: store_packs is written by functions of blackbox only');
END;
CREATE TRIGGER store_packs_update
BEFORE UPDATE ON store_packs WHEN store_writing() IS NOT 1
BEGIN
  SELECT RAISE(ABORT, 'StoreError: store_packs is written by functions of blackbox only');
END;
CREATE TRIGGER store_packs_delete
BEFORE DELETE ON store_packs WHEN store_writing() IS NOT 1
BEGIN
  SELECT RAISE(ABORT, 'StoreError: store_packs is written by functions of blackbox only');
END;
CREATE TRIGGER store_lists_insert
BEFORE INSERT ON store_lists WHEN store_writing() IS NOT 1
BEGIN
  SELECT RAISE(ABORT, 'StoreError: store_lists is written by functions of blackbox only');
END;
CREATE TRIGGER store_lists_update
BEFORE UPDATE ON store_lists WHEN store_writing() IS NOT 1
BEGIN
  SELECT RAISE(ABORT, 'StoreError: store_lists is written by functions of blackbox only');
END;
CREATE TRIGGER store_lists_delete
BEFORE DELETE ON store_lists WHEN store_writing() IS NOT 1
BEGIN
  SELECT RAISE(ABORT, 'StoreError: store_lists is written by functions of blackbox only');
END;
CREATE TRIGGER store_pieces_insert
BEFORE INSERT ON store_pieces WHEN store_writing() IS NOT 1
BEGIN
  SELECT RAISE(ABORT, 'StoreError: store_pieces is written by functions of blackbox only');
END;
CREATE TRIGGER store_pieces_update
BEFORE UPDATE ON store_pieces WHEN store_writing() IS NOT 1
BEGIN
  SELECT RAISE(ABORT, 'StoreError: store_pieces is written by functions of blackbox only');
END;
CREATE TRIGGER store_pieces_delete
BEFORE DELETE ON store_pieces WHEN store_writing() IS NOT 1
BEGIN
  SELECT RAISE(ABORT, 'StoreError: store_pieces is written by functions of blackbox only');
END;
CREATE TRIGGER store_state_insert
BEFORE INSERT ON store_state WHEN EXISTS (SELECT 1 FROM store_state)
BEGIN
  SELECT RAISE(ABORT, 'StoreError: store_state has one row, which stays');
END;
CREATE TRIGGER store_state_update
BEFORE UPDATE ON store_state WHEN store_writing() IS NOT 1
BEGIN
  SELECT RAISE(ABORT, 'StoreError: store_state is written by functions of blackbox only');
END;
CREATE TRIGGER store_state_delete
BEFORE DELETE ON store_state WHEN store_writing() IS NOT 1
BEGIN
  SELECT RAISE(ABORT, 'StoreError: store_state is written by functions of blackbox only');
END;
CREATE TRIGGER store_users_update
BEFORE UPDATE ON store_users WHEN (SELECT texts FROM store_state) IS NOT 0
BEGIN
  SELECT RAISE(ABORT, 'StoreError: the store has texts, so its users cannot be changed; unpack them first');
END;
CREATE TRIGGER store_users_delete
BEFORE DELETE ON store_users WHEN (SELECT texts FROM store_state) IS NOT 0
BEGIN
  SELECT RAISE(ABORT, 'StoreError: the store has texts, so its users cannot be removed; unpack them first');
END;
CREATE TRIGGER store_dropped_update
BEFORE UPDATE ON store_dropped WHEN store_writing() IS NOT 1
BEGIN
  SELECT RAISE(ABORT, 'StoreError: a row of store_dropped stays until the sweep; SELECT store_sweep()');
END;
CREATE TRIGGER store_dropped_delete
BEFORE DELETE ON store_dropped WHEN store_writing() IS NOT 1
BEGIN
  SELECT RAISE(ABORT, 'StoreError: a row of store_dropped stays until the sweep; SELECT store_sweep()');
END;
CREATE VIEW notes_bodies AS SELECT id AS key, a, b FROM notes;
CREATE VIEW notes_texts AS
SELECT CAST(substr(a, 37) AS INTEGER) AS text, a AS reference, id AS key FROM notes
 WHERE (typeof(a) = 'blob' AND substr(a, 1, 4) = x'b1627801')
UNION ALL
SELECT CAST(substr(b, 37) AS INTEGER), b, id FROM notes WHERE (typeof(b) = 'blob' AND substr(b, 1, 4) = x'b1627801');
CREATE INDEX notes_a ON notes(CAST(substr(a, 37) AS INTEGER)) WHERE (typeof(a) = 'blob' AND substr(a, 1, 4) = x'b1627801');
CREATE INDEX notes_b ON notes(CAST(substr(b, 37) AS INTEGER)) WHERE (typeof(b) = 'blob' AND substr(b, 1, 4) = x'b1627801');
CREATE TRIGGER notes_put INSTEAD OF INSERT ON notes_bodies BEGIN
  UPDATE notes SET a = NEW.a, b = NEW.b WHERE id = NEW.key;
END;
CREATE TRIGGER notes_remove INSTEAD OF DELETE ON notes_bodies BEGIN
  DELETE FROM notes WHERE id = OLD.key;
END;
CREATE TRIGGER notes_gone AFTER DELETE ON notes BEGIN
  INSERT INTO store_dropped(text) SELECT CAST(substr(OLD.a, 37) AS INTEGER)
   WHERE (typeof(OLD.a) = 'blob' AND substr(OLD.a, 1, 4) = x'b1627801');
  INSERT INTO store_dropped(text) SELECT CAST(substr(OLD.b, 37) AS INTEGER)
   WHERE (typeof(OLD.b) = 'blob' AND substr(OLD.b, 1, 4) = x'b1627801');
END;
DELETE FROM "sqlite_sequence";
COMMIT;
