import type { DeliverySettings } from './delivery-settings.js';
import type { HandlerRetry } from './handler/handler-retry.js';

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
  parkedPollMs: wait,
  readMax: count,
  readBytesMax: bytes,
  unfinishedMax: count,
  unsavedMax: count,
  cursorSaveEvents: count,
  cursorSaveMs: wait,
  cursorSaveMaxMs: wait,
  cursorSaveMinMs: wait,
  cursorRestSaveMs: wait,
  parkMax: count,
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
export function settingFault(name: string, value: unknown): string | undefined {
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
