import { Action, ShardIdentifier, ShardUnavailableError } from '@framework/core';
import { DatabaseNotReadyError, DatabasesClosedError } from '@framework/core/adapter';
import { describe, expect, test, vi } from 'vitest';
import { deposited } from './account.js';
import { type BenchProcess, DeliveryBench, gate, handlerOf, shard } from './delivery-bench.js';

describe('a failover within a lease', () => {
  test('restarts a process at its saved cursors, so that no later event is skipped', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' });
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    const { executor } = bench.start([handler]);
    await bench.clock.advance(2_000);
    const replica = bench.database.snapshot();
    bench.database.commit(deposited('a', 3), deposited('a', 4), deposited('a', 5));
    executor.committed();
    await bench.clock.advance(100);
    expect(handler.seen).toEqual(['a1', 'a2', 'a3', 'a4', 'a5']);

    bench.database.failOver(replica);
    bench.database.commit(deposited('a', 3, { id: 'new a3' }), deposited('a', 4, { id: 'new a4' }));
    executor.committed();
    await bench.clock.advance(10_000);
    expect(handler.seen.slice(5)).toEqual(['new a3', 'new a4']);
    bench.database.commit(deposited('a', 5, { id: 'new a5' }));
    executor.committed();
    await bench.clock.advance(100);
    expect(handler.seen.slice(7)).toEqual(['new a5']);
  });

  test('is reported once, however many handlers notice it', async () => {
    const bench = new DeliveryBench();
    const handlers = ['one', 'two', 'three'].map((name) => handlerOf({ name }));
    const { executor, errors } = bench.start(handlers);
    bench.database.commit(deposited('a', 1));
    await bench.clock.advance(2_000);
    const replica = bench.database.snapshot();
    bench.database.commit(deposited('a', 2));
    executor.committed();
    await bench.clock.advance(100);

    bench.database.failOver(replica);
    executor.committed();
    await bench.clock.advance(10_000);
    expect(errors).toMatchObject([{ code: 'history-changed' }]);
  });

  test('that lost blocked events lets no later event overtake them until there are new leases', async () => {
    const bench = new DeliveryBench();
    const callMs = new Map([
      ['b1', 500],
      ['b2', 600],
    ]);
    let failing = 2;
    const done: string[] = [];
    const retry = { backoffBaseMs: 300 };
    const handler = handlerOf({ name: 'one', concurrency: 1, retry }, async ({ eventId }) => {
      await bench.clock.sleep(callMs.get(eventId) ?? 0);
      if (eventId === 'a1' && failing-- > 0) throw new Error('no');
      done.push(eventId);
    });
    const { executor } = bench.start([handler]);
    await bench.clock.advance(100);
    bench.database.commit(...['a', 'b'].flatMap((model) => [deposited(model, 1), deposited(model, 2)]));
    const replica = bench.database.snapshot();
    executor.committed();
    await bench.clock.advance(900);
    expect(handler.seen).toEqual(['a1', 'b1', 'a1', 'b2']);
    bench.database.failOver(replica);
    await bench.clock.advance(10_000);
    expect(done).toEqual(['b1', 'b2', 'a1', 'b1', 'a2', 'b2']);
  });

  test('puts no slot in quarantine, because no process has died', async () => {
    const bench = new DeliveryBench();
    bench.start([handlerOf({ name: 'one' })]);
    bench.start([handlerOf({ name: 'one' })]);
    await bench.clock.advance(8_000);
    bench.database.failOver(bench.database.snapshot());
    bench.database.commit(deposited('a', 1));
    await bench.clock.advance(20_000);
    expect(bench.database.writes.blocked).toBe(0);
    expect(bench.database.leases.every(({ processId }) => processId !== undefined)).toBe(true);
  });
});

test('an outage of the database that is longer than a lease puts no slot in quarantine', async () => {
  const bench = new DeliveryBench();
  const handlers = [handlerOf({ name: 'one' }), handlerOf({ name: 'one' })] as const;
  const processes = handlers.map((handler) => bench.start([handler], { storeBackoffMaxMs: 1_000 }));
  await bench.clock.advance(8_000);
  const down = Array.from({ length: 15 }, () => new Error('down'));
  for (const { access } of processes) access.failures.set('leases.renew', [...down]);
  await bench.clock.advance(25_000);
  bench.database.commit(...['a', 'b', 'c', 'd'].map((model) => deposited(model, 1)));
  await bench.clock.advance(20_000);
  expect(bench.database.writes.blocked).toBe(0);
  expect([...handlers[0].seen, ...handlers[1].seen].toSorted()).toEqual(['a1', 'b1', 'c1', 'd1']);
  expect(handlers[0].seen).toHaveLength(2);
});

