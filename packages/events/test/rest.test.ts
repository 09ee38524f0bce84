import { describe, expect, test } from 'vitest';
import { deposited } from './account.js';
import { DeliveryBench, operatorOf, gate, handlerOf } from './delivery-bench.js';

describe('cursors', () => {
  test('are saved together and rarely: few rows for many events', async () => {
    const bench = new DeliveryBench();
    const handlers = ['one', 'two', 'three'].map((name) => handlerOf({ name }));
    for (let version = 1; version <= 1_000; version++) {
      bench.database.commit(...['a', 'b', 'c', 'd'].map((id) => deposited(id, version)));
    }
    bench.start(handlers);
    await bench.clock.advance(5_000);
    expect(handlers.every(({ seen }) => seen.length === 4_000)).toBe(true);
    expect(bench.database.writes.cursors).toBeLessThanOrEqual(40);
    expect(bench.database.writes.blocked).toBe(0);
  });

  test('of a slot that never rests are saved after a while', async () => {
    const bench = new DeliveryBench();
    bench.start([handlerOf({ name: 'one' })], { cursorSaveMs: 3_000, cursorSaveMaxMs: 10_000 });
    for (let version = 1; version <= 18; version++) {
      bench.database.commit(deposited('a', version));
      await bench.clock.advance(500);
    }
    expect(bench.database.writes.cursors).toBe(0);
    for (let version = 19; version <= 24; version++) {
      bench.database.commit(deposited('a', version));
      await bench.clock.advance(500);
    }
    expect(bench.database.writes.cursors).toBe(1);
  });

  test('are saved only once in a while as long as they pass only unwanted events', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' });
    bench.start([handler]);
    await bench.clock.advance(300);
    bench.database.commit(deposited('a', 1, { type: 'ClosedEvent' }));
    await bench.clock.advance(20_000);
    expect(handler.seen).toEqual([]);
    expect(bench.database.writes.cursors).toBe(0);
    await bench.clock.advance(20_000);
    expect(bench.database.writes.cursors).toBe(4);
  });

  test('do not pass an event that is still being handled', async () => {
    const bench = new DeliveryBench();
    const hold = gate();
    const handler = handlerOf({ name: 'one' }, ({ eventId }) => (eventId === 'a1' ? hold.opened : undefined));
    bench.database.commit(deposited('a', 1));
    const { executor } = bench.start([handler]);
    await bench.clock.advance(300);
    bench.database.commit(deposited('e', 1), deposited('b', 1));
    executor.committed();
    await bench.clock.advance(3_000);
    expect(handler.seen).toEqual(['a1', 'e1', 'b1']);
    expect(bench.database.cursors.get('one 0')).toBe(0);
    expect(bench.database.cursors.get('one 1')).toBe(3);
    hold.open();
    await bench.clock.advance(3_000);
    expect(bench.database.cursors.get('one 0')).toBe(3);
  });
});

describe('a process at rest', () => {
  test('queries its database at most three times a second, whatever the number of handlers', async () => {
    const bench = new DeliveryBench();
    const handlers = Array.from({ length: 10 }, (_item, index) => handlerOf({ name: `handler-${index}` }));
    const { access } = bench.start(handlers);
    await bench.clock.advance(10_000);
    const before = access.callCount;
    await bench.clock.advance(60_000);
    expect(access.callCount - before).toBeLessThanOrEqual(60 * 3);
  });

  test('queries its database no more often if there are dead letters', async () => {
    const bench = new DeliveryBench();
    const failing = handlerOf({ name: 'one', retry: { attemptsMax: 1 } }, () => {
      throw new Error('no');
    });
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    const { access } = bench.start([failing]);
    await bench.clock.advance(10_000);
    const before = access.callCount;
    await bench.clock.advance(60_000);
    expect(access.callCount - before).toBeLessThanOrEqual(60 * 3);
  });
});

describe('notifications', () => {
  test('wake other processes, at most once per interval', async () => {
    const bench = new DeliveryBench();
    const handlers = [handlerOf({ name: 'one' }), handlerOf({ name: 'one' })] as const;
    const { executor } = bench.start([handlers[0]]);
    bench.start([handlers[1]]);
    await bench.clock.advance(10_000);
    for (let version = 1; version <= 100; version++) {
      bench.database.commit(...['a', 'b', 'c', 'd'].map((id) => deposited(id, version)));
      executor.committed();
    }
    await bench.clock.advance(20);
    expect(handlers[0].seen.length + handlers[1].seen.length).toBe(400);
    expect(handlers[1].seen.length).toBe(200);
    expect(bench.database.writes.notifies).toBeLessThanOrEqual(2);
  });
});

