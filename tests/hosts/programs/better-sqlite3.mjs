// better-sqlite3, and libsql, which has the same calls: better-sqlite3.mjs PACKAGE MODULE FILE SCENARIO...
import { readFileSync } from 'node:fs';

const [name, module, file, ...scenarios] = process.argv.slice(2);
const { default: Database } = await import(name);
const BOUND = ['bound', 'né€😀', Buffer.from([0, 255]), null, 1760000000000];

const db = new Database(file);
db.loadExtension(module);
console.log(db.prepare('SELECT sqlite_version()').raw().get()[0]);
for (const scenario of scenarios) {
  for (const sql of readFileSync(scenario, 'utf8').split('\n\n')) {
    if (sql.startsWith('--')) continue;
    try {
      const statement = db.prepare(sql);
      const bound = sql.includes('?, ?') ? BOUND : [];
      if (!statement.reader) statement.run(...bound);
      else for (const row of statement.raw().all(...bound)) console.log(row.map((value) => value ?? '').join('|'));
    } catch (error) {
      console.log('error: ' + error.message);
    }
  }
}
db.close();
