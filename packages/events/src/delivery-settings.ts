import { ConfigurationError } from '@framework/core';
import { type ConfigurationIssue, kebabCasePath } from '@framework/core/adapter';

import { type DeliveryTuning, tuningFor, tuningIn } from './delivery-tuning.js';
import type { HandlerRetry } from './handler/event-handler.js';

/** The settings of delivery, which apply per process and database unless stated otherwise. */
export interface DeliverySettings {
  /** How long a process keeps a slot without renewing the lease; it renews after a third of this time. Default 10,000. */
  readonly leaseMs: number;
  /** The longest time between two polls of the log, reached when nothing happens. Default 1,000. */
  readonly pollMaxMs: number;
  /**
   * How many bytes of events are read at once. Events larger than a thousandth of this are read without payload and params, which
   * are loaded when the handler is called. The unfinished events that a handler has read have at most four times as many bytes.
   * Default 16,777,216.
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
  const faults: ConfigurationIssue[] = [];
  const { retry: givenRetry = {}, ...numbers } = sectionOf(overrides, ['delivery'], faults);
  const retry = sectionOf(givenRetry, ['delivery', 'retry'], faults);
  const settings = {
    ...defaultDeliverySettings,
    ...knownNumbers(set(numbers), defaultNumbers, ['delivery'], faults, joined),
    retry: {
      ...defaultRetry,
      ...knownNumbers(set(retry), defaultRetry, ['delivery', 'retry'], faults, joined),
    },
  };
  if (faults.length > 0) throw new ConfigurationError(faults);
  return { ...settings, ...tuningFor(settings), ...tuningIn(overrides) };
}

/** The settings that a program passes; none if it passes something that is not an object. */
function sectionOf<T extends object>(
  given: T,
  path: readonly string[],
  faults: ConfigurationIssue[],
): Partial<T> {
  if (isSection(given)) return given;
  faults.push({ path: joined(path), message: 'is not an object: pass its settings by their names' });
  return {};
}

function joined(path: readonly PropertyKey[]): string {
  return path.join('.');
}

/** Removes `undefined` values, so that they do not replace defaults. */
export function set<T extends object>(settings: T): { [Name in keyof T]?: Exclude<T[Name], undefined> } {
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined)) as {
    [Name in keyof T]?: Exclude<T[Name], undefined>;
  };
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

const sectionPath = ['framework', 'delivery'];
const { retry: defaultRetry, ...defaultNumbers } = defaultDeliverySettings;

/**
 * Reads the overrides of delivery settings in a configuration file: `FrameworkConfig.delivery` of core.
 *
 * @param section its keys in camelCase
 * @throws ConfigurationError `invalid-configuration` with the path of every name that is unknown, and of every value that is not
 * a whole number within its range; values are never shown
 */
export function parseDeliverySettings({
  retry,
  ...numbers
}: Readonly<Record<string, unknown>>): DeliveryOverrides {
  const faults: ConfigurationIssue[] = [];
  const overrides = {
    ...knownNumbers(numbers, defaultNumbers, sectionPath, faults),
    ...(retry !== undefined && { retry: retrySection(retry, faults) }),
  };
  if (faults.length > 0) throw new ConfigurationError(faults);
  return overrides;
}

function retrySection(retry: unknown, faults: ConfigurationIssue[]): Readonly<Record<string, number>> {
  const path = [...sectionPath, 'retry'];
  if (isSection(retry)) return knownNumbers(retry, defaultRetry, path, faults);
  faults.push({ path: kebabCasePath(path), message: 'is not a section: write attempts-max: … below it' });
  return {};
}

function knownNumbers(
  section: Readonly<Record<string, unknown>>,
  known: object,
  path: readonly string[],
  faults: ConfigurationIssue[],
  written = kebabCasePath,
): Readonly<Record<string, number>> {
  const parsed: Record<string, number> = {};
  for (const [name, value] of Object.entries(section)) {
    const message = Object.hasOwn(known, name)
      ? settingIssue(name as SettingName, value)
      : 'is not a known key';
    if (message === undefined) parsed[name] = value as number;
    else faults.push({ path: written([...path, name]), message });
  }
  return parsed;
}

function isSection(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
