#!/usr/bin/env node
// cli.js: npx sqlite-blackbox: looks into a file that a recorder or an import wrote.
//
// The commands, their help and their statements are in commands.json and commands.sql, which the
// package of Python has, too. Rows go to standard output and nothing else does; progress, what to do
// next and errors go to standard error.
import { existsSync, lstatSync, readdirSync, readFileSync, realpathSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { homedir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { connectLoaded, findDriver } from "./driver.js";
import { ABOUT, Failure, File, here } from "./file.js";
import { cut, isColoured, note, progress, say, sayData, shown, table, word, write } from "./terminal.js";

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
  if (options.port > 65535) throw new Failure(`--port must be at most 65535, got ${options.port}`, 2);
  const formats = ABOUT.commands[found[0]]?.formats;
  if (formats && options.format !== null && !formats.includes(options.format)) {
    throw new Failure(`--format of ${found[0]} must be ${formats.slice(0, -1).join(", ")} or ${formats.at(-1)}, ` +
      `got ${options.format}`, 2);
  }
  if (found[0] === "export" && options.json && options.format === "markdown") {
    throw new Failure("--json and --format markdown exclude each other", 2);
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
  [cut(shown(why, "text"), 98), `  ${PROGRAM} report ${kind} ${word(key)}`]);

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
    const [most, height] = [process.stdout.columns || 80, process.stdout.rows || 24];
    const head = `${shown(file.path, "text")}, ${new Date().toTimeString().slice(0, 8)}, ends with Ctrl-C`;
    const lines = [cut(head, most), "", ...table(rows, columns("top"), isColoured(), most), "",
      ...named(rows).map((line) => cut(line, most))].slice(0, Math.max(1, height - 1));
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
  const format = options.json ? "json" : options.format ?? "html";
  const isPage = process.stdout.isTTY && format === "html";
  const name = options.output ?? (isPage ? `${key.replace(/[^\w.-]/g, "-")}.html` : null);
  if (name === null) {
    for (const part of file.page(kind, key, format)) sayData(part);
  } else {
    writeFileSync(name, [...file.page(kind, key, format)].join(""));
    note(`the page is ${name}`);
  }
  return 0;
}

const expanded = (path) => path.replace(/^~(?=\/|$)/, homedir());

/** The folders and files of programs that this computer has. */
function defaultPaths({ paths, homes }) {
  return paths.map((path) => {
    const home = Object.keys(homes).find((each) => path.startsWith(`${each}/`) && process.env[homes[each]]);
    return home === undefined ? path : process.env[homes[home]] + path.slice(home.length);
  }).filter((path) => existsSync(expanded(path)));
}

/** The parts of a folder to be imported one by one, with the bytes of each, and all its bytes.
 * What has at most so many bytes is no part of its own: it comes with the folder, which is the last. */
function divide(folder, most, deep = 0) {
  const found = [];
  let [below, size, inside] = [0, 0, []];
  try {
    if (deep < 100) inside = readdirSync(folder, { withFileTypes: true });
  } catch {
    // the import tells it
  }
  for (const entry of inside) {
    const path = join(folder, entry.name);
    let [more, its] = [[], 0];
    if (entry.isDirectory()) [more, its] = divide(path, most, deep + 1);
    else if (entry.isFile()) its = lstatSync(path, { throwIfNoEntry: false })?.size ?? 0;
    if (entry.isFile() && its > most) more = [[path, its]];
    size += its;
    if (more.length > 0) {
      found.push(...more);
      below += its;
    }
  }
  return [size > most ? [...found, [folder, size - below]] : [], size];
}

function importFiles(file, words, options) {
  const about = ABOUT.commands.import;
  const [rows, work, roots, toldBefore] = [[], [], [], new Set()];
  const isStore = (path, glob) => glob === null && Object.hasOwn(about.programs, basename(path));
  const tell = (path, reason) => {
    const line = `${path}: ${reason}`;
    if (!toldBefore.has(line)) note(line);
    toldBefore.add(line);
  };
  for (const word of words.length > 0 ? words : defaultPaths(about)) {
    const row = Object.fromEntries(Object.keys(columns("import")).map((name) => [name, 0]));
    rows.push(Object.assign(row, { path: word }));
    if (!existsSync(expanded(word))) {
      tell(word, "there is no such folder or file");
      row.failed = 1;
      continue;
    }
    const root = realpathSync(expanded(word));
    const stat = statSync(root);
    const glob = stat.isDirectory() ? null : "*";
    const [parts, size] = stat.isDirectory() ? divide(root, about.chunk) : [[], stat.size];
    for (const part of parts.length > 0 ? parts : [[root, size]]) work.push([row, ...part, glob]);
    roots.push([row, root, glob]);
  }
  if (rows.length === 0) note("there are no sessions of agents where they are by default; name a folder or a file");
  const all = work.reduce((sum, [, , size]) => sum + size, 0);
  let done = 0;
  for (const [row, path, size, glob] of work) {
    progress(done, all, basename(path));
    const told = read(file, path, glob);
    done += size;
    for (const error of told.errors) {
      const isKnown = isStore(error.path, glob) || error.reason.startsWith(about.unknown);
      if (glob !== null || !isKnown) tell(error.path || path, error.reason);
    }
    for (const name of Object.keys(row).slice(1)) { // what is found again with the folder, and what is read once
      row[name] = told[name] + (["items", "new", "bad"].includes(name) ? row[name] : 0);
    }
  }
  for (const [row, root, glob] of roots) {
    for (const source of file.db.prepare(about.failed).all({ path: root, unknown: about.unknown })) {
      if (!isStore(source.path, glob)) {
        tell(source.path, source.error);
        continue;
      }
      const told = read(file, source.path, "*"); // what a folder is not read for
      for (const error of told.errors) tell(source.path, error.reason);
      row.failed += told.failed - 1;
      for (const name of ["items", "new", "bad"]) row[name] += told[name];
    }
  }
  progress(all, all, "");
  write(rows, columns("import"), options);
  const isRead = roots.every(([row, , glob]) => glob === null || row.unknown === 0); // each file that was named
  return isRead && rows.some(({ files }) => files > 0) && rows.every(({ failed }) => failed === 0) ? 0 : 1;
}

/** Imports a folder or a file: what rollout_import_dir() returns. */
function read(file, path, glob) {
  const program = glob === null ? undefined : ABOUT.commands.import.programs[basename(path)];
  try {
    if (program === undefined) return JSON.parse(file.get("SELECT rollout_import_dir(?, ?) AS told", path, glob).told);
    file.db.prepare("ATTACH ? AS imported").run(path);
    try {
      const told = JSON.parse(file.get("SELECT rollout_import_from(?, 'imported') AS told", program).told);
      const errors = told.errors.map(({ line, reason }) => ({ path, reason: `line ${line}: ${reason}` }));
      return { ...told, files: 1, unknown: 0, failed: 0, errors };
    } finally {
      file.db.exec("DETACH imported");
    }
  } catch (error) {
    if (program === undefined && !error.message.includes("ValidationError")) throw error; // of our own file
    return { files: 1, items: 0, new: 0, bad: 0, unknown: 0, failed: 1, errors: [{ path, reason: error.message }] };
  }
}

const rowsOf = (name) => (file, [key = null], options) => (write(file.rows(name, { key }), columns(name), options) > 0 ? 0 : 1);

function exportLines(file, [key = null], { format }) {
  let found = false;
  for (const { line } of file.rows("export", { key, format })) {
    found = true;
    sayData(Buffer.concat([Buffer.from(line), Buffer.from("\n")]));
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
    const [path, asked = ""] = request.url.split(/\?(.*)/s);
    const answer = (status, kind, body) => response.writeHead(status, {
      "Content-Type": `${kind}; charset=utf-8`, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
    }).end(body);
    try {
      // a name that leads here is another site
      const isHere = /^(127\.0\.0\.1|localhost)(:\d+)?$/.test(request.headers.host ?? "");
      const isPage = request.method === "GET" && Object.hasOwn(answers, path);
      if (!isHere) answer(403, "text/plain", "403: only this computer");
      else if (!isPage) answer(404, "text/plain", "404: there is no such page");
      else answer(200, ...answers[path](Object.fromEntries(new URLSearchParams(asked))));
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

main(process.argv.slice(2)).catch((error) => {
  note(`blackbox: ${error.message}`);
  return error.code === 2 ? 2 : 1;
}).then((code) => process.exit(code));
