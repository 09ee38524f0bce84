import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { leftBehind } from '../../../../packages/core/test/left-behind.js';
import { type FailureTotal, RepeatedFailures } from './repeated-failures.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const quietMs = 10_000;

function failures(onQuiet: 'end' | 'forget reasons') {
  const totals: FailureTotal<string>[] = [];
  const repeated = new RepeatedFailures<string>((total) => totals.push(total), onQuiet);
  const failed = (reason: string, key = 'one'): boolean => repeated.failed(key, key, reason, quietMs);
  return { repeated, totals, failed };
}

test('each reason is told once for each key, and the end with the number of failures', () => {
  const { repeated, totals, failed } = failures('forget reasons');
  expect([failed('down'), failed('down'), failed('busy'), failed('down', 'other')]).toEqual([
    true,
    false,
    true,
    true,
  ]);
  vi.advanceTimersByTime(500);
  expect(failed('down')).toBe(false);
  vi.advanceTimersByTime(100);
  // The last failure is too recent: others may still fail.
  repeated.succeeded('one', 101);
  expect(totals).toEqual([]);
  repeated.succeeded('one', 100);
  repeated.succeeded('one', 100);
  expect(totals).toEqual([{ subject: 'one', count: 4, durationMs: 500 }]);
  expect([repeated.isAny, failed('down')]).toEqual([true, true]);
});

test('a thousand different reasons are not all told', () => {
  const { failed } = failures('end');
  const told = Array.from({ length: 1_000 }, (_, index) => failed(`reason ${index}`));
  expect(told.filter(Boolean)).toHaveLength(8);
});

test('failures that only become rare are told again after a while, and are not over', () => {
  const { totals, failed } = failures('forget reasons');
  failed('down');
  vi.advanceTimersByTime(quietMs - 1);
  expect(failed('down')).toBe(false);
  vi.advanceTimersByTime(quietMs);
  expect([failed('down'), totals]).toEqual([true, []]);
});

test('failures that repeat by themselves are over when they do not come', () => {
  const { repeated, totals, failed } = failures('end');
  failed('down');
  failed('down');
  vi.advanceTimersByTime(quietMs);
  expect(totals).toEqual([{ subject: 'one', count: 2, durationMs: 0 }]);
  expect(repeated.isAny).toBe(false);
});

test.each<[string, (repeated: RepeatedFailures<string>) => void]>([
  ['a success', (repeated) => repeated.succeeded('one', 0)],
  ['a quiet time', () => void vi.advanceTimersByTime(quietMs)],
])('failures that come back after %s are told and counted as the first ones were', (_end, end) => {
  const { repeated, totals, failed } = failures('end');
  for (let time = 0; time < 2; time++) {
    expect([failed('down'), failed('down'), failed('busy')]).toEqual([true, false, true]);
    vi.advanceTimersByTime(500);
    expect(failed('busy')).toBe(false);
    end(repeated);
    expect(repeated.isAny).toBe(false);
  }
  const total = { subject: 'one', count: 4, durationMs: 500 };
  expect(totals).toEqual([total, total]);
});

test('failures that are repeated after the longest wait that can be configured are not over at once', () => {
  const { repeated, totals } = failures('end');
  repeated.failed('one', 'one', 'down', 2 ** 31 - 1 + 10_000);
  vi.advanceTimersByTime(60_000);
  expect(totals).toEqual([]);
});

test('failures leave no timer and no entry behind once they are over, whichever ends them', async () => {
  vi.useRealTimers();
  const { repeated, totals } = failures('forget reasons');
  const left = await leftBehind((number) => {
    for (const reason of ['down', 'busy', 'down']) repeated.failed(`${number}`, 'one', reason, 60_000);
    repeated.succeeded(`${number}`, 0);
  });
  expect([left, repeated.isAny, totals.length]).toEqual([[], false, 4]);
});

test('each failure replaces the timer of the one before it', () => {
  const { failed, repeated } = failures('end');
  for (let count = 0; count < 5; count++) failed('down');
  failed('down', 'other');
  expect(vi.getTimerCount()).toBe(2);
  vi.advanceTimersByTime(quietMs);
  expect([vi.getTimerCount(), repeated.isAny]).toEqual([0, false]);
});

test.each([
  [2 ** 31 - 2, 2 ** 31 - 2],
  [2 ** 31 - 1, 2 ** 31 - 1],
  [2 ** 31, 2 ** 31 - 1],
])('failures are over after a quiet time of %d ms, as far as timers reach', (configuredMs, expectedMs) => {
  const { repeated } = failures('end');
  repeated.failed('one', 'one', 'down', configuredMs);
  vi.advanceTimersByTime(expectedMs - 1);
  expect(repeated.isAny).toBe(true);
  vi.advanceTimersByTime(1);
  expect(repeated.isAny).toBe(false);
});
