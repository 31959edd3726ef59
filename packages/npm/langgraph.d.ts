import {
  BaseCheckpointSaver,
  type ChannelVersions,
  type Checkpoint,
  type CheckpointListOptions,
  type CheckpointMetadata,
  type CheckpointTuple,
  type PendingWrite,
  type SerializerProtocol,
} from "@langchain/langgraph-checkpoint";
import type { RunnableConfig } from "@langchain/core/runnables";
import type { Connection } from "./database.js";

export interface BlackboxSaverOptions {
  /** Threads that were idle for so many days are due: retention_sweep() removes them. */
  maxAgeDays?: number;
  serde?: SerializerProtocol;
}

export interface PruneOptions {
  /** "keep_latest" (the default): the newest checkpoint of each namespace stays, with those
   * from which its delta channels are computed. "delete": none stays. */
  strategy?: "keep_latest" | "delete";
}

/** A saver of checkpoints. The connection must have the module. */
export class BlackboxSaver extends BaseCheckpointSaver {
  constructor(db: Connection, options?: BlackboxSaverOptions);
  getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined>;
  list(config: RunnableConfig, options?: CheckpointListOptions): AsyncGenerator<CheckpointTuple>;
  put(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    newVersions: ChannelVersions,
  ): Promise<RunnableConfig>;
  putWrites(config: RunnableConfig, writes: PendingWrite[], taskId: string, taskPath?: string): Promise<void>;
  /** Removes a thread, with a receipt. A hold refuses it: HeldError. */
  deleteThread(threadId: string): Promise<void>;
  /** Removes checkpoints of threads, with receipts: of all threads, or of none. */
  prune(threadIds: string[], options?: PruneOptions): Promise<void>;
}
