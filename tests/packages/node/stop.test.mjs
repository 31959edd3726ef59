// An agent that is stopped sends nothing more, whatever sends: each test counts what reached the
// server.
import { BaseCallbackHandler } from "@langchain/core/callbacks/base";
import { SimpleChatModel } from "@langchain/core/language_models/chat_models";
import { Annotation, END, START, StateGraph } from "@langchain/langgraph";
import { Agent, OpenAIChatCompletionsModel, run, setTracingDisabled, tool } from "@openai/agents";
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { unlinkSync } from "node:fs";
import { after, test } from "node:test";
import OpenAI from "openai";
import { AgentStoppedError } from "sqlite-blackbox";
import { stopCallbacks, stopFilter, throwIfStopped } from "sqlite-blackbox/stop";
import { EVENTS, flight, land, open, rows, serve, stepped } from "./host.mjs";

setTracingDisabled(true);
let hits = 0; // calls that reached the server
const events = stepped();
const CALL = { id: "c1", type: "function", function: { name: "get_order", arguments: '{"id":1042}' } };
const server = await serve({
  "v1/chat/completions": (_, response) => {
    const message = { role: "assistant", content: null, tool_calls: [{ ...CALL, id: `c${hits++}` }] };
    response.setHeader("Content-Type", "application/json");
    response.end(JSON.stringify({
      id: "x", object: "chat.completion", created: 1, model: "m",
      choices: [{ index: 0, finish_reason: "tool_calls", message }],
      usage: { prompt_tokens: 9, completion_tokens: 2, total_tokens: 11 } }));
  },
  stream: (body, response) => {
    hits++;
    return events.send(body, response);
  },
});
after(server.close);
after(land);

/** A flight recorder whose ring pulls the switch. */
function recorder(options, errors) {
  const db = flight(undefined, {
    settings: { "payload.on_loop": "kill_switch" }, onError: errors && ((error) => errors.push(error.message)) });
  const other = open(db.path);
  other.exec("PRAGMA busy_timeout = 5000");
  const made = { db, other, flushed: () => db.recorder.flush(5000) };
  hits = 0;
  return Object.assign(made, { fetch: db.record(fetch, { agent: "support", ...options }) });
}

const stop = (db, at = 1760000000000) =>
  db.exec(`INSERT INTO payload_agents(agent_id, stopped_at, stopped_by) VALUES('support', ${at}, 'Ann')`);
const post = (body) => ({ method: "POST", body });
const STOPPED = (error) => error instanceof AgentStoppedError && error.agent === "support";

/** An agent that gets the same answer for ever: at most so many calls. */
async function loop(send, most = 40, messages = [{ role: "user", content: "Where is order 1042?" }]) {
  for (let i = 0; i < most; i++) {
    const response = await send(server.url("v1/chat/completions"), post(JSON.stringify({ model: "m", messages })));
    const { message } = (await response.json()).choices[0];
    messages = [...messages, message, { role: "tool", tool_call_id: message.tool_calls[0].id, content: "timeout" }];
  }
}

test("a loop ends with the call that pulls the switch", async () => {
  const made = recorder();
  await assert.rejects(loop(made.fetch), (error) => {
    assert.match(error.message, /^agent support was stopped at 20\S+Z by rule no_progress, and nothing was sent;/);
    return STOPPED(error) && error.name === "AgentStoppedError" && error.stoppedBy === "rule no_progress";
  });
  await assert.rejects(loop(made.fetch), STOPPED);
  assert.equal(hits, 5);
  assert.deepEqual(rows(made.db, "SELECT went_on FROM payload_agents"), [[0]]);
  assert.deepEqual(rows(made.db, "SELECT count(*) FROM event_payloads WHERE pinned"), [[5]]);
});

test("with onStop record what goes out after the stop is recorded and becomes evidence", async () => {
  const made = recorder({ onStop: "record" });
  await loop(made.fetch, 30);
  assert.ok(await made.flushed());
  assert.equal(hits, 30);
  assert.deepEqual(rows(made.db, "SELECT went_on FROM payload_agents"), [[25]]);
  assert.deepEqual(rows(made.db, "SELECT count(*) FROM ring"), [[25]]);
  assert.deepEqual(
    rows(made.db, "SELECT count(*), count(DISTINCT kill_switch_event_id) FROM event_payloads WHERE pinned"), [[30, 1]]);
});

