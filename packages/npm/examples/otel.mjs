// The spans of an agent become a conversation, with its tokens.
import { BasicTracerProvider, BatchSpanProcessor } from "@opentelemetry/sdk-trace-base";
import Database from "better-sqlite3";
import { load } from "sqlite-blackbox";
import { BlackboxSpanExporter } from "sqlite-blackbox/otel";

const db = load(new Database("flight.db"));
const exporter = new BlackboxSpanExporter(db);
const provider = new BasicTracerProvider({ spanProcessors: [new BatchSpanProcessor(exporter)] });

// In your program an instrumentation of the provider's client makes these spans.
const messages = [{ role: "user", parts: [{ type: "text", content: "Where is my parcel?" }] }];
provider.getTracer("example").startSpan("chat m", {
  attributes: {
    "gen_ai.operation.name": "chat",
    "gen_ai.conversation.id": "case-7",
    "gen_ai.request.model": "m",
    "gen_ai.input.messages": JSON.stringify(messages),
    "gen_ai.usage.input_tokens": 12,
    "gen_ai.usage.output_tokens": 5,
  },
}).end();
await provider.shutdown();

const row = db.prepare("SELECT source_id, first_user_message AS asked FROM rollouts").get();
const { model, input_fresh, output } = db.prepare("SELECT * FROM rollout_usage").get();
console.log(row.source_id, row.asked, model, input_fresh, output); // case-7 Where is my parcel? m 12 5
