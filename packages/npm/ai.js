// ai.js: a middleware of the Vercel AI SDK that records each call of a language model.
//
//   const model = wrapLanguageModel({ model: openai("gpt-5"), middleware: recordModel(db, { agent: "support" }) });
//
// db is what open() returns. The bodies are those of the SDK, as JSON: what the model gets (without
// its headers, which have keys), and what it has said. The parts of a stream are put together as
// the SDK gives them without a stream. What the readers of exchanges must know of these bodies are
// rows of blackbox_places, which are written where they are missing. meta has method (generate or
// stream), provider, model, status of an error that has one, duration_ms and error.
//
// Invariant: the caller gets the same result, parts and errors as without the recorder; or
// AgentStoppedError, and nothing is sent.
//
// Limits: bytes are recorded as Base64. A call that is tried again is a row for each try.
import { failure, watchStream } from "./clients.js";
import { install } from "./database.js";

const PART = "$.prompt[].content[]";
const CALL = [".toolCallId", ".toolName", ".input"];
const RESULTS = ["text", "json", "content", "error-text", "error-json", "execution-denied"];
const ROWS = [
  ["request", "call", PART, { [`${PART}.type`]: "tool-call" }, ...CALL],
  ...RESULTS.map((type) => ["request", "result", PART, { [`${PART}.output.type`]: type }, ...CALL.slice(0, 2), null,
    ".output.value|.output.reason", type.includes("-") ? `.output.type=${type}` : null]),
  ["request", "user", "$.prompt[].content", { "$.prompt[].role": "user" }],
  ["request", "message", "$.prompt[].content", {}],
  ["request", "choice", "$.toolChoice.toolName", {}],
  ["response", "call", "$.content[]", { "$.content[].type": "tool-call" }, ...CALL],
  ["response", "assistant", "$.content", { "$.specificationVersion": true }],
];
const PLACES = `
  INSERT INTO blackbox_places(format, source, kind, place, conditions, call_id, tool, arguments, result, is_error)
  SELECT 'ai-sdk', value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6,
         value ->> 7, value ->> 8
  FROM json_each('${JSON.stringify(ROWS)}') WHERE 1 ON CONFLICT DO NOTHING;
  INSERT INTO blackbox_places(kind, format, source, place, conditions, input, cache_write, cache_read, output,
                              reasoning, cache_in_input)
  VALUES('usage', 'ai-sdk', 'response', '$.usage', '{"$.specificationVersion":true}', '.inputTokens.total|.inputTokens',
         '.inputTokens.cacheWrite', '.inputTokens.cacheRead|.cachedInputTokens', '.outputTokens.total|.outputTokens',
         '.outputTokens.reasoning|.reasoningTokens', 1) ON CONFLICT DO NOTHING`;

/** A middleware for wrapLanguageModel(). options: agent, a text or a function of what the model gets;
 * ring and onStop as those of record(). */
export function recordModel(db, options) {
  const { recorder } = db;
  const begin = recorder.calls(options);
  recorder.tell("the places of the AI SDK are not known to the file", () => install(db, "payload", PLACES));

  async function record(method, model, params, send) {
    const { modelId, provider, specificationVersion } = model;
    const call = begin({ method, provider, model: modelId }, params);
    await call.ask();
    const { headers, abortSignal, ...sent } = params;
    call.begin(() => json({ specificationVersion, model: modelId, ...sent }));
    let said = { specificationVersion, model: modelId };
    const end = (error) => call.end(said && (() => json(said)), status(error));
    let result;
    try {
      result = await send();
    } catch (error) {
      said = null;
      end(error);
      throw error;
    }
    if (method === "generate") {
      const { request, response, ...rest } = result;
      said = { ...said, ...known(response), ...rest };
      end();
      return result;
    }
    const put = together(said);
    let failed;
    const keep = (part) => {
      if (part.type === "error") failed ??= part.error;
      recorder.tell("a part of a stream was not recorded", () => put(part));
    };
    return { ...result, stream: watchStream(result.stream, keep, (error) => end(error ?? failed)) };
  }

  return {
    specificationVersion: "v3",
    wrapGenerate: ({ doGenerate, params, model }) => record("generate", model, params, doGenerate),
    wrapStream: ({ doStream, params, model }) => record("stream", model, params, doStream),
  };
}

/** A function that puts the parts of a stream into what a model has said. */
function together(said) {
  const open = new Map(); // texts that are not whole
  said.content = [];
  return ({ type, id, delta, ...more }) => {
    const [kind, step] = /^(text|reasoning)-(start|delta|end)$/.exec(type)?.slice(1) ?? [type];
    const { usage, finishReason, providerMetadata } = more;
    if (step === "start") {
      const text = { type: kind, text: "", providerMetadata };
      open.set(kind + id, text);
      said.content.push(text);
    } else if (step !== undefined) {
      const text = open.get(kind + id);
      text.text += delta ?? "";
      text.providerMetadata = providerMetadata ?? text.providerMetadata;
    } else if (kind === "finish") Object.assign(said, { finishReason, usage, providerMetadata });
    else if (kind === "response-metadata") Object.assign(said, known({ id, ...more }));
    else if (kind === "stream-start") said.warnings = more.warnings;
    else if (!/^(tool-input-.*|raw|ping|error)$/.test(kind)) said.content.push({ type, ...(id && { id }), ...more });
  };
}

/** What is kept of the data of a response: not its headers and its body. */
function known({ id, modelId, timestamp } = {}) {
  return { ...(id && { id }), ...(modelId && { model: modelId }), ...(timestamp && { timestamp }) };
}

function status(error) {
  return { ...(error?.statusCode && { status: error.statusCode }), ...failure(error) };
}

function json(value) {
  return JSON.stringify(value, function (key, kept) {
    const bytes = this[key]; // kept is what toJSON made of it
    return bytes instanceof Uint8Array ? Buffer.from(bytes).toString("base64") : kept;
  });
}
