import { expect, test } from 'vitest';

import { BlockedModelSet } from './keyed-queue.js';

test('a model is known as blocked in its slot until it is deleted or its slot is lost', () => {
  const blocked = new BlockedModelSet();
  expect([blocked.empty, blocked.has(0, 'a')]).toEqual([true, false]);
  for (const model of ['a', 'b']) blocked.add(0, model);
  blocked.add(1, 'a');
  expect([blocked.has(0, 'a'), blocked.has(0, 'b'), blocked.has(1, 'a'), blocked.has(1, 'b')]).toEqual([
    true,
    true,
    true,
    false,
  ]);
  blocked.delete(0, 'a');
  blocked.delete(2, 'a');
  expect([blocked.has(0, 'a'), blocked.has(0, 'b'), blocked.has(1, 'a')]).toEqual([false, true, true]);
  blocked.drop(1);
  expect([blocked.has(0, 'b'), blocked.has(1, 'a'), blocked.empty]).toEqual([true, false, false]);
  blocked.delete(0, 'b');
  expect(blocked.empty).toBe(true);
});
