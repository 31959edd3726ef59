#!/usr/bin/env node
// cli.js: npx sqlite-blackbox: looks into a file that a recorder or an import wrote.
//
// The commands, their help and their statements are in commands.json and commands.sql, which the
// package of Python has, too. Rows go to standard output and nothing else does; progress, what to do
// next and errors go to standard error.
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { homedir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { gunzipSync } from "node:zlib";
import { connectLoaded, findDriver } from "./driver.js";
import { ABOUT, Failure, File, here } from "./file.js";
import { cut, isColoured, note, progress, say, shown, table, write } from "./terminal.js";

const PROGRAM = "npx sqlite-blackbox";
const FRESH = 1000; // milliseconds between two looks

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

// ------------------------------------------------------------------ the commands

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const columns = (command) => ABOUT.commands[command].columns;

/** What to do about the agents that are red. */
const named = (rows) => rows.filter(({ why }) => why).flatMap(({ why, kind, key }) =>
  [cut(shown(why, "text"), 98), `  ${PROGRAM} report ${kind} ${key}`]);

async function top(file, _, options) {
  const live = process.stdout.isTTY && !options.once && !options.json;
  for (;;) {
    const begin = performance.now();
    const rows = [...file.rows("top")];
    if (!live) {
      const found = write(rows, columns("top"), options);
      if (!options.json && process.stderr.isTTY) named(rows).forEach(note);
      return found > 0 ? 0 : 1;
    }
    const lines = [`${file.path}, ${new Date().toTimeString().slice(0, 8)}, ends with Ctrl-C`, "",
      ...table(rows, columns("top"), isColoured()), "", ...named(rows)];
    say(`\x1b[H${lines.map((line) => `${line}\x1b[K\n`).join("")}\x1b[J`);
    await sleep(Math.max(FRESH, 2 * (performance.now() - begin)));
  }
}

async function tail(file, [key = null], options) {
  const known = (row) => JSON.stringify([row.agent, row.event, row.open]);
  let rows = [...file.rows("tail", { key })].reverse();
  const found = write(rows, columns("tail"), options);
  const seen = new Set(rows.map(known));
  while (options.follow) {
    await sleep(FRESH);
    rows = [...file.rows("tail", { key, rows: 1000n })].reverse().filter((row) => !seen.has(known(row)));
    rows.forEach((row) => seen.add(known(row)));
    rows = rows.filter((row) => !row.open);
    if (options.json) write(rows, columns("tail"), options);
    else table(rows, columns("tail"), false).slice(1).forEach((line) => say(`${line}\n`));
  }
  return found > 0 ? 0 : 1;
}

function report(file, words, options) {
  if (options.site) {
    const done = JSON.parse([...file.page(null, null, null, options.site)].join(""));
    note(`${done.written.length} files written, ${done.unchanged} unchanged: ${options.site}/index.html`);
    return 0;
  }
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
  const found = write(sums.values(), columns("import"), options);
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
  return JSON.parse(file.get("SELECT rollout_import(?, ?, ?) AS told", name.endsWith(".gz") ? gunzipSync(data) : data,
    resolve(name), Math.trunc(statSync(name).mtimeMs)).told);
}

const rowsOf = (name) => (file, [key = null], options) => (write(file.rows(name, { key }), columns(name), options) > 0 ? 0 : 1);

function exportLines(file, [key = null], { format }) {
  let found = false;
  for (const { line } of file.rows("export", { key, format })) {
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
  write(rows, columns("doctor"), options);
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
