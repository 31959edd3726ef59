// What LangGraph's own validation of savers does not ask: pruning, holds, rules, receipts.
import { Annotation, DeltaChannel, END, START, StateGraph } from "@langchain/langgraph";
import { emptyCheckpoint, uuid6 } from "@langchain/langgraph-checkpoint";
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { BlackboxSaver } from "sqlite-blackbox/langgraph";
import { bare, open, rows } from "./host.mjs";

const meta = { source: "loop", step: 0, parents: {} };
const config = (thread_id, checkpoint_ns = "") => ({ configurable: { thread_id, checkpoint_ns } });
const count = (db, table) => rows(db, `SELECT count(*) FROM langgraph_${table}`)[0][0];
const receipts = (db) => rows(db, "SELECT domain, rule, rows FROM retention_log ORDER BY id");

/** A thread with n checkpoints, each with a write. */
async function fill(saver, thread, n, ns = "") {
  let at = config(thread, ns);
  for (let i = 0; i < n; i++) {
    at = await saver.put(at, { ...emptyCheckpoint(), id: uuid6(i), channel_values: { i } }, meta, {});
    await saver.putWrites(at, [["out", `${thread} ${i}`]], "task");
  }
  return at;
}

async function held(db, thread, act) {
  db.prepare("SELECT retention_hold('session', ?, 'case-7', 'ann', 'asked for')").get(thread);
  await assert.rejects(act(), /HeldError: a hold keeps this thread/);
  db.prepare("SELECT retention_release('session', ?, 'case-7', 'ann', 'closed')").get(thread);
}

test("prune keeps the newest checkpoint of each namespace, with its writes and a receipt", async () => {
  const db = open();
  const saver = new BlackboxSaver(db);
  const newest = await fill(saver, "a", 3);
  await fill(saver, "a", 2, "child");
  await fill(saver, "b", 2);
  await saver.prune(["a"]);
  assert.deepEqual([count(db, "checkpoints"), count(db, "writes")], [4, 4]);
  const kept = await saver.getTuple(config("a"));
  assert.deepEqual(kept.config, newest);
  assert.deepEqual(kept.checkpoint.channel_values, { i: 2 });
  assert.deepEqual(kept.pendingWrites, [["task", "out", "a 2"]]);
  assert.deepEqual(receipts(db), [["user", "langgraph.prune", 3]]);
  await saver.prune(["a"]);
  assert.deepEqual(receipts(db), [["user", "langgraph.prune", 3]]);
});

test("prune with delete removes threads, all or none", async () => {
  const db = open();
  const saver = new BlackboxSaver(db);
  for (const thread of ["a", "b", "c"]) await fill(saver, thread, 2);
  await held(db, "b", () => saver.prune(["a", "b"], { strategy: "delete" }));
  await held(db, "b", () => saver.prune(["a", "b"]));
  assert.equal(count(db, "checkpoints"), 6);
  assert.deepEqual(receipts(db), []);
  await saver.prune(["a", "b"], { strategy: "delete" });
  assert.deepEqual(
    rows(db, "SELECT DISTINCT thread_id FROM langgraph_checkpoints"
      + " UNION ALL SELECT thread_id FROM langgraph_threads"),
    [["c"], ["c"]]);
  assert.deepEqual(receipts(db), [["user", "langgraph.prune", 4]]);
  await assert.rejects(saver.prune(["c"], { strategy: "all" }), /strategy must be keep_latest or delete, got all/);
});

test("a pruned graph goes on, also with a channel that is computed from its ancestors", async () => {
  const db = open();
  const saver = new BlackboxSaver(db);
  const State = Annotation.Root({
    log: () => new DeltaChannel((old, writes) => old.concat(...writes), { snapshotFrequency: 4 }),
  });
  const graph = new StateGraph(State)
    .addNode("add", () => ({ log: ["+"] }))
    .addEdge(START, "add").addEdge("add", END)
    .compile({ checkpointer: saver });
  let gone = 0;
  for (let i = 0; i < 7; i++) {
    const { log } = await graph.invoke({ log: [String(i)] }, config("t"));
    assert.deepEqual(log, Array.from({ length: i + 1 }, (_, k) => [String(k), "+"]).flat());
    gone += count(db, "checkpoints");
    await saver.prune(["t"]);
    assert.deepEqual((await graph.getState(config("t"))).values.log, log);
    gone -= count(db, "checkpoints");
  }
  assert.ok(gone > 10);
});

