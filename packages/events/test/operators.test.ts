import { AsyncLocalStorage } from 'node:async_hooks';
import { hostname } from 'node:os';
import { describe, expect, test } from 'vitest';
import { DeliveryOperator, FrameworkEventHandler, defaultDeliverySettings } from '../src/index.js';
import { DepositedEvent, deposited } from './account.js';
import { batchHandlerOf, blockElsewhere, countsOf } from './bench-store.js';
import { type BenchProcess, DeliveryBench, gate, handlerOf, operatorOf, shard } from './delivery-bench.js';

const { leaseMs } = defaultDeliverySettings;

async function ready(): Promise<void> {}

/** A process with its own operator. */
function operated(process: BenchProcess): BenchProcess & { readonly operator: DeliveryOperator } {
  const deliveries = [{ store: process.store, shards: [shard], ready }];
  return { ...process, operator: new DeliveryOperator({ deliveries: () => deliveries }) };
}

function failing(name = 'one', attemptsMax = 2): ReturnType<typeof handlerOf> {
  return handlerOf({ name, retry: { attemptsMax, backoffBaseMs: 60_000 } }, ({ modelId }) => {
    if (modelId === 'a') throw new Error('no');
  });
}

describe('a paused handler', () => {
  test('receives nothing until it is resumed, and then everything in order; others continue', async () => {
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

  test('keeps for later the events that it has read, and leaves them to others when its process stops', async () => {
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
    expect(next.seen).toEqual(Array.from({ length: 49 }, (_item, index) => `a${index + 2}`));
  });

  test('is called outside the context of any request, even if a request has resumed it after events were read', async () => {
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

  test("is no longer called in the operator's process, not even with events already read", async () => {
    const bench = new DeliveryBench();
    const holds = [gate(), gate()];
    const handler = handlerOf({ name: 'one' }, ({ modelVersion }) => holds[modelVersion - 1]?.opened);
    for (let version = 1; version <= 5; version++) bench.database.commit(deposited('a', version));
    const { store, access } = bench.start([handler]);
    await bench.clock.advance(300);
    const operator = new DeliveryOperator({ deliveries: () => [{ store, shards: [shard], ready }] });
    // A renewal that was sent before the pause gets an answer that was true then.
    const answer = gate();
    access.delays.set('cursors.known', [answer.opened]);
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

  test('is not called for an attempt whose start is being recorded; that attempt is taken back', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' });
    const row = blockElsewhere(bench, 'one', deposited('a', 1), { openCount: 1 });
    const { access, operator } = operated(bench.start([handler]));
    const answer = gate();
    access.delays.set('blocked.begin', [answer.opened]);
    await bench.clock.advance(3_000);
    expect(access.calls.get('blocked.begin')).toBe(1);
    await operator.pause('one');
    answer.open();
    await bench.clock.advance(4_000);
    expect([handler.seen, ...countsOf(row)]).toEqual([[], 1, 1]);
    await operator.resume('one');
    await bench.clock.advance(10);
    expect(handler.seen).toEqual(['a1']);
    expect(bench.database.blocked.size).toBe(0);
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

  test('is not called with the rest of a batch whose other events are being blocked, and gets it afterwards', async () => {
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
    access.delays.set('blocked.fail', [answer.opened]);
    bench.database.commit(deposited('a', 2), deposited('e', 1));
    executor.committed();
    await bench.clock.advance(10);
    expect(batches).toEqual([['a1'], ['e1']]);
    await operator.pause('one');
    answer.open();
    await bench.clock.advance(4_000);
    expect(batches).toEqual([['a1'], ['e1']]);
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
    access.delays.set('blocked.models', [answer.opened]);
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

  test('stays paused when the answer to an earlier query arrives late', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' });
    const { access, executor } = bench.start([handler]);
    const answer = gate();
    access.delays.set('blocked.models', [answer.opened]);
    await bench.clock.advance(300);
    await operatorOf(bench).pause('one');
    // The next renewal learns of the pause.
    await bench.clock.advance(3_400);
    bench.database.commit(deposited('a', 1));
    answer.open();
    executor.committed();
    await bench.clock.advance(1_000);
    expect(handler.seen).toEqual([]);
  });

  test('is paused and resumed in another process after a look at the handlers has failed there', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' });
    const { access, errors } = bench.start([handler]);
    await bench.clock.advance(300);
    for (let version = 1; version <= 3; version++) {
      const outage = [new Error('out of reach')];
      access.failures.set('cursors.known', outage);
      await bench.clock.advance(leaseMs);
      expect(outage).toEqual([]);
      await operatorOf(bench).pause('one');
      await bench.clock.advance(leaseMs);
      bench.database.commit(deposited('a', version));
      await bench.clock.advance(leaseMs);
      expect(handler.seen).toHaveLength(version - 1);
      await operatorOf(bench).resume('one');
      await bench.clock.advance(leaseMs);
      expect(handler.seen).toHaveLength(version);
    }
    expect(errors).toHaveLength(3);
  });

  test('gets no retries of its blocked events, either', async () => {
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

  test('is not called for a slot twice at once when it is resumed before a call has ended', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    let runningCount = 0;
    let mostAtOnce = 0;
    const handler = batchHandlerOf({ name: 'one', timeoutMs: 60_000 }, async () => {
      mostAtOnce = Math.max(mostAtOnce, ++runningCount);
      await bench.clock.sleep(30_000);
      runningCount--;
    });
    // One is being tried, and the other one waits behind it.
    for (const model of ['a', 'e']) {
      const event = deposited(model, 1);
      bench.database.commit(event);
      blockElsewhere(bench, 'one', event);
    }
    bench.start([handler]);
    await bench.clock.advance(leaseMs / 2);
    await operator.pause('one');
    await bench.clock.advance(leaseMs / 2);
    await operator.resume('one');
    bench.database.commit(deposited('a', 2));
    await bench.clock.advance(200_000);
    expect(mostAtOnce).toBe(1);
    expect(handler.batches.flat().toSorted()).toEqual(['a1', 'a2', 'e1']);
  });

  test('has its blocked events tried at once when it is resumed in the process of the operator', async () => {
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

test('the listed leases name the process that delivers, and its host', async () => {
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
