import { ShardUnavailableError } from '@framework/core';
import { describe, expect, test, vi } from 'vitest';
import { deposited } from './account.js';
import { blockElsewhere, countsOf } from './bench-store.js';
import { type BenchProcess, DeliveryBench, gate, handlerOf, shard } from './delivery-bench.js';

const unavailable = new ShardUnavailableError(shard, 'no connection could be had');
const [name, retry] = ['one', { attemptsMax: 2, backoffBaseMs: 1 }];

function down(count: number): Error[] {
  return Array.from({ length: count }, () => new Error('down'));
}

/**
 * A process with a blocked event that failed once by itself, so its next attempt is the last one. Another process ended during an
 * attempt at it, so the next attempt is made alone, and counted beforehand. In that attempt, the handler does the given work.
 */
function failedOnce(
  bench: DeliveryBench,
  next: () => void | Promise<void>,
): BenchProcess & { readonly seen: readonly string[] } {
  const handler = handlerOf({ name, retry, timeoutMs: 60_000 }, next);
  const event = deposited('a', 1);
  bench.database.commit(event);
  blockElsewhere(bench, name, event, { error: 'by itself', openCount: 1 });
  return { ...bench.start([handler]), seen: handler.seen };
}

async function stop(bench: DeliveryBench, { delivery }: BenchProcess): Promise<void> {
  const stopped = delivery.stop({ timeoutMs: 5_000 });
  await bench.clock.advance(15_000);
  await stopped;
}

describe('the count of the last attempt is taken back', () => {
  test('after a failure in an outage that could not be recorded', async () => {
    const bench = new DeliveryBench();
    const running = failedOnce(bench, () => {
      throw unavailable;
    });
    running.access.failures.set('blocked.fail', down(100));
    await bench.clock.advance(3_000);
    expect(running.seen).toHaveLength(1);
    expect(bench.database.blockedOf(name).map(countsOf)).toEqual([[2, 2]]);
    await stop(bench, running);
    expect(bench.database.blockedOf(name)).toMatchObject([{ attempts: 1, dead: false }]);
  });

  test('when its process stops while it is running', async () => {
    const bench = new DeliveryBench();
    const running = failedOnce(bench, () => new Promise(() => undefined));
    // The attempt is still running alone.
    await bench.clock.advance(500);
    expect(running.seen).toHaveLength(1);
    expect(bench.database.blockedOf(name).map(countsOf)).toEqual([[2, 2]]);
    await stop(bench, running);
    expect(bench.database.blockedOf(name)).toMatchObject([{ attempts: 1, dead: false }]);
  });

  test('when its process stops before it learns that the attempt was counted', async () => {
    const bench = new DeliveryBench();
    const hold = gate();
    const running = failedOnce(bench, () => undefined);
    running.access.delays.set('blocked.begin', [hold.opened]);
    await bench.clock.advance(3_000);
    expect(bench.database.blockedOf(name).map(countsOf)).toEqual([[2, 2]]);
    const stopped = running.delivery.stop({ timeoutMs: 5_000 });
    await bench.clock.advance(6_000);
    hold.open();
    await bench.clock.advance(10_000);
    await stopped;
    expect(running.seen).toHaveLength(0);
    expect(bench.database.blockedOf(name)).toMatchObject([{ attempts: 1, dead: false }]);
  });

  test('when its process stops and every answer to the counting statement was lost', async () => {
    const bench = new DeliveryBench();
    const running = failedOnce(bench, () => undefined);
    running.access.lostAnswers.set('blocked.begin', down(100));
    await bench.clock.advance(3_000);
    expect(bench.database.blockedOf(name).map(countsOf)).toEqual([[2, 2]]);
    await stop(bench, running);
    expect(running.seen).toHaveLength(0);
    expect(bench.database.blockedOf(name)).toMatchObject([{ attempts: 1, dead: false }]);
  });

  test('when its lease was lost, even after another process has it', async () => {
    const bench = new DeliveryBench();
    const hold = gate();
    const running = failedOnce(bench, () => hold.opened);
    await bench.clock.advance(3_000);
    expect(running.seen).toHaveLength(1);
    running.access.failures.set('leases.renew', down(100));
    running.access.failures.set('blocked.giveBack', down(6));
    const next = handlerOf({ name, retry });
    bench.start([next]);
    await bench.clock.advance(60_000);
    expect(next.seen).toEqual(['a1']);
    expect(bench.database.blocked.size).toBe(0);
  });
});

