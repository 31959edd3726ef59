// The types of the packages, used as a program would. It is only compiled.
import type { BaseCheckpointSaver } from "@langchain/langgraph-checkpoint";
import type { RunnableConfig } from "@langchain/core/runnables";
import { Runner, type Session } from "@openai/agents";
import type { SpanExporter } from "@opentelemetry/sdk-trace-base";
import { wrapLanguageModel } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import Database from "better-sqlite3";
import { DatabaseSync } from "node:sqlite";
import OpenAI from "openai";
import { AgentStoppedError, getLoadablePath, load, open, Recorder } from "sqlite-blackbox";
import { recordModel } from "sqlite-blackbox/ai";
import { BlackboxSession } from "sqlite-blackbox/agents";
import { BlackboxSaver } from "sqlite-blackbox/langgraph";
import { BlackboxSpanExporter } from "sqlite-blackbox/otel";
import { stopCallbacks, stopFilter, throwIfStopped } from "sqlite-blackbox/stop";

const path: string = getLoadablePath();
const ours: Database.Database = load(new Database(path));
const builtIn: DatabaseSync = load(new DatabaseSync(path, { allowExtension: true }));

for (const db of [ours, builtIn]) {
  const saver: BaseCheckpointSaver = new BlackboxSaver(db, { maxAgeDays: 3 });
  await new BlackboxSaver(db).prune(["a"], { strategy: "delete" });
  const session: Session = new BlackboxSession(db, { sessionId: "a", ttlDays: "permanent" });
  const exporter: SpanExporter = new BlackboxSpanExporter(db);
  void [saver, session, exporter];
  try {
    throwIfStopped(db, "a", { ring: "tape" });
  } catch (error) {
    if (error instanceof AgentStoppedError) error.stoppedAt.toFixed();
  }
  const runner = new Runner({ callModelInputFilter: stopFilter(db) });
  const options: RunnableConfig = { callbacks: [stopCallbacks(db, { agent: "a" })] };
  void [runner, options];
}

const flight = open("flight.db", { settings: { "payload.retention_days": 30 }, onError: (e) => e.message });
const send: typeof fetch = flight.record(fetch, { agent: (url) => String(url), ring: "tape" });
const client: OpenAI = flight.record(new OpenAI(), { agent: "a", onStop: "record" });
const model = wrapLanguageModel({ model: new MockLanguageModelV3(), middleware: recordModel(flight, { agent: "a" }) });
const done: boolean = await new Recorder("flight.db").close(5);
void [send, client, model, done, flight.recorder.flush()];

// @ts-expect-error the agent is missing
flight.record(fetch, {});
// @ts-expect-error a connection that is not of open() records nothing
recordModel(ours, { agent: "a" });
// @ts-expect-error there is no such way
flight.record(fetch, { agent: "a", onStop: "stop" });
// @ts-expect-error there is no such strategy
void new BlackboxSaver(ours).prune(["a"], { strategy: "all" });
// @ts-expect-error a path is not a connection
load(path);