test("a value that does not change is stored once, and goes when no checkpoint has it", async () => {
  const db = open();
  const saver = new BlackboxSaver(db);
  const stored = () => rows(db, "SELECT channel, count(*) FROM langgraph_values GROUP BY channel");
  let at = config("t");
  for (let i = 1; i <= 3; i++) {
    const checkpoint = {
      ...emptyCheckpoint(), id: uuid6(i),
      channel_values: { fixed: ["f"], i: [i], plain: i }, channel_versions: { fixed: 1, i },
    };
    at = await saver.put(at, checkpoint, meta, i === 1 ? { fixed: 1, i } : { i });
    assert.deepEqual((await saver.getTuple(at)).checkpoint.channel_values, { fixed: ["f"], i: [i], plain: i });
  }
  assert.deepEqual(stored(), [["fixed", 1], ["i", 3]]);
  await saver.prune(["t"]);
  assert.deepEqual(stored(), [["fixed", 1], ["i", 1]]);
  assert.deepEqual((await saver.getTuple(at)).checkpoint.channel_values, { fixed: ["f"], i: [3], plain: 3 });
});

test("a short value stands in each checkpoint that has it, also when the first one is gone", async () => {
  const db = open();
  const saver = new BlackboxSaver(db);
  const versions = { none: 1, yes: 1, text: 1, long: 1, constructor: 1 };
  const values = { none: null, yes: true, text: "é".repeat(100), long: "é".repeat(101), constructor: 7 };
  let at = config("t");
  for (let i = 1; i <= 4; i++) {
    const channel_values = { ...values, text: i < 4 ? values.text : "other" };
    const channel_versions = { ...versions, text: i < 4 ? 1 : 2 };
    const given = { ...emptyCheckpoint(), id: uuid6(i), channel_values, channel_versions };
    at = await saver.put(at, given, meta, [, versions, {}, {}, { text: 2 }][i]);
    assert.deepEqual((await saver.getTuple(at)).checkpoint.channel_values, channel_values);
    await saver.prune(["t"]);
    assert.deepEqual((await saver.getTuple(at)).checkpoint.channel_values, channel_values);
  }
  assert.deepEqual(rows(db, "SELECT channel, version FROM langgraph_values"), [["long", "1"]]);
});

test("a file of before has short values apart, and goes on", async () => {
  const db = open();
  const saver = new BlackboxSaver(db);
  const given = (i) =>
    ({ ...emptyCheckpoint(), id: uuid6(i), channel_values: { a: "x", b: i }, channel_versions: { a: 1, b: i } });
  let at = await saver.put(config("t"), { ...given(1), channel_values: {} }, meta, {});
  db.exec(`UPDATE langgraph_checkpoints SET versions = '{"a":"1","b":"1"}';
    INSERT INTO langgraph_values VALUES ('t', '', 'a', '1', 'json', CAST('"x"' AS BLOB)),
      ('t', '', 'b', '1', 'json', x'31')`);
  assert.deepEqual((await saver.getTuple(at)).checkpoint.channel_values, { a: "x", b: 1 });
  at = await saver.put(at, given(2), meta, { b: 2 });
  await saver.prune(["t"]);
  assert.deepEqual((await saver.getTuple(at)).checkpoint.channel_values, { a: "x", b: 2 });
});

test("a statement is prepared once for a connection", async () => {
  const db = open();
  const prepared = [];
  const prepare = db.prepare.bind(db);
  db.prepare = (sql) => (prepared.push(sql), prepare(sql));
  const once = async () => {
    const saver = new BlackboxSaver(db);
    const at = await fill(saver, "a", 3);
    await saver.getTuple(at);
    await saver.getTuple(config("a"));
    for await (const _ of saver.list(config("a"), { filter: { step: 0 } }));
    await saver.prune(["a"]);
    await saver.deleteThread("a");
  };
  await once();
  assert.ok(prepared.length > 0);
  prepared.length = 0;
  await once();
  assert.deepEqual(prepared, []);
});

