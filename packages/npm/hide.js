// hide.js: for the configuration of drizzle-kit and of Prisma, in whose process it is imported:
//
//   import "sqlite-blackbox/hide";
//
// Such a tool describes a file from sqlite_master, and drops what its schema does not name. From
// here on each connection of better-sqlite3 in the process loads the module, and statements see
// sqlite_master without what blackbox has made. The file itself is not changed. Our names are
// those of an install in memory, so that a table of yours is hidden only if it has one of them.
import Database from "better-sqlite3";
import { load } from "./index.js";

const memory = load(new Database(":memory:"));
const all = (sql) => memory.prepare(sql).pluck().all();
all("SELECT blackbox_install('main', 'payload,rollout,cache,evidence,retention,store,proof,report')");
all("SELECT rollout_search_install()");
const ours = all("SELECT DISTINCT quote(name) FROM sqlite_schema").join();
memory.close();

const VISIBLE = `(SELECT * FROM sqlite_schema AS s
  WHERE name NOT IN (${ours}) AND tbl_name NOT IN (${ours}) AND tbl_name NOT GLOB 'langgraph_*'
    AND NOT EXISTS (SELECT 1 FROM sqlite_schema AS v  -- a ring or a buffer, and its own tables
      WHERE v.sql LIKE 'CREATE VIRTUAL TABLE%USING%'
        AND (v.sql LIKE '%payload_ring%' OR v.sql LIKE '%evidence_buffer%')
        AND (s.tbl_name = v.name OR substr(s.tbl_name, 1, length(v.name) + 1) = v.name || '_')))`;

const { prepare } = Database.prototype;
const loaded = new WeakSet();
Database.prototype.prepare = function (sql) {
  if (!loaded.has(this)) {
    loaded.add(this);
    load(this);
  }
  return prepare.call(this, sql.replace(/\bsqlite_(master|schema)\b/g, () => VISIBLE));
};
