import type { PartialPage } from '@framework/operator';
import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';

import { exitCode } from '../exit-code.js';
import { Terminal } from '../terminal.js';
import { type PageValues, readAll, writeAnswer } from './answer.js';

const failure = { shards: ['1/0'], code: 'shard-unavailable' };

/** Reads pages that are given by their places; returns the answer, and which pages were asked for. */
async function read(values: PageValues, pages: Readonly<Record<string, PartialPage<number>>>, size?: number) {
  const asked: (readonly [limit: number, after: string | undefined])[] = [];
  const answer = await readAll(
    values,
    async ({ limit, after }) => {
      asked.push([limit, after]);
      return pages[after ?? ''] ?? { items: [], next: undefined, failures: [] };
    },
    size,
  );
  return { ...answer, asked };
}

test('pages are read until there are enough items', async () => {
  const pages = {
    '': { items: [1, 2], next: 'b', failures: [] },
    b: { items: [3, 4], next: 'c', failures: [] },
  };
  expect(await read({ limit: 3 }, pages, 2)).toEqual({
    items: [1, 2, 3, 4],
    next: 'c',
    failures: [],
    asked: [
      [2, undefined],
      [1, 'b'],
    ],
  });
  expect(await read({ limit: 10, after: 'b' }, pages)).toMatchObject({ items: [3, 4], next: undefined });
});

test('reading ends where only a database is left that fails, and names it once', async () => {
  const pages = {
    '': { items: [1], next: 'b', failures: [failure] },
    b: { items: [], next: 'b', failures: [failure] },
  };
  expect(await read({ limit: 10 }, pages)).toEqual({
    items: [1],
    next: 'b',
    failures: [failure],
    asked: [
      [10, undefined],
      [9, 'b'],
    ],
  });
});

test.each([
  ['of all databases', [], 'No consumers.'],
  [
    'without that of a database that failed',
    [{ shards: ['1/0'], code: 'shard-unavailable' }],
    'in the databases that answered',
  ],
])('an empty answer %s says so', (_what, failures, expected) => {
  const stdout = new PassThrough();
  const terminal = new Terminal({ stdout, stderr: new PassThrough() });
  const session = { terminal, format: 'table', fail: () => exitCode.failed } as const;
  writeAnswer(
    session,
    { items: [], next: undefined, failures },
    { head: [], rows: () => [], none: 'No consumers.' },
  );
  expect(String(stdout.read())).toContain(expected);
});
