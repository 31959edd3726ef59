// The fetch that records, against a server on loopback.
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, test } from "node:test";
import { gunzipSync, gzipSync } from "node:zlib";
import Anthropic from "@anthropic-ai/sdk";
import { GoogleGenAI } from "@google/genai";
import OpenAI from "openai";
import { AgentStoppedError, open as openFlight } from "sqlite-blackbox";
import * as undici from "undici";
import { EVENTS, driver, flight, land, rows, serve, stepped } from "./host.mjs";

const WHOLE = '{"content":"a café"}';
const CANDIDATES = '{"candidates":[{"content":{"role":"model","parts":[{"text":"on its way"}]}}]}';
function model(_, response) {
  const call = (more, args) => ({ index: 0, ...more, function: { ...more.function, arguments: args } });
  const deltas = [
    { tool_calls: [call({ id: "c1", function: { name: "get_order" } }, '{"id"')] },
    { tool_calls: [call({}, ":1042}")] }];
  for (const delta of deltas) {
    response.write(`data: ${JSON.stringify({ model: "m", choices: [{ index: 0, delta }] })}\n\n`);
  }
  const usage = { prompt_tokens: 900, completion_tokens: 20 };
  response.end(`data: ${JSON.stringify({ model: "m", choices: [], usage })}\n\ndata: [DONE]\n\n`);
}
const events = stepped();

const server = await serve({
  whole: (_, response) => response.end(WHOLE),
  packed: (_, response) =>
    response.setHeader("Content-Encoding", "gzip").end(gzipSync(WHOLE)),
  echo: (body, response) => response.end(body),
  empty: (_, response) => response.writeHead(204).end(),
  fault: (_, response) => response.writeHead(429, { "x-why": "quota" }).end('{"error":1}'),
  moved: (_, response) => response.writeHead(303, { Location: "/whole" }).end(),
  cut: (_, response) => {
    response.writeHead(200, { "Content-Length": 100 });
    response.write("data: o", () => setTimeout(() => response.destroy(), 20));
  },
  model,
  "chat/completions": (...call) => (call[1].setHeader("Content-Type", "text/event-stream"), model(...call)),
  "v1/messages": (_, response) => response.setHeader("Content-Type", "application/json").end(JSON.stringify({
    id: "x", type: "message", role: "assistant", model: "m", content: [{ type: "text", text: "on its way" }] })),
  ...Object.fromEntries(["v1", "v1beta"].flatMap((version) => [ // of Google's 3, and of 2
    [`${version}/models/m:generateContent`, (_, response) =>
      response.setHeader("Content-Type", "application/json").end(CANDIDATES)],
    [`${version}/models/m:streamGenerateContent`, (_, response) =>
      response.setHeader("Content-Type", "text/event-stream").end(`data: ${CANDIDATES}\r\n\r\n`)],
  ])),
  stream: events.send,
});
after(server.close);
after(land);

function recorder(options) {
  const db = flight();
  return { db, fetch: db.record(fetch, { agent: "support", ...options }) };
}

async function exchanges(db) {
  assert.ok(await db.recorder.flush(5000));
  return rows(db, "SELECT request_body, response_body FROM ring ORDER BY seq");
}
const meta = (db) => rows(db, "SELECT meta FROM ring ORDER BY seq").map(([text]) => JSON.parse(text));
const post = (body, options) => ({ method: "POST", body, ...options });

test("an exchange is recorded as it was", async () => {
  const { db, fetch } = recorder();
  const response = await fetch(server.url("whole"), post('{"ask":"é"}'));
  assert.equal(await response.text(), WHOLE);
  assert.deepEqual(await exchanges(db), [['{"ask":"é"}', WHOLE]]);
  const [[agent, event, age]] = rows(
    db, "SELECT agent_id, event_id, unixepoch() - timestamp / 1000 FROM ring");
  assert.equal(agent, "support");
  assert.equal(event.length, 36);
  assert.ok(age >= 0 && age < 60);
});

test("the response is that of fetch: status, headers, address, redirection", async () => {
  const { db, fetch } = recorder();
  const fault = await fetch(server.url("fault"), post("q"));
  assert.deepEqual(
    [fault.status, fault.ok, fault.headers.get("x-why"), fault.url],
    [429, false, "quota", server.url("fault")]);
  assert.deepEqual(await fault.json(), { error: 1 });
  const moved = await fetch(server.url("moved"), post("q"));
  assert.deepEqual([moved.redirected, moved.url], [true, server.url("whole")]);
  assert.equal(await moved.clone().text(), WHOLE);
  assert.equal(await moved.text(), WHOLE);
  assert.deepEqual(await exchanges(db), [["q", '{"error":1}'], ["q", WHOLE]]);
});

