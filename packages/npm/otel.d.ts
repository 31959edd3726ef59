import type { ReadableSpan, SpanExporter } from "@opentelemetry/sdk-trace-base";
import type { Connection } from "./database.js";

/** Exports the spans of language models and agents into conversations of rollout. The
 * connection must have the module. */
export class BlackboxSpanExporter implements SpanExporter {
  constructor(db: Connection);
  export(spans: ReadableSpan[], resultCallback: Parameters<SpanExporter["export"]>[1]): void;
  forceFlush(): Promise<void>;
  shutdown(): Promise<void>;
}
