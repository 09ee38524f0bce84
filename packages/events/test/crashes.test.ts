import { describe, expect, test } from 'vitest';
import { FrameworkEventHandler } from '../src/index.js';
import { DepositedEvent, deposited } from './account.js';
import { type BenchProcess, DeliveryBench, gate, handlerOf } from './delivery-bench.js';

/** A process whose handler ends it when it meets an event; what it does afterwards has no effect. */
function killable(
  bench: DeliveryBench,
  killer: string | undefined,
  seen: string[],
  attemptsMax = 3,
): BenchProcess {
  let started: BenchProcess | undefined;
  const handler = handlerOf({ name: 'one', retry: { attemptsMax } }, async ({ eventId }) => {
    if (started?.access.dead === true) return new Promise(() => undefined);
    seen.push(eventId);
    if (eventId !== killer) return;
    started?.access.kill();
    return new Promise(() => undefined);
  });
  started = bench.start([handler]);
  return started;
}

describe('a process that vanishes', () => {
  test('has its slots taken over after the lease, and nothing is lost', async () => {
    const bench = new DeliveryBench();
    const [before, after]: [string[], string[]] = [[], []];
    const first = killable(bench, undefined, before);
    await bench.clock.advance(2_000);
    const second = killable(bench, undefined, after);
    first.access.kill();
    bench.database.commit(...['a', 'b', 'c', 'd'].map((id) => deposited(id, 1)));
    await bench.clock.advance(14_000);
    expect(after.sort()).toEqual(['a1', 'b1', 'c1', 'd1']);
    expect(bench.database.parked.size).toBe(0);
    await second.delivery.stop();
  });

  test('repeats no more than what it had not saved', async () => {
    const bench = new DeliveryBench();
    const [before, after]: [string[], string[]] = [[], []];
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    const first = killable(bench, undefined, before);
    await bench.clock.advance(2_000);
    bench.database.commit(deposited('a', 3));
    first.executor.committed();
    await bench.clock.advance(0);
    first.access.kill();
    killable(bench, undefined, after);
    await bench.clock.advance(15_000);
    expect(before).toEqual(['a1', 'a2', 'a3']);
    expect(after).toEqual(['a3']);
  });
});

describe('an event that kills its process', () => {
  test('is a dead letter after exactly its attempts, and innocents are not', async () => {
    const bench = new DeliveryBench();
    const seen: string[] = [];
    const ids = ['a', 'b', 'c', 'd', 'e', 'f'];
    bench.database.commit(...ids.map((id) => deposited(id, 1)), ...ids.map((id) => deposited(id, 2)));
    for (let life = 0; life < 6; life++) {
      killable(bench, 'c1', seen);
      await bench.clock.advance(20_000);
    }
    // The first time it was in company and no attempt was counted.
    expect(seen.filter((id) => id === 'c1')).toHaveLength(1 + 3);
    expect(bench.database.parkedOf('one')).toMatchObject([
      { event: { id: 'c1' }, attempts: 3, dead: true, suspect: true },
      { event: { id: 'c2' }, attempts: 0, dead: false },
    ]);
    expect(seen).toEqual(expect.arrayContaining(['a2', 'b2', 'd2', 'e2', 'f2']));
  });

  test('is alone from its second counted attempt on', async () => {
    const bench = new DeliveryBench();
    const seen: string[] = [];
    bench.database.commit(...['a', 'b', 'c', 'd'].map((id) => deposited(id, 1)));
    const live = async (lifeMs: number): Promise<void> => {
      killable(bench, 'a1', seen);
      await bench.clock.advance(lifeMs);
      bench.database.processes.clear();
      bench.database.abandonAll();
    };
    await live(300);
    await live(20_000);
    await live(20_000);
    const parked = new Map(bench.database.parkedOf('one').map((each) => [each.event.id, each.attempts]));
    expect(parked.get('a1')).toBe(2);
    for (const innocent of ['b1', 'c1', 'd1']) expect(parked.get(innocent) ?? 0).toBeLessThanOrEqual(1);
  });
});