test("another serializer gets the bytes that it gave, whatever it calls them", async () => {
  const db = open();
  const serde = {
    dumpsTyped: async (value) => ["json", Buffer.from(JSON.stringify(value)).map((byte) => byte ^ 0xff)],
    loadsTyped: async (type, bytes) => JSON.parse(Buffer.from(bytes).map((byte) => byte ^ 0xff).toString()),
  };
  const saver = new BlackboxSaver(db, { serde });
  const given = { ...emptyCheckpoint(), channel_values: { a: ["é"] }, channel_versions: { a: 1 } };
  const at = await saver.put(config("t"), given, meta, { a: 1 });
  await saver.putWrites(at, [["out", { b: 1 }]], "task");
  const { checkpoint, metadata, pendingWrites } = await saver.getTuple(config("t"));
  assert.deepEqual([checkpoint.channel_values, metadata, pendingWrites], [{ a: ["é"] }, meta, [["task", "out", { b: 1 }]]]);
});

test("bytes come back as bytes", async () => {
  const saver = new BlackboxSaver(open());
  const bytes = new Uint8Array([0, 255, 7]);
  const given = { ...emptyCheckpoint(), channel_values: { a: bytes }, channel_versions: { a: 1 } };
  const at = await saver.put(config("t"), given, meta, { a: 1 });
  await saver.putWrites(at, [["out", bytes]], "task");
  const { checkpoint, pendingWrites } = await saver.getTuple(at);
  assert.deepEqual([Buffer.from(checkpoint.channel_values.a), Buffer.from(pendingWrites[0][2])], [Buffer.from(bytes), Buffer.from(bytes)]);
});

test("list gives as many as it is asked for, of those that fit", async () => {
  const saver = new BlackboxSaver(open());
  let at = config("t");
  for (let i = 0; i < 6; i++) at = await saver.put(at, { ...emptyCheckpoint(), id: uuid6(i) }, { ...meta, step: i % 2, at: i }, {});
  const steps = async (options) => {
    const found = [];
    for await (const { metadata } of saver.list(config("t"), options)) found.push(metadata.at);
    return found;
  };
  assert.deepEqual(await steps(), [5, 4, 3, 2, 1, 0]);
  assert.deepEqual(await steps({ limit: 2 }), [5, 4]);
  assert.deepEqual(await steps({ limit: 0 }), []);
  assert.deepEqual(await steps({ limit: 2, filter: { step: 0 } }), [4, 2]);
  assert.deepEqual(await steps({ limit: 2, filter: { step: undefined }, before: at }), [4, 3]);
});

test("a checkpoint is read as it is at one time, whatever is pruned meanwhile", async () => {
  const db = open();
  const saver = new BlackboxSaver(db);
  const given = { ...emptyCheckpoint(), channel_values: { a: 1 }, channel_versions: { a: 1 } };
  const at = await saver.put(config("t"), given, meta, { a: 1 });
  await saver.putWrites(at, [["out", 2]], "task");
  const found = saver.getTuple(at); // it has not begun to load the values
  db.exec("DELETE FROM langgraph_threads");
  const { checkpoint, pendingWrites } = await found;
  assert.deepEqual([checkpoint.channel_values, pendingWrites], [{ a: 1 }, [["task", "out", 2]]]);
  assert.equal(await saver.getTuple(at), undefined);
});

test("ids that are numbers are ids of the same text; values may be null", async () => {
  const db = open();
  const saver = new BlackboxSaver(db);
  const given = { ...emptyCheckpoint(), channel_values: { a: null }, channel_versions: { a: 1 } };
  const at = await saver.put(config(7), given, meta, { a: 1 });
  await saver.putWrites(at, [["a", null], ["b", [null]], ["c", "é".repeat(3)]], "task");
  assert.equal(at.configurable.thread_id, "7");
  const { checkpoint, pendingWrites } = await saver.getTuple(config("7"));
  assert.deepEqual(checkpoint.channel_values, { a: null });
  assert.deepEqual(pendingWrites.map((w) => w[2]), [null, [null], "ééé"]);
  const listed = [];
  for await (const tuple of saver.list(config(7))) listed.push(tuple.config.configurable.thread_id);
  assert.deepEqual(listed, ["7"]);
});

