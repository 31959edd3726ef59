// bun:sqlite: bun.ts MODULE FILE SCENARIO...
import { Database } from "bun:sqlite";
import { readFileSync } from "node:fs";

const [module, file, ...scenarios] = process.argv.slice(2);
const BOUND = ["bound", "né€😀", Buffer.from([0, 255]), null, 1760000000000];

const db = new Database(file);
db.loadExtension(module);
console.log(db.query("SELECT sqlite_version() AS v").get().v);
for (const scenario of scenarios) {
  for (const sql of readFileSync(scenario, "utf8").split("\n\n")) {
    if (sql.startsWith("--")) continue;
    try {
      for (const row of db.prepare(sql).values(...(sql.includes("?, ?") ? BOUND : []))) {
        console.log(row.map((value) => value ?? "").join("|"));
      }
    } catch (error) {
      console.log("error: " + error.message);
    }
  }
}
db.close();
