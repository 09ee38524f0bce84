import { AsyncLocalStorage } from 'node:async_hooks';
import { hostname } from 'node:os';
import { ShardIdentifier } from '@framework/core';
import { MemoryAccess, MemoryDeliveryStore } from '@framework/testing/memory';
import { describe, expect, test } from 'vitest';
import { DeliveryOperator, FrameworkEventHandler } from '../src/index.js';
import { DepositedEvent, deposited } from './account.js';
import { type BenchProcess, DeliveryBench, gate, handlerOf, shard } from './delivery-bench.js';

async function ready(): Promise<void> {}

function operatorOf({ database }: DeliveryBench): DeliveryOperator {
  const store = new MemoryDeliveryStore(new MemoryAccess(database));
  return new DeliveryOperator({
    deliveries: () => [{ store, shards: [shard], ready: async () => undefined }],
  });
}

/** A process with an operator of its own. */
function operated(process: BenchProcess): BenchProcess & { readonly operator: DeliveryOperator } {
  const deliveries = [{ store: process.store, shards: [shard], ready }];
  return { ...process, operator: new DeliveryOperator({ deliveries: () => deliveries }) };
}

function failing(name = 'one', attemptsMax = 2): ReturnType<typeof handlerOf> {
  return handlerOf({ name, retry: { attemptsMax, backoffBaseMs: 60_000 } }, ({ modelId }) => {
    if (modelId === 'a') throw new Error('no');
  });
}

describe('explain', () => {
  test('says what an event waits for', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    bench.database.commit(deposited('a', 1), deposited('a', 2), deposited('b', 1));
    bench.start([failing()]);
    await bench.clock.advance(300);
    const standing = async (eventId: string): Promise<unknown> => {
      const explanation = await operator.explain(eventId);
      return explanation.kind === 'in-log' ? explanation.standings[0] : explanation.kind;
    };
    expect(await standing('a1')).toMatchObject({ kind: 'backing-off', attempts: 1, error: 'Error: no' });
    expect(await standing('a2')).toMatchObject({
      kind: 'behind',
      behindEventId: 'a1',
      behindDeadLetter: false,
    });
    await bench.clock.advance(2_000);
    expect(await standing('b1')).toMatchObject({ kind: 'passed' });
    bench.database.commit(deposited('b', 2));
    expect(await standing('b2')).toMatchObject({
      kind: 'pending',
      leasedTo: expect.any(String),
      paused: false,
    });
    expect(await standing('z1')).toBe('not-in-log');
    await bench.clock.advance(130_000);
    expect(await standing('a1')).toMatchObject({ kind: 'dead-letter', attempts: 2 });
    expect(await standing('a2')).toMatchObject({ kind: 'behind', behindDeadLetter: true });
  });
});

describe('explain', () => {
  test('tells models of one id apart', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    const other = { ...deposited('a', 2), id: 'other2', modelName: 'Other' };
    bench.database.commit(deposited('a', 1), other);
    bench.start([failing('one', 5)]);
    await bench.clock.advance(300);
    const explanation = await operator.explain('other2');
    expect(explanation).toMatchObject({ standings: [{ kind: 'backing-off' }] });
  });

  test('asks every database, and needs only the one that knows the event', async () => {
    const bench = new DeliveryBench();
    bench.database.commit(deposited('a', 1));
    const [down, up] = [new MemoryAccess(new DeliveryBench().database), new MemoryAccess(bench.database)];
    const deliveries = [down, up].map((access) => ({
      store: new MemoryDeliveryStore(access),
      shards: [shard],
      ready,
    }));
    const operator = new DeliveryOperator({ deliveries: () => deliveries });
    down.failures.set('deadLetters.find', [new Error('the database is down')]);
    expect(await operator.explain('a1')).toMatchObject({ kind: 'in-log' });
    down.failures.set('deadLetters.find', [new Error('the database is down')]);
    await expect(operator.explain('z1')).rejects.toThrow('the database is down');
    expect(await operator.explain('z1')).toEqual({ kind: 'not-in-log' });
  });

  test('says that an event was passed whose partition is gone, where nothing of it is parked', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    bench.database.commit(deposited('a', 1));
    bench.start([failing('one', 1), handlerOf({ name: 'two' })]);
    await bench.clock.advance(3_000);
    bench.database.log.length = 0;
    const explanation = await operator.explain('a1');
    expect(explanation).toMatchObject({
      standings: [
        { handler: 'one', kind: 'dead-letter' },
        { handler: 'two', kind: 'passed' },
      ],
    });
  });
});

