import { VirtualClock } from '@framework/testing';
import { expect, test } from 'vitest';

import { listenForNotifications } from '../src/notifications.js';
import { workerContext } from './worker-context.js';

test('a delivery listens for notifications until it stops, even if the database refuses at first', async () => {
  const clock = new VirtualClock();
  const stopping = new AbortController();
  const errors: unknown[] = [];
  const context = workerContext({ clock, stopping: stopping.signal, onError: (error) => errors.push(error) });
  const listeners = new Set<() => void>();
  let notificationCount = 0;
  const refusals = [new Error('down')];
  const channel = {
    listen: async (listener: () => void) => {
      const refusal = refusals.shift();
      if (refusal !== undefined) throw refusal;
      listeners.add(listener);
      return async () => void listeners.delete(listener);
    },
  };
  const listening = listenForNotifications(context, channel, () => notificationCount++);
  await clock.advance(0);
  expect([listeners.size, errors]).toEqual([0, [new Error('down')]]);
  await clock.advance(1_000);
  for (const notification of listeners) notification();
  expect([listeners.size, notificationCount]).toEqual([1, 1]);
  stopping.abort();
  await listening;
  expect([listeners.size, errors.length]).toEqual([0, 1]);
});

test('a delivery that stops before the database has accepted its listener does not listen', async () => {
  const stopping = new AbortController();
  const answer = Promise.withResolvers<() => Promise<void>>();
  let listenCount = 0;
  let unlistenCount = 0;
  const channel = {
    listen: () => {
      listenCount++;
      return answer.promise;
    },
  };
  const context = workerContext({ stopping: stopping.signal });
  const listening = listenForNotifications(context, channel, () => undefined);
  stopping.abort();
  answer.resolve(async () => void unlistenCount++);
  await listening;
  expect([listenCount, unlistenCount]).toEqual([1, 1]);
  await listenForNotifications(context, channel, () => undefined);
  expect([listenCount, unlistenCount]).toEqual([1, 1]);
});
