import { ShardUnavailableError } from '@framework/core';
import type { DeliverableEvent } from '@framework/core/adapter';
import { describe, expect, test, vi } from 'vitest';
import {
  type BatchEventHandler,
  type EventEnvelope,
  type EventHandler,
  FrameworkEventHandler,
} from '../src/index.js';
import { DepositedEvent, deposited } from './account.js';
import { blockElsewhere } from './bench-store.js';
import { DeliveryBench, gate, handlerOf, shard } from './delivery-bench.js';

const fail = (): never => {
  throw new Error('no');
};

/** Fails at the first call for each event, and never returns from the second one. */
function hangingRetries(concurrency: number): EventHandler<DepositedEvent> {
  return handlerOf(
    { name: 'slow', concurrency, timeoutMs: 3_600_000, retry: { backoffBaseMs: 100 } },
    ({ attempt }) => (attempt === 1 ? fail() : new Promise(() => undefined)),
  );
}

/** Blocks a model that is due, after `openCount` attempts at its head that did not end. */
function block(bench: DeliveryBench, handler: string, event: DeliverableEvent, openCount = 0): void {
  blockElsewhere(bench, handler, event, { attempts: 0, openCount });
}

describe('retries of one handler', () => {
  test('delay no retry of another handler, however many of them are due', async () => {
    const bench = new DeliveryBench();
    const other = handlerOf({ name: 'other' }, ({ eventId, attempt }) => {
      if (eventId === 'late1' && attempt === 1) fail();
    });
    bench.database.commit(...Array.from({ length: 150 }, (_item, index) => deposited(`x${index}-`, 1)));
    const { executor } = bench.start([hangingRetries(16), other], { dueMax: 1 });
    await bench.clock.advance(20_000);
    bench.database.commit(deposited('late', 1));
    executor.committed();
    await bench.clock.advance(3_000);
    expect(other.seen.filter((id) => id === 'late1')).toHaveLength(2);
  });

  test('delay no retry of another handler while they wait for capacity and their own handler is paused', async () => {
    const bench = new DeliveryBench();
    const hold = gate();
    const slow = handlerOf({ name: 'slow', concurrency: 1, timeoutMs: 3_600_000 }, () => hold.opened);
    const other = handlerOf({ name: 'other' });
    bench.database.commit(deposited('b', 1));
    const { store } = bench.start([slow, other]);
    await bench.clock.advance(1_000);
    block(bench, 'slow', deposited('e', 1));
    await bench.clock.advance(12_000);
    await store.cursors.setPaused('slow', true);
    await bench.clock.advance(4_000);
    // Seven processes have ended during attempts at c1.
    block(bench, 'other', deposited('c', 1), 7);
    await bench.clock.advance(12_000);
    expect(other.seen).toEqual(['b1', 'c1']);
  });

  test('are read once, and only as many as can run or be next', async () => {
    const bench = new DeliveryBench();
    bench.database.commit(...Array.from({ length: 20 }, (_item, index) => deposited(`x${index}-`, 1)));
    const { store } = bench.start([hangingRetries(4)]);
    const dueHeads = vi.spyOn(store.blocked, 'dueHeads');
    await bench.clock.advance(30_000);
    const answers = await Promise.all(dueHeads.mock.results.map(({ value }) => value as unknown));
    expect(answers.flat()).toHaveLength(4);
  });
});

/** A batch handler that is slow to find out that it cannot handle models `x…`. */
function slowBatches(
  { clock }: DeliveryBench,
  seen: string[],
  whenBatchFails?: 'block' | 'wait',
): BatchEventHandler<DepositedEvent> {
  class Batches {
    readonly event = DepositedEvent;
    async handleBatch(envelopes: readonly EventEnvelope<DepositedEvent>[]): Promise<void> {
      if (envelopes.some(({ modelId }) => modelId.startsWith('x'))) {
        await clock.sleep(10_000);
        throw new ShardUnavailableError(shard, 'silent');
      }
      seen.push(...envelopes.map(({ eventId }) => eventId));
    }
  }
  FrameworkEventHandler({ name: 'one', startFrom: 'beginning', ...(whenBatchFails && { whenBatchFails }) })(
    Batches,
  );
  return new Batches();
}

