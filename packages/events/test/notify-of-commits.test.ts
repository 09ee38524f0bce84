import { AsyncLocalStorage } from 'node:async_hooks';
import type { ShardIdentifier } from '@framework/core';
import { expect, test } from 'vitest';
import { notifyOfCommits } from '../src/index.js';
import { DeliveryBench, shard } from './delivery-bench.js';

test.each([
  ['throws', (): void => fail()],
  ['rejects', async (): Promise<void> => fail()],
])(
  'notifications continue after one that failed, even if the hook that reports it %s',
  async (_how, onError) => {
    const bench = new DeliveryBench();
    const { access, store, executor } = bench.process();
    const told: (readonly ShardIdentifier[])[] = [];
    const end = notifyOfCommits({
      databases: { deliveries: () => [{ store, shards: [shard], ready: async () => undefined }] },
      executor,
      clock: bench.clock,
      onError: (_error, shards) => {
        told.push(shards);
        return onError();
      },
    });
    access.failures.set('notifications.notify', [new Error('down')]);
    executor.committed();
    await bench.clock.advance(1_000);
    expect([told, bench.database.writes.notifies]).toEqual([[[shard]], 0]);
    executor.committed();
    await bench.clock.advance(1_000);
    expect(bench.database.writes.notifies).toBe(1);
    end();
  },
);

test('notifications are sent outside the context of any request, however many requests commit meanwhile', async () => {
  const request = new AsyncLocalStorage<string>();
  const bench = new DeliveryBench();
  const { store, executor } = bench.process();
  const contexts: unknown[] = [];
  store.notifications.notify = async () => void contexts.push(request.getStore());
  const end = notifyOfCommits({
    databases: { deliveries: () => [{ store, shards: [shard], ready: async () => undefined }] },
    executor,
    clock: bench.clock,
  });
  for (const name of ['one', 'other']) request.run(name, () => executor.committed());
  await bench.clock.advance(1_000);
  expect(contexts).toEqual([undefined, undefined]);
  end();
});

test('notifications are sent at most once per interval, and no longer after their end', async () => {
  const bench = new DeliveryBench();
  const { store, executor } = bench.process();
  const databases = { deliveries: () => [{ store, shards: [shard], ready: async () => undefined }] };
  const end = notifyOfCommits({ databases, executor, clock: bench.clock });
  for (let elapsedMs = 0; elapsedMs < 50; elapsedMs++) {
    executor.committed();
    await bench.clock.advance(1);
  }
  expect(bench.database.writes.notifies).toBe(3);
  executor.committed();
  end();
  executor.committed();
  await bench.clock.advance(1_000);
  expect(bench.database.writes.notifies).toBe(3);
});

test('notifications are sent one at a time, and once more for what is committed meanwhile', async () => {
  const bench = new DeliveryBench();
  const { store, executor } = bench.process();
  const databases = { deliveries: () => [{ store, shards: [shard], ready: async () => undefined }] };
  const sentMs: number[] = [];
  store.notifications.notify = () => {
    sentMs.push(bench.clock.elapsedMs());
    return bench.clock.sleep(500);
  };
  const end = notifyOfCommits({ databases, executor, clock: bench.clock });
  for (let elapsedMs = 0; elapsedMs < 400; elapsedMs++) {
    executor.committed();
    await bench.clock.advance(1);
  }
  await bench.clock.advance(2_000);
  expect(sentMs).toEqual([0, 500]);
  end();
  expect(await bench.clock.wakeNext()).toBe(false);
});

test('notifications that fail are not reported if there is no hook', async () => {
  const bench = new DeliveryBench();
  const { access, store, executor } = bench.process();
  const databases = { deliveries: () => [{ store, shards: [shard], ready: async () => undefined }] };
  const end = notifyOfCommits({ databases, executor, clock: bench.clock });
  access.failures.set('notifications.notify', [new Error('down')]);
  executor.committed();
  await bench.clock.advance(19);
  executor.committed();
  await bench.clock.advance(0);
  expect(bench.database.writes.notifies).toBe(0);
  await bench.clock.advance(1);
  expect(bench.database.writes.notifies).toBe(1);
  end();
});

function fail(): never {
  throw new Error('the hook fails');
}
