import type { wrapLanguageModel } from "ai";
import type { FlightRecorder } from "./index.js";

export interface RecordModelOptions {
  /** The agent, or a function of what the model gets: prompt, tools, providerOptions. */
  agent: string | ((params: any) => string);
  /** The default is the ring of open(). */
  ring?: string;
  /** "throw" (the default): a stopped agent gets an AgentStoppedError, and nothing is sent. "record": it is sent. */
  onStop?: "throw" | "record";
}

/** A middleware for wrapLanguageModel() of the AI SDK, which records each call of the model. */
export function recordModel(
  db: FlightRecorder, options: RecordModelOptions,
): Exclude<Parameters<typeof wrapLanguageModel>[0]["middleware"], unknown[]>;
