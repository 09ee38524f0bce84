import { afterEach, beforeEach, expect, test, vi } from 'vitest';

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

test('failures that are repeated after the longest wait that can be configured are not over at once', () => {
  const { repeated, totals } = failures('end');
  repeated.failed('one', 'one', 'down', 2 ** 31 - 1 + 10_000);
  vi.advanceTimersByTime(60_000);
  expect(totals).toEqual([]);
});
