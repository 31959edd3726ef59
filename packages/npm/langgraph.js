// langgraph.js: a checkpoint saver of LangGraph in a file with the rules of blackbox.
//
//   const graph = builder.compile({ checkpointer: new BlackboxSaver(db) });
//
// Tables  langgraph_threads      one row for each thread: the time of its last write
//         langgraph_checkpoints  the checkpoints, as LangGraph serializes them
//         langgraph_writes       the writes of tasks, which belong to a checkpoint
// View    langgraph_due          the threads, for the rule langgraph.age: a thread that
//                                was idle for maxAgeDays is removed by
//                                retention_sweep(); DELETE removes a thread
//
// Invariants, by triggers that hold on every connection: a hold on the session with the
// id of a thread, or a time that is not over, keeps the thread and all of its rows; with
// a thread its checkpoints go, and with a checkpoint its writes. The saver and the sweep
// leave a receipt in retention_log for what they remove.
//
// Limits: a checkpoint is stored whole, as in other savers; prune() removes old ones.
// blackbox_erase() does not know these tables; deleteThread() removes a thread.
import {
  BaseCheckpointSaver,
  TASKS,
  WRITES_IDX_MAP,
  copyCheckpoint,
  getCheckpointId,
  maxChannelVersion,
} from "@langchain/langgraph-checkpoint";
import { atomically, now } from "./database.js";

const HELD = `
  SELECT RAISE(ABORT, 'HeldError: a hold keeps this thread, which cannot be deleted or changed; SELECT * FROM retention_holds lists the holds, and retention_release() ends one')
   WHERE EXISTS (SELECT 1 FROM retention_in_force
                  WHERE kind = 'session' AND "key" = OLD.thread_id);`;

const SCHEMA = `
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
  metadata_type TEXT NOT NULL,
  metadata      BLOB NOT NULL,
  at            INTEGER NOT NULL,
  PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
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

CREATE TRIGGER IF NOT EXISTS langgraph_checkpoints_added
AFTER INSERT ON langgraph_checkpoints
BEGIN
  INSERT INTO langgraph_threads(thread_id, at) VALUES (NEW.thread_id, NEW.at)
  ON CONFLICT (thread_id) DO UPDATE SET at = max(at, excluded.at);
END;

CREATE TRIGGER IF NOT EXISTS langgraph_threads_delete
BEFORE DELETE ON langgraph_threads BEGIN ${HELD} END;
CREATE TRIGGER IF NOT EXISTS langgraph_checkpoints_delete
BEFORE DELETE ON langgraph_checkpoints BEGIN ${HELD} END;
CREATE TRIGGER IF NOT EXISTS langgraph_checkpoints_update
BEFORE UPDATE ON langgraph_checkpoints BEGIN ${HELD} END;
CREATE TRIGGER IF NOT EXISTS langgraph_writes_delete
BEFORE DELETE ON langgraph_writes BEGIN ${HELD} END;

CREATE TRIGGER IF NOT EXISTS langgraph_threads_gone
AFTER DELETE ON langgraph_threads
BEGIN
  DELETE FROM langgraph_checkpoints WHERE thread_id = OLD.thread_id;
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
            FROM langgraph_writes WHERE thread_id = t.thread_id) AS bytes,
       t.at AS at,
       (SELECT 'held' FROM retention_in_force
         WHERE kind = 'session' AND "key" = t.thread_id) AS blocked_by
  FROM langgraph_threads AS t;

CREATE TRIGGER IF NOT EXISTS langgraph_due_delete
INSTEAD OF DELETE ON langgraph_due
BEGIN
  DELETE FROM langgraph_threads WHERE thread_id = OLD."key";
END;
`;

const ONE = "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?";
const DAY = 86400000;

/** A saver of checkpoints. The connection must have the module. */
export class BlackboxSaver extends BaseCheckpointSaver {
  constructor(db, { maxAgeDays, serde } = {}) {
    super(serde);
    this.db = db;
    db.prepare("SELECT blackbox_install('main', 'retention')").get();
    atomically(db, () => {
      db.exec(SCHEMA);
      if (maxAgeDays !== undefined) this.#keepFor(maxAgeDays);
    });
  }