test("an encoded response is recorded as text", async () => {
  const { db, fetch } = recorder();
  assert.equal(await (await fetch(server.url("packed"), post("q"))).text(), WHOLE);
  assert.deepEqual(await exchanges(db), [["q", WHOLE]]);
});

test("every kind of request body is sent and recorded", async () => {
  const { db, fetch } = recorder();
  const bytes = new TextEncoder().encode("né");
  const stream = new ReadableStream({ start: (c) => (c.enqueue(bytes), c.close()) });
  const bodies = [
    [server.url("echo"), post(bytes)], [server.url("echo"), post(bytes.buffer)],
    [server.url("echo"), post(new Blob(["né"]))],
    [server.url("echo"), post(stream, { duplex: "half" })],
    [new Request(server.url("echo"), post("né"))],
    [new URL(server.url("echo")), post(new URLSearchParams({ a: "n" }))],
  ];
  for (const sent of bodies) await (await fetch(...sent)).text();
  await (await fetch(server.url("whole"))).text();
  assert.deepEqual(await exchanges(db), [
    ...Array(5).fill(["né", "né"]), ["a=n", "a=n"], [null, WHOLE]]);
});

test("bytes that are no text are a blob, and a character that is cut off is replaced", async () => {
  const { db, fetch } = recorder();
  for (const body of [Buffer.from([255, 0, 254]), Buffer.from("café").subarray(0, 4)]) {
    await (await fetch(server.url("echo"), post(body))).arrayBuffer();
  }
  const [[first], [second]] = await exchanges(db);
  assert.deepEqual([...first], [255, 0, 254]);
  assert.equal(second, "caf\ufffd");
});

test("a response without a body is recorded at once", async () => {
  const { db, fetch } = recorder();
  assert.equal((await fetch(server.url("empty"), post("q"))).status, 204);
  assert.deepEqual(await exchanges(db), [["q", null]]);
});

test("the first event of a stream comes before the second is sent", async () => {
  const { db, fetch } = recorder();
  const response = await fetch(server.url("stream"), post("q"));
  const read = response.body.getReader();
  const seen = [];
  for (const event of EVENTS) {
    const { value } = await read.read(); // the server waits for events.step()
    seen.push(Buffer.from(value).toString());
    assert.equal(seen.at(-1), event);
    assert.deepEqual(await exchanges(db), [["q", null]]);
    value.fill(0); // the reader owns its chunk
    events.step();
  }
  assert.equal((await read.read()).done, true);
  assert.deepEqual(await exchanges(db), [["q", EVENTS.join("")]]);
});

test("a stream that is cut off is recorded as far as it came, and fails as before", async () => {
  const { db, fetch } = recorder();
  const response = await fetch(server.url("cut"), post("q"));
  await assert.rejects(response.text());
  assert.deepEqual(await exchanges(db), [["q", "data: o"]]);
});

test("a stream that is cut off while nobody reads is recorded", async () => {
  const { db, fetch } = recorder();
  const response = await fetch(server.url("cut"), post("q"));
  const read = response.body.getReader();
  await read.read();
  for (let i = 0; i < 200 && (await exchanges(db))[0][1] === null; i++) await new Promise((r) => setTimeout(r, 10));
  assert.deepEqual(await exchanges(db), [["q", "data: o"]]);
});

test("a stream that the caller leaves or aborts is recorded as far as it was read", async () => {
  const { db, fetch } = recorder();
  for await (const _ of (await fetch(server.url("stream"), post("1"))).body) break;
  const abort = new AbortController();
  const response = await fetch(server.url("stream"), post("2", { signal: abort.signal }));
  const read = response.body.getReader();
  await read.read();
  abort.abort();
  await assert.rejects(read.read(), { name: "AbortError" });
  assert.deepEqual(await exchanges(db), [["1", EVENTS[0]], ["2", EVENTS[0]]]);
});

test("what a model streams is read by payload_calls and payload_usage", async () => {
  const { db, fetch } = recorder();
  const request = { model: "m", messages: [{ role: "user", content: "Where is order 1042?" }] };
  await (await fetch(server.url("model"), post(JSON.stringify(request)))).text();
  await exchanges(db);
  assert.deepEqual(
    rows(db, "SELECT kind, call_id, tool, arguments FROM ring, payload_calls(request_body, response_body)"),
    [["call", "c1", "get_order", '{"id":1042}']]);
  assert.deepEqual(
    rows(db, "SELECT u.model, u.output FROM ring, payload_usage(request_body, response_body) AS u"), [["m", 20]]);
});

