// An agent whose conversations are kept in SQLite, and go on when the program starts again.
import { Agent, Usage, run, setTracingDisabled } from "@openai/agents";
import Database from "better-sqlite3";
import { load } from "sqlite-blackbox";
import { BlackboxSession } from "sqlite-blackbox/agents";

setTracingDisabled(true);
const db = load(new Database("flight.db"));

// In your program this is a model of a provider: new Agent({ name, model: "gpt-..." }).
const model = {
  async getResponse({ input }) {
    const text = `I know ${input.length} items.`;
    const content = [{ type: "output_text", text }];
    const usage = new Usage({ inputTokens: 1, outputTokens: 1 });
    return { usage, output: [{ type: "message", role: "assistant", status: "completed", content }] };
  },
};
const agent = new Agent({ name: "support", model });

await run(agent, "Where is my parcel?", { session: new BlackboxSession(db, { sessionId: "case-7" }) });
const again = new BlackboxSession(db, { sessionId: "case-7" });
const { finalOutput } = await run(agent, "And now?", { session: again });

const row = db.prepare("SELECT source_id, turns, first_user_message AS asked FROM rollouts").get();
console.log(finalOutput, Object.values(row).join(" | ")); // I know 3 items. case-7 | 2 | Where is my parcel?
