import { expect, test } from 'vitest';

import { KeyedQueues } from './keyed-queue.js';

test('steps that fail, however many, give back their capacity, and the same queues go on', async () => {
  const errors: unknown[] = [];
  const done: string[] = [];
  const queues = new KeyedQueues({
    concurrency: 2,
    mayStart: () => true,
    onError: (error) => void errors.push(error),
    step: async (queue) => {
      queue.events.shift();
      if (errors.length < 12) throw new Error(queue.key);
      done.push(queue.key);
    },
  });
  const keys = ['a', 'b', 'c'];
  for (let round = 0; round < 5; round++) for (const key of keys) queues.add(key, {} as never);
  queues.resume();
  // Up to one step more may have begun before the last failure was counted.
  await expect.poll(() => errors.length + done.length, { timeout: 5_000 }).toBe(15);
  expect(done.length).toBeGreaterThan(0);
  expect(await queues.idle()).toBeUndefined();
});
