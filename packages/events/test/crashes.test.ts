import { ShardUnavailableError } from '@framework/core';
import type { DeliverableEvent } from '@framework/core/adapter';
import { describe, expect, test } from 'vitest';
import { FrameworkEventHandler } from '../src/index.js';
import { DepositedEvent, deposited } from './account.js';
import { countsOf } from './bench-store.js';
import { type BenchProcess, DeliveryBench, gate, handlerOf, shard } from './delivery-bench.js';

/** A process whose handler ends it at a certain event; what the handler does afterwards has no effect. */
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

/** A process whose handler is slow for some events, and one of whose events ends the process after that time. */
function startSlow(
  bench: DeliveryBench,
  options: {
    readonly attemptsMax: number;
    readonly timesMs: ReadonlyMap<string, number>;
    readonly killer: string | undefined;
    readonly done: string[];
  },
  work: () => void = () => undefined,
): BenchProcess {
  const { attemptsMax, timesMs, killer, done } = options;
  let started: BenchProcess | undefined;
  const handler = handlerOf({ name: 'one', retry: { attemptsMax } }, async ({ eventId }) => {
    const timeMs = timesMs.get(eventId) ?? 0;
    if (timeMs > 0) await bench.clock.sleep(timeMs);
    if (eventId === killer) started?.access.kill();
    if (started?.access.dead === true) return new Promise(() => undefined);
    work();
    done.push(eventId);
  });
  started = bench.start([handler]);
  return started;
}

