// driver.js: opens a file with better-sqlite3 where it is installed, else with node:sqlite.
//
// Limit: two libraries of SQLite in one process cannot share the module file. A program that opens
// files with node:sqlite itself, and has better-sqlite3 installed, says driver: "node:sqlite".
import { existsSync, readFileSync, statSync } from "node:fs";
import { createRequire, isBuiltin } from "node:module";
import { join } from "node:path";
import { load } from "./index.cjs";

const NAMES = ["better-sqlite3", "node:sqlite"];

/** What require() takes for a driver: its path, or the name of what is built in. */
export function findDriver(name) {
  if (name !== undefined && !NAMES.includes(name)) {
    throw new RangeError(`ValidationError: driver must be better-sqlite3 or node:sqlite, got ${name}`);
  }
  for (const from of name === "node:sqlite" ? [] : [import.meta.url, join(process.cwd(), "x")]) {
    try {
      return createRequire(from).resolve("better-sqlite3");
    } catch {
      // not there
    }
  }
  if (name === "better-sqlite3" || !isBuiltin("node:sqlite")) {
    throw new Error("LoadError: this needs better-sqlite3, or a Node with node:sqlite; npm install better-sqlite3@12");
  }
  return "node:sqlite";
}

/** A connection, without the module. */
export function connect(driver, path, { timeout = 0, readOnly = false, mustExist = false } = {}) {
  const library = createRequire(import.meta.url)(driver);
  if (driver !== "node:sqlite") return new library(path, { timeout, readonly: readOnly, fileMustExist: mustExist });
  if (mustExist && !existsSync(path)) throw new Error("unable to open database file");
  const db = new library.DatabaseSync(path, { allowExtension: true, readOnly });
  db.exec(`PRAGMA busy_timeout = ${timeout}`);
  return db;
}

/** A connection with the module. */
export function connectLoaded(driver, path, options) {
  const db = connect(driver, path, options);
  try {
    db.prepare("SELECT 1 FROM sqlite_schema").get(); // load() would tell an error of the file as its own
    load(db);
    if (driver === "node:sqlite") db.enableLoadExtension(false);
    return db;
  } catch (error) {
    db.close();
    throw error;
  }
}

/** Loads the list of prices of the package into a file that has none. */
export function loadPrices(db) {
  if (db.prepare("SELECT 1 FROM blackbox_prices LIMIT 1").get() !== undefined) return;
  const prices = readFileSync(new URL("prices.json", import.meta.url), "utf8");
  db.prepare("SELECT rollout_load_prices(?, 'prices.json')").get(prices);
}

/** A connection to the file that a path names now, with its statements. It does not wait for locks. */
export class Followed {
  #driver;
  #path;
  #identity;
  #statements;
  db;

  constructor(driver, path) {
    this.#driver = driver;
    this.#path = path;
  }

  /** Opens the file, if it is not that which is open. */
  follow() {
    let identity;
    try {
      const { dev, ino } = statSync(this.#path);
      identity = `${dev} ${ino}`;
    } catch (error) {
      this.close();
      throw new Error(`unable to open database file: ${error.message}`);
    }
    if (this.#identity === identity) return;
    this.close();
    this.db = connectLoaded(this.#driver, this.#path, { mustExist: true });
    this.#identity = identity;
    this.#statements = new Map();
  }

  statement(sql) {
    return this.#statements.get(sql) ?? this.#statements.set(sql, this.db.prepare(sql)).get(sql);
  }

  close() {
    this.db?.close();
    this.db = this.#identity = undefined;
  }
}
