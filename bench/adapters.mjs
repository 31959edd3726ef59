// adapters.mjs MODULE FOLDER: measures the adapters of npm beside what they take the place of.
// It prints its cases, as [["case", "the other side", limit or null] ...]. Then for each line on
// standard input, ["case", "side"], it prints the seconds that half of its acts need at most. It
// runs in a folder with node_modules and the adapters (see adapters.py).
import { SqliteSaver } from "@langchain/langgraph-checkpoint-sqlite";
import { emptyCheckpoint, uuid6 } from "@langchain/langgraph-checkpoint";
import Database from "better-sqlite3";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { BlackboxSession } from "./agents.js";
import { BlackboxSaver } from "./langgraph.js";

const [, , module, folder] = process.argv;

function open(name, loaded) {
  const db = new Database(join(folder, `${name}.db`));
  db.pragma("journal_mode = WAL");
  db.pragma("synchronous = NORMAL");
  return loaded ? db.loadExtension(module) : db;
}

const OFFICIAL = "the official saver";
const PLAIN = "a plain table";

// ------------------------------------------------------------------ savers

const meta = (step) => ({ source: "loop", step, parents: {} });
const message = (i) => ({ role: i % 2 ? "assistant" : "user", content: `${i} ${"what is said ".repeat(20)}` });

/** A thread of so many steps. Each adds a message to one of the channels, and has two writes. */
async function thread(saver, id, steps, messages) {
  let config = { configurable: { thread_id: id, checkpoint_ns: "" } };
  const log = [];
  for (let i = 1; i <= steps; i++) {
    if (log.length < messages) log.push(message(i));
    const channel_values = { messages: [...log], topic: "parcels", turn: i, "branch:to:agent": null };
    const changed = { messages: i, turn: i, "branch:to:agent": i };
    const checkpoint = {
      ...emptyCheckpoint(), id: uuid6(i), channel_values, channel_versions: { topic: 1, ...changed },
      versions_seen: { __input__: {}, agent: { "branch:to:agent": i }, tools: { messages: i } },
    };
    config = await saver.put(config, checkpoint, meta(i), i === 1 ? { topic: 1, ...changed } : changed);
    await saver.putWrites(config, [["messages", message(i)], ["turn", i]], `task-${i}`);
  }
  return config;
}

async function savers(steps, messages) {
  const made = {};
  for (const [side, Saver] of [["blackbox", BlackboxSaver], [OFFICIAL, SqliteSaver]]) {
    const saver = new Saver(open(`${steps} ${messages} ${side}`, side === "blackbox"));
    for (let i = 0; i < 20; i++) await thread(saver, `t${i}`, steps, messages);
    made[side] = { saver, last: await saver.getTuple({ configurable: { thread_id: "t7" } }) };
  }
  return made;
}

const t7 = { configurable: { thread_id: "t7", checkpoint_ns: "" } };

async function drain(list) {
  for await (const _ of list);
}

/** Cases of savers with threads of so many steps, whose state grows to so many messages. */
function saverCases(name, steps, messages) {
  let made;
  let next = 0;
  const of = (calls, limit, act) => [OFFICIAL, limit, calls, async (side) => {
    const { saver, last } = (await (made ??= savers(steps, messages)))[side];
    return () => act(saver, last);
  }];
  return {
    [`getState, ${name}`]: of(200, 1.3, (saver) => saver.getTuple(t7)),
    [`getState by id, ${name}`]: of(200, 1.3, (saver, last) => saver.getTuple(last.config)),
    [`list of ${steps}, ${name}`]: of(10, 1.3, (saver) => drain(saver.list(t7))),
    [`list of 10, ${name}`]: of(30, 1.3, (saver) => drain(saver.list(t7, { limit: 10 }))),
    [`a step is put, ${name}`]: of(50, null, (saver) => thread(saver, `new ${next++}`, 1, 1)),
  };
}

// ---------------------------------------------------------------- sessions

/** A session in a plain table: what a program writes that needs no more. */
class PlainSession {
  constructor(db, { sessionId }) {
    this.id = sessionId;
    db.exec("CREATE TABLE IF NOT EXISTS items(id INTEGER PRIMARY KEY, session TEXT NOT NULL, item TEXT NOT NULL);"
      + "CREATE INDEX IF NOT EXISTS items_of ON items(session)");
    const insert = db.prepare("INSERT INTO items(session, item) VALUES (?, ?)");
    this.add = db.transaction((items) => {
      for (const item of items) insert.run(this.id, JSON.stringify(item));
    });
    this.get = db.prepare("SELECT item FROM items WHERE session = ? ORDER BY id");
    this.newest = db.prepare(
      "SELECT item FROM (SELECT id, item FROM items WHERE session = ? ORDER BY id DESC LIMIT ?) ORDER BY id");
  }

  async addItems(items) {
    this.add(items);
  }

  async getItems(limit) {
    const rows = limit === undefined ? this.get.all(this.id) : this.newest.all(this.id, limit);
    return rows.map((row) => JSON.parse(row.item));
  }
}

/** The items of turns: what a user asks, a call, its result, an answer. */
function turns(n) {
  return Array.from({ length: n }, (_, i) => [
    { type: "message", role: "user", content: `Where is my parcel ${i}? ${"I wait for it. ".repeat(10)}` },
    { type: "function_call", callId: `c${i}`, name: "order", arguments: `{"id":${i}}`, status: "completed" },
    { type: "function_call_result", callId: `c${i}`, name: "order", status: "completed",
      output: { type: "text", text: "sent on Monday, ".repeat(60) } },
    { type: "message", role: "assistant", status: "completed",
      content: [{ type: "output_text", text: "It is on its way. ".repeat(20) }] },
  ]).flat();
}

let sessions;
function session(side) {
  sessions ??= Object.fromEntries([["blackbox", BlackboxSession], [PLAIN, PlainSession]].map(
    ([label, Session]) => {
      const db = open(label, label === "blackbox");
      return [label, (sessionId) => new Session(db, { sessionId })];
    }));
  return sessions[side];
}

function sessionCases() {
  const made = new Map();
  const of = (n, act) => [PLAIN, 2, 100, async (side) => { // in a session of so many turns
    const key = `${side}, ${n}`;
    if (!made.has(key)) {
      made.set(key, session(side)(key));
      await made.get(key).addItems(turns(n));
    }
    return () => act(made.get(key));
  }];
  const [asked, called, result, said] = turns(1);
  return {
    "addItems, a message": of(1, (one) => one.addItems([asked])),
    "addItems, a call and its result": of(1, (one) => one.addItems([called, result])),
    "addItems, a turn of 4": of(1, (one) => one.addItems([asked, called, result, said])),
    "addItems, 40 items": of(1, (one) => one.addItems(turns(10))),
    "getItems of 200": of(50, (one) => one.getItems()),
    "getItems(20) of 4,000": of(1000, (one) => one.getItems(20)),
  };
}

const cases = { ...saverCases("2 messages", 20, 2), ...saverCases("40 messages", 60, 40), ...sessionCases() };

console.log(JSON.stringify(Object.entries(cases).map(([name, [other, limit]]) => [name, other, limit])));
for await (const line of createInterface({ input: process.stdin })) {
  const [name, side] = JSON.parse(line);
  const [, , calls, prepare] = cases[name];
  const act = await prepare(side);
  const times = [];
  for (let i = 0; i < calls; i++) {
    const start = process.hrtime.bigint();
    await act();
    times.push(Number(process.hrtime.bigint() - start));
  }
  console.log(times.sort((a, b) => a - b)[calls >> 1] / 1e9);
}
