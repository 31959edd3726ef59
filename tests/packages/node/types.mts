// The types of the packages, used as a program would. It is only compiled.
import type { BaseCheckpointSaver } from "@langchain/langgraph-checkpoint";
import type { Session } from "@openai/agents";
import type { SpanExporter } from "@opentelemetry/sdk-trace-base";
import Database from "better-sqlite3";
import { DatabaseSync } from "node:sqlite";
import { getLoadablePath, load } from "sqlite-blackbox";
import { BlackboxSession } from "sqlite-blackbox/agents";
import { recordFetch } from "sqlite-blackbox/fetch";
import { BlackboxSaver } from "sqlite-blackbox/langgraph";
import { BlackboxSpanExporter } from "sqlite-blackbox/otel";

const path: string = getLoadablePath();
const ours: Database.Database = load(new Database(path));
const builtIn: DatabaseSync = load(new DatabaseSync(path, { allowExtension: true }));

for (const db of [ours, builtIn]) {
  const send: typeof fetch = recordFetch(db, { agent: (url) => String(url), ring: "tape", onError: (e) => e.message });
  const saver: BaseCheckpointSaver = new BlackboxSaver(db, { maxAgeDays: 3 });
  await new BlackboxSaver(db).prune(["a"], { strategy: "delete" });
  const session: Session = new BlackboxSession(db, { sessionId: "a", ttlDays: "permanent" });
  const exporter: SpanExporter = new BlackboxSpanExporter(db);
  void [send, saver, session, exporter];
}

// @ts-expect-error the agent is missing
recordFetch(ours, {});
// @ts-expect-error there is no such strategy
void new BlackboxSaver(ours).prune(["a"], { strategy: "all" });
// @ts-expect-error a path is not a connection
load(path);
