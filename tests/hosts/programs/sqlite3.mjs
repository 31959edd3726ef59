// npm's sqlite3: sqlite3.mjs MODULE FILE SCENARIO...
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import sqlite3 from 'sqlite3';

const [module, file, ...scenarios] = process.argv.slice(2);
const BOUND = ['bound', 'né€😀', Buffer.from([0, 255]), null, 1760000000000];

const db = new sqlite3.Database(file);
await promisify(db.loadExtension.bind(db))(module);
const all = promisify(db.all.bind(db));
console.log(sqlite3.VERSION);
for (const scenario of scenarios) {
  for (const sql of readFileSync(scenario, 'utf8').split('\n\n')) {
    if (sql.startsWith('--')) continue;
    try {
      for (const row of await all(sql, sql.includes('?, ?') ? BOUND : [])) {
        console.log(Object.values(row).map((value) => value ?? '').join('|'));
      }
    } catch (error) {
      // It puts the name of the result code before the message.
      console.log('error: ' + error.message.replace(/^SQLITE_\w+: /, ''));
    }
  }
}
await promisify(db.close.bind(db))();