test("calls that overlap are recorded in the order of their begins", async () => {
  const { db, fetch } = recorder();
  const slow = await fetch(server.url("stream"), post("slow"));
  await (await fetch(server.url("whole"), post("quick"))).text();
  const text = slow.text();
  for (const _ of EVENTS) {
    events.step();
    await new Promise((r) => setTimeout(r, 20));
  }
  assert.equal(await text, EVENTS.join(""));
  assert.deepEqual(await exchanges(db), [["slow", EVENTS.join("")], ["quick", WHOLE]]);
});

test("a request that fails is recorded, and fails as before", async () => {
  const { db, fetch } = recorder();
  await assert.rejects(fetch("http://127.0.0.1:9/", post("q")), TypeError);
  await assert.rejects(fetch("http://127.0.0.1:9/", post(new Blob(["b"]))), TypeError);
  assert.deepEqual(await exchanges(db), [["q", null], ["b", null]]);
  const [first] = meta(db);
  assert.deepEqual([first.method, first.url, first.status], ["POST", "http://127.0.0.1:9/", undefined]);
  assert.match(first.error, /^TypeError: fetch failed/);
  assert.ok(first.duration_ms >= 0);
});

test("meta has the status and the address without its query", async () => {
  const { db, fetch } = recorder();
  await (await fetch(`${server.url("fault")}?key=secret`, post("q"))).text();
  await exchanges(db);
  const [{ duration_ms, ...known }] = meta(db);
  assert.ok(duration_ms >= 0);
  assert.deepEqual(known, { method: "POST", url: server.url("fault"), status: 429 });
});

test("an error of recording is told and does not break the request", async () => {
  const errors = [];
  const db = flight(undefined, { onError: (error) => errors.push(error.message) });
  const send = db.record(fetch, { agent: "support", ring: "no ring" });
  assert.equal(await (await send(server.url("whole"), post("q"))).text(), WHOLE);
  assert.deepEqual(await exchanges(db), []);

  assert.deepEqual(errors.slice(0, 1), ["an exchange was not recorded: no such table: no ring"]);

  const warned = once(process, "warning");
  const silent = flight().record(fetch, { agent: () => { throw new Error("who?"); } });
  assert.equal(await (await silent(server.url("whole"), post("q"))).text(), WHOLE);
  assert.equal((await warned)[0].message, "an exchange was not recorded: who?");

  const again = once(process, "warning");
  const broken = flight(undefined, { onError: () => { throw 1; } }).record(fetch, { agent: "a".repeat(2000) });
  assert.equal(await (await broken(server.url("whole"), post("q"))).text(), WHOLE);
  assert.match((await again)[0].message, /an exchange was not recorded: .*at most 1024 bytes/);
});

test("the agent can depend on the request", async () => {
  const { db, fetch } = recorder({ agent: (url) => new URL(url).pathname });
  await (await fetch(server.url("whole"), post("q"))).text();
  await exchanges(db);
  assert.deepEqual(rows(db, "SELECT agent_id FROM ring"), [["/whole"]]);
});

test("the ring can have another name", async () => {
  const db = flight(undefined, { ring: "a tape" });
  await (await db.record(fetch, { agent: "a" })(server.url("whole"), post("q"))).text();
  assert.ok(await db.recorder.flush(5000));
  assert.deepEqual(rows(db, 'SELECT request_body, response_body FROM "a tape"'), [["q", WHOLE]]);
});

test("open makes what is missing, and says what is wrong", () => {
  const db = flight(undefined, { ring: "a tape", settings: { "payload.retention_days": 30 } });
  assert.deepEqual(rows(db, "PRAGMA journal_mode"), [["wal"]]);
  assert.deepEqual(rows(db, "PRAGMA auto_vacuum"), [[2]]);
  assert.deepEqual(rows(db, "SELECT value FROM blackbox_settings WHERE name = 'payload.retention_days'"), [[30]]);
  assert.deepEqual(rows(flight(db.path), "SELECT (SELECT count(*) FROM \"a tape\"), (SELECT count(*) FROM ring)"), [[0, 0]]);
  assert.throws(() => db.record({}, { agent: "a" }), /client must be a fetch, a dispatcher of undici, .* got object/);
  assert.throws(() => db.record(fetch, {}), /agent must be a text or a function/);
  assert.throws(() => db.record(fetch, { agent: "a", onStop: "stop" }), /onStop must be throw or record, got stop/);
  assert.throws(() => flight(undefined, { settings: { "payload.no": 1 } }), /there is no setting 'payload.no'/);
  assert.throws(() => openFlight(":memory:", { driver }).record(fetch, { agent: "a" }), /a database in memory has no recorder/);
  assert.throws(() => openFlight(db.path, { driver: "sqlite" }), /driver must be better-sqlite3 or node:sqlite, got sqlite/);
});

