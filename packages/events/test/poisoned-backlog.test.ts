import { expect, test } from 'vitest';

import { deposited } from './account.js';
import { batchHandlerOf } from './bench-store.js';
import { DeliveryBench } from './delivery-bench.js';

test('the event for which batches fail is found in the middle of a backlog with few calls', async () => {
  const bench = new DeliveryBench();
  const handler = batchHandlerOf({ name: 'one' }, (ids) => {
    if (ids.includes('a450')) throw new Error('poison');
  });
  for (let version = 1; version <= 500; version++)
    bench.database.commit(deposited('a', version, { slot: 0 }), deposited('b', version, { slot: 0 }));
  bench.start([handler]);
  await bench.clock.advance(30_000);
  const [row] = bench.database.blockedOf('one', 'a');
  expect(row).toMatchObject({ event: { id: 'a450' }, dead: false });
  expect(row?.attempts).toBeGreaterThan(0);
  const delivered = handler.batches.flat();
  expect(delivered.length).toBeLessThan(4_000);
});
