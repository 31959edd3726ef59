// The session for the OpenAI Agents SDK: alone, and under the SDK with a model that is a script.
import { Agent, MemorySession, Usage, run, setTracingDisabled, tool } from "@openai/agents";
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { BlackboxSession } from "sqlite-blackbox/agents";
import { BlackboxSpanExporter } from "sqlite-blackbox/otel";
import { open, rows } from "./host.mjs";

setTracingDisabled(true);

const user = (text) => ({ type: "message", role: "user", content: text });
const said = (text) => ({
  type: "message", role: "assistant", status: "completed", content: [{ type: "output_text", text }] });
const call = (callId) => ({ type: "function_call", callId, name: "order", arguments: "{}", status: "completed" });
const result = (callId, text = "sent") => ({
  type: "function_call_result", callId, name: "order", status: "completed", output: { type: "text", text } });

function session(options) {
  const db = open();
  return { db, session: new BlackboxSession(db, options) };
}

test("items come back as they were added, from the oldest", async () => {
  const { db, session: s } = session({ sessionId: "case-7" });
  assert.deepEqual(await s.getItems(), []);
  assert.deepEqual(rows(db, "SELECT * FROM rollouts"), []); // reading writes nothing
  const items = [user("hi ☃"), call("c1"), result("c1"), said("done")];
  await s.addItems(items.slice(0, 2));
  await s.addItems([]);
  await s.addItems(items.slice(2));
  assert.deepEqual(await s.getItems(), items);
  assert.deepEqual(await new BlackboxSession(db, { sessionId: "case-7" }).getItems(), items);
  assert.deepEqual(await new BlackboxSession(db, { sessionId: "case-8" }).getItems(), []);
  assert.equal(await s.getSessionId(), "case-7");
  assert.deepEqual(
    rows(db, "SELECT id, source_id, format, turns, first_user_message, has_user_event FROM rollouts"),
    [[s.rolloutId, "case-7", "openai-agents", 1, "hi ☃", 1]]);
  assert.deepEqual(rows(db, "SELECT * FROM blackbox_check"), []);
});

test("a UUID is the id of the conversation, and a new session has one", async () => {
  const id = "5973B6C0-94b8-487b-a530-2aeb6098ae0e";
  assert.equal(session({ sessionId: id }).session.rolloutId, id.toLowerCase());
  const { session: s } = session();
  assert.equal(s.rolloutId, await s.getSessionId());
});

test("a tool output never comes without its call", async () => {
  const { session: s } = session();
  await s.addItems([user("q"), call("c1"), call("c2"), result("c1"), result("c2"), said("a")]);
  assert.deepEqual(await s.getItems(1), [said("a")]);
  assert.deepEqual(await s.getItems(3), [said("a")]);
  assert.deepEqual(await s.getItems(4), [call("c2"), result("c2"), said("a")]);
  assert.deepEqual(await s.getItems(5), [call("c1"), call("c2"), result("c1"), result("c2"), said("a")]);
  assert.deepEqual(await s.getItems(0), []);
  assert.equal((await s.getItems(100)).length, 6);
  await s.addItems([
    { type: "computer_call_result", callId: "nobody", output: { type: "computer_screenshot", data: "" } },
    { type: "shell_call_output", callId: "nobody", output: [] }]);
  assert.equal((await s.getItems()).length, 6);
});

test("popItem takes back the newest item, and the record keeps it", async () => {
  const { db, session: s } = session();
  assert.equal(await s.popItem(), undefined);
  assert.deepEqual(rows(db, "SELECT * FROM rollouts"), []);
  await s.addItems([user("q"), call("c1"), result("c1")]);
  assert.deepEqual(await s.popItem(), result("c1"));
  assert.deepEqual(await s.getItems(), [user("q"), call("c1")]);
  await s.addItems([result("c1", "lost")]);
  assert.deepEqual(await s.popItem(), result("c1", "lost"));
  assert.deepEqual(await s.popItem(), call("c1"));
  assert.deepEqual(await s.popItem(), user("q"));
  assert.equal(await s.popItem(), undefined);
  await s.addItems([user("again")]);
  assert.deepEqual(await s.getItems(), [user("again")]);
  assert.deepEqual(
    rows(db, "SELECT type, count(*) FROM rollout_items GROUP BY type"),
    [["event_msg", 4], ["response_item", 5], ["session_meta", 1]]);
});

