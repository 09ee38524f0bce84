import { describe, expect, test } from 'vitest';
import { deposited } from './account.js';
import { DeliveryBench, gate, handlerOf } from './delivery-bench.js';

describe('a delivery', () => {
  test('passes every event of the log to every handler, those of one model in order', async () => {
    const bench = new DeliveryBench();
    const handlers = [handlerOf({ name: 'one' }), handlerOf({ name: 'two' })];
    bench.database.commit(deposited('a', 1), deposited('b', 1), deposited('a', 2), deposited('b', 2));
    bench.start(handlers);
    await bench.clock.advance(300);
    for (const { seen } of handlers) {
      expect(seen.filter((id) => id.startsWith('a'))).toEqual(['a1', 'a2']);
      expect(seen.filter((id) => id.startsWith('b'))).toEqual(['b1', 'b2']);
    }
  });

  test('never handles two events of one model at the same time, but handles other models meanwhile', async () => {
    const bench = new DeliveryBench();
    const first = gate();
    const handler = handlerOf({ name: 'slow' }, ({ eventId }) =>
      eventId === 'a1' ? first.opened : undefined,
    );
    bench.database.commit(deposited('a', 1), deposited('a', 2), deposited('b', 1));
    bench.start([handler]);
    await bench.clock.advance(300);
    expect(handler.seen).toEqual(['a1', 'b1']);
    first.open();
    await bench.clock.advance(0);
    expect(handler.seen).toEqual(['a1', 'b1', 'a2']);
  });

  test('handles no more models in parallel than the handler allows', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'slow', concurrency: 2 }, () => new Promise(() => undefined));
    bench.database.commit(...['a', 'b', 'c', 'd'].map((id) => deposited(id, 1)));
    bench.start([handler]);
    await bench.clock.advance(300);
    expect(handler.seen).toEqual(['a1', 'b1']);
  });

  test('lets models take turns, so that a long backlog of one does not delay the others', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'slow', concurrency: 1 }, () => bench.clock.sleep(100));
    for (let version = 1; version <= 50; version++) bench.database.commit(deposited('a', version));
    bench.database.commit(deposited('b', 1), deposited('c', 1), deposited('b', 2));
    bench.start([handler]);
    await bench.clock.advance(1_000);
    expect(handler.seen.slice(0, 6)).toEqual(['a1', 'b1', 'c1', 'a2', 'b2', 'a3']);
  });

  test('delivers at once what its own process commits', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' });
    const { executor } = bench.start([handler]);
    await bench.clock.advance(100);
    bench.database.commit(deposited('a', 1));
    executor.committed();
    await bench.clock.advance(0);
    expect(handler.seen).toEqual(['a1']);
  });

  test('makes one read for all handlers at the same position', async () => {
    const bench = new DeliveryBench();
    const handlers = Array.from({ length: 10 }, (_item, index) => handlerOf({ name: `handler-${index}` }));
    const { access, executor } = bench.start(handlers);
    await bench.clock.advance(100);
    const before = access.calls.get('log.read')!;
    bench.database.commit(deposited('a', 1));
    executor.committed();
    await bench.clock.advance(0);
    expect(handlers.every(({ seen }) => seen.length === 1)).toBe(true);
    expect(access.calls.get('log.read')! - before).toBe(1);
  });
});
