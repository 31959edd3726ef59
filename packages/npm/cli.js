#!/usr/bin/env node
// cli.js: npx sqlite-blackbox: looks into a file that a recorder or an import wrote.
//
// The commands, their help and their statements are in commands.json and commands.sql, which the
// package of Python has, too. Rows go to standard output and nothing else does; progress, what to do
// next and errors go to standard error.
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync, writeSync } from "node:fs";
import { createServer } from "node:http";
import { homedir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { gunzipSync } from "node:zlib";
import { quoted } from "./database.js";
import { connectLoaded, findDriver } from "./driver.js";

const here = (name) => new URL(name, import.meta.url);
const ABOUT = JSON.parse(readFileSync(here("commands.json"), "utf8"));
const PROGRAM = "npx sqlite-blackbox";
const [RED, BOLD, PLAIN] = ["\x1b[31m", "\x1b[1m", "\x1b[0m"];
const FRESH = 1000; // milliseconds between two looks

/** What is told, and the exit code. */
class Failure extends Error {
  constructor(text, code = 1) {
    super(text);
    this.code = code;
  }
}

// ------------------------------------------------------------------ the command line

/** The command, its arguments and its options. */
function parse(words) {
  const known = ABOUT.options;
  const options = Object.fromEntries(Object.entries(known).map(([name, option]) => [name, option.default ?? null]));
  const found = [];
  while (words.length > 0) {
    const word = words.shift();
    if (word === "--") {
      found.push(...words);
      break;
    }
    if (!word.startsWith("-") || word === "-") {
      found.push(word);
      continue;
    }
    let [, name, value] = /^--([^=]*)(?:=(.*))?$/s.exec(word) ?? [];
    if (name === undefined) {
      name = Object.keys(known).find((each) => known[each].short === word[1]);
      value = word.slice(2) || undefined;
    }
    if (!(name in known) || (value !== undefined && !known[name].value)) {
      throw new Failure(`there is no option ${word}; ${PROGRAM} --help lists them`, 2);
    }
    if (known[name].value && value === undefined) {
      if (words.length === 0) throw new Failure(`${word} needs a ${known[name].value}`, 2);
      value = words.shift();
    }
    options[name] = value ?? true;
  }
  for (const name of ["rows", "port"]) {
    if (options[name] === null) continue;
    if (!/^\d{1,9}$/.test(options[name])) throw new Failure(`--${name} must be a number, got ${options[name]}`, 2);
    options[name] = Number(options[name]);
  }
  return [found[0], found.slice(1), options];
}

function usage() {
  const lines = [ABOUT.usage.replace("{program}", PROGRAM)];
  for (const [name, command] of Object.entries(ABOUT.commands)) {
    lines.push(`  ${`${name} ${command.arguments ?? ""}`.padEnd(32)}${command.help}\n`);
  }
  lines.push("\n");
  for (const [name, { short, value = "", help }] of Object.entries(ABOUT.options)) {
    lines.push(`  ${`${short ? `-${short}, ` : "    "}--${name} ${value}`.padEnd(32)}${help}\n`);
  }
  return lines.join("") + ABOUT.codes;
}

// ------------------------------------------------------------------ the file

/** A flight recorder's file. It is not changed, unless it is opened for an import. */
class File {
  constructor(options, writes = false) {
    this.path = options.db ?? (process.env.BLACKBOX_DB || "flight.db");
    this.options = options;
    if (!writes && !existsSync(this.path)) throw new Failure(`there is no file ${this.path}; name one with --db`);
    try {
      this.db = connectLoaded(findDriver(), this.path, { timeout: 5000 });
      if (writes) {
        this.get("SELECT blackbox_install('main', 'payload,rollout')");
        this.get("PRAGMA journal_mode = WAL");
        if (this.get("SELECT 1 FROM blackbox_prices LIMIT 1") === undefined) {
          this.get("SELECT rollout_load_prices(?, 'prices.json')", readFileSync(here("prices.json"), "utf8"));
        }
      } else {
        this.db.exec("PRAGMA query_only = 1");
      }
      const has = (name) => this.get("SELECT 1 FROM sqlite_schema WHERE name = ?", name) !== undefined;
      this.domains = new Set([""]);
      if (has("blackbox_domains")) {
        for (const { domain } of this.db.prepare("SELECT domain FROM blackbox_domains").all()) this.domains.add(domain);
      }
      if (has("rollout_fts")) this.domains.add("search");
      this.hasRing = has(options.ring.split(".").at(-1));
    } catch (error) {
      throw new Failure(`${this.path}: ${error.message}`);
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

  /** The parts of a report. */
  *page(kind, key, format) {
    if (!this.domains.has("report")) {
      // beside the file, which is not changed
      this.db.exec("PRAGMA query_only = 0; ATTACH ':memory:' AS report");
      this.get("SELECT blackbox_install('report', 'report')");
      this.get("SELECT blackbox_use('main')");
      this.domains.add("report");
    }
    for (const { line } of this.run(ABOUT.commands.report.lines, { kind, key, format })) yield `${line}\n`;
  }
}

// ------------------------------------------------------------------ what is shown

const isColoured = () => process.stdout.isTTY && !process.env.NO_COLOR;

/** A value for people. What would move the cursor of a terminal is a space. */
function shown(value, kind) {
  if (value === null || value === undefined) return "";
  if (kind === "count") return Number(value).toLocaleString("en-US");
  if (kind === "money") return `$${value.toFixed(value >= 0.1 || value === 0 ? 2 : 4)}`;
  if (kind === "time") {
    const at = new Date(Number(value) - 60000 * new Date(Number(value)).getTimezoneOffset());
    return at.toISOString().slice(5, 19).replace("T", " ");
  }
  if (kind === "ago") {
    const ago = Math.max(0, Math.round((Date.now() - Number(value)) / 1000));
    const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([size]) => ago >= size || size === 1);
    return `${Math.floor(ago / size)} ${unit}`;
  }
  return String(value).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, " ");
}

const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u;
const width = (text) => [...text].reduce((sum, c) => sum + (WIDE.test(c) ? 2 : /\p{Mn}/u.test(c) ? 0 : 1), 0);

function cut(text, most) {
  if (width(text) <= most) return text;
  const left = [...text];
  while (width(left.join("")) > most - 1) left.pop();
  return `${left.join("")}…`;
}

/** Lines of a table. Those that say why are red. */
function table(rows, columns, coloured) {
  const kinds = Object.values(columns).map((kind) => kind.split(" "));
  const names = Object.keys(columns);
  const cells = rows.map((row) => names.map((name, i) => cut(shown(row[name], kinds[i][0]), Number(kinds[i][1] ?? 20))));
  const lines = [names, ...cells];
  const widths = names.map((_, i) => Math.max(...lines.map((line) => width(line[i]))));
  return lines.map((line, at) => {
    const text = line.map((cell, i) => {
      const space = " ".repeat(widths[i] - width(cell));
      return ["text", "time"].includes(kinds[i][0]) ? cell + space : space + cell;
    }).join("  ").trimEnd();
    const row = rows[at - 1];
    if (!coloured || (row && !row.why && row.state !== "problem")) return text;
    return `${row ? RED : BOLD}${text}${PLAIN}`;
  });
}

const isGone = (error) => error.code === "EPIPE"; // head has read enough

/** Writes to standard output, and has written when it returns. */
function say(text) {
  for (let bytes = Buffer.from(text); bytes.length > 0; ) {
    try {
      bytes = bytes.subarray(writeSync(1, bytes));
    } catch (error) {
      if (isGone(error)) process.exit(0);
      if (error.code !== "EAGAIN") throw error;
    }
  }
}

const note = (text) => console.error(text);

/** Rows for programs, or for people. Returns how many there were. */
function write(rows, command, options) {
  const all = [...rows];
  if (options.json) say(all.map((row) => `${JSON.stringify(row)}\n`).join(""));
  else if (all.length > 0) say(`${table(all, ABOUT.commands[command].columns, isColoured()).join("\n")}\n`);
  return all.length;
}

/** A bar, if somebody looks. */
function progress(done, all, text) {
  if (!process.stderr.isTTY) return;
  const full = Math.round((24 * done) / Math.max(1, all));
  process.stderr.write(
    `\r[${"#".repeat(full).padEnd(24, ".")}] ${done} of ${all} ${text}\x1b[K${done === all ? "\n" : ""}`);
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// ------------------------------------------------------------------ the commands

/** What to do about the agents that are red. */
const named = (rows) => rows.filter(({ why }) => why).flatMap(({ why, kind, key }) =>
  [cut(shown(why, "text"), 98), `  ${PROGRAM} report ${kind} ${key}`]);

async function top(file, _, options) {
  const live = process.stdout.isTTY && !options.once && !options.json;
  for (;;) {
    const begin = performance.now();
    const rows = [...file.rows("top")];
    if (!live) {
      const found = write(rows, "top", options);
      if (!options.json && process.stderr.isTTY) named(rows).forEach(note);
      return found > 0 ? 0 : 1;
    }
    const lines = [`${file.path}, ${new Date().toTimeString().slice(0, 8)}, ends with Ctrl-C`, "",
      ...table(rows, ABOUT.commands.top.columns, isColoured()), "", ...named(rows)];
    say(`\x1b[H${lines.map((line) => `${line}\x1b[K\n`).join("")}\x1b[J`);
    await sleep(Math.max(FRESH, 2 * (performance.now() - begin)));
  }
}

async function tail(file, [key = null], options) {
  const known = (row) => JSON.stringify([row.agent, row.event, row.open]);
  let rows = [...file.rows("tail", { key })].reverse();
  const found = write(rows, "tail", options);
  const seen = new Set(rows.map(known));
  while (options.follow) {
    await sleep(FRESH);
    rows = [...file.rows("tail", { key, rows: 1000n })].reverse().filter((row) => !seen.has(known(row)));
    rows.forEach((row) => seen.add(known(row)));
    rows = rows.filter((row) => !row.open);
    if (options.json) write(rows, "tail", options);
    else table(rows, ABOUT.commands.tail.columns, false).slice(1).forEach((line) => say(`${line}\n`));
  }
  return found > 0 ? 0 : 1;
}

function report(file, words, options) {
  let [kind, key] = words.length === 0 ? ["database", "main"] : words;
  if (words.length === 1) {
    const [found] = file.rows("report", { key: kind });
    if (found === undefined) {
      throw new Failure(
        `NotFoundError: there is no agent, kill switch or conversation '${kind}'; ${PROGRAM} top lists the agents`);
    }
    ({ kind, key } = found);
  }
  const format = options.json ? "json" : options.format;
  const isPage = process.stdout.isTTY && format === "html";
  const name = options.output ?? (isPage ? `${key.replace(/[^\w.-]/g, "-")}.html` : null);
  if (name === null) {
    for (const part of file.page(kind, key, format)) say(part);
  } else {
    writeFileSync(name, [...file.page(kind, key, format)].join(""));
    note(`the page is ${name}`);
  }
  return 0;
}

function importFiles(file, words, options) {
  const about = ABOUT.commands.import;
  const paths = (words.length > 0 ? words : about.paths).map((path) => path.replace(/^~(?=\/)/, homedir()));
  const files = paths.flatMap((path) => {
    if (!existsSync(path)) {
      if (words.length > 0) throw new Failure(`there is no file ${path}`);
      return [];
    }
    if (!statSync(path).isDirectory()) return [path];
    const inside = readdirSync(path, { recursive: true }).filter((name) => /\.jsonl(\.gz)?$/.test(name));
    return inside.sort().map((name) => join(path, name));
  });
  const sums = new Map();
  let failed = false;
  files.forEach((name, done) => {
    progress(done, files.length, basename(name).slice(0, 40));
    let told;
    try {
      told = read(file, name, about.programs);
    } catch (error) {
      note(`${name}: ${error.message}`);
      failed = true;
      return;
    }
    const { format, rolloutIds, items, bad, errors } = told;
    const sum = sums.get(format) ?? { format, files: 0, sessions: 0, items: 0, new: 0, bad: 0 };
    sums.set(format, {
      format, files: sum.files + 1, sessions: sum.sessions + rolloutIds.length, items: sum.items + items,
      new: sum.new + told.new, bad: sum.bad + bad });
    if (bad > 0) note(`${name}: ${bad} bad lines; line ${errors[0].line}: ${errors[0].reason}`);
  });
  progress(files.length, files.length, "files");
  const found = write(sums.values(), "import", options);
  return found > 0 && !failed ? 0 : 1;
}

/** Imports a file: what rollout_import() returns. */
function read(file, name, programs) {
  const program = programs[basename(name)];
  if (program !== undefined) {
    file.db.prepare("ATTACH ? AS imported").run(resolve(name));
    try {
      return JSON.parse(file.get("SELECT rollout_import_from(?, 'imported') AS told", program).told);
    } finally {
      file.db.exec("DETACH imported");
    }
  }
  const data = readFileSync(name);
  return JSON.parse(file.get("SELECT rollout_import(?) AS told", name.endsWith(".gz") ? gunzipSync(data) : data).told);
}

const rowsOf = (name) => (file, [key = null], options) => (write(file.rows(name, { key }), name, options) > 0 ? 0 : 1);

function exportLines(file, [key = null]) {
  let found = false;
  for (const { line } of file.rows("export", { key })) {
    found = true;
    say(Buffer.concat([Buffer.from(line), Buffer.from("\n")]));
  }
  return found ? 0 : 1;
}

function doctor(file, _, options) {
  const rows = [...file.rows("doctor")];
  const start = `${basename(file.path)}-spill-`;
  const left = readdirSync(dirname(resolve(file.path))).filter((name) => name.startsWith(start) && name.endsWith(".db"));
  if (left.length > 0) {
    const value = `${left.length} of recorders that run or were killed; the next one writes them`;
    rows.push({ state: "note", what: "queue", value });
  }
  write(rows, "doctor", options);
  return rows.some(({ state }) => state === "problem") ? 1 : 0;
}

function serve(file, _, options) {
  const answers = {
    "/": () => ["text/html", readFileSync(here("serve.html"), "utf8")],
    "/top": () => ["application/json", JSON.stringify([...file.rows("top")])],
    "/report": ({ kind = null, key = null }) => ["text/html", [...file.page(kind, key, "html")].join("")],
  };
  const server = createServer((request, response) => {
    const at = new URL(request.url, "http://127.0.0.1");
    const answer = (status, kind, body) => response.writeHead(status, {
      "Content-Type": `${kind}; charset=utf-8`, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
    }).end(body);
    try {
      // a name that leads here is another site
      if (!/^(127\.0\.0\.1|localhost):/.test(request.headers.host ?? "")) answer(403, "text/plain", "403: only this computer");
      else if (request.method !== "GET" || !Object.hasOwn(answers, at.pathname)) answer(404, "text/plain", "404: there is no such page");
      else answer(200, ...answers[at.pathname](Object.fromEntries(at.searchParams)));
    } catch (error) {
      answer(error.message.includes("NotFoundError") ? 404 : 500, "text/plain", error.message);
    }
  });
  return new Promise((_, failed) => {
    server.on("error", (error) =>
      failed(new Failure(`port ${options.port} is not to be had: ${error.message}; --port names another`)));
    server.listen(options.port, "127.0.0.1", () => note(`http://127.0.0.1:${server.address().port}/ until Ctrl-C`));
  });
}

const COMMANDS = {
  top, tail, report, import: importFiles, usage: rowsOf("usage"), search: rowsOf("search"), export: exportLines,
  doctor, serve,
};

async function main(words) {
  const [command, rest, options] = parse(words);
  if (options.version) {
    const db = connectLoaded(findDriver(), ":memory:");
    say(`${db.prepare("SELECT blackbox_version() AS version").get().version}\n`);
    return 0;
  }
  if (options.help) {
    say(usage());
    return 0;
  }
  if (command === undefined) {
    note(usage().trimEnd());
    return 2;
  }
  if (!Object.hasOwn(COMMANDS, command)) throw new Failure(`there is no command ${command}; ${PROGRAM} --help lists them`, 2);
  const { least = 0, most = 0, arguments: names = "" } = ABOUT.commands[command];
  if (rest.length < least || rest.length > most) throw new Failure(`usage: ${PROGRAM} ${command} ${names}`.trimEnd(), 2);
  return COMMANDS[command](new File(options, command === "import"), rest, options);
}

process.on("SIGINT", () => process.exit(130));
main(process.argv.slice(2)).catch((error) => {
  note(`blackbox: ${error.message}`);
  return error.code === 2 ? 2 : 1;
}).then((code) => process.exit(code));