describe('a slot that another process took', () => {
  test('is not worked on any more, and what is written for it is refused', async () => {
    const bench = new DeliveryBench();
    const seen: string[] = [];
    const { access, executor } = killable(bench, undefined, seen);
    await bench.clock.advance(300);
    bench.database.hand({ handler: 'one', slot: 0 }, 'somebody else', false);
    bench.database.processes.set('somebody else', {
      handlers: ['one'],
      shards: [],
      untilMs: Number.MAX_SAFE_INTEGER,
    });
    bench.database.commit(deposited('a', 1));
    executor.committed();
    await bench.clock.advance(2_000);
    expect(bench.database.cursors.get('one 0')).toBe(0);
    const before = seen.length;
    bench.database.commit(deposited('a', 2), deposited('b', 1));
    executor.committed();
    await bench.clock.advance(2_000);
    expect(seen.slice(before)).toEqual(['b1']);
    expect(access.calls.get('leases.renew')).toBeGreaterThan(1);
  });

  test('and that comes back with work queued has all of it done, under the new lease', async () => {
    const bench = new DeliveryBench();
    const hold = gate();
    const seen: string[][] = [];
    class Batches {
      readonly event = DepositedEvent;
      async handleBatch(envelopes: readonly { readonly eventId: string }[]): Promise<void> {
        seen.push(envelopes.map(({ eventId }) => eventId));
        if (seen.length === 1) await hold.opened;
      }
    }
    FrameworkEventHandler({ name: 'one', startFrom: 'beginning', concurrency: 1 })(Batches);
    const { executor } = bench.start([new Batches()]);
    bench.database.commit(deposited('b', 1));
    await bench.clock.advance(300);
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    executor.committed();
    await bench.clock.advance(100);
    expect(seen).toEqual([['b1']]);
    const lease = bench.database.leaseOf('one', 0);
    bench.database.hand(lease, lease.processId, false);
    await bench.clock.advance(4_000);
    hold.open();
    await bench.clock.advance(4_000);
    expect(seen.slice(1)).toEqual([['a1', 'a2']]);
    expect(bench.database.cursors.get('one 0')).toBe(3);
  });

  test('is given up when renewals fail for longer than the lease', async () => {
    const bench = new DeliveryBench();
    const seen: string[] = [];
    const { access, executor, errors } = killable(bench, undefined, seen);
    await bench.clock.advance(300);
    access.failures.set(
      'leases.renew',
      Array.from({ length: 5 }, () => new Error('down')),
    );
    await bench.clock.advance(11_000);
    bench.database.commit(deposited('a', 1));
    executor.committed();
    await bench.clock.advance(100);
    expect(seen).toEqual([]);
    expect(errors.length).toBeGreaterThan(2);
    await bench.clock.advance(20_000);
    expect(seen).toEqual(['a1']);
  });
});

test('errors of the database delay events and lose none', async () => {
  const bench = new DeliveryBench();
  const handler = handlerOf({ name: 'one' }, ({ eventId, attempt }) => {
    if (eventId === 'b1' && attempt === 1) throw new Error('once');
  });
  const { access, errors, executor } = bench.start([handler]);
  for (const method of [
    'cursors.register',
    'cursors.load',
    'log.read',
    'parked.park',
    'parked.dueHeads',
    'parked.beginAttempt',
    'parked.endAttempt',
    'cursors.save',
    'parked.models',
    'hints.listen',
    'partitions.create',
  ] as const) {
    access.failures.set(method, [new Error(`${method} failed`), new Error(`${method} failed again`)]);
  }
  bench.database.commit(deposited('a', 1), deposited('b', 1), deposited('b', 2));
  executor.committed();
  await bench.clock.advance(130_000);
  expect(new Set(handler.seen)).toEqual(new Set(['a1', 'b1', 'b2']));
  expect(bench.database.parked.size).toBe(0);
  expect(errors.length).toBeGreaterThanOrEqual(20);
});
