// Records what an agent sends to a model's API, and what comes back.
import { createServer } from "node:http";
import { open } from "sqlite-blackbox";

const db = open("flight.db");

// In your program this is the API of a provider: db.record(new OpenAI(), { agent: "support" }).
const server = createServer((_, response) => {
  response.write('data: {"delta":"It is "}\n\n');
  response.end('data: {"delta":"on its way."}\n\n');
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const url = `http://127.0.0.1:${server.address().port}/v1/messages`;

const recorded = db.record(fetch, { agent: "support" });
const response = await recorded(url, { method: "POST", body: '{"ask":"Where is my parcel?"}' });
for await (const chunk of response.body) process.stdout.write(chunk);
server.close();

await db.recorder.flush();
const row = db.prepare("SELECT request_body, response_body FROM ring ORDER BY seq DESC").get();
console.log(row.request_body, row.response_body.length); // {"ask":"Where is my parcel?"} 57
