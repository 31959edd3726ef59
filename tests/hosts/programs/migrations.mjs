// Migrations with Knex, Umzug and Drizzle, on better-sqlite3: migrations.mjs MODULE FOLDER SQL-FOLDER
// Prints what is installed after each step.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import Database from 'better-sqlite3';
import { drizzle } from 'drizzle-orm/better-sqlite3';
import { migrate } from 'drizzle-orm/better-sqlite3/migrator';
import knexOf from 'knex';
import { Umzug } from 'umzug';

const [module, folder, sql] = process.argv.slice(2);

function show(step, db) {
  const made = db.prepare(`SELECT group_concat(name, ' ') FROM (SELECT name FROM sqlite_schema WHERE type = 'table'
    AND name IN ('event_payloads', 'cache_items', 'ring', 'orders') ORDER BY name)`).pluck().get();
  const problems = made?.includes('event') ? db.prepare('SELECT count(*) FROM blackbox_check').pluck().get() : 0;
  console.log(`${step}: ${made ?? 'nothing'}, problems: ${problems}`);
}

function look(step, file) {
  const db = new Database(file);
  db.loadExtension(module);
  show(step, db);
  db.close();
}

// Knex: each connection of the pool loads the module. A migration is a transaction.
{
  const file = `${folder}/knex.db`;
  const steps = {
    '1_blackbox': {
      async up(db) {
        await db.raw(`SELECT blackbox_install('main', 'payload')`);
        await db.raw('CREATE VIRTUAL TABLE ring USING payload_ring(window=50)');
      },
      async down(db) {
        await db.raw(`SELECT blackbox_uninstall('main', NULL, 'force')`);
      },
    },
    '2_orders': {
      async up(db) {
        await db.schema.createTable('orders', (table) => table.increments());
        await db.raw(`CREATE TRIGGER note AFTER INSERT ON orders BEGIN
          INSERT INTO ring(agent_id, event_id) VALUES('orders', new.id); END`);
      },
      down: (db) => db.schema.dropTable('orders'),
    },
    '3_fails': {
      async up(db) {
        await db.raw(`SELECT blackbox_install('main', 'cache')`);
        if (process.env.FAIL) throw new Error('this migration fails');
      },
      down: (db) => db.raw(`SELECT blackbox_uninstall('main', 'cache')`),
    },
  };
  const knex = knexOf({
    client: 'better-sqlite3',
    connection: { filename: file },
    useNullAsDefault: true,
    log: { debug() {}, deprecate() {}, error() {}, warn() {} },
    pool: { afterCreate: (db, done) => { db.loadExtension(module); done(null, db); } },
    migrations: {
      migrationSource: {
        getMigrations: async () => Object.keys(steps),
        getMigrationName: (name) => name,
        getMigration: async (name) => steps[name],
      },
    },
  });
  process.env.FAIL = 'yes';
  await knex.migrate.latest().catch((error) => console.log(`knex: ${error.message}`));
  look('knex, after a migration that failed', file);
  delete process.env.FAIL;
  await knex.migrate.latest();
  await knex('orders').insert({});
  console.log(`knex: ${(await knex('ring').select('agent_id', 'event_id')).map(Object.values).join(' ')}`);
  look('knex, up', file);
  await knex.migrate.rollback(undefined, true);
  look('knex, down', file);
  await knex.destroy();
}

// Umzug: plain SQL makes the schema, without the module. To take it back needs the module.
{
  const file = `${folder}/umzug.db`;
  const db = new Database(file);
  const text = (name) => readFileSync(`${sql}/${name}`, 'utf8');
  const read = (...names) => names.map(text).map((file) => [file, ...[...file.matchAll(/^-- Continued in sql\/(.*)$/gm)]
    .map((line) => text(line[1]))].join('\n')).join('\n');
  const done = new Set();
  const umzug = new Umzug({
    context: db,
    logger: undefined,
    storage: {
      logMigration: async ({ name }) => done.add(name),
      unlogMigration: async ({ name }) => done.delete(name),
      executed: async () => [...done],
    },
    migrations: [{
      name: 'blackbox',
      up: async ({ context }) => context.exec(`BEGIN;${read('core.sql', 'payload.sql', 'cache.sql')};COMMIT`),
      down: async ({ context }) => {
        context.loadExtension(module);
        context.exec(`SELECT blackbox_uninstall('main', NULL, 'force')`);
      },
    }],
  });
  await umzug.up();
  look('umzug, up', file);
  await umzug.down();
  look('umzug, down', file);
  db.close();
}

// Drizzle: files of SQL, in one transaction. It has no way down.
{
  const file = `${folder}/drizzle.db`;
  const files = `${folder}/drizzle`;
  mkdirSync(`${files}/meta`, { recursive: true });
  writeFileSync(`${files}/0000_blackbox.sql`, `SELECT blackbox_install('main', 'payload,cache');
--> statement-breakpoint
CREATE VIRTUAL TABLE ring USING payload_ring(window=50);`);
  writeFileSync(`${files}/meta/_journal.json`, JSON.stringify({
    version: '7', dialect: 'sqlite', entries: [{ idx: 0, version: '6', when: 1, tag: '0000_blackbox', breakpoints: true }],
  }));
  const db = new Database(file);
  db.loadExtension(module);
  migrate(drizzle(db), { migrationsFolder: files });
  migrate(drizzle(db), { migrationsFolder: files });
  show('drizzle, up', db);
  db.close();
}
