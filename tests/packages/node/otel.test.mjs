// The exporter of spans, under the SDK of OpenTelemetry.
import { context, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { BasicTracerProvider, BatchSpanProcessor, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import assert from "node:assert/strict";
import { test } from "node:test";
import { BlackboxSpanExporter } from "sqlite-blackbox/otel";
import { open, rows } from "./host.mjs";

const said = (role, content) => ({ role, parts: [{ type: "text", content }] });
const chat = (conversation, ...messages) => ({
  "gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
  ...(conversation && { "gen_ai.conversation.id": conversation }),
  "gen_ai.input.messages": JSON.stringify(messages),
  "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 7,
});

function tracing(Processor) {
  const db = open();
  const provider = new BasicTracerProvider({ spanProcessors: [new Processor(new BlackboxSpanExporter(db))] });
  const tracer = provider.getTracer("test", "1.2");
  return { db, provider, tracer };
}

/** A span below another one. */
function child(tracer, parent, name, attributes) {
  return tracer.startSpan(name, { attributes }, trace.setSpan(context.active(), parent));
}

test("a batch becomes a conversation with its turns, tools and tokens", async () => {
  const { db, provider, tracer } = tracing(BatchSpanProcessor);
  const agent = tracer.startSpan("invoke_agent a", { attributes: {
    "gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 200 } });
  child(tracer, agent, "chat m", chat("case-7", said("user", "where is it?"))).end();
  child(tracer, agent, "execute_tool", {
    "gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": "on its way" }).end();
  child(tracer, agent, "GET /orders", { "http.request.method": "GET" }).end();
  agent.end();
  await provider.forceFlush();
  assert.deepEqual(
    rows(db, "SELECT source_id, format, turns, first_user_message FROM rollouts"),
    [["case-7", "otel", 1, "where is it?"]]);
  assert.deepEqual(
    rows(db, "SELECT type FROM rollout_items WHERE sequence > 0 ORDER BY type"),
    [["chat"], ["execute_tool"], ["invoke_agent"]]);
  assert.deepEqual(rows(db, "SELECT model, input_fresh, output FROM rollout_usage"), [["m", 100, 7]]);
  assert.deepEqual(rows(db, "SELECT * FROM blackbox_check"), []);
});

test("a span alone goes to the conversation that its trace has named before", async () => {
  const { db, tracer } = tracing(SimpleSpanProcessor);
  const agent = tracer.startSpan("a", { attributes: { "gen_ai.operation.name": "invoke_agent" } });
  child(tracer, agent, "chat", chat("case-7", said("user", "1"))).end();
  child(tracer, agent, "tool", { "gen_ai.operation.name": "execute_tool" }).end();
  agent.end();
  child(tracer, tracer.startSpan("b"), "chat", chat(undefined, said("user", "2"))).end();
  const found = rows(db, "SELECT item_count, first_user_message FROM rollouts ORDER BY first_user_message");
  assert.deepEqual(found, [[4, "1"], [2, "2"]]);
});

test("each name of a conversation that an import knows is one for a trace", () => {
  for (const name of ["session.id", "conversation.id", "traceloop.association.properties.session_id"]) {
    const { db, tracer } = tracing(SimpleSpanProcessor);
    const agent = tracer.startSpan("a", { attributes: { "gen_ai.operation.name": "invoke_agent" } });
    child(tracer, agent, "chat", { ...chat(undefined, said("user", "1")), [name]: "case-8" }).end();
    agent.end();
    assert.deepEqual(rows(db, "SELECT source_id, item_count FROM rollouts"), [["case-8", 3]]);
  }
});

test("everything that a span says is in its item", async () => {
  const { db, tracer } = tracing(SimpleSpanProcessor);
  const other = tracer.startSpan("other").spanContext();
  const span = tracer.startSpan("chat m", {
    kind: SpanKind.CLIENT, startTime: [1760000000, 123456789], links: [{ context: other }],
    attributes: { ...chat("c"), text: "é", yes: true, n: 3, x: 0.5, list: ["a", "b"], big: 2 ** 60 },
  });
  span.addEvent("exception", { "exception.type": "E" });
  span.setStatus({ code: SpanStatusCode.ERROR, message: "quota" });
  span.end([1760000001, 5]);
  const [[at, payload]] = rows(db, "SELECT timestamp, payload FROM rollout_items WHERE sequence = 1");
  const item = JSON.parse(payload);
  assert.equal(at, 1760000000123);
  const { traceId, spanId } = span.spanContext();
  assert.deepEqual(
    [item.traceId, item.spanId, item.name, item.kind, item.endTimeUnixNano],
    [traceId, spanId, "chat m", 3, "1760000001000000005"]);
  assert.deepEqual(item.status, { code: 2, message: "quota" });
  assert.equal(item.links[0].spanId, other.spanId);
  const { text, yes, n, x, list, big } = item.attributes;
  assert.deepEqual([text, yes, Number(n), x, list, big], ["é", true, 3, 0.5, ["a", "b"], 2 ** 60]);
  assert.match(payload, /exception/);
});

test("an error of recording is told to the SDK, and breaks nothing", () => {
  const db = open();
  const exporter = new BlackboxSpanExporter(db);
  const results = [];
  const spans = [];
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor({
    export: (batch, done) => (spans.push(...batch), done({ code: 0 })), shutdown: async () => {} })] });
  provider.getTracer("t").startSpan("chat", { attributes: chat("c") }).end();
  exporter.export([], (r) => results.push(r));
  db.exec("CREATE TRIGGER refuse BEFORE INSERT ON rollout__data BEGIN SELECT RAISE(ABORT, 'full'); END");
  exporter.export(spans, (r) => results.push(r));
  db.exec("DROP TRIGGER refuse");
  exporter.export(spans, (r) => results.push(r));
  exporter.export(spans, (r) => results.push(r)); // again: nothing new
  assert.deepEqual(results.map((r) => r.code), [0, 1, 0, 0]);
  assert.match(results[1].error.message, /full/);
  assert.deepEqual(rows(db, "SELECT item_count FROM rollouts"), [[2]]);
});
