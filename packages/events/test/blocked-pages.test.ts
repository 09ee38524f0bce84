import { ShardIdentifier } from '@framework/core';
import type { DeliverableEvent } from '@framework/core/adapter';
import { MemoryAccess, MemoryDeliveryStore } from '@framework/testing/memory';
import { describe, expect, test } from 'vitest';
import { DeliveryOperator } from '../src/index.js';
import { deposited } from './account.js';
import { blockElsewhere } from './bench-store.js';
import { DeliveryBench, handlerOf, operatorOf, shard } from './delivery-bench.js';

async function ready(): Promise<void> {}

function failing(name = 'one', attemptsMax = 2): ReturnType<typeof handlerOf> {
  return handlerOf({ name, retry: { attemptsMax, backoffBaseMs: 60_000 } }, ({ modelId }) => {
    if (modelId === 'a') throw new Error('no');
  });
}

test('an answer lacks only the part of a database that is down', async () => {
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
  for (const method of [
    'cursors.lag',
    'leases.list',
    'deadLetters.find',
    'deadLetters.countBlocked',
  ] as const)
    down.failures.set(method, [error]);
  down.failures.set(
    'cursors.find',
    Array.from({ length: 8 }, () => error),
  );
  expect(await operator.lag()).toMatchObject({ items: [{ handler: 'one', shards: [shard] }], failures });
  expect(await operator.leases()).toMatchObject({ items: [{ shards: [shard] }], failures });
  const found = { items: [{ handler: 'one', dead: true }], next: undefined, failures };
  expect(await operator.findBlocked()).toMatchObject(found);
  expect(await operator.findBlocked({ handler: 'one' })).toMatchObject(found);
  expect(await operator.findBlocked({ handler: 'nobody' })).toMatchObject({ items: [], failures });
  await expect(operator.replay({}, { dryRun: true })).rejects.toBe(error);
  expect(await operator.replay({}, { dryRun: true })).toBe(1);
});

test('a database that is down prevents no change in the others, and is reported', async () => {
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
  const letters = (): readonly boolean[] => bench.database.blockedOf('one').map(({ dead }) => dead);
  for (const change of [() => operator.pause('one'), () => operator.replay({ handler: 'one' })]) {
    down.failures.set('cursors.find', [new Error('the database is down')]);
    await expect(change()).rejects.toThrow('the database is down');
  }
  expect(bench.database.handlers.get('one')).toBe(true);
  expect(letters()).toEqual([false]);
  await expect(operator.skip({ handler: 'nobody' })).rejects.toMatchObject({ code: 'unknown-handler' });
});

test.each<[string, (operator: DeliveryOperator) => Promise<unknown>]>([
  ['pause', (operator) => operator.pause('one')],
  ['resume', (operator) => operator.resume('one')],
  ['retire', (operator) => operator.retire('one')],
  ['replay', (operator) => operator.replay({ handler: 'one' })],
  ['a dry run of replay', (operator) => operator.replay({ handler: 'one' }, { dryRun: true })],
  ['skip', (operator) => operator.skip({ handler: 'one' })],
  ['a dry run of skip', (operator) => operator.skip({ handler: 'one' }, { dryRun: true })],
])('a handler of a database that is down is not called unknown by %s', async (_what, change) => {
  const [down, up] = [
    new MemoryAccess(new DeliveryBench().database),
    new MemoryAccess(new DeliveryBench().database),
  ];
  const deliveries = [down, up].map((access) => ({
    store: new MemoryDeliveryStore(access),
    shards: [shard],
    ready,
  }));
  const error = new Error('the database is down');
  down.failures.set('cursors.find', [error, error]);
  await expect(change(new DeliveryOperator({ deliveries: () => deliveries }))).rejects.toBe(error);
});

test('the errors of several databases are thrown together', async () => {
  const errors = [new Error('the first one is down'), new Error('the last one is down')];
  const accesses = [0, 1, 2].map(() => new MemoryAccess(new DeliveryBench().database));
  const deliveries = accesses.map((access) => ({
    store: new MemoryDeliveryStore(access),
    shards: [shard],
    ready,
  }));
  accesses[0]!.failures.set('deadLetters.replay', [errors[0]]);
  accesses[2]!.failures.set('deadLetters.replay', [errors[1]]);
  const operator = new DeliveryOperator({ deliveries: () => deliveries });
  const thrown: unknown = await operator.replay({}).catch((error: unknown) => error);
  expect(thrown).toBeInstanceOf(AggregateError);
  expect((thrown as AggregateError).errors).toEqual(errors);
});

