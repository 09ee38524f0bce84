import { ShardIdentifier, UnknownShardError } from '@framework/core';
import { describe, expect, test } from 'vitest';

import { defaultDeliverySettings } from '../src/index.js';
import { deposited } from './account.js';
import { down, giveAway, sentBy } from './bench-store.js';
import { DeliveryBench, gate, handlerOf, shard } from './delivery-bench.js';

const { leaseMs } = defaultDeliverySettings;
/** One model in each slot. */
const models = ['a', 'b', 'c', 'd'];
const firstEvents = models.map((model) => deposited(model, 1));

describe('an event whose process dies right after a renewal', () => {
  test('is taken over as soon as the lease ends', async () => {
    const bench = new DeliveryBench();
    const { access } = bench.start([handlerOf({ name: 'one' })]);
    await bench.clock.advance(leaseMs / 3 - 1_000);
    const survivor = handlerOf({ name: 'one' });
    bench.start([survivor]);
    await bench.clock.advance(1_100);
    access.kill();
    bench.database.commit(...models.map((model) => deposited(model, 1)));
    await bench.clock.advance(leaseMs);
    expect(survivor.seen.toSorted()).toEqual(models.map((model) => `${model}1`));
  });

  test('is handled within ten seconds once its missing shard is configured', async () => {
    const bench = new DeliveryBench();
    const other = ShardIdentifier.of(1, 0);
    const lacking = handlerOf({ name: 'one' }, () => {
      throw new UnknownShardError(other);
    });
    const { access } = bench.start([lacking]);
    bench.database.commit(...models.map((model) => deposited(model, 1)));
    await bench.clock.advance(60_000);
    const renewalCount = access.calls.get('leases.renew');
    while (access.calls.get('leases.renew') === renewalCount) await bench.clock.advance(10);
    access.kill();
    await bench.clock.advance(1_000);
    const whole = handlerOf({ name: 'one' });
    bench.start([whole], {}, undefined, [shard, other]);
    await bench.clock.advance(9_500);
    expect(whole.seen.toSorted()).toEqual(models.map((model) => `${model}1`));
  });
});

describe('the leases of a process', () => {
  test('are renewed after each third of their time, at growing intervals while that fails', async () => {
    const bench = new DeliveryBench();
    const process = bench.start([handlerOf({ name: 'one' })]);
    const sent = sentBy(bench, process);
    await bench.clock.advance(7_000);
    expect(sent('leases.renew').map(Math.round)).toEqual([0, 3_333, 6_667]);
    process.access.failures.set('leases.renew', down(8));
    await bench.clock.advance(30_000);
    const times = sent('leases.renew').slice(3);
    const waitsMs = times.slice(1).map((ms, index) => Math.round(ms - times[index]!));
    expect(waitsMs.slice(0, 6)).toEqual([100, 200, 400, 800, 1_600, 3_200]);
    expect(Math.max(...waitsMs)).toBeLessThanOrEqual(3_334);
  });

  test('are renewed before they end even if one renewal fails only after half of their time', async () => {
    const bench = new DeliveryBench();
    const { store, losses } = bench.start([handlerOf({ name: 'one' })]);
    await bench.clock.advance(300);
    const renew = store.leases.renew.bind(store.leases);
    let isSlow = true;
    store.leases.renew = async (...asked) => {
      if (!isSlow) return renew(...asked);
      isSlow = false;
      await bench.clock.sleep(leaseMs / 2);
      throw new Error('no connection was free in time');
    };
    await bench.clock.advance(2 * leaseMs);
    expect([isSlow, losses]).toEqual([false, []]);
  });

  test('end exactly when their time is over since the last request that was answered', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' });
    const { access, losses, executor } = bench.start([handler], { pollMaxMs: 1_000 });
    access.delays.set('leases.renew', [bench.clock.sleep(2_000)]);
    await bench.clock.advance(2_500);
    access.failures.set('leases.renew', down(999));
    await bench.clock.advance(leaseMs - 2_501);
    expect(losses).toEqual([]);
    bench.database.commit(...firstEvents);
    executor.committed();
    await bench.clock.advance(0);
    expect(handler.seen).toHaveLength(4);
    await bench.clock.advance(2);
    expect(losses).toMatchObject([{ cause: 'expired' }]);
    bench.database.commit(...models.map((model) => deposited(model, 2)));
    executor.committed();
    await bench.clock.advance(1_000);
    expect(handler.seen).toHaveLength(4);
  });

  test('are not taken from an answer that took as long as a lease', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' });
    bench.database.commit(...firstEvents);
    const { access } = bench.start([handler]);
    access.delays.set('leases.renew', [bench.clock.sleep(leaseMs), new Promise(() => undefined)]);
    await bench.clock.advance(leaseMs + 3_000);
    expect(handler.seen).toEqual([]);
  });

  test('are requested again at once when a statement finds one lost', async () => {
    const bench = new DeliveryBench();
    const process = bench.start([handlerOf({ name: 'one' })]);
    await bench.clock.advance(500);
    const sent = sentBy(bench, process);
    const lease = bench.database.leaseOf('one', 0);
    bench.database.hand(lease, lease.processId, false);
    bench.database.commit(deposited('a', 1));
    process.executor.committed();
    await bench.clock.advance(1_500);
    expect(sent('leases.renew')).toEqual(sent('cursors.save').slice(0, 1));
    expect(process.losses).toMatchObject([{ cause: 'taken', slotsByHandler: new Map([['one', [0]]]) }]);
  });

  test('are given back by a stop, even if a renewal was in progress', async () => {
    const bench = new DeliveryBench();
    const { store, delivery } = bench.start([handlerOf({ name: 'one' })]);
    const answer = gate();
    const renew = store.leases.renew.bind(store.leases);
    store.leases.renew = (...asked) => answer.opened.then(() => renew(...asked));
    await bench.clock.advance(100);
    const stopped = delivery.stop();
    await bench.clock.advance(100);
    answer.open();
    await bench.clock.advance(100);
    await stopped;
    expect(bench.database.leases.every(({ processId }) => processId === undefined)).toBe(true);
    expect(bench.database.processes.size).toBe(0);
  });

  test('put no slot in quarantine after the process waited for long until its handlers were registered', async () => {
    const bench = new DeliveryBench();
    bench.database.commit(...firstEvents);
    const handler = handlerOf({ name: 'one' });
    bench.start([handler], {}, () => bench.clock.sleep(60_000));
    await bench.clock.advance(61_000);
    expect([handler.seen.length, bench.database.writes.blocked]).toEqual([4, 0]);
  });
});

