// database.js: what the adapters share: SQL for connections of better-sqlite3 and of
// node:sqlite, which have prepare(), exec(), run(), get() and all() in common. Statements
// are kept for each connection; a connection that is closed must not be opened again.

/** The name of a table for a statement; "schema.table" names a schema. */
export function quoted(name) {
  return name
    .split(".")
    .map((part) => `"${part.replaceAll('"', '""')}"`)
    .join(".");
}

const statements = new WeakMap(); // connection: its statements, by their text
const installed = new WeakMap(); // connection: what was installed on it

/** A statement of a connection, which is prepared once. */
export function statement(db, sql) {
  const kept = statements.get(db) ?? statements.set(db, new Map()).get(db);
  return kept.get(sql) ?? kept.set(sql, db.prepare(sql)).get(sql);
}

/** Installs a domain and what an adapter adds to it, once for each connection. What is done in a
 * transaction may be rolled back, and is done again. */
export function install(db, domain, sql = "") {
  const done = installed.get(db) ?? installed.set(db, new Set()).get(db);
  if (done.has(domain + sql)) return;
  const open = db.inTransaction ?? db.isTransaction ?? true; // better-sqlite3, node:sqlite
  statement(db, "SELECT blackbox_install('main', ?)").get(domain);
  atomically(db, () => db.exec(sql));
  if (!open) done.add(domain + sql);
}

/** Runs an act in one transaction, or as a part of the one that is open. If it writes, its
 * first statement must write, so that it need not wait for a lock after it has read. The act
 * gets a function that undoes what it has done. */
export function atomically(db, act) {
  const undo = () => db.exec("ROLLBACK TO sqlite_blackbox");
  const release = () => statement(db, "RELEASE sqlite_blackbox").run();
  statement(db, "SAVEPOINT sqlite_blackbox").run();
  try {
    const result = act(undo);
    release();
    return result;
  } catch (error) {
    try {
      undo();
      release();
    } catch {
      // SQLite has rolled back the whole transaction already
    }
    throw error;
  }
}

/** Runs an act that fails at once, with SQLITE_BUSY, where it would wait for the lock of another. */
export function withoutWaiting(db, act) {
  const { timeout } = statement(db, "PRAGMA busy_timeout").get();
  statement(db, "PRAGMA busy_timeout = 0").get();
  try {
    return act();
  } finally {
    statement(db, `PRAGMA busy_timeout = ${timeout}`).get();
  }
}

/** Runs an act whose error must not reach the caller: what goes wrong, with the error, is told. */
export function told(onError, what, act) {
  try {
    act();
  } catch (cause) {
    const error = new Error(`${what}: ${cause?.message ?? cause}`, { cause });
    try {
      onError(error);
    } catch {
      warn(error);
    }
  }
}

export function warn(error) {
  process.emitWarning(error.message, "BlackboxWarning");
}

/** The time, for a column that must be an integer: numbers are bound as REAL. */
export function now() {
  return BigInt(Date.now());
}
