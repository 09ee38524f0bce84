import { VirtualClock } from '@framework/testing';
import { expect, test } from 'vitest';

import { LoopWatch } from '../src/slots/lease-keeper.js';

const leaseMs = 9_000;

/** Lets time pass while the event loop is blocked. */
function standStill(clock: VirtualClock, durationMs: number): Promise<void> {
  return clock.advance(durationMs);
}

test('an event loop counts as stopped when nothing has run for more than two thirds of a lease', async () => {
  const clock = new VirtualClock();
  const watch = new LoopWatch(clock, leaseMs);
  await standStill(clock, 6_000);
  expect(watch.stoodSince(0)).toBe(false);
  await standStill(clock, 6_001);
  expect(watch.stoodSince(0)).toBe(true);
  expect(watch.stoodSince(clock.elapsedMs() - 1)).toBe(true);
  expect(watch.stoodSince(clock.elapsedMs())).toBe(false);
  const beginMs = watch.now();
  await standStill(clock, 6_000);
  expect(watch.stoodSince(beginMs)).toBe(false);
});

test('an event loop that was idle for a long time does not count as stopped, because it is checked regularly', async () => {
  const clock = new VirtualClock();
  const ended = new AbortController();
  const watch = new LoopWatch(clock, leaseMs);
  // The database may take this long to register the handlers.
  await standStill(clock, 60_000);
  void watch.run(ended.signal);
  await clock.advance(60_000);
  expect(watch.stoodSince(0)).toBe(false);
  ended.abort();
  await clock.advance(0);
  expect(clock.sleeperCount).toBe(0);
});
