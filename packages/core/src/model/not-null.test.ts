import { expect, test } from 'vitest';

import { notNull } from './model.js';

test.each([0, '', false, Number.NaN])('gives %j back, which is there', (value) => {
  expect(notNull(value, 'value cannot be null')).toBe(value);
});

test.each([null, undefined])('refuses %j with exactly the message', (value) => {
  expect(() => notNull(value, 'value cannot be null')).toThrow(
    expect.objectContaining({ code: 'invalid-model', message: 'value cannot be null' }),
  );
});
