import type { AgentInputItem, Session } from "@openai/agents-core";
import type { Connection } from "./database.js";

export interface BlackboxSessionOptions {
  /** The default is a new UUID. */
  sessionId?: string;
  /** When the conversation expires after its first item. The default is rollout.ttl_days. */
  ttlDays?: number | "permanent";
}

/** A session that is a conversation of rollout. The connection must have the module. */
export class BlackboxSession implements Session {
  constructor(db: Connection, options?: BlackboxSessionOptions);
  /** The id of the conversation in the view rollouts. */
  readonly rolloutId: string;
  getSessionId(): Promise<string>;
  getItems(limit?: number): Promise<AgentInputItem[]>;
  addItems(items: AgentInputItem[]): Promise<void>;
  popItem(): Promise<AgentInputItem | undefined>;
  /** Deletes the conversation, with a receipt. A hold refuses it: HeldError. */
  clearSession(): Promise<void>;
  replaceHistoryWithCompaction(items: AgentInputItem[]): Promise<void>;
}
