import { type LeaseRenewal, ShardIdentifier, UnknownShardException } from '@framework/core';
import { VirtualClock } from '@framework/testing';
import { describe, expect, test } from 'vitest';
import { defaultDeliverySettings } from '../src/index.js';
import { LeaseKeeper } from '../src/lease/lease-keeper.js';
import { deposited } from './account.js';
import { DeliveryBench, gate, handlerOf, shard } from './delivery-bench.js';
import { workerContext } from './worker-context.js';

const { leaseMs } = defaultDeliverySettings;
/** One of each slot. */
const models = ['a', 'b', 'c', 'd'];

test('a keeper that stops gives its slots back behind a renewal that is under way', async () => {
  const { opened, open } = gate();
  const done: string[] = [];
  const keeper = new LeaseKeeper({
    context: workerContext({ onError: (error) => done.push(String(error)) }),
    leases: {
      renew: async (): Promise<LeaseRenewal> => {
        await opened;
        done.push('renewed');
        return { leases: [{ handler: 'one', slot: 0, token: '1', abandoned: false }], alone: true };
      },
      release: async () => void done.push('released'),
    },
    processId: 'one',
    shards: [],
    watch: { now: () => 0, stoodSince: () => false },
    onRenewed: () => done.push('told'),
  });
  void keeper.run(['one']);
  const stopped = keeper.stop();
  open();
  await stopped;
  expect(done).toEqual(['renewed', 'released']);
  expect(keeper.slots).toEqual([]);
});

test('a keeper counts a lease from the question, because the database may have answered at once', async () => {
  const clock = new VirtualClock();
  let renewalCount = 0;
  const keeper = new LeaseKeeper({
    context: workerContext({ clock }),
    leases: {
      renew: async (): Promise<LeaseRenewal> => {
        if (renewalCount++ > 0) return new Promise(() => undefined);
        await clock.sleep(5_000);
        return { leases: [{ handler: 'one', slot: 0, token: '1', abandoned: false }], alone: true };
      },
      release: async () => undefined,
    },
    processId: 'one',
    shards: [],
    watch: { now: () => 0, stoodSince: () => false },
    onRenewed: () => undefined,
  });
  void keeper.run(['one']);
  await clock.advance(5_001);
  expect(keeper.slots).toHaveLength(1);
  await clock.advance(leaseMs - 5_000);
  expect(keeper.slots).toEqual([]);
});

test('a process that hears late of its lease calls no handler when the database gives that to another one', async () => {
  const bench = new DeliveryBench();
  const [first, second] = [handlerOf({ name: 'one' }), handlerOf({ name: 'one' })];
  const { access } = bench.start([first]);
  await bench.clock.advance(300);
  const late = gate();
  access.delays.set('leases.renew', [late.opened]);
  // Asked after a third of a lease, answered when two thirds of it have passed; what is asked later does not get through.
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

test('a keeper whose renewal is refused only after a while renews its leases before they end', async () => {
  const clock = new VirtualClock();
  let renewalCount = 0;
  const keeper = new LeaseKeeper({
    context: workerContext({ clock }),
    leases: {
      renew: async (): Promise<LeaseRenewal> => {
        if (++renewalCount === 2) {
          await clock.sleep(leaseMs / 2);
          throw new Error('no connection was free in time');
        }
        return { leases: [{ handler: 'one', slot: 0, token: '1', abandoned: false }], alone: true };
      },
      release: async () => undefined,
    },
    processId: 'one',
    shards: [],
    watch: { now: () => 0, stoodSince: () => false },
    onRenewed: () => undefined,
  });
  void keeper.run(['one']);
  await clock.advance(1);
  const [slot] = keeper.slots;
  await clock.advance(2 * leaseMs);
  expect(slot?.held).toBe(true);
});

describe('what a process leaves that vanishes right after a renewal', () => {
  test('is taken over as soon as its lease ends', async () => {
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

  test('is handled within ten seconds of a start with the shard that its configuration lacked', async () => {
    const bench = new DeliveryBench();
    const other = ShardIdentifier.of(1, 0);
    const lacking = handlerOf({ name: 'one' }, () => {
      throw new UnknownShardException(other);
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
