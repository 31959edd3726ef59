import type { Connection } from "./database.js";
export { AgentStoppedError } from "./stop.js";

export interface RecordFetchOptions {
  /** The agent_id of the rows: a text, or a function of the arguments of fetch. */
  agent: string | ((input: RequestInfo | URL, init?: RequestInit) => string);
  /** The ring, or "schema.ring". The default is "ring". */
  ring?: string;
  /** What sends the request. The default is the global fetch. */
  fetch?: typeof globalThis.fetch;
  /** What a request gets while its agent is stopped: AgentStoppedError, and nothing is sent (the
   * default); or it is sent and recorded. */
  onStop?: "throw" | "record";
  /** Gets the errors of recording. The default writes a warning of the process. */
  onError?: (error: Error) => void;
}

/** A fetch that pushes each exchange into a ring when its response has ended. */
export function recordFetch(db: Connection, options: RecordFetchOptions): typeof globalThis.fetch;
