import { timerMaxMs } from '../clock.js';
import { FrameworkError } from '../errors/framework-error.js';
import { ConfigurationError, type ConfigurationIssue } from './configuration-errors.js';

/** The range of whole numbers that a setting may have. */
interface NumberRange {
  readonly min: number;
  readonly max: number;
}

/** The ranges of all numeric settings. */
export type RangesOf<T> = { readonly [K in keyof T as T[K] extends number ? K : never]: NumberRange };

/** From 1 to the largest exact integer. */
const fromOne: NumberRange = { min: 1, max: Number.MAX_SAFE_INTEGER };
/** The range of a waiting time in milliseconds. */
const waitRange: NumberRange = { min: 1, max: timerMaxMs };

/**
 * Merges settings with their defaults. `undefined` counts as unset, so that it cannot remove a limit.
 *
 * @param path the path of the settings, such as `retry`
 * @throws ConfigurationError `invalid-configuration` with the path of each setting that is unknown or out of range
 */
export function settingsOf<T extends object>(
  path: string,
  defaults: T,
  ranges: RangesOf<T>,
  given: Partial<T> | undefined,
): T {
  if (given === undefined) return defaults;
  assertObject(path, given);
  const set = [...new Set([...namesOf(given), ...Object.keys(defaults)])]
    .map((name) => [name, (given as Readonly<Record<string, unknown>>)[name]] as const)
    .filter(([, value]) => value !== undefined);
  const faults = set.flatMap(([name, value]) =>
    faultOf(`${path}.${name}`, Object.hasOwn(defaults, name), rangeOf(ranges, name), value),
  );
  if (faults.length > 0) throw new ConfigurationError(faults);
  return { ...defaults, ...Object.fromEntries(set) };
}

/** Every name that an object of options may have; the compiler refuses a list that is not complete. */
export type OptionNames<T> = { readonly [K in keyof T]-?: true };

/**
 * Refuses unknown options, such as a misspelled name, even in programs that are not type-checked.
 *
 * @param path the path of the options, such as `postgres.`
 * @throws ConfigurationError `invalid-configuration` with the path of each unknown option
 */
export function refuseUnknownOptions<T extends object>(path: string, known: OptionNames<T>, given: T): void {
  assertObject(path.slice(0, -1) || 'options', given);
  // Executions call this, mostly with options that are all known: then it allocates nothing.
  for (const name in given) {
    if (!Object.hasOwn(known, name)) throw unknownOptions(path, known, given);
  }
}

/**
 * Copies options by their names, so that inherited options and getters of a class count like all others.
 *
 * @throws ConfigurationError `invalid-configuration` as {@link refuseUnknownOptions}
 */
export function optionsOf<T extends object>(path: string, known: OptionNames<T>, given: T): T {
  refuseUnknownOptions(path, known, given);
  const copy: Partial<T> = {};
  for (const name in known) if (given[name] !== undefined) copy[name] = given[name];
  return copy as T;
}

/** The names of an object's properties, both own and inherited. */
function namesOf(given: object): readonly string[] {
  const names: string[] = [];
  for (const name in given) names.push(name);
  return names;
}

/** Refuses everything but an object, such as a number, a string or a list, whose properties are not settings. */
function assertObject(path: string, given: unknown): void {
  if (typeof given === 'object' && given !== null && !Array.isArray(given)) return;
  throw new ConfigurationError([{ path, message: 'is not an object' }]);
}

function unknownOptions(path: string, known: object, given: object): ConfigurationError {
  const names = Object.keys(known).join(', ');
  return new ConfigurationError(
    namesOf(given)
      .filter((name) => !Object.hasOwn(known, name))
      .map((name) => ({
        path: `${path}${name}`,
        message: `is not a known option; the options are ${names}`,
      })),
  );
}

function rangeOf(ranges: object, name: string): NumberRange | undefined {
  return Object.hasOwn(ranges, name)
    ? (ranges as Readonly<Record<string, NumberRange | undefined>>)[name]
    : undefined;
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
  if (typeof value === 'number') return String(value);
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}

