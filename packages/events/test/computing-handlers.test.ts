import type { Clock } from '@framework/core';
import type { VirtualClock } from '@framework/testing';
import { expect, test } from 'vitest';
import { deposited } from './account.js';
import { DeliveryBench, handlerOf } from './delivery-bench.js';

/** The clock of a process whose handlers compute, which takes time within one turn of the event loop. */
class ComputingClock implements Clock {
  readonly #clock: VirtualClock;
  #computedMs = 0;
  #computedInTurnMs = 0;
  /** The longest time for which handlers computed in one turn. */
  longestTurnMs = 0;

  constructor(clock: VirtualClock) {
    this.#clock = clock;
  }

  compute(durationMs: number): void {
    if (this.#computedInTurnMs === 0) setImmediate(() => (this.#computedInTurnMs = 0));
    this.#computedMs += durationMs;
    this.#computedInTurnMs += durationMs;
    this.longestTurnMs = Math.max(this.longestTurnMs, this.#computedInTurnMs);
  }

  now(): Date {
    return this.#clock.now();
  }

  elapsedMs(): number {
    return this.#clock.elapsedMs() + this.#computedMs;
  }

  sleep(durationMs: number, signal?: AbortSignal): Promise<void> {
    return this.#clock.sleep(durationMs, signal);
  }

  after(durationMs: number, work: () => void): () => void {
    return this.#clock.after(durationMs, work);
  }
}

const models = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];

test('handlers that compute without waiting share one time limit per turn, after which the event loop goes on', async () => {
  const bench = new DeliveryBench();
  const clock = new ComputingClock(bench.clock);
  for (let version = 1; version <= 50; version++)
    bench.database.commit(...models.map((model) => deposited(model, version)));
  const handlers = ['one', 'two'].map((name) => handlerOf({ name }, () => clock.compute(3)));
  bench.start(handlers, {}, undefined, undefined, clock);
  // Each step of the clock is a turn.
  for (let step = 0; step < 1_000; step++) await bench.clock.advance(1);
  expect(handlers.map(({ seen }) => seen.length)).toEqual([400, 400]);
  expect(clock.longestTurnMs).toBeGreaterThanOrEqual(18);
  expect(clock.longestTurnMs).toBeLessThanOrEqual(24);
});

test('a handler that computes during a long backlog takes turns with the others', async () => {
  const bench = new DeliveryBench();
  const clock = new ComputingClock(bench.clock);
  for (let version = 1; version <= 50; version++)
    bench.database.commit(...models.map((model) => deposited(model, version)));
  const called: string[] = [];
  const handlers = ['one', 'two', 'three'].map((name) =>
    handlerOf({ name }, () => {
      called.push(name);
      clock.compute(3);
    }),
  );
  bench.start(handlers, {}, undefined, undefined, clock);
  for (let step = 0; step < 1_000; step++) await bench.clock.advance(1);
  expect(called).toHaveLength(1_200);
  for (let from = 0; from < 900; from += 60)
    expect(new Set(called.slice(from, from + 60))).toEqual(new Set(['one', 'two', 'three']));
});

test('handlers that compute while models are blocked let the event loop go on between their calls', async () => {
  const bench = new DeliveryBench();
  const clock = new ComputingClock(bench.clock);
  const many = Array.from({ length: 100 }, (_, index) => `${'abcd'.charAt(index % 4)}${index}`);
  for (const version of [1, 2, 3])
    bench.database.commit(...many.map((model) => deposited(model, version, { id: `${model}-${version}` })));
  const handler = handlerOf({ name: 'one', concurrency: 100 }, ({ modelId }) => {
    clock.compute(3);
    if (modelId === 'a0') throw new Error('it never succeeds');
  });
  bench.start([handler], {}, undefined, undefined, clock);
  for (let step = 0; step < 400; step++) await bench.clock.advance(1);
  expect(new Set(handler.seen).size).toBe(298);
  expect(clock.longestTurnMs).toBeLessThanOrEqual(24);
});
