// langgraph.js: a checkpoint saver of LangGraph in a file with the rules of blackbox.
//
//   const graph = builder.compile({ checkpointer: new BlackboxSaver(db) });
//
// The tables, and what holds for them, are in langgraph_tables.js. The saver and the sweep
// leave a receipt in retention_log for what they remove.
//
// Invariants: a checkpoint is read as it was put, with the values of its channels. prune()
// and deleteThread() are done as a whole or not at all.
//
// Limit: blackbox_erase() does not know these tables; deleteThread() removes a thread.
import {
  BaseCheckpointSaver,
  TASKS,
  WRITES_IDX_MAP,
  copyCheckpoint,
  maxChannelVersion,
} from "@langchain/langgraph-checkpoint";
import { randomBytes } from "node:crypto";
import { atomically, now } from "./database.js";
import { SCHEMA } from "./langgraph_tables.js";

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
    const { thread_id, checkpoint_ns, checkpoint_id } = keyOf(config);
    if (!thread_id) return undefined;
    const found = atomically(this.db, () => this.#read(thread_id, checkpoint_ns, checkpoint_id));
    return found && this.#tuple(found);
  }

  /** The rows of a checkpoint, or of the newest one, as they are at one time. */
  #read(thread_id, checkpoint_ns, checkpoint_id) {
    const row = this.db
      .prepare(
        `SELECT * FROM langgraph_checkpoints WHERE thread_id = ? AND checkpoint_ns = ?
         ${checkpoint_id ? "AND checkpoint_id = ?" : "ORDER BY checkpoint_id DESC LIMIT 1"}`,
      )
      .get(thread_id, checkpoint_ns, ...(checkpoint_id ? [checkpoint_id] : []));
    if (row === undefined) return undefined;
    const values = this.db.prepare(
      `SELECT channel, type, value FROM langgraph_values WHERE thread_id = ? AND checkpoint_ns = ?
          AND (channel, version) IN (SELECT key, value FROM json_each(?))`,
    );
    const writes = this.db.prepare(
      `SELECT task_id, channel, type, value FROM langgraph_writes
        WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY task_path, task_id, idx`,
    );
    return {
      row,
      values: values.all(thread_id, checkpoint_ns, row.versions),
      writes: writes.all(thread_id, checkpoint_ns, row.checkpoint_id),
      sends: writes.all(thread_id, checkpoint_ns, row.parent_id).filter((w) => w.channel === TASKS),
    };
  }

  async #tuple({ row, values, writes, sends }) {
    const { thread_id, checkpoint_ns, checkpoint_id, parent_id } = row;
    const checkpoint = await this.#loaded(row.type, row.checkpoint);
    for (const v of values) checkpoint.channel_values[v.channel] = await this.#loaded(v.type, v.value);
    const tuple = {
      config: { configurable: { thread_id, checkpoint_ns, checkpoint_id } },
      checkpoint,
      metadata: await this.#loaded(row.metadata_type, row.metadata),
      pendingWrites: [],
    };
    for (const w of writes) {
      tuple.pendingWrites.push([w.task_id, w.channel, await this.#loaded(w.type, w.value)]);
    }
    if (parent_id !== null) {
      tuple.parentConfig = { configurable: { thread_id, checkpoint_ns, checkpoint_id: parent_id } };
      if (checkpoint.v < 4) await this.#addSends(checkpoint, sends);
    }
    return tuple;
  }

  #loaded(type, value) {
    return this.serde.loadsTyped(type, value);
  }

  /** Before version 4 of the format, what a step sends was in the writes of the parent alone. */
  async #addSends(checkpoint, sends) {
    const versions = Object.values(checkpoint.channel_versions);
    checkpoint.channel_values[TASKS] = await Promise.all(sends.map((w) => this.#loaded(w.type, w.value)));
    checkpoint.channel_versions[TASKS] = versions.length
      ? maxChannelVersion(...versions)
      : this.getNextVersion(undefined);
  }

  /** The checkpoints, newest first. What is added or removed meanwhile may be missing. */
  async *list(config, { limit = Infinity, before, filter = {} } = {}) {
    const wanted = { ...keyOf(config), checkpoint_ns: config.configurable?.checkpoint_ns };
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

  async put(config, checkpoint, metadata, newVersions) {
    const { thread_id, checkpoint_ns, checkpoint_id = null } = required(config, "thread_id");
    const { channel_values, channel_versions } = checkpoint;
    const plain = Object.keys(channel_values).filter((name) => !Object.hasOwn(channel_versions, name));
    const body = { ...copyCheckpoint(checkpoint), channel_values: pick(channel_values, plain) };
    const versions = Object.entries(channel_versions).map(([name, version]) => [name, String(version)]);
    const changed = Object.keys(newVersions ?? {}).filter((name) => Object.hasOwn(channel_values, name));
    const [dumped, described, ...values] = await Promise.all(
      [body, metadata, ...changed.map((name) => channel_values[name])].map((v) => this.serde.dumpsTyped(v)),
    );
    atomically(this.db, () => {
      this.db
        .prepare(
          `INSERT INTO langgraph_checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO UPDATE
           SET parent_id = excluded.parent_id, type = excluded.type, checkpoint = excluded.checkpoint,
               versions = excluded.versions, metadata_type = excluded.metadata_type,
               metadata = excluded.metadata`,
        )
        .run(thread_id, checkpoint_ns, checkpoint.id, checkpoint_id, ...dumped,
          JSON.stringify(Object.fromEntries(versions)), ...described, now());
      const insert = this.db.prepare(
        `INSERT INTO langgraph_values VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO UPDATE
         SET type = excluded.type, value = excluded.value`,
      );
      changed.forEach((name, i) =>
        insert.run(thread_id, checkpoint_ns, name, String(newVersions[name]), ...values[i]));
    });
    return { configurable: { thread_id, checkpoint_ns, checkpoint_id: checkpoint.id } };
  }

  /** Numbers alone would be the same in two branches of a thread, and the values differ. */
  getNextVersion(current) {
    const next = current === undefined ? 1 : Number.parseInt(current, 10) + 1;
    return `${String(next).padStart(16, "0")}.${randomBytes(8).toString("hex")}`;
  }

  async putWrites(config, writes, taskId, taskPath = "") {
    const { thread_id, checkpoint_ns, checkpoint_id } = required(config, "thread_id", "checkpoint_id");
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
    atomically(this.db, () => this.#removeThread("langgraph.delete", threadId));
  }

  #removeThread(rule, id) {
    this.#withReceipt(rule, id, () => {
      const gone = this.db
        .prepare("DELETE FROM langgraph_checkpoints WHERE thread_id = ? RETURNING at")
        .all(id);
      this.db.prepare("DELETE FROM langgraph_threads WHERE thread_id = ?").run(id);
      return gone;
    });
  }

  /** Runs an act that removes rows of a thread, and returns their times. */
  #withReceipt(rule, id, remove) {
    this.db.prepare("UPDATE langgraph_threads SET at = at WHERE thread_id = ?").run(id);
    const size = this.db.prepare('SELECT coalesce(sum(bytes), 0) AS n FROM langgraph_due WHERE "key" = ?');
    const before = Number(size.get(id).n);
    const times = remove().map((row) => Number(row.at));
    const bytes = before - Number(size.get(id).n);
    if (times.length === 0 && bytes === 0) return;
    this.db
      .prepare(
        `INSERT INTO retention_note(at, domain, rule, rows, bytes, oldest, newest)
         SELECT CAST(? AS INTEGER), 'user', ?, CAST(? AS INTEGER), CAST(? AS INTEGER), min(value), max(value)
           FROM json_each(?)`,
      )
      .run(now(), rule, times.length, bytes, JSON.stringify(times));
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
        if (strategy === "delete") this.#removeThread("langgraph.prune", id);
        else this.#withReceipt("langgraph.prune", id, () => this.#removeOlder(id, kept.get(id)));
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

  #removeOlder(id, needed) {
    return needed.flatMap(({ ns, newest, ids }) => {
      const gone = this.db
        .prepare(
          `DELETE FROM langgraph_checkpoints
            WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id < ?
              AND checkpoint_id NOT IN (SELECT value FROM json_each(?)) RETURNING at`,
        )
        .all(id, ns, newest, JSON.stringify(ids));
      this.db
        .prepare(
          `DELETE FROM langgraph_values WHERE thread_id = ? AND checkpoint_ns = ?
              AND (channel, version) NOT IN (SELECT v.key, v.value
                     FROM langgraph_checkpoints AS c, json_each(c.versions) AS v
                    WHERE c.thread_id = ? AND c.checkpoint_ns = ?)`,
        )
        .run(id, ns, id, ns);
      return gone;
    });
  }
}

function pick(object, names) {
  return Object.fromEntries(names.map((name) => [name, object[name]]));
}

/** What names a checkpoint. Numbers are bound as REAL, so an id becomes a text here. */
function keyOf(config) {
  const { thread_id, checkpoint_ns = "", checkpoint_id } = config.configurable ?? {};
  return { thread_id: thread_id?.toString(), checkpoint_ns, checkpoint_id };
}

function required(config, ...names) {
  const key = keyOf(config);
  for (const name of names) {
    if (!key[name]) {
      throw new Error(`ValidationError: config.configurable.${name} is missing; give the ${name} of the run`);
    }
  }
  return key;
}

/** Whether the metadata has every member of the filter. */
function matches(metadata, filter) {
  return Object.entries(filter).every(
    ([name, value]) => value === undefined || JSON.stringify(metadata?.[name]) === JSON.stringify(value),
  );
}