/** The limits of one execution. */
export interface ExecutionLimits {
  /** How many models one plan may stage. Default 1,000. */
  readonly changesMax: number;
  /** How many events one plan may hold. Default 10,000. */
  readonly eventsMax: number;
  /**
   * How long an event's payload, the action's params and its headers may each be as JSON, in characters. Default
   * 262,144.
   */
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

/** How the plans of concurrent executions are written together. */
export interface GroupSettings {
  /** How many plans one group may contain. Default 32. */
  readonly plansMax: number;
  /**
   * How many plans of one shard may wait for their group, and how many may wait for models that other plans change or
   * lock. Further ones are refused as `shard-unavailable`. Default 10,000.
   */
  readonly queueMax: number;
  /**
   * How long a plan may wait to be sent before it is refused as `shard-unavailable`: at least this long, and at most a
   * quarter longer. A handler's plan waits only a quarter to half of this time for a slow model. It is refused at
   * once if the model has already taken that long, or if eight other handlers' plans wait; its event is retried later.
   * Default 5,000.
   */
  readonly queueWaitMs: number;
  /** How many models and events a plan may hold to be written in a group. Larger plans commit alone. Default 32. */
  readonly planSizeMax: number;
  /**
   * How many characters of rows and of JSON a plan may hold in total to be written in a group. Longer plans commit alone. Default
   * 65,536.
   */
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

/** How executions in one process wait for each other when they need the same model. */
export interface ModelLockSettings {
  /**
   * How long an execution waits for the lock on a model: at least this long, and at most one and a half times as long.
   * Then it continues without the lock, and the version check decides. An execution that holds a lock also gives it up
   * after this time if others wait for it. Default 1,000.
   */
  readonly waitMs: number;
}

export const defaultModelLockSettings: ModelLockSettings = { waitMs: 1_000 };

export const modelLockRanges: RangesOf<ModelLockSettings> = { waitMs: waitRange };

const centuryMs = 100 * 365 * 24 * 60 * 60 * 1_000;

/** How long idempotency keys are kept, and limits for finding and deleting them. */
export interface IdempotencySettings {
  /** How long a key is kept. Default 30 days. */
  readonly keyLifetimeMs: number;
  /**
   * How long an execution waits for a database to say whether it holds the key, if the execution may not need that
   * database. Default 100.
   */
  readonly searchWaitMs: number;
  /** After this many keyed commits of this process on a shard, expired keys are deleted there. Default 256. */
  readonly commitsPerSweep: number;
  /** How many expired keys are deleted at a time. Default 1,000. */
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

/** When a failed action runs again, and how long it waits first. */
export interface RetryPolicy {
  /**
   * How many times the action may run, including the first. With group commit it runs once more if it depends on a model of
   * another action that was not written: that does not count as a failure. Default 5.
   */
  readonly attemptsMax: number;
  /** The longest wait before the second attempt; it doubles with each further attempt. Default 10. */
  readonly backoffBaseMs: number;
  /** The longest wait before any attempt. Default 1,000. */
  readonly backoffMaxMs: number;
  /**
   * Returns whether another attempt can succeed after an error. Default: after stale records and transient storage errors. After
   * an unknown outcome, the log is asked before the action is performed again; a partial commit is never retried.
   */
  readonly isRetryable: (error: unknown) => boolean;
}

/** The policy of executors whose options name no other: up to 5 attempts, after stale records and transient storage errors. */
export const defaultRetryPolicy: RetryPolicy = {
  attemptsMax: 5,
  backoffBaseMs: 10,
  backoffMaxMs: 1_000,
  isRetryable: (error) => {
    const code = FrameworkError.find(error)?.code;
    return code === 'stale-record' || code === 'transient-storage';
  },
};

export const retryRanges: RangesOf<RetryPolicy> = {
  attemptsMax: { min: 1, max: 10_000 },
  backoffBaseMs: { min: 0, max: timerMaxMs },
  backoffMaxMs: { min: 0, max: timerMaxMs },
};

/**
 * How long to wait before the next attempt: exponential backoff with full jitter.
 *
 * @param attempt the attempt that failed, from 1
 * @param random a number from 0 to 1
 * @see https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
 */
export function backoffMs(policy: RetryPolicy, attempt: number, random: number): number {
  // After 31 doublings, even a millisecond exceeds every possible wait; endless doublings of 0 would give NaN.
  const doublings = Math.min(attempt - 1, 31);
  return random * Math.min(policy.backoffMaxMs, policy.backoffBaseMs * 2 ** doublings);
}