describe('retries of a batch handler', () => {
  test.each(['block', 'wait'] as const)(
    'delay no new events of their slot, however slow they are (%s)',
    async (whenBatchFails) => {
      const bench = new DeliveryBench();
      const seen: string[] = [];
      for (let index = 0; index < 4; index++) block(bench, 'one', deposited(`x${index}`, 1, { slot: 0 }));
      const { executor } = bench.start([slowBatches(bench, seen, whenBatchFails)]);
      await bench.clock.advance(120_000);
      for (let version = 1; version <= 5; version++) {
        bench.database.commit(deposited('a', version));
        executor.committed();
        await bench.clock.advance(20_000);
      }
      expect(seen).toEqual(['a1', 'a2', 'a3', 'a4', 'a5']);
    },
  );

  test('that a pause holds back let no second batch of their slot begin beside the first', async () => {
    const bench = new DeliveryBench();
    const holds = new Map(['b1', 'c1', 'a1'].map((id) => [id, gate()]));
    const running: string[] = [];
    class Batches implements BatchEventHandler<DepositedEvent> {
      readonly event = DepositedEvent;
      async handleBatch([first]: readonly EventEnvelope<DepositedEvent>[]): Promise<void> {
        running.push(first!.eventId);
        await holds.get(first!.eventId)?.opened;
        running.splice(running.indexOf(first!.eventId), 1);
      }
    }
    FrameworkEventHandler({ name: 'one', startFrom: 'beginning', concurrency: 2, timeoutMs: 60_000 })(
      Batches,
    );
    bench.database.commit(deposited('b', 1), deposited('c', 1));
    const { store, executor } = bench.start([new Batches()]);
    await bench.clock.advance(1_000);
    // The retry of x1 waits until one of the two calls has ended.
    block(bench, 'one', deposited('x', 1, { slot: 0 }));
    await bench.clock.advance(12_000);
    await store.cursors.setPaused('one', true);
    await bench.clock.advance(4_000);
    await store.cursors.setPaused('one', false);
    bench.database.commit(deposited('a', 1));
    executor.committed();
    await bench.clock.advance(4_000);
    expect(running).toEqual(['b1', 'c1']);
    holds.get('b1')!.open();
    holds.get('c1')!.open();
    await bench.clock.advance(300);
    expect(running).toEqual(['a1']);
    bench.database.commit(deposited('a', 2));
    holds.set('a2', gate());
    executor.committed();
    await bench.clock.advance(300);
    expect(running).toEqual(['a1']);
  });

  test('delay no retry of another slot, however many and slow they are', async () => {
    const bench = new DeliveryBench();
    const seen: string[] = [];
    for (let index = 0; index < 40; index++) block(bench, 'one', deposited(`x${index}`, 1, { slot: 0 }));
    block(bench, 'one', deposited('b', 1));
    bench.start([slowBatches(bench, seen)]);
    await bench.clock.advance(30_000);
    expect(seen).toEqual(['b1']);
  });
});

describe('a slot whose holder died', () => {
  test('is not read further until its suspects have been tried, however long retries have been due', async () => {
    const bench = new DeliveryBench();
    const xs = Array.from({ length: 20 }, (_item, index) => deposited(`x${index}-`, 1, { slot: 0 }));
    bench.database.commit(...xs);
    const before = bench.start([handlerOf({ name: 'one', retry: { backoffBaseMs: 60_000 } }, fail)]);
    await bench.clock.advance(5_000);
    before.access.kill();
    bench.database.processes.clear();
    bench.database.abandonAll();
    for (const row of bench.database.blocked.values()) row.nextMs -= 400 * 86_400_000;
    bench.database.commit(deposited('a', 1), deposited('e', 1));
    const after = handlerOf({ name: 'one' }, async ({ modelId }) => {
      if (!modelId.startsWith('x')) return;
      await bench.clock.sleep(5_000);
      fail();
    });
    const { executor } = bench.start([after], { dueMax: 8 });
    await bench.clock.advance(1_000);
    bench.database.commit(deposited('i', 1));
    executor.committed();
    await bench.clock.advance(20_000);
    expect(after.seen.filter((id) => !id.startsWith('x'))).toEqual(['a1', 'e1', 'i1']);
  });

  test('is not read further until suspects that a pause delayed have been tried', async () => {
    const bench = new DeliveryBench();
    const before = bench.start([handlerOf({ name: 'one' })]);
    await bench.clock.advance(300);
    before.access.kill();
    bench.database.processes.clear();
    bench.database.abandonAll();
    bench.database.commit(deposited('a', 1), deposited('e', 1));
    const hold = gate();
    const after = handlerOf({ name: 'one', concurrency: 2 }, ({ eventId }) =>
      eventId === 'a1' ? hold.opened : undefined,
    );
    const { store, executor } = bench.start([after]);
    await bench.clock.advance(1_000);
    await store.cursors.setPaused('one', true);
    await bench.clock.advance(4_000);
    hold.open();
    bench.database.commit(deposited('i', 1));
    executor.committed();
    await bench.clock.advance(4_000);
    expect(after.seen).toEqual(['a1']);
    await store.cursors.setPaused('one', false);
    await bench.clock.advance(8_000);
    expect(after.seen).toEqual(['a1', 'e1', 'i1']);
  });
});
