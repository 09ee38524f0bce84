import { expect, test } from 'vitest';

import { ParkedModelSet } from './keyed-queue.js';

test('a model is known to be parked in its slot, until it is deleted or its slot is lost', () => {
  const parked = new ParkedModelSet();
  expect([parked.empty, parked.has(0, 'a')]).toEqual([true, false]);
  for (const model of ['a', 'b']) parked.add(0, model);
  parked.add(1, 'a');
  expect([parked.has(0, 'a'), parked.has(0, 'b'), parked.has(1, 'a'), parked.has(1, 'b')]).toEqual([
    true,
    true,
    true,
    false,
  ]);
  parked.delete(0, 'a');
  parked.delete(2, 'a');
  expect([parked.has(0, 'a'), parked.has(0, 'b'), parked.has(1, 'a')]).toEqual([false, true, true]);
  parked.drop(1);
  expect([parked.has(0, 'b'), parked.has(1, 'a'), parked.empty]).toEqual([true, false, false]);
  parked.delete(0, 'b');
  expect(parked.empty).toBe(true);
});
