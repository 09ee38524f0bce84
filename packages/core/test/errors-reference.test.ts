import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

import { errorCodes } from '../src/errors/framework-error.js';

const reference = readFileSync(new URL('../../../docs/reference/errors.md', import.meta.url), 'utf8');

test('the reference lists every error code with its retryability, and no other', () => {
  const rows = [...reference.matchAll(/^\| `([a-z-]+)` +\| `\w+` +\| (yes|no) +\|/gm)];
  const documented = Object.fromEntries(rows.map(([, code, retryable]) => [code, retryable === 'yes']));
  expect(documented).toEqual(errorCodes);
});

test('the reference says what to do about every error', () => {
  const cells = reference
    .split('\n')
    .filter((line) => line.startsWith('| `'))
    .map((line) => line.split(/(?<!\\)\|/).map((cell) => cell.trim()));
  expect(cells.length).toBeGreaterThan(0);
  expect(cells.filter(([, , , , when, whatToDo]) => !when || !whatToDo).map(([, code]) => code)).toEqual([]);
});
