// langgraph.js: a checkpoint saver of LangGraph in a file with the rules of blackbox.
//
//   const graph = builder.compile({ checkpointer: new BlackboxSaver(db) });
//
// The tables, and what holds for them, are in langgraph_tables.js. The saver and the sweep
// leave a receipt in retention_log for what they remove.
//
// Invariants: a checkpoint is read as it was put, with the values of its channels that were
// ever new. prune() and deleteThread() are done as a whole or not at all.
// A hold on the session with the id of a thread keeps it, and blackbox_erase() removes it.
import {
  BaseCheckpointSaver,
  MemorySaver,
  TASKS,
  WRITES_IDX_MAP,
  copyCheckpoint,
  maxChannelVersion,
} from "@langchain/langgraph-checkpoint";
import { randomBytes } from "node:crypto";
import { atomically, install, now, statement } from "./database.js";
import { SCHEMA } from "./langgraph_tables.js";

const DAY = 86400000;
const SHORT = 100; // characters of a text that stands in the checkpoint itself
const SENDS_INSIDE = /^\{"v":[4-9]/; // how a checkpoint begins that has what its step sends
const VERSIONS =
  "SELECT versions FROM langgraph_checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?";

/** The statements that read a checkpoint, with JSON as text or as bytes. */
function reads(text) {
  const value = (column, type = "type") =>
    text ? `CASE ${type} WHEN 'json' THEN CAST(${column} AS TEXT) ELSE ${column} END` : column;
  const row = `SELECT checkpoint_id, parent_id, versions, type, ${value("checkpoint")} AS value,
      metadata_type, ${value("metadata", "metadata_type")} AS metadata
    FROM langgraph_checkpoints WHERE thread_id = ? AND checkpoint_ns = ?`;
  const writes = `SELECT task_id, channel, type, ${value("value")} AS value FROM langgraph_writes
    WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?`;
  return {
    one: `${row} AND checkpoint_id = ?`,
    newest: `${row} ORDER BY checkpoint_id DESC LIMIT 1`,
    values: `SELECT channel, type, ${value("value")} AS value
      FROM (SELECT key, value AS version FROM json_each(?)) CROSS JOIN langgraph_values USING (version)
      WHERE thread_id = ? AND checkpoint_ns = ? AND channel = key`,
    writes: `${writes} ORDER BY task_path, task_id, idx`,
    sends: `${writes} AND channel = '${TASKS}' ORDER BY task_path, task_id, idx`,
  };
}
const TEXT = reads(true);
const BYTES = reads(false);
const OWN = new MemorySaver().serde.constructor; // LangGraph's serializer

/** A saver of checkpoints. The connection must have the module. */
export class BlackboxSaver extends BaseCheckpointSaver {
  constructor(db, { maxAgeDays, serde } = {}) {
    super(serde);
    this.db = db;
    install(db, "retention", SCHEMA);
    if (maxAgeDays !== undefined) this.#keepFor(maxAgeDays);
  }

  #all(sql, ...values) {
    return statement(this.db, sql).all(...values);
  }

  #run(sql, ...values) {
    statement(this.db, sql).run(...values);
  }

  #keepFor(days) {
    if (!(days * DAY >= 1)) {
      throw new RangeError(`ValidationError: maxAgeDays must be a number of days above 0, got ${days}`);
    }
    this.#run(
      `INSERT INTO retention_rules(rule, "view", age_ms) VALUES ('langgraph.age', 'langgraph_due', ?)
       ON CONFLICT (rule) DO UPDATE SET age_ms = excluded.age_ms`,
      BigInt(Math.round(days * DAY)),
    );
  }

  async getTuple(config) {
    return this.#tuple(keyOf(config));
  }

  /** The tuple of a checkpoint, or of the newest one, if its metadata fit. */
  async #tuple({ thread_id, checkpoint_ns, checkpoint_id }, filter = {}) {
    const key = [thread_id, checkpoint_ns];
    const found = thread_id && atomically(this.db, () => this.#read(key, checkpoint_id));
    if (!found) return undefined;
    const { row, values, writes, sends } = found;
    const metadata = await this.serde.loadsTyped(row.metadata_type, row.metadata);
    if (!matches(metadata, filter)) return undefined;
    const [checkpoint, ...loaded] = await this.#loaded([row, ...values, ...writes]);
    values.forEach(({ channel }, i) => (checkpoint.channel_values[channel] = loaded[i]));
    const config = (checkpoint_id) => ({ configurable: { thread_id, checkpoint_ns, checkpoint_id } });
    const tuple = {
      config: config(row.checkpoint_id),
      checkpoint,
      metadata,
      pendingWrites: writes.map(({ task_id, channel }, i) => [task_id, channel, loaded[values.length + i]]),
    };
    if (row.parent_id !== null) tuple.parentConfig = config(row.parent_id);
    // Before version 4 of the format, what a step sends was in the writes of the parent alone.
    if (row.parent_id !== null && checkpoint.v < 4) {
      const versions = Object.values(checkpoint.channel_versions);
      checkpoint.channel_values[TASKS] = await this.#loaded(sends);
      checkpoint.channel_versions[TASKS] =
        versions.length ? maxChannelVersion(...versions) : this.getNextVersion(undefined);
    }
    return tuple;
  }

  /** The rows of a checkpoint, as they are at one time. */
  #read(key, checkpoint_id) {
    // SQLite makes a text of bytes faster than JavaScript. Another serializer may want the bytes.
    const { one, newest, values, writes, sends } = this.serde.constructor === OWN ? TEXT : BYTES;
    const [row] = checkpoint_id ? this.#all(one, ...key, checkpoint_id) : this.#all(newest, ...key);
    return row && {
      row,
      values: row.versions === "{}" ? [] : this.#all(values, row.versions, ...key),
      writes: this.#all(writes, ...key, row.checkpoint_id),
      sends: row.parent_id === null || (typeof row.value === "string" && SENDS_INSIDE.test(row.value))
        ? [] : this.#all(sends, ...key, row.parent_id),
    };
  }

  #loaded(rows) {
    return Promise.all(rows.map(({ type, value }) => this.serde.loadsTyped(type, value)));
  }

  /** The checkpoints, newest first. What is added or removed meanwhile may be missing. */
  async *list(config, { limit = Infinity, before, filter = {} } = {}) {
    const { thread_id, checkpoint_id } = keyOf(config);
    const tests = Object.entries({
      "thread_id = ?": thread_id,
      "checkpoint_ns = ?": config.configurable?.checkpoint_ns,
      "checkpoint_id = ?": checkpoint_id,
      "checkpoint_id < ?": before?.configurable?.checkpoint_id,
    }).filter(([, value]) => value != null);
    const any = Object.values(filter).every((value) => value === undefined);
    const keys = this.#all(
      `SELECT thread_id, checkpoint_ns, checkpoint_id FROM langgraph_checkpoints
       WHERE ${["1", ...tests.map(([test]) => test)].join(" AND ")} ORDER BY checkpoint_id DESC LIMIT ?`,
      ...tests.map(([, value]) => value), BigInt(any && limit < Infinity ? Math.ceil(limit) : -1),
    );
    let left = limit;
    for (const key of keys) {
      if (left <= 0) return;
      const tuple = await this.#tuple(key, filter);
      if (tuple !== undefined && left--) yield tuple;
    }
  }

  async put(config, checkpoint, metadata, newVersions) {
    const { thread_id, checkpoint_ns, checkpoint_id = null } = required(config, "thread_id");
    const { channel_values, channel_versions } = checkpoint;
    const parent = this.#all(VERSIONS, thread_id, checkpoint_ns, checkpoint_id).map((row) => JSON.parse(row.versions));
    const isGiven = (name) => Object.hasOwn(newVersions ?? {}, name) || parent[0]?.[name] === null;
    const versions = Object.create(null); // of the values that have a row of their own; null for the others
    const inside = {};
    for (const [name, value] of Object.entries(channel_values)) {
      if (!Object.hasOwn(channel_versions, name)) inside[name] = value;
      else if (isShort(value) && isGiven(name)) [inside[name], versions[name]] = [value, null];
      else versions[name] = String(channel_versions[name]);
    }
    const body = { ...copyCheckpoint(checkpoint), channel_values: inside };
    const changed = Object.keys(newVersions ?? {}).filter((name) => versions[name]);
    const [dumped, described, ...values] = await Promise.all(
      [body, metadata, ...changed.map((name) => channel_values[name])].map((v) => this.serde.dumpsTyped(v)),
    );
    atomically(this.db, () => {
      this.#run(
        `INSERT INTO langgraph_checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO UPDATE
         SET parent_id = excluded.parent_id, type = excluded.type, checkpoint = excluded.checkpoint,
             versions = excluded.versions, metadata_type = excluded.metadata_type,
             metadata = excluded.metadata`,
        thread_id, checkpoint_ns, checkpoint.id, checkpoint_id, ...dumped,
        JSON.stringify(versions), ...described, now(),
      );
      changed.forEach((name, i) =>
        this.#run(
          `INSERT INTO langgraph_values VALUES (?, ?, ?, ?, ?, ?)
           ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO UPDATE
           SET type = excluded.type, value = excluded.value`,
          thread_id, checkpoint_ns, name, String(newVersions[name]), ...values[i],
        ));
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
      this.#run(
        `INSERT INTO langgraph_threads(thread_id, at) VALUES (?, ?)
         ON CONFLICT (thread_id) DO UPDATE SET at = max(at, excluded.at)`,
        thread_id, now(),
      );
      writes.forEach(([channel], i) =>
        this.#run(
          `INSERT INTO langgraph_writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO ${again}`,
          thread_id, checkpoint_ns, checkpoint_id, taskId, BigInt(WRITES_IDX_MAP[channel] ?? i), taskPath,
          channel, ...values[i],
        ));
    });
  }

  async deleteThread(threadId) {
    atomically(this.db, () => this.#removeThread("langgraph.delete", threadId));
  }

  #removeThread(rule, id) {
    this.#withReceipt(rule, id, () => {
      const gone = this.#all("DELETE FROM langgraph_checkpoints WHERE thread_id = ? RETURNING at", id);
      this.#run("DELETE FROM langgraph_threads WHERE thread_id = ?", id);
      return gone;
    });
  }

  /** Runs an act that removes rows of a thread, and returns their times. */
  #withReceipt(rule, id, remove) {
    this.#run("UPDATE langgraph_threads SET at = at WHERE thread_id = ?", id);
    const size = () =>
      Number(this.#all('SELECT coalesce(sum(bytes), 0) AS n FROM langgraph_due WHERE "key" = ?', id)[0].n);
    const before = size();
    const times = remove().map((row) => Number(row.at));
    const bytes = before - size();
    if (times.length === 0 && bytes === 0) return;
    this.#run(
      `INSERT INTO retention_log(at, domain, rule, rows, bytes, oldest, newest)
       SELECT ?, 'user', ?, ?, ?, min(value), max(value) FROM json_each(?)`,
      now(), rule, BigInt(times.length), BigInt(bytes), JSON.stringify(times),
    );
  }

  /** Removes the checkpoints of threads: all of them ("delete"), or all but the newest of each
   * namespace, and those from which its delta channels are computed ("keep_latest").
   * It is done for all threads or none. */
  async prune(threadIds, { strategy = "keep_latest" } = {}) {
    if (strategy !== "keep_latest" && strategy !== "delete") {
      throw new RangeError(`ValidationError: strategy must be keep_latest or delete, got ${strategy}`);
    }
    const all = strategy === "delete";
    const needed = all ? [] : await Promise.all(threadIds.map((id) => this.#needed(id)));
    atomically(this.db, () => threadIds.forEach((id, i) => {
      if (all) this.#removeThread("langgraph.prune", id);
      else this.#withReceipt("langgraph.prune", id, () => this.#removeOlder(id, needed[i]));
    }));
  }

  /** The ids that stay, by namespace; what is newer than these stays, too. */
  async #needed(threadId) {
    const newest = this.#all(
      `SELECT checkpoint_ns AS ns, max(checkpoint_id) AS id FROM langgraph_checkpoints
       WHERE thread_id = ? GROUP BY checkpoint_ns`,
      threadId,
    );
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
      const gone = this.#all(
        `DELETE FROM langgraph_checkpoints
          WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id < ?
            AND checkpoint_id NOT IN (SELECT value FROM json_each(?)) RETURNING at`,
        id, ns, newest, JSON.stringify(ids),
      );
      this.#run(
        `DELETE FROM langgraph_values WHERE thread_id = ? AND checkpoint_ns = ?
            AND (channel, version) NOT IN (SELECT v.key, v.value
                   FROM langgraph_checkpoints AS c, json_each(c.versions) AS v
                  WHERE c.thread_id = ? AND c.checkpoint_ns = ? AND v.value NOT NULL)`,
        id, ns, id, ns,
      );
      return gone;
    });
  }
}

/** Whether a value is so small that a row of its own would cost more than to repeat it. */
function isShort(value) {
  return typeof value === "string" ? value.length <= SHORT : value === null || /^(number|boolean)$/.test(typeof value);
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
