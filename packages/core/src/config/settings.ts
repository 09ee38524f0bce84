import { timerMaxMs } from '../clock.js';
import { ConfigurationError, type ConfigurationIssue } from '../errors/configuration-errors.js';

/** The whole numbers that a setting may be. */
interface NumberRange {
  readonly min: number;
  readonly max: number;
}

/** The ranges of those settings that are numbers. */
export type RangesOf<T> = { readonly [K in keyof T as T[K] extends number ? K : never]: NumberRange };

/** From 1 to what a number holds exactly. */
const fromOne: NumberRange = { min: 1, max: Number.MAX_SAFE_INTEGER };
/** How long something may be waited for, from 1 ms. */
const waitRange: NumberRange = { min: 1, max: timerMaxMs };

/**
 * Lays settings over their defaults; `undefined` counts as not set, so that no limit is lost by it.
 *
 * @param path where the settings stand, such as `retry`
 * @throws ConfigurationError `invalid-configuration` with the path of each one that is unknown or out of its range
 */
export function settingsOf<T extends object>(
  path: string,
  defaults: T,
  ranges: RangesOf<T>,
  given: Partial<T> | undefined,
): T {
  if (given === undefined) return defaults;
  const set = Object.entries(given).filter(([, value]) => value !== undefined);
  const faults = set.flatMap(([name, value]) =>
    faultOf(`${path}.${name}`, name in defaults, rangeOf(ranges, name), value),
  );
  if (faults.length > 0) throw new ConfigurationError(faults);
  return { ...defaults, ...Object.fromEntries(set) };
}

function rangeOf(ranges: object, name: string): NumberRange | undefined {
  return (ranges as Readonly<Record<string, NumberRange | undefined>>)[name];
}

function faultOf(
  path: string,
  isKnown: boolean,
  range: NumberRange | undefined,
  value: unknown,
): readonly ConfigurationIssue[] {
  if (!isKnown) return [{ path, message: 'is not a known setting' }];
  if (range === undefined) {
    return typeof value === 'function' ? [] : [{ path, message: 'is not a function' }];
  }
  const { min, max } = range;
  if (Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max) return [];
  return [{ path, message: `is ${shown(value)}: set a whole number from ${min} to ${max}` }];
}

function shown(value: unknown): string {
  return typeof value === 'number' ? String(value) : `a ${typeof value}`;
}

/** The named maxima of one execution. */
export interface ExecutionLimits {
  /** How many models one plan may stage. Default 1,000. */
  readonly changesMax: number;
  /** How many events one plan may hold. Default 10,000. */
  readonly eventsMax: number;
  /** How long one event's payload, the action's params, or its headers may be as JSON, in characters. Default 262,144. */
  readonly payloadCharactersMax: number;
}

export const defaultExecutionLimits: ExecutionLimits = {
  changesMax: 1_000,
  eventsMax: 10_000,
  payloadCharactersMax: 262_144,
};

export const executionLimitRanges: RangesOf<ExecutionLimits> = {
  changesMax: fromOne,
  eventsMax: fromOne,
  payloadCharactersMax: fromOne,
};

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

/** How executions of one process that want the same model wait for each other. */
export interface ModelLockSettings {
  /**
   * How long an execution waits for the lock on a model at least; after at most one and a half times as long it goes on
   * without, and the guarded version decides. Nor does another one keep a lock for longer while somebody waits. Default 1,000.
   */
  readonly waitMs: number;
}

export const defaultModelLockSettings: ModelLockSettings = { waitMs: 1_000 };

export const modelLockRanges: RangesOf<ModelLockSettings> = { waitMs: waitRange };

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
