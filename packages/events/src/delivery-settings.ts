import { ConfigurationError } from '@framework/core';
import { type ConfigurationIssue, kebabCasePath } from '@framework/core/adapter';

import { type DeliveryTuning, tuningFor, tuningIn } from './delivery-tuning.js';
import { type HandlerRetry, set } from './handler/event-handler.js';

/** The settings of delivery, which apply per process and database unless stated otherwise. */
export interface DeliverySettings {
  /** How long a process keeps a slot without renewing the lease; it renews after a third of this time. Default 10,000. */
  readonly leaseMs: number;
  /** The longest time between two polls of the log, reached when nothing happens. Default 1,000. */
  readonly pollMaxMs: number;
  /**
   * How many bytes of events are read at once. Events larger than a thousandth of this are read without payload and params, which
   * are loaded when the handler is called. The unfinished events that a handler has read have at most four times as many bytes, besides
   * those of slots that have less than their share. Default 16,777,216.
   */
  readonly readBytesMax: number;
  /** How long after the last event a cursor is saved; until then, a crash repeats what was handled. Default 1,000. */
  readonly cursorSaveMs: number;
  /** How many models (for batch handlers: slots) of a handler are handled in parallel. Default 16. */
  readonly concurrency: number;
  /** The maximum number of events in a call of a batch handler. Default 1,000. */
  readonly batchMax: number;
  /** How long one call of a handler may take. Default 30,000. */
  readonly timeoutMs: number;
  /** How failed attempts are retried. Default: 72 attempts over at least a day, with backoff from 500 ms to 1 h. */
  readonly retry: HandlerRetry;
  /** How long `stop` waits for running handlers. Default 10,000. */
  readonly stopTimeoutMs: number;
  /** How long events that every handler has passed are kept. Default 0: for ever. */
  readonly retentionMs: number;
}

/** The value of each setting that a delivery's options leave out. */
export const defaultDeliverySettings: DeliverySettings = {
  leaseMs: 10_000,
  pollMaxMs: 1_000,
  readBytesMax: 16_777_216,
  cursorSaveMs: 1_000,
  concurrency: 16,
  batchMax: 1_000,
  timeoutMs: 30_000,
  retry: { attemptsMax: 72, backoffBaseMs: 500, backoffMaxMs: 3_600_000 },
  stopTimeoutMs: 10_000,
  retentionMs: 0,
};

/** What the parts of delivery use: the settings, and what is fixed or derived from them. */
export interface EngineSettings extends DeliverySettings, DeliveryTuning {}

/**
 * The largest size, in bytes, at which an event is read completely. Larger ones are read without payload and params, which are
 * loaded when the handler is called.
 */
export function eventBytesMax({
  readMax,
  readBytesMax,
}: Pick<EngineSettings, 'readMax' | 'readBytesMax'>): number {
  return Math.max(1, Math.floor(readBytesMax / readMax));
}

/** Overrides of the settings; `undefined` counts as not set. */
export type DeliveryOverrides = Partial<Omit<DeliverySettings, 'retry'>> & {
  readonly retry?: Partial<HandlerRetry>;
};

/**
 * Applies overrides to the default settings, and adds what is fixed or derived.
 *
 * @throws ConfigurationError `invalid-configuration` when a setting is unknown or is not a whole number within its range, or
 * when the overrides are not an object
 */
export function engineSettings(overrides: DeliveryOverrides = {}): EngineSettings {
  const { retry, ...numbers } = checkedSettings(overrides, ['delivery'], (path) => path.join('.'));
  const settings = { ...defaultDeliverySettings, ...numbers, retry: { ...defaultRetry, ...retry } };
  return { ...settings, ...tuningFor(settings), ...tuningIn(overrides) };
}

interface NumberRange {
  readonly min: number;
  readonly max: number;
}

/** Settings that are numbers. */
export type SettingName = Exclude<keyof DeliverySettings, 'retry'> | keyof HandlerRetry;

/** Waits in milliseconds: up to the longest delay of a timer. */
const wait: NumberRange = { min: 1, max: 2 ** 31 - 1 };
/** Counts: up to what a process, or one statement, can reasonably hold. */
const count: NumberRange = { min: 1, max: 1_000_000 };
/** Sizes in bytes: up to that of the largest value in PostgreSQL. */
const bytes: NumberRange = { min: 1, max: 2 ** 30 };

/** The range of each setting, which is a whole number. */
const ranges: Readonly<Record<SettingName, NumberRange>> = {
  // A third of it must be enough for a renewal.
  leaseMs: { min: 100, max: wait.max },
  pollMaxMs: wait,
  readBytesMax: bytes,
  cursorSaveMs: wait,
  concurrency: count,
  batchMax: count,
  timeoutMs: wait,
  attemptsMax: count,
  backoffBaseMs: wait,
  backoffMaxMs: wait,
  stopTimeoutMs: wait,
  // Zero means for ever; every database can represent the date a hundred years ago.
  retentionMs: { min: 0, max: 3_155_760_000_000 },
};

/** What is wrong with the value of a setting, or of a handler's limit with that name; `undefined` when it is valid. */
export function settingIssue(name: SettingName, value: unknown): string | undefined {
  const { min, max } = ranges[name];
  if (Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max) return undefined;
  return `must be a whole number from ${shown(min)} to ${shown(max)}`;
}

function shown(bound: number): string {
  return bound.toLocaleString('en-US');
}

const { retry: defaultRetry, ...defaultNumbers } = defaultDeliverySettings;

/**
 * Reads the overrides of delivery settings in a configuration file: `FrameworkConfig.delivery` of core.
 *
 * @param section its keys in camelCase
 * @throws ConfigurationError `invalid-configuration` with the path of every name that is unknown, and of every value that is not
 * a whole number within its range; values are never shown
 */
export function parseDeliverySettings(section: Readonly<Record<string, unknown>>): DeliveryOverrides {
  return checkedSettings(section, ['framework', 'delivery'], kebabCasePath);
}

type Section = Readonly<Record<string, unknown>>;

/** The settings that have a value; `written` turns the paths of what is wrong into text. */
function checkedSettings(
  given: unknown,
  root: readonly string[],
  written: (path: readonly string[]) => string,
): DeliveryOverrides {
  const issues: ConfigurationIssue[] = [];
  const refuse = (path: readonly string[], message: string): void => {
    issues.push({ path: written(path), message });
  };
  const sectionOf = (section: unknown, path: readonly string[]): Section => {
    if (typeof section === 'object' && section !== null && !Array.isArray(section)) return section as Section;
    refuse(path, 'is not a section: give its settings by their names');
    return {};
  };
  const numbersOf = (section: Section, known: object, path: readonly string[]): object => {
    const valid = Object.entries(set(section)).filter(([name, value]) => {
      const isKnown = Object.hasOwn(known, name);
      const issue = isKnown ? settingIssue(name as SettingName, value) : 'is not a known key';
      if (issue !== undefined) refuse([...path, name], issue);
      return issue === undefined;
    });
    return Object.fromEntries(valid);
  };
  const { retry, ...numbers } = sectionOf(given, root);
  const retryPath = [...root, 'retry'];
  const overrides = {
    ...numbersOf(numbers, defaultNumbers, root),
    ...(retry !== undefined && { retry: numbersOf(sectionOf(retry, retryPath), defaultRetry, retryPath) }),
  };
  if (issues.length > 0) throw new ConfigurationError(issues);
  return overrides;
}
