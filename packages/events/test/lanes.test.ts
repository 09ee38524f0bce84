import { expect, test } from 'vitest';
import { Lanes } from '../src/flow/lanes.js';

test('a lane of more items than a call can have arguments loses those that are removed, and no others', () => {
  const count = 150_000;
  const lanes = new Lanes<string>({
    concurrency: 1,
    mayStart: () => false,
    step: () => Promise.resolve(),
    onError: () => undefined,
  });
  for (let index = 0; index < count; index++) {
    lanes.add('slot', 'event');
    lanes.add('slot', 'retry');
  }
  expect(lanes.remove((item) => item === 'retry')).toHaveLength(count);
  expect(new Set(lanes.remove(() => true))).toEqual(new Set(['event']));
});
