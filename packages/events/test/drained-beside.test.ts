import { nextTick } from 'node:process';
import { UnknownActionError } from '@framework/core';
import type { DeliverableEvent } from '@framework/core/adapter';
import { describe, expect, test } from 'vitest';

import { type BatchEventHandler, type EventEnvelope, PartialBatchError } from '../src/index.js';
import { deposited } from './account.js';
import { giveAway } from './bench-store.js';
import { type BenchProcess, DeliveryBench, handlerOf } from './delivery-bench.js';

/** Events of models whose names begin with a prefix. */
const seenOf = (seen: readonly string[], prefix: string): readonly string[] =>
  seen.filter((id) => id.startsWith(prefix));

async function commitEachMinute(
  bench: DeliveryBench,
  { executor }: Pick<BenchProcess, 'executor'>,
  minutes: number,
): Promise<void> {
  for (let minute = 1; minute <= minutes; minute++) {
    await bench.clock.advance(60_000);
    bench.database.commit(deposited('a', 3 + minute));
    executor.committed();
  }
  await bench.clock.advance(1_000);
}

/** The model a is blocked, and the handler is full of events that are kept until the row of model h is written. */
async function fullHandler(answerMs: number, h1: () => void) {
  const bench = new DeliveryBench();
  let isFirst = true;
  const handler = handlerOf({ name: 'one' }, ({ eventId }) => {
    if (eventId === 'h1') h1();
    if (eventId !== 'a1' || !isFirst) return;
    isFirst = false;
    throw new Error('once');
  });
  const process = bench.start([handler]);
  await bench.clock.advance(1_000);
  bench.database.commit(deposited('a', 1), deposited('a', 2), deposited('a', 3));
  process.executor.committed();
  await bench.clock.advance(100);
  process.access.delays.set('blocked.fail', [bench.clock.sleep(answerMs)]);
  bench.database.commit(deposited('h', 1));
  process.executor.committed();
  await bench.clock.advance(50);
  for (let version = 2; version <= 2_500; version++) bench.database.commit(deposited('h', version));
  process.executor.committed();
  return { bench, handler, process };
}

