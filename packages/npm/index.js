export { getLoadablePath, load } from "./index.cjs";
export { open, Recorder } from "./recorder.js";
export { AgentStoppedError } from "./stop.js";
