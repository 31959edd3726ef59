/* report.js: what a report can do when scripts run.
**
** The page is readable without this file. With it, the table of items gives
** way to a timeline, a list, and the items themselves as a conversation in
** which only what is new is open.
**
** - The data stand in #report (JSON), the bodies in blocks #b0, #b1 ...: base64
**   of raw deflate, inflated when an item comes into view.
** - Every byte of the data is hostile. It becomes text nodes and nothing else:
**   no markup, no address that is followed, no style. Control characters, marks
**   that turn the direction of text, and characters that are not visible are
**   shown as marks.
** - Nothing is loaded from anywhere. An image is shown if its bytes are in the
**   page; an address of an image is only text.
** - A list of any length costs what is visible of it.
*/
"use strict";
(() => {
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("report").textContent);
const items = data.items || [];
const byNumber = new Map(items.map((item, i) => [String(item.n), i]));

/* ---- elements and numbers ---- */

function el(tag, name, ...children) {
  const e = document.createElement(tag);
  if (name) e.className = name;
  e.append(...children);
  return e;
}

function svg(tag, attributes, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const name in attributes) e.setAttribute(name, attributes[name]);
  e.append(...children);
  return e;
}

function button(name, label, act) {
  const b = el("button", name, label);
  b.type = "button";
  b.addEventListener("click", act);
  return b;
}

/* Runs act() at most once a frame. */
function onFrame(act) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      act();
    });
  };
}

const count = (n) => Number(n).toLocaleString("en-US");
const many = (n, one, more = one + "s") => `${count(n)} ${n === 1 ? one : more}`;

function bytes(n) {
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (n < 1000 || unit === "GB") {
      return `${n < 9.95 && unit !== "B" ? n.toFixed(1) : Math.round(n)} ${unit}`;
    }
    n /= 1000;
  }
}

