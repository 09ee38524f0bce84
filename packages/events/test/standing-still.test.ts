import type { Clock } from '@framework/core';
import type { VirtualClock } from '@framework/testing';
import { expect, test } from 'vitest';
import type { EventHandler } from '../src/index.js';
import { type DepositedEvent, deposited } from './account.js';
import { type BenchProcess, DeliveryBench, handlerOf } from './delivery-bench.js';

/**
 * The clock of one process whose event loop can stand still: what sleeps wakes when the loop continues, after everything that was
 * already ready.
 */
class ProcessClock implements Clock {
  readonly #clock: VirtualClock;
  #standing: Promise<void> | undefined;

  constructor(clock: VirtualClock) {
    this.#clock = clock;
  }

  now(): Date {
    return this.#clock.now();
  }

  elapsedMs(): number {
    return this.#clock.elapsedMs();
  }

  after(durationMs: number, work: () => void): () => void {
    const cancelled = new AbortController();
    void this.sleep(durationMs, cancelled.signal).then(() => !cancelled.signal.aborted && work());
    return () => cancelled.abort();
  }

  async sleep(durationMs: number, signal?: AbortSignal): Promise<void> {
    await this.#clock.sleep(durationMs, signal);
    if (this.#standing === undefined) return;
    await this.#standing;
    // Timers come after all settled promises.
    await new Promise((resolve) => process.nextTick(resolve));
  }

  /** Stops the event loop for this time, in which nothing else in the process runs. */
  async stand(durationMs: number): Promise<void> {
    this.#standing = this.#clock.sleep(durationMs);
    await this.#standing;
    this.#standing = undefined;
  }
}

/** Processes with one handler, which blocks the process's event loop for longer than the lease when it gets a certain event. */
class StandingBench extends DeliveryBench {
  readonly blocked: string[] = [];
  readonly handled = new Set<string>();

  startBlocking(blocker: string): BenchProcess {
    const clock = new ProcessClock(this.clock);
    const handler: EventHandler<DepositedEvent> = handlerOf(
      { name: 'one', retry: { attemptsMax: 3 } },
      async ({ eventId, attempt }) => {
        if (eventId === blocker) {
          this.blocked.push(`${eventId} ${attempt}`);
          await clock.stand(15_000);
        } else {
          this.handled.add(eventId);
        }
      },
    );
    return this.start([handler], { leaseMs: 10_000 }, undefined, undefined, clock);
  }

  /** Commits an event of each of three other models every five seconds; returns their ids. */
  async commitFor(rounds: number): Promise<readonly string[]> {
    const ids: string[] = [];
    for (let version = 1; version <= rounds; version++) {
      const events = ['b', 'c', 'e'].map((model) => deposited(model, version));
      this.database.commit(...events);
      ids.push(...events.map(({ id }) => id));
      await this.clock.advance(5_000);
    }
    return ids;
  }
}

test('with several processes, an event that blocks the event loop for longer than the lease becomes a dead letter after its attempts', async () => {
  const bench = new StandingBench();
  const processes = [bench.startBlocking('a1'), bench.startBlocking('a1')];
  await bench.clock.advance(20_000);
  bench.database.commit(deposited('a', 1), deposited('a', 2));
  const others = await bench.commitFor(60);
  await bench.clock.advance(60_000);
  expect(bench.database.blockedOf('one')).toMatchObject([{ event: { id: 'a1' }, attempts: 3, dead: true }]);
  // The first call came from the log, and the second one was made while others were running: neither is counted beforehand.
  expect(bench.blocked).toEqual(['a1 1', 'a1 1', 'a1 1', 'a1 2', 'a1 3']);
  expect(others.filter((id) => !bench.handled.has(id))).toEqual([]);
  const told = processes
    .flatMap(({ failures }) => failures)
    .filter(({ event, counted }) => event.id === 'a1' && counted)
    .toSorted((one, other) => one.attempt - other.attempt);
  expect(told.map(({ attempt, willRetry }) => [attempt, willRetry])).toEqual([
    [1, true],
    [2, true],
    [3, false],
  ]);
  expect(String(told[0]?.error)).toContain('event loop');
});

test('an event that blocks the event loop of the only process for longer than the lease is done after its next call', async () => {
  const bench = new StandingBench();
  const { access, failures } = bench.startBlocking('a1');
  // The answers arrive when the leases have ended.
  access.delays.set('blocked.move', Array<Promise<void>>(20).fill(bench.clock.sleep(36_000)));
  await bench.clock.advance(1_000);
  bench.database.commit(deposited('a', 1));
  const others = await bench.commitFor(40);
  await bench.clock.advance(60_000);
  expect(bench.blocked).toEqual(['a1 1', 'a1 1']);
  expect(bench.database.blocked.size).toBe(0);
  expect(failures).toEqual([]);
  expect([...bench.handled].toSorted()).toEqual(others.toSorted());
});
