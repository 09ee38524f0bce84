import { ShardIdentifier, TransientStorageError } from '@framework/core';
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
import { blockElsewhere } from './bench-store.js';
import { handlerOf } from './delivery-bench.js';

test('a database that goes down during a lone attempt holds up no retry of another database', async () => {
  const clock = new VirtualClock();
  const [killed, other] = [databaseOf(clock, 0), databaseOf(clock, 1)];
  // So many processes have died that the event would be tried alone for a minute.
  blockOpen(killed.tables, 7);
  const handledMs: number[] = [];
  const handler = handlerOf({ name: 'one' }, async ({ eventId, attempt }) => {
    if (eventId === 'a1') await clock.sleep(5_000);
    else if (attempt === 1) throw new Error('once');
    else handledMs.push(clock.elapsedMs());
  });
  const delivery = new Delivery({
    databases: { deliveries: () => [killed.delivery, other.delivery] },
    executor: { onCommit: () => () => undefined, execute: () => Promise.reject(new Error('not asked')) },
    handlers: [handler],
    clock,
    random: () => 1,
    onError: () => undefined,
    onAttemptFailed: () => undefined,
  });
  delivery.start();
  await clock.advance(2_000);
  expect(handler.seen).toEqual(['a1']);
  killed.faults.inject(() => Promise.reject(new TransientStorageError(killed.shard, 'down')));
  other.tables.commit(deposited('b', 1));
  await clock.advance(120_000);
  expect(handledMs).toEqual([expect.toSatisfy((ms: number) => ms < 15_000)]);
});

function databaseOf(clock: VirtualClock, member: number) {
  const shard = ShardIdentifier.of(0, member);
  const tables = new MemoryDeliveryTables(clock);
  const faults = new MemoryFaults();
  const store = new MemoryDeliveryStore(new MemoryAccess(tables, faults, shard));
  return { shard, tables, faults, delivery: { store, shards: [shard], ready: async () => undefined } };
}

/** Blocks a model as if this many processes had ended during attempts at its head. */
function blockOpen(database: MemoryDeliveryTables, openCount: number): void {
  const event = deposited('a', 1);
  database.commit(event);
  blockElsewhere({ database }, 'one', event, { openCount });
}
