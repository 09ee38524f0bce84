import type { Page } from '@framework/core';
import { beforeEach, describe, expect, test } from 'vitest';

import { MemoryDatabases } from '../test/fixtures/memory-databases.js';
import type { PartialPage } from './answers.js';
import type { Operator, PageOptions } from './operator.js';

const signed = { by: 'olivia', reason: 'the mail server is back' };

let all: MemoryDatabases;
beforeEach(() => {
  all = new MemoryDatabases();
});

/** Reads page by page to the end, at most twenty pages. */
async function pagesOf<Item>(
  read: (after: string | undefined) => Promise<Page<Item>>,
): Promise<readonly (readonly Item[])[]> {
  const pages: (readonly Item[])[] = [];
  let after: string | undefined;
  do {
    const { items, next } = await read(after);
    pages.push(items);
    after = next;
  } while (after !== undefined && pages.length < 20);
  return pages;
}

/** Each question that is answered in pages, over three items of each database. */
const questions: readonly (readonly [
  name: string,
  ask: (operator: Operator, page: PageOptions) => Promise<PartialPage<unknown>>,
])[] = [
  ['a model', (operator, page) => operator.model('a', page)],
  ['events', (operator, page) => operator.events({}, page)],
  ['events of a model', (operator, page) => operator.events({ modelId: 'a' }, page)],
  ['dead letters', (operator, page) => operator.deadLetters({}, page)],
  ['blocked events', (operator, page) => operator.blocked({}, page)],
  ['the audit', (operator, page) => operator.audit(page)],
];

/**
 * Three events in each database, which are dead letters with an error each, and three changes. The events are of models of three
 * classes with the same id, because each model has one dead letter at most.
 */
async function fill(): Promise<void> {
  for (const database of [all.first, all.second]) {
    await database.register('notify');
    for (const version of [1, 2, 3]) {
      const ids = await database.write('a', [version], { modelName: `Thing${version}` });
      await database.kill('notify', ids, `error ${version}`);
    }
  }
  for (let n = 0; n < 3; n++) {
    await all.operator.pause('notify', signed);
    await all.clock.advance(1);
  }
}

describe.each(questions)('pages of %s', (_what, question) => {
  beforeEach(fill);

  test.each([1, 2, 3, 4, 6, 7])('have every item once, and end, with the limit %i', async (limit) => {
    const pages = await pagesOf((after) => question(all.operator, { limit, after }));
    const items = pages.flat();
    expect(items).toHaveLength(6);
    expect(new Set(items.map((item) => JSON.stringify(item))).size).toBe(6);
  });

  test('end with a page that is exactly full', async () => {
    const { items, next } = await question(all.operator, { limit: 6 });
    expect([items.length, next]).toEqual([6, undefined]);
  });

  test.each([0, 1] as const)(
    'continue where they were when database %i fails between two of them',
    async (group) => {
      const start = await question(all.operator, { limit: 2 });
      all.takeDown(group);
      const failed = await question(all.operator, { limit: 2, after: start.next });
      expect(failed.failures.every(({ code }) => code === 'shard-unavailable')).toBe(true);
      all.recover();
      const rest = await pagesOf((after = start.next) => question(all.operator, { limit: 2, after }));
      expect([...start.items, ...rest.flat()]).toHaveLength(6);
    },
  );

  test('end although a database fails for good', async () => {
    all.takeDown(1);
    const pages = await pagesOf((after) => question(all.operator, { limit: 1, after }));
    expect(pages.flat()).toHaveLength(3);
  });

  test.each(['x', '', 'null', '[]', '1', '{"0/0":"x"}', '{"0/0":""}', '5:', '0:garbage'])(
    'refuse the place %j',
    async (after) => {
      await expect(question(all.operator, { after })).rejects.toMatchObject({ code: 'invalid-cursor' });
    },
  );
});

describe('pages', () => {
  test('read a database that failed on the first one from its beginning', async () => {
    const { operator, first, second } = all;
    await first.write('a', [1, 2, 3]);
    await second.write('a', [1, 2]);
    all.takeDown(1);
    const start = await operator.model('a', { limit: 2 });
    expect(start.failures).toHaveLength(1);
    all.recover();
    const rest = await operator.model('a', { limit: 2, after: start.next });
    const read = rest.items.map(({ shards, event }) => `${shards.join()} ${event.modelVersion}`);
    expect(read).toEqual(['0/0 3', '1/0 1', '1/0 2']);
  });

  test('continue a database that failed in their middle from where it was', async () => {
    const { operator, first, second } = all;
    for (const database of [first, second]) await database.write('a', [1, 2, 3]);
    const start = await operator.model('a', { limit: 1 });
    all.takeDown(1);
    const middle = await operator.model('a', { limit: 1, after: start.next });
    all.recover();
    const rest = await operator.model('a', { limit: 1, after: middle.next });
    const read = rest.items.map(({ shards, event }) => `${shards.join()} ${event.modelVersion}`);
    expect(read).toEqual(['0/0 3', '1/0 2']);
  });

  test('end, although a database fails in their middle', async () => {
    const { operator, first, second } = all;
    await first.write('a', [1, 2, 3]);
    await second.write('a', [1, 2, 3]);
    const start = await operator.model('a', { limit: 1 });
    all.takeDown(1);
    const pages = await pagesOf((after = start.next) => operator.model('a', { limit: 1, after }));
    expect(pages.map((items) => items.map(({ event }) => event.modelVersion))).toEqual([[2], [3]]);
  });

  test('lose no event of models of two classes that have the same id', async () => {
    const { operator, first } = all;
    await first.write('a', [1, 2], { modelName: 'Other' });
    await first.write('a', [1, 2]);
    const history = await pagesOf((after) => operator.model('a', { limit: 1, after }));
    const versions = history.flat().map(({ event }) => `${event.modelName} ${event.modelVersion}`);
    expect(versions.toSorted()).toEqual(['Other 1', 'Other 2', 'Thing 1', 'Thing 2']);
    const backwards = await pagesOf((after) => operator.events({ modelId: 'a' }, { limit: 1, after }));
    expect(backwards.flat().map(({ event }) => `${event.modelName} ${event.modelVersion}`)).toEqual(
      versions.toReversed(),
    );
  });
});
