// Drizzle, Prisma, Knex and Kysely on a file that has blackbox and a ring in main: the tools
// themselves, as docs/orm.md says. They stand on better-sqlite3.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test as tested } from "node:test";
import { load } from "sqlite-blackbox";
import { bare, flight, land, rows } from "./host.mjs";

const here = import.meta.dirname;
const repository = join(here, "../..");
const page = readFileSync(join(repository, "docs/orm.md"), "utf8");
const version = (name) => JSON.parse(readFileSync(join(here, "node_modules", name, "package.json"), "utf8")).version;
const has = (name) => {
  try {
    return version(name);
  } catch {
    return undefined;
  }
};

/** A test with packages of npm; without them it says how to get them. */
function test(name, packages, act) {
  const missing = packages.filter((one) => !has(one));
  const skip = process.env.HOST ? "ORMs stand on better-sqlite3"
    : missing.length > 0 && `npm install --prefix build/packages ${missing.join(" ")}`;
  tested(name, { skip }, act);
}

/** A folder beside the packages, with app.db: a table of the program, and all of blackbox. */
function project(t) {
  const folder = mkdtempSync(join(here, "orm-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, "app.db");
  const db = load(bare(file));
  db.exec("CREATE TABLE orders(id INTEGER PRIMARY KEY NOT NULL, what TEXT NOT NULL, cache_key TEXT)");
  db.exec("CREATE TABLE cache_orders(id INTEGER PRIMARY KEY NOT NULL)"); // not one of ours
  db.exec("INSERT INTO orders VALUES (1, 'tea', 'k')");
  db.exec("SELECT blackbox_install('main', 'payload,rollout,cache,evidence,retention,store,proof,report')");
  db.exec("CREATE VIRTUAL TABLE ring USING payload_ring(window=50)");
  db.exec("INSERT INTO ring(agent_id, event_id, request_body) VALUES ('support', 'e1', 'hello')");
  db.exec("SELECT payload_kill_switch('ring', 'support', 'case-1')");
  db.close();
  return { folder, file };
}

/** What a file has, without the module; and that nothing of blackbox is missing. */
function ours(file) {
  const db = bare(file);
  const names = rows(db, "SELECT name, sql FROM sqlite_schema WHERE tbl_name NOT LIKE '%orders' ORDER BY 1");
  load(db);
  assert.deepEqual(rows(db, "SELECT * FROM blackbox_check"), []);
  assert.deepEqual(rows(db, "SELECT what FROM orders"), [["tea"]]);
  db.close();
  return names;
}

const columns = (file) => {
  const db = bare(file);
  const names = rows(db, "SELECT name FROM pragma_table_info('orders')").flat();
  db.close();
  return names;
};

function run(folder, tool, ...words) {
  const env = { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: "/bin/true", PRISMA_QUERY_ENGINE_LIBRARY: "/bin/true",
    CHECKPOINT_DISABLE: "1", PRISMA_HIDE_UPDATE_MESSAGE: "1" };
  const done = spawnSync(process.execPath, [join(here, "node_modules", tool), ...words],
    { cwd: folder, env, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  return { code: done.status, told: done.stdout + done.stderr };
}

/** The folder of a program that uses drizzle-kit. */
function drizzle(folder, hide) {
  writeFileSync(join(folder, "schema.ts"), `
    import { integer, sqliteTable, text } from "drizzle-orm/sqlite-core";
    export const orders = sqliteTable("orders", { id: integer().primaryKey().notNull(), what: text().notNull(),
      cacheKey: text("cache_key"), more: integer() });
    export const others = sqliteTable("cache_orders", { id: integer().primaryKey().notNull() });`);
  writeFileSync(join(folder, "drizzle.config.ts"), `${hide ? 'import "sqlite-blackbox/hide";' : ""}
    export default { dialect: "sqlite", schema: "./schema.ts", out: "./out", dbCredentials: { url: "app.db" } };`);
  return (...words) => run(folder, "drizzle-kit/bin.cjs", ...words);
}

test("drizzle-kit push and pull see the program's tables alone", ["drizzle-kit", "drizzle-orm"], (t) => {
  const { folder, file } = project(t);
  const before = ours(file);
  const kit = drizzle(folder, true);
  const { told } = kit("push", "--force", "--verbose");
  assert.match(told, /Changes applied/);
  assert.doesNotMatch(told, /DROP/);
  assert.deepEqual(columns(file), ["id", "what", "cache_key", "more"]);
  assert.deepEqual(ours(file), before);
  assert.match(kit("push", "--force").told, /No changes detected/);
  assert.match(kit("pull").told, /schema file is ready/);
  const pulled = readFileSync(join(folder, "out/schema.ts"), "utf8");
  assert.deepEqual(pulled.match(/sqliteTable\("\w+"/g).sort(), ['sqliteTable("cache_orders"', 'sqliteTable("orders"']);
  assert.doesNotMatch(pulled, /sqliteView\(/);
});

test("without the line in its configuration drizzle-kit changes nothing", ["drizzle-kit", "drizzle-orm"], (t) => {
  const { folder, file } = project(t);
  const before = ours(file);
  const kit = drizzle(folder, false);
  for (const word of ["push", "pull"]) assert.doesNotMatch(kit(word).told, /Changes applied|is ready/);
  assert.deepEqual(ours(file), before);
  assert.deepEqual(columns(file), ["id", "what", "cache_key"]);
});

test("drizzle reads and writes through the connection of open()", ["drizzle-orm"], async () => {
  const { drizzle } = await import("drizzle-orm/better-sqlite3");
  const { eq, sql } = await import("drizzle-orm");
  const { integer, sqliteTable, text } = await import("drizzle-orm/sqlite-core");
  const ring = sqliteTable("ring", { agent: text("agent_id"), event: text("event_id"), size: integer("size_bytes"),
    request: text("request_body") });
  const db = drizzle(flight());
  db.insert(ring).values({ agent: "support", event: "e1", request: "hello" }).run();
  assert.deepEqual(db.select({ size: ring.size }).from(ring).where(eq(ring.agent, "support")).all(), [{ size: 5 }]);
  assert.throws(() => db.transaction((tx) => {
    tx.run(sql`SELECT payload_kill_switch('ring', 'support', 'case-1')`);
    assert.equal(tx.select().from(ring).all().length, 0);
    throw new Error("undone");
  }), /undone/);
  assert.equal(db.select().from(ring).all().length, 1);
  await land();
});

test("the files of sql/ are a migration of drizzle, as the page says", ["drizzle-orm"], async (t) => {
  const { drizzle } = await import("drizzle-orm/better-sqlite3");
  const { migrate } = await import("drizzle-orm/better-sqlite3/migrator");
  const { folder } = project(t);
  const [, code] = page.match(/```js\n(import \{ readFileSync[^]*?)```/);
  mkdirSync(join(folder, "drizzle/meta"), { recursive: true });
  writeFileSync(join(folder, "split.mjs"), code);
  symlinkSync(join(repository, "sql"), join(folder, "sql"));
  assert.equal(spawnSync(process.execPath, ["split.mjs"], { cwd: folder, stdio: "inherit" }).status, 0);
  writeFileSync(join(folder, "drizzle/meta/_journal.json"), JSON.stringify({ version: "7", dialect: "sqlite",
    entries: [{ idx: 0, version: "6", when: 1, tag: "0000_blackbox", breakpoints: true }] }));
  const db = bare(join(folder, "plain.db"));
  for (let i = 0; i < 2; i++) migrate(drizzle(db), { migrationsFolder: join(folder, "drizzle") });
  db.exec("INSERT INTO event_payloads(event_id, agent_id, purpose) VALUES ('e1', 'a', 'evidence')");
  assert.throws(() => db.exec("DELETE FROM event_payloads"), /PinnedError/);
  load(db).exec("SELECT proof_head()"); // takes in what was written without the module
  assert.deepEqual(rows(db, "SELECT * FROM blackbox_check"), []);
  db.close();
});

const PRISMA = ["prisma", "@prisma/client", "@prisma/adapter-better-sqlite3"];

test("prisma db pull and db push see the program's tables alone, and its client reads", PRISMA, async (t) => {
  const { folder, file } = project(t);
  const before = ours(file);
  const schema = (models) => writeFileSync(join(folder, "schema.prisma"), `
    generator client {
      provider   = "prisma-client-js"
      output     = "./gen"
      engineType = "client"
    }
    datasource db {
      provider = "sqlite"
      url      = "file:./app.db"
    }
    ${models}`);
  writeFileSync(join(folder, "prisma.config.mjs"), `
    import "sqlite-blackbox/hide";
    import { PrismaBetterSQLite3 } from "@prisma/adapter-better-sqlite3";
    import { defineConfig } from "prisma/config";
    export default defineConfig({ schema: "schema.prisma", experimental: { adapter: true }, engine: "js",
      adapter: async () => new PrismaBetterSQLite3({ url: "file:./app.db" }) });`);
  const prisma = (...words) => {
    const { code, told } = run(folder, "prisma/build/index.js", ...words);
    assert.equal(code, 0, told);
    return told;
  };
  schema("");
  const pulled = prisma("db", "pull", "--print");
  assert.deepEqual(pulled.match(/^model \w+/gm), ["model cache_orders", "model orders"]);
  const orders = `model orders {
      id Int @id
      what String
      cache_key String?
      more Int?
    }
    model cache_orders {
      id Int @id
    }`;
  schema(orders);
  prisma("db", "push", "--skip-generate");
  assert.deepEqual(columns(file), ["id", "what", "cache_key", "more"]);
  assert.deepEqual(ours(file), before);

  schema(`${orders}
    model event_payloads {
      id String @id
      agent_id String
      request_body String?
      pinned Int
    }`);
  prisma("generate");
  writeFileSync(join(folder, "read.mjs"), `
    import { PrismaBetterSQLite3 } from "@prisma/adapter-better-sqlite3";
    import client from "./gen/index.js";
    const db = new client.PrismaClient({ adapter: new PrismaBetterSQLite3({ url: "file:./app.db" }) });
    const [row] = await db.event_payloads.findMany({ where: { agent_id: "support" } });
    const where = { id: row.id };
    const told = (error) => error.message + JSON.stringify(error.meta);
    const refused = await db.event_payloads.delete({ where }).catch(told);
    console.log(row.request_body, row.pinned, /PinnedError/.test(refused), await db.event_payloads.count());
    await db.$disconnect();`);
  const read = spawnSync(process.execPath, ["read.mjs"], { cwd: folder, encoding: "utf8" });
  assert.equal(read.stdout.trim(), "hello 1 true 1", read.stderr);

  // it writes beside a recorder, and is killed
  writeFileSync(join(folder, "write.mjs"), `
    import { writeSync } from "node:fs";
    import { PrismaBetterSQLite3 } from "@prisma/adapter-better-sqlite3";
    import client from "./gen/index.js";
    const db = new client.PrismaClient({ adapter: new PrismaBetterSQLite3({ url: "file:./app.db", timeout: 20000 }) });
    for (let id = 2; ; id++) {
      await db.orders.create({ data: { id, what: "tea" } });
      writeSync(1, id + "\\n");
    }`);
  const other = load(bare(file));
  other.pragma("busy_timeout = 20000");
  const insert = other.prepare("INSERT INTO ring(agent_id, event_id, request_body) VALUES ('support', ?, 'q')");
  const child = spawn(process.execPath, ["write.mjs"], { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
  let said = "";
  child.stdout.on("data", (data) => {
    said += data;
    insert.run(`r${said.length}`);
    if (said.length > 100) child.kill("SIGKILL");
  });
  const [, signal] = await new Promise((end) => child.on("close", (...how) => end(how)));
  assert.equal(signal, "SIGKILL");
  const last = Number(said.trim().split("\n").at(-1));
  const [[there, newest]] = rows(other, "SELECT count(*), max(id) FROM orders");
  assert.ok(newest >= last && there === newest && last > 30, `${said} ${there} ${newest}`);
  assert.deepEqual(rows(other, "PRAGMA integrity_check"), [["ok"]]);
  assert.deepEqual(rows(other, "SELECT * FROM blackbox_check"), []);
  other.close();
});

test("knex alters a table beside a ring, and reads", ["knex"], async (t) => {
  const { file } = project(t);
  const before = ours(file);
  const { default: knexOf } = await import("knex");
  const knex = knexOf({ client: "better-sqlite3", connection: { filename: file }, useNullAsDefault: true,
    pool: { afterCreate: (db, done) => done(null, load(db)) } });
  await knex.schema.alterTable("orders", (table) => table.integer("more"));
  await knex.schema.alterTable("orders", (table) => table.dropColumn("cache_key")); // makes the table anew
  await knex("ring").insert({ agent_id: "billing", event_id: "e2", request_body: "an invoice" });
  assert.deepEqual(await knex("ring").select("event_id").where({ agent_id: "billing" }), [{ event_id: "e2" }]);
  assert.equal(await knex.schema.hasTable("ring"), true);
  await assert.rejects(knex("event_payloads").delete(), /PinnedError/);
  await knex.destroy();
  assert.deepEqual(columns(file), ["id", "what", "more"]);
  assert.deepEqual(ours(file), before);
});

test("kysely describes the file, migrates it and reads it", ["kysely"], async (t) => {
  const { file } = project(t);
  const before = ours(file);
  const { Kysely, SqliteDialect, sql } = await import("kysely");
  const { Migrator } = await import("kysely/migration").catch(() => import("kysely")); // it moved with 0.29
  const db = new Kysely({ dialect: new SqliteDialect({ database: load(bare(file)) }) });
  const tables = (await db.introspection.getTables()).map(({ name }) => name);
  for (const name of ["orders", "event_payloads", "ring"]) assert.ok(tables.includes(name), name);
  const step = {
    up: async (tx) => {
      await tx.schema.alterTable("orders").addColumn("more", "integer").execute();
      await sql`SELECT blackbox_install('main', 'payload')`.execute(tx);
    },
    down: (tx) => tx.schema.alterTable("orders").dropColumn("more").execute(),
  };
  const migrator = new Migrator({ db, provider: { getMigrations: async () => ({ "1_more": step }) } });
  assert.equal((await migrator.migrateToLatest()).error, undefined);
  assert.deepEqual(columns(file), ["id", "what", "cache_key", "more"]);
  assert.equal((await migrator.migrateDown()).error, undefined);
  await db.insertInto("ring").values({ agent_id: "billing", event_id: "e2", request_body: "an invoice" }).execute();
  assert.deepEqual(await db.selectFrom("ring").select("event_id").execute(), [{ event_id: "e2" }]);
  await db.destroy();
  assert.deepEqual(ours(file).filter(([name]) => !name.includes("kysely_")), before);
});

const TOOLS = ["drizzle-orm", "drizzle-kit", "prisma", "knex", "kysely"];

test("the page names the versions that are tested here", TOOLS, () => {
  if (process.env.NEWEST) return; // newest_npm.py has installed others
  for (const name of TOOLS) {
    const short = version(name).split(".").slice(0, 2).join(".");
    assert.ok(page.includes(`${name} ${short}`), `docs/orm.md does not name ${name} ${short}, which is installed`);
  }
});
