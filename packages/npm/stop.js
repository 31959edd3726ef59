// stop.js: asks whether an agent is stopped, before something is sent for it.
//
//   throwIfStopped(db, "support");                                       // any program
//   await run(agent, "hello", { callModelInputFilter: stopFilter(db) }); // OpenAI Agents
//   await graph.invoke(input, { callbacks: [stopCallbacks(db, { agent: "support" })] });
//
// An agent is stopped while payload_agents.stopped_at is not NULL: a rule of any process, or a
// person, has set it. The question is one kept statement for each connection.
//
// Invariants: it does not wait for a lock. If it has no answer, since the file is locked, gone
// or damaged, the call goes on, and onError gets the error.
//
// Limit: in a transaction that is open on the connection, it sees what that has seen.
import { told, quoted, statement, warn, withoutWaiting } from "./database.js";

/** What a call gets that was not sent. */
export class AgentStoppedError extends Error {
  name = "AgentStoppedError";

  constructor(agent, { stopped_at, stopped_by }) {
    const at = new Date(Number(stopped_at)).toISOString();
    super(
      `agent ${agent} was stopped at ${at} by ${stopped_by ?? "a program"}, and nothing was sent; to start it ` +
        "again, INSERT INTO payload_agent_log(agent_id, actor, reason)",
    );
    Object.assign(this, { agent, stoppedAt: Number(stopped_at), stoppedBy: stopped_by });
  }
}

/** Throws AgentStoppedError if the agent is stopped. ring: its name, or "schema.ring". */
export function throwIfStopped(db, agent, { ring = "ring", onError = warn } = {}) {
  const schema = /^"?temp"?\./i.test(ring) || !ring.includes(".") ? "" : `${quoted(ring.split(".")[0])}.`;
  const sql = `SELECT stopped_at, stopped_by FROM ${schema}payload_agents WHERE agent_id = ? AND stopped_at NOT NULL`;
  let row;
  told(onError, `whether agent ${agent} is stopped is not known, and its call was sent`, () => {
    row = withoutWaiting(db, () => statement(db, sql).get(agent));
  });
  if (row) throw new AgentStoppedError(agent, row);
}

/** The callModelInputFilter of a run of the OpenAI Agents SDK, which asks before each call of a
 * model. agent: the id, or a function of what a filter gets; the default is the agent's name. */
export function stopFilter(db, { agent = (call) => call.agent.name, ...options } = {}) {
  return (call) => {
    throwIfStopped(db, typeof agent === "function" ? agent(call) : agent, options);
    return call.modelData;
  };
}

/** Callbacks of LangChain and LangGraph, which ask before each call of a model. */
export function stopCallbacks(db, { agent, ...options }) {
  const ask = () => throwIfStopped(db, typeof agent === "function" ? agent() : agent, options);
  return { name: "blackbox", awaitHandlers: true, raiseError: true, handleLLMStart: ask, handleChatModelStart: ask };
}
