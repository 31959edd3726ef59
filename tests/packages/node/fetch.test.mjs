// The fetch that records, against a server on loopback.
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, test } from "node:test";
import { gzipSync } from "node:zlib";
import { recordFetch } from "sqlite-blackbox/fetch";
import { EVENTS, open, rows, serve } from "./host.mjs";

const WHOLE = '{"content":"a café"}';
let step; // lets the stream send its next event

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
  model: (_, response) => {
    const call = (more, args) => ({ index: 0, ...more, function: { ...more.function, arguments: args } });
    const deltas = [
      { tool_calls: [call({ id: "c1", function: { name: "get_order" } }, '{"id"')] },
      { tool_calls: [call({}, ":1042}")] }];
    for (const delta of deltas) {
      response.write(`data: ${JSON.stringify({ model: "m", choices: [{ index: 0, delta }] })}\n\n`);
    }
    const usage = { prompt_tokens: 900, completion_tokens: 20 };
    response.end(`data: ${JSON.stringify({ model: "m", choices: [], usage })}\n\ndata: [DONE]\n\n`);
  },
  stream: async (_, response) => {
    for (const event of EVENTS) {
      response.write(event);
      await new Promise((resolve) => (step = resolve));
    }
    response.end();
  },
});
after(server.close);

function recorder(options) {
  const db = open();
  db.exec("CREATE VIRTUAL TABLE ring USING payload_ring(window=50)");
  return { db, fetch: recordFetch(db, { agent: "support", ...options }) };
}

const exchanges = (db) => rows(db, "SELECT request_body, response_body FROM ring ORDER BY seq");
const post = (body, options) => ({ method: "POST", body, ...options });

test("an exchange is recorded as it was, before the reader sees the end", async () => {
  const { db, fetch } = recorder();
  const response = await fetch(server.url("whole"), post('{"ask":"é"}'));
  assert.equal(await response.text(), WHOLE);
  assert.deepEqual(exchanges(db), [['{"ask":"é"}', WHOLE]]);
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
  assert.deepEqual(exchanges(db), [["q", '{"error":1}'], ["q", WHOLE]]);
});

test("an encoded response is recorded as text", async () => {
  const { db, fetch } = recorder();
  assert.equal(await (await fetch(server.url("packed"), post("q"))).text(), WHOLE);
  assert.deepEqual(exchanges(db), [["q", WHOLE]]);
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
  assert.deepEqual(exchanges(db), [
    ...Array(5).fill(["né", "né"]), ["a=n", "a=n"], [null, WHOLE]]);
});

test("bytes that are no text are a blob, and a character that is cut off is replaced", async () => {
  const { db, fetch } = recorder();
  for (const body of [Buffer.from([255, 0, 254]), Buffer.from("café").subarray(0, 4)]) {
    await (await fetch(server.url("echo"), post(body))).arrayBuffer();
  }
  const [[first], [second]] = exchanges(db);
  assert.deepEqual([...first], [255, 0, 254]);
  assert.equal(second, "caf\ufffd");
});

test("a response without a body is recorded at once", async () => {
  const { db, fetch } = recorder();
  assert.equal((await fetch(server.url("empty"), post("q"))).status, 204);
  assert.deepEqual(exchanges(db), [["q", null]]);
});

test("the first event of a stream comes before the second is sent", async () => {
  const { db, fetch } = recorder();
  const response = await fetch(server.url("stream"), post("q"));
  const read = response.body.getReader();
  const seen = [];
  for (const event of EVENTS) {
    const { value } = await read.read(); // the server waits for step()
    seen.push(Buffer.from(value).toString());
    assert.equal(seen.at(-1), event);
    assert.deepEqual(exchanges(db), []);
    value.fill(0); // the reader owns its chunk
    step();
  }
  assert.equal((await read.read()).done, true);
  assert.deepEqual(exchanges(db), [["q", EVENTS.join("")]]);
});

test("a stream that is cut off is recorded as far as it came, and fails as before", async () => {
  const { db, fetch } = recorder();
  const response = await fetch(server.url("cut"), post("q"));
  await assert.rejects(response.text());
  assert.deepEqual(exchanges(db), [["q", "data: o"]]);
});

