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
// that has expired (ttlDays) has no items, and takes none.
import { createHash, randomUUID } from "node:crypto";
import { atomically, install, statement } from "./database.js";

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const FORMAT = "openai-agents";
const PAGE = 500;

// What the SDK writes and Codex does not: rollout_append() would drop it by the preset codex.
const POLICY = `
  INSERT INTO rollout_policy(preset, item_type, payload_type)
  SELECT 'codex', 'response_item', value FROM json_each('[
    "function_call_result", "hosted_tool_call", "computer_call", "computer_call_result", "shell_call",
    "shell_call_output", "apply_patch_call", "apply_patch_call_output", "program", "program_output", "unknown"]')
  UNION ALL SELECT 'codex', 'event_msg', 'item_popped'
  ON CONFLICT DO NOTHING`;

export class BlackboxSession {
  #db;
  #id;
  #rollout;
  #days;

  constructor(db, { sessionId = randomUUID(), ttlDays } = {}) {
    this.#db = db;
    this.#id = sessionId;
    this.#rollout = UUID.test(sessionId) ? sessionId.toLowerCase() : named(sessionId);
    this.#days = ttlDays;
    install(db, "rollout", POLICY);
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
    if (items.length > 0) this.#append("response_item", items);
  }

  async popItem() {
    if (this.#newest(1).length === 0) return undefined;
    return atomically(this.#db, () => {
      this.#append("event_msg", [{ type: "item_popped" }]);
      return this.#newest(1, -1)[0]; // without that event
    });
  }

  async clearSession() {
    this.#sql("DELETE FROM rollouts WHERE id = ?").run(this.#rollout);
  }

  async replaceHistoryWithCompaction(items) {
    this.#append("compacted", [{ message: "", replacement_history: items }]);
  }

  #append(type, payloads) {
    const items = JSON.stringify(payloads.map((payload) => ({ type, payload })), encoded);
    const write = (undo) => {
      const { kept } = this.#sql("SELECT rollout_append(?, ?) AS kept").get(this.#rollout, items);
      if (Number(kept) === payloads.length) return;
      undo(); // the policy has dropped some: plain SQL goes past it
      this.#start();
      this.#sql(
        `INSERT INTO rollout_items(rollout, type, payload)
         SELECT g.rollout, j.value ->> 'type', j.value -> 'payload' FROM (SELECT ? AS rollout, ? AS items) AS g,
           json_each(CASE (SELECT value FROM blackbox_settings WHERE name = 'rollout.secrets')
             WHEN 'mask' THEN blackbox_mask(g.items) ELSE g.items END) AS j`,
      ).run(this.#rollout, items);
      // what lists show of the items is derived by a call
      this.#sql("SELECT rollout_append(?, '[]')").get(this.#rollout);
    };
    try {
      atomically(this.#db, write);
    } catch (error) {
      if (!error.message.startsWith("RolloutNotFoundError")) throw error;
      atomically(this.#db, (undo) => {
        this.#start();
        write(undo);
      });
    }
  }

  #sql(text) {
    return statement(this.#db, text);
  }

  /** Starts the conversation, if there is none. */
  #start() {
    const meta = { originator: FORMAT, blackbox: { format: FORMAT, id: this.#id } };
    const days = this.#days;
    const expires = typeof days === "number" ? BigInt(Math.round(Date.now() + days * 86400000)) : days;
    this.#sql("INSERT OR IGNORE INTO rollouts(id, session_meta, expires_at) VALUES (?, ?, ?)")
      .run(this.#rollout, JSON.stringify(meta), expires ?? null);
  }

  /** The newest items, oldest first. popped: how many items are taken back. */
  #newest(limit, popped = 0) {
    const items = [];
    const take = (item) => (popped > 0 ? popped-- : items.push(item));
    if (limit <= 0) return items;
    for (const [type, payload] of this.#backwards(limit)) {
      if (type === "response_item") take(payload);
      else if (type === "event_msg" && payload.type === "item_popped") popped++;
      else if (type === "compacted") {
        payload.replacement_history.reverse().forEach(take);
        break;
      }
      if (items.length >= limit) break;
    }
    return items.slice(0, limit).reverse();
  }

  *#backwards(limit) {
    const head = this.#sql("SELECT item_count FROM rollouts WHERE id = ?").get(this.#rollout);
    const page = this.#sql("SELECT type, payload FROM rollout_range(?, ?, ?, 'backward')");
    let left = Number(head?.item_count ?? 0);
    for (let size = Math.min(Math.ceil(limit), PAGE); left > 0; size = Math.min(2 * size, PAGE)) {
      for (const { type, payload } of page.all(this.#rollout, BigInt(left), BigInt(size))) {
        yield [type, JSON.parse(payload, payload.includes('"$uint8array"') ? decoded : undefined)];
      }
      left -= size;
    }
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