test('a database that is down fails its own part of an answer only', async () => {
  const bench = new DeliveryBench();
  bench.database.commit(deposited('a', 1));
  bench.start([failing('one', 1)]);
  await bench.clock.advance(3_000);
  const [down, up] = [new MemoryAccess(new DeliveryBench().database), new MemoryAccess(bench.database)];
  const other = ShardIdentifier.of(1, 0);
  const operator = new DeliveryOperator({
    deliveries: () => [
      { store: new MemoryDeliveryStore(down), shards: [other], ready },
      { store: new MemoryDeliveryStore(up), shards: [shard], ready },
    ],
  });
  const error = new Error('the database is down');
  const failures = [{ shards: [other], error }];
  for (const method of ['cursors.lag', 'leases.list', 'deadLetters.find'] as const)
    down.failures.set(method, [error, error]);
  down.failures.set(
    'cursors.find',
    Array.from({ length: 8 }, () => error),
  );
  expect(await operator.lag()).toMatchObject({ items: [{ handler: 'one', shards: [shard] }], failures });
  expect(await operator.leases()).toMatchObject({ items: [{ shards: [shard] }], failures });
  const found = { items: [{ handler: 'one', dead: true }], next: undefined, failures };
  expect(await operator.findParked()).toMatchObject(found);
  expect(await operator.findParked({ handler: 'one' })).toMatchObject(found);
  expect(await operator.findParked({ handler: 'nobody' })).toMatchObject({ items: [], failures });
  await expect(operator.replay({}, { dryRun: true })).rejects.toBe(error);
  expect(await operator.replay({}, { dryRun: true })).toBe(1);
});

test('a database that is down keeps no change from the others, and is reported', async () => {
  const [bench, other] = [new DeliveryBench(), new DeliveryBench()];
  for (const each of [bench, other]) {
    each.database.commit(deposited('a', 1));
    each.start([failing('one', 1)]);
    await each.clock.advance(3_000);
  }
  const [down, up] = [new MemoryAccess(other.database), new MemoryAccess(bench.database)];
  const deliveries = [down, up].map((access) => ({
    store: new MemoryDeliveryStore(access),
    shards: [shard],
    ready,
  }));
  const operator = new DeliveryOperator({ deliveries: () => deliveries });
  const letters = (): readonly boolean[] => bench.database.parkedOf('one').map(({ dead }) => dead);
  for (const change of [() => operator.pause('one'), () => operator.replay({ handler: 'one' })]) {
    down.failures.set('cursors.find', [new Error('the database is down')]);
    await expect(change()).rejects.toThrow('the database is down');
  }
  expect(bench.database.handlers.get('one')).toBe(true);
  expect(letters()).toEqual([false]);
  await expect(operator.skip({ handler: 'nobody' })).rejects.toMatchObject({ code: 'unknown-handler' });
});

describe('dead letters', () => {
  test('are counted by a dry run however many there are', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    const models = Array.from({ length: 1_200 }, (_item, index) => deposited(`a${index}-`, 1));
    bench.database.commit(...models);
    const always = handlerOf({ name: 'one', retry: { attemptsMax: 1 } }, () => {
      throw new Error('no');
    });
    bench.start([always]);
    await bench.clock.advance(20_000);
    expect(await operator.replay({}, { dryRun: true })).toBe(1_200);
    expect(await operator.replay({})).toBe(1_200);
  });

  test('are found page by page, counted by a dry run and replayed by a filter', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    const handlers = [failing('one', 1), failing('two', 1), failing('three', 1)];
    bench.start(handlers);
    await bench.clock.advance(300);
    const first = await operator.findParked({ dead: true }, { limit: 2 });
    const second = await operator.findParked({ dead: true }, { limit: 2, after: first.next! });
    expect([...first.items, ...second.items].map(({ handler }) => handler).sort()).toEqual([
      'one',
      'three',
      'two',
    ]);
    expect(second.next).toBeUndefined();
    expect(await operator.replay({ handler: 'two' }, { dryRun: true })).toBe(1);
    expect(await operator.skip({}, { dryRun: true })).toBe(3);
    expect(handlers[1]!.seen).toEqual(['a1']);
    expect(await operator.replay({ handler: 'two' })).toBe(1);
    await bench.clock.advance(3_000);
    expect(handlers.map(({ seen }) => seen)).toEqual([['a1'], ['a1', 'a1'], ['a1']]);
  });

  test('refuse a limit that is no whole number', async () => {
    const operator = operatorOf(new DeliveryBench());
    for (const limit of [Number.NaN, Number.POSITIVE_INFINITY, -1, 1.5]) {
      await expect(operator.findParked({}, { limit })).rejects.toMatchObject({ code: 'invariant-violation' });
    }
  });

  test('refuse a cursor that no page gave', async () => {
    const operator = operatorOf(new DeliveryBench());
    for (const after of ['', 'x', '7:', '-1:']) {
      await expect(operator.findParked({}, { after })).rejects.toMatchObject({ code: 'invalid-cursor' });
    }
  });
});

