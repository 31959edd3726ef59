// node:sqlite: node-sqlite.mjs MODULE FILE SCENARIO...
import { readFileSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';

const [module, file, ...scenarios] = process.argv.slice(2);
const BOUND = ['bound', 'né€😀', Buffer.from([0, 255]), null, 1760000000000];

const db = new DatabaseSync(file, { allowExtension: true });
db.loadExtension(module);
db.enableLoadExtension(false);
console.log(process.versions.sqlite);
for (const scenario of scenarios) {
  for (const sql of readFileSync(scenario, 'utf8').split('\n\n')) {
    if (sql.startsWith('--')) continue;
    try {
      for (const row of db.prepare(sql).all(...(sql.includes('?, ?') ? BOUND : []))) {
        console.log(Object.values(row).map((value) => value ?? '').join('|'));
      }
    } catch (error) {
      console.log('error: ' + error.message);
    }
  }
}
db.close();
