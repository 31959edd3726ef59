// recorder.js: opens a flight recorder, and records what clients send to a model's API.
//
//   const db = open("flight.db");
//   db.record(client, { agent: "support" });
//
// A recorder belongs to a file. The request is handed over before it is sent, its response when it
// has ended: first into a queue on disk (spill.js), and from there, by a worker with a connection of
// its own (worker.js), into the ring, in its order. So whoever sends never waits for a lock of the
// file, and what was handed over is there after a kill: the next recorder of the file writes it.
//
// Whether the agent is stopped is asked when what was handed over before is written. While that
// waits for a lock, and until not more than BEHIND rows wait, the answer is what the file says now.
// With onStop "record" it is not asked, and what the agent does after its stop is recorded as that.
//
// Invariants: an error of recording goes to onError, and never to the caller. If there is no answer
// in ANSWER_MS, or the file cannot be read, the call goes on, and onError gets the error.
//
// Limits: the oldest exchanges are lost when more wait than spill.js says. Nothing is synchronized to
// the disk until it is in the file: what waits may be lost with the power. The end of the program
// waits EXIT_MS at most; process.exit() does not wait, and leaves the queue to the next recorder.
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { Worker } from "node:worker_threads";
import { told, quoted, warn } from "./database.js";
import { connectLoaded, findDriver, Followed, loadPrices } from "./driver.js";
import { watch } from "./clients.js";
import { Queue } from "./spill.js";
import { AgentStoppedError } from "./stop.js";

const ANSWER_MS = 1000;
const EXIT_MS = 5000;
const BEHIND = 50;
const FLIGHT_BYTES = 8_000_000; // that the worker has at once
const STOPPED = "payload_agents WHERE agent_id = ? AND stopped_at NOT NULL";
const NOT_RECORDED = "an exchange was not recorded";

/** Opens a file as a flight recorder, and makes what is missing: the tables, the ring, the settings
 * and the journal mode WAL. In a new file the rules on loops record what they find, and the prices
 * of the package are loaded. Returns a connection, which has record(client, options) and recorder. */
export function open(path, { ring = "ring", settings = {}, timeout = 5000, onError, driver } = {}) {
  const found = findDriver(driver);
  const db = connectLoaded(found, path, { timeout });
  try {
    const isNew = db.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'blackbox_settings'").get() === undefined;
    db.prepare("SELECT blackbox_install()").get(); // before WAL, which fixes auto_vacuum
    db.prepare("PRAGMA journal_mode = WAL").get();
    db.exec(`CREATE VIRTUAL TABLE IF NOT EXISTS ${quoted(ring)} USING payload_ring`);
    if (isNew) {
      db.exec("UPDATE blackbox_settings SET value = 'record' WHERE name = 'payload.on_loop'");
      loadPrices(db);
    }
    for (const [name, value] of Object.entries(settings)) {
      if (Number(db.prepare("UPDATE blackbox_settings SET value = ? WHERE name = ?").run(value, name).changes) === 0) {
        throw new Error(`NotFoundError: there is no setting '${name}'; see blackbox_settings`);
      }
    }
  } catch (error) {
    db.close();
    throw error;
  }
  let recorder;
  const memory = db.prepare("PRAGMA database_list").get().file === "";
  return Object.defineProperties(db, {
    recorder: {
      get() {
        if (memory) throw new Error("ValidationError: a database in memory has no recorder; open a file");
        return (recorder ??= new Recorder(path, { onError, driver: found, ring }));
      },
    },
    record: { value: (client, options) => db.recorder.record(client, options) },
  });
}

const recorders = new Set();
process.on("beforeExit", () => recorders.forEach((recorder) => recorder.leave()));
process.on("exit", () => recorders.forEach((recorder) => recorder.abandon()));

export class Recorder {
  #driver;
  #path;
  #onError;
  #ring; // of open()
  #queue;
  #worker;
  #flight = 0; // bytes of rows that the worker has
  #sizes = []; // their numbers and bytes
  #again = 0; // up to which number rows were given to a worker that failed
  #asked = []; // questions, each with the number of the row that is to be written before
  #behind = false; // whether rows wait for a lock, or have waited and are many
  #file; // a connection for questions
  #waiting = new Set(); // what is called when all is written
  #left; // queues of processes that were killed, until the worker has written them
  #hasLeft = false; // whether the program has waited at its end