test("of many loops at once none sends after the stop, and others go on", async () => {
  const made = recorder();
  const ended = await Promise.allSettled(Array.from({ length: 8 }, (_, i) =>
    loop(made.fetch, 40, [{ role: "user", content: `Where is order ${i}?` }])));
  assert.ok(ended.every(({ reason }) => STOPPED(reason)));
  const { went_on } = made.db.prepare("SELECT went_on FROM payload_agents").get();
  assert.ok(went_on <= 7, went_on); // those that were on their way
  const billing = made.db.record(fetch, { agent: "billing" });
  assert.equal((await billing(server.url("v1/chat/completions"), post("{}"))).status, 200);
});

test("a stream that runs while another process stops the agent ends, and is recorded", async () => {
  const made = recorder();
  const response = await made.fetch(server.url("stream"), post("q"));
  const read = response.body.getReader();
  await read.read();
  execFileSync(process.execPath, ["--input-type=module", "-e", `
    import { bare } from "./host.mjs";
    bare(${JSON.stringify(made.db.path)}).exec("PRAGMA busy_timeout = 5000; INSERT INTO payload_agents(agent_id, stopped_at, stopped_by) " +
      "VALUES('support', 1760000000000, 'Ann')");`], { cwd: import.meta.dirname });
  await assert.rejects(made.fetch(server.url("stream"), post("r")), STOPPED);
  for (let done = false; !done; ) {
    events.step();
    ({ done } = await read.read());
  }
  assert.ok(await made.flushed());
  assert.deepEqual(rows(made.db, "SELECT request_body, response_body FROM ring"), [["q", EVENTS.join("")]]);
  assert.equal(hits, 1);
  made.db.exec("INSERT INTO payload_agent_log(agent_id, actor, reason) VALUES('support', 'Ann', 'mended')");
  await loop(made.fetch, 1);
  assert.equal(hits, 2);
});

test("a lock is not waited for: the answer, the call and the record", async () => {
  const made = recorder();
  const begin = performance.now();
  made.other.exec("BEGIN IMMEDIATE");
  await loop(made.fetch, 2);
  assert.deepEqual(rows(made.db, "SELECT count(*) FROM ring"), [[0]]);
  stop(made.other); // not committed
  await loop(made.fetch, 1);
  made.other.exec("COMMIT");
  made.other.exec("BEGIN IMMEDIATE");
  await assert.rejects(loop(made.fetch), STOPPED); // the write-ahead log can be read
  made.other.exec("COMMIT");
  assert.ok(performance.now() - begin < 2000);
  assert.ok(await made.flushed());
  assert.deepEqual(rows(made.db, "SELECT response_body ->> '$.choices[0].message.tool_calls[0].id' FROM ring"),
    [["c0"], ["c1"], ["c2"]]);
  assert.equal(Object.values(made.db.prepare("PRAGMA busy_timeout").get())[0], 5000);
});

test("a file that cannot be read lets the call go, and tells it", async () => {
  const errors = [];
  const made = recorder({}, errors);
  made.other.close();
  made.db.exec("PRAGMA journal_mode = DELETE");
  made.other = open(made.db.path);
  stop(made.other);
  made.other.exec("BEGIN EXCLUSIVE");
  const begin = performance.now();
  await loop(made.fetch, 1);
  assert.ok(performance.now() - begin < 2000);
  assert.match(errors.join(), /^whether agent support is stopped is not known, and its call was sent: .*database is locked$/);
  made.other.exec("COMMIT");
  assert.ok(await made.flushed());
  assert.deepEqual(rows(made.db, "SELECT count(*) FROM ring"), [[1]]);
  made.db.exec("DROP TABLE payload_agents");
  await loop(made.fetch, 1);
  assert.match(errors[1], /no such table: payload_agents/);
  assert.ok(await made.flushed());
  made.db.close();
  unlinkSync(made.db.path);
  await loop(made.fetch, 1);
  assert.equal(hits, 3);
  assert.match(errors.at(-1), /unable to open database file/);
  assert.equal(await made.db.recorder.flush(100), false);
  const warned = once(process, "warning");
  throwIfStopped(made.db, "support");
  assert.match((await warned)[0].message, /whether agent support is stopped is not known/);
});

