import { TransientStorageError } from '@framework/core';
import { describe, expect, test } from 'vitest';

import { deposited } from './account.js';
import { blockElsewhere, down, sentBy } from './bench-store.js';
import { DeliveryBench, gate, handlerOf, shard } from './delivery-bench.js';

/** The waits of a process between the statements that its database refuses. */
async function waits(random: number): Promise<readonly number[]> {
  const bench = new DeliveryBench();
  const process = bench.start([handlerOf({ name: 'one' })], {}, undefined, undefined, bench.clock, {
    random: () => random,
  });
  const sent = sentBy(bench, process);
  process.access.failures.set('cursors.register', down(8));
  await bench.clock.advance(30_000);
  const times = sent('cursors.register');
  return times.slice(1).map((ms, index) => ms - times[index]!);
}

function lost(index: number): Error {
  return new TransientStorageError(shard, `connection ${index} was lost`);
}

describe('a statement that the database refuses for a minute', () => {
  test.each([
    'cursors.register',
    'cursors.load',
    'blocked.models',
    'log.read',
    'blocked.fail',
    'blocked.dueHeads',
    'blocked.begin',
    'blocked.read',
    'blocked.move',
    'cursors.save',
    'notifications.listen',
  ] as const)('is sent again after growing waits, and soon after the outage: %s', async (method) => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' }, ({ eventId, attempt }) => {
      if (eventId === 'a1' && attempt === 1) throw new Error('once');
    });
    const isBegin = method === 'blocked.begin';
    if (isBegin) blockElsewhere(bench, 'one', deposited('e', 1), { openCount: 1 });
    const process = bench.start([handler], { quarantineMs: 600_000 });
    const sent = sentBy(bench, process);
    process.access.failures.set(method, down(1_000));
    bench.database.commit(deposited('a', 1), deposited('b', 1));
    await bench.clock.advance(60_000);
    const times = sent(method);
    const firstMs = times[0]!;
    expect(times.filter((ms) => ms < firstMs + 1_000).length).toBeLessThanOrEqual(5);
    expect(times.length).toBeGreaterThan(8);
    expect(times.length).toBeLessThan(25);
    expect(process.errors.length).toBeGreaterThanOrEqual(times.length);
    process.access.failures.clear();
    const before = times.length;
    await bench.clock.advance(5_000);
    expect(sent(method).length).toBeGreaterThan(before);
    await bench.clock.advance(5_000);
    expect(new Set(handler.seen)).toEqual(new Set(['a1', 'b1', ...(isBegin ? ['e1'] : [])]));
    expect(bench.database.blocked.size).toBe(0);
  });

  test('is sent again after waits of which half is random', async () => {
    expect(await waits(1)).toEqual([100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    expect(await waits(0)).toEqual([50, 100, 200, 400, 800, 1_600, 2_500, 2_500]);
  });

  test('keeps the longest wait after a thousand failures', async () => {
    const bench = new DeliveryBench();
    const process = bench.start([handlerOf({ name: 'one' })]);
    process.access.failures.set('cursors.register', down(2_000));
    await bench.clock.advance(1_100 * 5_000);
    const sent = sentBy(bench, process);
    await bench.clock.advance(60_000);
    expect(sent('cursors.register')).toHaveLength(12);
  });

  test('is sent again after the first wait when it had succeeded in between', async () => {
    const bench = new DeliveryBench();
    const process = bench.start([handlerOf({ name: 'one' })], { pollMinMs: 10_000, pollMaxMs: 10_000 });
    await bench.clock.advance(11_000);
    const sent = sentBy(bench, process);
    for (let outage = 0; outage < 2; outage++) {
      process.access.failures.set('log.read', down(2));
      process.executor.committed();
      await bench.clock.advance(2_000);
    }
    expect(sent('log.read').map((ms) => ms - 11_000)).toEqual([0, 100, 300, 2_000, 2_100, 2_300]);
  });

  test('is not sent any more after a stop', async () => {
    for (const method of [
      'blocked.fail',
      'cursors.save',
      'log.read',
      'leases.renew',
      'blocked.dueHeads',
    ] as const) {
      const bench = new DeliveryBench();
      blockElsewhere(bench, 'one', deposited('c', 1));
      const handler = handlerOf({ name: 'one' }, () => {
        throw new Error('no');
      });
      const { access, delivery } = bench.start([handler]);
      access.failures.set(method, down(1_000));
      bench.database.commit(deposited('a', 1));
      await bench.clock.advance(20_000);
      const stopped = delivery.stop({ timeoutMs: 1_000 });
      await bench.clock.advance(3_000);
      await stopped;
      const before = access.callCount;
      await bench.clock.advance(60_000);
      expect(access.callCount).toBe(before);
    }
  });
});

describe('the report of errors', () => {
  test('contains each text of an outage once, except that it forgets the first ones after twenty', async () => {
    const bench = new DeliveryBench();
    const { access, errors } = bench.start([handlerOf({ name: 'one' })], { leaseMs: 3_600_000 });
    await bench.clock.advance(10_000);
    const reported = async (from: number, to: number): Promise<number> => {
      const before = errors.length;
      const failures = Array.from({ length: to - from }, (_item, index) => lost(from + index));
      access.failures.set('log.read', failures);
      while (failures.length > 0) await bench.clock.advance(1_000);
      return errors.length - before;
    };
    expect(await reported(0, 20)).toBe(20);
    expect(await reported(0, 20)).toBe(0);
    expect(await reported(20, 21)).toBe(1);
    expect(await reported(0, 1)).toBe(1);
  });

  test('contains other errors each time, and no end of an outage after them', async () => {
    const bench = new DeliveryBench();
    const { access, errors, recoveries } = bench.start([handlerOf({ name: 'one' })]);
    await bench.clock.advance(1_000);
    const bug = new Error('a bug');
    access.failures.set('log.read', [bug, bug, 'thrown']);
    await bench.clock.advance(10_000);
    expect([errors, recoveries]).toEqual([[bug, bug, 'thrown'], []]);
  });
});

describe('a process', () => {
  test('listens for notifications until it stops, even if the database refuses at first', async () => {
    const bench = new DeliveryBench();
    const { access, delivery } = bench.start([handlerOf({ name: 'one' })]);
    access.failures.set('notifications.listen', down(1));
    await bench.clock.advance(50);
    expect(bench.database.listeners.size).toBe(0);
    await bench.clock.advance(1_000);
    expect(bench.database.listeners.size).toBe(1);
    const stopped = delivery.stop();
    await bench.clock.advance(1_000);
    await stopped;
    expect(bench.database.listeners.size).toBe(0);
  });

  test('does not listen after it stopped before the database had accepted that', async () => {
    const bench = new DeliveryBench();
    const { access, delivery } = bench.start([handlerOf({ name: 'one' })]);
    const answer = gate();
    access.delays.set('notifications.listen', [answer.opened]);
    await bench.clock.advance(100);
    const stopped = delivery.stop();
    await bench.clock.advance(1_000);
    await stopped;
    answer.open();
    await bench.clock.advance(100);
    expect(bench.database.listeners.size).toBe(0);
  });

  test('stops listening only once, even if the database fails at that', async () => {
    const bench = new DeliveryBench();
    const { store, delivery, errors } = bench.start([handlerOf({ name: 'one' })]);
    let count = 0;
    store.notifications.listen = async () => async () => {
      count++;
      throw new Error('down');
    };
    await bench.clock.advance(1_000);
    const stopped = delivery.stop();
    await bench.clock.advance(1_000);
    await stopped;
    expect([count, errors]).toMatchObject([1, [{ message: 'down' }]]);
  });
});
