// A graph whose threads are kept in SQLite, and pruned under the rules of the file.
import { Annotation, END, START, StateGraph } from "@langchain/langgraph";
import Database from "better-sqlite3";
import { load } from "sqlite-blackbox";
import { BlackboxSaver } from "sqlite-blackbox/langgraph";

const db = load(new Database("flight.db"));
const saver = new BlackboxSaver(db, { maxAgeDays: 30 });

const State = Annotation.Root({ n: Annotation({ reducer: (a, b) => a + b, default: () => 0 }) });
const graph = new StateGraph(State)
  .addNode("add", () => ({ n: 1 }))
  .addEdge(START, "add")
  .addEdge("add", END)
  .compile({ checkpointer: saver });

const config = { configurable: { thread_id: "case-7" } };
for (let i = 0; i < 3; i++) await graph.invoke({ n: 10 }, config);
const count = () => db.prepare("SELECT count(*) FROM langgraph_checkpoints").pluck().get();
const before = count();
await saver.prune(["case-7"]);
const { values } = await graph.getState(config);
console.log(before, count(), values.n); // 9 1 33
