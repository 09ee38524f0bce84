import type { LeasedModel } from '@framework/core/adapter';
import { VirtualClock } from '@framework/testing';
import { expect, test } from 'vitest';

import { BlockedCheck } from '../src/subscription/blocked-events.js';
import { gate } from './delivery-bench.js';
import { workerContext } from './worker-context.js';

function isEven({ modelId }: LeasedModel): boolean {
  return Number(modelId) % 2 === 0;
}

test('simultaneous questions are asked in statements of limited size, and each gets its own answer', async () => {
  const sizes: number[] = [];
  const check = new BlockedCheck(workerContext(), {
    stillBlocked: async (models) => {
      sizes.push(models.length);
      return models.filter(isEven);
    },
  });
  const models = Array.from({ length: 1_100 }, (_item, index) => ({
    handler: 'one',
    slot: 0,
    token: '1',
    modelName: 'Account',
    modelId: `${index}`,
  }));
  expect(await Promise.all(models.map((model) => check.isBlocked(model)))).toEqual(models.map(isEven));
  expect(sizes).toEqual([500, 500, 100]);
});

const model: LeasedModel = { handler: 'one', slot: 0, token: '1', modelName: 'Account', modelId: '2' };

test('questions are asked again after the database could not answer', async () => {
  const clock = new VirtualClock();
  const errors: unknown[] = [];
  let failing = 2;
  const check = new BlockedCheck(workerContext({ clock, onError: (error) => errors.push(error) }), {
    stillBlocked: async (models) => {
      if (failing-- > 0) throw new Error('down');
      return models.filter(isEven);
    },
  });
  const answers = Promise.all([check.isBlocked(model), check.isBlocked({ ...model, modelId: '3' })]);
  await clock.advance(299);
  const later = check.isBlocked({ ...model, modelId: '4' });
  expect(errors).toHaveLength(2);
  await clock.advance(1);
  expect(await answers).toEqual([true, false]);
  expect(await later).toBe(true);
  expect(await check.isBlocked({ ...model, modelId: '5' })).toBe(false);
});

test('a model counts as blocked when delivery ends before its question was answered', async () => {
  const clock = new VirtualClock();
  const ended = new AbortController();
  const check = new BlockedCheck(workerContext({ clock, ended: ended.signal }), {
    stillBlocked: () => Promise.reject(new Error('down')),
  });
  const answer = check.isBlocked({ ...model, modelId: '3' });
  await clock.advance(10_000);
  ended.abort();
  expect(await answer).toBe(true);
  expect(clock.sleeperCount).toBe(0);
});

test('the same model gets a separate answer for each handler', async () => {
  const check = new BlockedCheck(workerContext(), {
    stillBlocked: async (models) => models.filter(({ handler }) => handler === 'other'),
  });
  const handlers = ['one', 'other', 'third'];
  expect(await Promise.all(handlers.map((handler) => check.isBlocked({ ...model, handler })))).toEqual([
    false,
    true,
    false,
  ]);
});

test('questions that come while others are being asked are asked together after them', async () => {
  const hold = gate();
  const sizes: number[] = [];
  const check = new BlockedCheck(workerContext(), {
    stillBlocked: async (models) => {
      sizes.push(models.length);
      await hold.opened;
      return models.filter(isEven);
    },
  });
  const first = check.isBlocked(model);
  await new Promise((resolve) => setImmediate(resolve));
  const others = [check.isBlocked({ ...model, modelId: '3' }), check.isBlocked({ ...model, modelId: '4' })];
  await new Promise((resolve) => setImmediate(resolve));
  expect(sizes).toEqual([1]);
  hold.open();
  expect(await Promise.all([first, ...others])).toEqual([true, false, true]);
  expect(sizes).toEqual([1, 2]);
});