describe('a stop', () => {
  test('ends while blocked events wait for others that are being tried', async () => {
    const bench = new DeliveryBench();
    const hanging = gate();
    let fails = true;
    const handler = handlerOf({ name: 'one', concurrency: 4 }, async () => {
      if (fails) throw new Error('no');
      await hanging.opened;
    });
    for (const model of ['a', 'b', 'c', 'd', 'e', 'f']) bench.database.commit(deposited(model, 1));
    const { delivery } = bench.start([handler]);
    await bench.clock.advance(300);
    fails = false;
    await bench.clock.advance(2_000);
    // Two of the six are being tried; the others are due and wait for capacity.
    expect(handler.seen).toHaveLength(8);
    const stopped = delivery.stop();
    hanging.open();
    await bench.clock.advance(0);
    await stopped;
    expect(handler.seen).toHaveLength(8);
    expect(bench.database.blockedOf('one').filter(({ event }) => event !== undefined)).toHaveLength(4);
  });

  test('does not wait for a blocked model that is being drained while its handler is paused', async () => {
    const bench = new DeliveryBench();
    const hold = gate();
    const handler = handlerOf({ name: 'one' }, ({ eventId, attempt }) => {
      if (eventId === 'a1' && attempt === 1) throw new Error('once');
      return eventId === 'a2' ? hold.opened : undefined;
    });
    bench.database.commit(...[1, 2, 3, 4].map((version) => deposited('a', version)));
    const { delivery } = bench.start([handler]);
    await bench.clock.advance(2_000);
    expect(handler.seen.at(-1)).toBe('a2');
    await operatorOf(bench).pause('one');
    await bench.clock.advance(5_000);
    const stopped = delivery.stop();
    hold.open();
    await bench.clock.advance(0);
    await stopped;
    expect(handler.seen).toEqual(['a1', 'a1', 'a2']);
  });

  test('finishes the events that were read, saves the cursors and gives the slots back', async () => {
    const bench = new DeliveryBench();
    const hold = gate();
    const handler = handlerOf({ name: 'one' }, ({ eventId }) => (eventId === 'a1' ? hold.opened : undefined));
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    const { delivery } = bench.start([handler]);
    await bench.clock.advance(300);
    const stopped = delivery.stop();
    bench.database.commit(deposited('a', 3));
    await bench.clock.advance(1_000);
    hold.open();
    await bench.clock.advance(0);
    await stopped;
    expect(handler.seen).toEqual(['a1', 'a2']);
    expect(bench.database.cursors.get('one 0')).toBe(2);
    expect(
      bench.database.leases.every(({ processId, abandoned }) => processId === undefined && !abandoned),
    ).toBe(true);
  });

  test('waits no longer than its timeout, aborts running calls and starts no waiting ones', async () => {
    const bench = new DeliveryBench();
    const signals: AbortSignal[] = [];
    const handler = handlerOf({ name: 'one' }, (_envelope, { signal }) => {
      signals.push(signal);
      return new Promise(() => undefined);
    });
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    const { delivery } = bench.start([handler]);
    await bench.clock.advance(300);
    const stopped = delivery.stop({ timeoutMs: 5_000 });
    await bench.clock.advance(4_900);
    expect(signals[0]!.aborted).toBe(false);
    await bench.clock.advance(200);
    expect(signals[0]!.aborted).toBe(true);
    await bench.clock.advance(1_200);
    await stopped;
    expect(handler.seen).toEqual(['a1']);
    expect(bench.database.cursors.get('one 0')).toBe(0);
    expect(bench.database.leases.every(({ processId }) => processId === undefined)).toBe(true);
  });

  test('hands over to another process without repeats', async () => {
    const bench = new DeliveryBench();
    const handlers = [handlerOf({ name: 'one' }), handlerOf({ name: 'one' })] as const;
    bench.database.commit(deposited('a', 1), deposited('b', 1));
    const first = bench.start([handlers[0]]);
    await bench.clock.advance(300);
    await first.delivery.stop();
    bench.database.commit(deposited('a', 2));
    bench.start([handlers[1]]);
    await bench.clock.advance(1_000);
    expect(handlers[1].seen).toEqual(['a2']);
  });
});