test("a long session is read in pages", async () => {
  const { session: s } = session();
  const items = Array.from({ length: 350 }, (_, i) => user(String(i)));
  await s.addItems(items);
  for (let i = 0; i < 120; i++) await s.popItem();
  assert.deepEqual(await s.getItems(), items.slice(0, 230));
  assert.deepEqual(await s.getItems(205), items.slice(25, 230));
});

test("a compaction takes the place of the history, which stays on record", async () => {
  const { db, session: s } = session();
  await s.addItems([user("1"), said("2")]);
  const compaction = { type: "compaction", encrypted_content: "x" };
  await s.replaceHistoryWithCompaction([compaction, user("3")]);
  await s.addItems([said("4")]);
  assert.deepEqual(await s.getItems(), [compaction, user("3"), said("4")]);
  assert.deepEqual(await s.getItems(2), [user("3"), said("4")]);
  assert.deepEqual([await s.popItem(), await s.popItem()], [said("4"), user("3")]);
  assert.deepEqual(await s.getItems(), [compaction]);
  assert.equal(rows(db, "SELECT count(*) FROM rollout_items WHERE type = 'response_item'")[0][0], 3);
});

test("clearSession deletes the conversation with a receipt, and the session can go on", async () => {
  const { db, session: s } = session();
  await s.clearSession();
  await s.addItems([user("1")]);
  db.prepare("SELECT blackbox_install('main', 'retention')").get();
  db.prepare("SELECT retention_hold('rollout', ?, 'case-7', 'ann', 'asked for')").get(s.rolloutId);
  await assert.rejects(s.clearSession(), /HeldError/);
  await s.addItems([said("2")]);
  assert.deepEqual(await s.popItem(), said("2"));
  db.prepare("SELECT retention_release('rollout', ?, 'case-7', 'ann', 'closed')").get(s.rolloutId);
  await s.clearSession();
  assert.deepEqual(await s.getItems(), []);
  assert.deepEqual(rows(db, "SELECT domain, rule, rows FROM retention_log"), [["rollout", "manual", 1]]);
  await s.addItems([user("3")]);
  assert.deepEqual(await s.getItems(), [user("3")]);
});

test("a session is held, shown and erased by its own id", async () => {
  const db = open();
  const s = new BlackboxSession(db, { sessionId: "bob" });
  await s.addItems([user("1")]);
  db.prepare("SELECT blackbox_install('main', 'retention,report')").get();
  const call = (sql) => Object.values(db.prepare(`SELECT ${sql}`).get())[0];
  assert.throws(() => call("retention_hold('session', 'eve', 'case-7', 'ann', 'why')"), /NotFoundError/);
  assert.equal(call("retention_hold('session', 'bob', 'case-7', 'ann', 'why')"), 1);
  assert.deepEqual(rows(db, "SELECT kind, key FROM retention_holds"), [["rollout", s.rolloutId]]);
  await assert.rejects(s.clearSession(), /HeldError/);
  assert.throws(() => call("blackbox_erase('session', 'bob', 'ann', 'why')"), /HeldError/);
  call("retention_release('session', 'bob', 'case-7', 'ann', 'closed')");
  assert.equal(JSON.parse(call("blackbox_report('session', 'bob', '{\"format\":\"json\"}')")).key, s.rolloutId);
  const erased = JSON.parse(call("blackbox_erase('session', 'bob', 'ann', 'why')"));
  assert.equal(erased.erased.find((part) => part.from === "rollouts").rows, 1);
  assert.deepEqual(await s.getItems(), []);
  await assert.rejects(s.addItems([user("2")]), /ErasedError/);
  assert.throws(() => call("blackbox_erase('session', 'bob', 'ann', 'why')"), /NotFoundError/);
});

