import { expect, test } from 'vitest';

import { notNull } from './model.js';

test.each([0, '', false, Number.NaN])('notNull returns %j', (value) => {
  expect(notNull(value, 'value cannot be null')).toBe(value);
});

test.each([null, undefined])('notNull refuses %j with exactly the given message', (value) => {
  expect(() => notNull(value, 'value cannot be null')).toThrow(
    expect.objectContaining({ code: 'invalid-model', message: 'value cannot be null' }),
  );
});
