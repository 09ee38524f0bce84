import type { PartialPage } from '@framework/operator';
import { expect, test } from 'vitest';

import { type PageValues, readAll } from './answer.js';

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
