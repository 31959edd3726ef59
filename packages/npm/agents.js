// agents.js: a session of the OpenAI Agents SDK as a conversation of rollout.
//
//   await run(agent, "hello", { session: new BlackboxSession(db, { sessionId: "case-7" }) });
//
// The id of the conversation is the id of the session if that is a UUID, and is made from
// it otherwise; rollouts.source_id has the id of the session. Each item is a response_item.
// Nothing is taken out of the conversation: popItem() appends an event item_popped, and
// replaceHistoryWithCompaction() an item compacted, as Codex does. getItems() reads what
// these leave. clearSession() deletes the conversation, with a receipt, unless a hold
// keeps it (HeldError).
//
// Invariants: addItems() adds all items or none. A tool output is never returned without
// its call, which stands before it.
//
// Limits: an item must be JSON; bytes (Uint8Array) in it are stored as Base64. A session
// that has expired (ttlDays) takes no items.
import { createHash, randomUUID } from "node:crypto";
import { atomically } from "./database.js";

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const FORMAT = "openai-agents";
const PAGE = 100;

export class BlackboxSession {
  #db;
  #id;
  #rollout;
  #expires;

  constructor(db, { sessionId = randomUUID(), ttlDays } = {}) {
    this.#db = db;
    this.#id = sessionId;
    this.#rollout = UUID.test(sessionId) ? sessionId.toLowerCase() : named(sessionId);
    this.#expires = ttlDays;
    db.prepare("SELECT blackbox_install('main', 'rollout')").get();
  }

  /** The id of the conversation in the view rollouts. */
  get rolloutId() {
    return this.#rollout;
  }

  async getSessionId() {
    return this.#id;
  }

  async getItems(limit = Infinity) {
    return withCalls(atomically(this.#db, () => this.#newest(limit)));
  }

  async addItems(items) {
    if (items.length > 0) this.#append(items.map((item) => ["response_item", item]));
  }

  async popItem() {
    if (this.#newest(1).length === 0) return undefined;
    return atomically(this.#db, () => {
      this.#append([["event_msg", { type: "item_popped" }]]);
      return this.#newest(1, -1)[0]; // without that event
    });
  }

  async clearSession() {
    this.#db.prepare("DELETE FROM rollouts WHERE id = ?").run(this.#rollout);
  }

  async replaceHistoryWithCompaction(items) {
    this.#append([["compacted", { message: "", replacement_history: items }]]);
  }

  #append(entries) {
    const payloads = entries.map(([, payload]) => JSON.stringify(payload, encoded));
    atomically(this.#db, () => {
      this.#start();
      const insert = this.#db.prepare("INSERT INTO rollout_items(rollout, type, payload) VALUES (?, ?, ?)");
      entries.forEach(([type], i) => insert.run(this.#rollout, type, payloads[i]));
      // what lists show of the items is derived by a call
      this.#db.prepare("SELECT rollout_append(?, '[]')").get(this.#rollout);
    });
  }

  /** Starts the conversation, if there is none. */
  #start() {
    const meta = { originator: FORMAT, blackbox: { format: FORMAT, id: this.#id } };
    const days = this.#expires;
    const expires = typeof days === "number" ? BigInt(Math.round(Date.now() + days * 86400000)) : days;
    this.#db
      .prepare(
        `INSERT INTO rollouts(id, session_meta, expires_at) SELECT ?, ?, ?
          WHERE NOT EXISTS (SELECT 1 FROM rollouts WHERE id = ?)`,
      )
      .run(this.#rollout, JSON.stringify(meta), expires ?? null, this.#rollout);
  }

  /** The newest items, oldest first. popped: how many items are taken back. */
  #newest(limit, popped = 0) {
    const items = [];
    const take = (item) => (popped > 0 ? popped-- : items.push(item));
    for (const [type, payload] of this.#backwards()) {
      if (items.length >= limit) break;
      if (type === "response_item") take(payload);
      else if (type === "event_msg" && payload.type === "item_popped") popped++;
      else if (type === "compacted") {
        payload.replacement_history.reverse().forEach(take);
        break;
      }
    }
    return items.slice(0, limit).reverse();
  }

  *#backwards() {
    const page = this.#db.prepare(
      `SELECT sequence, type, payload FROM rollout_items
        WHERE rollout = ? AND sequence < ? ORDER BY sequence DESC LIMIT ${PAGE}`,
    );
    let rows = [{ sequence: 2 ** 32 }];
    do {
      rows = page.all(this.#rollout, BigInt(rows.at(-1).sequence));
      for (const { type, payload } of rows) yield [type, JSON.parse(payload, decoded)];
    } while (rows.length === PAGE);
  }
}

/** A UUID (version 8) that is the same for the same name. */
function named(name) {
  const hex = createHash("sha256").update(`${FORMAT}\n${name}`).digest("hex");
  const parts = [hex.slice(0, 8), hex.slice(8, 12), `8${hex.slice(13, 16)}`, `8${hex.slice(17, 20)}`];
  return [...parts, hex.slice(20, 32)].join("-");
}

/** The items without outputs of calls that are not among the items before. */
function withCalls(items) {
  const calls = new Set();
  return items.filter((item) => {
    if (typeof item.callId !== "string") return true;
    if (/_(result|output)$/.test(item.type)) return calls.has(item.callId);
    return calls.add(item.callId);
  });
}

function encoded(key, value) {
  const bytes = this[key]; // value is what toJSON made of it
  return bytes instanceof Uint8Array ? { $uint8array: Buffer.from(bytes).toString("base64") } : value;
}

function decoded(key, value) {
  if (typeof value?.$uint8array !== "string" || Object.keys(value).length !== 1) return value;
  return new Uint8Array(Buffer.from(value.$uint8array, "base64"));
}
