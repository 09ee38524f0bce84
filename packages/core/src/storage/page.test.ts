import { expect, test } from 'vitest';

import { pageSize } from './repository.js';

test.each([
  [0, 1],
  [1, 1],
  [2, 2],
  [999, 999],
  [1_000, 1_000],
  [1_001, 1_000],
])('a page of %d items contains at most %d', (limit, size) => {
  expect(pageSize(limit)).toBe(size);
});

test.each([-1, 0.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53])(
  'a page of %d items is refused',
  (limit) => {
    expect(() => pageSize(limit)).toThrow(expect.objectContaining({ code: 'invariant-violation' }));
  },
);
