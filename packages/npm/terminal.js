// terminal.js: shows rows to people and to programs: what the command line writes.
import { writeSync } from "node:fs";

const [RED, BOLD, PLAIN] = ["\x1b[31m", "\x1b[1m", "\x1b[0m"];

export const isColoured = () => process.stdout.isTTY && !process.env.NO_COLOR;

// What moves the cursor of a terminal, or turns text around.
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** A text in which what would move the cursor of a terminal is an escape, as JSON has it. */
export const visible = (text) =>
  text.replace(CONTROL, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** A text as a word of a command line of a shell. */
export function word(text) {
  if (visible(text) !== text || /[\n\t]/.test(text)) {
    const quoted = text.replaceAll("\\", "\\\\").replaceAll("'", "\\'").replaceAll("\n", "\\n").replaceAll("\t", "\\t");
    return `$'${visible(quoted)}'`;
  }
  const plain = /^[\p{L}\p{N}_./:@%+=,-]+$/u.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
  return plain.startsWith("-") ? `-- ${plain}` : plain;
}

/** A value for people. What would move the cursor of a terminal is a space. */
export function shown(value, kind) {
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

/** The beginning of a text that has at most so many columns. */
export function cut(text, most) {
  const left = [];
  let room = most;
  for (const c of text) {
    room -= width(c);
    left.push(c);
    if (room >= 0) continue;
    while (left.length > 0 && width(left.join("")) > most - 1) left.pop();
    return `${left.join("")}…`;
  }
  return text;
}

/** Lines of a table, of at most so many columns. Those that say why are red. */
export function table(rows, columns, coloured, most = 10000) {
  const kinds = Object.values(columns).map((kind) => kind.split(" "));
  const names = Object.keys(columns);
  const cells = rows.map((row) => names.map((name, i) => cut(shown(row[name], kinds[i][0]), Number(kinds[i][1] ?? 20))));
  const lines = [names, ...cells];
  const widths = names.map((_, i) => Math.max(...lines.map((line) => width(line[i]))));
  return lines.map((line, at) => {
    const whole = line.map((cell, i) => {
      const space = " ".repeat(widths[i] - width(cell));
      return ["text", "time"].includes(kinds[i][0]) ? cell + space : space + cell;
    }).join("  ").trimEnd();
    const text = cut(whole, most);
    const row = rows[at - 1];
    if (!coloured || (row && !row.why && row.state !== "problem")) return text;
    return `${row ? RED : BOLD}${text}${PLAIN}`;
  });
}

const isGone = (error) => error.code === "EPIPE"; // head has read enough

/** Writes to standard output, and has written when it returns. */
export function say(text) {
  for (let bytes = Buffer.from(text); bytes.length > 0; ) {
    try {
      bytes = bytes.subarray(writeSync(1, bytes));
    } catch (error) {
      if (isGone(error)) process.exit(0);
      if (error.code !== "EAGAIN") throw error;
    }
  }
}

export const note = (text) => console.error(visible(text));

/** Writes to standard output, where a program gets every byte, and a terminal no control. */
export const sayData = (text) => say(process.stdout.isTTY ? visible(text.toString()) : text);

/** Rows for programs, or for people. Returns how many there were. */
export function write(rows, columns, options) {
  const all = [...rows];
  if (options.json) say(all.map((row) => `${visible(JSON.stringify(row))}\n`).join(""));
  else if (all.length > 0) say(`${table(all, columns, isColoured()).join("\n")}\n`);
  else if (process.stderr.isTTY) note("nothing was found");
  return all.length;
}

/** A bar over bytes, if somebody looks. The last one ends its line. */
export function progress(done, all, text) {
  if (!process.stderr.isTTY) return;
  const full = Math.round((24 * done) / Math.max(1, all));
  const [some, most] = [done, all].map((bytes) => Math.ceil(bytes / 1000000));
  const line = `[${"#".repeat(full).padEnd(24, ".")}] ${some} of ${most} MB ${shown(text, "text")}`;
  process.stderr.write(`\r${cut(line, (process.stderr.columns || 80) - 1)}\x1b[K${done === all && text === "" ? "\n" : ""}`);
}
