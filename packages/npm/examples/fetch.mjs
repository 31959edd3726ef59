// Records what an agent sends to a model's API, and what comes back.
import Database from "better-sqlite3";
import { createServer } from "node:http";
import { load } from "sqlite-blackbox";
import { recordFetch } from "sqlite-blackbox/fetch";

const db = load(new Database("flight.db"));
db.exec("CREATE VIRTUAL TABLE IF NOT EXISTS ring USING payload_ring(window=50)");

// In your program this is the API of a provider: new OpenAI({ fetch: recorded }).
const server = createServer((_, response) => {
  response.write('data: {"delta":"It is "}\n\n');
  response.end('data: {"delta":"on its way."}\n\n');
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const url = `http://127.0.0.1:${server.address().port}/v1/messages`;

const recorded = recordFetch(db, { agent: "support" });
const response = await recorded(url, { method: "POST", body: '{"ask":"Where is my parcel?"}' });
for await (const chunk of response.body) process.stdout.write(chunk);
server.close();

const row = db.prepare("SELECT request_body, response_body FROM ring ORDER BY seq DESC").get();
console.log(row.request_body, row.response_body.length); // {"ask":"Where is my parcel?"} 57
