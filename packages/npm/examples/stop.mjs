// An agent that a person stops, in another process: what it would send is not sent.
import { AgentStoppedError, open } from "sqlite-blackbox";

const db = open("flight.db");
let sent = 0; // in your program, record fetch or a client
const answer = async () => (sent++, new Response('{"answer":"It is on its way."}'));
const recorded = db.record(answer, { agent: "support" });
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
await db.recorder.flush();
console.log(sent, db.prepare("SELECT count(*) AS n FROM ring").get().n); // 2 2