test("addItems adds all items or none", async () => {
  const { db, session: s } = session();
  db.exec("CREATE TRIGGER refuse BEFORE INSERT ON rollout__data WHEN instr(NEW.payload, 'wrong')"
    + " BEGIN SELECT RAISE(ABORT, 'no'); END");
  await assert.rejects(s.addItems([user("good"), user("wrong")]), /no/);
  const round = user("round");
  round.self = round;
  await assert.rejects(s.addItems([user("good"), round]), /circular/);
  assert.deepEqual(rows(db, "SELECT * FROM rollouts"), []);
  db.exec("BEGIN");
  await s.addItems([user("good")]);
  db.exec("ROLLBACK");
  assert.deepEqual(await s.getItems(), []);
});

test("a session expires by the setting, or by its own time", async () => {
  const { db, session: s } = session({ ttlDays: "permanent" });
  await s.addItems([user("1")]);
  const day = new BlackboxSession(db, { sessionId: "day", ttlDays: 1 });
  await day.addItems([user("1")]);
  const other = new BlackboxSession(db, { sessionId: "other" });
  await other.addItems([user("1")]);
  const left = (x) =>
    rows(db, "SELECT (expires_at - created + 500) / 1000 FROM rollouts WHERE id = ?", x.rolloutId)[0][0];
  assert.deepEqual([left(s), left(day), left(other)], [null, 86400, 60 * 86400]);
  db.prepare("UPDATE rollouts SET expires_at = 1 WHERE id = ?").run(day.rolloutId);
  await assert.rejects(day.addItems([user("2")]), /RolloutExpiredError/);
  assert.deepEqual([await day.getItems(), await day.popItem()], [[], undefined]);
});

test("every item is kept, whatever the policy says", async () => {
  const { db, session: s } = session();
  const types = ["hosted_tool_call", "computer_call", "shell_call_output", "unknown"];
  const items = [
    { role: "user", content: "no type" }, ...types.map((type) => ({ type })), { type: "of tomorrow" }, said("1")];
  await s.addItems(items);
  db.exec(`INSERT INTO rollout_policy(preset, item_type, keep) VALUES ('mine', 'response_item', 0);
    UPDATE blackbox_settings SET value = 'mine' WHERE name = 'rollout.policy'`);
  await s.addItems([user("2"), said("3")]);
  assert.deepEqual(await s.popItem(), said("3"));
  assert.deepEqual(await s.getItems(), [...items, user("2")]);
  assert.deepEqual(rows(db, "SELECT * FROM rollout_drops"), []);
});

test("what the policy drops is masked as what it keeps", async () => {
  const { db, session: s } = session();
  db.exec(`SELECT blackbox_install('main', 'report');
    UPDATE blackbox_settings SET value = 'mask' WHERE name = 'rollout.secrets'`);
  const key = `sk-ant-api03-${"a1B2c3D4".repeat(4)}`;
  await s.addItems([user(key), { type: "of tomorrow", text: key }]);
  const shown = "[masked: Anthropic key]";
  assert.deepEqual(await s.getItems(), [user(shown), { type: "of tomorrow", text: shown }]);
});

test("what the SDK alone writes is kept by rollout_append(), and what Codex does not keep is not", async () => {
  const db = open();
  new BlackboxSpanExporter(db); // it has installed the domain already
  const s = new BlackboxSession(db);
  await s.addItems([user("1")]);
  db.exec("UPDATE rollout_policy SET keep = 0 WHERE payload_type = 'shell_call'");
  new BlackboxSession(db);
  const kept = (type) => {
    const item = JSON.stringify({ type: "response_item", payload: { type } });
    return rows(db, "SELECT rollout_append(?, ?)", s.rolloutId, item)[0][0];
  };
  assert.deepEqual(["function_call_result", "shell_call", "ghost_snapshot"].map(kept), [1, 0, 0]);
});

