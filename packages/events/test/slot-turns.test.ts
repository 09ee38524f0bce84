import { MemoryDeliveryTables } from '@framework/testing/memory';
import { expect, test } from 'vitest';
import { deposited } from './account.js';
import { DeliveryBench, gate, handlerOf } from './delivery-bench.js';

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

test('at most four reads of a handler run at once, however many positions its slots have', async () => {
  const bench = new WideBench();
  const { delivery } = bench.start([handlerOf({ name: 'one' })]);
  await bench.clock.advance(300);
  await delivery.stop();
  for (const slot of slots) bench.database.cursors.set(`one ${slot}`, slot);
  bench.database.commit(...slots.map((slot) => deposited(`m${slot}-`, 1, { slot })));
  const { store } = bench.start([handlerOf({ name: 'one' })]);
  const read = store.log.read.bind(store.log);
  const answer = gate();
  const asked: (readonly number[])[] = [];
  store.log.read = async (of, ...others) => {
    asked.push(of);
    await answer.opened;
    return read(of, ...others);
  };
  await bench.clock.advance(1_000);
  expect(asked).toEqual([[0], [1], [2], [3]]);
  answer.open();
  await bench.clock.advance(0);
  expect(asked.slice(4, 6)).toEqual([[4], [5]]);
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

test.each([1, 5])(
  'slow calls for %i models with long backlogs hold up no model of another slot',
  async (slowCount) => {
    const bench = new WideBench();
    const slow = slots.slice(0, slowCount);
    const arrivedMs: number[] = [];
    const handler = handlerOf({ name: 'one' }, async ({ modelId, modelVersion }) => {
      if (!modelId.startsWith('m5')) return bench.clock.sleep(1_000);
      arrivedMs.push(bench.clock.elapsedMs() - sentMs.get(modelVersion)!);
    });
    const sentMs = new Map<number, number>();
    const backlog = 3_000;
    for (let version = 1; version <= backlog; version++)
      bench.database.commit(...slow.map((slot) => deposited(`m${slot}-`, version, { slot })));
    bench.start([handler]);
    for (let version = 1; version <= 60; version++) {
      await bench.clock.advance(1_000);
      // The slow models go on getting events as well.
      bench.database.commit(...slow.map((slot) => deposited(`m${slot}-`, backlog + version, { slot })));
      sentMs.set(version, bench.clock.elapsedMs());
      bench.database.commit(deposited('m5-', version, { slot: 5 }));
    }
    await bench.clock.advance(1_000);
    expect(arrivedMs).toHaveLength(60);
    expect(Math.max(...arrivedMs)).toBeLessThanOrEqual(1_000);
  },
);

const others = slots.slice(0, 5);

test('calls that hang in five slots hold up no model of another slot, however many events behind them are done', async () => {
  const bench = new WideBench();
  const handler = handlerOf({ name: 'one', timeoutMs: 600_000 }, ({ modelId }) =>
    modelId.startsWith('hangs') ? gate().opened : undefined,
  );
  for (const slot of others) bench.database.commit(deposited(`hangs${slot}-`, 1, { slot }));
  bench.start([handler], { readMax: 10, unsavedMax: 100 });
  await bench.clock.advance(1_000);
  for (let version = 1; version <= 100; version++)
    bench.database.commit(...slots.map((slot) => deposited(`m${slot}-`, version, { slot })));
  await bench.clock.advance(60_000);
  expect(handler.seen.filter((id) => id.startsWith('m5'))).toHaveLength(100);
  const behind = handler.seen.filter((id) => id.startsWith('m') && !id.startsWith('m5'));
  expect(behind.length).toBeGreaterThanOrEqual(50);
  expect(behind.length).toBeLessThanOrEqual(150);
});

test('slow models with large events in five slots hold up no model of another slot', async () => {
  const bench = new WideBench();
  const handler = handlerOf({ name: 'one', timeoutMs: 600_000 }, ({ modelId }) =>
    modelId.startsWith('m5') ? undefined : gate().opened,
  );
  const payload = { amount: 1, note: 'x'.repeat(1_000) };
  for (let version = 1; version <= 100; version++)
    bench.database.commit(...others.map((slot) => deposited(`m${slot}-`, version, { slot, payload })));
  // Each event is smaller than its share of a read, so that it is read with its payload.
  bench.start([handler], { readMax: 10, readBytesMax: 20_000 });
  await bench.clock.advance(1_000);
  for (let version = 1; version <= 60; version++)
    bench.database.commit(deposited('m5-', version, { slot: 5 }));
  await bench.clock.advance(10_000);
  expect(handler.seen.filter((id) => id.startsWith('m5'))).toHaveLength(60);
});
