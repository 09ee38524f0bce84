import { MemoryDeliveryTables } from '@framework/testing/memory';
import { expect, test } from 'vitest';
import { deposited } from './account.js';
import { DeliveryBench, handlerOf } from './delivery-bench.js';

/** More slots than are handled in parallel. */
const slots = [0, 1, 2, 3, 4, 5];

class WideBench extends DeliveryBench {
  override readonly database = new MemoryDeliveryTables(this.clock, slots.length);
}

test('slots at different positions are all read, however long the backlogs of some are', async () => {
  const bench = new WideBench();
  const { delivery } = bench.start([handlerOf({ name: 'one' })]);
  await bench.clock.advance(300);
  await delivery.stop();
  const eventsPerSlot = 200;
  for (let version = 1; version <= eventsPerSlot; version++) {
    bench.database.commit(...slots.map((slot) => deposited(`m${slot}-`, version, { slot })));
  }
  // A different number of events is done in each slot, as when the cursors were saved at different times.
  for (const slot of slots) bench.database.cursors.set(`one ${slot}`, slot);
  const handler = handlerOf({ name: 'one' }, () => bench.clock.sleep(1_000));
  bench.start([handler], { readMax: 4, unfinishedMax: 8 });
  await bench.clock.advance(30_000);
  const seen = Map.groupBy(handler.seen, (id) => id.slice(0, id.indexOf('-')));
  expect([...seen.keys()].toSorted()).toEqual(slots.map((slot) => `m${slot}`));
});

test('suspects are blocked and tried once even if the cursor behind them cannot be saved at first', async () => {
  const bench = new DeliveryBench();
  const before = bench.start([handlerOf({ name: 'one' })]);
  await bench.clock.advance(300);
  before.access.kill();
  bench.database.processes.clear();
  bench.database.abandonAll();
  bench.database.commit(deposited('a', 1), deposited('a', 2));
  const handler = handlerOf({ name: 'one' });
  const { access } = bench.start([handler]);
  access.failures.set(
    'cursors.save',
    Array.from({ length: 6 }, () => new Error('down')),
  );
  await bench.clock.advance(20_000);
  expect(handler.seen).toEqual(['a1', 'a2']);
});