describe('a model that is drained by a handler that needs no event loop', () => {
  test('is read on while the events before are handled', async () => {
    const bench = new DeliveryBench();
    let isDown = true;
    const handler = handlerOf({ name: 'one' }, () => {
      if (isDown) throw new Error('down');
    });
    for (let version = 1; version <= 1_000; version++) bench.database.commit(deposited('a', version));
    const { access } = bench.start([handler], { readMax: 100, unfinishedMax: 200 });
    await bench.clock.advance(1_000);
    isDown = false;
    handler.seen.length = 0;
    // A client sends a statement on the next tick.
    const seenCounts: number[] = [];
    const answer = access.answer.bind(access);
    access.answer = (method, work) => {
      if (method === 'blocked.read') nextTick(() => seenCounts.push(handler.seen.length));
      return answer(method, work);
    };
    await bench.clock.advance(60_000);
    expect(handler.seen).toHaveLength(1_000);
    // Each read but the first two is sent before the batch is handled that was read two before.
    expect(seenCounts.map((count) => Math.ceil(count / 100))).toEqual([1, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });
});

describe('a model that waits for room', () => {
  test('is drained when what was kept for another model is left to that', async () => {
    const { bench, handler, process } = await fullHandler(5_000, () => {
      throw new UnknownActionError('Nothing');
    });
    await commitEachMinute(bench, process, 10);
    expect(seenOf(handler.seen, 'a')).toHaveLength(14);
  });

  test('is drained when the slot is lost in which events were kept', async () => {
    const { bench, handler, process } = await fullHandler(60_000, () => {
      throw new Error('no');
    });
    await bench.clock.advance(2_000);
    giveAway(bench, 'one', deposited('h', 1).slot);
    await commitEachMinute(bench, process, 10);
    expect(seenOf(handler.seen, 'a')).toHaveLength(14);
  });
});

describe('80 models that are drained for minutes', () => {
  test('hold up no attempt of another model', async () => {
    const bench = new DeliveryBench();
    let isDown = true;
    let isFirst = true;
    const atMs = new Map<string, number>();
    const retry = { backoffMaxMs: 1_000, attemptsMax: 1_000 };
    const handler = handlerOf({ name: 'one', retry }, async ({ eventId, modelId }) => {
      if (isDown) throw new Error('down');
      if (modelId === 'new' && isFirst) {
        isFirst = false;
        throw new Error('once');
      }
      await bench.clock.sleep(1_000);
      atMs.set(eventId, bench.clock.elapsedMs());
    });
    for (let version = 1; version <= 100; version++)
      for (let index = 0; index < 80; index++)
        bench.database.commit(deposited(`m${index}-`, version, { slot: index % 2 }));
    const roomy = { unfinishedMax: 100_000, readMax: 20_000, unsavedMax: 100_000 };
    const { executor } = bench.start([handler], roomy);
    await bench.clock.advance(5_000);
    isDown = false;
    await bench.clock.advance(20_000);
    bench.database.commit(deposited('new', 1, { slot: 0 }));
    executor.committed();
    const fromMs = bench.clock.elapsedMs();
    await bench.clock.advance(30_000);
    expect((atMs.get('new1') ?? Infinity) - fromMs).toBeLessThan(30_000);
  });

  test('hold up only their slot while their batch waits', async () => {
    const bench = new DeliveryBench();
    const seen: string[] = [];
    const failOnce = new Set(['b1', ...Array.from({ length: 80 }, (_item, index) => `m${index}-1`)]);
    class Publish implements BatchEventHandler<undefined> {
      static readonly handlerName = 'publish';
      static readonly options = { startFrom: 'beginning', whenBatchFails: 'wait' } as const;
      readonly event = 'all';
      async handleBatch(envelopes: readonly EventEnvelope<undefined>[]): Promise<void> {
        const ids = envelopes.map(({ eventId }) => eventId);
        seen.push(...ids);
        if (ids.some((id) => id.endsWith('-2'))) throw new Error('The target of slot 0 is away');
        const failed = ids.filter((id) => failOnce.delete(id));
        const failures = failed.map((eventId) => ({ eventId, error: new Error('once') }));
        if (failures.length > 0) throw new PartialBatchError(failures);
      }
    }
    for (let index = 0; index < 80; index++) bench.database.commit(deposited(`m${index}-`, 1, { slot: 0 }));
    const { executor } = bench.start([new Publish()]);
    await bench.clock.advance(300);
    for (let index = 0; index < 80; index++) bench.database.commit(deposited(`m${index}-`, 2, { slot: 0 }));
    executor.committed();
    await bench.clock.advance(600_000);
    bench.database.commit(deposited('b', 1, { slot: 1 }));
    executor.committed();
    await bench.clock.advance(60_000);
    expect(seenOf(seen, 'b')).toEqual(['b1', 'b1']);
  });
});

describe('beside a backlog', () => {
  test('heads of blocked models and what waits behind them get up to half of the calls', async () => {
    const bench = new DeliveryBench();
    const failed = new Set<string>();
    let recoveredCount = 0;
    const handler = handlerOf({ name: 'one' }, async ({ eventId, modelId }) => {
      await bench.clock.sleep(20);
      if (!modelId.startsWith('y')) return;
      if (failed.has(modelId)) recoveredCount++;
      else if (failed.add(modelId)) throw new Error(`once, at ${eventId}`);
    });
    for (let index = 0; index < 400; index++)
      for (const version of [1, 2, 3])
        bench.database.commit(deposited(`y${index}-`, version, { slot: index % 4 }));
    for (let index = 0; index < 8_000; index++)
      bench.database.commit(
        deposited(`f${index % 2_000}-`, 1 + Math.floor(index / 2_000), { slot: index % 4 }),
      );
    bench.start([handler]);
    await bench.clock.advance(8_000);
    expect(recoveredCount).toBe(3 * 400);
    expect(handler.seen.filter((id) => id.startsWith('f')).length).toBeLessThan(8_000);
  });

  test('a handler with one call at a time is called in turn with drained and with new events', async () => {
    const bench = new DeliveryBench();
    let isDown = true;
    const handler = handlerOf(
      { name: 'one', concurrency: 1, retry: { backoffMaxMs: 300 } },
      async ({ modelId }) => {
        if (isDown && modelId === 'hot') throw new Error('down');
        await bench.clock.sleep(10);
      },
    );
    for (let version = 1; version <= 1_000; version++) bench.database.commit(deposited('hot', version));
    const { executor } = bench.start([handler]);
    await bench.clock.advance(2_000);
    isDown = false;
    await bench.clock.advance(2_000);
    const before = handler.seen.length;
    bench.database.commit(deposited('healthy', 1));
    executor.committed();
    await bench.clock.advance(500);
    expect(handler.seen.slice(before, before + 10)).toContain('healthy1');
    expect(bench.database.blocked.size).toBe(1);
  });

  test('the events that are read ahead of drains are limited like all that are unfinished', async () => {
    const bench = new DeliveryBench();
    const held = new Map<string, number>();
    let [isDown, bytes, bytesMax] = [true, 0, 0];
    const handler = handlerOf({ name: 'one', retry: { backoffMaxMs: 2_000 } }, async ({ eventId }) => {
      if (isDown) throw new Error('down');
      await bench.clock.sleep(20);
      bytes -= held.get(eventId) ?? 0;
      held.delete(eventId);
    });
    const payload = { amount: 1, note: 'x'.repeat(300) };
    for (let version = 1; version <= 40; version++)
      for (let index = 0; index < 400; index++)
        bench.database.commit(deposited(`m${index}-`, version, { slot: index % 4, payload }));
    const { access } = bench.start([handler], { readMax: 100, readBytesMax: 100_000 });
    await bench.clock.advance(10_000);
    const answer = access.answer.bind(access);
    access.answer = async (method, work) => {
      await bench.clock.sleep(20);
      const result = await answer(method, work);
      if (method === 'blocked.read')
        for (const event of (result as readonly (readonly DeliverableEvent[])[]).flat()) {
          if (!held.has(event.id)) bytes += event.bytes ?? 0;
          held.set(event.id, event.bytes ?? 0);
        }
      bytesMax = Math.max(bytesMax, bytes);
      return result;
    };
    isDown = false;
    await bench.clock.advance(30_000);
    expect(bytesMax).toBeGreaterThan(100_000);
    // Slots below their share are read even then: one read more.
    expect(bytesMax).toBeLessThanOrEqual(5 * 100_000);
  });
});

test('a stop amid a drain leaves the row of the model behind what is done', async () => {
  const bench = new DeliveryBench();
  let isDown = true;
  const handle = async (): Promise<void> => {
    if (isDown) throw new Error('down');
    await bench.clock.sleep(100);
  };
  const first = handlerOf({ name: 'one', retry: { backoffMaxMs: 300 } }, handle);
  for (let version = 1; version <= 200; version++) bench.database.commit(deposited('hot', version));
  const { delivery } = bench.start([first]);
  await bench.clock.advance(2_000);
  isDown = false;
  await bench.clock.advance(5_000);
  const stopped = delivery.stop();
  await bench.clock.advance(10_000);
  await stopped;
  const done = new Set(first.seen).size;
  expect(done).toBeGreaterThan(40);
  expect(done).toBeLessThan(60);
  const second = handlerOf({ name: 'one' }, handle);
  bench.start([second]);
  await bench.clock.advance(60_000);
  expect(second.seen).toHaveLength(200 - done);
  expect(bench.database.blocked.size).toBe(0);
});

test('a model whose drains fail, however often, leaves room for what is read ahead and for other models', async () => {
  const bench = new DeliveryBench();
  const failed = new Set<string>();
  const handler = handlerOf(
    { name: 'one', retry: { attemptsMax: 3, backoffBaseMs: 1_000 } },
    ({ eventId, modelId }) => {
      if (modelId !== 'a' || failed.has(eventId)) return;
      failed.add(eventId);
      throw new Error('once');
    },
  );
  const { executor } = bench.start([handler], { unfinishedMax: 10, readMax: 5 });
  await bench.clock.advance(300);
  for (let version = 1; version <= 20; version++) bench.database.commit(deposited('a', version));
  executor.committed();
  await bench.clock.advance(120_000);
  bench.database.commit(deposited('b', 1));
  executor.committed();
  await bench.clock.advance(10_000);
  expect(failed.size).toBe(20);
  expect([seenOf(handler.seen, 'a').length, seenOf(handler.seen, 'b')]).toEqual([40, ['b1']]);
});
