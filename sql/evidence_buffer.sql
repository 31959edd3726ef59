-- evidence_buffer.sql: the tables of one evidence buffer.
--
-- This file is a template: "main." stands for the schema and "@" for the name of
-- the buffer, so that main.@_rows is rec_rows for a buffer rec. CREATE VIRTUAL
-- TABLE rec USING evidence_buffer runs it. Only the module writes these tables;
-- any SQLite can read them.
--
-- Tables  @_state    one row: the settings and the exact counters
--         @_rows     one narrow row for each piece of evidence
--         @_actions  the JSON of the action, in a separate table so that
--                    lists, counts and prunes do not read it. The key is the rid of
--                    the row, or -rid for an action that was approved
--         @_shots    the screenshot, in a separate table for the same reason
--         @_gone     rows removed here that still exist in the overflow; whole is 0
--                    for the screenshot alone
--         @_log      receipts: what was removed, by which rule, when
--
-- The size of a row is the bytes of its action and screenshot, plus 100. place is
-- 0 in the memory of a buffer in temp, 1 in its overflow, and 2 in the file of a
-- buffer that is not in temp. pinned is 0 for a row that is not pinned. A pinned
-- row of a buffer in a file has the number of its row in evidence__pinned, where its
-- action and screenshot are, behind guards (evidence.sql). In temp it has 1.
--
-- Approval writes what is kept, under -rid. What it removed stays until it is swept,
-- step by step, with later writes: the action under rid, and the screenshot. stale
-- is the highest rid that may have something to sweep, or 0; swept is the last rid
-- that has nothing any more. confidence is -1 unless the policy is confidence-based.
-- So one index finds the screenshot that a prune removes next.
--
-- Invariants, which blackbox_check() compares: the counters of @_state equal the
-- sums over @_rows; an action and a screenshot exist as long as their row says so.
-- Log: one row for each rule and minute, the newest 10,000.

CREATE TABLE main.@_state(format,max_size_bytes,prune_threshold,retention_policy,max_screenshots,overflow,owner,claim,last,removed,actions,bytes,screenshots,free_screenshots,pinned_bytes,memory_bytes,overflowed,swept,stale);

CREATE TABLE main.@_rows(rid INTEGER PRIMARY KEY,id TEXT UNIQUE,timestamp INTEGER,action_bytes,screenshot_bytes,pruned,pinned,confidence,place);

CREATE TABLE main.@_actions(rid INTEGER PRIMARY KEY,action);

CREATE TABLE main.@_shots(rid INTEGER PRIMARY KEY,screenshot);

CREATE TABLE main.@_gone(id PRIMARY KEY,whole)WITHOUT ROWID;

CREATE TABLE main.@_log(id INTEGER PRIMARY KEY,at,rule,rows,screenshots,bytes,oldest,newest,minute,UNIQUE(rule,minute));

CREATE INDEX main.@_time ON @_rows(timestamp);

CREATE INDEX main.@_old ON @_rows(timestamp)WHERE pinned=0;

CREATE INDEX main.@_shot ON @_rows(confidence DESC,timestamp)WHERE pinned=0 AND screenshot_bytes>0;
