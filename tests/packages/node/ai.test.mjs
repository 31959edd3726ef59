// The middleware of the AI SDK: with models of its tests, and with the provider of OpenAI on loopback.
// Version 7 of the SDK needs Node 22: it is tried with node:sqlite, and version 6 with better-sqlite3.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { AgentStoppedError } from "sqlite-blackbox";
import { recordModel } from "sqlite-blackbox/ai";
import { bare, driver, flight, land, rows, serve } from "./host.mjs";

const newest = driver === "node:sqlite" ? "-7" : "";
const { generateText, jsonSchema, stepCountIs, streamText, tool, wrapLanguageModel } = await import(`ai${newest}`);
const { createOpenAI } = await import(`@ai-sdk/openai${newest}`);
const mocks = await import(`ai${newest}/test`);
const specificationVersion = newest ? "v4" : "v3";
const Model = mocks[`MockLanguageModel${specificationVersion.toUpperCase()}`];

after(land);

const usage = {
  inputTokens: { total: 900, noCache: 100, cacheRead: 800, cacheWrite: 0 },
  outputTokens: { total: 20, text: 15, reasoning: 5 },
};
const finishReason = { unified: "stop", raw: "stop" };
const SAID = { content: [{ type: "text", text: "It is on its way." }], finishReason, usage, warnings: [] };
const PARTS = [
  { type: "stream-start", warnings: [] },
  { type: "response-metadata", id: "r1", modelId: "m-1" },
  { type: "text-start", id: "1" },
  { type: "text-delta", id: "1", delta: "It is " },
  { type: "text-delta", id: "1", delta: "on its way." },
  { type: "text-end", id: "1" },
  { type: "tool-input-start", id: "c1", toolName: "get_order" },
  { type: "tool-input-end", id: "c1" },
  { type: "tool-call", toolCallId: "c1", toolName: "get_order", input: '{ "id": 1042 }' },
  { type: "finish", finishReason, usage },
];
const ask = { maxRetries: 0, prompt: "Where is my parcel?" };
const params = (text) => ({ prompt: [{ role: "user", content: [{ type: "text", text }] }] });
const streamOf = (parts, end = (c) => c.close()) => ({
  stream: new ReadableStream({ start: (c) => (parts.forEach((part) => c.enqueue(part)), end(c)) }),
});

function recorded(db, calls, options) {
  const model = new Model({ modelId: "m", provider: "mock", ...calls });
  return wrapLanguageModel({ model, middleware: recordModel(db, { agent: "support", ...options }) });
}

async function exchanges(db) {
  assert.ok(await db.recorder.flush(5000));
  return rows(db, "SELECT request_body, response_body, meta FROM ring ORDER BY timestamp, seq")
    .map((row) => row.map((text) => JSON.parse(text)));
}

async function read(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
}

test("a call is recorded before it is sent, and completed with what the model says", async () => {
  const db = flight();
  let before;
  const model = recorded(db, { doGenerate: async () => ((before = await exchanges(db)), SAID) });
  const headers = { authorization: "Bearer secret" };
  const { text } = await generateText({ ...ask, model, headers, system: "Be kind." });
  assert.equal(text, "It is on its way.");
  assert.deepEqual(before.map(([request, response]) => [request.model, response]), [["m", null]]);
  const [[request, response, { duration_ms, ...meta }]] = await exchanges(db);
  assert.deepEqual(request.prompt.map(({ role }) => role), ["system", "user"]);
  assert.deepEqual(response, { specificationVersion, model: "m", ...SAID });
  assert.deepEqual(meta, { method: "generate", provider: "mock", model: "m" });
  assert.ok(duration_ms >= 0 && !JSON.stringify(request).includes("secret"));
  assert.deepEqual(rows(db, "SELECT agent_id, payload_prompt(request_body) FROM ring"), [["support", ask.prompt]]);
  assert.deepEqual(
    rows(db, "SELECT u.* FROM ring, payload_usage(request_body, response_body) AS u").map((row) => row.slice(0, 6)),
    [["m", 100, 0, 800, 20, 5]]);
  assert.deepEqual(rows(db, "SELECT * FROM blackbox_check"), []);
});

