import { ConfigurationError } from '@framework/core';
import { type ConfigurationIssue, kebabCasePath } from '@framework/core/adapter';

import type { HandlerRetry } from './handler/event-handler.js';

/** The named limits and times of delivery, each per process and database unless it says otherwise. */
export interface DeliverySettings {
  /** For how long a slot stays leased when its process vanishes; renewed after a third of it. Default 10,000. */
  readonly leaseMs: number;
  /** The shortest time between two looks at the log when nothing wakes earlier. Default 250. */
  readonly pollMinMs: number;
  /** The longest one, reached when nothing happens. Default 1,000. */
  readonly pollMaxMs: number;
  /** How often blocked events are looked for while none of them waits for a known time. Default 2,000. */
  readonly blockedPollMs: number;
  /** About how many events are read at once. Default 1,000. */
  readonly readMax: number;
  /**
   * How many bytes of events are read at once: those with more than their share of it are read by themselves, when their turn
   * comes. No statement blocks more either, unless one event alone has more. Default 16,777,216, and so 16 KiB each.
   */
  readonly readBytesMax: number;
  /** How many events of one handler may be read and not finished. Default 2,000. */
  readonly unfinishedMax: number;
  /** How many events of one handler may be finished beyond its saved cursors: so many a crash repeats. Default 10,000. */
  readonly unsavedMax: number;
  /** A cursor that passed so many wanted events is saved: about so many per slot a crash repeats. Default 100. */
  readonly cursorSaveEvents: number;
  /** After how long without a further event a cursor that passed wanted events is saved. Default 1,000. */
  readonly cursorSaveMs: number;
  /** After how long it is saved at the latest. Default 10,000. */
  readonly cursorSaveMaxMs: number;
  /** The shortest time between two savings of cursors, so that many are saved by one statement. Default 100. */
  readonly cursorSaveMinMs: number;
  /** After how long cursors that passed only unwanted events are saved. Default 30,000. */
  readonly cursorRestSaveMs: number;
  /** How many events are blocked by one statement. Default 500. */
  readonly blockMax: number;
  /** How many blocked models of each handler are looked at by one statement. Default 200. */
  readonly dueMax: number;
  /** How many models (or slots, for batches) of a handler run side by side. Default 16. */
  readonly concurrency: number;
  /** How many events a batch handler receives at most. Default 1,000. */
  readonly batchMax: number;
  /** How many bytes of events a batch handler receives at most, unless one event alone has more. Default 8,388,608. */
  readonly batchBytesMax: number;
  /** How long one call of a handler may take. Default 30,000. */
  readonly timeoutMs: number;
  /**
   * How many calls, of all handlers of the process, may ignore their signal and keep running before it makes no new ones.
   * Default 64.
   */
  readonly abandonedMax: number;
  /** For how long there may be so many before the process releases its leases and requests a restart. Default 10,000. */
  readonly abandonedForMs: number;
  /** For how long an event during whose call a process ended runs alone, per process; it doubles with each end. Default 1,000. */
  readonly suspectAloneMs: number;
  /** How failed attempts are repeated. Default: 10 attempts, backoff from 500 ms to 5 min, after outages to 5 s. */
  readonly retry: HandlerRetry;
  /** The first wait after the database failed; it doubles. Default 100. */
  readonly storeBackoffBaseMs: number;
  /** The longest one. Default 5,000. */
  readonly storeBackoffMaxMs: number;
  /** The shortest time between two notifications to other processes. Default 20. */
  readonly notifyCoalesceMs: number;
  /** How long `stop` waits for what runs. Default 10,000. */
  readonly stopTimeoutMs: number;
  /** How often partitions of the log are created ahead and dropped. Default 86,400,000, a day. */
  readonly partitionsMs: number;
  /** After how long events that every handler has passed are dropped. Default 0: never. */
  readonly retentionMs: number;
}

export const defaultDeliverySettings: DeliverySettings = {
  leaseMs: 10_000,
  pollMinMs: 250,
  pollMaxMs: 1_000,
  blockedPollMs: 2_000,
  readMax: 1_000,
  readBytesMax: 16_777_216,
  unfinishedMax: 2_000,
  unsavedMax: 10_000,
  cursorSaveEvents: 100,
  cursorSaveMs: 1_000,
  cursorSaveMaxMs: 10_000,
  cursorSaveMinMs: 100,
  cursorRestSaveMs: 30_000,
  blockMax: 500,
  dueMax: 200,
  concurrency: 16,
  batchMax: 1_000,
  batchBytesMax: 8_388_608,
  timeoutMs: 30_000,
  abandonedMax: 64,
  abandonedForMs: 10_000,
  suspectAloneMs: 1_000,
  retry: { attemptsMax: 10, backoffBaseMs: 500, backoffMaxMs: 300_000, outageBackoffMaxMs: 5_000 },
  storeBackoffBaseMs: 100,
  storeBackoffMaxMs: 5_000,
  notifyCoalesceMs: 20,
  stopTimeoutMs: 10_000,
  partitionsMs: 86_400_000,
  retentionMs: 0,
};

