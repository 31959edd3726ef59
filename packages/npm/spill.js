// spill.js: what a recorder was handed over and has not yet written: a queue on disk.
//
// A database of this process beside the file, which it keeps locked: one that is not locked is that
// of a process that was killed. SQLite keeps it whole at a kill, and is not told to synchronize it.
// The recorder for Python has the same queue, and each takes over what the other left.
//
// Invariants: rows leave in the order in which they came. A row leaves after it was written, so that
// a row that was taken over from a queue may be in the ring already.
//
// Limits: beyond WAITING_BYTES the oldest rows are lost. What does not get into the file waits in
// memory, MEMORY_BYTES at most.
import { randomUUID } from "node:crypto";
import { closeSync, openSync, rmSync, statSync } from "node:fs";
import { connect } from "./driver.js";

export const COLUMNS = ["command", "agent", "event", "request", "response", "at", "meta", "ring"];
export const LIMITS = { waitingBytes: 1_000_000_000, memoryBytes: 256_000_000 };
const SHRINK_BYTES = 16_000_000; // of a queue that is empty

/** A connection to a queue that nobody else has. */
export function exclusive(driver, name) {
  const db = connect(driver, name, { mustExist: true });
  try {
    db.exec(
      "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; " +
        `BEGIN EXCLUSIVE; CREATE TABLE IF NOT EXISTS queue(n INTEGER PRIMARY KEY, adopted, bytes, ${COLUMNS}); COMMIT`,
    );
    return db;
  } catch (error) {
    db.close();
    throw error;
  }
}

export function unlink(name) {
  for (const end of ["", "-wal", "-journal"]) rmSync(name + end, { force: true });
}

export class Queue {
  #driver;
  #path;
  #db; // the file, its name, and its statements
  #name;
  #sql;
  #memory = []; // rows that are not in the file
  #stored = 0; // rows in the file
  #bytes = { file: 0, memory: 0, written: 0 };
  #last = 0; // the last number that was given, and that was taken
  #taken = 0;
  problem; // why rows are not taken

  constructor(driver, path) {
    this.#driver = driver;
    this.#path = path;
  }

  get count() {
    return this.#stored + this.#memory.length;
  }

  /** The number of the row that was added last. */
  get last() {
    return this.#last;
  }

  /** Adds a row. Returns how many were lost for it. */
  add(values) {
    const bytes = values.reduce((sum, value) => sum + (value?.length ?? 0), 0);
    const row = { n: ++this.#last, bytes, values };
    if (this.#memory.length === 0 && this.#store(row)) return this.#shorten();
    this.#memory.push(row);
    this.#bytes.memory += bytes;
    let lost = 0;
    for (; this.#memory.length > 1 && this.#bytes.memory > LIMITS.memoryBytes; lost++) {
      this.#bytes.memory -= this.#memory.shift().bytes;
    }
    return lost;
  }

  /** The next rows after those that were taken, of so many bytes and one row at least. */
  take(bytes) {
    const rows = [];
    try {
      for (const row of this.#stored > 0 ? this.#open().next.iterate(BigInt(this.#taken)) : []) {
        rows.push({ n: row.n, bytes: row.bytes, values: COLUMNS.map((name) => row[name]) });
        if ((bytes -= row.bytes) <= 0) break;
      }
    } catch (error) {
      this.problem = new Error(`${this.#stored} are left in ${this.#name}: ${error.message}`);
      this.#forget();
    }
    for (const row of bytes > 0 ? this.#memory : []) {
      if (row.n > this.#taken) rows.push(row);
      if (row.n > this.#taken && (bytes -= row.bytes) <= 0) break;
    }
    if (rows.length > 0) this.#taken = rows.at(-1).n;
    return rows;
  }

  /** What was taken and not removed is to be taken again. Returns the last number. */
  untake() {
    const taken = this.#taken;
    this.#taken = 0;
    return taken;
  }

  /** Rows up to a number were written. */
  remove(n) {
    while (this.#memory[0]?.n <= n) this.#bytes.memory -= this.#memory.shift().bytes;
    if (this.#stored === 0) return;
    try {
      const { gone, bytes } = this.#open().sum.get(BigInt(n));
      this.#open().remove.run(BigInt(n));
      this.#stored -= Number(gone);
      this.#bytes.file -= Number(bytes);
    } catch (error) {
      this.problem = new Error(`rows of ${this.#name} were written, and stay there: ${error.message}`);
      this.#forget();
    }
    if (this.#stored === 0 && this.#bytes.written > SHRINK_BYTES) this.close();
  }

  /** Closes the file, and removes it if all is written. */
  close() {
    this.#db?.close();
    this.#db = undefined;
    if (this.#name !== undefined && this.#stored === 0) {
      unlink(this.#name);
      this.#forget();
    }
  }

  #forget() {
    try {
      this.#db?.close();
    } catch {
      // it is damaged
    }
    this.#db = this.#name = undefined;
    this.#stored = this.#bytes.file = this.#bytes.written = 0;
  }

  /** Loses the oldest rows that were not taken, if there are too many. */
  #shorten() {
    let lost = 0;
    for (; this.#bytes.file > LIMITS.waitingBytes && this.#stored > 1; lost++) {
      const oldest = this.#open().oldest.get(BigInt(this.#taken));
      if (oldest === undefined) break;
      this.#open().lose.run(BigInt(oldest.n));
      this.#stored--;
      this.#bytes.file -= oldest.bytes;
    }
    return lost;
  }

  #store({ n, bytes, values }) {
    try {
      this.#open().insert.run(BigInt(n), BigInt(bytes), ...values);
    } catch (error) {
      if (this.#stored === 0 && this.#name !== undefined) {
        unlink(this.#name);
        this.#forget(); // the next one tries a new file
      }
      if (/^ERR_|TypeError/.test(error.code ?? error.name)) throw error; // it is the row
      return false;
    }
    this.#stored++;
    this.#bytes.file += bytes;
    this.#bytes.written += bytes;
    return true;
  }

  #open() {
    if (this.#db !== undefined) return this.#sql;
    if (this.#name === undefined) {
      const name = `${this.#path}-spill-${process.pid}-${randomUUID().slice(0, 8)}.db`;
      closeSync(openSync(name, "wx", statSync(this.#path).mode & 0o777));
      this.#name = name;
    }
    this.#db = exclusive(this.#driver, this.#name);
    this.#sql = {
      insert: this.#db.prepare(`INSERT INTO queue VALUES(?, 0, ?${", ?".repeat(COLUMNS.length)})`),
      next: this.#db.prepare("SELECT * FROM queue WHERE n > ? ORDER BY n LIMIT 100"),
      sum: this.#db.prepare("SELECT count(*) AS gone, coalesce(sum(bytes), 0) AS bytes FROM queue WHERE n <= ?"),
      remove: this.#db.prepare("DELETE FROM queue WHERE n <= ?"),
      oldest: this.#db.prepare("SELECT n, bytes FROM queue WHERE n > ? ORDER BY n LIMIT 1"),
      lose: this.#db.prepare("DELETE FROM queue WHERE n = ?"),
    };
    return this.#sql;
  }
}