test("a stream that is cut off while nobody reads is recorded", async () => {
  const { db, fetch } = recorder();
  const response = await fetch(server.url("cut"), post("q"));
  const read = response.body.getReader();
  await read.read();
  for (let i = 0; i < 200 && exchanges(db).length === 0; i++) await new Promise((r) => setTimeout(r, 10));
  assert.deepEqual(exchanges(db), [["q", "data: o"]]);
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
  assert.deepEqual(exchanges(db), [["1", EVENTS[0]], ["2", EVENTS[0]]]);
});

test("what a model streams is read by payload_calls and payload_usage", async () => {
  const { db, fetch } = recorder();
  db.prepare("SELECT blackbox_install('main', 'payload')").get();
  const request = { model: "m", messages: [{ role: "user", content: "Where is order 1042?" }] };
  await (await fetch(server.url("model"), post(JSON.stringify(request)))).text();
  assert.deepEqual(
    rows(db, "SELECT kind, call_id, tool, arguments FROM ring, payload_calls(request_body, response_body)"),
    [["call", "c1", "get_order", '{"id":1042}']]);
  assert.deepEqual(
    rows(db, "SELECT u.model, u.output FROM ring, payload_usage(request_body, response_body) AS u"), [["m", 20]]);
});

test("streams that overlap are recorded in the order of their ends", async () => {
  const { db, fetch } = recorder();
  const slow = await fetch(server.url("stream"), post("slow"));
  await (await fetch(server.url("whole"), post("quick"))).text();
  const text = slow.text();
  for (const _ of EVENTS) {
    step();
    await new Promise((r) => setTimeout(r, 20));
  }
  assert.equal(await text, EVENTS.join(""));
  assert.deepEqual(
    rows(db, "SELECT request_body FROM ring ORDER BY seq"), [["quick"], ["slow"]]);
  assert.deepEqual(
    rows(db, "SELECT request_body FROM ring ORDER BY timestamp"), [["slow"], ["quick"]]);
});

test("a request that fails is recorded, and fails as before", async () => {
  const { db, fetch } = recorder();
  await assert.rejects(fetch("http://127.0.0.1:9/", post("q")), TypeError);
  await assert.rejects(fetch("http://127.0.0.1:9/", post(new Blob(["b"]))), TypeError);
  await new Promise(setImmediate);
  assert.deepEqual(exchanges(db), [["q", null], ["b", null]]);
});

test("an error of recording is told and does not break the request", async () => {
  const errors = [];
  const { db, fetch } = recorder({ onError: (error) => errors.push(error.message) });
  db.exec("DROP TABLE ring");
  assert.equal(await (await fetch(server.url("whole"), post("q"))).text(), WHOLE);
  assert.match(errors[0], /no such table: ring/);

  const warned = once(process, "warning");
  const silent = recordFetch(open2(), { agent: () => { throw new Error("who?"); } });
  assert.equal(await (await silent(server.url("whole"), post("q"))).text(), WHOLE);
  assert.equal((await warned)[0].message, "an exchange was not recorded: who?");

  const again = once(process, "warning");
  const broken = recordFetch(open2(), { agent: "\0".repeat(2000), onError: () => { throw 1; } });
  assert.equal(await (await broken(server.url("whole"), post("q"))).text(), WHOLE);
  assert.match((await again)[0].message, /an exchange was not recorded: /);
});

function open2() {
  const db = open();
  db.exec("CREATE VIRTUAL TABLE ring USING payload_ring(window=50)");
  return db;
}

test("the ring can be in an attached schema, and the agent depend on the request", async () => {
  const { db, fetch } = (() => {
    const db = open();
    db.exec("ATTACH ':memory:' AS \"a flight\"");
    db.exec('CREATE VIRTUAL TABLE "a flight".tape USING payload_ring(window=5)');
    return { db, fetch: recordFetch(db, { ring: "a flight.tape", agent: (url) => new URL(url).pathname }) };
  })();
  await (await fetch(server.url("whole"), post("q"))).text();
  assert.deepEqual(rows(db, "SELECT agent_id FROM tape"), [["/whole"]]);
});

test("a ring that does not exist is an error at once", () => {
  assert.throws(() => recordFetch(open(), { agent: "a" }), /no such table: ring/);
});