test('a read that continues while another one fails is not overtaken by a later one', async () => {
  const bench = new DeliveryBench();
  const before = bench.start([handlerOf({ name: 'one' })]);
  await bench.clock.advance(300);
  await before.delivery.stop();
  // The slots are at two positions, so there are two reads in parallel.
  bench.database.commit(deposited('d', 1), deposited('a', 1));
  for (const slot of [0, 1]) bench.database.cursors.set(`one ${slot}`, 1);
  const handler = handlerOf({ name: 'one' });
  const { store, executor } = bench.start([handler]);
  const read = store.log.read.bind(store.log);
  const slow = gate();
  let isFaulty = true;
  let slowCount = 0;
  Object.assign(store.log, {
    read: async (slots: readonly number[], cursor: string, limit: number) => {
      if (isFaulty && slots.includes(3)) throw new Error('connection lost');
      const batch = await read(slots, cursor, limit);
      if (slots.includes(0) && slowCount++ === 0) await slow.opened;
      return batch;
    },
  });
  await bench.clock.advance(50);
  bench.database.commit(deposited('a', 2));
  executor.committed();
  await bench.clock.advance(1_000);
  slow.open();
  isFaulty = false;
  await bench.clock.advance(10_000);
  expect(handler.seen.filter((id) => id !== 'd1')).toEqual(['a1', 'a2']);
  expect(bench.database.cursors.get('one 0')).toBe(3);
});

