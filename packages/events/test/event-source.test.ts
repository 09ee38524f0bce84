import { ShardIdentifier } from '@framework/core';
import type { EventFeed, EventSource, SourceTarget } from '@framework/core/adapter';
import { VirtualClock } from '@framework/testing';
import {
  MemoryAccess,
  MemoryDeliveryStore,
  MemoryDeliveryTables,
  MemoryFaults,
} from '@framework/testing/memory';
import { expect, test } from 'vitest';

import { Delivery } from '../src/index.js';
import { deposited } from './account.js';
import { handlerOf } from './delivery-bench.js';

/** Reads the log itself, and counts the feeds that nobody has closed. */
class CountingSource implements EventSource {
  readonly states = [];
  openedCount = 0;
  openCount = 0;

  open({ store }: SourceTarget): EventFeed {
    this.openedCount++;
    this.openCount++;
    return {
      log: store.log,
      isLive: false,
      close: async () => {
        this.openCount--;
      },
    };
  }
}

function deliveryWith(source: EventSource) {
  const clock = new VirtualClock();
  const shard = ShardIdentifier.of(0, 0);
  const tables = new MemoryDeliveryTables(clock);
  const faults = new MemoryFaults();
  const store = new MemoryDeliveryStore(new MemoryAccess(tables, faults, shard));
  const handler = handlerOf({ name: 'fed', source });
  const delivery = new Delivery({
    databases: { deliveries: () => [{ store, shards: [shard], ready: async () => undefined }] },
    executor: { onCommit: () => () => undefined, execute: () => Promise.reject(new Error('not asked')) },
    handlers: [handler],
    clock,
    onError: () => undefined,
    onAttemptFailed: () => undefined,
  });
  return { clock, tables, faults, handler, delivery };
}

test('a source is opened once for each database, and closed when delivery stops', async () => {
  const source = new CountingSource();
  const { clock, tables, handler, delivery } = deliveryWith(source);
  tables.commit(deposited('a', 1));
  delivery.start();
  await clock.advance(2_000);
  expect(handler.seen).toEqual(['a1']);
  expect(source).toMatchObject({ openedCount: 1, openCount: 1 });
  const stopped = delivery.stop({ timeoutMs: 1_000 });
  await clock.advance(2_000);
  await stopped;
  expect(source.openCount).toBe(0);
});

test('a source is not left open when delivery stops before its handlers are registered', async () => {
  const source = new CountingSource();
  const { clock, faults, delivery } = deliveryWith(source);
  const answer = Promise.withResolvers<void>();
  faults.inject(() => answer.promise);
  delivery.start();
  await clock.advance(1_000);
  const stopped = delivery.stop({ timeoutMs: 1_000 });
  await clock.advance(2_000);
  await stopped;
  faults.inject(undefined);
  answer.resolve();
  await clock.advance(60_000);
  expect(source.openCount).toBe(0);
});
