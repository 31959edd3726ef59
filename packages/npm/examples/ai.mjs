// Records what an agent of the AI SDK sends to a model, and what the model says.
import { streamText, wrapLanguageModel } from "ai";
import { MockLanguageModelV3, simulateReadableStream } from "ai/test";
import { open } from "sqlite-blackbox";
import { recordModel } from "sqlite-blackbox/ai";

const db = open("flight.db");

// In your program this is the model of a provider, such as openai("gpt-5").
const chunks = [
  { type: "text-start", id: "1" },
  { type: "text-delta", id: "1", delta: "It is on its way." },
  { type: "text-end", id: "1" },
  { type: "finish", finishReason: { unified: "stop" }, usage: { inputTokens: { total: 9 }, outputTokens: { total: 6 } } },
];
const provider = new MockLanguageModelV3({ doStream: async () => ({ stream: simulateReadableStream({ chunks }) }) });

const model = wrapLanguageModel({ model: provider, middleware: recordModel(db, { agent: "support" }) });
for await (const text of streamText({ model, prompt: "Where is my parcel?" }).textStream) process.stdout.write(text);

await db.recorder.flush();
const row = db.prepare(`SELECT payload_prompt(request_body) AS asked, u.output
  FROM ring, payload_usage(request_body, response_body) AS u ORDER BY seq DESC`).get();
console.log(`\n${row.asked} ${row.output}`); // Where is my parcel? 6
