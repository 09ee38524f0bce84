import { ShardIdentifier } from '@framework/core';
import { expect, test } from 'vitest';

import { ShardCapacity, shardsIn } from './shard-capacity.js';

const [one, other] = [ShardIdentifier.of(0, 0), ShardIdentifier.of(1, 0)];
const busy = expect.objectContaining({ code: 'shard-unavailable', shard: one });

test('a shard has at most as many requests as it may have, and others are served meanwhile', async () => {
  const capacity = new ShardCapacity(2);
  const slow = Promise.withResolvers<string>();
  const running = [capacity.use([one], () => slow.promise), capacity.use([one, other], () => slow.promise)];
  await expect(capacity.use([one], () => 'served')).rejects.toEqual(busy);
  await expect(capacity.use([other, one], () => 'served')).rejects.toEqual(busy);
  expect(() => capacity.assertFree([one])).toThrow(busy);
  expect(await capacity.use([other], () => 'served')).toBe('served');
  slow.resolve('slow');
  expect(await Promise.all(running)).toEqual(['slow', 'slow']);
  expect(await capacity.use([one], () => 'served')).toBe('served');
});

test('a request that fails leaves its place to others', async () => {
  const capacity = new ShardCapacity(1);
  for (const attempt of [1, 2]) {
    await expect(capacity.use([one], () => Promise.reject(new Error(`${attempt}`)))).rejects.toThrow(
      `${attempt}`,
    );
  }
  capacity.assertFree([one]);
});

test('a text that is no id of a model names no shard', () => {
  expect(shardsIn('7c9e6679-7425-40de-944b-e07fc1f90ae7')).toEqual([]);
  expect(shardsIn('no id')).toEqual([]);
});
