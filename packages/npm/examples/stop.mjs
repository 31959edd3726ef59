// An agent that a person stops, in another process: what it would send is not sent.
import Database from "better-sqlite3";
import { load } from "sqlite-blackbox";
import { AgentStoppedError, recordFetch } from "sqlite-blackbox/fetch";

const db = load(new Database("flight.db"));
db.exec("CREATE VIRTUAL TABLE IF NOT EXISTS ring USING payload_ring(window=50)");

let sent = 0; // in your program, leave fetch out
const answer = async () => (sent++, new Response('{"answer":"It is on its way."}'));
const recorded = recordFetch(db, { agent: "support", fetch: answer });
const ask = () => recorded("https://model.example/v1", { method: "POST", body: "{}" });

await (await ask()).text();
const say = db.prepare("INSERT INTO payload_agent_log(agent_id, act, actor, reason) VALUES('support', ?, 'Ann', ?)");
say.run("stop", "it deletes tests");
try {
  await ask();
} catch (error) {
  console.log(error instanceof AgentStoppedError, error.stoppedBy, sent); // true Ann 1
}

say.run("start", "the tool is mended");
await (await ask()).text();
console.log(sent, db.prepare("SELECT count(*) AS n FROM ring").get().n); // 2 2
