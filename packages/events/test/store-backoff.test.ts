import { VirtualClock } from '@framework/testing';
import { expect, test } from 'vitest';

import { StoreBackoff } from '../src/worker-context.js';

function backoff(random: number, clock: VirtualClock = new VirtualClock()): StoreBackoff {
  return new StoreBackoff({ clock, random: () => random, baseMs: 100, maxMs: 5_000 });
}

test('a refused call is repeated after growing waits, up to a maximum', () => {
  const waiting = backoff(1);
  const waits = Array.from({ length: 8 }, () => waiting.failedMs());
  expect(waits).toEqual([100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
  for (let failures = 8; failures < 2_000; failures++) waiting.failedMs();
  expect(waiting.failedMs()).toBe(5_000);
});

test('half of each wait is random, so that no loop is ever tight', () => {
  expect([backoff(0).failedMs(), backoff(0.5).failedMs(), backoff(1).failedMs()]).toEqual([50, 75, 100]);
});

test('the waits start again after a success', () => {
  const waiting = backoff(1);
  for (let failures = 0; failures < 5; failures++) waiting.failedMs();
  waiting.succeeded();
  expect(waiting.failedMs()).toBe(100);
});

test('a wait ends on time, or when delivery ends', async () => {
  const clock = new VirtualClock();
  const ended = new AbortController();
  const waiting = backoff(1, clock);
  let endCount = 0;
  void waiting.failed(ended.signal).then(() => endCount++);
  await clock.advance(99);
  expect(endCount).toBe(0);
  await clock.advance(1);
  expect(endCount).toBe(1);
  void waiting.failed(ended.signal).then(() => endCount++);
  ended.abort();
  await clock.advance(0);
  expect(endCount).toBe(2);
});
