/** A connection that can load extensions: of better-sqlite3, node:sqlite, bun or libsql. */
export interface Loader {
  loadExtension(path: string): unknown;
}

/** The path of the module for this platform. Throws if its package is not installed. */
export function getLoadablePath(): string;

/** Loads the module into a connection, and returns the connection. */
export function load<T extends Loader>(db: T): T;

/** What sends: a fetch, a dispatcher of undici, globalThis, or a client of OpenAI, Anthropic or Google. */
export type Client = object;

export interface RecordOptions {
  /** The agent_id of the rows: a text, or a function of what the client sends. */
  agent: string | ((...request: any[]) => string);
  /** The ring, or "schema.ring". The default is that of open(), or "ring". */
  ring?: string;
  /** What a request gets while its agent is stopped: AgentStoppedError, and nothing is sent (the
   * default); or it is sent and recorded. */
  onStop?: "throw" | "record";
}

export interface RecorderOptions {
  /** The library of SQLite. The default is better-sqlite3 where it is installed, else node:sqlite. */
  driver?: "better-sqlite3" | "node:sqlite";
  /** Gets the errors of recording. The default writes a warning of the process. */
  onError?: (error: Error) => void;
}

/** Records what clients send into a file, by a worker with a connection of its own. */
export interface Recorder {
  /** Records what a client sends from now on. Returns the client, or what takes the place of a fetch. */
  record<T extends Client>(client: T, options: RecordOptions): T;
  /** Waits until all that was handed over is written. Resolves to whether it is. */
  flush(timeoutMs?: number): Promise<boolean>;
  /** Writes what waits, and ends the worker. What is not written waits for the next recorder. */
  close(timeoutMs?: number): Promise<boolean>;
}

/** A connection of better-sqlite3 or node:sqlite with the module, which records clients. */
export interface FlightRecorder {
  exec(sql: string): unknown;
  prepare(sql: string): { run(...values: any[]): any; get(...values: any[]): any; all(...values: any[]): any[] };
  close(): unknown;
  record: Recorder["record"];
  readonly recorder: Recorder;
}

export interface OpenOptions extends RecorderOptions {
  /** The ring that is made. The default is "ring". */
  ring?: string;
  /** Settings, such as { "payload.retention_days": 30 }. */
  settings?: Record<string, string | number>;
  /** Milliseconds to wait for the lock of another. The default is 5000. */
  timeout?: number;
}

/** Opens a file as a flight recorder, and makes what is missing: the tables, the ring, the settings
 * and the journal mode WAL. */
export function open(path: string, options?: OpenOptions): FlightRecorder;
