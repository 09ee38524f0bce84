import { expect, test } from 'vitest';

import {
  type DeliveryOverrides,
  defaultDeliverySettings,
  engineSettings,
  eventBytesMax,
} from './delivery-settings.js';

const timerMaxMs = 2 ** 31 - 1;

function isAccepted(overrides: DeliveryOverrides): boolean {
  try {
    engineSettings(overrides);
    return true;
  } catch {
    return false;
  }
}

/** The range of each setting. */
const ranges = [
  ['leaseMs', 100, timerMaxMs],
  ['pollMaxMs', 1, timerMaxMs],
  ['readBytesMax', 1, 1_073_741_824],
  ['cursorSaveMs', 1, timerMaxMs],
  ['concurrency', 1, 1_000_000],
  ['batchMax', 1, 1_000_000],
  ['timeoutMs', 1, timerMaxMs],
  ['stopTimeoutMs', 1, timerMaxMs],
  ['retentionMs', 0, 3_155_760_000_000],
  ['retry.attemptsMax', 1, 1_000_000],
  ['retry.backoffBaseMs', 1, timerMaxMs],
  ['retry.backoffMaxMs', 1, timerMaxMs],
] as const;

test('every setting has its range', () => {
  const { retry, ...others } = defaultDeliverySettings;
  const names = [...Object.keys(others), ...Object.keys(retry).map((name) => `retry.${name}`)];
  expect(ranges.map(([name]) => name).toSorted()).toEqual(names.toSorted());
});

test.each(ranges)('the setting %s may be %d to %d, and nothing beside', (name, min, max) => {
  const withValue = (value: number): DeliveryOverrides =>
    name.startsWith('retry.') ? { retry: { [name.slice(6)]: value } } : { [name]: value };
  const values = [min - 1, min, max, max + 1];
  expect(values.map((value) => isAccepted(withValue(value)))).toEqual([false, true, true, false]);
});

test('times that are derived from the shortest ones that can be set are not zero', () => {
  const settings = engineSettings({ pollMaxMs: 1, cursorSaveMs: 1, readBytesMax: 1 });
  const derived = ['pollMinMs', 'cursorSaveMinMs', 'batchBytesMax'] as const;
  expect(derived.map((name) => settings[name])).toEqual([1, 1, 1]);
});

test.each([
  [1, 1],
  [999, 1],
  [1_999, 1],
  [2_000, 2],
  [16_777_216, 16_777],
])('of reads of %d bytes, events of up to %d bytes are read completely', (readBytesMax, expected) => {
  expect(eventBytesMax({ readMax: 1_000, readBytesMax })).toBe(expected);
});