describe('a paused handler', () => {
  test('receives nothing until it is resumed, and then everything in order; others go on', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    const handlers = [handlerOf({ name: 'one' }), handlerOf({ name: 'two' })] as const;
    bench.start(handlers);
    await bench.clock.advance(300);
    await operator.pause('one');
    await bench.clock.advance(4_000);
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    await bench.clock.advance(4_000);
    expect(handlers.map(({ seen }) => seen)).toEqual([[], ['a1', 'a2']]);
    expect((await operator.lag()).items).toMatchObject([
      { handler: 'one', paused: true, pendingCount: 2, shards: [shard] },
      { handler: 'two', paused: false, pendingCount: 0 },
    ]);
    await operator.resume('one');
    await bench.clock.advance(4_000);
    expect(handlers[0].seen).toEqual(['a1', 'a2']);
  });

  test('leaves what it has read, also when its process stops, and hands it over', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    const holds = [gate(), gate()];
    const handler = handlerOf({ name: 'one' }, ({ modelVersion }) => holds[modelVersion - 1]?.opened);
    for (let version = 1; version <= 50; version++) bench.database.commit(deposited('a', version));
    const { delivery } = bench.start([handler]);
    await bench.clock.advance(300);
    await operator.pause('one');
    await bench.clock.advance(4_000);
    holds[0]!.open();
    await bench.clock.advance(4_000);
    expect(handler.seen).toEqual(['a1']);
    const stopped = delivery.stop({ timeoutMs: 60_000 });
    await bench.clock.advance(1_000);
    await stopped;
    holds[1]!.open();
    const next = handlerOf({ name: 'one' });
    bench.start([next]);
    await operator.resume('one');
    await bench.clock.advance(5_000);
    // The first one was read with the others, so that the cursor stands before it: at least once.
    expect(next.seen).toEqual(Array.from({ length: 50 }, (_item, index) => `a${index + 1}`));
  });

  test('is called in the context of no request, also with what it had read before it was resumed in one', async () => {
    const request = new AsyncLocalStorage<string>();
    const contexts: unknown[] = [];
    const bench = new DeliveryBench();
    const hold = gate();
    const handler = handlerOf({ name: 'one' }, async () => {
      contexts.push(request.getStore());
      await hold.opened;
    });
    bench.database.commit(deposited('a', 1), deposited('a', 2), deposited('a', 3));
    const { operator } = operated(bench.start([handler]));
    await bench.clock.advance(300);
    await operator.pause('one');
    hold.open();
    await bench.clock.advance(300);
    await request.run('a request', () => operator.resume('one'));
    await bench.clock.advance(300);
    expect([handler.seen, contexts]).toEqual([
      ['a1', 'a2', 'a3'],
      [undefined, undefined, undefined],
    ]);
  });

  test('is called no more in the process of the operator from then on, also with what was read', async () => {
    const bench = new DeliveryBench();
    const holds = [gate(), gate()];
    const handler = handlerOf({ name: 'one' }, ({ modelVersion }) => holds[modelVersion - 1]?.opened);
    for (let version = 1; version <= 5; version++) bench.database.commit(deposited('a', version));
    const { store, access } = bench.start([handler]);
    await bench.clock.advance(300);
    const operator = new DeliveryOperator({ deliveries: () => [{ store, shards: [shard], ready }] });
    // A renewal that asked before tells what was true then.
    const answer = gate();
    access.delays.set('cursors.load', [answer.opened]);
    await bench.clock.advance(3_400);
    await operator.pause('one');
    answer.open();
    for (const hold of holds) hold.open();
    await bench.clock.advance(2_000);
    expect(handler.seen).toEqual(['a1']);
    await operator.resume('one');
    await bench.clock.advance(1);
    expect(handler.seen).toEqual(['a1', 'a2', 'a3', 'a4', 'a5']);
  });

  test('is not called for an attempt that is being recorded, which is taken back', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' }, ({ attempt }) => {
      if (attempt === 1) throw new Error('once');
    });
    bench.database.commit(deposited('a', 1));
    const { access, operator } = operated(bench.start([handler]));
    const answer = gate();
    access.delays.set('parked.beginAttempt', [answer.opened]);
    await bench.clock.advance(3_000);
    expect(access.calls.get('parked.beginAttempt')).toBe(1);
    await operator.pause('one');
    answer.open();
    await bench.clock.advance(4_000);
    expect(handler.seen).toEqual(['a1']);
    expect(bench.database.parkedOf('one')).toMatchObject([{ attempts: 1, openAttempts: new Set() }]);
    await operator.resume('one');
    await bench.clock.advance(10);
    expect(handler.seen).toEqual(['a1', 'a1']);
    expect(bench.database.parked.size).toBe(0);
  });

  test('is not called with a large event that is being loaded, and gets it afterwards', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' });
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    const started = bench.start([handler], { readBytesMax: 1_000 });
    const { access, operator } = operated(started);
    const answer = gate();
    access.delays.set('log.load', [answer.opened]);
    await bench.clock.advance(300);
    expect(access.calls.get('log.load')).toBe(1);
    await operator.pause('one');
    answer.open();
    await bench.clock.advance(4_000);
    expect(handler.seen).toEqual([]);
    await operator.resume('one');
    await bench.clock.advance(4_000);
    expect(handler.seen).toEqual(['a1', 'a2']);
    expect(bench.database.cursors.get('one 0')).toBe(2);
  });

  test('is not called with a batch of which others are being parked, and gets it afterwards', async () => {
    const bench = new DeliveryBench();
    const batches: string[][] = [];
    class Batches {
      readonly event = DepositedEvent;
      async handleBatch(envelopes: readonly { readonly eventId: string }[]): Promise<void> {
        batches.push(envelopes.map(({ eventId }) => eventId));
        if (batches.length === 1) throw new Error('no');
      }
    }
    const retry = { backoffBaseMs: 60_000 };
    FrameworkEventHandler({ name: 'one', startFrom: 'beginning', retry })(Batches);
    bench.database.commit(deposited('a', 1));
    const { access, executor, operator } = operated(bench.start([new Batches()]));
    await bench.clock.advance(2_000);
    const answer = gate();
    access.delays.set('parked.park', [answer.opened]);
    bench.database.commit(deposited('a', 2), deposited('e', 1));
    executor.committed();
    await bench.clock.advance(10);
    await operator.pause('one');
    answer.open();
    await bench.clock.advance(4_000);
    expect(batches).toEqual([['a1']]);
    await operator.resume('one');
    await bench.clock.advance(4_000);
    expect(batches).toEqual([['a1'], ['e1']]);
    expect(bench.database.cursors.get('one 0')).toBe(3);
    await bench.clock.advance(130_000);
    expect(batches).toEqual([['a1'], ['e1'], ['a1'], ['a2']]);
  });

  test('is not called in slots that were just being taken over', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' });
    const { access, executor, operator } = operated(bench.start([handler]));
    const answer = gate();
    access.delays.set('parked.models', [answer.opened]);
    await bench.clock.advance(300);
    await operator.pause('one');
    bench.database.commit(deposited('a', 1));
    answer.open();
    executor.committed();
    await bench.clock.advance(2_000);
    expect(handler.seen).toEqual([]);
    await operator.resume('one');
    await bench.clock.advance(1);
    expect(handler.seen).toEqual(['a1']);
  });

  test('stays paused when what was asked before is answered late', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' });
    const { access, executor } = bench.start([handler]);
    const answer = gate();
    access.delays.set('parked.models', [answer.opened]);
    await bench.clock.advance(300);
    await operatorOf(bench).pause('one');
    // The renewal learns it.
    await bench.clock.advance(3_400);
    bench.database.commit(deposited('a', 1));
    answer.open();
    executor.committed();
    await bench.clock.advance(1_000);
    expect(handler.seen).toEqual([]);
  });

  test('has no parked events tried either', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    const handler = failing();
    bench.database.commit(deposited('a', 1));
    bench.start([handler]);
    await bench.clock.advance(300);
    await operator.pause('one');
    await bench.clock.advance(120_000);
    expect(handler.seen).toEqual(['a1']);
    await operator.resume('one');
    await bench.clock.advance(6_000);
    expect(handler.seen).toEqual(['a1', 'a1']);
  });

  test('has its parked events tried at once when it is resumed in the process of the operator', async () => {
    const bench = new DeliveryBench();
    const handler = failing();
    bench.database.commit(deposited('a', 1));
    const { store } = bench.start([handler]);
    const operator = new DeliveryOperator({ deliveries: () => [{ store, shards: [shard], ready }] });
    await bench.clock.advance(300);
    await operator.pause('one');
    await bench.clock.advance(122_000);
    expect(handler.seen).toEqual(['a1']);
    await operator.resume('one');
    await bench.clock.advance(10);
    expect(handler.seen).toEqual(['a1', 'a1']);
  });
});

test('leases say who delivers, and where', async () => {
  const bench = new DeliveryBench();
  const hold = gate();
  bench.start([handlerOf({ name: 'one' }, () => hold.opened)]);
  await bench.clock.advance(300);
  const { items } = await operatorOf(bench).leases();
  const [leases] = items;
  expect(leases!.slots).toHaveLength(4);
  const [holder = '', ...others] = new Set(leases!.slots.map(({ processId }) => processId));
  expect(others).toEqual([]);
  expect(holder.split('/').slice(0, 2)).toEqual([hostname(), `${process.pid}`]);
});
