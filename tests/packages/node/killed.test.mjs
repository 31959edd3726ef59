// Each adapter, and each ORM with a connection of its own, on a file that another connection writes at the same time, in a process that is killed
// with kill -9: what was acknowledged is there, and the file is whole.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, test } from "node:test";
import { BlackboxSession } from "sqlite-blackbox/agents";
import { BlackboxSaver } from "sqlite-blackbox/langgraph";
import { bare, driver, flight, land, newPath, open, rows } from "./host.mjs";

after(land);

// For each adapter: a program in which step(i) ends when the adapter has acknowledged, and what is
// found afterwards, in its order.
const ADAPTERS = {
  langgraph: {
    program: `
      import { emptyCheckpoint, uuid6 } from "@langchain/langgraph-checkpoint";
      import { BlackboxSaver } from "sqlite-blackbox/langgraph";
      const saver = new BlackboxSaver(db);
      const step = async (i) => {
        const at = { configurable: { thread_id: String(i), checkpoint_ns: "" } };
        const checkpoint = { ...emptyCheckpoint(), id: uuid6(i), channel_values: { i } };
        await saver.put(at, checkpoint, { source: "loop", step: 0, parents: {} }, {});
      };`,
    found: async (db) => {
      const found = [];
      for await (const { checkpoint } of new BlackboxSaver(db).list({})) found.push(checkpoint.channel_values.i);
      return found.sort((a, b) => a - b);
    },
  },
  agents: {
    program: `
      import { BlackboxSession } from "sqlite-blackbox/agents";
      const session = new BlackboxSession(db, { sessionId: "case-7" });
      const step = (i) => session.addItems([{ type: "message", role: "user", content: String(i) }]);`,
    found: async (db) => (await new BlackboxSession(db, { sessionId: "case-7" }).getItems()).map((m) => +m.content),
  },
  otel: {
    program: `
      import { BasicTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
      import { BlackboxSpanExporter } from "sqlite-blackbox/otel";
      const spanProcessors = [new SimpleSpanProcessor(new BlackboxSpanExporter(db))];
      const provider = new BasicTracerProvider({ spanProcessors });
      const tracer = provider.getTracer("test");
      const step = (i) => {
        tracer.startSpan("chat", { attributes: { "gen_ai.conversation.id": String(i) } }).end();
        return provider.forceFlush();
      };`,
    found: (db) => rows(db, "SELECT DISTINCT CAST(source_id AS INTEGER) FROM rollouts ORDER BY 1").flat(),
  },
  ai: {
    program: `
      import { recordModel } from "sqlite-blackbox/ai";
      const { wrapGenerate } = recordModel(flight(path, { timeout: 20000 }), { agent: "support" });
      const model = { modelId: "m", provider: "p", specificationVersion: "v3" };
      const doGenerate = async () => ({ content: [], finishReason: { unified: "stop" } });
      const step = (i) => wrapGenerate({ model, params: { prompt: [], i }, doGenerate });`,
    found: async (db) => {
      assert.ok(await flight(db.path).recorder.flush(20000)); // takes over the queue
      return rows(db, "SELECT request_body ->> 'i' FROM ring WHERE response_body NOT NULL ORDER BY 1").flat();
    },
  },
};

// The ORMs stand on better-sqlite3, and write the ring as a table.
const ROW = '{ agent_id: "support", event_id: "e" + i, request_body: String(i) }';
const ORMS = {
  drizzle: `
    import { drizzle } from "drizzle-orm/better-sqlite3";
    import { sqliteTable, text } from "drizzle-orm/sqlite-core";
    const ring = sqliteTable("ring", { agent_id: text(), event_id: text(), request_body: text() });
    const orm = drizzle(db);
    const step = (i) => orm.insert(ring).values(${ROW}).run();`,
  knex: `
    import knexOf from "knex";
    import { load } from "sqlite-blackbox";
    const knex = knexOf({ client: "better-sqlite3", connection: { filename: path }, useNullAsDefault: true,
      pool: { afterCreate: (db, done) => (db.pragma("busy_timeout = 20000"), done(null, load(db))) } });
    const step = (i) => knex("ring").insert(${ROW});`,
  kysely: `
    import { Kysely, SqliteDialect } from "kysely";
    const orm = new Kysely({ dialect: new SqliteDialect({ database: db }) });
    const step = (i) => orm.insertInto("ring").values(${ROW}).execute();`,
};
for (const [name, program] of driver === "node:sqlite" ? [] : Object.entries(ORMS)) {
  ADAPTERS[name] = {
    program, found: (db) => rows(db, "SELECT CAST(request_body AS INTEGER) FROM ring ORDER BY 1").flat(),
  };
}

const START = `
  import { writeSync } from "node:fs";
  import { setImmediate } from "node:timers/promises";
  import { flight, open } from "./host.mjs";
  const [path] = process.argv.slice(1);
  const db = open(path);
  db.prepare("PRAGMA busy_timeout = 20000").get();`;

const LOOP = `
  for (let i = 0; ; i++) {
    await step(i);
    writeSync(1, i + "\\n");
    await setImmediate();
  }`;

/** Runs the program until it has acknowledged so many steps, and kills it. Returns the last of them. */
async function killed(program, path, steps, meanwhile) {
  const child = spawn(process.execPath, ["--input-type=module", "-e", START + program + LOOP, path], {
    cwd: import.meta.dirname, stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  let wrong = "";
  child.stderr.on("data", (data) => (wrong += data));
  child.stdout.on("data", (data) => {
    said += data;
    if (said.split("\n").length > steps) child.kill("SIGKILL");
  });
  const writes = setInterval(meanwhile, 1);
  const [, signal] = await new Promise((end) => child.on("close", (...how) => end(how)));
  clearInterval(writes);
  assert.equal(signal, "SIGKILL", wrong);
  return Number(said.trim().split("\n").at(-1));
}

for (const [name, { program, found }] of Object.entries(ADAPTERS)) {
  for (const mode of name === "ai" ? ["WAL"] : ["WAL", "DELETE"]) { // open() sets WAL
    test(`what ${name} has acknowledged survives a kill, beside another writer, with journal ${mode}`, async () => {
      const path = newPath();
      const other = open(path);
      other.prepare("PRAGMA busy_timeout = 20000").get();
      other.exec("CREATE TABLE mine(n INTEGER PRIMARY KEY)");
      other.prepare("SELECT blackbox_install()").get();
      other.exec("CREATE VIRTUAL TABLE ring USING payload_ring(window=2000)"); // for all that comes before the kill
      flight(path, { timeout: 20000 });
      other.prepare(`PRAGMA journal_mode = ${mode}`).get();
      const insert = other.prepare("INSERT INTO mine DEFAULT VALUES");
      let written = 0;
      const last = await killed(program, path, 40, () => (insert.run(), written++));
      other.close();

      assert.deepEqual(rows(bare(path), "PRAGMA integrity_check"), [["ok"]]);
      const db = Object.assign(open(path), { path });
      const there = await found(db);
      assert.ok(last >= 39 && there.length > last, `${last} was acknowledged, ${there.length} are there`);
      assert.deepEqual(there, there.map((_, i) => i));
      assert.deepEqual(rows(db, "SELECT count(*) FROM mine"), [[written]]);
      assert.ok(written > 5, `another has written ${written}`);
      assert.deepEqual(rows(db, "SELECT * FROM blackbox_check"), []);
      assert.deepEqual(rows(db, "PRAGMA integrity_check"), [["ok"]]);
    });
  }
}
