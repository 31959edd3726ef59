// worker.js: writes what a recorder was handed over (recorder.js), and answers whether an agent is
// stopped. It has a connection of its own, which does not wait for locks: a row that meets one is
// tried again, and what comes behind it waits. A row that the ring refuses is lost, and told.
//
// A row of a queue of a process that was killed, or one that a worker got before this one, may have
// been written: it is looked for first.
import { statSync } from "node:fs";
import { parentPort, workerData } from "node:worker_threads";
import { quoted } from "./database.js";
import { connectLoaded } from "./driver.js";
import { COLUMNS, exclusive, unlink } from "./spill.js";

const AGAIN_MS = 20;
const TELL_MS = 5000; // after which it is told that rows wait
const BATCH = 16; // rows between two messages
const PASSES = /database is locked|unable to open|database or disk is full|disk I\/O error|readonly database|locking protocol/;
const STOPPED = "SELECT stopped_at, stopped_by FROM payload_agents WHERE agent_id = ? AND stopped_at NOT NULL";
const { driver, path } = workerData;
const say = (message) => parentPort.postMessage(message);

// ------------------------------------------------------------------ the file

let db; // a connection to the file that the path names now
let identity;
let statements = new Map();

function statement(sql) {
  const { dev, ino } = stat();
  if (identity !== `${dev} ${ino}`) {
    close();
    db = connectLoaded(driver, path, { mustExist: true });
    identity = `${dev} ${ino}`;
  }
  if (!statements.has(sql)) statements.set(sql, db.prepare(sql));
  return statements.get(sql);
}

function stat() {
  try {
    return statSync(path);
  } catch (error) {
    close();
    throw new Error(`unable to open database file: ${error.message}`);
  }
}

function close() {
  db?.close();
  db = identity = undefined;
  statements = new Map();
}

/** The schema of a ring, for the names of tables beside it. */
function schema(ring) {
  return ring.includes(".") ? `${quoted(ring.split(".")[0])}.` : "";
}

function insert([command, agent, event, request, response, at, meta, ring], mayBeThere) {
  const table = quoted(ring);
  if (mayBeThere) {
    const found = ["", schema(ring)].map((at, i) =>
      `SELECT response_body IS NULL AND meta ->> 'duration_ms' IS NULL AS open
         FROM ${i === 0 ? table : `${at}event_payloads`} WHERE agent_id = ? AND event_id = ?`);
    const row = statement(`${found.join(" UNION ALL ")} ORDER BY open LIMIT 1`).get(agent, event, agent, event);
    if (command === null ? row !== undefined : !row?.open) return;
  }
  statement(
    `INSERT INTO ${table}(${quoted(ring.split(".").at(-1))}, agent_id, event_id, request_body, response_body, ` +
      "timestamp, meta) VALUES(?, ?, ?, ?, ?, ?, ?)",
  ).run(command, agent, event, request, response, BigInt(at), meta);
}

// ------------------------------------------------------------------ the work

const work = []; // rows and questions, in their order
const left = []; // names of queues of processes that were killed
let timer;
let since; // when the first row met what passes
let isTold = false;

function pump() {
  timer = clearTimeout(timer);
  let done;
  for (let count = 0; work.length > 0 && count < BATCH; count++) {
    if (work[0].ask !== undefined) {
      answer(work.shift());
      continue;
    }
    const { n, values, again } = work[0];
    if (!write(() => insert(values, again))) {
      for (let i = 0; i < work.length; ) {
        if (work[i].ask === undefined) i++;
        else answer(...work.splice(i, 1));
      }
      break;
    }
    done = n;
    work.shift();
  }
  if (done !== undefined) say({ done });
  if (work.length === 0 && left.length > 0 && since === undefined) adopt();
  if (work.length + left.length > 0) timer = setTimeout(pump, since === undefined ? 0 : AGAIN_MS);
}

/** Whether a row is written or lost, and not to be tried again. */
function write(act) {
  try {
    act();
  } catch (error) {
    if (PASSES.test(error.message)) {
      since ??= Date.now();
      if (!isTold && Date.now() - since > TELL_MS) {
        isTold = true;
        say({ wait: error.message });
      }
      return false;
    }
    say({ lost: error.message });
  }
  since = undefined;
  isTold = false;
  return true;
}

function answer({ ask, agent, ring }) {
  try {
    say({ ask, row: statement(STOPPED.replace("payload_agents", `${schema(ring)}payload_agents`)).get(agent) });
  } catch (error) {
    say({ ask, error: error.message });
  }
}

/** Writes some rows of a queue that was left. */
function adopt() {
  const name = left[0];
  let queue;
  let more = false;
  try {
    queue = exclusive(driver, name);
    for (const row of queue.prepare(`SELECT n, ${COLUMNS} FROM queue ORDER BY n LIMIT ${BATCH}`).all()) {
      if (!write(() => insert(COLUMNS.map((column) => row[column]), true))) return;
      queue.prepare("DELETE FROM queue WHERE n = ?").run(BigInt(row.n));
      more = true;
    }
  } catch (error) {
    if (!PASSES.test(error.message)) say({ lost: `what is in ${name} cannot be read: ${error.message}` });
    queue?.close();
    queue = undefined;
  } finally {
    queue?.close();
  }
  if (more) return;
  if (queue !== undefined) unlink(name);
  left.shift();
  say({ left: name });
}

parentPort.on("message", ({ rows, ...message }) => {
  if (message.close) {
    close();
    process.exit();
  }
  if (message.left !== undefined) left.push(...message.left);
  if (message.ask !== undefined) work.push(message);
  for (const row of rows ?? []) work.push(row);
  if (timer === undefined || message.ask !== undefined) pump();
});
