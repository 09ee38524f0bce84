import type { DeliverableEvent } from '@framework/core/adapter';
import { describe, expect, test } from 'vitest';

import { PartialBatchError, defaultDeliverySettings } from '../src/index.js';
import { deposited } from './account.js';
import { batchHandlerOf, down, giveAway } from './bench-store.js';
import { DeliveryBench, gate, operatorOf } from './delivery-bench.js';

const { leaseMs } = defaultDeliverySettings;
const waits = { name: 'one', whenBatchFails: 'wait' } as const;

describe('a batch that waits for its dependency', () => {
  test('waits longer each time, up to the longest wait after an outage', async () => {
    const bench = new DeliveryBench();
    bench.database.commit(deposited('a', 1));
    const { failures } = bench.start([
      batchHandlerOf(waits, () => {
        throw new Error('down');
      }),
    ]);
    await bench.clock.advance(30_000);
    const waitsMs = failures.map(({ retryAfterMs }) => retryAfterMs);
    expect(waitsMs.slice(0, 7)).toEqual([500, 750, 1_125, 1_687.5, 2_531.25, 3_796.875, 5_000]);
  });

  test('waits for the next longer time after a pause that held it back', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    bench.database.commit(deposited('a', 1, { payload: { amount: 1, text: 'x'.repeat(2_000) } }));
    const handler = batchHandlerOf(waits, () => {
      throw new Error('down');
    });
    const { access, failures } = bench.start([handler], { readMax: 10, readBytesMax: 10_000 });
    await bench.clock.advance(100);
    expect(failures).toHaveLength(1);
    const load = gate();
    access.delays.set('log.load', [load.opened]);
    await bench.clock.advance(1_000);
    await operator.pause('one');
    await bench.clock.advance(4_000);
    load.open();
    await bench.clock.advance(1_000);
    expect(handler.batches).toHaveLength(1);
    await operator.resume('one');
    await bench.clock.advance(4_000);
    expect(failures.map(({ retryAfterMs }) => retryAfterMs).slice(0, 2)).toEqual([500, 750]);
  });

  test('is left to the process that takes its slot', async () => {
    const bench = new DeliveryBench();
    let isDown = true;
    const handler = batchHandlerOf({ ...waits, batchMax: 2 }, () => {
      if (isDown) throw new Error('down');
    });
    for (let version = 1; version <= 6; version++) bench.database.commit(deposited('a', version));
    const { failures } = bench.start([handler]);
    await bench.clock.advance(4_000);
    giveAway(bench, 'one', 0);
    await bench.clock.advance(4_000);
    const failedCount = failures.length;
    await bench.clock.advance(20_000);
    expect(failures).toHaveLength(failedCount);
    isDown = false;
    bench.database.processes.delete('another process');
    bench.database.hand({ handler: 'one', slot: 0 }, undefined, false);
    await bench.clock.advance(8_000);
    expect(handler.batches.slice(failedCount)).toEqual([
      ['a1', 'a2'],
      ['a3', 'a4'],
      ['a5', 'a6'],
    ]);
  });

  test('keeps more events than a call can have arguments', async () => {
    const count = 150_000;
    const bench = new DeliveryBench();
    const sizes: number[] = [];
    const handler = batchHandlerOf({ ...waits, batchMax: count }, (ids) => {
      sizes.push(ids.length);
      if (sizes.length === 1) throw new Error('once');
    });
    bench.database.commit(deposited('a', 1));
    const { store } = bench.start([handler], { batchBytesMax: 2 ** 30 });
    const read = store.log.read.bind(store.log);
    store.log.read = async (...asked) => {
      const batch = await read(...asked);
      const [event] = batch.events;
      return event === undefined
        ? batch
        : { ...batch, events: Array.from({ length: count }, () => ({ ...event, payload: { amount: 1 } })) };
    };
    await bench.clock.advance(2_000);
    expect(sizes).toEqual([count, count]);
    await bench.clock.advance(2_000);
    expect(bench.database.cursors.get('one 0')).toBe(1);
  });
});