  constructor(path, { driver, onError = warn, ring = "ring" } = {}) {
    this.#driver = driver?.includes("/") ? driver : findDriver(driver);
    this.#path = resolve(path);
    this.#onError = onError;
    this.#ring = ring;
    this.#queue = new Queue(this.#driver, this.#path);
    this.#file = new Followed(this.#driver, this.#path);
    const start = `${basename(this.#path)}-spill-`;
    this.#left = readdirSync(dirname(this.#path))
      .filter((name) => name.startsWith(start) && name.endsWith(".db"))
      .map((name) => join(dirname(this.#path), name));
    if (this.#left.length > 0) this.#work({ left: this.#left });
    recorders.add(this);
  }

  /** Records what a client sends from now on: see clients.js. Returns the client, or the function
   * that takes the place of a fetch. */
  record(client, options) {
    return watch(client, this.calls(options));
  }

  /** A function that begins a call: (meta, ...what the function that names the agent gets). */
  calls({ agent, ring = this.#ring, onStop = "throw" }) {
    if (onStop !== "throw" && onStop !== "record") {
      throw new RangeError(`ValidationError: onStop must be throw or record, got ${onStop}`);
    }
    if (typeof agent !== "string" && typeof agent !== "function") {
      throw new TypeError(`ValidationError: agent must be a text or a function, got ${agent}`);
    }
    this.#worker ??= this.#start();
    return (...call) => new Call(this, { agent, ring, onStop }, call);
  }

  /** Hands over a row: command, agent, event, request, response, at, meta, ring. */
  push(row) {
    this.#hasLeft = false;
    const lost = this.#queue.add(row);
    for (let i = 0; i < lost; i++) this.#tell(NOT_RECORDED, new Error("too many wait, and this was the oldest"));
    this.#send();
  }

  /** The row of payload_agents if the agent is stopped, after what was handed over. */
  async ask(agent, ring) {
    if (this.#queue.count > 0 && !this.#behind) {
      await new Promise((written, failed) => {
        const late = setTimeout(() => failed(new Error(`there was no answer within ${ANSWER_MS} ms`)), ANSWER_MS);
        this.#asked.push({ n: this.#queue.last, written: () => written(clearTimeout(late)) });
      });
    }
    this.#file.follow();
    const schema = ring.includes(".") ? `${quoted(ring.split(".")[0])}.` : "";
    return this.#file.statement(`SELECT stopped_at, stopped_by FROM ${schema}${STOPPED}`).get(agent);
  }

  /** Asks what was to be asked when rows up to a number are written. */
  #answer(done) {
    while (this.#asked[0]?.n <= done) this.#asked.shift().written();
  }

  /** Waits until all that was handed over is written, or lost. Resolves to whether it is. */
  flush(timeout = Infinity) {
    if (this.#isDone) return Promise.resolve(true);
    return new Promise((done) => {
      const end = (result) => {
        clearTimeout(timer);
        this.#waiting.delete(end);
        done(result);
      };
      const timer = setTimeout(end, Math.min(timeout, 2 ** 31 - 1), false);
      this.#waiting.add(end);
      this.#send();
    });
  }

  /** Writes what waits, and ends the worker. What is not written waits for the next recorder. */
  async close(timeout = EXIT_MS) {
    const done = await this.flush(timeout);
    const worker = this.#worker;
    this.#worker = undefined;
    if (worker !== undefined) {
      const late = setTimeout(() => worker.terminate(), ANSWER_MS);
      worker.postMessage({ close: true });
      await once(worker, "exit");
      clearTimeout(late);
    }
    this.#queue.untake();
    this.#queue.close();
    this.#file.close();
    recorders.delete(this);
    return done;
  }

  /** The program has nothing else to do: waits once for what is not written. */
  leave() {
    if (this.#hasLeft) return;
    this.#hasLeft = true;
    if (!this.#isDone) this.flush(EXIT_MS);
  }

  /** The process ends now. */
  abandon() {
    this.#queue.close();
  }

  /** The thread that writes, if there is one. */
  get worker() {
    return this.#worker;
  }

  get #isDone() {
    return this.#queue.count === 0 && this.#left.length === 0;
  }

  /** Runs an act whose error goes to onError. */
  tell(what, act) {
    told(this.#onError, what, act);
  }

  #tell(what, cause) {
    this.tell(what, () => {
      throw cause;
    });
  }

  /** Gives the worker what it may have. */
  #send() {
    while (this.#flight < FLIGHT_BYTES) {
      const rows = this.#queue.take(FLIGHT_BYTES - this.#flight);
      if (this.#queue.problem !== undefined) this.#tell("exchanges wait", this.#queue.problem);
      this.#queue.problem = undefined;
      if (rows.length === 0) break;
      for (const row of rows) {
        row.again = row.n <= this.#again;
        this.#sizes.push([row.n, row.bytes + 100]);
      }
      this.#flight += rows.reduce((sum, { bytes }) => sum + bytes + 100, 0);
      this.#work({ rows });
    }
    if (!this.#isDone) return;
    for (const end of this.#waiting) end(true);
  }

  #work(message) {
    this.#worker ??= this.#start();
    this.#worker.postMessage(message);
  }

  #start() {
    const worker = new Worker(new URL("./worker.js", import.meta.url), {
      workerData: { driver: this.#driver, path: this.#path },
      execArgv: [],
    });
    worker.on("message", (message) => this.#hear(message));
    worker.on("error", (error) => this.#tell("exchanges wait, since the worker failed", error));
    worker.on("exit", () => {
      if (this.#worker !== worker) return;
      this.#worker = undefined; // another gets all again
      this.#flight = 0;
      this.#sizes = [];
      this.#left = [];
      this.#again = this.#queue.untake();
      this.#behind = true;
      this.#answer(Infinity);
      setTimeout(() => this.#queue.count > 0 && this.#send(), ANSWER_MS).unref();
    });
    worker.unref(); // after its listeners, which count it
    return worker;
  }

  #hear({ done, left, lost, wait, behind }) {
    if (lost !== undefined) this.#tell(NOT_RECORDED, new Error(lost));
    if (wait !== undefined) this.#tell(`exchanges wait for ${this.#path}`, new Error(wait));
    if (behind) this.#behind = true;
    if (left !== undefined) this.#left = this.#left.filter((name) => name !== left);
    if (done !== undefined) {
      this.#queue.remove(done);
      while (this.#sizes[0]?.[0] <= done) this.#flight -= this.#sizes.shift()[1];
      if (this.#queue.count <= BEHIND) this.#behind = false;
    }
    if (done !== undefined || behind) this.#answer(behind ? Infinity : done);
    if (done !== undefined || left !== undefined) this.#send();
  }
}

/** A call from its begin to its end. request: what the function that names the agent gets. */
class Call {
  #recorder;
  #options;
  #agent; // undefined if there is no telling
  #meta;
  #event = randomUUID();
  #at = Date.now();
  #clock = performance.now();

  constructor(recorder, options, [meta, ...request]) {
    this.#recorder = recorder;
    this.#options = options;
    this.#meta = meta;
    const { agent } = options;
    recorder.tell(NOT_RECORDED, () => (this.#agent = typeof agent === "function" ? agent(...request) : agent));
  }

  /** Throws AgentStoppedError if nothing is to be sent. */
  async ask() {
    const { onStop, ring } = this.#options;
    if (this.#agent === undefined || onStop === "record") return;
    const what = `whether agent ${this.#agent} is stopped is not known, and its call was sent`;
    let row;
    try {
      row = await this.#recorder.ask(this.#agent, ring);
    } catch (error) {
      this.#recorder.tell(what, () => {
        throw error;
      });
    }
    if (row !== undefined) throw new AgentStoppedError(this.#agent, row);
    this.#clock = performance.now();
  }

  begin(body) {
    this.#push(null, body, null, this.#meta);
  }

  end(body, meta) {
    const duration_ms = Math.round(performance.now() - this.#clock);
    this.#push("complete", null, body, { ...this.#meta, duration_ms, ...meta });
  }

  #push(command, request, response, meta) {
    if (this.#agent === undefined) return;
    const [agent, { ring }] = [this.#agent, this.#options];
    this.#agent = undefined; // what cannot be handed over is not completed either
    this.#recorder.tell(NOT_RECORDED, () => {
      const bodies = [kept(request), kept(response), BigInt(this.#at)];
      this.#recorder.push([command, String(agent), this.#event, ...bodies, JSON.stringify(meta), ring]);
      this.#agent = agent;
    });
  }
}

/** What the ring stores of a body, or of what a function returns: text, or a blob if the bytes are
 * not UTF-8. A character that is cut off at the end becomes U+FFFD. */
function kept(body) {
  if (typeof body === "function") return kept(body());
  if (body === undefined || body === null || typeof body === "string") return body ?? null;
  const bytes = Array.isArray(body) ? Buffer.concat(body) : body;
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true });
  } catch {
    return new Uint8Array(bytes);
  }
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}
