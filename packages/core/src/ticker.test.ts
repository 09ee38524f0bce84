import { AsyncLocalStorage } from 'node:async_hooks';
import { expect, test } from 'vitest';

import { ManualClock } from '../test/manual-clock.js';
import { Ticker } from './clock.js';

test('a ticker runs outside any async context, even that of its caller', async () => {
  const request = new AsyncLocalStorage<string>();
  const contexts: unknown[] = [];
  const clock = new ManualClock();
  const sleep = clock.sleep.bind(clock);
  clock.sleep = () => {
    contexts.push(request.getStore());
    return sleep();
  };
  const ticker = new Ticker(clock, 100, () => {
    contexts.push(request.getStore());
    return false;
  });
  request.run('first', () => ticker.start());
  await clock.wake();
  expect(contexts).toEqual([undefined, undefined]);
});
