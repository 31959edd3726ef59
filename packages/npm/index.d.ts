import type { Recorder as Recording, RecorderOptions } from "./index.cjs";
export { getLoadablePath, load, open, type Loader, type Client, type RecordOptions, type RecorderOptions,
  type FlightRecorder, type OpenOptions } from "./index.cjs";
export { AgentStoppedError } from "./stop.js";

/** Records what clients send into a file that is there, with a ring: see open(). */
export interface Recorder extends Recording {}
export const Recorder: new (path: string, options?: RecorderOptions) => Recorder;
