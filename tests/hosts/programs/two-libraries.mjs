// Two SQLite libraries in one process: two-libraries.mjs MODULE COPY FIRST SECOND
// FIRST loads the module, SECOND may not. SECOND loads a copy of the file, and both work.
import { createRequire } from 'node:module';

const [module, copy, ...names] = process.argv.slice(2);
const require = createRequire(import.meta.url);

// A connection of a package: load() and all(), as promises.
async function open(name) {
  if (name === 'sqlite3') {
    const { Database } = require('sqlite3');
    const db = new Database(':memory:');
    const call = (method, text) => new Promise((resolve, reject) =>
      db[method](text, (error, rows) => error ? reject(error) : resolve(rows)));
    return { load: (file) => call('loadExtension', file), all: (sql) => call('all', sql) };
  }
  const db = name === 'node:sqlite'
    ? new (await import(name)).DatabaseSync(':memory:', { allowExtension: true })
    : new (require(name))(':memory:');
  return { load: async (file) => db.loadExtension(file), all: async (sql) => { const s = db.prepare(sql); return s.reader === false ? s.run() : s.all(); } };
}

async function use(db) {
  await db.all(`SELECT blackbox_install('main', 'payload')`);
  const [{ saved }] = await db.all(`SELECT payload_kill_switch('ring', 'a', 'k') AS saved`);
  return saved;
}

async function prepare(db) {
  await db.all('CREATE VIRTUAL TABLE temp.ring USING payload_ring(window=2)');
  const ring = `VALUES('a', 'e1') UNION ALL SELECT 'a', 'e2'`;
  await db.all(`INSERT INTO ring(agent_id, event_id) ${ring}`);
}

const [first, second] = [await open(names[0]), await open(names[1])];
await first.load(module);
await prepare(first);
try {
  await second.load(module);
  console.log('loaded twice');
} catch (error) {
  console.log(error.message);
}
console.log('first:', await use(first));
await second.load(copy);
await prepare(second);
console.log('second:', await use(second), 'first:', await use(first));
