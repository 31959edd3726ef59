/** A connection that can load extensions: of better-sqlite3, node:sqlite, bun or libsql. */
export interface Loader {
  loadExtension(path: string): unknown;
}

/** The path of the module for this platform. Throws if its package is not installed. */
export function getLoadablePath(): string;

/** Loads the module into a connection, and returns the connection. */
export function load<T extends Loader>(db: T): T;
