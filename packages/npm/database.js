// database.js: what the adapters share: SQL for connections of better-sqlite3 and of
// node:sqlite, which have prepare(), exec(), run(), get() and all() in common.

/** The name of a table for a statement; "schema.table" names a schema. */
export function quoted(name) {
  return name
    .split(".")
    .map((part) => `"${part.replaceAll('"', '""')}"`)
    .join(".");
}

/** Runs an act in one transaction, or as a part of the one that is open. If it writes, its
 * first statement must write, so that it need not wait for a lock after it has read. */
export function atomically(db, act) {
  db.exec("SAVEPOINT sqlite_blackbox");
  try {
    const result = act();
    db.exec("RELEASE sqlite_blackbox");
    return result;
  } catch (error) {
    try {
      db.exec("ROLLBACK TO sqlite_blackbox; RELEASE sqlite_blackbox");
    } catch {
      // SQLite has rolled back the whole transaction already
    }
    throw error;
  }
}

/** The time, for a column that must be an integer: numbers are bound as REAL. */
export function now() {
  return BigInt(Date.now());
}