test('a batch that waits holds up no other slot, even if its slot keeps many events of a drained model', async () => {
  const bench = new DeliveryBench();
  let failsOnce = true;
  const handler = batchHandlerOf(waits, async (ids) => {
    if (ids[0] === 'a1' && failsOnce) {
      failsOnce = false;
      throw new PartialBatchError([{ eventId: 'a1', error: new Error('once') }]);
    }
    if (!ids.includes('a2')) return;
    await bench.clock.sleep(5_000);
    throw new Error('down');
  });
  const commit = (modelId: string, from: number, to: number, slot: number): void => {
    for (let version = from; version <= to; version++)
      bench.database.commit(deposited(modelId, version, { slot }));
    executor.committed();
  };
  const { executor } = bench.start([handler]);
  commit('a', 1, 1, 0);
  await bench.clock.advance(300);
  commit('a', 2, 2, 0);
  await bench.clock.advance(2_000);
  commit('a', 3, 4_000, 0);
  await bench.clock.advance(60_000);
  commit('b', 1, 1, 1);
  await bench.clock.advance(1_000);
  expect(handler.batches.flat()).toContain('b1');
});

test('blocked models of a slot are not read on while a batch of it waits', async () => {
  const bench = new DeliveryBench();
  let isDown = true;
  const handler = batchHandlerOf({ ...waits, retry: { backoffMaxMs: 300 } }, (ids) => {
    if (isDown) throw new PartialBatchError(ids.map((eventId) => ({ eventId, error: new Error('down') })));
    if (ids.length > 1 || ids[0]?.startsWith('sick') === true) throw new Error('no more than one');
  });
  for (let version = 1; version <= 300; version++)
    for (let index = 0; index < 20; index++)
      bench.database.commit(deposited(`m${index}-`, version, { slot: 0 }));
  const { access, executor } = bench.start([handler], { readMax: 100 });
  await bench.clock.advance(5_000);
  isDown = false;
  bench.database.commit(deposited('sick', 1, { slot: 0 }), deposited('sick', 2, { slot: 0 }));
  executor.committed();
  let readCount = 0;
  const answer = access.answer.bind(access);
  access.answer = async (method, work) => {
    const result = await answer(method, work);
    if (method === 'blocked.read') readCount += (result as readonly (readonly unknown[])[]).flat().length;
    return result;
  };
  await bench.clock.advance(60_000);
  expect(handler.batches.filter(([id]) => id?.endsWith('-1') === true).length).toBeGreaterThan(20);
  expect(readCount).toBeLessThan(200);
});

test.each([
  ['the database was away for longer than a lease', true],
  ['the database has failed over', false],
])(
  'a slot is read again after %s while a blocked event was being tried behind a waiting batch',
  async (_what, isAway) => {
    const bench = new DeliveryBench();
    const hold = gate();
    let isDown = true;
    const handler = batchHandlerOf(
      { ...waits, timeoutMs: 600_000, retry: { backoffBaseMs: 700, backoffMaxMs: 700 } },
      async (ids) => {
        if (!isDown) return;
        if (ids.length > 1) throw new PartialBatchError([{ eventId: 'a1', error: new Error('bad') }]);
        if (ids.includes('a1')) await hold.opened;
        if (ids.includes('e2')) throw new Error('down');
      },
    );
    const { access, executor } = bench.start([handler], { storeBackoffMaxMs: 500 });
    await bench.clock.advance(1_000);
    const commit = async (...events: readonly DeliverableEvent[]): Promise<void> => {
      bench.database.commit(...events);
      executor.committed();
      await bench.clock.advance(100);
    };
    await commit(deposited('a', 1), deposited('e', 1));
    await commit(deposited('e', 2));
    const isTried = (): boolean => handler.batches.some((ids) => ids.join() === 'a1');
    for (let round = 0; round < 100 && !isTried(); round++) await bench.clock.advance(100);
    expect(isTried()).toBe(true);
    if (isAway) access.failures.set('leases.renew', down(40));
    else bench.database.failOver(bench.database.snapshot());
    await bench.clock.advance(2 * leaseMs);
    isDown = false;
    hold.open();
    await commit(deposited('e', 3));
    await bench.clock.advance(60_000);
    expect(handler.batches.flat()).toContain('e3');
  },
);