// ------------------------------------------------------------------ clients

const question = { model: "m", max_tokens: 9, messages: [{ role: "user", content: "Where is order 1042?" }] };

test("the clients of OpenAI and Anthropic are recorded, also those of withOptions, and once", async () => {
  const db = flight();
  const openai = new OpenAI({ apiKey: "k", baseURL: server.url(""), maxRetries: 0 });
  assert.equal(db.record(openai, { agent: "openai" }), openai);
  db.record(openai, { agent: "openai" }); // takes the place of the one before
  for (const client of [openai, openai.withOptions({ timeout: 5000 })]) {
    let said = "";
    for await (const chunk of await client.chat.completions.create({ ...question, stream: true })) {
      said += chunk.choices[0]?.delta.tool_calls?.[0].function.arguments ?? "";
    }
    assert.equal(said, '{"id":1042}');
  }
  const anthropic = new Anthropic({ apiKey: "k", baseURL: server.url(""), maxRetries: 0 });
  db.record(anthropic, { agent: "anthropic" });
  assert.equal((await anthropic.messages.create(question)).content[0].text, "on its way");
  await exchanges(db);
  assert.deepEqual(
    rows(db, "SELECT agent_id, payload_prompt(request_body), response_body NOT NULL FROM ring ORDER BY timestamp, seq"),
    [["openai", "Where is order 1042?", 1], ["openai", "Where is order 1042?", 1], ["anthropic", "Where is order 1042?", 1]]);
});

test("the client of Google is recorded, streams included", async () => {
  const db = flight();
  const google = new GoogleGenAI({ apiKey: "k", httpOptions: { baseUrl: server.url("") } });
  db.record(google, { agent: "google" });
  const ask = { model: "m", contents: "Where is order 1042?" };
  assert.equal((await google.models.generateContent(ask)).text, "on its way");
  let said = "";
  for await (const chunk of await google.models.generateContentStream(ask)) said += chunk.text;
  assert.equal(said, "on its way");
  const found = await exchanges(db);
  assert.equal(found.length, 2);
  for (const [request, response] of found) {
    assert.match(request, /Where is order 1042\?/);
    assert.match(response, /on its way/);
  }
  assert.ok(meta(db).every(({ status, url }) => status === 200 && url.includes("/m:")));
});

test("undici is recorded by its dispatcher and by its fetch", async () => {
  const db = flight();
  const agent = new undici.Agent();
  assert.equal(db.record(agent, { agent: "support" }), agent);
  const ask = async (path, body) => {
    const response = await undici.request(server.url(path), { method: "POST", body, dispatcher: agent });
    return Buffer.from(await response.body.arrayBuffer());
  };
  assert.equal((await ask("whole", "1")).toString(), WHOLE);
  assert.equal(gunzipSync(await ask("packed", Buffer.from("2"))).toString(), WHOLE);
  await assert.rejects(ask("cut", "3"));
  const left = await undici.request(server.url("stream"), { method: "POST", body: "4", dispatcher: agent });
  for await (const _ of left.body) break;
  const send = db.record(undici.fetch, { agent: "support" });
  assert.equal(await (await send(server.url("whole"), post("5"))).text(), WHOLE);
  db.exec("INSERT INTO payload_agents(agent_id, stopped_at) VALUES('support', 1)");
  await assert.rejects(ask("whole", "6"), AgentStoppedError);
  for (let i = 0; i < 200 && (await exchanges(db))[3][1] === null; i++) await new Promise((r) => setTimeout(r, 10));
  assert.deepEqual(await exchanges(db), [
    ["1", WHOLE], ["2", WHOLE], ["3", "data: o"], ["4", EVENTS[0]], ["5", WHOLE]]);
  assert.deepEqual(meta(db).map(({ status }) => status), [200, 200, 200, 200, 200]);
  await agent.close();
});

test("what a program sends by the global fetch is recorded", async () => {
  const db = flight();
  const { fetch } = globalThis;
  try {
    db.record(globalThis, { agent: "support" });
    await (await globalThis.fetch(server.url("whole"), post("q"))).text();
  } finally {
    globalThis.fetch = fetch;
  }
  assert.deepEqual(await exchanges(db), [["q", WHOLE]]);
});