function duration(ms) {
  const s = Math.round(ms / 1000);
  const two = (a, unit, b, smaller) => (b ? `${a} ${unit} ${b} ${smaller}` : `${a} ${unit}`);
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (s < 60) return `${s} s`;
  if (s < 3600) return two(Math.floor(s / 60), "min", s < 600 ? s % 60 : 0, "s");
  if (s < 86400) return two(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
  return two(Math.floor(s / 86400), "d", Math.floor((s % 86400) / 3600), "h");
}

const isTime = (ms) => Number.isFinite(ms) && Math.abs(ms) < 8.64e15;
const iso = (ms) => (isTime(ms) ? new Date(ms).toISOString() : "");
const two = (n) => String(n).padStart(2, "0");
/* Times are those of the reader's clock; UTC stands in the tool tip. */
const clock = (ms) => {
  const d = new Date(ms);
  return isTime(ms) ? `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}` : "";
};
const day = (ms) => {
  const d = new Date(ms);
  return isTime(ms) ? `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}` : "";
};

/* ---- text that is safe to look at ---- */

const ODD = new RegExp("(?:\\u001b\\[[0-9;?]*[A-Za-z]|[\\u0000-\\u0008\\u000b-\\u001f\\u007f-" +
  "\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180e\\u2800\\u3164\\uffa0\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffc" +
  "\\ufffe\\uffff\\u{e0000}-\\u{e0fff}]|\\p{Cs})+", "gu");
const NAMES = ("NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM " +
  "SUB ESC FS GS RS US").split(" ");
const hex = (c) => "U+" + c.toString(16).toUpperCase().padStart(4, "0");

/* What stands for characters that cannot be seen, or that change how others
** are shown. Text that is hidden in tag characters is written out. */
function mark(run) {
  let s = "";
  for (const ch of run.length > 400 ? run.slice(0, 40) : run) {
    const c = ch.codePointAt(0);
    if (c < 32) s += `\u2039${NAMES[c]}\u203a`;
    else if (c < 127) s += ch;
    else if (c >= 0xe0020 && c < 0xe007f) s += String.fromCodePoint(c - 0xe0000);
    else s += `\u2039${hex(c)}\u203a`;
  }
  const odd = el("span", "odd", run.length > 400 ? `${s} … ${count(run.length)} characters` : s);
  odd.title = "characters that are not visible as such";
  return odd;
}

/* Appends text as text. */
function say(e, text) {
  let at = 0;
  text = (typeof text === "string" ? text : pretty(text) ?? "").replaceAll("\r\n", "\n");
  for (const found of text.matchAll(ODD)) {
    if (found.index > at) e.append(text.slice(at, found.index));
    e.append(mark(found[0]));
    at = found.index + found[0].length;
  }
  if (at < text.length) e.append(at ? text.slice(at) : text);
  return e;
}

/* Where to cut text so that it has at most so many characters and lines. */
function cutAt(text, chars, lines) {
  let end = 0;
  for (let i = 0; i < lines; i++) {
    const next = text.indexOf("\n", end);
    if (next < 0 || next >= chars) {
      end = Math.min(chars, text.length);
      break;
    }
    end = next + 1;
  }
  if (end >= text.length * 0.8 && text.length < 50000) return text.length;
  const last = text.charCodeAt(end - 1);
  return last >= 0xd800 && last < 0xdc00 ? end - 1 : end;
}

/* Markdown that a model wrote, as elements with text in them. A link stays text. */
const INLINE = /(`+)(.+?)\1(?!`)|\*\*(?=\S)(.+?\S)\*\*|(?<![\w*])\*(?=\S)([^*\n]+?\S)\*(?!\w)|(?<!\w)__(?=\S)(.+?\S)__(?!\w)/gs;

function inline(e, text) {
  let at = 0;
  for (const m of text.matchAll(INLINE)) {
    say(e, text.slice(at, m.index));
    if (m[2] !== undefined) e.append(say(el("code"), m[2]));
    else e.append(inline(el(m[4] !== undefined ? "em" : "strong"), m[3] ?? m[4] ?? m[5]));
    at = m.index + m[0].length;
  }
  return say(e, text.slice(at));
}

function tableOf(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((c) => c.trim());
  const row = (line, tag) => el("tr", "", ...cells(line).map((c) => inline(el(tag), c)));
  return el("table", "said", el("thead", "", row(lines[0], "th")), el("tbody", "", ...lines.slice(2).map((l) => row(l, "td"))));
}

function paragraphs(host, text) {
  const lines = text.split("\n");
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i];
    const head = /^(#{1,6})\s+(.*)/.exec(line);
    const item = /^(\s*)([-*+]|\d+[.)])\s+(.*)/.exec(line);
    if (!line.trim()) continue;
    if (head) host.append(inline(el("p", `heading level${Math.min(3, head[1].length)}`), head[2]));
    else if (item) {
      const p = inline(el("p", "point"), `${/\d/.test(item[2]) ? item[2] : "•"} ${item[3]}`);
      p.style.marginLeft = `${Math.min(8, item[1].length) * 0.6}em`;
      host.append(p);
    } else if (/^\s*\|.*\|\s*$/.test(line) && /^\s*\|[\s|:-]+\|\s*$/.test(lines[i + 1] ?? "")) {
      let end = i + 2;
      while (/^\s*\|/.test(lines[end] ?? "")) end++;
      host.append(tableOf(lines.slice(i, end)));
      i = end - 1;
    } else if (/^>\s?/.test(line)) host.append(inline(el("p", "quote"), line.replace(/^>\s?/, "")));
    else {
      let end = i + 1;
      while (lines[end]?.trim() && !/^(#{1,6}\s|\s*([-*+]|\d+[.)])\s|>|\s*\|)/.test(lines[end])) end++;
      host.append(inline(el("p"), lines.slice(i, end).join("\n")));
      i = end - 1;
    }
  }
}

function prose(host, text) {
  for (const [i, part] of text.split(/^[ \t]*```[^\n]*\n?/m).entries()) {
    if (i % 2) host.append(say(el("pre"), part.replace(/\n$/, "")));
    else paragraphs(host, part);
  }
}

/* Output of a program: its colours are classes; every other escape stays a mark. */
function coloured(e, text) {
  const names = new Set();
  let at = 0;
  const put = (part) => part && (names.size ? e.append(say(el("span", [...names].join(" ")), part)) : say(e, part));
  for (const m of text.matchAll(/\u001b\[([\d;]*)m/g)) {
    put(text.slice(at, m.index));
    at = m.index + m[0].length;
    for (const code of (m[1] || "0").split(";").map(Number)) {
      if (!code) names.clear();
      if (code === 1) names.add("bold");
      if ((code >= 30 && code < 40) || code >= 90) for (const n of [...names]) if (n !== "bold") names.delete(n);
      if ((code >= 30 && code < 38) || (code >= 90 && code < 98)) names.add(`ansi${code % 10}`);
    }
  }
  put(text.slice(at));
  return e;
}

const plain = (host, text) => host.append(coloured(el("pre"), text));

/* What an edit changes, line by line. */
function diffLines(before, after) {
  const a = before ? before.replace(/\n$/, "").split("\n") : [], b = after ? after.replace(/\n$/, "").split("\n") : [];
  let head = 0, tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const lines = [...a.slice(Math.max(0, head - 2), head).map((l) => " " + l), ...a.slice(head, a.length - tail).map((l) => "-" + l),
                 ...b.slice(head, b.length - tail).map((l) => "+" + l), ...a.slice(a.length - tail, a.length - tail + 2).map((l) => " " + l)];
  return lines;
}

const diffView = (before, after) => long(diffLines(before, after).join("\n"), patch, 3000, 40);

function patch(host, text) {
  const pre = el("pre", "diff");
  for (const line of text.split("\n")) {
    const kind = line[0] === "+" ? "more" : line[0] === "-" ? "less" : /^(@@|\*\*\*|diff )/.test(line) ? "where" : "same";
    pre.append(say(el("span", kind), line + "\n"));
  }
  host.append(pre);
}

/* The edits of a call: [file, before, after], or [file, null, patch]. */
function editsOf(args) {
  const text = typeof args === "string" ? args : args?.patch ?? args?.input ?? args?.command ?? args?.cmd;
  const script = Array.isArray(text) ? text.join("\n") : text;
  if (typeof script === "string" && script.includes("*** Begin Patch")) {
    return script.slice(script.indexOf("*** Begin Patch")).split(/^(?=\*\*\* (?:Update|Add|Delete) File: )/m).slice(1)
      .map((part) => [/^\*\*\* \w+ File: (.*)/.exec(part)[1], null, part.replace(/\*\*\* End Patch[^]*/, "")]);
  }
  if (!isObject(args)) return [];
  const file = args.file_path ?? args.filePath ?? args.path ?? args.filename ?? args.notebook_path;
  if (typeof file !== "string") return [];
  return (Array.isArray(args.edits) ? args.edits : [args]).filter(isObject).map((e) =>
    [file, e.old_string ?? e.old_str ?? e.oldText ?? e.old_text ?? "",
     e.new_string ?? e.new_str ?? e.newText ?? e.new_text ?? e.content ?? e.file_text ?? ""])
    .filter(([, a, b]) => typeof a === "string" && typeof b === "string" && (a || b));
}

/* A button that copies one block; its sign is made by the style, as it is no text. */
function copyButton(text) {
  const b = button("copy", "", async () => {
    b.classList.toggle("done", await copyText(text));
    setTimeout(() => b.classList.remove("done"), 1500);
  });
  b.setAttribute("aria-label", "Copy this block");
  return b;
}

const MORE = 200000;  /* characters that one press shows */

/* A long text: its beginning, and a button for what follows. */
function long(text, write, chars = 2400, lines = 26) {
  const box = el("div", "text");
  const found = query ? text.toLowerCase().indexOf(query) : -1;
  let end = cutAt(text, chars, lines);
  if (found >= end && found < MORE) end = cutAt(text, found + query.length + 600, Infinity);
  write(box, text.slice(0, end));
  box.append(copyButton(text));
  if (end >= text.length) return box;
  const more = button("more", "", () => {
    const next = text.length - end <= MORE ? text.length : cutAt(text, end + MORE, Infinity);
    if (next === text.length && next <= MORE) {
      box.replaceChildren();
      write(box, text);
      box.append(copyButton(text));
    } else {
      more.before(say(el("pre"), text.slice(end, next)));
      if (next === text.length) more.remove();
    }
    end = next;
    label();
    lightUp();
  });
  const label = () => {
    const left = text.length - end;
    more.textContent = left > MORE ? `show ${bytes(MORE)} more of ${bytes(left)}`
      : `show all ${bytes(text.length)}`;
  };
  label();
  box.append(more);
  return box;
}

/* JSON as people read it: what fits into a line stands in one. */
function pretty(value) {
  try {
    return typeof value === "string" ? value : layOut(value, "");
  } catch {
    return "(too deep to be shown; see Raw)";
  }
}

function layOut(value, lead) {
  const flat = JSON.stringify(value, null, 1).replace(/\n\s*/g, " ");
  if (!value || typeof value !== "object" || flat.length < 78 - lead.length) return flat;
  if (flat.length > 200000) return JSON.stringify(value, null, 2);
  const list = Array.isArray(value);
  if (list && value.every((v) => v === null || typeof v !== "object")) {
    return `[${value.map((v) => JSON.stringify(v)).join(", ")}]`;
  }
  const rows = Object.entries(value).map(([name, v]) =>
    `${lead}  ${list ? "" : JSON.stringify(name) + ": "}${layOut(v, lead + "  ")}`);
  return `${list ? "[" : "{"}\n${rows.join(",\n")}\n${lead}${list ? "]" : "}"}`;
}

/* A value of JSON: an object as its members, everything else as text. */
function valueView(value, write = plain) {
  if (typeof value === "string") {
    const read = /^\s*[[{]/.test(value) && value.length < 2e6 ? tryJson(value) : undefined;
    if (read === undefined) return long(value, write, 1400, 16);
    value = read;
  }
  const names = isObject(value) ? Object.keys(value) : [];
  if (!names.length || names.length > 24) return long(pretty(value), plain, 1400, 16);
  const list = el("dl", "members");
  let room = 18;
  for (const name of names) {
    const shown = pretty(value[name]);
    if (shown.length > 28) list.classList.add("tall");
    const both = [say(el("dt"), name), el("dd", "", long(shown, plain, 800, 12))];
    if (room <= 0 && !query) for (const e of both) e.classList.add("folded");
    list.append(...both);
    room -= Math.min(12, 1 + shown.length / 70 + shown.split("\n").length / 2);
  }
  const folded = [...list.querySelectorAll(":scope > .folded")];
  if (!folded.length) return list;
  const more = button("more", `show ${many(folded.length / 2, "more member")}`, () => {
    for (const e of folded) e.classList.remove("folded");
    more.remove();
  });
  return el("div", "text", list, more);
}

/* A line that opens what make() returns. */
function fold(name, label, make) {
  const box = el("details", name, say(el("summary"), label));
  box.addEventListener("toggle", () => {
    if (box.open && box.childElementCount === 1) {
      box.append(make());
      lightUp();
    }
  });
  return box;
}

/* ---- bodies ---- */

const KEPT = 64e6;  /* bytes of inflated blocks that are kept */
const blocks = new Map();
let kept = 0;

async function inflate(number) {
  const coded = atob($("b" + number).textContent.trim());
  const packed = new Uint8Array(coded.length);
  for (let i = 0; i < coded.length; i++) packed[i] = coded.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const whole = new Uint8Array(await new Response(stream).arrayBuffer());
  kept += whole.length;
  for (const [old, bytesOf] of blocks) {
    if (kept <= KEPT || old === number) break;
    blocks.delete(old);
    kept -= (await bytesOf).length;
  }
  return whole;
}

function block(number) {
  if (!blocks.has(number)) blocks.set(number, inflate(number));
  return blocks.get(number);
}

async function partBytes(part) {
  const whole = new Uint8Array(part.pieces.reduce((sum, piece) => sum + piece[2], 0));
  let at = 0;
  for (const [number, start, length] of part.pieces) {
    whole.set((await block(number)).subarray(start, start + length), at);
    at += length;
  }
  return whole;
}

const partText = async (part) => new TextDecoder().decode(await partBytes(part));

/* ---- wire formats ---- */

const PICTURE = /^image\/(png|jpeg|gif|webp)$/;
const CALL = /(^|_)tool_use$|^(function|custom_tool|local_shell|web_search|file_search|computer|mcp|code_interpreter|image_generation|tool_search)_call$|^toolCall$|^tool-call$/;
const RESULT = /_call_output$|tool_result$|_output$|^toolResult$|^tool-result$/;
const isObject = (v) => v !== null && typeof v === "object" && !Array.isArray(v);
const tryJson = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
};

function callOf(v, inner) {
  let args = inner.arguments ?? inner.input ?? inner.args ?? inner.action ?? inner.parameters;
  if (args === undefined) {
    args = { ...inner };
    for (const name of ["type", "id", "call_id", "name", "status"]) delete args[name];
  }
  if (typeof args === "string") args = isObject(tryJson(args)) ? tryJson(args) : args;
  return { kind: "call", id: v.call_id ?? v.id ?? inner.toolUseId ?? inner.id ?? v.toolCallId,
           name: String(inner.name ?? inner.toolName ?? v.type ?? "call"), args };
}

function resultOf(v, inner) {
  let value = inner.output ?? inner.content ?? inner.response ?? inner.result ?? inner.tools ?? "";
  let note = "";
  const read = typeof value === "string" && value.startsWith("{\"output\"") ? tryJson(value) : null;
  if (read && typeof read.output === "string") {
    const code = read.metadata?.exit_code;
    if (code !== undefined) note = `exit ${code}`;
    value = read.output;
  }
  return { kind: "result", id: inner.tool_use_id ?? v.call_id ?? inner.tool_call_id ??
             inner.toolUseId ?? inner.toolCallId ?? inner.id, name: inner.name ?? inner.toolName, note,
           error: Boolean(inner.is_error || inner.isError || inner.status === "error"),
           value: Array.isArray(value) ? blocksOf(value) : isObject(value) ? value : String(value) };
}

function imageOf(v) {
  const url = v.image_url?.url ?? v.image_url ?? v.source?.url ?? v.url;
  const inner = v.inlineData ?? v.inline_data ?? v.source ?? v;
  if (typeof url === "string") {
    const cut = /^data:([^;,]*);base64,/.exec(url);
    return cut ? { kind: "image", type: cut[1], data: url.slice(cut[0].length) }
      : { kind: "image", address: url };
  }
  return { kind: "image", type: inner.mimeType ?? inner.mime_type ?? inner.media_type ?? "",
           data: typeof inner.data === "string" ? inner.data : "" };
}

function thoughtOf(v) {
  const said = blocksOf([v.summary, typeof v.content === "string" ? v.content : v.content?.map((c) => c.text),
                         v.thinking, v.reasoning, v.text].flat());
  const text = said.map((b) => b.text ?? "").filter(Boolean).join("\n\n");
  return { kind: "thought", text: text || "(encrypted, or not recorded)", empty: !text };
}

/* The blocks of a value: text, thought, call, result, image, other. */
function blocksOf(v, out = []) {
  if (v === null || v === undefined || v === "") return out;
  if (Array.isArray(v)) {
    for (const one of v) blocksOf(one, out);
    return out;
  }
  if (!isObject(v)) {
    out.push({ kind: "text", text: String(v) });
    return out;
  }
  const type = typeof v.type === "string" ? v.type : "";
  const call = v.functionCall ?? v.function_call ?? v.toolUse;
  const result = v.functionResponse ?? v.function_response ?? v.toolResult;
  if (isObject(call)) out.push(callOf(v, call));
  else if (isObject(result)) out.push(resultOf(v, result));
  else if (isObject(v.function) && v.function.name) out.push(callOf(v, v.function));
  else if (CALL.test(type)) out.push(callOf(v, v));
  else if (RESULT.test(type) && !("text" in v)) out.push(resultOf(v, v));
  else if (/thinking|reasoning/.test(type) || v.thought === true || v.reasoningContent) {
    out.push(thoughtOf(v.reasoningContent?.reasoningText ?? v));
  } else if (/image/.test(type) || v.inlineData || v.inline_data || v.image_url) out.push(imageOf(v));
  else if (typeof v.text === "string") out.push({ kind: "text", text: v.text });
  else if (typeof v.refusal === "string") out.push({ kind: "text", text: v.refusal });
  else out.push({ kind: "other", name: type, value: v });
  return out;
}

const ROLES = { __proto__: null, model: "assistant", chatbot: "assistant", ai: "assistant", agent: "assistant",
                developer: "system", human: "user", function: "tool", toolResult: "tool" };

/* A message of a conversation, in whatever form. */
function messageOf(v, role = "user") {
  if (!isObject(v)) return { role, blocks: blocksOf(v) };
  const type = typeof v.type === "string" ? v.type : "";
  const given = String(v.role ?? "").slice(0, 40);
  const found = [];
  if (!given && (CALL.test(type) || RESULT.test(type) || type === "reasoning")) {
    blocksOf(v, found);
    return { role: RESULT.test(type) ? "tool" : "assistant", blocks: found };
  }
  const thought = v.reasoning_content ?? v.reasoning;
  if (thought && typeof thought === "string") found.push({ kind: "thought", text: thought });
  if (given === "tool" || given === "function") {
    if (isObject(v.content) || typeof v.content === "string" || v.tool_call_id) found.push(resultOf(v, v));
    else blocksOf(v.content, found);
  } else {
    blocksOf(v.content ?? v.parts ?? v.message ?? v.text, found);
  }
  for (const key of ["tool_calls", "function_call", "refusal"]) {
    if (key === "function_call" && v[key]?.name) found.push(callOf(v, v[key]));
    else if (key !== "function_call") blocksOf(v[key], found);
  }
  const lower = given.toLowerCase();
  const results = found.length > 0 && found.every((b) => b.kind === "result");
  if (!found.length && !("content" in v || "parts" in v)) found.push({ kind: "other", name: type, value: v });
  return { role: results ? "tool" : ROLES[given] ?? ROLES[lower] ?? (lower || role), blocks: found };
}

const LISTS = ["messages", "input", "contents", "chat_history", "history"];
const SYSTEM = ["system", "instructions", "systemInstruction", "system_instruction", "preamble"];

/* The messages of a request, and what else is in it. */
function requestOf(json) {
  const list = LISTS.find((name) => Array.isArray(json[name]) || (name === "input" && json[name]));
  const single = ["message", "prompt"].filter((name) => typeof json[name] === "string");
  if (!list && !single.length) return null;
  const said = SYSTEM.filter((name) => json[name]).map((name) =>
    ({ role: "system", blocks: blocksOf(json[name].parts ?? json[name]) }));
  for (const value of [json[list] ?? []].flat()) said.push(messageOf(value));
  for (const name of single) said.push(messageOf(json[name]));
  const settings = { ...json };
  for (const name of [...LISTS, ...SYSTEM, ...single]) delete settings[name];
  return { said, settings };
}

/* The events of a stream: `data:` lines, or a value in each line. */
function eventsOf(text) {
  const found = [];
  for (const line of text.split("\n")) {
    const from = line.startsWith("data:") ? 5 : 0;
    const first = line.slice(from, from + 80).trimStart()[0];
    if (first !== "{" && first !== "[") continue;
    const value = tryJson(line.slice(from));
    if (value) found.push(value);
  }
  return found.flat();
}

/* Puts the pieces of a streamed answer together. */
function assemble(events) {
  const said = { choices: [], parts: [], blocks: [], output: [], error: null };
  const joined = (o, key, more) => (o[key] = (o[key] ?? "") + more);
  for (const e of events) {
    const type = String(e.type ?? "");
    if (e.error && isObject(e.error)) said.error = e.error;
    if (isObject(e.response) && e.response.output?.length) said.output = e.response.output;
    for (const choice of e.choices ?? []) streamChoice(said.choices, choice, joined);
    for (const candidate of e.candidates ?? []) said.parts.push(...(candidate.content?.parts ?? []));
    if (type === "message_start") said.blocks.push(...(e.message?.content ?? []));
    if (type === "content_block_start") said.blocks[e.index] = { ...e.content_block };
    if (type === "content_block_delta" && said.blocks[e.index]) {
      const b = said.blocks[e.index], d = e.delta ?? {};
      if (d.text) joined(b, "text", d.text);
      if (d.thinking) joined(b, "thinking", d.thinking);
      if (d.partial_json) b.input = (typeof b.input === "string" ? b.input : "") + d.partial_json;
    }
    if (/output_item\.(added|done)$/.test(type)) said.output[e.output_index] = { ...e.item };
    if (/\.delta$/.test(type) && typeof e.delta === "string") streamItem(said.output, e, joined);
  }
  return said;
}

function streamChoice(choices, choice, joined) {
  const m = (choices[choice.index ?? 0] ??= { role: "assistant" });
  const d = choice.delta ?? choice.message ?? choice;
  if (typeof d.content === "string") joined(m, "content", d.content);
  if (typeof d.text === "string") joined(m, "content", d.text);
  const thought = d.reasoning_content ?? d.reasoning;
  if (typeof thought === "string") joined(m, "reasoning_content", thought);
  for (const call of d.tool_calls ?? []) {
    const c = ((m.tool_calls ??= [])[call.index ?? m.tool_calls.length] ??=
      { id: call.id, function: { name: "", arguments: "" } });
    c.id ??= call.id;
    if (call.function?.name) joined(c.function, "name", call.function.name);
    if (call.function?.arguments) joined(c.function, "arguments", call.function.arguments);
  }
}

/* A delta of the Responses format, for an item that is not done. */
function streamItem(output, e, joined) {
  const item = (output[e.output_index] ??= { type: "message", role: "assistant" });
  if (item.status === "completed") return;
  if (/arguments\.delta$|input\.delta$/.test(e.type)) joined(item, item.input === undefined ? "arguments" : "input", e.delta);
  else if (/reasoning/.test(e.type)) joined(item, "thinking", e.delta);
  else if (/text\.delta$/.test(e.type)) joined(item, "text", e.delta);
}

/* Texts that follow each other, as one. */
function joinTexts(found) {
  const out = [];
  for (const b of found) {
    const last = out[out.length - 1];
    if (last && b.kind === last.kind && (b.kind === "text" || b.kind === "thought")) last.text += b.text;
    else out.push({ ...b });
  }
  return out;
}

/* What the model answered, as messages, or null if the form is not known. */
function answerOf(text, json) {
  const events = json === undefined ? eventsOf(text) : Array.isArray(json) ? json : null;
  const said = events && assemble(events.filter(isObject));
  const whole = said ?? json;
  const found = [];
  const add = (value, role = "assistant") => found.push(messageOf(value, role));
  if (!isObject(whole)) return null;
  for (const choice of whole.choices ?? []) {
    if (choice) add(said ? choice : choice.message ?? { role: "assistant", content: choice.text });
  }
  for (const item of whole.output?.filter?.(isObject) ?? []) add(item);
  if (isObject(whole.output?.message)) add(whole.output.message);
  for (const candidate of whole.candidates ?? []) add({ role: "model", parts: candidate.content?.parts ?? [] });
  if (said?.parts.length) found.push({ role: "assistant", blocks: joinTexts(blocksOf(said.parts)) });
  if (said?.blocks.length) add({ role: "assistant", content: said.blocks.filter(Boolean) });
  if (!said && Array.isArray(whole.content)) add({ role: "assistant", content: whole.content });
  if (!said && isObject(whole.message)) add(whole.message);
  if (!said && !found.length && typeof whole.text === "string") add(whole.text);
  if (whole.error) found.push({ role: "error", blocks: [{ kind: "other", name: "error", value: whole.error }] });
  const end = whole.stop_reason ?? whole.finish_reason ?? whole.choices?.[0]?.finish_reason ??
    whole.candidates?.[0]?.finishReason ?? whole.stopReason;
  return found.length ? { said: found, events: events?.length, end: typeof end === "string" ? end : "" } : null;
}

const QUIET = /token_count|_started|_complete|turn_context|_begin|_end$|snapshot|mode|queue|prompt|title|session|environment|attachment|progress|last-|bridge|system|meta|world_state/;

/* An item of a conversation, as messages; `quiet` if it is only bookkeeping. */
function itemOf(json, kind) {
  if (!isObject(json)) return { said: [messageOf(json)] };
  const type = String(json.type ?? "");
  const inner = isObject(json.message) && (json.message.role || json.message.content) ? json.message
    : isObject(json.data) && json.data.role ? json.data : json;
  if (inner.role && (inner.content ?? inner.parts ?? inner.text ?? inner.tool_calls) !== undefined) {
    return { said: [messageOf(inner)] };
  }
  if (typeof json.message === "string" && /user_message|agent_message|^user$|^assistant$|^error$|warning/.test(type)) {
    const role = /user/.test(type) ? "user" : /error|warning/.test(type) ? "error" : "assistant";
    return { said: [{ role, blocks: blocksOf(json.message) }], echo: true };
  }
  if (type === "agent_reasoning" && json.text) return { said: [{ role: "assistant", blocks: [{ kind: "thought", text: json.text }] }], echo: true };
  if (CALL.test(type) || RESULT.test(type) || type === "reasoning") return { said: [messageOf(json)] };
  if ((json.replacement_history || kind === "compacted") && typeof json.message === "string") {
    return { said: [{ role: "system", blocks: blocksOf(json.message || "(no summary)") }] };
  }
  if (typeof json.text === "string" && !QUIET.test(type)) return { said: [messageOf(json, "assistant")] };
  return { said: [{ role: "event", blocks: [{ kind: "other", name: type || kind || "", value: json }] }],
           quiet: true };
}

/* ---- items, read ---- */

/* A function of items whose last results are kept. */
function keeping(make, most = 300) {
  const made = new Map();
  return (i) => {
    if (!made.has(i)) {
      made.set(i, make(i));
      if (made.size > most) made.delete(made.keys().next().value);
    }
    return made.get(i);
  };
}

/* An item as it stands alone, and with what stands before it. */
const parse = keeping(parseItem);
const read = keeping(async (i) => items[i].kind === "exchange" ? foldHead(await parse(i), i) : parse(i));

/* What an item says: {said: messages, settings, end, raw: texts of its parts}. */
async function parseItem(i) {
  const item = items[i];
  const model = { said: [], raw: [], settings: null, end: "", events: 0, quiet: false, picture: null };
  for (const part of item.parts || []) {
    if (PICTURE.test(part.type)) {
      model.picture = part;
      continue;
    }
    const text = await partText(part);
    const json = tryJson(text);
    model.raw.push({ role: part.role, text, json });
    let read = null;
    try {
      if (part.role === "request" && isObject(json)) read = requestOf(json);
      else if (part.role === "response") read = answerOf(text, json);
      else if (part.role === "payload") read = itemOf(json ?? text, item.type);
      else if (part.role === "action" && isObject(json)) model.action = json;
    } catch {
      read = null;  /* an unexpected form: it is shown as it is */
    }
    if (part.role === "action" && model.action) continue;
    read ??= { said: [{ role: part.role, blocks: [{ kind: "other", value: json ?? text }] }] };
    for (const message of read.said) model.said.push({ ...message, answer: part.role === "response" });
    for (const key of ["settings", "end", "events", "quiet", "echo"]) model[key] = read[key] || model[key];
  }
  return model;
}

/* The same for messages that say the same. What is too deep to be written is like none. */
function keyOf(...said) {
  try {
    return JSON.stringify(said.flatMap((m) => m.blocks));
  } catch {
    return Symbol("deep");
  }
}

/* Where a request goes on after what another one had: the index after the last
** message that both have, 0 if there is none. */
function joint(asked, before) {
  const last = before[before.length - 1];
  if (last === undefined) return 0;
  return asked[before.length - 1] === last ? before.length : asked.lastIndexOf(last) + 1;
}

/* What one of the requests before had, and what was answered to it, is not new. Of
** the first item, which has nothing before it, only the last messages are open. */
async function foldHead(model, i) {
  const asked = model.said.filter((m) => !m.answer);
  if (i === 0) {
    if (asked.length > 6) for (const m of asked.slice(0, -3)) m.old = true;
    return model;
  }
  const keys = asked.map((m) => (m.key ??= keyOf(m)));
  let from = 0, before = [], had = [];
  for (let k = i - 1; k >= 0 && k > i - 6 && !from; k--) {
    if (items[k].kind !== "exchange") continue;
    before = await parse(k).then((m) => m.said, () => []);
    had = before.filter((m) => !m.answer).map((m) => (m.key ??= keyOf(m)));
    from = joint(keys, had);
  }
  asked.forEach((m, k) => (m.old = (!from || k < from) && had.includes(keys[k])));
  const fresh = asked.slice(from);
  const repeated = fresh.slice(0, Math.max(0, fresh.findIndex((m) => m.role !== "assistant")));
  if (keyOf(...repeated) === keyOf(...before.filter((m) => m.answer))) for (const m of repeated) m.old = true;
  return model;
}

/* The texts of blocks, for the search. */
function textsOf(found, out) {
  for (const b of found) {
    if (b.text) out.push(b.text);
    if (b.name) out.push(String(b.name));
    const value = b.args ?? b.value;
    if (Array.isArray(value)) textsOf(value, out);
    else if (isObject(value)) {
      for (const name in value) out.push(name, pretty(value[name]));
    } else if (value !== undefined) out.push(String(value));
  }
  return out;
}

async function searchText(i) {
  const model = await read(i);
  const out = [];
  for (const m of model.said) {
    if (!m.old || i === 0) textsOf(m.blocks, out);
  }
  if (model.action) out.push(pretty(model.action));
  return out.join("\n").toLowerCase();
}

/* ---- items, shown ---- */

function pictureView(b) {
  const data = (b.data ?? "").replace(/-/g, "+").replace(/_/g, "/").replace(/\s/g, "");
  const first = ["iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR"].findIndex((start) => data.startsWith(start));
  const type = first < 0 ? b.type : `image/${["png", "jpeg", "gif", "webp"][first]}`;
  if (data && PICTURE.test(type)) {
    const image = el("img", "picture");
    image.alt = "image in the conversation";
    image.src = `data:${type};base64,${data}`;
    return image;
  }
  return say(el("p", "note"), b.address ? `image, not loaded: ${b.address.slice(0, 500)}`
    : `${b.type || "image"}, ${bytes((b.data?.length ?? 0) * 0.75)}`);
}

function callView(call, result) {
  const box = el("div", result ? "call pair" : "call");
  const asked = el("div", "side", say(el("h4", "tool"), call.name));
  const edits = editsOf(call.args);
  for (const [file, before, after] of edits) {
    asked.append(say(el("p", "file"), file), before === null ? long(after, patch, 3000, 40) : diffView(before, after));
  }
  if (!edits.length && !(isObject(call.args) && !Object.keys(call.args).length)) asked.append(valueView(call.args));
  box.append(asked);
  if (result) box.append(resultSide(result));
  return box;
}

function resultSide(result) {
  const head = el("h4", "", result.error ? "error" : "result");
  if (result.note) head.append(" ", say(el("small"), result.note));
  const side = el("div", result.error ? "side result error" : "side result", head);
  if (Array.isArray(result.value)) side.append(...result.value.map((b) => blockView(b, true)));
  else side.append(valueView(result.value));
  return side;
}

function blockView(b, narrow) {
  if (b.kind === "text") return long(b.text, narrow ? plain : prose, narrow ? 1400 : 2400, narrow ? 16 : 26);
  if (b.kind === "thought") {
    return b.empty ? el("p", "note", `thought ${b.text}`)
      : el("div", "thought", long(b.text, prose, 900, 8));
  }
  if (b.kind === "image") return pictureView(b);
  if (b.kind === "call") return callView(b);
  if (b.kind === "result") {
    const box = el("div", "call", resultSide(b));
    if (b.name) box.prepend(say(el("h4", "tool"), b.name));
    return box;
  }
  return el("div", "other", valueView(b.value));
}

/* Messages as rows: who, and what. A result stands beside its call. */
function messagesView(said) {
  const rows = document.createDocumentFragment();
  const results = new Map();
  const calls = new Set();
  for (const b of said.flatMap((m) => m.blocks)) {
    if (b.kind === "result" && b.id !== undefined) results.set(b.id, b);
    if (b.kind === "call" && b.id !== undefined) calls.add(b.id);
  }
  let last = null;
  for (const m of said) {
    const shown = m.blocks.filter((b) => !(b.kind === "result" && calls.has(b.id)));
    if (!shown.length) continue;
    const views = shown.map((b) => (b.kind === "call" ? callView(b, results.get(b.id)) : blockView(b)));
    const same = last && last.m.role === m.role && Boolean(last.m.answer) === Boolean(m.answer);
    if (same) last.row.lastChild.append(...views);
    else {
      const row = el("div", "row", say(el("div", "who"), m.role), el("div", "what", ...views));
      row.dataset.role = m.role;
      if (m.answer) row.classList.add("answer");
      rows.append(row);
      last = { m, row };
    }
  }
  return rows;
}

function headLabel(model, hidden) {
  const parts = [];
  const system = hidden.find((m) => m.role === "system");
  const others = hidden.filter((m) => m !== system).length;
  if (others) parts.push(many(others, "earlier message"));
  if (system) parts.push("system prompt");
  const tools = model.settings?.tools ?? model.settings?.toolConfig?.tools;
  if (Array.isArray(tools) && tools.length) parts.push(many(tools.length, "tool"));
  if (model.settings && Object.keys(model.settings).length) parts.push("settings");
  return parts.join(" · ");
}

/* The calls of what is hidden, to name the tools of results that are shown. */
function withCalls(hidden, open) {
  const calls = new Map();
  for (const b of hidden.flatMap((m) => m.blocks)) {
    if (b.kind === "call" && b.id !== undefined) calls.set(b.id, b);
  }
  const used = [];
  for (const b of open.flatMap((m) => m.blocks)) {
    if (b.kind === "result" && calls.has(b.id)) used.push(calls.get(b.id));
  }
  return used.length ? [{ role: "tool", blocks: used }, ...open] : open;
}

function exchangeBody(model) {
  const hidden = model.said.filter((m) => m.old && !m.answer);
  const open = model.said.filter((m) => !m.old && !m.answer);
  const answer = model.said.filter((m) => m.answer);
  const body = el("div", "body");
  const label = headLabel(model, hidden);
  if (label) {
    body.append(fold("head", label, () => {
      const box = el("div", "earlier", messagesView(hidden));
      if (model.settings && Object.keys(model.settings).length) {
        box.append(el("div", "row", el("div", "who", "settings"),
          el("div", "what", long(pretty(model.settings), plain, 1400, 16))));
      }
      return box;
    }));
  }
  body.append(messagesView(withCalls(hidden, open)), messagesView(answer));
  const notes = [];
  if (model.events) notes.push(`streamed in ${many(model.events, "event")}`);
  if (model.end && !/^(stop|end_turn|tool_calls|tool_use|STOP)$/.test(model.end)) notes.push(`ended: ${model.end}`);
  if (notes.length) body.append(say(el("p", "note foot"), notes.join(" · ")));
  return body;
}

/* A call and its result are two items of a conversation: the result that
** follows is shown beside the call, and the second item points back. */
async function partner(i, step, kind, id) {
  for (let k = i + step, seen = 0; items[k] && seen < 40; k += step, seen++) {
    for (const m of (await read(k)).said) {
      const found = m.blocks.find((b) => b.kind === kind && b.id === id);
      if (found) return { index: k, block: found };
    }
  }
  return null;
}

const itemLink = (i) => {
  const a = el("a", "", `#${items[i].n}`);
  a.href = `#e${items[i].n}`;
  return a;
};

/* The same text, recorded a second time beside an item: one line. */
async function echoOf(model, i) {
  if (!model.echo) return null;
  const text = model.said[0].blocks[0]?.text;
  for (const k of [i - 1, i + 1, i - 2, i + 2, i - 3, i + 3]) {
    if (!items[k]) continue;
    const other = await read(k);
    if (!other.echo && other.said.some((m) => m.blocks.some((b) => b.text === text))) return k;
  }
  return null;
}

const quietLine = (...children) => el("div", "body quiet", el("p", "note", ...children));

async function itemBody(model, i) {
  const said = model.said.map((m) => ({ ...m, blocks: [...m.blocks] }));
  const echo = await echoOf(model, i);
  if (echo !== null) return quietLine("the event of ", itemLink(echo), ", with the same text");
  if (model.quiet) {
    const b = said[0].blocks[0];
    const box = fold("event", b.name || "event", () => valueView(b.value));
    return el("div", "body quiet", box);
  }
  const results = said.flatMap((m) => m.blocks).filter((b) => b.kind === "result" && b.id !== undefined);
  for (const b of said.flatMap((m) => m.blocks)) {
    if (b.kind !== "call" || b.id === undefined) continue;
    const found = await partner(i, 1, "result", b.id) ?? await partner(i, -1, "result", b.id);
    if (found) said.push({ role: "tool", blocks: [found.block] });
  }
  if (results.length && results.length === said.flatMap((m) => m.blocks).length) {
    const found = await partner(i, -1, "call", results[0].id) ?? await partner(i, 1, "call", results[0].id);
    if (found) {
      return quietLine("result of ", say(el("b"), found.block.name), ", beside its call ", itemLink(found.index));
    }
  }
  return el("div", "body", messagesView(said));
}

const EDGES = { compaction: "Compacted: what stands above was replaced by a summary",
                rollback: "Rolled back: turns above were taken back",
                fork: "Forked from another conversation here" };

/* What separates an item from the one before: a turn, a mark, a pause. */
function edge(i) {
  let k = i - 1;
  while (k >= 0 && isFolded(k)) k--;
  const item = items[i], before = items[k];
  const box = el("div", "edges");
  if (item.turn !== undefined && item.turn !== before?.turn && (before || item.turn)) {
    box.append(el("p", "edge turn", item.turn ? `Turn ${item.turn}` : "Before the first turn"));
  }
  if (EDGES[item.mark]) box.append(el("p", "edge mark", EDGES[item.mark]));
  const pause = before ? item.time - before.time : 0;
  if (pause > pauseFrom) box.append(el("p", "edge pause", `${duration(pause)} later`));
  return box;
}

const isBad = (item) => item.error !== undefined || item.mark === "error";

function badges(item) {
  const box = el("span", "badges");
  const named = data.verdict?.items ?? [];
  const first = item.repeat && items[firstOf.get(item.repeat)];
  if (item.verdict) {
    box.append(el("span", "badge loop", named.includes(item.n) ? `loop, ${named.indexOf(item.n) + 1} of ${named.length}` : "loop"));
  }
  if (first && first !== item) {
    const a = el("a", "badge repeat", `same as #${first.n}`);
    a.href = `#e${first.n}`;
    box.append(a);
  } else if (first && !item.verdict) box.append(el("span", "badge repeat", "repeated later"));
  if (item.error) box.append(say(el("span", "badge bad"), item.error));
  if (item.asked || item.role === "user") box.append(el("span", "badge", "new message"));
  if (item.status !== usualStatus && (item.status ?? "") !== "") {
    box.append(say(el("span", "badge"), String(item.status)));
  }
  const state = verified.get(item.n);
  if (state) box.append(el("span", `badge ${state}`, state));
  return box;
}

function articleHead(i) {
  const item = items[i];
  const number = el("a", "number", `#${item.n}`);
  number.href = `#e${item.n}`;
  const facts = el("span", "meta");
  const fact = (text) => text && facts.append(say(el("span"), text));
  if (isTime(item.time)) facts.title = iso(item.time);
  if (isTime(item.time)) fact(i > 0 && day(items[i - 1].time) !== day(item.time) ? `${day(item.time)} ${clock(item.time)}` : clock(item.time));
  if (item.kind === "result") fact(item.title);
  if (item.model) fact(item.model);
  if (item.tokens) fact(`${count(item.tokens.input ?? 0)} → ${count(item.tokens.output ?? 0)} tokens`);
  else if (item.size) fact(bytes(item.size));
  if (item.duration !== undefined) fact(`took ${duration(item.duration)}`);
  const raw = button("tiny", "Raw", () => toggleRaw(i));
  const copy = button("tiny", "Copy JSON", async () => {
    copy.textContent = (await copyText(await jsonOf(i))) ? "Copied" : "Not copied";
    setTimeout(() => (copy.textContent = "Copy JSON"), 1500);
  });
  return el("header", "", number, facts, badges(item), el("span", "tools", raw, copy));
}

const raws = new Set();

function toggleRaw(i) {
  if (!raws.delete(i)) raws.add(i);
  stream.refresh(i);
}

function rawView(model) {
  const box = el("div", "body raw");
  for (const part of model.raw) {
    const shown = part.json === undefined ? part.text : pretty(part.json);
    const text = shown.startsWith("(too deep") ? part.text : shown;
    box.append(el("div", "row", say(el("div", "who"), part.role), el("div", "what", long(text, plain, 20000, 400))));
  }
  return box;
}

/* The role of an item of a conversation stands above its number. */
function leadRole(inner) {
  const row = inner.querySelector(".body > .row");
  if (!row) return;
  row.firstChild.dataset.role = row.dataset.role;
  inner.querySelector("header").prepend(row.firstChild);
}

/* One item. What it says comes when its blocks are inflated. */
function article(i) {
  const item = items[i];
  const box = el("article", `item kind-${item.kind}`);
  box.id = `i${item.n}`;
  box.tabIndex = -1;
  box.setAttribute("aria-label", `#${item.n}`);
  if (item.verdict) box.classList.add("verdict");
  else if (item.repeat) box.classList.add("repeat");
  if (i === current) box.classList.add("current");
  const body = el("div", "body waiting");
  const inner = el("div", "sheet", articleHead(i), body);
  box.append(edge(i), inner);
  bodyOf(i).then((made) => {
    if (made.classList.contains("quiet")) box.classList.add("slight");
    inner.replaceChild(made, body);
    if (item.kind === "item" && !raws.has(i)) leadRole(inner);
    box.dataset.done = "1";
    lightSoon();
  });
  return box;
}

async function bodyOf(i) {
  try {
    const model = await read(i);
    if (raws.has(i)) return rawView(model);
    const parts = items[i].parts || [];
    if (!parts.some((part) => part.pieces.length) && parts.some((part) => part.size)) return el("div", "body", el("p", "note", "The body is not in this page."));
    if (model.action || model.picture) return await actionBody(model);
    return items[i].kind === "item" ? await itemBody(model, i) : exchangeBody(model);
  } catch (error) {
    return el("div", "body", say(el("p", "note"), typeof DecompressionStream === "undefined"
      ? "This browser cannot inflate the bodies of the page." : `This item cannot be shown: ${error.message}`));
  }
}

/* ---- actions and screenshots ---- */

const pictures = new Map();

/* The address of a screenshot, as a blob of this page. */
async function picture(part) {
  const key = part.pieces[0].join();
  if (!pictures.has(key)) {
    const blob = new Blob([await partBytes(part)], { type: part.type });
    pictures.set(key, URL.createObjectURL(blob));
    if (pictures.size > 80) {
      const [old, url] = pictures.entries().next().value;
      URL.revokeObjectURL(url);
      pictures.delete(old);
    }
  }
  return pictures.get(key);
}

/* The parts of an action that both of its shapes have. */
function actionOf(a) {
  const e = isObject(a.evidence) ? a.evidence : {};
  const dom = a.domData ?? e.dom ?? e.domData ?? a.dom ?? {};
  const chain = a.fallbackChain ?? e.fallbackChain ?? {};
  const strategies = [chain.strategies, a.strategies].find(Array.isArray) ?? [];
  return { type: a.eventType ?? a.actionType ?? a.type ?? "action", value: a.value ?? a.url ?? a.metadata?.url,
           selector: a.selector, dom: isObject(dom) ? dom : {}, strategies: strategies.filter(isObject), seen: a.visionData?.ocrText ?? e.vision?.ocrText };
}

const selectorText = (s) => typeof s.selector === "string" ? s.selector
  : isObject(s.metadata) ? Object.entries(s.metadata).filter(([, v]) => typeof v !== "object").map(([k, v]) => `${k} ${v}`).join(", ") : "";

function strategiesView(strategies) {
  const body = el("tbody");
  for (const s of strategies.slice(0, 50)) {
    const sure = Number(s.confidence);
    const bar = el("span", "bar");
    bar.style.width = `${Math.max(0, Math.min(1, sure || 0)) * 100}%`;
    body.append(el("tr", "", say(el("td"), String(s.type ?? "")), say(el("td", "code"), selectorText(s).slice(0, 600)),
      el("td", "n sure", bar, el("span", "", Number.isFinite(sure) ? sure.toFixed(2) : ""))));
  }
  const head = el("tr", "", ...["Found by", "Selector", "Confidence"].map((name) => el("th", "", name)));
  return el("table", "strategies", el("thead", "", head), body);
}

/* The screenshot, with what was acted on drawn over it. */
async function shotView(part, a) {
  const image = el("img", "shot");
  image.alt = `screenshot of ${a.type}`;
  image.src = await picture(part);
  const box = el("figure", "shot", image);
  await image.decode().catch(() => image.replaceWith(el("p", "note", "The screenshot cannot be shown.")));
  const r = a.dom.boundingRect;
  const width = image.naturalWidth, height = image.naturalHeight;
  if (!width) return box;
  const layer = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const numbers = (...list) => list.every((n) => Number.isFinite(n));
  if (isObject(r) && numbers(r.x, r.y, r.width, r.height) && r.width > 0) {
    layer.append(svg("rect", { x: r.x - 3, y: r.y - 3, width: r.width + 6, height: r.height + 6, rx: 4 }));
  }
  if (numbers(a.dom.x, a.dom.y)) layer.append(svg("circle", { cx: a.dom.x, cy: a.dom.y, r: 9 }));
  box.append(layer);
  return box;
}

async function actionBody(model) {
  const a = actionOf(model.action ?? {});
  const facts = el("dl", "members");
  const fact = (name, value) => {
    if (value === undefined || value === null || value === "") return;
    facts.append(el("dt", "", name), el("dd", "", long(pretty(value), plain, 600, 8)));
  };
  fact("value", a.value);
  fact("text", a.dom.innerText);
  fact("element", a.dom.tagName && String(a.dom.tagName).toLowerCase());
  fact("selector", a.dom.selector ?? a.selector);
  fact("seen", a.seen === a.dom.innerText ? "" : a.seen);
  const side = el("div", "act", say(el("h3"), String(a.type)), facts);
  if (a.strategies.length) side.append(strategiesView(a.strategies));
  if (model.action) side.append(fold("head", "the whole action", () => long(pretty(model.action), plain, 4000, 80)));
  const body = el("div", "body action", side);
  body.prepend(model.picture ? await shotView(model.picture, a) : el("p", "note noshot", "no screenshot"));
  return body;
}

/* The screenshots in a row, as many as are visible. */
function filmStrip() {
  const step = 172;
  const inner = el("div", "frames");
  const strip = el("div", "film", inner);
  const frames = new Map();
  inner.style.width = `${items.length * step}px`;
  const frame = (i) => {
    const item = items[i];
    const shot = (item.parts || []).find((part) => PICTURE.test(part.type));
    const a = el("a", "frame", el("span", "thumb", shot ? "" : "no screenshot"), el("b", "", `#${item.n}`), say(el("span"), item.title ?? ""));
    a.href = `#e${item.n}`;
    a.style.left = `${i * step}px`;
    if (shot) {
      picture(shot).then((url) => {
        const image = el("img");
        image.alt = "";
        image.src = url;
        a.firstChild.append(image);
      }, () => a.firstChild.append("not readable"));
    }
    return a;
  };
  const draw = () => {
    const first = Math.max(0, Math.floor(strip.scrollLeft / step) - 2);
    const end = Math.min(items.length, first + Math.ceil(strip.clientWidth / step) + 5);
    for (const [i, a] of frames) {
      if (i < first || i >= end) a.remove(), frames.delete(i);
    }
    for (let i = first; i < end; i++) {
      if (!frames.has(i)) frames.set(i, inner.appendChild(frame(i)));
      frames.get(i).classList.toggle("current", i === current);
    }
  };
  strip.addEventListener("scroll", onFrame(draw));
  new ResizeObserver(draw).observe(strip);
  return { box: strip, show(i) {
    const left = i * step;
    if (left < strip.scrollLeft || left + step > strip.scrollLeft + strip.clientWidth) {
      strip.scrollLeft = left - strip.clientWidth / 2 + step / 2;
    }
    draw();
  } };
}

/* ---- what is shown: bookkeeping is folded, chips leave a part ---- */

const FILTERS = {
  all: { name: "All", is: () => true },
  errors: { name: "Errors", is: isBad, key: "e" },
  loop: { name: data.verdict ? "Loop" : "Repeats", is: (item) => item.verdict || item.repeat !== undefined, key: "l" },
  messages: { name: "New messages", is: (item) => item.asked || item.role === "user", key: "m" },
};
let filter = "all";
let unfolded = false;
/* An event that tells of a message beside it is bookkeeping, too. */
const isEcho = (item) => item.type === "event_msg" && [-3, -2, -1, 1, 2, 3].some((by) => {
  const other = items[byNumber.get(String(item.n)) + by];
  return other && other.type !== "event_msg" && other.title === item.title;
});
const isQuiet = (item) => Boolean(item.quiet || isEcho(item) || (item.role === "result" && item.other !== undefined)) && !item.error;
const isFolded = (i) => !unfolded && isQuiet(items[i]);
const chips = new Map();

function chipBar() {
  const bar = el("div", "chips");
  for (const [name, { name: label, is }] of Object.entries(FILTERS)) {
    const n = items.filter((item) => !isQuiet(item) && is(item)).length;
    if (!n && name !== "errors") continue;
    const b = button(`chip ${name}`, "", () => choose(filter === name ? "all" : name));
    b.append(`${label} `, el("b", "", count(n)));
    b.disabled = !n;
    chips.set(name, b);
    bar.append(b);
  }
  const quiet = items.filter(isQuiet).length;
  if (quiet) {
    const b = button("chip", "", () => unfold(!unfolded));
    b.append("Bookkeeping ", el("b", "", count(quiet)));
    chips.set("quiet", b);
    bar.append(b);
  }
  if (items.some((item) => item.role === "call")) bar.append(button("chip", "Files changed", () => showFiles()));
  return bar;
}

function pressChips() {
  for (const [name, b] of chips) b.setAttribute("aria-pressed", String(name === "quiet" ? unfolded : name === filter));
}

function choose(name) {
  filter = name;
  pressChips();
  list.fill();
  list.redraw();
  if (list.all.length && !list.all.includes(current)) go(list.all.find((i) => i > current) ?? list.all[0]);
}

function unfold(open) {
  unfolded = open;
  pressChips();
  list.fill();
  stream.again();
  list.redraw();
}

/* The next item, or the one before, of which a filter is true. */
function step(name, by) {
  const found = items.map((_, i) => i).filter((i) => FILTERS[name].is(items[i]) && !isFolded(i));
  const started = stream.top <= stream.edge + 2;
  const i = by > 0 ? found.find((k) => k > current || (!started && k === current)) ?? found[0]
    : found.findLast((k) => k < current) ?? found[found.length - 1];
  if (i !== undefined) go(i, true, true);
}

/* The files that the calls changed, each with its edits. */
async function showFiles() {
  const files = new Map();
  for (const [i, item] of items.entries()) {
    if (item.role !== "call") continue;
    const model = await parse(i).catch(() => null);
    for (const b of (model?.said ?? []).filter((m) => m.answer || item.kind === "item").flatMap((m) => m.blocks)) {
      if (b.kind !== "call") continue;
      for (const [file, before, after] of editsOf(b.args)) {
        if (!files.has(file)) files.set(file, []);
        files.get(file).push([i, before, after]);
      }
    }
  }
  const box = el("dialog", "help files", el("h2", "", many(files.size, "file changed", "files changed")));
  box.append(button("", "Close", () => box.close()));
  for (const [file, edits] of files) {
    box.append(fold("event", `${file} (${many(edits.length, "edit")})`, () => {
      const all = el("div");
      for (const [i, before, after] of edits) {
        const a = itemLink(i);
        a.addEventListener("click", () => box.close());
        all.append(el("p", "note", a), before === null ? long(after, patch, 6000, 80) : diffView(before, after));
      }
      return all;
    }));
  }
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

/* ---- a long list, of which only what is visible exists ---- */

/* Sums of heights: a Fenwick tree. */
class Heights {
  constructor(list) {
    this.list = list;
    this.tree = new Float64Array(list.length + 1);
    list.forEach((h, i) => this.add(i, h));
  }
  add(i, by) {
    for (i++; i < this.tree.length; i += i & -i) this.tree[i] += by;
  }
  set(i, height) {
    this.add(i, height - this.list[i]);
    this.list[i] = height;
  }
  before(i) {
    let sum = 0;
    for (; i > 0; i -= i & -i) sum += this.tree[i];
    return sum;
  }
  at(y) {
    let i = 0;
    for (let bit = 1 << Math.floor(Math.log2(this.tree.length)); bit; bit >>= 1) {
      if (i + bit < this.tree.length && this.tree[i + bit] <= y) y -= this.tree[i += bit];
    }
    return Math.min(i, this.list.length - 1);
  }
}

/* The items below each other in the page. Heights are guessed until they are
** measured. What is at the top of the window stays where it is meanwhile. */
class Stream {
  constructor() {
    this.box = el("div", "stream");
    this.space = this.box.appendChild(el("div", "space"));
    this.guess();
    this.shown = new Map();
    this.anchor = null;
    this.expected = -1;
    this.sizes = new ResizeObserver((entries) => this.measure(entries));
  }
  guess() {
    this.heights = new Heights(items.map((item, i) => isFolded(i) ? 0 : item.kind === "action" ? 460 : item.kind === "item" ? 90 : 300));
  }
  /* Items were folded or unfolded: all stand elsewhere. */
  again() {
    for (const node of this.shown.values()) this.sizes.unobserve(node), node.remove();
    this.shown.clear();
    this.guess();
    this.draw();
  }
  get top() {
    return this.box.getBoundingClientRect().top;
  }
  /* Where items begin below what sticks to the top of the window. */
  get edge() {
    return bar.offsetHeight + (parseFloat(getComputedStyle(bar).top) || 0) + 8;
  }
  draw() {
    if (!items.length) return;
    const top = this.top;
    const first = this.heights.at(Math.max(0, -top - 600));
    const last = this.heights.at(Math.max(0, innerHeight - top + 600));
    for (const [i, node] of this.shown) {
      if (i >= first && i <= last) continue;
      this.sizes.unobserve(node);
      node.remove();
      this.shown.delete(i);
    }
    let next = this.space.nextSibling;
    for (let i = first; i <= last; i++) {
      if (this.shown.has(i)) {
        next = this.shown.get(i).nextSibling;
        continue;
      }
      if (isFolded(i)) continue;
      const node = article(i);
      this.shown.set(i, node);
      this.box.insertBefore(node, next);
      this.sizes.observe(node);
    }
    this.first = first;
    this.place();
  }
  place() {
    this.space.style.height = `${this.heights.before(this.first)}px`;
    this.box.style.height = `${this.heights.before(items.length)}px`;
  }
  measure(entries) {
    for (const { target } of entries) {
      for (const [i, node] of this.shown) {
        if (node === target && target.offsetHeight) this.heights.set(i, target.getBoundingClientRect().height);
      }
    }
    this.place();
    this.hold();
    this.draw();
  }
  /* Scrolls so that the anchor stands where it stood. */
  hold() {
    if (!this.anchor) return;
    const off = this.top + this.heights.before(this.anchor.index) - this.anchor.off - this.edge;
    if (Math.abs(off) >= 1) scrollBy(0, off);
    this.expected = scrollY;
  }
  /* The window scrolled. If the reader did it, what is at the top now is to
  ** stay there. */
  scrolled() {
    const top = this.top;
    const byReader = Math.abs(scrollY - this.expected) > 1;
    if (byReader && top > this.edge) this.anchor = null;
    else if (byReader) {
      const index = this.heights.at(this.edge - top + 1);
      this.anchor = { index, off: top + this.heights.before(index) - this.edge };
    }
    this.draw();
    return byReader;
  }
  go(i) {
    this.anchor = { index: i, off: 0 };
    this.hold();
    this.draw();
    this.hold();
  }
  refresh(i) {
    const old = this.shown.get(i);
    if (!old) return;
    const node = article(i);
    this.sizes.unobserve(old);
    old.replaceWith(node);
    this.shown.set(i, node);
    this.sizes.observe(node);
  }
}

/* ---- the list on the left ---- */

const ROW = 46;

class List {
  constructor() {
    this.rows = el("ol", "rows");
    this.box = el("nav", "list", this.rows);
    this.box.setAttribute("aria-label", "Items");
    this.fill();
    this.shown = new Map();
    this.box.addEventListener("scroll", onFrame(() => this.draw()));
    new ResizeObserver(() => this.draw()).observe(this.box);
  }
  /* The items that the chips leave. */
  fill() {
    this.all = items.map((_, i) => i).filter((i) => !isFolded(i) && FILTERS[filter].is(items[i]));
    this.indexes = this.all;
  }
  /* Shows only these items; null is all of them. */
  only(indexes) {
    this.indexes = indexes ?? this.all;
    this.redraw();
  }
  redraw() {
    this.rows.replaceChildren();
    this.shown.clear();
    this.draw();
  }
  row(i, place) {
    const item = items[i];
    const meta = el("span", "meta", say(el("span"), isTime(item.time) ? clock(item.time) : ""));
    const size = item.tokens ? `${count(item.tokens.input ?? 0)} → ${count(item.tokens.output ?? 0)}` : item.size ? bytes(item.size) : "";
    meta.append(el("span", "", size));
    if (hits.get(i)) meta.append(el("span", "hits", count(hits.get(i))));
    if (verified.has(item.n)) meta.append(el("span", `state ${verified.get(item.n)}`, verified.get(item.n)));
    const a = el("a", "", el("span", "number", String(item.n)), say(el("span", "title"), (item.title || item.type || item.kind).slice(0, 160)), meta);
    a.href = `#e${item.n}`;
    const li = el("li", item.verdict ? "verdict" : item.repeat ? "repeat" : "", a);
    if (isBad(item)) li.classList.add("bad");
    if (item.mark) li.classList.add("marked");
    if (i === current) li.classList.add("current");
    if (i === current) a.setAttribute("aria-current", "true");
    li.style.top = `${place * ROW}px`;
    return li;
  }
  draw() {
    this.rows.style.height = `${this.indexes.length * ROW}px`;
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - 4);
    const end = Math.min(this.indexes.length, first + Math.ceil(this.box.clientHeight / ROW) + 9);
    for (const [place, li] of this.shown) {
      if (place < first || place >= end) li.remove(), this.shown.delete(place);
    }
    for (let place = first; place < end; place++) {
      if (!this.shown.has(place)) this.shown.set(place, this.rows.appendChild(this.row(this.indexes[place], place)));
    }
  }
  show(i) {
    const place = this.indexes.indexOf(i);
    if (place >= 0) {
      const top = place * ROW, height = this.box.clientHeight;
      if (top < this.box.scrollTop + ROW || top > this.box.scrollTop + height - 2 * ROW) {
        this.box.scrollTop = top - height / 3;
      }
    }
    this.redraw();
  }
}

/* ---- the timeline ---- */

/* Times that never go back: those that do are changed, as few as possible. */
function inOrder(times) {
  let known = times.find(isTime) ?? 0;
  const given = times.map((t) => (known = isTime(t) ? t : known));
  const up = [...given], down = [...given];
  for (let i = 1; i < up.length; i++) up[i] = Math.max(up[i], up[i - 1]);
  for (let i = down.length - 2; i >= 0; i--) down[i] = Math.min(down[i], down[i + 1]);
  const changed = (list) => list.reduce((n, t, i) => n + (t !== given[i]), 0);
  return changed(up) <= changed(down) ? up : down;
}

/* The pauses that are not drawn to scale: far longer than usual. */
function pausesOf(times, most) {
  const steps = times.slice(1).map((t, i) => t - times[i]).filter((d) => d > 0).sort((a, b) => a - b);
  if (steps.length < 2) return Infinity;
  const total = times[times.length - 1] - times[0];
  const usual = Math.max(12 * steps[Math.floor(steps.length / 2)], total / 30, 2000);
  const longest = steps.filter((d) => d > usual);
  return longest.length > most ? longest[longest.length - most] - 1 : usual;
}

/* Times, in order, to places from 0 to width, with pauses made short. */
function timeScale(times, width) {
  const GAP = 54;
  const limit = pausesOf(times, Math.max(1, Math.floor(width / 2 / GAP)));
  let idle = 0;
  const gaps = [];
  times.forEach((t, i) => {
    if (i && t - times[i - 1] > limit) idle += gaps.push({ i, ms: t - times[i - 1] }) && t - times[i - 1];
  });
  const busy = times[times.length - 1] - times[0] - idle;
  const per = busy > 0 ? (width - gaps.length * GAP) / busy : 0;
  const x = new Float64Array(times.length);
  for (let i = 1, g = 0; i < times.length; i++) {
    const gap = gaps[g]?.i === i ? gaps[g++] : null;
    if (gap) gap.x = x[i - 1];
    x[i] = x[i - 1] + (gap ? GAP : per ? (times[i] - times[i - 1]) * per : width / (times.length - 1));
  }
  return { x, gaps, width: GAP };
}

class Timeline {
  constructor() {
    this.tip = el("div", "tip");
    this.tip.hidden = true;
    this.box = el("div", "timeline", this.tip);
    this.times = inOrder(items.map((item) => item.time));
    this.loops = items.some((item) => item.verdict || item.repeat);
    this.inTokens = items.filter((item) => item.tokens).length * 2 > items.length;
    new ResizeObserver(onFrame(() => this.draw())).observe(this.box);
    this.box.addEventListener("pointermove", (e) => this.point(e));
    this.box.addEventListener("pointerleave", () => (this.tip.hidden = true));
    this.box.addEventListener("click", (e) => go(this.nearest(e)));
  }
  draw() {
    const width = this.box.clientWidth;
    if (width < 60 || width === this.drawn) return;
    this.drawn = width;
    this.left = width < 600 ? 6 : 64;
    const inner = width - this.left - 14;
    this.scale = timeScale(this.times, inner);
    const height = 50, lane = this.loops ? 22 : 0, total = height + lane + 24;
    const root = svg("svg", { width, height: total, role: "img", "aria-label": `Timeline of ${many(items.length, "item")}` });
    this.root = root;
    this.drawGaps(root, height + lane);
    this.drawTurns(root, height + lane);
    this.drawBars(root, height);
    if (this.loops) this.drawLoop(root, height + 11);
    this.drawAxis(root, height + lane, inner);
    this.cursor = root.appendChild(svg("line", { class: "cursor", y1: 0, y2: height + lane }));
    if (this.left > 20) {
      root.append(this.label(this.inTokens ? "Tokens" : "Size", height - 4));
      if (this.loops) root.append(this.label(data.verdict ? "Loop" : "Repeats", height + 15));
    }
    this.box.replaceChildren(root, this.tip);
    this.show(current);
  }
  label(text, y) {
    return svg("text", { class: "lane", x: 0, y }, text);
  }
  at(i) {
    return this.left + this.scale.x[i];
  }
  drawGaps(root, height) {
    for (const gap of this.scale.gaps) {
      const x = this.left + gap.x + 4, middle = this.left + gap.x + this.scale.width / 2 + 2;
      root.append(svg("rect", { class: "gap", x: x + 3, y: 6, width: this.scale.width - 10, height: height - 6, rx: 3 }),
        svg("text", { class: "gap", x: middle, y: height / 2 + 2 }, ...duration(gap.ms).split(/(?<=\D) (?=\d)/).map((part, k, list) =>
          svg("tspan", { x: middle, dy: k ? 13 : list.length > 1 ? -4 : 2 }, part))));
    }
  }
  drawTurns(root, height) {
    let last = -100;
    items.forEach((item, i) => {
      const turned = i && item.turn !== undefined && item.turn !== items[i - 1].turn;
      const x = this.at(i) - 2;
      if (EDGES[item.mark]) root.append(svg("line", { class: "mark", x1: x, x2: x, y1: 0, y2: height }));
      else if (turned && x - last > 26) {
        root.append(svg("line", { class: "turn", x1: x, x2: x, y1: 0, y2: height }));
        last = x;
      }
    });
  }
  /* Bars of 2 pixels and more; of items that share a place, the largest. */
  drawBars(root, height) {
    const value = (item) => this.inTokens ? (item.tokens?.input ?? 0) + (item.tokens?.output ?? 0) : Math.sqrt(item.size ?? 1);
    const most = items.reduce((m, item) => Math.max(m, value(item)), 1);
    const wide = Math.max(2, Math.min(12, Math.floor((this.drawn / items.length) * 0.5)));
    const bins = new Map();
    items.forEach((item, i) => {
      const x = Math.round(this.at(i) / (wide + 1));
      const bin = bins.get(x);
      if (!bin || value(item) > value(items[bin])) bins.set(x, i);
    });
    for (const i of bins.values()) {
      const tall = Math.max(3, (value(items[i]) / most) * (height - 12));
      const name = items[i].verdict ? "bar verdict" : items[i].repeat ? "bar repeat" : "bar";
      root.append(svg("rect", { class: name, x: this.at(i) - wide / 2, y: height - tall, width: wide, height: tall, rx: Math.min(1.5, wide / 4) }));
      if (isBad(items[i])) root.append(svg("rect", { class: "bad", x: this.at(i) - wide / 2, y: height - tall - 4, width: wide, height: 2.5 }));
    }
  }
  /* Items that repeat each other closely are joined by a line. */
  drawLoop(root, y) {
    const last = new Map();
    root.append(svg("line", { class: "rail", x1: this.left, x2: this.drawn - 14, y1: y, y2: y }));
    items.forEach((item, i) => {
      if (!item.repeat) return;
      const before = last.get(item.repeat);
      if (i - before < 8) root.append(svg("line", { class: "loop", x1: this.at(before), x2: this.at(i), y1: y, y2: y }));
      last.set(item.repeat, i);
    });
    const used = new Set();
    items.forEach((item, i) => {
      const place = `${Math.round(this.at(i) / 3)} ${Boolean(item.verdict)}`;
      if (!(item.verdict || item.repeat) || used.has(place)) return;
      used.add(place);
      const r = item.verdict ? 5.5 : 3.5;
      root.append(svg("circle", { class: item.verdict ? "loop verdict" : "loop", cx: this.at(i), cy: y, r }));
    });
  }
  /* The clock below the first item, after each pause, and where there is room. */
  drawAxis(root, y, inner) {
    root.append(svg("line", { class: "axis", x1: this.left, x2: this.left + inner, y1: y + .5, y2: y + .5 }));
    const starts = [0, ...this.scale.gaps.map((gap) => gap.i)];
    const wanted = new Set(starts);
    for (let x = 0, i = 0; x < inner; x += 110) {
      while (i < items.length - 1 && this.scale.x[i] < x) i++;
      wanted.add(i);
    }
    let end = -1e9;
    const taken = starts.map((i) => this.at(i));
    for (const i of [...wanted].sort((a, b) => a - b)) {
      const x = this.at(i), first = starts.includes(i);
      if (x < end + 10 || x > this.drawn - 52 || !this.times[i]) continue;
      if (!first && taken.some((t) => t > x && t < x + 62)) continue;
      root.append(svg("line", { class: "axis", x1: x, x2: x, y1: y, y2: y + 5 }),
        svg("text", { class: "time", x: x - 2, y: y + 18 }, clock(this.times[i])));
      end = x + 52;
    }
  }
  nearest(e) {
    if (!this.scale) return 0;
    const x = e.clientX - this.box.getBoundingClientRect().left - this.left;
    const list = this.scale.x;
    let a = 0, b = list.length - 1;
    while (b - a > 1) {
      const m = (a + b) >> 1;
      if (list[m] < x) a = m;
      else b = m;
    }
    return x - list[a] < list[b] - x ? a : b;
  }
  point(e) {
    const i = this.nearest(e), item = items[i];
    if (!item || !this.scale) return;
    const detail = item.tokens ? `${count(item.tokens.input ?? 0)} → ${count(item.tokens.output ?? 0)} tokens` : bytes(item.size ?? 0);
    this.tip.replaceChildren(el("b", "", `#${item.n}`), ` ${clock(item.time)} · ${detail}`, say(el("span", "title"), (item.title ?? "").slice(0, 120)));
    this.tip.hidden = false;
    const x = Math.min(Math.max(this.at(i) - 120, 0), this.drawn - 260);
    this.tip.style.left = `${x}px`;
  }
  show(i) {
    if (!this.cursor || !items.length) return;
    const x = this.at(i);
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
  }
}

/* ---- search ---- */

let query = "";
let searching = 0;
const hits = new Map();
const searchable = new Map();
let searchableSize = 0;

const pause = () => new Promise((go) => setTimeout(go));

function occurrences(text, what) {
  let n = 0;
  for (let at = text.indexOf(what); at >= 0; at = text.indexOf(what, at + what.length)) n++;
  return n;
}

async function lowerText(i) {
  if (searchable.has(i)) return searchable.get(i);
  const text = await searchText(i);
  if (searchableSize + text.length < 5e7) {
    searchable.set(i, text);
    searchableSize += text.length;
  }
  return text;
}

/* Whether the body of an item may have a word: it stands in JSON as it is, unless a
** letter is escaped. So an item is not read when the bytes do not have the word. */
const ESCAPED = /\\u00(?:3\d|[46][1-9a-f]|[57][0-9a])/;

function wordFilter(word) {
  const places = new Map();
  const find = async (number) => {
    const text = new TextDecoder("latin1").decode(await block(number)).toLowerCase();
    const at = ESCAPED.test(text) ? null : [];
    for (let i = text.indexOf(word); at && i >= 0; i = text.indexOf(word, i + 1)) at.push(i);
    places.set(number, at);
  };
  const within = (at, start, end) => {
    let low = 0, high = at.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (at[middle] < start) low = middle + 1; else high = middle;
    }
    return at[low] < end;
  };
  return async (item) => {
    if (item.type?.toLowerCase().includes(word)) return true;
    for (const part of item.parts) {
      if (PICTURE.test(part.type)) continue;
      if (part.type !== "application/json") return true;
      for (const [number, start, length] of part.pieces) {
        if (!places.has(number)) await find(number);
        const at = places.get(number);
        if (!at || within(at, start, start + length)) return true;
        if (part.role === "response" && part.pieces[0][1] === start && (await block(number))[start] === 91) return true;
      }
    }
    return false;
  };
}

/* Titles at once, then what the items say, in steps that leave the page free. */
async function search(what) {
  query = what.trim().toLowerCase();
  const turn = ++searching;
  hits.clear();
  CSS.highlights?.clear();
  if (!query) return showHits("");
  items.forEach((item, i) => {
    const n = occurrences((item.title ?? "").toLowerCase(), query);
    if (n) hits.set(i, n);
  });
  showHits("…");
  let since = performance.now(), told = since;
  const words = (query.match(/[a-z0-9_]{3,}/g) ?? []).map(wordFilter);
  const may = async (item) => {
    for (const word of words) if (!(await word(item))) return false;
    return true;
  };
  for (let i = 0; i < items.length; i++) {
    try {
      if (!searchable.has(i) && !(await may(items[i]))) continue;
      const n = occurrences(await lowerText(i), query);
      if (turn !== searching) return;
      if (n) hits.set(i, n);
    } catch { /* a body that cannot be read has its title only */ }
    if (performance.now() - since < 14) continue;
    if (since - told > 150) showHits(`… ${Math.round((i / items.length) * 100)} %`), (told = since);
    await pause();
    if (turn !== searching) return;
    since = performance.now();
  }
  showHits("");
  for (const i of stream.shown.keys()) stream.refresh(i);
}

function showHits(rest) {
  const total = [...hits.values()].reduce((a, b) => a + b, 0);
  $("hits").textContent = query ? `${total ? `${count(total)} in ${count(hits.size)}` : "none"} ${rest}` : "";
  $("hits").title = query ? `${many(total, "match", "matches")} in ${many(hits.size, "item")}` : "";
  list.only(query ? [...hits.keys()].sort((a, b) => a - b) : null);
  lightSoon();
}

/* Marks what was found in the items that are shown, without changing them. */
let lit = [];
let lightTimer = 0;

function lightSoon() {
  clearTimeout(lightTimer);
  lightTimer = setTimeout(lightUp, 40);
}

function lightUp() {
  if (!CSS.highlights || !window.Highlight) return;
  lit = [];
  if (query) {
    const walk = document.createTreeWalker(stream.box, NodeFilter.SHOW_TEXT);
    for (let node; (node = walk.nextNode()) && lit.length < 5000; ) {
      const text = node.data.toLowerCase();
      if (text.length !== node.data.length || node.parentElement.closest("header, button")) continue;
      for (let at = text.indexOf(query); at >= 0; at = text.indexOf(query, at + query.length)) {
        const range = new Range();
        range.setStart(node, at);
        range.setEnd(node, at + query.length);
        lit.push(range);
      }
    }
  }
  CSS.highlights.set("found", new Highlight(...lit));
}

/* Goes to the next place that was found, or the one before. */
function next(step) {
  if (!hits.size) return;
  const y = stream.edge;
  const places = lit.map((range) => range.getBoundingClientRect()).filter((r) => r.height);
  const inItem = places.filter((r) => (step > 0 ? r.top > innerHeight - 20 : r.bottom < y))
    .filter((r) => {
      const node = stream.shown.get(current)?.getBoundingClientRect();
      return node && r.top >= node.top && r.bottom <= node.bottom;
    });
  if (inItem.length) {
    const r = step > 0 ? inItem[0] : inItem[inItem.length - 1];
    stream.anchor = null;
    scrollBy(0, r.top - y - innerHeight / 3);
    return;
  }
  const order = list.indexes;
  const after = step > 0 ? order.find((i) => i > current) ?? order[0]
    : [...order].reverse().find((i) => i < current) ?? order[order.length - 1];
  go(after);
}

/* ---- copy ---- */

async function jsonOf(i) {
  const { parts, leaf, ...rest } = items[i];
  const out = [];
  for (const part of parts || []) {
    if (PICTURE.test(part.type)) {
      out.push({ role: part.role, type: part.type, size: part.size });
      continue;
    }
    const text = await partText(part);
    out.push({ role: part.role, type: part.type, body: text });
  }
  const write = (bodyOf) => JSON.stringify({ ...rest, leaf, parts: out.map((part) => ({ ...part, body: bodyOf(part.body) })) }, null, 2);
  try {
    return write((text) => tryJson(text) ?? text);
  } catch {  /* it is too deep */
    return write((text) => text);
  }
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.body.appendChild(el("textarea", "away"));
    area.value = text;
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/* ---- where the reader is ---- */

let current = 0;
const verified = new Map();
const usualStatus = items.every((item) => item.status === items[0].status) ? items[0]?.status : "200";
const firstOf = new Map();
items.forEach((item, i) => item.repeat && !firstOf.has(item.repeat) && firstOf.set(item.repeat, i));
const pauseFrom = items.length > 2 ? Math.max(60000, pausesOf(inOrder(items.map((item) => item.time)), 50)) : 60000;

function point(i) {
  if (i === current || !items[i]) return;
  stream.shown.get(current)?.classList.remove("current");
  current = i;
  stream.shown.get(i)?.classList.add("current");
  list.show(i);
  timeline.show(i);
  film?.show(i);
}

function go(i, focus, keep) {
  if (!items[i]) return;
  if (isFolded(i)) unfold(true);
  stream.go(i);
  point(i);
  document.body.classList.remove("listing");
  try {
    history[keep ? "pushState" : "replaceState"](null, "", `#e${items[i].n}`);
  } catch { /* some browsers refuse it for files */ }
  if (focus) stream.shown.get(i)?.focus({ preventScroll: true });
}

function followHash() {
  const i = byNumber.get(/^#e(\d+)$/.exec(location.hash)?.[1]);
  if (i !== undefined) go(i);
}

/* ---- proofs ---- */

const TYPES = { integer: 1, text: 3, blob: 4, null: 5 };
const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const equal = (a, b) => a.length === b.length && a.every((byte, i) => byte === b[i]);

async function sha(...pieces) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", await new Blob(pieces).arrayBuffer()));
}

/* A whole number in eight bytes. */
function whole(n) {
  const view = new DataView(new ArrayBuffer(8));
  view.setBigInt64(0, BigInt(n));
  return view.buffer;
}

/* A field of a leaf: the length of its name, the name, its type, its hash (NULL has none). If the
** page has the salt of the leaf, the hash is made of the value; kind part means that
** the value is a part of the item. */
async function fieldOf(salt, [name, kind, value, inner], parts) {
  const head = [Uint8Array.of(name.length), name];
  if (!salt) return [...head, Uint8Array.of(kind), kind === TYPES.null ? "" : fromHex(value)];
  const type = Uint8Array.of(TYPES[inner ?? kind]);
  if (kind === "null") return [...head, type];
  const is = kind === "integer" ? whole(value)
    : kind === "part" ? await partBytes(parts[value]) : value;
  return [...head, type, await sha(await sha(fromHex(salt), name), type, is)];
}

async function hashOf({ n, kept, salt, fields }, parts) {
  const fed = [];
  for (const field of fields) fed.push(...await fieldOf(salt, field, parts));
  return sha(Uint8Array.of(0), "blackbox log 1\n", whole(n), whole(kept), await sha(...fed));
}

/* The root to which the path of a leaf leads (RFC 9162, 2.1.3.2). */
async function rootOf(hash, index, size, path) {
  let node = index, last = size - 1;
  for (const step of path) {
    const other = fromHex(step);
    const left = node % 2 === 1 || node === last;
    while (left && node && node % 2 === 0) {
      node = Math.floor(node / 2);
      last = Math.floor(last / 2);
    }
    hash = left ? await sha(Uint8Array.of(1), other, hash) : await sha(Uint8Array.of(1), hash, other);
    node = Math.floor(node / 2);
    last = Math.floor(last / 2);
  }
  return last ? new Uint8Array() : hash;
}

/* Whether an item shows nothing but what the fields of its leaf have. */
function isOf({ parts, time }, fields) {
  const named = fields.filter(([, kind]) => kind === "part").map((field) => field[2]);
  const at = fields.find(([name]) => name === "row.created_at")?.[2] ?? "";
  const then = Date.parse(at.endsWith("Z") ? at : `${at.replace(" ", "T")}Z`);
  return parts.every((_, i) => named.includes(i)) && (Number.isNaN(then) || then === time);
}

/* verified, altered, or redacted: the leaf is in the log, but what it is of is
** not in this page as it was. */
async function stateOf({ leaf, parts, time }, size, root) {
  if (!leaf.path || (leaf.salt && !isOf({ parts, time }, leaf.fields))) return "altered";
  const found = await rootOf(await hashOf(leaf, parts), leaf.n - 1, size, leaf.path);
  return !equal(found, root) ? "altered" : leaf.salt ? "verified" : "redacted";
}

async function verify(said) {
  const [, size, root] = data.proof.head.split("\n");
  const wanted = Uint8Array.from(atob(root), (c) => c.charCodeAt(0));
  const found = { verified: [], redacted: [], altered: [] };
  for (const item of items) {
    if (!item.leaf) continue;
    const state = await stateOf(item, Number(size), wanted).catch(() => "altered");
    found[state].push(item);
    verified.set(item.n, state);
    if (verified.size % 50 === 0) said.textContent = `${count(verified.size)} …`, await pause();
  }
  const rest = items.length - verified.size;
  said.textContent = `${count(found.verified.length)} verified, ${count(found.redacted.length)} redacted, ` +
    `${count(found.altered.length)} altered${rest ? `, ${count(rest)} not in a proof` : ""}. `;
  said.className = found.altered.length ? "altered" : "verified";
  found.altered.slice(0, 20).forEach((item) => said.append(itemLink(byNumber.get(String(item.n))), " "));
  list.redraw();
  for (const i of stream.shown.keys()) stream.refresh(i);
}

function offerProof() {
  if (!data.proof?.head || !items.some((item) => item.leaf)) return;
  const said = el("p");
  said.setAttribute("role", "status");
  const start = button("verify", "Verify in this browser", () => {
    start.disabled = true;
    verify(said).catch((error) => say(said, `The proof cannot be read: ${error.message}`)).finally(() => (start.disabled = false));
  });
  if (!globalThis.crypto?.subtle) {
    start.disabled = true;
    said.textContent = "This browser has no WebCrypto for pages that are opened from files.";
  }
  $("proof").append(start, said);
}

/* ---- the static part ---- */

/* Bars behind the numbers of a column, as parts of its largest. */
function drawColumn(rows, values, column) {
  const most = Math.max(...values.map((row) => Number(row[column]) || 0));
  if (!(most > 0) || rows.length < 2) return;
  rows.forEach((row, i) => {
    const cell = row.cells[column];
    const bar = el("span", "bar");
    bar.style.width = `${((Number(values[i]?.[column]) || 0) / most) * 100}%`;
    cell.classList.add("barred");
    cell.prepend(bar);
  });
}

/* Long tables show their first rows, and the rest when asked. */
function foldTable(table) {
  const rows = [...table.tBodies[0]?.rows ?? []].slice(10);
  if (rows.length < 4) return;
  for (const row of rows) row.classList.add("folded");
  const all = button("more", `show all ${count(rows.length + 10)}`, () => {
    for (const row of rows) row.classList.remove("folded");
    all.remove();
  });
  table.after(all);
}

/* A table that is wider than the window scrolls in a box of its own. */
function boxTable(table) {
  const box = el("div", "wide");
  table.replaceWith(box);
  box.append(table);
  new ResizeObserver(() => {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }).observe(box);
}

function dressTables() {
  for (const given of data.tables || []) {
    const table = $(given.id)?.querySelector("table");
    if (!table) continue;
    given.types.forEach((type, column) => {
      if (type === "bytes") drawColumn([...table.tBodies[0].rows], given.rows, column);
    });
  }
  for (const table of document.querySelectorAll("section:not(#items) > table")) {
    boxTable(table);
    foldTable(table);
  }
}

/* How many lines an edit adds and removes, in its title. */
async function countEdits() {
  for (const [i, item] of items.entries()) {
    if (item.role !== "call" || !/^(\S*(edit|write|patch|replace|create)\S*) /i.test(item.title)) continue;
    const model = await parse(i).catch(() => null);
    let more = 0, less = 0;
    for (const b of (model?.said ?? []).filter((m) => m.answer || item.kind === "item").flatMap((m) => m.blocks)) {
      for (const [, before, after] of b.kind === "call" ? editsOf(b.args) : []) {
        const lines = before === null ? after.split("\n") : diffLines(before, after);
        more += lines.filter((line) => line[0] === "+").length;
        less += lines.filter((line) => line[0] === "-").length;
      }
    }
    const [name, ...end] = item.title.split(" → ");
    if (more || less) item.title = [`${name}${more ? ` +${more}` : ""}${less ? ` −${less}` : ""}`, ...end].join(" → ");
    if (i % 20 === 0) await pause();
  }
  list.redraw();
}

/* On paper the first lines of each item stand below its title. They are read
** while nothing else is to do. */
async function linesForPaper() {
  const idle = (act) => (globalThis.requestIdleCallback ?? setTimeout)(act);
  for (let i = 0; i < items.length; i++) {
    await new Promise(idle);
    const cell = $(`e${items[i].n}`)?.cells[2];
    const model = await read(i).catch(() => null);
    if (!cell || !model) continue;
    for (const m of [model.said.filter((one) => !one.answer && !one.old).pop(), model.said.find((one) => one.answer)]) {
      const text = m && textsOf(m.blocks, []).join(" ").slice(0, 320);
      if (text) cell.append(say(el("div", "paper", el("b", "", `${m.role} `)), text));
    }
  }
}

/* ---- the answer, in five lines ---- */

const factOf = (name) => data.facts.find((f) => f.name === name)?.value;

function answerLines() {
  const v = data.verdict, loop = items.filter((item) => item.verdict), last = loop[loop.length - 1];
  const errors = items.filter(isBad), bad = errors[errors.length - 1], asked = factOf("Asked first");
  const shown = items.filter((item) => !isQuiet(item) && item.title), end = shown[shown.length - 1];
  const pull = data.pins.find((pin) => /^(kill switch|agent: stop)/.test(pin.what)), agent = factOf("Agent");
  const tokens = (list) => list.reduce((sum, item) => sum + (item.tokens ? item.tokens.input + item.tokens.output : 0), 0);
  const others = (data.tables.find((t) => t.id === "verdicts")?.rows ?? []).filter((row) => row[1] !== v?.rule && v);
  const line = (text) => text.trim().replace(/\s+/g, " ").slice(0, 200) + (text.length < 200 ? "" : " …");
  const plain = (title) => title.replace(/\*\*|^#+ /g, "");
  const u = data.usage, share = loop.length && tokens(items) ? Math.round((100 * tokens(loop)) / tokens(items)) : 0;
  const stopped = factOf("Stop") ?? factOf("Stopped by");
  const sql = (act) => `INSERT INTO payload_agent_log(agent_id, act, actor, reason) VALUES('${String(agent).replaceAll("'", "''")}', '${act}', 'you', 'why')`;
  return [
    ["What it did", [asked && `Asked: ${line(asked)}`, v && loop.length ? `It called ${loop[0].title}, ${v.count} times`
      : end && `${many(items.length, "item")}; the last one: ${plain(end.title)}`], loop.length ? loop : [end]],
    [v || pull ? "Why it was stopped" : "What went wrong", [v ? `${v.reason} (rule ${v.rule}, ${v.count} of ${v.threshold})` : pull?.reason,
      others.length && `Also: ${[...new Set(others.map((row) => `${row[1]} (${row[2]}, ${row[3]} of ${row[4]})`))].join(", ")}`,
      last?.said && `The tool said: ${last.said}`,
      bad && bad !== last && `${count(errors.length)} of ${count(items.length)} failed; the last one: ${bad.title}${bad.said && !bad.title.includes(bad.said) ? `: ${bad.said}` : ""}`],
      [bad !== last && bad]],
    ["When, and by whom", [pull ? `${day(pull.time)} ${clock(pull.time)}, by ${pull.actor}` : items[0].time &&
      `${day(items[0].time)} ${clock(items[0].time)}, ${duration(items[items.length - 1].time - items[0].time)} long`, stopped && `${stopped[0].toUpperCase()}${stopped.slice(1)}`], []],
    ["What it cost", [u && `${u.cost ? `${u.cost.toFixed(2)} USD: ` : ""}${count(u.input + u.cacheRead + u.cacheWrite)} tokens in, ${count(u.output)} out`,
      loop.length && share && `The loop: ${count(loop.length)} of ${many(items.length, "exchange")}, ${share} % of the tokens`], []],
    ["What to do next", [agent && v && (stopped
      ? `When it is mended, start the agent again: ${sql("start")}. If this was work and no loop, allow it in payload_allows`
      : `The agent is not stopped: ${sql("stop")}`)], [last ?? bad]]];
}

function answerBox() {
  const list = el("dl");
  for (const [name, said, named] of answerLines()) {
    const text = said.filter(Boolean).reduce((all, one) => `${all}${/[.:?!…]$/.test(all) ? "" : "."} ${one}`, "").slice(2);
    const links = named.filter(Boolean).slice(0, 20).flatMap((item) => [" ", itemLink(byNumber.get(String(item.n)))]);
    if (!text && !links.length) continue;
    const dd = el("dd"), next = name === "What to do next" && links.length;
    if (next) dd.append("Look at", ...links, text && ". ");
    say(dd, text);
    if (!next) dd.append(...links);
    list.append(el("div", "", el("dt", "", name), dd));
  }
  const box = el("section", data.verdict ? "verdict" : "", el("h2", "", "In short"), list);
  box.id = "answer";
  document.querySelector("header.case").after(box);
}

/* ---- keys and start ---- */

const KEYS = [["j", "next item"], ["k", "previous item"], ["e", "next error, Shift: the one before"], ["l", "next of the loop"],
              ["m", "next new message"], ["/", "search"], ["Enter", "next match, Shift: the one before"],
              ["o", "open or fold what came before"], ["?", "this help"], ["Esc", "leave the search, close"]];

const help = el("dialog", "help", el("h2", "", "Keys"),
  el("dl", "", ...KEYS.map(([key, what]) => el("div", "", el("dt", "", el("kbd", "", key)), el("dd", "", what)))),
  button("", "Close", () => help.close()));

const field = el("input");
field.type = "search";
field.placeholder = "Search titles and bodies";
field.setAttribute("aria-label", "Search titles and bodies");
const hitCount = el("output", "hits");
hitCount.id = "hits";

const small = (label, name, act) => {
  const b = button("icon", label, act);
  b.setAttribute("aria-label", name);
  b.title = name;
  return b;
};

const barTop = el("div", "tools",
  small("☰", "The list", () => document.body.classList.toggle("listing")),
  el("h2", "", many(items.length, items[0]?.kind ?? "item")), chipBar(),
  el("div", "search", field, hitCount, small("↑", "Previous match", () => next(-1)), small("↓", "Next match", () => next(1))),
  small("?", "Keys", () => help.showModal()));
const bar = el("div", "sticky", barTop);
const stream = new Stream();
const list = new List();
const timeline = new Timeline();
const film = items[0]?.kind === "action" ? filmStrip() : null;

function onKey(e) {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName);
  if (e.ctrlKey || e.metaKey || e.altKey || help.open) return;
  if (e.key === "Escape") {
    document.body.classList.remove("listing");
    if (typing || query) {
      field.value = "";
      field.blur();
      search("");
    }
  } else if (typing) {
    if (e.key !== "Enter") return;
    next(e.shiftKey ? -1 : 1);
  } else if (e.key === "j" || e.key === "k") {
    const order = query && hits.size ? list.indexes : list.all;
    const place = order.indexOf(current);
    const started = stream.top <= stream.edge + 2;
    go(e.key === "j" ? (started ? order[place + 1] ?? order.find((i) => i > current) : current)
      : order[place - 1] ?? current, true);
  } else if (/^[elm]$/i.test(e.key)) {
    step({ e: "errors", l: "loop", m: "messages" }[e.key.toLowerCase()], e.key === e.key.toLowerCase() ? 1 : -1);
  } else if (e.key === "/") {
    field.focus();
    field.select();
  } else if (e.key === "?") help.showModal();
  else if (e.key === "o" || (e.key === "Enter" && e.target.tagName === "ARTICLE")) {
    stream.shown.get(current)?.querySelector("details > summary")?.click();
  } else if (e.key === "Enter" && query && !/^(A|BUTTON|SUMMARY)$/.test(e.target.tagName)) next(e.shiftKey ? -1 : 1);
  else return;
  if (e.key !== "Escape") e.preventDefault();
}

/* What is at the top of the window becomes the current item. */
function onScroll() {
  if (stream.scrolled() && stream.anchor) point(stream.anchor.index);
}

function start() {
  document.documentElement.classList.add("scripted");
  dressTables();
  offerProof();
  for (const time of document.querySelectorAll("time")) {
    const ms = Date.parse(time.dateTime);
    if (!isTime(ms)) continue;
    time.title = time.textContent;
    time.textContent = `${day(ms)} ${clock(ms)}`;
  }
  document.body.append(help);
  if (!items.length) return;
  answerBox();
  const app = el("section", "app", bar, el("div", "split", list.box, stream.box));
  app.setAttribute("aria-label", "Items");
  if (items.length > 999) app.classList.add("many");
  if (film) app.classList.add("filmed");
  bar.append(timeline.box);
  if (film) bar.append(film.box);
  new ResizeObserver(() => {
    document.documentElement.style.setProperty("--top", `${bar.offsetHeight}px`);
    stream.hold();
  }).observe(bar);
  document.querySelector("main").append(app);
  const rest = [...document.querySelectorAll("main > section:not(#answer):not(#items):not(.app)")];
  const names = rest.map((section) => section.querySelector("h2").textContent);
  const details = el("details", "rest", el("summary", "", names.slice(0, 9).join(" · ")), el("div", "grid", ...rest));
  app.before(details);
  addEventListener("beforeprint", () => (details.open = true));
  pressChips();
  let timer = 0;
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => search(field.value), items.length > 1000 ? 150 : 90);
  });
  addEventListener("scroll", onFrame(onScroll), { passive: true });
  addEventListener("resize", onFrame(() => stream.draw()));
  addEventListener("hashchange", followHash);
  addEventListener("popstate", followHash);
  document.addEventListener("click", (e) => {
    const href = e.target.closest?.("a[href^='#e']")?.getAttribute("href");
    const i = href && byNumber.get(href.slice(2));
    if (i === undefined || !href) return;
    e.preventDefault();
    go(i, true, true);
  });
  document.addEventListener("keydown", onKey);
  stream.draw();
  list.draw();
  timeline.draw();
  if (location.hash) followHash();
  else {  /* the page opens at the verdict */
    const first = items.findIndex((item) => item.verdict);
    point(Math.max(first, list.all[0] ?? 0));
  }
  setTimeout(countEdits, 100);
  if (items.length <= 500) setTimeout(linesForPaper, 400);
}

start();
})();
