import { ShardIdentifier } from '@framework/core';
import { expect, test } from 'vitest';

import { leftBehind } from '../../core/test/left-behind.js';
import { shardsIn } from './route/existing-id.js';
import { ShardCapacity } from './shard-capacity.js';

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

test('requests leave nothing behind on their shards, whether they are served, fail or are refused', async () => {
  const capacity = new ShardCapacity(1);
  const left = await leftBehind(async (number) => {
    const shard = ShardIdentifier.of(number, 1);
    await capacity.use([shard], () => 'served');
    const slow = Promise.withResolvers<string>();
    const failing = capacity.use([shard, other], () => slow.promise);
    await expect(capacity.use([shard], () => 'served')).rejects.toMatchObject({ code: 'shard-unavailable' });
    slow.reject(new Error('no'));
    await expect(failing).rejects.toThrow('no');
    await expect(
      capacity.use([shard], () => {
        throw new Error('at once');
      }),
    ).rejects.toThrow('at once');
    expect(await capacity.use([shard, other], () => 'served')).toBe('served');
  });
  expect(left.filter((line) => line.includes('shard-capacity'))).toEqual([]);
});