describe('a start', () => {
  test('that was awaited has determined where a new handler begins', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one', startFrom: 'now' });
    bench.database.commit(deposited('a', 1));
    const { delivery, access } = bench.start([handler]);
    access.failures.set('cursors.register', [new Error('down')]);
    let isStarted = false;
    const started = delivery.started().then(() => (isStarted = true));
    await bench.clock.advance(0);
    expect(isStarted).toBe(false);
    await bench.clock.advance(1_000);
    await started;
    bench.database.commit(deposited('a', 2));
    await bench.clock.advance(2_000);
    expect(handler.seen).toEqual(['a2']);
  });

  test('before the databases are ready sends them no queries and reports nothing', async () => {
    const bench = new DeliveryBench();
    const { opened, open } = gate();
    const handler = handlerOf({ name: 'one' });
    const { access, errors } = bench.start([handler], {}, () => opened);
    await bench.clock.advance(30_000);
    expect([access.callCount, errors]).toEqual([0, []]);
    open();
    bench.database.commit(deposited('a', 1));
    await bench.clock.advance(2_000);
    expect(handler.seen).toEqual(['a1']);
  });

  test('does not wait for a database that reports that it is unavailable, and continues there when it is available', async () => {
    const bench = new DeliveryBench();
    const { opened, open } = gate();
    const down = { what: 'connect ECONNREFUSED', remedy: 'start it', cause: undefined };
    let reason: DatabaseNotReadyError | undefined = new DatabaseNotReadyError('unreachable', down);
    const handler = handlerOf({ name: 'one', startFrom: 'now' });
    const { delivery, errors } = bench.start([handler], {}, (onNotReady) => {
      if (reason !== undefined) onNotReady?.(reason);
      return opened;
    });
    expect(await delivery.started()).toEqual([{ shards: [shard], error: reason, handlers: ['one'] }]);
    const onShard = vi.fn<() => void>();
    const started = delivery.startedOn(shard).then(onShard);
    await bench.clock.advance(30_000);
    expect([onShard.mock.calls, errors]).toEqual([[], []]);
    reason = undefined;
    open();
    const again = delivery.started();
    await bench.clock.advance(1_000);
    await started;
    expect(await again).toEqual([]);
    bench.database.commit(deposited('a', 1));
    await bench.clock.advance(2_000);
    expect(handler.seen).toEqual(['a1']);
  });

  test('does not wait for a database that goes away after it was opened, either', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one', startFrom: 'now' });
    const { delivery, access } = bench.start([handler]);
    const down = new ShardUnavailableError(shard, 'connect ECONNREFUSED');
    access.failures.set(
      'cursors.register',
      Array.from({ length: 3 }, () => down),
    );
    expect(await delivery.started()).toEqual([{ shards: [shard], error: down, handlers: ['one'] }]);
    const onShard = vi.fn<() => void>();
    const started = delivery.startedOn(shard).then(onShard);
    await bench.clock.advance(0);
    expect(onShard).not.toHaveBeenCalled();
    await bench.clock.advance(30_000);
    await started;
    bench.database.commit(deposited('a', 1));
    await bench.clock.advance(2_000);
    expect(handler.seen).toEqual(['a1']);
  });

  test('of a handler that the database does not register holds up no other, and is made once it does', async () => {
    const bench = new DeliveryBench();
    const [late, one] = [handlerOf({ name: 'late' }), handlerOf({ name: 'one' })];
    bench.database.commit(deposited('a', 1));
    const { delivery, store } = bench.start([late, one]);
    const slow = new Error('canceling statement due to statement timeout');
    const register = store.cursors.register.bind(store.cursors);
    let isSlow = true;
    vi.spyOn(store.cursors, 'register').mockImplementation((handler) =>
      isSlow && handler.name === 'late' ? Promise.reject(slow) : register(handler),
    );
    const failures = delivery.started();
    const onShard = vi.fn<() => void>();
    const started = delivery.startedOn(shard).then(onShard);
    await bench.clock.advance(2_000);
    expect(await failures).toEqual([{ shards: [shard], error: slow, handlers: ['late'] }]);
    expect([one.seen, late.seen]).toEqual([['a1'], []]);
    expect(onShard).not.toHaveBeenCalled();
    isSlow = false;
    await bench.clock.advance(10_000);
    await started;
    expect([one.seen, late.seen, await delivery.started()]).toEqual([['a1'], ['a1'], []]);
  });

  test('rejects, and is not tried again, when the databases are closed before the handlers are registered', async () => {
    const bench = new DeliveryBench();
    const { delivery, access, errors } = bench.start([handlerOf({ name: 'one' })]);
    const closed = new DatabasesClosedError(shard);
    access.failures.set(
      'cursors.register',
      Array.from({ length: 9 }, () => closed),
    );
    const outcomes: unknown[] = [];
    for (const started of [delivery.started(), delivery.startedOn(shard)]) {
      const told = started.then(() => 'started');
      void told.catch((error: unknown) => error).then((outcome) => outcomes.push(outcome));
    }
    await bench.clock.advance(30_000);
    expect(outcomes).toEqual([closed, closed]);
    expect([access.calls.get('cursors.register'), errors]).toEqual([1, [closed]]);
    const stopped = delivery.stop();
    await bench.clock.advance(0);
    await stopped;
  });

  test('on a shard that is not configured is refused', async () => {
    const { delivery } = new DeliveryBench().start([handlerOf({ name: 'one' })]);
    const unknown = delivery.startedOn(ShardIdentifier.of(9, 9));
    await expect(unknown).rejects.toMatchObject({ code: 'unknown-shard' });
  });

  test('of databases that never become ready rejects, and says why once', async () => {
    const bench = new DeliveryBench();
    const faulty = new Error('a migration is faulty');
    const { delivery, errors } = bench.start([handlerOf({ name: 'one' })], {}, () => Promise.reject(faulty));
    await expect(delivery.started()).rejects.toBe(faulty);
    await bench.clock.advance(30_000);
    expect(errors).toEqual([faulty]);
    await delivery.stop();
  });

  test('after a stop is refused, and the stop waits for nothing that was not started', async () => {
    const bench = new DeliveryBench();
    const { delivery, access, errors } = bench.start([handlerOf({ name: 'one' })], {}, never);
    const stopped = delivery.stop();
    await bench.clock.advance(30_000);
    await stopped;
    expect([access.callCount, errors.filter((error) => !String(error).includes('stopped'))]).toEqual([0, []]);
    await expect(delivery.started()).rejects.toThrow('stopped');
    expect(() => delivery.start()).toThrow(expect.objectContaining({ code: 'invariant-violation' }));
  });
});

