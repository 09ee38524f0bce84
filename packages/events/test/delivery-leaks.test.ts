import { ShardUnavailableError } from '@framework/core';
import { describe, expect, test } from 'vitest';

import { leftBehind } from '../../core/test/left-behind.js';
import { type BatchEventHandler, type EventEnvelope, FrameworkEventHandler } from '../src/index.js';
import { DepositedEvent, deposited } from './account.js';
import { blockElsewhere, down } from './bench-store.js';
import { DeliveryBench, handlerOf, operatorOf, shard } from './delivery-bench.js';

/** What the package has left behind, and not the database in memory, once the few batches that it keeps are there. */
async function leftBySources(round: (number: number) => unknown): Promise<readonly string[]> {
  for (const before of [100, 101]) await round(before);
  return (await leftBehind(round)).filter((line) => line.includes('/events/src/'));
}

const settings = {
  timeoutMs: 1_000,
  retry: { attemptsMax: 3, backoffBaseMs: 100, backoffMaxMs: 200 },
  outageBackoffMaxMs: 200,
};
/** Long enough for every event of a round to be handled, retried and saved. */
const roundMs = 120_000;

/** A handler of batches that fails as a test says, and is delivered to in whatever way fails. */
function batchHandler(
  name: string,
  whenBatchFails: 'block' | 'wait',
  fails: (ids: readonly string[]) => boolean,
) {
  class Batches implements BatchEventHandler<DepositedEvent> {
    readonly event = DepositedEvent;

    async handleBatch(events: readonly EventEnvelope<DepositedEvent>[]): Promise<void> {
      if (fails(events.map(({ eventId }) => eventId))) throw new Error('The batch fails');
    }
  }
  FrameworkEventHandler({
    name,
    startFrom: 'beginning',
    batchMax: 3,
    ...(whenBatchFails === 'wait' && { whenBatchFails }),
  })(Batches);
  return new Batches();
}

