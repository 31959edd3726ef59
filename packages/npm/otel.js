// otel.js: exports the spans of language models and agents into conversations of rollout.
//
//   new NodeSDK({ spanProcessors: [new BatchSpanProcessor(new BlackboxSpanExporter(db))] });
//
// A batch of spans becomes a line of OTLP JSON, which rollout_import() reads as its format
// otel: it knows the dialects, counts tokens, and finds the conversation of each span. So
// a program that exports here and the file of a collector give the same conversations. (A
// ring keeps exchanges; spans also have tools, agents and errors, and belong together.)
//
// Spans that say nothing of a model or an agent, such as those of HTTP, are left out. A
// span that names no conversation belongs to that which its trace has named so far, in
// this or an earlier batch, and else to one with the id of the trace.
//
// Limit: the conversations of the 1,000 newest traces are remembered between batches.
import { install, statement } from "./database.js";

const KNOWN = /^(gen_ai|llm|openinference|traceloop)\./;
const NAMES = [
  "gen_ai.conversation.id", "session.id", "conversation.id", "traceloop.association.properties.session_id",
];
const TRACES = 1000;

/** Exports spans through a connection that has the module. */
export class BlackboxSpanExporter {
  #db;
  #traces = new Map(); // trace id: conversation id

  constructor(db) {
    this.#db = db;
    install(db, "rollout");
  }

  export(spans, done) {
    try {
      this.#write(spans.filter(isKnown));
      done({ code: 0 });
    } catch (error) {
      done({ code: 1, error });
    }
  }

  async forceFlush() {} // what is exported is written

  async shutdown() {} // the connection belongs to the caller

  #write(spans) {
    if (spans.length === 0) return;
    for (const span of spans) this.#remember(span);
    const resourceSpans = spans.map((span) => ({
      resource: { attributes: pairs(span.resource.attributes) },
      scopeSpans: [{ scope: scope(span), spans: [otlp(span, this.#missing(span))] }],
    }));
    const { report } = statement(this.#db, "SELECT rollout_import(?) AS report")
      .get(`${JSON.stringify({ resourceSpans })}\n`);
    const { bad, errors } = JSON.parse(report);
    if (bad > 0) throw new Error(`ExportError: rollout_import() could not read a batch: ${errors[0].reason}`);
  }

  #remember(span) {
    const { traceId } = span.spanContext();
    const name = NAMES.find((name) => span.attributes[name] !== undefined);
    if (name === undefined) return;
    this.#traces.delete(traceId);
    this.#traces.set(traceId, span.attributes[name]);
    if (this.#traces.size > TRACES) this.#traces.delete(this.#traces.keys().next().value);
  }

  /** The conversation of a span that names none. */
  #missing(span) {
    const known = this.#traces.get(span.spanContext().traceId);
    if (known === undefined || NAMES.some((name) => span.attributes[name] !== undefined)) return {};
    return { [NAMES[0]]: known };
  }
}

function isKnown(span) {
  return Object.keys(span.attributes).some((name) => KNOWN.test(name));
}

function scope(span) {
  const { name, version } = span.instrumentationScope ?? span.instrumentationLibrary;
  return { name, version };
}

/** A span in the JSON of OTLP. */
function otlp(span, more) {
  const { traceId, spanId } = span.spanContext();
  return {
    traceId,
    spanId,
    parentSpanId: span.parentSpanContext?.spanId ?? span.parentSpanId,
    name: span.name,
    kind: span.kind + 1,
    startTimeUnixNano: nanoseconds(span.startTime),
    endTimeUnixNano: nanoseconds(span.endTime),
    attributes: pairs({ ...span.attributes, ...more }),
    events: span.events.map(({ name, time, attributes }) => ({
      name, timeUnixNano: nanoseconds(time), attributes: pairs(attributes ?? {}),
    })),
    links: span.links.map(({ context, attributes }) => ({
      traceId: context.traceId, spanId: context.spanId, attributes: pairs(attributes ?? {}),
    })),
    status: span.status,
  };
}

function nanoseconds([seconds, rest]) {
  return String(BigInt(seconds) * 1000000000n + BigInt(rest));
}

function pairs(attributes) {
  return Object.entries(attributes).map(([key, value]) => ({ key, value: typed(value) }));
}

function typed(value) {
  if (Array.isArray(value)) return { arrayValue: { values: value.map(typed) } };
  if (typeof value === "boolean") return { boolValue: value };
  if (typeof value !== "number") return { stringValue: String(value) };
  return Number.isSafeInteger(value) ? { intValue: String(value) } : { doubleValue: value };
}