test("the client of OpenAI gets it as the cause", async () => {
  const made = recorder();
  stop(made.other);
  const client = new OpenAI({ apiKey: "k", baseURL: server.url("v1"), fetch: made.fetch, maxRetries: 1 });
  await assert.rejects(
    client.chat.completions.create({ model: "m", messages: [] }), (error) => STOPPED(error.cause));
  assert.equal(hits, 0);
});

test("the OpenAI Agents SDK asks before each call of a model", async () => {
  const made = recorder({ onStop: "record" });
  const client = new OpenAI({ apiKey: "k", baseURL: server.url("v1"), fetch: made.fetch });
  const get_order = tool({
    name: "get_order", description: "an order", strict: false, execute: async () => ((await made.flushed()), "timeout"),
    parameters: { type: "object", properties: {}, required: [], additionalProperties: true } });
  const agent = new Agent({ name: "support", model: new OpenAIChatCompletionsModel(client, "m"), tools: [get_order] });
  const options = { callModelInputFilter: stopFilter(made.db), maxTurns: 40 };
  await assert.rejects(run(agent, "Where is order 1042?", options), STOPPED);
  assert.equal(hits, 5);
  await assert.rejects(run(agent, "Where is order 1042?", { ...options, stream: true }).then(
    (stream) => stream.completed), STOPPED);
  await assert.rejects(run(agent, "hi", { callModelInputFilter: stopFilter(made.db, { agent: "support" }) }), STOPPED);
  assert.equal(hits, 5);
});

test("LangGraph asks before each call of a model", async () => {
  const made = recorder({ onStop: "record" });
  class Model extends SimpleChatModel {
    _llmType() {
      return "test";
    }
    async _call() {
      const response = await made.fetch(server.url("v1/chat/completions"), post("{}"));
      return (await response.json()).id;
    }
  }
  const model = new Model({});
  const State = Annotation.Root({ n: Annotation({ reducer: (a, b) => a + b, default: () => 0 }) });
  const graph = new StateGraph(State)
    .addNode("ask", async ({ n }) => {
      if (n === 3) stop(made.other); // between the question of a step and its answer
      await model.invoke("Where is order 1042?");
      return { n: 1 };
    })
    .addEdge(START, "ask").addConditionalEdges("ask", ({ n }) => (n < 20 ? "ask" : END)).compile();
  const { error } = console;
  console.error = () => {}; // LangChain writes it
  try {
    const callbacks = [BaseCallbackHandler.fromMethods(stopCallbacks(made.db, { agent: "support" }))];
    await assert.rejects(graph.invoke({ n: 0 }, { callbacks }), STOPPED);
    await assert.rejects(graph.invoke({ n: 0 }, { callbacks: [stopCallbacks(made.db, { agent: () => "support" })] }),
      STOPPED);
  } finally {
    console.error = error;
  }
  assert.equal(hits, 3);
});

test("an agent is stopped in the schema of its ring", () => {
  const db = open();
  db.exec("ATTACH ':memory:' AS \"a flight\"");
  db.prepare("SELECT blackbox_install('a flight', 'payload')").get();
  db.prepare("SELECT blackbox_install()").get();
  db.exec("INSERT INTO \"a flight\".payload_agents(agent_id, stopped_at) VALUES('support', 1)");
  for (const ring of [undefined, "main.ring", "temp.ring"]) throwIfStopped(db, "support", { ring });
  assert.throws(() => throwIfStopped(db, "support", { ring: "a flight.ring" }),
    { message: /was stopped at 1970-01-01T00:00:00.001Z by a program/ });
});

