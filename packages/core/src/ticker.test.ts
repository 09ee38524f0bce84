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

test('a wait is over only when more ticks have passed than it lasts', async () => {
  const clock = new ManualClock();
  const seen: unknown[] = [];
  const ticker = new Ticker(clock, 100, () => {
    seen.push([ticker.tick, ticker.isOver(0), ticker.isOver(0, 1), ticker.isOver(1)]);
    return ticker.tick < 4;
  });
  ticker.start();
  for (let tick = 0; tick < 6; tick++) await clock.wake();
  expect(seen).toEqual([
    [1, false, false, false],
    [2, false, true, false],
    [3, true, true, false],
    [4, true, true, true],
  ]);
});

test('a ticker has one timer for all waits, stops when none remains, and can start again', async () => {
  const clock = new ManualClock();
  let waits = 2;
  const ticker = new Ticker(clock, 100, () => --waits > 0);
  for (let start = 0; start < 3; start++) ticker.start();
  expect(clock.sleeps).toBe(1);
  for (let tick = 0; tick < 4; tick++) await clock.wake();
  expect([clock.sleeps, ticker.tick]).toEqual([2, 2]);
  ticker.start();
  await clock.wake();
  expect([clock.sleeps, ticker.tick]).toEqual([3, 3]);
});
