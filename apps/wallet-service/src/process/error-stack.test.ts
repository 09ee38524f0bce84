import { expect, test } from 'vitest';

import { errorReason, errorStack } from './service-logger.js';

const long = 'x'.repeat(10_000_000);
const causes = Array.from({ length: 100 }).reduce<Error>(
  (cause) => new Error(`failed with ${long}`, { cause }),
  new Error('first'),
);

test('a stack in the log is bounded, starting with what happened and ending with where', () => {
  const text = errorStack(new TypeError(`failed with ${long}`));
  expect(text.length).toBeLessThan(4_100);
  expect(text).toMatch(/^TypeError: failed with x/);
  expect(text).toContain('error-stack.test.ts');
});

test('the stacks and reasons of very many causes with very long messages are bounded', () => {
  expect(errorStack(causes).length).toBeLessThan(8 * 4_100);
  expect(errorStack(causes).split('\ncaused by: ')).toHaveLength(8);
  expect(errorReason(causes).length).toBeLessThan(8 * 4_100);
});

test('a bounded stack does not end with half of a surrogate pair', () => {
  for (const prefix of ['', 'x']) {
    expect(errorStack(new Error(prefix + '👍'.repeat(100_000))).isWellFormed()).toBe(true);
  }
});

test('a short stack and reason are unchanged, including those of the causes', () => {
  const inner = new Error('inner');
  const outer = new Error('outer', { cause: inner });
  expect(errorStack(outer)).toBe(`${outer.stack}\ncaused by: ${inner.stack}`);
  expect(errorReason(outer)).toBe('outer: inner');
});
