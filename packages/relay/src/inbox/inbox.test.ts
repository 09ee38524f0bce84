import { FrameworkError } from '@framework/core';
import { describe, expect, test } from 'vitest';

import { removedMax, tableOf } from './inbox-sql.js';
import { Inbox, type InboxOptions, type RowCount } from './inbox.js';

const idBytesMax = 255;
const date = new Date('2026-11-25T12:00:00.123Z');

/** An inbox whose statements return these counts, and what it has run. */
function inboxThat(counts: readonly RowCount[], options: Partial<InboxOptions> = {}) {
  const statements: { readonly text: string; readonly values: readonly string[] }[] = [];
  const left = [...counts];
  const query = (text: string, values: readonly string[]): RowCount => {
    statements.push({ text, values });
    return left.shift();
  };
  return { inbox: new Inbox({ consumer: 'billing', ...options }), statements, query };
}

async function codeOf(work: () => unknown): Promise<string | undefined> {
  try {
    await work();
    return undefined;
  } catch (error) {
    return FrameworkError.is(error) ? error.code : String(error);
  }
}

describe('an inbox', () => {
  test.each<readonly [RowCount, boolean]>([
    [1, true],
    [1n, true],
    [0, false],
    [0n, false],
  ])('takes %s inserted rows for an event that is new: %s', async (count, isNew) => {
    const { inbox, query, statements } = inboxThat([count]);
    expect(await inbox.accept(query, 'an-id')).toBe(isNew);
    expect(statements.map(({ values }) => values)).toEqual([['billing', 'an-id']]);
  });

  test.each([
    ['a', 1, true],
    ['a', idBytesMax, true],
    ['a', idBytesMax + 1, false],
    ['ü', 127, true],
    ['ü', 128, false],
    ['😀', 63, true],
    ['😀', 64, false],
  ])(
    'takes ids and consumers of up to 255 bytes, not characters: %s, %i times: %s',
    async (character, count, fits) => {
      const text = character.repeat(count);
      const { inbox, query } = inboxThat([1]);
      expect(await codeOf(() => inbox.accept(query, text))).toBe(fits ? undefined : 'invariant-violation');
      expect(await codeOf(() => new Inbox({ consumer: text }))).toBe(
        fits ? undefined : 'invalid-configuration',
      );
    },
  );

  test('passes on the whole of ids and consumers that differ only at the end', async () => {
    const long = 'x'.repeat(idBytesMax - 1);
    const { inbox, query, statements } = inboxThat([1, 1], { consumer: `${long}a` });
    await inbox.accept(query, `${long}a`);
    await inbox.accept(query, `${long}b`);
    expect(statements.map(({ values }) => values)).toEqual([
      [`${long}a`, `${long}a`],
      [`${long}a`, `${long}b`],
    ]);
  });

  test.each<readonly [string, readonly RowCount[], number]>([
    ['nothing', [0], 0],
    ['fewer rows than one statement removes', [removedMax - 1], removedMax - 1],
    ['as many as one statement removes', [removedMax, 0], removedMax],
    ['one more', [removedMax, 1], removedMax + 1],
    ['many more', [removedMax, BigInt(removedMax), 7n], 2 * removedMax + 7],
  ])('forgets %s, and stops when a statement has left none', async (_what, counts, removed) => {
    const { inbox, query, statements } = inboxThat([...counts, 99]);
    expect(await inbox.removeOlderThan(query, date)).toBe(removed);
    expect(statements).toHaveLength(counts.length);
    expect(new Set(statements.map(({ values }) => values.join()))).toEqual(
      new Set(['billing,2026-11-25T12:00:00.123Z']),
    );
  });

  test('counts nothing as forgotten if a statement returns no count', async () => {
    const { inbox, query } = inboxThat([removedMax, null]);
    expect(await codeOf(() => inbox.removeOlderThan(query, date))).toBe('invariant-violation');
  });

  test.each([
    ['postgresql', '2026-11-25T12:00:00.123Z', '$1'],
    ['mysql', '2026-11-25 12:00:00.123', '?'],
    ['sqlite', '2026-11-25T12:00:00.123Z', '?'],
  ] as const)(
    'with %s has times and parameters as that database takes them',
    async (dialect, time, parameter) => {
      const { inbox, query, statements } = inboxThat([0, 1], { dialect, table: 'billing.inbox' });
      await inbox.removeOlderThan(query, date);
      await inbox.accept(query, 'an-id');
      expect(statements[0]?.values).toEqual(['billing', time]);
      for (const { text } of statements) {
        expect(text).toContain('billing.inbox');
        expect(text).toContain(parameter);
      }
    },
  );

  test('creates its table by each statement of its dialect, without values', async () => {
    for (const dialect of ['postgresql', 'mysql', 'sqlite'] as const) {
      const { inbox, query, statements } = inboxThat([], { dialect });
      await inbox.createTable(query);
      expect(statements.map(({ text }) => text)).toEqual(tableOf({ dialect }).sql.createTable('inbox'));
      expect(statements.every(({ values }) => values.length === 0)).toBe(true);
    }
  });

  test.each([
    ['inbox', true],
    ['billing.inbox', true],
    ['_a1.B_2', true],
    ['a.b.c', false],
    ['1a', false],
    ['a.', false],
    ['.a', false],
    ['a b', false],
    ['a\n', false],
    ['"a"', false],
    ['ä', false],
    ['a;drop table a', false],
  ])('may have the table %j: %s', async (table, may) => {
    expect(await codeOf(() => new Inbox({ consumer: 'billing', table }))).toBe(
      may ? undefined : 'invalid-configuration',
    );
  });

  test.each([
    ['postgresql', 62, true],
    ['postgresql', 63, false],
    ['sqlite', 63, true],
    ['mysql', 63, true],
  ] as const)('with %s may have a table and a schema of %i characters: %s', async (dialect, length, may) => {
    const long = 'x'.repeat(length);
    for (const table of [long, `billing.${long}`, `${long}.inbox`])
      expect(await codeOf(() => new Inbox({ consumer: 'billing', table, dialect }))).toBe(
        may ? undefined : 'invalid-configuration',
      );
  });

  test.each(['constructor', 'toString', '__proto__'])('has no dialect %s', async (dialect) => {
    expect(await codeOf(() => new Inbox({ consumer: 'billing', dialect: dialect as 'mysql' }))).toBe(
      'invalid-configuration',
    );
  });
});
