import { VirtualClock } from '@framework/testing';
import { MemoryAccess, MemoryDeliveryStore, MemoryDeliveryTables } from '@framework/testing/memory';
import { expect, test } from 'vitest';

import { onPause, tellPause } from '../src/operator/delivery-operator.js';

function store(): MemoryDeliveryStore {
  return new MemoryDeliveryStore(new MemoryAccess(new MemoryDeliveryTables(new VirtualClock())));
}

test('a delivery is told at once what an operator changes in its store, until it stops', () => {
  const [own, other] = [store(), store()];
  const told: unknown[] = [];
  const ignore = onPause(own, (handler, paused) => told.push([handler, paused]));
  onPause(own, (handler, paused) => told.push(['beside', handler, paused]));
  tellPause(other, 'one', true);
  expect(told).toEqual([]);
  tellPause(own, 'one', true);
  expect(told).toEqual([
    ['one', true],
    ['beside', 'one', true],
  ]);
  ignore();
  tellPause(own, 'one', false);
  expect(told.slice(2)).toEqual([['beside', 'one', false]]);
});