test("two branches of a thread keep the values of their own", async () => {
  const saver = new BlackboxSaver(open());
  const State = Annotation.Root({ n: Annotation() });
  const graph = new StateGraph(State)
    .addNode("add", ({ n }) => ({ n: n + 1 }))
    .addEdge(START, "add").addEdge("add", END)
    .compile({ checkpointer: saver });
  await graph.invoke({ n: 1 }, config("t"));
  const first = (await graph.getState(config("t"))).config;
  await graph.invoke({ n: 10 }, first);
  const one = (await graph.getState(config("t"))).config;
  await graph.invoke({ n: 20 }, first);
  const two = (await graph.getState(config("t"))).config;
  assert.deepEqual(
    [(await graph.getState(one)).values, (await graph.getState(two)).values], [{ n: 11 }, { n: 21 }]);
});

test("a checkpoint of an older format keeps the parent that has what it sends", async () => {
  const db = open();
  const saver = new BlackboxSaver(db);
  let at = config("t");
  for (let i = 0; i < 3; i++) {
    const given = { ...emptyCheckpoint(), v: 1, id: uuid6(i), channel_versions: { a: i + 1 } };
    at = await saver.put(at, given, meta, {});
    await saver.putWrites(at, [["__pregel_tasks", `send ${i}`]], "task");
  }
  await saver.prune(["t"]);
  assert.equal(count(db, "checkpoints"), 2);
  const { checkpoint } = await saver.getTuple(config("t"));
  assert.deepEqual(checkpoint.channel_values, { __pregel_tasks: ["send 1"] });
  assert.equal(checkpoint.channel_versions.__pregel_tasks, 3);
});

test("a hold keeps a thread from every way to remove or change it, and lets it grow", async () => {
  const db = open();
  const saver = new BlackboxSaver(db);
  const at = await fill(saver, "a", 2);
  await held(db, "a", () => saver.deleteThread("a"));
  await held(db, "a", async () => db.exec("DELETE FROM langgraph_checkpoints"));
  await held(db, "a", async () => db.exec("DELETE FROM langgraph_writes"));
  await held(db, "a", async () => db.exec("DELETE FROM langgraph_threads"));
  db.exec("INSERT INTO langgraph_values VALUES ('a', '', 'c', '1', 'json', x'31')");
  await held(db, "a", async () => db.exec("DELETE FROM langgraph_values"));
  await held(db, "a", async () => db.exec("UPDATE langgraph_values SET value = x'32'"));
  await held(db, "a", async () => db.exec("UPDATE langgraph_checkpoints SET checkpoint = x'00'"));
  db.prepare("SELECT retention_hold('session', 'a', 'case-7', 'ann', 'asked for')").get();
  await fill(saver, "a", 1);
  await saver.putWrites(at, [["__error__", "why"]], "task");
  await saver.putWrites(at, [["__error__", "why else"]], "task");
  assert.equal(count(db, "checkpoints"), 3);
});

test("a thread is erased by its id, or by a text in it, and does not come back", async () => {
  const db = open();
  const saver = new BlackboxSaver(db);
  for (const thread of ["a", "b"]) await fill(saver, thread, 2);
  const at = await fill(saver, "c", 1);
  await saver.putWrites(at, [["said", "a secret name"]], "other");
  const erase = (kind, key) => JSON.parse(Object.values(
    db.prepare("SELECT blackbox_erase(?, ?, 'ann', 'asked for')").get(kind, key))[0]);
  db.prepare("SELECT retention_hold('session', 'b', 'case-7', 'ann', 'asked for')").get();
  assert.throws(() => erase("session", "b"), /HeldError/);
  assert.equal(erase("session", "a").erased.find((part) => part.from === "langgraph_threads").rows, 1);
  assert.equal(await saver.getTuple({ configurable: { thread_id: "a" } }), undefined);
  await assert.rejects(fill(saver, "a", 1), /ErasedError: this thread was erased/);
  assert.throws(() => erase("session", "a"), /NotFoundError/);
  assert.equal(erase("text", "a secret name").rows, 1);
  assert.deepEqual(rows(db, "SELECT thread_id FROM langgraph_threads"), [["b"]]);
  assert.equal(count(db, "values"), rows(db, "SELECT count(*) FROM langgraph_values WHERE thread_id = 'b'")[0][0]);
});