test.each([
  ['its cursors', 'cursors.load'],
  ['the blocked models', 'blocked.models'],
  ['the log', 'log.read'],
] as const)(
  'a process that loses a slot while it reads %s calls no handler for it',
  async (_what, method) => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' });
    bench.database.commit(...firstEvents);
    const { access } = bench.start([handler]);
    const answer = gate();
    access.delays.set(method, [answer.opened]);
    await bench.clock.advance(100);
    giveAway(bench, 'one', 0);
    await bench.clock.advance(4_000);
    answer.open();
    await bench.clock.advance(4_000);
    expect(handler.seen).not.toContain('a1');
    expect(handler.seen.length).toBeGreaterThan(0);
  },
);

test('a process that learns of its lease late calls no handler if the database has given the lease to another one', async () => {
  const bench = new DeliveryBench();
  const [first, second] = [handlerOf({ name: 'one' }), handlerOf({ name: 'one' })];
  const { access } = bench.start([first]);
  await bench.clock.advance(300);
  const late = gate();
  access.delays.set('leases.renew', [late.opened]);
  // Asked after a third of a lease, answered after two thirds of it; later requests do not get through.
  await bench.clock.advance(9_000);
  access.failures.set(
    'leases.renew',
    Array.from({ length: 9 }, () => new Error('the database is out of reach')),
  );
  late.open();
  bench.start([second]);
  await bench.clock.advance(7_500);
  bench.database.commit(...['a', 'b', 'c', 'd', 'e', 'f'].map((model) => deposited(model, 1)));
  await bench.clock.advance(1_500);
  expect(first.seen).toEqual([]);
  expect(second.seen.toSorted()).toEqual(['a1', 'b1', 'c1', 'd1', 'e1', 'f1']);
});

describe('a process', () => {
  test('reports the slots of its handlers that it has lost, once', async () => {
    const bench = new DeliveryBench();
    const { access, losses, delivery } = bench.start([
      handlerOf({ name: 'one' }),
      handlerOf({ name: 'other' }),
    ]);
    await bench.clock.advance(300);
    access.failures.set(
      'leases.renew',
      Array.from({ length: 99 }, () => new Error('the database is out of reach')),
    );
    await bench.clock.advance(2 * leaseMs);
    const all = [0, 1, 2, 3];
    const slotsByHandler = new Map([
      ['one', all],
      ['other', all],
    ]);
    expect(losses).toEqual([{ shards: [shard], cause: 'expired', slotsByHandler }]);
    await delivery.stop();
    expect(losses).toHaveLength(1);
  });

  test('that stops, or shares its slots with another one, has lost nothing', async () => {
    const bench = new DeliveryBench();
    const first = bench.start([handlerOf({ name: 'one' })]);
    await bench.clock.advance(300);
    const second = bench.start([handlerOf({ name: 'one' })]);
    await bench.clock.advance(leaseMs);
    const stopped = [first.delivery.stop(), second.delivery.stop()];
    await bench.clock.advance(1_000);
    await Promise.all(stopped);
    expect([first.losses, second.losses]).toEqual([[], []]);
  });
});
