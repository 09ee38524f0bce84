import { describe, expect, test } from 'vitest';

import { deposited } from './account.js';
import { batchHandlerOf, die, down } from './bench-store.js';
import { DeliveryBench, gate, handlerOf } from './delivery-bench.js';

describe('a statement about many models that is refused once', () => {
  test('delays their blocking by one short wait', async () => {
    const bench = new DeliveryBench();
    const handler = batchHandlerOf({ name: 'one', retry: { backoffBaseMs: 600_000 } }, (ids) => {
      if (ids.length > 1) throw new Error('no');
    });
    for (let index = 0; index < 500; index++) bench.database.commit(deposited(`m${index}`, 1, { slot: 0 }));
    const { access } = bench.start([handler]);
    access.failures.set('blocked.fail', down(1));
    await bench.clock.advance(2_000);
    expect(bench.database.blocked.size).toBe(500);
    expect(access.calls.get('blocked.fail')).toBeLessThan(10);
  });

  test('delays a slot that was taken over by one short wait', async () => {
    const bench = new DeliveryBench();
    const first = bench.start([handlerOf({ name: 'one' }, () => new Promise(() => undefined))]);
    await bench.clock.advance(1_000);
    for (let index = 0; index < 400; index++) bench.database.commit(deposited(`m${index}`, 1, { slot: 0 }));
    await bench.clock.advance(2_000);
    die(bench, first);
    const handler = handlerOf({ name: 'one' });
    const second = bench.start([handler]);
    second.access.failures.set('blocked.hold', down(1));
    await bench.clock.advance(5_000);
    expect(new Set(handler.seen).size).toBe(400);
  });
});

describe('a write about one model that is always refused', () => {
  test.each([
    ['first', ['bad', 'a', 'b', 'c']],
    ['in the middle', ['a', 'bad', 'b', 'c']],
    ['last', ['a', 'b', 'c', 'bad']],
  ])('keeps no others of its slot waiting if it is %s', async (_where, models) => {
    const bench = new DeliveryBench();
    const handler = batchHandlerOf({ name: 'one', retry: { backoffBaseMs: 600_000 } }, () => {
      throw new Error('no');
    });
    for (const model of models) bench.database.commit(deposited(model, 1, { slot: 0 }));
    const { store } = bench.start([handler]);
    const fail = store.blocked.fail.bind(store.blocked);
    store.blocked.fail = (failures) =>
      failures.some(({ event }) => event.modelId === 'bad')
        ? Promise.reject(new Error('refused'))
        : fail(failures);
    await bench.clock.advance(60_000);
    const blocked = [...bench.database.blocked.values()].map(({ modelId }) => modelId);
    expect(blocked.toSorted()).toEqual(['a', 'b', 'c']);
  });
});

describe('a slot that is regained under the same lease', () => {
  test.each([
    ['was sent once', 0],
    ['was refused once', 1],
  ])('is loaded only after the end of a statement that %s', async (_how, refusalCount) => {
    const bench = new DeliveryBench();
    let failureCount = 1;
    const handler = handlerOf({ name: 'one' }, () => {
      if (failureCount-- > 0) throw new Error('once');
    });
    const { store, access, executor } = bench.start([handler], { leaseMs: 3_000 });
    await bench.clock.advance(1_500);
    const { opened, open } = gate();
    const fail = store.blocked.fail.bind(store.blocked);
    let refusals = refusalCount;
    store.blocked.fail = (...given) =>
      refusals-- > 0 ? Promise.reject(new Error('refused')) : opened.then(() => fail(...given));
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    executor.committed();
    access.delays.set('leases.renew', [bench.clock.sleep(2_800)]);
    await bench.clock.advance(6_000);
    open();
    await bench.clock.advance(60_000);
    expect(handler.seen).toEqual(['a1', 'a1', 'a2']);
  });
});
