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

  test('distinguishes models with the same id', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    const other = { ...deposited('a', 2), id: 'other2', modelName: 'Other' };
    bench.database.commit(deposited('a', 1), other);
    bench.start([failing('one', 5)]);
    await bench.clock.advance(300);
    const explanation = await operator.explain('other2');
    expect(explanation).toMatchObject({ standings: [{ kind: 'backing-off' }] });
  });

  test('asks every database, but needs only the one that knows the event', async () => {
    const bench = new DeliveryBench();
    bench.database.commit(deposited('a', 1));
    const [down, up] = [new MemoryAccess(new DeliveryBench().database), new MemoryAccess(bench.database)];
    const deliveries = [down, up].map((access) => ({
      store: new MemoryDeliveryStore(access),
      shards: [shard],
      ready,
    }));
    const operator = new DeliveryOperator({ deliveries: () => deliveries });
    down.failures.set('log.find', [new Error('the database is down')]);
    expect(await operator.explain('a1')).toMatchObject({ kind: 'in-log' });
    down.failures.set('log.find', [new Error('the database is down')]);
    await expect(operator.explain('z1')).rejects.toThrow('the database is down');
    expect(await operator.explain('z1')).toEqual({ kind: 'not-in-log' });
  });

  test('distinguishes the events of one change', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    const [first, second] = [deposited('a', 1), deposited('a', 1, { id: 'a1-second', ordinal: 1 })];
    bench.database.commit(first, second, deposited('a', 2));
    bench.start([failing()]);
    await bench.clock.advance(300);
    const behind = { standings: [{ kind: 'behind', behindEventId: 'a1' }] };
    expect(await operator.explain('a1')).toMatchObject({ standings: [{ kind: 'backing-off' }] });
    expect(await operator.explain('a1-second')).toMatchObject(behind);
    expect(await operator.explain('a2')).toMatchObject(behind);
  });

  test('distinguishes models, and events that are blocked for other handlers', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    for (const name of ['one', 'two']) await register(bench, name);
    block(bench, 'one', deposited('a', 2));
    block(bench, 'one', deposited('e', 1));
    block(bench, 'two', deposited('e', 1));
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    expect(await operator.explain('a2')).toMatchObject({
      standings: [
        { handler: 'one', kind: 'backing-off' },
        { handler: 'two', kind: 'pending' },
      ],
    });
  });

  test('says until when a failed event waits, and with which error it failed', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    bench.database.commit(deposited('a', 1));
    bench.start([failing()]);
    await bench.clock.advance(250);
    const failedMs = bench.clock.now().getTime();
    expect(await operator.explain('a1')).toEqual({
      kind: 'in-log',
      event: deposited('a', 1),
      shards: [shard],
      standings: [
        {
          handler: 'one',
          paused: false,
          kind: 'backing-off',
          attempts: 1,
          error: expect.stringContaining('no') as string,
          untilDate: expect.any(Date) as Date,
        },
      ],
    });
    const explanation = await operator.explain('a1');
    const [standing] = explanation.kind === 'in-log' ? explanation.standings : [];
    const untilMs = standing?.kind === 'backing-off' ? standing.untilDate?.getTime() : undefined;
    expect(Math.abs(untilMs! - failedMs - 60_000)).toBeLessThanOrEqual(250);
  });

  test('says which process, if any, holds the slot of an event that its handler has not reached', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    const names = ['one', 'two'];
    const processes = [0, 1].map(() => bench.start(names.map((name) => handlerOf({ name }))));
    await bench.clock.advance(15_000);
    for (const name of names) await operator.pause(name);
    await bench.clock.advance(5_000);
    const models = ['a', 'b', 'c', 'd'];
    for (const model of models) bench.database.commit(deposited(model, 1));
    await bench.clock.advance(2_000);
    const holders = new Set<string>();
    for (const [slot, model] of models.entries()) {
      const held = bench.database.leases.filter((lease) => lease.slot === slot);
      const explanation = await operator.explain(`${model}1`);
      expect(explanation).toMatchObject({
        standings: names.map((handler) => ({
          handler,
          paused: true,
          kind: 'pending',
          leasedTo: held.find((lease) => lease.handler === handler)!.processId,
          leasedUntilDate: expect.any(Date) as Date,
        })),
      });
      for (const { processId } of held) holders.add(processId!);
    }
    expect(holders.size).toBe(2);
    await Promise.all([...processes.map(({ delivery }) => delivery.stop()), bench.clock.advance(30_000)]);
    expect(await operator.explain('a1')).toMatchObject({
      standings: names.map((handler) => ({ handler, kind: 'pending', leasedTo: undefined })),
    });
  });
});

test('explain says which process holds the slot for each handler, or that none does yet', async () => {
  const bench = new DeliveryBench();
  for (const name of ['one', 'two']) bench.start([handlerOf({ name })]);
  await bench.clock.advance(1_000);
  bench.database.commit(deposited('a', 1));
  const holders = bench.database.leases.filter(({ slot }) => slot === 0).map(({ processId }) => processId);
  expect(new Set(holders).size).toBe(2);
  expect(await operatorOf(bench).explain('a1')).toMatchObject({
    standings: holders.map((leasedTo) => ({ kind: 'pending', leasedTo })),
  });
  const store = new MemoryDeliveryStore(new MemoryAccess(bench.database));
  store.leases.list = async () => [];
  const operator = new DeliveryOperator({ deliveries: () => [{ store, shards: [shard], ready }] });
  expect(await operator.explain('a1')).toMatchObject({
    standings: [{ leasedTo: undefined }, { leasedTo: undefined }],
  });
});

/** Registers a handler that no process has. */
async function register(bench: DeliveryBench, name: string): Promise<void> {
  await bench.process().store.cursors.register({ name, aliases: [], startFrom: 'beginning' });
}

function block(bench: DeliveryBench, handler: string, event: DeliverableEvent): void {
  blockElsewhere(bench, handler, event);
}