describe('a process that dies', () => {
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
    expect(bench.database.blocked.size).toBe(0);
    await second.delivery.stop();
  });

  test('makes the next one repeat only what was not saved', async () => {
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

test('a handler that repeats when its process dies gets its events again, and none of them is blocked', async () => {
  const bench = new DeliveryBench();
  const seen: string[] = [];
  const hold = gate();
  const start = (): BenchProcess =>
    bench.start([
      handlerOf({ name: 'one', whenProcessDies: 'repeat' }, async ({ eventId }) => {
        seen.push(eventId);
        await hold.opened;
      }),
    ]);
  bench.database.commit(...['a', 'b', 'c'].flatMap((model) => [deposited(model, 1), deposited(model, 2)]));
  const first = start();
  await bench.clock.advance(2_000);
  first.access.kill();
  start();
  await bench.clock.advance(15_000);
  expect(seen.toSorted()).toEqual(['a1', 'a1', 'b1', 'b1', 'c1', 'c1']);
  expect(bench.database.blocked.size).toBe(0);
  hold.open();
  await bench.clock.advance(1_000);
  expect(seen.slice(6).toSorted()).toEqual(['a2', 'b2', 'c2']);
});

test('a handler that declares something else for the death of its process is refused', () => {
  const handler = handlerOf({ name: 'one', whenProcessDies: 'block' as 'repeat' }, () => undefined);
  expect(() => new DeliveryBench().start([handler])).toThrow("set 'quarantine' or 'repeat'");
});

describe('an event that failed, or waited, before a process died', () => {
  test.each(['a1', 'a2'])('delays no other model of its slot during its retries: %s', async (slow) => {
    const bench = new DeliveryBench();
    let failures = 1;
    const handler = handlerOf({ name: 'one' }, ({ eventId }) => {
      if (failures-- > 0) throw new Error('once');
      return eventId === slow ? new Promise(() => undefined) : undefined;
    });
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    const { access } = bench.start([handler]);
    await bench.clock.advance(2_000);
    expect(handler.seen.at(-1)).toBe(slow);
    access.kill();
    const { executor } = bench.start([handler]);
    await bench.clock.advance(15_000);
    bench.database.commit(deposited('e', 1));
    executor.committed();
    await bench.clock.advance(1_000);
    expect(handler.seen.slice(-2)).toEqual([slow, 'e1']);
  });
});

describe('an event that kills its process', () => {
  test('becomes a dead letter after exactly the allowed attempts, but harmless events do not', async () => {
    const bench = new DeliveryBench();
    const seen: string[] = [];
    const ids = ['a', 'b', 'c', 'd', 'e', 'f'];
    bench.database.commit(...ids.map((id) => deposited(id, 1)), ...ids.map((id) => deposited(id, 2)));
    for (let life = 0; life < 7; life++) {
      killable(bench, 'c1', seen);
      await bench.clock.advance(20_000);
    }
    // Twice, other events were handled beside c1, so that the attempt was not counted.
    expect(seen.filter((id) => id === 'c1')).toHaveLength(2 + 3);
    expect(bench.database.blockedOf('one')).toMatchObject([{ event: { id: 'c1' }, attempts: 3, dead: true }]);
    expect(seen).toEqual(expect.arrayContaining(['a2', 'b2', 'd2', 'e2', 'f2']));
  });

  test('becomes a dead letter even if the database fails over at each death of the process', async () => {
    const bench = new DeliveryBench();
    const seen: string[] = [];
    bench.database.commit(...['a', 'b', 'c', 'd'].map((id) => deposited(id, 1)));
    for (let life = 0; life < 7; life++) {
      const { access } = killable(bench, 'c1', seen);
      await bench.clock.advance(20_000);
      if (access.dead) bench.database.failOver(bench.database.snapshot());
    }
    expect(seen.filter((id) => id === 'c1')).toHaveLength(2 + 3);
    expect(bench.database.blockedOf('one')).toMatchObject([{ event: { id: 'c1' }, attempts: 3, dead: true }]);
  });

  test('is being handled alone whenever an attempt at it is counted', async () => {
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
    const blocked = new Map(
      bench.database.blockedOf('one').map((each) => [`${each.modelId}1`, countsOf(each)[0]]),
    );
    expect(blocked.get('a1')).toBe(1);
    for (const innocent of ['b1', 'c1', 'd1']) expect(blocked.get(innocent) ?? 0).toBe(0);
  });

  test.each([1, 3, 10])(
    'becomes a dead letter after %i attempts, while slow events beside it are handled',
    async (attemptsMax) => {
      const bench = new DeliveryBench();
      const done: string[] = [];
      const timesMs = new Map([
        ['a1', 3_000],
        ['b1', 12_000],
      ]);
      bench.database.commit(...['a', 'b', 'c', 'd'].map((id) => deposited(id, 1)), deposited('a', 2));
      for (let life = 0; life < attemptsMax + 8; life++) {
        startSlow(bench, { attemptsMax, timesMs, killer: 'c1', done });
        await bench.clock.advance(60_000);
      }
      expect(new Set(done)).toEqual(new Set(['a1', 'a2', 'b1', 'd1']));
      expect(bench.database.blockedOf('one')).toMatchObject([
        { event: { id: 'c1' }, attempts: attemptsMax, dead: true },
      ]);
    },
  );

  test('becomes a dead letter even if it kills only after some seconds', async () => {
    const bench = new DeliveryBench();
    const done: string[] = [];
    bench.database.commit(...['a', 'b', 'c', 'd'].map((id) => deposited(id, 1)));
    const timesMs = new Map([['c1', 5_000]]);
    for (let life = 0; life < 10; life++) {
      startSlow(bench, { attemptsMax: 3, timesMs, killer: 'c1', done });
      await bench.clock.advance(60_000);
    }
    expect(new Set(done)).toEqual(new Set(['a1', 'b1', 'd1']));
    expect(bench.database.blockedOf('one')).toMatchObject([{ event: { id: 'c1' }, attempts: 3, dead: true }]);
  });

  test('uses up no attempt of slow events beside it, even if it kills only after seconds', async () => {
    const bench = new DeliveryBench();
    const done: string[] = [];
    const ids = ['a1', 'b1', 'c1', 'd1', 'e1', 'f1', 'g1', 'h1'];
    const timesMs = new Map(ids.map((id) => [id, id === 'c1' ? 5_000 : 12_000]));
    bench.database.commit(...ids.map((id) => deposited(id.charAt(0), 1)));
    for (let life = 0; life < 12; life++) {
      startSlow(bench, { attemptsMax: 1, timesMs, killer: 'c1', done });
      await bench.clock.advance(200_000);
    }
    expect(done.toSorted()).toEqual(ids.filter((id) => id !== 'c1'));
    expect(bench.database.blockedOf('one')).toMatchObject([{ event: { id: 'c1' }, attempts: 1, dead: true }]);
  });

  test('uses up no attempt of another event that is retried beside it', async () => {
    const bench = new DeliveryBench();
    const done: string[] = [];
    let failing = true;
    const start = (killer: string | undefined): BenchProcess =>
      startSlow(bench, { attemptsMax: 2, timesMs: new Map([['a1', 2_000]]), killer, done }, () => {
        if (failing) throw new Error('by itself');
      });
    bench.database.commit(deposited('a', 1));
    const first = start(undefined);
    await bench.clock.advance(2_400);
    expect(bench.database.blockedOf('one')).toMatchObject([{ event: { id: 'a1' }, attempts: 1 }]);
    failing = false;
    // The last attempt at a1 is running when another event ends the process.
    await bench.clock.advance(1_400);
    first.access.kill();
    await start('b1').delivery.started();
    bench.database.commit(deposited('b', 1));
    for (let life = 0; life < 6; life++) {
      await bench.clock.advance(30_000);
      start('b1');
    }
    await bench.clock.advance(60_000);
    expect(done).toContain('a1');
    expect(bench.database.blockedOf('one')).toMatchObject([{ event: { id: 'b1' }, attempts: 2, dead: true }]);
  });
});

function models(count: number): readonly DeliverableEvent[] {
  return Array.from({ length: count }, (_item, index) => deposited(`x${index}`, 1, { slot: index % 4 }));
}

async function handledSince(
  bench: DeliveryBench,
  { executor }: BenchProcess,
  handled: string[],
): Promise<void> {
  const ids = ['a', 'b', 'c', 'd'];
  bench.database.commit(...ids.map((id) => deposited(id, 1)));
  executor.committed();
  await bench.clock.advance(1_000);
  expect(handled.toSorted()).toEqual(ids.map((id) => `${id}1`));
}

describe('after a crash, retries that wait for the end of an outage', () => {
  const unavailable = new ShardUnavailableError(shard, 'silent');

  /** A process whose calls for models `x…` take five seconds each, and fail because of the outage. */
  function startInOutage(bench: DeliveryBench, handled: string[]): BenchProcess {
    let started: BenchProcess | undefined;
    const handler = handlerOf({ name: 'one' }, async ({ eventId, modelId }) => {
      if (modelId.startsWith('x')) await bench.clock.sleep(5_000);
      if (started?.access.dead === true) return new Promise(() => undefined);
      if (modelId.startsWith('x')) throw unavailable;
      handled.push(eventId);
    });
    started = bench.start([handler], { dueMax: 10 });
    return started;
  }

  test('hold up no slot, however many there are', async () => {
    const bench = new DeliveryBench();
    const handled: string[] = [];
    const before = startInOutage(bench, []);
    bench.database.commit(...models(40));
    await bench.clock.advance(40_000);
    expect(bench.database.blockedOf('one')).toHaveLength(40);
    before.access.kill();
    const after = startInOutage(bench, handled);
    await bench.clock.advance(15_000);
    await handledSince(bench, after, handled);
  });

  test('delay a slot only until each suspect has been tried', async () => {
    const bench = new DeliveryBench();
    const handled: string[] = [];
    const before = startInOutage(bench, []);
    bench.database.commit(...models(40));
    await bench.clock.advance(40_000);
    bench.database.commit(
      ...Array.from({ length: 20 }, (_item, index) => deposited(`xx${index}`, 1, { slot: 0 })),
    );
    before.executor.committed();
    await bench.clock.advance(300);
    before.access.kill();
    const after = startInOutage(bench, handled);
    await bench.clock.advance(15_000);
    expect(bench.database.blockedOf('one').filter(({ event }) => event === undefined)).not.toHaveLength(0);
    await bench.clock.advance(20_000);
    expect(bench.database.blockedOf('one').filter(({ event }) => event === undefined)).toHaveLength(0);
    await handledSince(bench, after, handled);
  });
});

describe('a slot', () => {
  test('that another process took is no longer worked on, and writes for it are refused', async () => {
    const bench = new DeliveryBench();
    const seen: string[] = [];
    const { access, executor } = killable(bench, undefined, seen);
    await bench.clock.advance(300);
    bench.database.hand({ handler: 'one', slot: 0 }, 'somebody else', false);
    bench.database.processes.set('somebody else', {
      handlers: ['one'],
      shards: [],
      untilMs: Number.MAX_SAFE_INTEGER,
      timeline: bench.database.timeline,
      leaseMs: 1_000,
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

  test('that comes back with queued work under a new lease has all of that work done', async () => {
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

  test('whose lease could not be renewed in time is given up', async () => {
    const bench = new DeliveryBench();
    const seen: string[] = [];
    const { access, executor, errors } = killable(bench, undefined, seen);
    await bench.clock.advance(300);
    access.failures.set(
      'leases.renew',
      Array.from({ length: 8 }, () => new Error('down')),
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

test('errors of the database delay events but lose none', async () => {
  const bench = new DeliveryBench();
  const handler = handlerOf({ name: 'one' }, ({ eventId, attempt }) => {
    if (eventId === 'b1' && attempt === 1) throw new Error('once');
  });
  const { access, errors, executor } = bench.start([handler]);
  for (const method of [
    'cursors.register',
    'cursors.load',
    'cursors.known',
    'log.read',
    'blocked.fail',
    'blocked.dueHeads',
    'blocked.read',
    'blocked.move',
    'cursors.save',
    'blocked.models',
    'notifications.listen',
    'partitions.create',
  ] as const) {
    access.failures.set(method, [new Error(`${method} failed`), new Error(`${method} failed again`)]);
  }
  bench.database.commit(deposited('a', 1), deposited('b', 1), deposited('b', 2));
  executor.committed();
  await bench.clock.advance(130_000);
  expect(new Set(handler.seen)).toEqual(new Set(['a1', 'b1', 'b2']));
  expect(bench.database.blocked.size).toBe(0);
  expect(errors.length).toBeGreaterThanOrEqual(20);
});