describe('dead letters', () => {
  test('are counted by a dry run, however many there are', async () => {
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

  test('are replayed step by step, so that those that fail again meanwhile are not replayed twice', async () => {
    const bench = new DeliveryBench();
    const store = new MemoryDeliveryStore(new MemoryAccess(bench.database));
    const steps: unknown[] = [];
    store.deadLetters.replay = async (_filter, step) => {
      steps.push(step);
      return { count: 1_000, next: steps.length === 1 ? 'a place' : undefined };
    };
    const operator = new DeliveryOperator({ deliveries: () => [{ store, shards: [shard], ready }] });
    expect(await operator.replay({})).toBe(2_000);
    expect(steps).toEqual([{ limit: 1_000 }, { limit: 1_000, after: 'a place' }]);
  });

  test('are counted as none if there is no database', async () => {
    expect(await new DeliveryOperator({ deliveries: () => [] }).replay({})).toBe(0);
  });

  test('are found page by page, counted by a dry run and replayed by a filter', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    const handlers = [failing('one', 1), failing('two', 1), failing('three', 1)];
    bench.start(handlers);
    await bench.clock.advance(300);
    const first = await operator.findBlocked({ dead: true }, { limit: 2 });
    const second = await operator.findBlocked({ dead: true }, { limit: 2, after: first.next! });
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

  test('cannot be listed with a limit that is not a whole number from 1 to 1,000', async () => {
    const operator = operatorOf(new DeliveryBench());
    for (const limit of [Number.NaN, Number.POSITIVE_INFINITY, -1, 0, 1.5, 1_001]) {
      await expect(operator.findBlocked({}, { limit })).rejects.toMatchObject({
        code: 'invalid-page-limit',
      });
    }
  });

  test('cannot be listed after a cursor that no page has returned', async () => {
    const operator = operatorOf(new DeliveryBench());
    for (const after of ['', 'x', '7:', '1:', '-1:', '0.5:', ':', ' :', 'x:', 'x0:']) {
      await expect(operator.findBlocked({}, { after })).rejects.toMatchObject({ code: 'invalid-cursor' });
    }
  });

  test('are found a hundred at a time by default', async () => {
    const bench = new DeliveryBench();
    for (let index = 0; index < 101; index++) block(bench, deposited(`a${index}-`, 1));
    const first = await operatorOf(bench).findBlocked();
    expect(first.items).toHaveLength(100);
    expect((await operatorOf(bench).findBlocked({}, { after: first.next! })).items).toHaveLength(1);
  });

  test.each([1, 2, 3, 4, 5])(
    'of several databases are found one after the other, %d at a time',
    async (limit) => {
      const benches = [2, 0, 2, 1].map((count) => {
        const bench = new DeliveryBench();
        for (let index = 0; index < count; index++) block(bench, deposited(`a${index}-`, 1));
        return bench;
      });
      const operator = operatorOf(...benches);
      const pages: string[][] = [];
      for (let after: string | undefined; ;) {
        const page = await operator.findBlocked({}, { limit, ...(after !== undefined && { after }) });
        pages.push(page.items.map(({ event }) => event.id));
        after = page.next;
        if (after === undefined) break;
      }
      expect(pages.flat()).toEqual(['a0-1', 'a1-1', 'a0-1', 'a1-1', 'a0-1']);
      expect(pages).toHaveLength(Math.ceil(5 / limit));
      expect(await operator.skip({}, { dryRun: true })).toBe(5);
      expect(await operator.skip({})).toBe(5);
      expect((await operator.findBlocked({ dead: true })).items).toEqual([]);
    },
  );

  test('of more than ten databases are found from any page onwards', async () => {
    const benches = Array.from({ length: 12 }, () => new DeliveryBench());
    for (const bench of benches) block(bench, deposited('a', 1));
    const operator = operatorOf(...benches);
    const first = await operator.findBlocked({}, { limit: 11 });
    expect((await operator.findBlocked({}, { after: first.next! })).items).toHaveLength(1);
  });

  test('are the only events that are replayed, and a dry run counts only them', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    block(bench, deposited('a', 1));
    block(bench, deposited('b', 1), false);
    for (const [dead, count] of [
      [false, 0],
      [undefined, 1],
      [true, 1],
    ] as const) {
      const filter = { ...(dead !== undefined && { dead }) };
      expect(await operator.replay(filter, { dryRun: true })).toBe(count);
    }
    expect(await operator.replay({ dead: false })).toBe(0);
    expect(await operator.replay({})).toBe(1);
    expect(bench.database.blockedOf('one').map(({ dead }) => dead)).toEqual([false, false]);
  });
});

/** Blocks a model of the handler `one`, by a dead letter or by an event that waits. */
function block(bench: DeliveryBench, event: DeliverableEvent, dead = true): void {
  blockElsewhere(bench, 'one', event, { error: 'Error: no', dead });
}