test("a statement is prepared once for a connection", async () => {
  const db = open();
  const prepared = [];
  const prepare = db.prepare.bind(db);
  db.prepare = (sql) => (prepared.push(sql), prepare(sql));
  const once = async () => {
    const s = new BlackboxSession(db);
    await s.addItems([user("1"), call("c1"), result("c1"), said("2")]);
    await s.popItem();
    await s.getItems();
    await s.getItems(2);
    await s.clearSession();
  };
  await once();
  assert.ok(prepared.length > 0);
  prepared.length = 0;
  await once();
  assert.deepEqual(prepared, []);
});

test("a session that began in a transaction goes on after it is rolled back", async () => {
  const db = open();
  db.exec("BEGIN");
  await new BlackboxSession(db, { sessionId: "a" }).addItems([user("1")]);
  db.exec("ROLLBACK");
  const s = new BlackboxSession(db, { sessionId: "a" });
  assert.deepEqual(await s.getItems(), []);
  await s.addItems([user("2")]);
  assert.deepEqual(await s.getItems(), [user("2")]);
});

test("two connections can begin the same session at once", async () => {
  const folder = mkdtempSync(join(tmpdir(), "blackbox-"));
  const [one, two] = [1, 2].map(() => open(join(folder, "flight.db")));
  const s = new BlackboxSession(one, { sessionId: "a" });
  const prepare = one.prepare.bind(one);
  one.prepare = (sql) => {
    if (!/INTO rollouts/.test(sql)) return prepare(sql);
    delete one.prepare; // it is not there yet, and the other one is faster
    new BlackboxSession(two, { sessionId: "a" }).addItems([user("2")]);
    return prepare(sql);
  };
  await s.addItems([user("1")]);
  assert.deepEqual(await s.getItems(), [user("2"), user("1")]);
  [one, two].forEach((db) => db.close());
  rmSync(folder, { recursive: true });
});

test("bytes in an item come back as bytes", async () => {
  const { session: s } = session();
  const item = { ...result("c1"), output: { type: "image", image: { data: new Uint8Array([0, 255, 7]) } } };
  await s.addItems([call("c1"), item, { ...result("c1"), output: { data: Buffer.from("é") } }]);
  const [, first, second] = await s.getItems();
  assert.deepEqual(first, item);
  assert.deepEqual(Buffer.from(second.output.data).toString(), "é");
});

/** A model that answers with what the script says, and keeps what it was asked. */
function model(script) {
  const asked = [];
  const usage = new Usage({ inputTokens: 1, outputTokens: 1, totalTokens: 2 });
  return {
    asked,
    async getResponse({ input }) {
      asked.push(input);
      return { usage, output: script.shift() };
    },
  };
}

test("under the SDK a session gives what the SDK's own session in memory gives", async () => {
  const order = tool({
    name: "order", description: "d", strict: true,
    parameters: { type: "object", properties: {}, required: [], additionalProperties: false },
    execute: async () => "sent",
  });
  const { db, session: ours } = session({ sessionId: "case-7" });
  const theirs = new MemorySession({ sessionId: "case-7" });
  const asked = [];
  for (const s of [ours, theirs]) {
    const m = model([[call("c1")], [said("It is on its way.")], [said("Still.")]]);
    const agent = new Agent({ name: "support", model: m, tools: [order] });
    assert.equal((await run(agent, "Where is my parcel?", { session: s })).finalOutput, "It is on its way.");
    assert.equal((await run(agent, "And now?", { session: s })).finalOutput, "Still.");
    asked.push(m.asked);
  }
  const plain = (value) => JSON.parse(JSON.stringify(value));
  assert.deepEqual(plain(await ours.getItems()), plain(await theirs.getItems()));
  assert.deepEqual(plain(asked[0]), plain(asked[1]));
  assert.deepEqual(
    rows(db, "SELECT turns, first_user_message FROM rollouts"), [[2, "Where is my parcel?"]]);
});
