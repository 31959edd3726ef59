import type { Connection } from "./database.js";

export interface StopOptions {
  /** The ring, or "schema.ring": an agent is stopped in its schema. The default is "ring". */
  ring?: string;
  /** Gets the error if there is no answer; the call goes on. The default is a warning of the process. */
  onError?: (error: Error) => void;
}

/** What a call gets that was not sent. */
export class AgentStoppedError extends Error {
  readonly agent: string;
  /** Milliseconds since 1970 UTC. */
  readonly stoppedAt: number;
  readonly stoppedBy: string | null;
}

/** Throws AgentStoppedError if the agent is stopped. */
export function throwIfStopped(db: Connection, agent: string, options?: StopOptions): void;

/** The callModelInputFilter of a run of the OpenAI Agents SDK. The default agent is the agent's name. */
export function stopFilter(
  db: Connection,
  options?: StopOptions & { agent?: string | ((call: { agent: { name: string } }) => string) },
): <T>(call: { modelData: T; agent: { name: string } }) => T;

/** Callbacks of LangChain and LangGraph, which ask before each call of a model. */
export function stopCallbacks(db: Connection, options: StopOptions & { agent: string | (() => string) }): {
  name: string;
  awaitHandlers: boolean;
  raiseError: boolean;
  handleLLMStart(): void;
  handleChatModelStart(): void;
};