test("a hold keeps a thread on a connection without the module, too", async () => {
  const folder = mkdtempSync(join(tmpdir(), "blackbox-"));
  const db = open(join(folder, "flight.db"));
  await fill(new BlackboxSaver(db), "a", 2);
  db.prepare("SELECT retention_hold('session', 'a', 'case-7', 'ann', 'asked for')").get();
  db.close();
  const plain = bare(join(folder, "flight.db"));
  for (const table of ["threads", "checkpoints", "writes", "due"]) {
    assert.throws(() => plain.exec(`DELETE FROM langgraph_${table}`), /HeldError: a hold keeps this thread/);
  }
  plain.close();
  rmSync(folder, { recursive: true });
});

test("deleteThread removes a thread with a receipt, and no other", async () => {
  const db = open();
  const saver = new BlackboxSaver(db);
  await fill(saver, "a", 3);
  await fill(saver, "b", 1);
  await saver.putWrites({ configurable: { thread_id: "c", checkpoint_id: "1" } }, [["x", 1]], "task");
  const [[bytes]] = rows(db, 'SELECT bytes FROM langgraph_due WHERE "key" = ?', "a");
  await saver.deleteThread("a");
  assert.deepEqual(rows(db, "SELECT rule, rows, bytes FROM retention_log"), [["langgraph.delete", 3, bytes]]);
  await saver.deleteThread("c");
  await saver.deleteThread("nobody");
  assert.deepEqual([count(db, "threads"), count(db, "checkpoints"), count(db, "writes")], [1, 1, 1]);
});

test("a thread that was idle for maxAgeDays is due, and swept with a receipt", async () => {
  const db = open();
  const saver = new BlackboxSaver(db, { maxAgeDays: 90 });
  new BlackboxSaver(db, { maxAgeDays: 30 });
  new BlackboxSaver(db);
  await fill(saver, "a", 2);
  await fill(saver, "b", 2);
  db.prepare("SELECT retention_hold('session', 'b', 'case-7', 'ann', 'asked for')").get();
  const days = (n) => BigInt(Date.now()) + BigInt(n) * 86400000n;
  assert.deepEqual(rows(db, "SELECT * FROM retention_plan(?)", days(29)), []);
  assert.deepEqual(
    rows(db, "SELECT rule, key, reason, blocked_by FROM retention_plan(?) ORDER BY key", days(31)),
    [["langgraph.age", "a", "age_ms = 2592000000", null], ["langgraph.age", "b", "age_ms = 2592000000", "held"]]);
  const [[swept]] = rows(db, "SELECT retention_sweep(1000, ?)", days(31));
  assert.deepEqual(JSON.parse(swept).byRule, { "langgraph.age": 1 });
  assert.deepEqual([count(db, "threads"), count(db, "checkpoints"), count(db, "writes")], [1, 2, 2]);
  assert.deepEqual(receipts(db), [["user", "langgraph.age", 1]]);
  assert.deepEqual(rows(db, "SELECT * FROM blackbox_check"), []);
  assert.throws(() => new BlackboxSaver(db, { maxAgeDays: 0 }), /maxAgeDays must be a number of days above 0, got 0/);
});

test("what is put in a transaction of the caller is rolled back with it", async () => {
  const db = open();
  const saver = new BlackboxSaver(db);
  db.exec("BEGIN");
  await fill(saver, "a", 2);
  await saver.prune(["a"]);
  db.exec("ROLLBACK");
  assert.deepEqual([count(db, "threads"), count(db, "checkpoints"), count(db, "writes")], [0, 0, 0]);
  assert.deepEqual(receipts(db), []);
});

test("the order of writes is that of paths, tasks and numbers, by code point", async () => {
  const db = open();
  const saver = new BlackboxSaver(db);
  const at = await fill(saver, "t", 0).then(() => saver.put(config("t"), emptyCheckpoint(), meta, {}));
  await saver.putWrites(at, [["c", 1]], "z", "a");
  await saver.putWrites(at, [["c", 2], ["c", 3]], "\u{1f600}", "");
  await saver.putWrites(at, [["c", 4]], "\uffee", "");
  const { pendingWrites } = await saver.getTuple(config("t"));
  assert.deepEqual(pendingWrites.map((w) => w[2]), [4, 2, 3, 1]);
});
