// Nothing that was handed over is lost or delayed: by a lock, a kill, a file that is gone.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync, renameSync, writeFileSync } from "node:fs";
import { basename, dirname } from "node:path";
import { after, test } from "node:test";
import { Recorder } from "sqlite-blackbox";
import { bare, driver, flight, land, newPath, open, rows, serve } from "./host.mjs";

const server = await serve({ whole: (body, response) => response.end(`answer to ${body}`) });
after(server.close);
after(land);

const post = (body) => ({ method: "POST", body });
const ask = async (send, body) => (await send(server.url("whole"), post(body))).text();
const queues = (path) => readdirSync(dirname(path)).filter((name) => name.startsWith(`${basename(path)}-spill-`));
const found = (db) => rows(db, "SELECT request_body, response_body FROM ring ORDER BY timestamp, seq");
const quantile = (times, share) => times.toSorted((a, b) => a - b)[Math.floor((times.length - 1) * share)];

test("while the file is locked nothing waits and nothing is lost", async () => {
  const db = flight();
  const send = db.record(fetch, { agent: "support" });
  const times = async (from, to) => {
    const taken = [];
    for (let i = from; i < to; i++) {
      const begin = performance.now();
      assert.equal(await ask(send, `q${i}`), `answer to q${i}`);
      taken.push(performance.now() - begin);
    }
    return taken;
  };
  await times(0, 5);
  const open = quantile(await times(5, 25), 0.9);
  assert.ok(await db.recorder.flush(5000));
  const other = bare(db.path);
  other.exec("BEGIN EXCLUSIVE");
  const locked = quantile(await times(25, 50), 0.9);
  assert.equal(await db.recorder.flush(100), false);
  assert.equal(found(db).length, 25);
  other.exec("COMMIT");
  assert.ok(await db.recorder.flush(5000));
  assert.deepEqual(found(db), Array.from({ length: 50 }, (_, i) => [`q${i}`, `answer to q${i}`]));
  assert.ok(locked < open + 20, `${locked} ms instead of ${open} ms`);
});

test("many at once are recorded, each once", async () => {
  const db = flight();
  const send = db.record(fetch, { agent: "support" });
  await Promise.all(Array.from({ length: 40 }, (_, i) => ask(send, `q${i}`)));
  assert.ok(await db.recorder.flush(5000));
  assert.deepEqual(rows(db, "SELECT count(*), count(DISTINCT request_body), count(response_body) FROM ring"), [[40, 40, 40]]);
});

const KILLED = `
  import { flight } from "./host.mjs";
  const db = flight(process.argv[1]);
  const answer = async (_, { body }) => new Response("answer to " + body);
  const send = db.record(answer, { agent: "support", onStop: "record" });
  for (let i = 0; i < 30; i++) {
    await (await send("http://model.example/", { method: "POST", body: "q" + i })).text();
    if (process.argv[2] === "open") await new Promise((resolve) => setTimeout(resolve, i));
  }
  await new Promise((resolve) => setImmediate(resolve)); // the end of the last stream
  process.kill(process.pid, "SIGKILL");`;

for (const lock of ["locked", "open"]) {
  test(`what was handed over before a kill is recorded, of a file that is ${lock}`, async () => {
    const path = newPath();
    open(path).exec("CREATE VIRTUAL TABLE ring USING payload_ring(window=100)");
    flight(path);
    for (let i = 0; i < 3; i++) {
      // open() of the process needs the file, what it records does not
      const program = KILLED.replace("const answer", lock === "locked" ? LOCK : "const answer");
      const { signal, stderr } = spawnSync(
        process.execPath, ["--input-type=module", "-e", program, path, lock], { cwd: import.meta.dirname });
      assert.equal(signal, "SIGKILL", String(stderr));
    }
    assert.ok(lock === "open" || queues(path).length > 0);
    const db = flight(path);
    await ask(db.record(fetch, { agent: "support" }), "last");
    assert.ok(await db.recorder.flush(20000));
    assert.deepEqual(
      rows(db, "SELECT count(*), count(DISTINCT event_id), count(response_body) FROM ring WHERE agent_id = 'support'"),
      [[91, 91, 91]]);
    assert.deepEqual(rows(db, "SELECT DISTINCT count(*) FROM ring WHERE request_body <> 'last' GROUP BY request_body"), [[3]]);
    await db.recorder.close();
    assert.deepEqual(queues(path), []);
    assert.deepEqual(rows(db, "SELECT * FROM blackbox_check"), []);
  });
}
const LOCK = `
  const { bare } = await import("./host.mjs");
  bare(process.argv[1]).exec("BEGIN IMMEDIATE");
  const answer`;

test("the end of a program waits for what it has recorded", async () => {
  const path = newPath();
  const program = KILLED.replace(/await new Promise\(\(resolve\) => setImmediate[^]*/, "");
  const done = spawnSync(process.execPath, ["--input-type=module", "-e", program, path], { cwd: import.meta.dirname });
  assert.equal(done.status, 0, String(done.stderr));
  assert.deepEqual(queues(path), []);
  assert.equal(found(flight(path)).length, 30);
});

test("a file that is gone is waited for", async () => {
  const db = flight();
  db.exec("PRAGMA journal_mode = DELETE");
  const send = db.record(fetch, { agent: "support", onStop: "record" });
  await ask(send, "1");
  assert.ok(await db.recorder.flush(5000));
  renameSync(db.path, `${db.path}.away`);
  await ask(send, "2");
  assert.equal(await db.recorder.flush(200), false);
  renameSync(`${db.path}.away`, db.path);
  assert.ok(await db.recorder.flush(5000));
  assert.deepEqual(found(db).map(([request]) => request), ["1", "2"]);
});

test("a worker that fails is told, and another one goes on", async () => {
  const errors = [];
  const db = flight(undefined, { onError: (error) => errors.push(error.message) });
  const send = db.record(fetch, { agent: "support", onStop: "record" });
  await ask(send, "1");
  assert.ok(await db.recorder.flush(5000));
  const other = bare(db.path);
  other.exec("BEGIN IMMEDIATE");
  await ask(send, "2");
  await new Promise((resolve) => setTimeout(resolve, 100));
  db.recorder.worker.postMessage(null); // which it cannot read
  await ask(send, "3");
  for (let i = 0; i < 100 && errors.length === 0; i++) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.match(errors[0], /^exchanges wait, since the worker failed: /);
  other.exec("COMMIT");
  await ask(send, "4");
  assert.ok(await db.recorder.flush(5000));
  assert.deepEqual(found(db).map(([request]) => request), ["1", "2", "3", "4"]);
});

test("a queue that cannot be read is told, and stays", async () => {
  const errors = [];
  const db = flight();
  writeFileSync(`${db.path}-spill-1-damaged.db`, "this is no database, and long enough to be looked at ".repeat(100));
  const recorder = new Recorder(db.path, { driver, onError: (error) => errors.push(error.message) });
  assert.ok(await recorder.flush(5000));
  assert.match(errors[0], /what is in .*-spill-1-damaged.db cannot be read: file is not a database/);
  assert.ok(queues(db.path).includes(`${basename(db.path)}-spill-1-damaged.db`));
  await recorder.close();
});
