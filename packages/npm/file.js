// file.js: the file that the command line looks into, and the statements of its commands.
//
// commands.json and commands.sql are those that the package of Python has, too.
import { existsSync, readFileSync } from "node:fs";
import { quoted } from "./database.js";
import { connectLoaded, findDriver, loadPrices } from "./driver.js";

export const here = (name) => new URL(name, import.meta.url);
export const ABOUT = JSON.parse(readFileSync(here("commands.json"), "utf8"));

/** What is told, and the exit code. */
export class Failure extends Error {
  constructor(text, code = 1) {
    super(text);
    this.code = code;
  }
}

/** A flight recorder's file. It is not changed, unless it is opened for an import. */
export class File {
  constructor(options, writes = false) {
    this.path = options.db ?? (process.env.BLACKBOX_DB || "flight.db");
    this.options = options;
    if (this.path === "" || (!writes && !existsSync(this.path))) throw new Failure(`there is no file ${this.path}; name one with --db`);
    try {
      this.db = connectLoaded(findDriver(), this.path, { timeout: 5000 });
      if (writes) {
        this.get("SELECT blackbox_install('main', 'payload,rollout')");
        this.get("PRAGMA journal_mode = WAL");
        loadPrices(this.db);
      } else {
        this.db.exec("PRAGMA query_only = 1");
      }
      const has = (name) => this.get("SELECT 1 FROM sqlite_schema WHERE name = ?", name) !== undefined;
      this.domains = new Set([""]);
      if (has("blackbox_domains")) {
        for (const { domain } of this.db.prepare("SELECT domain FROM blackbox_domains").all()) this.domains.add(domain);
      }
      if (has("rollout_fts")) this.domains.add("search");
      if (!this.domains.has("core")) throw new Failure(ABOUT.none.replace("{file}", () => this.path));
      this.hasRing = has(options.ring.split(".").at(-1));
      if (!this.hasRing && options.ring !== ABOUT.options.ring.default) {
        throw new Failure(`${this.path} has no ring ${options.ring}`);
      }
    } catch (error) {
      if (error instanceof Failure) throw error;
      const hint = error.message.includes("readonly") && !writes ? ABOUT.readonly : "";
      throw new Failure(`${this.path}: ${error.message}${hint}`);
    }
  }

  get(sql, ...values) {
    return this.db.prepare(sql).get(...values);
  }

  /** The statements of a command that the file can answer. */
  *sections(wanted) {
    const parts = readFileSync(here("commands.sql"), "utf8").split(/^--: (\w+) ?(\w*)\n/m).slice(1);
    const used = parts[parts.indexOf("used") + 2];
    const { ring } = this.options;
    for (let i = 0; i < parts.length; i += 3) {
      const [name, needs] = parts.slice(i, i + 2);
      const sql = parts[i + 2].replace("{used}", () => used);
      if (name !== wanted || !this.domains.has(needs) || (!this.hasRing && sql.includes("{ring"))) continue;
      yield sql.replaceAll("{ring_agents}", () => quoted(`${ring}_agents`)).replaceAll("{ring}", () => quoted(ring));
    }
  }

  /** The rows of a command. */
  *rows(command, more) {
    for (const sql of this.sections(command)) yield* this.run(sql, more);
  }

  run(sql, more) {
    const { rows } = this.options;
    const known = { key: null, rows: rows === null ? null : BigInt(rows), now: BigInt(Date.now()), ...more };
    known.indexed = this.domains.has("search") ? 1n : 0n;
    const names = new Set(Array.from(sql.matchAll(/:([a-z]+)/g), ([, name]) => name)); // and no others
    const values = Object.fromEntries(Object.entries(known).filter(([name]) => names.has(name)));
    const statement = this.db.prepare(sql);
    return names.size === 0 ? statement.iterate() : statement.iterate(values);
  }

  /** The parts of a report, or what was done to make those of the file in a folder. JSON is one line. */
  *page(kind, key, format, folder = null) {
    if (!this.domains.has("report")) {
      // beside the file, which is not changed
      this.db.exec("PRAGMA query_only = 0; ATTACH ':memory:' AS report");
      this.get("SELECT blackbox_install('report', 'report')");
      this.get("SELECT blackbox_use('main')");
      this.domains.add("report");
    }
    if (folder) this.db.exec("PRAGMA query_only = 0");
    const sql = ABOUT.commands.report[folder ? "site" : "lines"];
    const isWhole = format === "json";
    for (const { line } of this.run(sql, { kind, key, format, folder })) {
      yield isWhole ? line.replaceAll("\n", "") : `${line}\n`;
    }
    if (isWhole) yield "\n";
  }
}
