import { describe, expect, test } from 'vitest';

import { type EventFailure, PartialBatchError, RetryLaterError } from '../src/index.js';
import { deposited } from './account.js';
import { batchHandlerOf } from './bench-store.js';
import { DeliveryBench, handlerOf } from './delivery-bench.js';

const dayMs = 86_400_000;
const retry = { attemptsMax: 2 };

describe('a handler that asks to be called later', () => {
  test('is called again when that time is over, and never gives up the event', async () => {
    const bench = new DeliveryBench();
    const calledMs: number[] = [];
    const untilMs = dayMs / 2;
    const handler = handlerOf({ name: 'one', retry }, ({ eventId }) => {
      if (eventId !== 'a1') return;
      calledMs.push(bench.clock.elapsedMs());
      // Called again and again, it would fill the memory before the day is over.
      if (bench.clock.elapsedMs() < untilMs && calledMs.length < 100)
        throw new RetryLaterError({ afterMs: 3_600_000 });
    });
    bench.database.commit(deposited('a', 1), deposited('a', 2), deposited('b', 1));
    const { failures } = bench.start([handler]);
    await bench.clock.advance(dayMs);
    expect(handler.seen.filter((id) => id !== 'a1')).toEqual(['b1', 'a2']);
    expect(bench.database.blockedOf('one')).toEqual([]);
    expect(failures.length).toBeGreaterThan(10);
    expect(failures.every(({ counted, willRetry }) => !counted && willRetry)).toBe(true);
    const waits = calledMs.slice(1).map((ms, index) => ms - (calledMs[index] ?? 0));
    for (const waitMs of waits) {
      expect(waitMs).toBeGreaterThanOrEqual(3_600_000);
      expect(waitMs).toBeLessThanOrEqual(1.1 * 3_600_000 + 5_000);
    }
  });

  test('is not called earlier by another process', async () => {
    const bench = new DeliveryBench();
    const calledAtMs: number[] = [];
    const handler = () =>
      handlerOf({ name: 'one' }, () => {
        calledAtMs.push(bench.clock.elapsedMs());
        throw new RetryLaterError({ afterMs: 6 * 3_600_000 });
      });
    bench.database.commit(deposited('a', 1));
    const first = bench.start([handler()]);
    await bench.clock.advance(60_000);
    const stopped = first.delivery.stop();
    await bench.clock.advance(1_000);
    await stopped;
    bench.start([handler()]);
    await bench.clock.advance(60_000);
    expect(calledAtMs).toHaveLength(1);
  });

  test('is called again within a few seconds if it names no time', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one', retry }, () => {
      if (bench.clock.elapsedMs() < 600_000) throw new RetryLaterError();
    });
    bench.database.commit(deposited('a', 1));
    bench.start([handler]);
    await bench.clock.advance(606_000);
    expect(handler.seen).toHaveLength(handler.seen.lastIndexOf('a1') + 1);
    expect(bench.database.blockedOf('one')).toEqual([]);
  });

  test('uses none of the attempts that its other failures have', async () => {
    const bench = new DeliveryBench();
    let call = 0;
    const handler = handlerOf({ name: 'one', retry: { attemptsMax: 2, backoffBaseMs: 1 } }, () => {
      call++;
      if (call === 3) throw new Error('down');
      throw call === 1 ? new Error('down') : new RetryLaterError({ afterMs: 1_000 });
    });
    bench.database.commit(deposited('a', 1));
    bench.start([handler]);
    await bench.clock.advance(60_000);
    expect(call).toBe(3);
    expect(bench.database.blockedOf('one')).toMatchObject([{ dead: true, attempts: 2, uncounted: 1 }]);
  });

  test('postpones a whole batch, whose events then are retried without a counted attempt', async () => {
    const bench = new DeliveryBench();
    const handler = batchHandlerOf({ name: 'index', retry }, () => {
      if (bench.clock.elapsedMs() < 60_000) throw new RetryLaterError({ afterMs: 10_000 });
    });
    bench.database.commit(deposited('a', 1), deposited('b', 1));
    const { failures } = bench.start([handler]);
    await bench.clock.advance(80_000);
    expect(bench.database.blockedOf('index')).toEqual([]);
    expect(failures.every(({ counted }) => !counted)).toBe(true);
  });

  test('can postpone single events of a batch', async () => {
    const bench = new DeliveryBench();
    const handler = batchHandlerOf({ name: 'index', retry }, (ids) => {
      const failures = ids
        .filter((id) => id === 'a1' && bench.clock.elapsedMs() < 60_000)
        .map((eventId): EventFailure => ({ eventId, error: new RetryLaterError({ afterMs: 10_000 }) }));
      if (failures.length > 0) throw new PartialBatchError(failures);
    });
    bench.database.commit(deposited('a', 1), deposited('b', 1));
    const { failures } = bench.start([handler]);
    await bench.clock.advance(80_000);
    expect(bench.database.blockedOf('index')).toEqual([]);
    expect(new Set(failures.map(({ event, counted }) => `${event.id} ${counted}`))).toEqual(
      new Set(['a1 false']),
    );
  });
});