/** Larger events are not read together with others, but by themselves when their turn comes. */
export function eventBytesMax({
  readMax,
  readBytesMax,
}: Pick<DeliverySettings, 'readMax' | 'readBytesMax'>): number {
  return Math.max(1, Math.floor(readBytesMax / readMax));
}

/** What a caller may change; `undefined` counts as not set. */
export type DeliveryOverrides = Partial<Omit<DeliverySettings, 'retry'>> & {
  readonly retry?: Partial<HandlerRetry>;
};

/**
 * Lays settings over their defaults.
 *
 * @throws ConfigurationError `invalid-configuration` when one is unknown, or no whole number within its bounds
 */
export function deliverySettings({ retry, ...overrides }: DeliveryOverrides = {}): DeliverySettings {
  const settings = {
    ...defaultDeliverySettings,
    ...set(overrides),
    retry: { ...defaultDeliverySettings.retry, ...set(retry ?? {}) },
  };
  const { retry: policy, ...others } = settings;
  const faults = Object.entries({ ...others, ...policy }).flatMap(([name, value]) => {
    const fault = settingIssue(name, value);
    return fault === undefined ? [] : [{ path: `delivery.${name}`, message: `is ${value}: ${fault}` }];
  });
  if (faults.length > 0) throw new ConfigurationError(faults);
  return settings;
}

/** Leaves out what is `undefined`, so that no limit is lost by it. */
export function set<T extends object>(settings: T): Partial<T> {
  return Object.fromEntries(
    Object.entries(settings).filter(([, value]) => value !== undefined),
  ) as Partial<T>;
}

interface NumberRange {
  readonly min: number;
  readonly max: number;
}

type SettingName = Exclude<keyof DeliverySettings, 'retry'> | keyof HandlerRetry;

/** As long as a timer can wait. */
const wait: NumberRange = { min: 1, max: 2 ** 31 - 1 };
/** As many as a process, or one statement, may hold at all. */
const count: NumberRange = { min: 1, max: 1_000_000 };
/** As much as PostgreSQL holds in one value. */
const bytes: NumberRange = { min: 1, max: 2 ** 30 };

/** Which whole numbers each setting may be. */
const ranges: Readonly<Record<SettingName, NumberRange>> = {
  // A third of it has to be enough for a renewal.
  leaseMs: { min: 100, max: wait.max },
  pollMinMs: wait,
  pollMaxMs: wait,
  blockedPollMs: wait,
  readMax: count,
  readBytesMax: bytes,
  unfinishedMax: count,
  unsavedMax: count,
  cursorSaveEvents: count,
  cursorSaveMs: wait,
  cursorSaveMaxMs: wait,
  cursorSaveMinMs: wait,
  cursorRestSaveMs: wait,
  blockMax: count,
  dueMax: count,
  concurrency: count,
  batchMax: count,
  batchBytesMax: bytes,
  timeoutMs: wait,
  abandonedMax: count,
  abandonedForMs: wait,
  suspectAloneMs: wait,
  attemptsMax: count,
  backoffBaseMs: wait,
  backoffMaxMs: wait,
  outageBackoffMaxMs: wait,
  storeBackoffBaseMs: wait,
  storeBackoffMaxMs: wait,
  notifyCoalesceMs: wait,
  stopTimeoutMs: wait,
  partitionsMs: wait,
  // Zero is never; a hundred years ago is a date that every database knows.
  retentionMs: { min: 0, max: 3_155_760_000_000 },
};

/** What is wrong with the value of a setting, or of a handler's limit of that name; `undefined` when nothing is. */
export function settingIssue(name: string, value: unknown): string | undefined {
  if (!isSetting(name)) return 'is not a known setting';
  const { min, max } = ranges[name];
  if (Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max) return undefined;
  return `must be a whole number from ${shown(min)} to ${shown(max)}`;
}

function isSetting(name: string): name is SettingName {
  return Object.hasOwn(ranges, name);
}

function shown(bound: number): string {
  return bound.toLocaleString('en-US');
}

const sectionPath = ['framework', 'delivery'];
const { retry: defaultRetry, ...defaultNumbers } = defaultDeliverySettings;

/**
 * Reads what a configuration file changes in the settings of delivery: `FrameworkConfig.delivery` of core.
 *
 * @param section its keys in camelCase
 * @throws ConfigurationError `invalid-configuration` with the path of every name that is unknown, and of every value
 * that is no whole number within its bounds; values are never shown
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
): Readonly<Record<string, number>> {
  const parsed: Record<string, number> = {};
  for (const [name, value] of Object.entries(section)) {
    const message = Object.hasOwn(known, name) ? settingIssue(name, value) : 'is not a known key';
    if (message === undefined) parsed[name] = value as number;
    else faults.push({ path: kebabCasePath([...path, name]), message });
  }
  return parsed;
}

function isSection(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
