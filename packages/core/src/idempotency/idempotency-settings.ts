import { type RangesOf, fromOne, waitRange } from '../action/settings.js';

const centuryMs = 100 * 365 * 24 * 60 * 60 * 1_000;

/** How long keys are kept, and what finding and removing them may cost. */
export interface IdempotencySettings {
  /** How long a key is kept. Default 30 days. */
  readonly keyLifetimeMs: number;
  /** How long an execution waits for a database to tell whether it holds the key, where it may not need it. Default 100. */
  readonly searchWaitMs: number;
  /** After how many keyed commits of this process on a shard expired keys are deleted there. Default 256. */
  readonly commitsPerSweep: number;
  /** How many expired keys one sweep deletes at most. Default 1,000. */
  readonly sweepRowsMax: number;
}

export const defaultIdempotencySettings: IdempotencySettings = {
  keyLifetimeMs: 30 * 24 * 60 * 60 * 1_000,
  searchWaitMs: 100,
  commitsPerSweep: 256,
  sweepRowsMax: 1_000,
};

export const idempotencyRanges: RangesOf<IdempotencySettings> = {
  keyLifetimeMs: { min: 1, max: centuryMs },
  searchWaitMs: waitRange,
  commitsPerSweep: fromOne,
  sweepRowsMax: fromOne,
};
