// worker.js: writes what a recorder was handed over (recorder.js), with a connection of its own, which
// does not wait for locks: a row that meets one is tried again, and what comes behind it waits. A row
// that the ring refuses is lost, and told.
//
// What waits is written in batches, a transaction each, in its order. If one row of a batch fails, the
// batch is undone, and its rows are written one by one.
//
// A row of a queue of a process that was killed, or one that a worker got before this one, may have
// been written: it is looked for first.
import { parentPort, workerData } from "node:worker_threads";
import { quoted } from "./database.js";
import { Followed } from "./driver.js";
import { COLUMNS, exclusive, unlink } from "./spill.js";

const AGAIN_MS = 20;
const TELL_MS = 5000; // after which it is told that rows wait
const BATCH = 100; // rows of a transaction, at most
const BATCH_MS = 10; // after which it ends, since others wait for the lock
const PASSES = /database is locked|unable to open|database or disk is full|disk I\/O error|readonly database|locking protocol/;
const { driver, path } = workerData;
const say = (message) => parentPort.postMessage(message);
const file = new Followed(driver, path);

function insert({ values: [command, agent, event, request, response, at, meta, ring], again }) {
  const table = quoted(ring);
  if (again) {
    const archive = ring.includes(".") ? `${quoted(ring.split(".")[0])}.event_payloads` : "event_payloads";
    const found = [table, archive].map((from) =>
      `SELECT response_body IS NULL AND meta ->> 'duration_ms' IS NULL AS open
         FROM ${from} WHERE agent_id = ? AND event_id = ?`);
    const row = file.statement(`${found.join(" UNION ALL ")} ORDER BY open LIMIT 1`).get(agent, event, agent, event);
    if (command === null ? row !== undefined : !row?.open) return;
  }
  file.statement(
    `INSERT INTO ${table}(${quoted(ring.split(".").at(-1))}, agent_id, event_id, request_body, response_body, ` +
      "timestamp, meta) VALUES(?, ?, ?, ?, ?, ?, ?)",
  ).run(command, agent, event, request, response, BigInt(at), meta);
}

// ------------------------------------------------------------------ the work

const work = []; // rows, in their order
const left = []; // names of queues of processes that were killed
let timer;
let since; // when the first row met what passes
let isTold = false;
let single = 0; // of so many rows one has failed

function pump() {
  timer = undefined;
  const count = write(work);
  if (count > 0) say({ done: work.splice(0, count).at(-1).n });
  if (work.length === 0 && left.length > 0) adopt();
  if (work.length + left.length > 0) timer = setTimeout(pump, since === undefined ? 0 : AGAIN_MS);
}

/** Writes the first rows. Returns how many are written or lost, and not to be tried again. */
function write(rows) {
  if (rows.length === 0) return 0;
  let count = 0;
  try {
    file.follow();
    if (rows.length > 1 && single === 0) count = batch(rows);
    else insert(rows[count++]);
  } catch (error) {
    if (PASSES.test(error.message)) {
      if (since === undefined) say({ behind: true });
      since ??= Date.now();
      if (!isTold && Date.now() - since > TELL_MS) {
        isTold = true;
        say({ wait: error.message });
      }
      return 0;
    }
    if (count === 0) single = Math.min(rows.length, BATCH) + 1; // it was the batch
    else say({ lost: error.message });
  }
  single = Math.max(0, single - 1);
  since = undefined;
  isTold = false;
  return count;
}

/** Writes the first rows in one transaction. Returns how many. */
function batch(rows) {
  const end = performance.now() + BATCH_MS;
  let count = 0;
  file.statement("BEGIN IMMEDIATE").run();
  try {
    do insert(rows[count++]);
    while (count < rows.length && count < BATCH && performance.now() < end);
    file.statement("COMMIT").run();
  } catch (error) {
    try {
      file.db.exec("ROLLBACK");
    } catch {
      // SQLite has rolled back already, or the file is gone
    }
    throw error;
  }
  return count;
}

/** Writes some rows of a queue that was left. */
function adopt() {
  const name = left[0];
  let queue;
  try {
    queue = exclusive(driver, name);
    const rows = queue.prepare(`SELECT n, ${COLUMNS} FROM queue ORDER BY n LIMIT ${BATCH}`).all()
      .map((row) => ({ n: row.n, values: COLUMNS.map((column) => row[column]), again: true }));
    const count = write(rows);
    if (count > 0) queue.prepare("DELETE FROM queue WHERE n <= ?").run(BigInt(rows[count - 1].n));
    if (rows.length > 0) return;
  } catch (error) {
    if (!PASSES.test(error.message)) say({ lost: `what is in ${name} cannot be read: ${error.message}` });
    queue?.close();
    queue = undefined;
  } finally {
    queue?.close();
  }
  if (queue !== undefined) unlink(name);
  left.shift();
  say({ left: name });
}

parentPort.on("message", ({ rows = [], ...message }) => {
  if (message.close) {
    file.close();
    process.exit();
  }
  if (message.left !== undefined) left.push(...message.left);
  for (const row of rows) work.push(row);
  if (timer === undefined) pump();
});
try {
  file.follow(); // before the first row comes
} catch {
  // the first row tells it
}