test('an event that has failed more often than is now allowed is tried once more, and ends with its own error', async () => {
  const bench = new DeliveryBench();
  const failing = (attemptsMax: number): ReturnType<typeof handlerOf> =>
    handlerOf({ name, retry: { attemptsMax, backoffBaseMs: 20_000 } }, () => {
      throw new Error('by itself');
    });
  bench.database.commit(deposited('a', 1));
  const before = bench.start([failing(10)]);
  await bench.clock.advance(150_000);
  const [blocked] = bench.database.blockedOf(name);
  expect(blocked).toMatchObject({ dead: false });
  expect(blocked!.attempts).toBeGreaterThan(2);
  await stop(bench, before);
  const handler = failing(2);
  bench.start([handler]);
  await bench.clock.advance(600_000);
  expect(handler.seen).toEqual(['a1']);
  expect(bench.database.blockedOf(name)).toMatchObject([
    { dead: true, error: expect.stringContaining('by itself') as string },
  ]);
});

describe('an attempt that must be made alone', () => {
  test.each([
    [
      'is answered late',
      ({ access }: BenchProcess, { clock }: DeliveryBench) =>
        access.delays.set('blocked.begin', [clock.sleep(5_000)]),
    ],
    ['fails for a while', ({ access }: BenchProcess) => access.failures.set('blocked.begin', down(5))],
  ])('ends like any other when the statement that begins it %s', async (_how, disturb) => {
    const bench = new DeliveryBench();
    const running = failedOnce(bench, () => undefined);
    disturb(running, bench);
    await bench.clock.advance(10_000);
    bench.database.commit(deposited('a', 2));
    await bench.clock.advance(10_000);
    expect(running.seen).toEqual(['a1', 'a2']);
    expect(bench.database.blocked.size).toBe(0);
  });
});

/**
 * Holds back one of the statements that begin attempts, whose caller gives up waiting; returns a function that lets it through to
 * the database.
 */
function holdBack({ store }: BenchProcess, which: number): () => Promise<unknown> {
  const begin = store.blocked.begin.bind(store.blocked);
  let callCount = 0;
  let late: (() => Promise<unknown>) | undefined;
  vi.spyOn(store.blocked, 'begin').mockImplementation((...call) => {
    if (++callCount !== which) return begin(...call);
    late = () => begin(...call);
    return Promise.reject(new Error('no answer'));
  });
  return () => expect(late?.()).resolves.toEqual([false]);
}

/** For each blocked event: attempts, open attempts and whether it is a dead letter. */
function standing({ database }: DeliveryBench): unknown {
  return database.blockedOf(name).map((row) => [...countsOf(row), row.dead]);
}

describe('a statement that begins an attempt', () => {
  test('changes nothing when it reaches the database after the attempt', async () => {
    const bench = new DeliveryBench();
    const running = failedOnce(bench, () => {
      throw unavailable;
    });
    const late = holdBack(running, 1);
    await bench.clock.advance(800);
    expect(running.seen).not.toHaveLength(0);
    await late();
    expect(standing(bench)).toEqual([[1, 0, false]]);
    await bench.clock.advance(60_000);
    expect(standing(bench)).toEqual([[1, 0, false]]);
  });

  test('changes nothing after the attempt, even if it lets the attempt run beside others', async () => {
    const bench = new DeliveryBench();
    const running = failedOnce(bench, async () => {
      await bench.clock.sleep(3_000);
      // No other attempt follows.
      bench.database.handlers.set(name, true);
      throw unavailable;
    });
    const late = holdBack(running, 2);
    await bench.clock.advance(4_000);
    await late();
    expect(standing(bench)).toEqual([[1, 0, false]]);
  });

  test('takes the count back in the same step when the attempt continues beside others', async () => {
    const bench = new DeliveryBench();
    const running = failedOnce(bench, () => bench.clock.sleep(3_000));
    const begin = running.store.blocked.begin.bind(running.store.blocked);
    vi.spyOn(running.store.blocked, 'begin').mockImplementation(async (...call) => {
      const begun = await begin(...call);
      if (call[0].some(({ attempt }) => !attempt.counted)) running.access.kill();
      return begun;
    });
    await bench.clock.advance(2_000);
    expect(running.access.dead).toBe(true);
    const next = handlerOf({ name, retry });
    bench.start([next]);
    await bench.clock.advance(60_000);
    expect(next.seen).toEqual(['a1']);
    expect(standing(bench)).toEqual([]);
  });
});
