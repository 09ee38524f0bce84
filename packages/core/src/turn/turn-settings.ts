import { type RangesOf, waitRange } from '../action/settings.js';

/** How executions of one process that want the same model wait for each other. */
export interface TurnSettings {
  /**
   * How long an execution waits for its turn at least; after at most one and a half times as long it goes on without
   * it, and the guarded version decides. Nor does another one keep its turn for longer while somebody waits. Default 1,000.
   */
  readonly waitMs: number;
}

export const defaultTurnSettings: TurnSettings = { waitMs: 1_000 };

export const turnRanges: RangesOf<TurnSettings> = { waitMs: waitRange };
