/** What the adapters need of a connection: better-sqlite3 and node:sqlite have it. */
export interface Connection {
  exec(sql: string): unknown;
  prepare(sql: string): {
    run(...values: any[]): unknown;
    get(...values: any[]): any;
    all(...values: any[]): any[];
  };
}
