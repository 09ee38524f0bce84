import { type RangesOf, fromOne, waitRange } from '../action/settings.js';

/** How plans of concurrent executions are written together. */
export interface GroupSettings {
  /** How many plans one group writes at most. Default 32. */
  readonly plansMax: number;
  /**
   * How many plans of one shard wait at most for their group, and how many wait at most for models that others change, which
   * may be locked; further ones are refused as `shard-unavailable`. Default 10,000.
   */
  readonly queueMax: number;
  /**
   * How long a plan waits at least until it is sent; after at most a quarter longer it is refused as `shard-unavailable`.
   * That of a handler waits a quarter of it at least, and half at most, for a model that takes long, and not at all for one that
   * has taken as long already, or behind eight others of handlers: its event is delivered again.
   * Default 5,000.
   */
  readonly queueWaitMs: number;
  /** How many models and events a plan may hold to be written in a group; larger ones commit alone. Default 32. */
  readonly planSizeMax: number;
  /** How long the JSON of a plan may be in all, in characters; longer ones commit alone. Default 65,536. */
  readonly planCharactersMax: number;
}

export const defaultGroupSettings: GroupSettings = {
  plansMax: 32,
  queueMax: 10_000,
  queueWaitMs: 5_000,
  planSizeMax: 32,
  planCharactersMax: 65_536,
};

export const groupRanges: RangesOf<GroupSettings> = {
  plansMax: fromOne,
  queueMax: fromOne,
  queueWaitMs: waitRange,
  planSizeMax: fromOne,
  planCharactersMax: fromOne,
};
