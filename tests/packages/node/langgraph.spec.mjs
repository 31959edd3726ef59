// LangGraph's own validation of checkpoint savers, run by vitest.
import { deltaChannelHistoryTests, validate } from "@langchain/langgraph-checkpoint-validation";
import { BlackboxSaver } from "sqlite-blackbox/langgraph";
import { open } from "./host.mjs";

const initializer = {
  checkpointerName: "sqlite-blackbox/langgraph",
  createCheckpointer: () => new BlackboxSaver(open()),
  destroyCheckpointer: (saver) => saver.db.close(),
};

validate(initializer);
deltaChannelHistoryTests(initializer);