test("tools of an agent are read from its exchanges, with errors of results", async () => {
  const db = flight();
  let step = 0;
  const call = { type: "tool-call", toolCallId: "c1", toolName: "get_order", input: '{ "id": 1042 }' };
  const doGenerate = async () => (step++ === 0 ? { ...SAID, content: [call] } : SAID);
  const execute = () => { throw new Error("timeout"); };
  const get_order = tool({ inputSchema: jsonSchema({ type: "object" }), execute });
  await generateText({
    ...ask, model: recorded(db, { doGenerate }), tools: { get_order }, stopWhen: stepCountIs(3) });
  await exchanges(db);
  assert.deepEqual(
    rows(db, `SELECT kind, call_id, tool, arguments, result, is_error, body
              FROM ring, payload_calls(request_body, response_body) ORDER BY timestamp, seq, n`),
    [["call", "c1", "get_order", '{"id":1042}', null, null, "response"],
     ["call", "c1", "get_order", '{"id":1042}', null, null, "request"],
     ["result", "c1", "get_order", null, newest ? "Error: timeout" : "timeout", 1, "request"]]);
  assert.deepEqual(rows(db, "SELECT DISTINCT payload_tools(request_body) FROM ring"), [["fn:get_order"]]);
});

test("each kind of result is read, and which are errors", async () => {
  const db = flight();
  const model = recorded(db, { doGenerate: async () => SAID });
  const outputs = [
    { type: "text", value: "a" }, { type: "json", value: { b: 1 } }, { type: "error-text", value: "c" },
    { type: "error-json", value: { d: 1 } }, { type: "execution-denied", reason: "no" },
    { type: "content", value: [{ type: "text", text: "e" }] }];
  const content = outputs.map((output, i) => ({ type: "tool-result", toolCallId: `c${i}`, toolName: "t", output }));
  await model.doGenerate({ prompt: [{ role: "tool", content }] });
  await exchanges(db);
  assert.deepEqual(
    rows(db, "SELECT call_id, result, is_error FROM ring, payload_calls(request_body, response_body)"),
    [["c0", "a", 0], ["c1", '{"b":1}', 0], ["c2", "c", 1], ["c3", '{"d":1}', 1], ["c4", "no", 1], ["c5", "e", 0]]);
});

test("each part of a stream is passed on as it comes, and the row is as without a stream", async () => {
  const db = flight();
  let more;
  const stream = new ReadableStream({ start: (c) => (more = c) });
  const model = recorded(db, { doStream: async () => ({ stream }) });
  const reader = (await model.doStream(params("q"))).stream.getReader();
  for (const part of PARTS) {
    more.enqueue(part);
    assert.equal((await reader.read()).value, part);
    assert.equal((await exchanges(db))[0][1], null);
  }
  more.close();
  assert.equal((await reader.read()).done, true);
  assert.deepEqual((await exchanges(db))[0][1], {
    specificationVersion, model: "m-1", id: "r1", warnings: [], finishReason, usage,
    content: [SAID.content[0], PARTS.at(-2)] });
  const result = streamText({ ...ask, model: recorded(db, { doStream: async () => streamOf(PARTS) }) });
  assert.equal((await read(result.textStream)).join(""), "It is on its way.");
  assert.equal((await exchanges(db))[1][1].content.length, 2);
});

test("an error is recorded, and comes as before", async () => {
  const db = flight();
  const wrong = Object.assign(new Error("quota"), { statusCode: 429 });
  const fails = async () => { throw wrong; };
  const model = recorded(db, { doGenerate: fails, doStream: fails });
  await assert.rejects(generateText({ ...ask, model }), wrong);
  await assert.rejects(model.doStream(params("q")), wrong);
  for (const [, response, { status, error }] of await exchanges(db)) {
    assert.deepEqual([response, status, error], [null, 429, "Error: quota"]);
  }
  assert.equal((await exchanges(db)).length, 2);
});

test("a stream that fails, says an error, is left or aborted is recorded as far as it came", async () => {
  const db = flight();
  const some = PARTS.slice(0, 4);
  const abort = new AbortController();
  const streams = [
    () => streamOf(some, (c) => setTimeout(() => c.error(new Error("cut off")), 10)),
    () => streamOf([...some, { type: "error", error: new Error("overloaded") }]),
    () => streamOf(some, () => {}),
    () => streamOf(some, (c) => abort.signal.addEventListener("abort", () => c.error(abort.signal.reason))),
  ];
  const model = recorded(db, { doStream: async () => streams.shift()() });
  const open = async () => (await model.doStream(params("q"))).stream;
  await assert.rejects(read(await open()), /cut off/);
  assert.equal((await read(await open())).length, 5);
  for await (const part of await open()) if (part.type === "text-delta") break;
  const aborted = read(await open());
  setTimeout(() => abort.abort(), 10);
  await assert.rejects(aborted, { name: "AbortError" });
  const found = await exchanges(db);
  assert.deepEqual(found.map(([, { content }]) => content[0].text), Array(4).fill("It is "));
  assert.deepEqual(found.map(([, , { error }]) => error), [
    "Error: cut off", "Error: overloaded", undefined, "AbortError: This operation was aborted"]);
});

