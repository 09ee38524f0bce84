import { ShardUnavailableError } from '@framework/core';
import { describe, expect, test } from 'vitest';
import { deposited } from './account.js';
import { DeliveryBench, handlerOf, shard } from './delivery-bench.js';

describe('an event that fails together with others', () => {
  const events = Array.from({ length: 50 }, (_unused, index) => deposited(`m${index}`, 1));

  test('is blocked in few statements, so that a slow database can renew leases between them', async () => {
    const bench = new DeliveryBench();
    bench.database.commit(...events);
    const { access } = bench.start([failingHandler()]);
    access.delays.set('blocked.fail', [bench.clock.sleep(500), bench.clock.sleep(1_000)]);
    await bench.clock.advance(3_000);
    expect(bench.database.blockedOf('one')).toHaveLength(50);
    expect(access.calls.get('blocked.fail')).toBeLessThan(8);
  });

  test('is blocked in a statement of its own when the common one is refused', async () => {
    const bench = new DeliveryBench();
    bench.database.commit(...events);
    const process = bench.start([failingHandler()]);
    const { blocked } = process.store;
    const fail = blocked.fail.bind(blocked);
    blocked.fail = (given) =>
      given.some(({ event }) => event.modelId === 'm7') ? Promise.reject(new Error('refused')) : fail(given);
    await bench.clock.advance(10_000);
    expect(bench.database.blockedOf('one')).toHaveLength(49);
    blocked.fail = fail;
    await bench.clock.advance(10_000);
    expect(bench.database.blockedOf('one')).toHaveLength(50);
  });
});

function failingHandler(): ReturnType<typeof handlerOf> {
  return handlerOf({ name: 'one', concurrency: 50 }, () => {
    throw new ShardUnavailableError(shard, 'no connection could be had');
  });
}
