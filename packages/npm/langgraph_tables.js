// langgraph_tables.js: the tables of the checkpoint saver for LangGraph.
//
// Tables  langgraph_threads      one row for each thread: the time of its last write
//         langgraph_checkpoints  the checkpoints, as LangGraph serializes them
//         langgraph_values       the values of channels, each version once: a checkpoint
//                                has the versions, and null for a short value, which
//                                stands in the checkpoint itself
//         langgraph_writes       the writes of tasks, which belong to a checkpoint
// View    langgraph_due          the threads, for the rule langgraph.age: a thread that
//                                was idle for maxAgeDays is removed by
//                                retention_sweep(); DELETE removes a thread
//
// Invariants, by triggers that hold on every connection: a hold on the session with the
// id of a thread keeps the thread and all of its rows, to which new ones can be added.
// A thread that was erased is refused for retention.refuse_days.
// With a thread its rows go, and with a checkpoint its writes.
//
// Limits: the values of a checkpoint that is deleted by hand stay until its thread is
// pruned or removed. SQLite runs no DELETE trigger for REPLACE, so INSERT OR REPLACE by
// hand can replace a row of a held thread.
const HELD = `
  SELECT RAISE(ABORT, 'HeldError: a hold keeps this thread, which cannot be deleted or changed; SELECT * FROM retention_holds lists the holds, and retention_release() ends one')
   WHERE EXISTS (SELECT 1 FROM retention__holds
                  WHERE kind = 'session' AND "key" = OLD.thread_id);`;

export const SCHEMA = `
CREATE TABLE IF NOT EXISTS langgraph_threads(
  thread_id TEXT PRIMARY KEY,
  at        INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS langgraph_threads_at ON langgraph_threads(at);

CREATE TABLE IF NOT EXISTS langgraph_checkpoints(
  thread_id     TEXT NOT NULL,
  checkpoint_ns TEXT NOT NULL,
  checkpoint_id TEXT NOT NULL,
  parent_id     TEXT,
  type          TEXT NOT NULL,
  checkpoint    BLOB NOT NULL,
  versions      TEXT NOT NULL,
  metadata_type TEXT NOT NULL,
  metadata      BLOB NOT NULL,
  at            INTEGER NOT NULL,
  PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
);

CREATE TABLE IF NOT EXISTS langgraph_values(
  thread_id     TEXT NOT NULL,
  checkpoint_ns TEXT NOT NULL,
  channel       TEXT NOT NULL,
  version       TEXT NOT NULL,
  type          TEXT NOT NULL,
  value         BLOB NOT NULL,
  PRIMARY KEY (thread_id, checkpoint_ns, channel, version)
);

CREATE TABLE IF NOT EXISTS langgraph_writes(
  thread_id     TEXT NOT NULL,
  checkpoint_ns TEXT NOT NULL,
  checkpoint_id TEXT NOT NULL,
  task_id       TEXT NOT NULL,
  idx           INTEGER NOT NULL,
  task_path     TEXT NOT NULL,
  channel       TEXT NOT NULL,
  type          TEXT NOT NULL,
  value         BLOB NOT NULL,
  PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
);

CREATE TRIGGER IF NOT EXISTS langgraph_threads_added
BEFORE INSERT ON langgraph_threads
WHEN EXISTS (SELECT 1 FROM retention__in_force, retention__clock
              WHERE kind = 'erased session' AND "key" = NEW.thread_id AND until > seen)
BEGIN
  SELECT RAISE(ABORT, 'ErasedError: this thread was erased, and is refused for retention.refuse_days; see retention_erasures');
END;

CREATE TRIGGER IF NOT EXISTS langgraph_checkpoints_added
AFTER INSERT ON langgraph_checkpoints
BEGIN
  INSERT INTO langgraph_threads(thread_id, at) VALUES (NEW.thread_id, NEW.at)
  ON CONFLICT (thread_id) DO UPDATE SET at = max(at, excluded.at);
END;

${["threads", "checkpoints", "values", "writes"].map((table) => `
CREATE TRIGGER IF NOT EXISTS langgraph_${table}_delete
BEFORE DELETE ON langgraph_${table} BEGIN ${HELD} END;`).join("")}

CREATE TRIGGER IF NOT EXISTS langgraph_checkpoints_update
BEFORE UPDATE ON langgraph_checkpoints BEGIN ${HELD} END;
CREATE TRIGGER IF NOT EXISTS langgraph_values_update
BEFORE UPDATE ON langgraph_values WHEN NEW.value IS NOT OLD.value BEGIN ${HELD} END;

CREATE TRIGGER IF NOT EXISTS langgraph_threads_gone
AFTER DELETE ON langgraph_threads
BEGIN
  DELETE FROM langgraph_checkpoints WHERE thread_id = OLD.thread_id;
  DELETE FROM langgraph_values WHERE thread_id = OLD.thread_id;
  DELETE FROM langgraph_writes WHERE thread_id = OLD.thread_id;
END;

CREATE TRIGGER IF NOT EXISTS langgraph_checkpoints_gone
AFTER DELETE ON langgraph_checkpoints
BEGIN
  DELETE FROM langgraph_writes
   WHERE thread_id = OLD.thread_id AND checkpoint_ns = OLD.checkpoint_ns
     AND checkpoint_id = OLD.checkpoint_id;
END;

CREATE VIEW IF NOT EXISTS langgraph_due AS
SELECT t.thread_id AS "key",
       (SELECT coalesce(sum(length(checkpoint) + length(metadata)), 0)
          FROM langgraph_checkpoints WHERE thread_id = t.thread_id)
       + (SELECT coalesce(sum(length(value)), 0)
            FROM langgraph_values WHERE thread_id = t.thread_id)
       + (SELECT coalesce(sum(length(value)), 0)
            FROM langgraph_writes WHERE thread_id = t.thread_id) AS bytes,
       t.at AS at,
       (SELECT 'held' FROM retention__holds
         WHERE kind = 'session' AND "key" = t.thread_id) AS blocked_by
  FROM langgraph_threads AS t;

CREATE TRIGGER IF NOT EXISTS langgraph_due_delete
INSTEAD OF DELETE ON langgraph_due
BEGIN
  DELETE FROM langgraph_threads WHERE thread_id = OLD."key";
END;
`;