test("a stopped agent sends nothing, or what it sends is recorded", async () => {
  const db = flight();
  let sent = 0;
  const doGenerate = async () => (sent++, SAID);
  const doStream = async () => (sent++, streamOf(PARTS));
  const model = recorded(db, { doGenerate, doStream });
  await generateText({ ...ask, model });
  db.exec("INSERT INTO payload_agent_log(agent_id, act, actor, reason) VALUES('support', 'stop', 'Ann', 'why')");
  await assert.rejects(generateText({ ...ask, model, maxRetries: 2 }), { name: "AgentStoppedError", stoppedBy: "Ann" });
  await assert.rejects(model.doStream(params("q")), AgentStoppedError);
  assert.equal(sent, 1);
  await generateText({ ...ask, model: recorded(db, { doGenerate }, { onStop: "record" }) });
  assert.equal(sent, 2);
  assert.equal((await exchanges(db)).length, 2);
});

test("an error of recording is told, and breaks no call", async () => {
  const errors = [];
  const db = flight(undefined, { timeout: 0, onError: (error) => errors.push(error.message) });
  const round = {};
  round.round = round;
  const odd = [...PARTS.slice(0, 2), { type: "text-delta", id: "unknown", delta: "x" }, ...PARTS.slice(2)];
  const other = bare(db.path);
  other.exec("BEGIN IMMEDIATE");
  const model = recorded(db, { doGenerate: async () => SAID, doStream: async () => streamOf(odd) });
  other.exec("COMMIT");
  assert.match(errors[0], /^the places of the AI SDK are not known to the file: .*locked/);
  await generateText({ ...ask, model, providerOptions: { mock: round } });
  assert.match(errors[1], /^an exchange was not recorded: .*circular/);
  assert.equal((await read((await model.doStream(params("q"))).stream)).length, odd.length);
  assert.match(errors[2], /^a part of a stream was not recorded: /);
  assert.deepEqual((await exchanges(db)).map(([, { content }]) => content[0].text), ["It is on its way."]);
  const unknown = recorded(db, { doGenerate: async () => SAID }, { agent: () => { throw new Error("who?"); } });
  assert.equal((await generateText({ ...ask, model: unknown })).text, "It is on its way.");
  assert.equal(errors.length, 4);
  assert.throws(() => recordModel(db, {}), /agent must be a text or a function/);
});

test("bytes are Base64, and the agent and the ring can be others", async () => {
  const db = flight(undefined, { ring: "a tape" });
  const agent = ({ providerOptions }) => providerOptions.blackbox.agent;
  const model = recorded(db, { doGenerate: async () => SAID }, { agent });
  const image = { type: "file", data: new Uint8Array([1, 2, 3]), mediaType: "image/png" };
  await generateText({
    model, providerOptions: { blackbox: { agent: "painter" } }, messages: [{ role: "user", content: [image] }] });
  assert.ok(await db.recorder.flush(5000));
  assert.deepEqual(
    rows(db, `SELECT agent_id, request_body ->> ? FROM "a tape"`, `$.prompt[0].content[0].data${newest && ".data"}`),
    [["painter", "AQID"]]);
});

test("with the provider of OpenAI, and what it streams", async () => {
  const delta = (content) => JSON.stringify({ id: "x", model: "m-1", choices: [{ index: 0, delta: { content } }] });
  const server = await serve({
    "chat/completions": (_, response) => {
      response.setHeader("Content-Type", "text/event-stream");
      response.end(`data: ${delta("on its ")}\n\ndata: ${delta("way")}\n\ndata: [DONE]\n\n`);
    },
  });
  try {
    const db = flight();
    const openai = createOpenAI({ apiKey: "secret", baseURL: server.url("") });
    const model = wrapLanguageModel({ model: openai.chat("m"), middleware: recordModel(db, { agent: "support" }) });
    assert.equal(await streamText({ ...ask, model }).text, "on its way");
    const [[, response]] = await exchanges(db);
    assert.deepEqual([response.model, response.content.map(({ text }) => text)], ["m-1", ["on its way"]]);
  } finally {
    server.close();
  }
});