  #keepFor(days) {
    if (!(days * DAY >= 1)) {
      throw new RangeError(`ValidationError: maxAgeDays must be a number of days above 0, got ${days}`);
    }
    this.db
      .prepare(
        `INSERT INTO retention_rules(rule, "view", age_ms) VALUES ('langgraph.age', 'langgraph_due', ?)
         ON CONFLICT (rule) DO UPDATE SET age_ms = excluded.age_ms`,
      )
      .run(BigInt(Math.round(days * DAY)));
  }

  async getTuple(config) {
    const { thread_id, checkpoint_ns = "" } = config.configurable ?? {};
    const id = getCheckpointId(config);
    if (!thread_id) return undefined;
    const row = this.db
      .prepare(
        `SELECT * FROM langgraph_checkpoints WHERE thread_id = ? AND checkpoint_ns = ?
         ${id ? "AND checkpoint_id = ?" : "ORDER BY checkpoint_id DESC LIMIT 1"}`,
      )
      .get(thread_id, checkpoint_ns, ...(id ? [id] : []));
    return row && this.#tuple(row);
  }

  async #tuple(row) {
    const { thread_id, checkpoint_ns, checkpoint_id, parent_id } = row;
    const tuple = {
      config: { configurable: { thread_id, checkpoint_ns, checkpoint_id } },
      checkpoint: await this.serde.loadsTyped(row.type, row.checkpoint),
      metadata: await this.serde.loadsTyped(row.metadata_type, row.metadata),
      pendingWrites: await this.#writes(thread_id, checkpoint_ns, checkpoint_id),
    };
    if (parent_id !== null) {
      tuple.parentConfig = { configurable: { thread_id, checkpoint_ns, checkpoint_id: parent_id } };
      if (tuple.checkpoint.v < 4) await this.#addSends(tuple.checkpoint, tuple.parentConfig.configurable);
    }
    return tuple;
  }

  async #writes(...key) {
    const found = this.db
      .prepare(
        `SELECT task_id, channel, type, value FROM langgraph_writes WHERE ${ONE}
         ORDER BY task_path, task_id, idx`,
      )
      .all(...key);
    return Promise.all(
      found.map(async (w) => [w.task_id, w.channel, await this.serde.loadsTyped(w.type, w.value)]),
    );
  }

  /** Before version 4 of the format, what a step sends was in the writes of the parent alone. */
  async #addSends(checkpoint, { thread_id, checkpoint_ns, checkpoint_id }) {
    const writes = await this.#writes(thread_id, checkpoint_ns, checkpoint_id);
    const versions = Object.values(checkpoint.channel_versions);
    checkpoint.channel_values[TASKS] = writes.filter((w) => w[1] === TASKS).map((w) => w[2]);
    checkpoint.channel_versions[TASKS] = versions.length
      ? maxChannelVersion(...versions)
      : this.getNextVersion(undefined);
  }

  /** The checkpoints, newest first. What is added or removed meanwhile may be missing. */
  async *list(config, { limit = Infinity, before, filter = {} } = {}) {
    const { thread_id, checkpoint_ns, checkpoint_id } = config.configurable ?? {};
    const wanted = { thread_id, checkpoint_ns, checkpoint_id };
    const fields = Object.keys(wanted).filter((name) => wanted[name] != null);
    const tests = fields.map((name) => `${name} = ?`);
    const values = fields.map((name) => wanted[name]);
    const last = before?.configurable?.checkpoint_id;
    if (last !== undefined) {
      tests.push("checkpoint_id < ?");
      values.push(last);
    }
    const keys = this.db
      .prepare(
        `SELECT thread_id, checkpoint_ns, checkpoint_id FROM langgraph_checkpoints
         ${tests.length ? `WHERE ${tests.join(" AND ")}` : ""} ORDER BY checkpoint_id DESC`,
      )
      .all(...values);
    let left = limit;
    for (const configurable of keys) {
      if (left <= 0) return;
      const tuple = await this.getTuple({ configurable: { ...configurable } });
      if (tuple === undefined || !matches(tuple.metadata, filter)) continue;
      left--;
      yield tuple;
    }
  }

  async put(config, checkpoint, metadata) {
    const { thread_id, checkpoint_ns = "", checkpoint_id = null } = required(config, "thread_id");
    const [[type, body], [metadataType, metadataBody]] = await Promise.all([
      this.serde.dumpsTyped(copyCheckpoint(checkpoint)),
      this.serde.dumpsTyped(metadata),
    ]);
    this.db
      .prepare(
        `INSERT INTO langgraph_checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO UPDATE
         SET parent_id = excluded.parent_id, type = excluded.type, checkpoint = excluded.checkpoint,
             metadata_type = excluded.metadata_type, metadata = excluded.metadata`,
      )
      .run(thread_id, checkpoint_ns, checkpoint.id, checkpoint_id, type, body, metadataType, metadataBody, now());
    return { configurable: { thread_id, checkpoint_ns, checkpoint_id: checkpoint.id } };
  }

  async putWrites(config, writes, taskId, taskPath = "") {
    const { thread_id, checkpoint_ns = "", checkpoint_id } = required(config, "thread_id", "checkpoint_id");
    const values = await Promise.all(writes.map(([, value]) => this.serde.dumpsTyped(value)));
    // An error or an interrupt takes the place of the one before; other writes stay.
    const again = writes.every(([channel]) => channel in WRITES_IDX_MAP)
      ? "UPDATE SET channel = excluded.channel, type = excluded.type, value = excluded.value"
      : "NOTHING";
    atomically(this.db, () => {
      this.db
        .prepare(
          `INSERT INTO langgraph_threads(thread_id, at) VALUES (?, ?)
           ON CONFLICT (thread_id) DO UPDATE SET at = max(at, excluded.at)`,
        )
        .run(thread_id, now());
      const insert = this.db.prepare(
        `INSERT INTO langgraph_writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO ${again}`,
      );
      writes.forEach(([channel], i) => {
        const at = BigInt(WRITES_IDX_MAP[channel] ?? i);
        insert.run(thread_id, checkpoint_ns, checkpoint_id, taskId, at, taskPath, channel, ...values[i]);
      });
    });
  }

  async deleteThread(threadId) {
    atomically(this.db, () => this.#remove("langgraph.delete", threadId));
  }

  #remove(rule, threadId) {
    this.db
      .prepare(
        `INSERT INTO retention_note(at, domain, rule, rows, bytes, oldest, newest)
         SELECT CAST(? AS INTEGER), 'user', ?, c.rows, d.bytes, coalesce(c.oldest, d.at), d.at
           FROM langgraph_due AS d,
                (SELECT count(*) AS rows, min(at) AS oldest
                   FROM langgraph_checkpoints WHERE thread_id = ?) AS c
          WHERE d."key" = ?`,
      )
      .run(now(), rule, threadId, threadId);
    this.db.prepare("DELETE FROM langgraph_threads WHERE thread_id = ?").run(threadId);
  }

  /** Removes the checkpoints of threads: all of them ("delete"), or all but the newest of each
   * namespace, and those from which its delta channels are computed ("keep_latest").
   * It is done for all threads or none. */
  async prune(threadIds, { strategy = "keep_latest" } = {}) {
    if (strategy !== "keep_latest" && strategy !== "delete") {
      throw new RangeError(`ValidationError: strategy must be keep_latest or delete, got ${strategy}`);
    }
    const kept = new Map();
    if (strategy === "keep_latest") {
      for (const id of threadIds) kept.set(id, await this.#needed(id));
    }
    atomically(this.db, () => {
      for (const id of threadIds) {
        if (strategy === "delete") this.#remove("langgraph.prune", id);
        else this.#removeOlder(id, kept.get(id));
      }
    });
  }

  /** The ids that stay, by namespace; what is newer than these stays, too. */
  async #needed(threadId) {
    const newest = this.db
      .prepare(
        `SELECT checkpoint_ns AS ns, max(checkpoint_id) AS id FROM langgraph_checkpoints
         WHERE thread_id = ? GROUP BY checkpoint_ns`,
      )
      .all(threadId);
    const needed = [];
    for (const { ns, id } of newest) {
      const ids = [];
      let config = { configurable: { thread_id: threadId, checkpoint_ns: ns, checkpoint_id: id } };
      let open; // delta channels whose value is not found yet
      do {
        const { checkpoint, metadata, parentConfig } = (await this.getTuple(config)) ?? {};
        if (checkpoint === undefined) break;
        open ??= Object.keys(metadata?.counters_since_delta_snapshot ?? {});
        open = open.filter((channel) => !Object.hasOwn(checkpoint.channel_values, channel));
        ids.push(checkpoint.id);
        if (checkpoint.v < 4) ids.push(parentConfig?.configurable.checkpoint_id); // it has the sends
        config = parentConfig;
      } while (open.length > 0 && config !== undefined);
      needed.push({ ns, newest: id, ids });
    }
    return needed;
  }

  #removeOlder(threadId, needed) {
    for (const { ns, newest, ids } of needed) {
      const older = `thread_id = ? AND checkpoint_ns = ? AND checkpoint_id < ?
                     AND checkpoint_id NOT IN (SELECT value FROM json_each(?))`;
      const values = [threadId, ns, newest, JSON.stringify(ids)];
      this.db
        .prepare(
          `INSERT INTO retention_note(at, domain, rule, rows, bytes, oldest, newest)
           SELECT CAST(? AS INTEGER), 'user', 'langgraph.prune', count, bytes, oldest, newest
             FROM (SELECT count(*) AS count, min(at) AS oldest, max(at) AS newest,
                          sum(length(checkpoint) + length(metadata)
                              + (SELECT coalesce(sum(length(value)), 0) FROM langgraph_writes AS w
                                  WHERE (w.thread_id, w.checkpoint_ns, w.checkpoint_id)
                                        = (c.thread_id, c.checkpoint_ns, c.checkpoint_id))) AS bytes
                     FROM langgraph_checkpoints AS c WHERE ${older})
            WHERE count > 0`,
        )
        .run(now(), ...values);
      this.db.prepare(`DELETE FROM langgraph_checkpoints WHERE ${older}`).run(...values);
    }
  }
}

function required(config, ...names) {
  for (const name of names) {
    if (!config.configurable?.[name]) {
      throw new Error(`ValidationError: config.configurable.${name} is missing; give the ${name} of the run`);
    }
  }
  return config.configurable;
}

/** Whether the metadata has every member of the filter. */
function matches(metadata, filter) {
  return Object.entries(filter).every(
    ([name, value]) => value === undefined || JSON.stringify(metadata?.[name]) === JSON.stringify(value),
  );
}
