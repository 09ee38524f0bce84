import type { ParkedModel } from '@framework/core';
import { expect, test } from 'vitest';
import { ParkedCheck } from '../src/parked/parked-check.js';
import { workerContext } from './worker-context.js';

function isEven({ modelId }: ParkedModel): boolean {
  return Number(modelId) % 2 === 0;
}

test('questions that come together are asked in statements of a bounded size, and each has its own answer', async () => {
  const sizes: number[] = [];
  const check = new ParkedCheck(workerContext(), {
    stillParked: async (models) => {
      sizes.push(models.length);
      return models.filter(isEven);
    },
  });
  const models = Array.from({ length: 1_100 }, (_item, index) => ({
    handler: 'one',
    slot: 0,
    modelName: 'Account',
    modelId: `${index}`,
  }));
  expect(await Promise.all(models.map((model) => check.isParked(model)))).toEqual(models.map(isEven));
  expect(sizes).toEqual([500, 500, 100]);
});