describe('a delivery that runs for long', () => {
  test('leaves nothing behind with events that are handled, retried, postponed or too slow', async () => {
    const bench = new DeliveryBench();
    const failed = new Set<string>();
    const firstTime = (id: string): boolean => {
      const isFirst = !failed.has(id);
      failed.add(id);
      return isFirst;
    };
    const handler = handlerOf({ name: 'one', concurrency: 4 }, async ({ eventId, modelId }, { signal }) => {
      if (!firstTime(eventId)) return;
      if (modelId.startsWith('b')) throw new Error('It fails once');
      if (modelId.startsWith('c')) throw new ShardUnavailableError(shard, 'It is away');
      if (modelId.startsWith('d'))
        await new Promise<void>((_resolve, reject) => {
          signal.addEventListener('abort', () => reject(new Error('too slow')));
        });
    });
    const blocking = new Set<string>();
    const blocked = batchHandler('batches', 'block', (ids) =>
      ids.some((id) => !blocking.has(id) && id.startsWith('b') && blocking.add(id)),
    );
    const waiting = new Set<string>();
    const waits = batchHandler('waits', 'wait', (ids) =>
      ids.some((id) => !waiting.has(id) && id.startsWith('c') && waiting.add(id)),
    );
    const process = bench.start([handler, blocked, waits], settings);
    await bench.clock.advance(roundMs);
    let handledCount = 0;
    const left = await leftBySources(async (number) => {
      // Each round has models of its own, and one that is there in all of them.
      const models = ['a', 'b', 'c', 'd', 'e'].map((model) => `${model}${number}-`);
      bench.database.commit(
        ...models.flatMap((model) => [deposited(model, 1), deposited(model, 2)]),
        deposited('f', ++handledCount),
      );
      handledCount += 2 * models.length;
      process.executor.committed();
      await bench.clock.advance(roundMs);
      expect(new Set(handler.seen).size).toBe(handledCount);
    });
    expect(left).toEqual([]);
    expect(process.failures.length).toBeGreaterThan(0);
    await process.delivery.stop();
  });

  test('leaves nothing behind with dead letters that are replayed, outages of the database, and pauses', async () => {
    const bench = new DeliveryBench();
    let isBroken = true;
    const handler = handlerOf({ name: 'one' }, ({ modelId }) => {
      if (isBroken && modelId.startsWith('b')) throw new Error('It always fails');
    });
    const process = bench.start([handler], settings);
    const operator = operatorOf(bench);
    await bench.clock.advance(roundMs);
    const left = await leftBySources(async (number) => {
      for (const operation of ['log.read', 'cursors.save', 'blocked.fail', 'leases.renew'] as const)
        process.access.failures.set(operation, [new ShardUnavailableError(shard, `outage ${number}`)]);
      isBroken = true;
      await process.store.cursors.setPaused('one', true);
      bench.database.commit(deposited(`a${number}-`, 1), deposited(`b${number}-`, 1));
      process.executor.committed();
      await bench.clock.advance(1_000);
      await process.store.cursors.setPaused('one', false);
      await bench.clock.advance(roundMs);
      isBroken = false;
      expect(await operator.replay({ handler: 'one' })).toBe(1);
      await bench.clock.advance(roundMs);
      expect(handler.seen).toContain(`a${number}-1`);
    });
    expect(left).toEqual([]);
    await process.delivery.stop();
  });

  test('leaves nothing behind when slots move between processes again and again', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' });
    const process = bench.start([handler], settings);
    await bench.clock.advance(roundMs);
    const left = await leftBySources(async (number) => {
      process.access.failures.set('cursors.load', down(3));
      const other = bench.start([handler], settings);
      await bench.clock.advance(roundMs);
      bench.database.commit(...['a', 'b', 'c', 'd'].map((model) => deposited(`${model}${number}-`, 1)));
      await bench.clock.advance(roundMs);
      await other.delivery.stop();
      await bench.clock.advance(roundMs);
    });
    expect(left).toEqual([]);
    await process.delivery.stop();
  });

  test('leaves nothing behind with lone attempts and calls that end too late', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one', timeoutMs: 10_000 }, async ({ modelId, attempt }) => {
      if (modelId.startsWith('b') && attempt < 3) throw new Error('It fails once');
      // Neither looks at its signal; the calls for c are abandoned, and end after all.
      await bench.clock.sleep(modelId.startsWith('c') && attempt < 3 ? 15_000 : 3_000);
    });
    const process = bench.start([handler], { ...settings, quarantineMs: 1_000 });
    await bench.clock.advance(roundMs);
    const left = await leftBySources(async (number) => {
      for (const model of ['a', 'b', 'c'])
        blockElsewhere(bench, 'one', deposited(`${model}${number}-`, 1), { openCount: 1 });
      blockElsewhere(bench, 'one', deposited(`d${number}-`, 1));
      await bench.clock.advance(roundMs);
      expect(handler.seen).toContain(`d${number}-1`);
      expect(bench.database.blocked.size).toBe(0);
    });
    expect(left).toEqual([]);
    await process.delivery.stop();
  });

  test('leaves no wait of the clock behind when it stops', async () => {
    const bench = new DeliveryBench();
    const process = bench.start([handlerOf({ name: 'one' })], settings);
    bench.database.commit(deposited('a', 1));
    await bench.clock.advance(roundMs);
    await process.delivery.stop();
    expect(bench.clock.sleeperCount).toBe(0);
    await bench.clock.advance(roundMs);
    expect(await bench.clock.wakeNext()).toBe(false);
  });

  test('leaves nothing behind with callers that wait for its start', async () => {
    const bench = new DeliveryBench();
    const process = bench.start([handlerOf({ name: 'one' })], settings);
    await bench.clock.advance(1_000);
    const left = await leftBySources(async () => {
      await process.delivery.started();
      await process.delivery.startedOn(shard);
    });
    expect(left).toEqual([]);
    await process.delivery.stop();
  });
});