/** A database that is unavailable. */
function never(): Promise<void> {
  return new Promise(() => undefined);
}

/** A simple random number generator with a seed, so that a failure can be repeated. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

test.each([1, 2, 3, 4, 5, 6])(
  'every surviving event takes effect once and in order across handler versions and failovers (seed %i)',
  async (seed) => {
    const random = randomOf(seed);
    const bench = new DeliveryBench();
    /** Like the idempotency keys of another database, which the failovers do not affect. */
    const keys = new Set<string>();
    /** The events that had an effect, by model, once for each effect. */
    const effects = new Map<string, string[]>();
    const start = (): BenchProcess => {
      const isOld = random() < 0.5;
      const options = isOld ? { name: 'old' } : { name: 'new', aliases: ['old'] };
      let self: BenchProcess | undefined;
      const handler = handlerOf(options, async ({ eventId, modelId }, context) => {
        if (self?.access.dead === true) return new Promise(() => undefined);
        await context.execute(EffectAction, { eventId, modelId });
        if (random() < 0.05) throw new Error('now and then');
        if (random() < 0.2) await bench.clock.sleep(random() * 200);
      });
      self = bench.start([handler], { leaseMs: 3_000 });
      Object.assign(self.executor, {
        execute: async (
          _principal: unknown,
          _action: unknown,
          params: EffectParams,
          configuration: unknown,
        ) => {
          const key = JSON.stringify(configuration);
          if (keys.has(key)) return;
          keys.add(key);
          effects.set(params.modelId, [...(effects.get(params.modelId) ?? []), params.eventId]);
        },
      });
      return self;
    };
    const processes = [start(), start(), start()];
    let replica = bench.database.snapshot();
    let id = 0;
    for (let round = 0; round < 60; round++) {
      for (const model of ['a', 'b', 'c', 'd', 'e', 'f']) {
        if (random() < 0.5) continue;
        const version = bench.database.log.filter(({ modelId }) => modelId === model).length + 1;
        bench.database.commit(deposited(model, version, { id: `${model}${version} #${++id}` }));
      }
      processes[0]!.executor.committed();
      await bench.clock.advance(random() * 500);
      if (random() < 0.1) replica = bench.database.snapshot();
      if (random() < 0.08) bench.database.failOver(replica);
      if (random() > 0.15) continue;
      const index = Math.floor(random() * 3);
      if (random() < 0.5) processes[index]!.access.kill();
      else void processes[index]!.delivery.stop({ timeoutMs: 1_000 });
      processes[index] = start();
    }
    await bench.clock.advance(600_000);
    const left = new Set(bench.database.log.map((event) => event.id));
    for (const model of ['a', 'b', 'c', 'd', 'e', 'f']) {
      const expected = bench.database.log.filter(({ modelId }) => modelId === model).map((event) => event.id);
      expect((effects.get(model) ?? []).filter((eventId) => left.has(eventId))).toEqual(expected);
    }
    expect(bench.database.blocked.size).toBe(0);
    expect([...bench.database.handlers.keys()]).toHaveLength(1);
  },
);

interface EffectParams {
  readonly eventId: string;
  readonly modelId: string;
}

class EffectAction extends Action<EffectParams> {
  async perform(): Promise<void> {}
}

test('a model that is being recovered during a failover is not read on from a position of the earlier history', async () => {
  const bench = new DeliveryBench();
  const hold = gate();
  const handler = handlerOf({ name: 'one', retry: { backoffMaxMs: 100 } }, async ({ eventId }) => {
    if (eventId !== 'd1') return;
    if (handler.seen.length === 1) throw new Error('once');
    await hold.opened;
  });
  bench.start([handler]);
  await bench.clock.advance(1_000);
  const replica = bench.database.snapshot();
  bench.database.commit(deposited('d', 1));
  for (let round = 0; round < 40 && handler.seen.length < 2; round++) await bench.clock.advance(100);
  bench.database.failOver(replica);
  // The new primary lacks the event, and another one has its version.
  bench.database.commit(deposited('d', 1, { id: 'new d1' }), deposited('d', 2, { id: 'new d2' }));
  hold.open();
  await bench.clock.advance(30_000);
  expect(handler.seen).toEqual(['d1', 'd1', 'new d1', 'new d2']);
});
