import { describe, expect, test } from 'vitest';

import { type GroupShape, groupStatement, shapesAt } from './group-statement.js';
import type { RowShape } from './row-encoder.js';

const [wallets, transfers, notes] = ['wallets', 'transfers', 'notes'].map((key): RowShape => ({
  key,
  table: `"${key}"`,
  fields: [],
  columns: ['"id"', '"version"', `"value of ${key}"`],
  idIndex: 0,
  versionColumn: '"version"',
  casts: ['uuid', 'bigint', 'text'],
  staged: undefined,
  declared: [],
})) as [RowShape, RowShape, RowShape];

const shape: GroupShape = {
  updates: [wallets, transfers],
  additions: [notes, wallets],
  keyed: true,
  direct: false,
};
const text = groupStatement(shape);

/** The keys of the shapes that may have caused an error at the last of these words; each is searched for after the previous one. */
function shapesOf(...words: readonly string[]): readonly string[] {
  const index = words.reduce((from, word) => text.indexOf(word, from), 0);
  expect(index).toBeGreaterThan(0);
  return shapesAt(shape, text, index + 1).map(({ key }) => key);
}

describe('an error in the statement of a group', () => {
  test.each([
    ['values', 'g0 as', 'wallets'],
    ['values', 'g1 as', 'transfers'],
    ['lock', 'm1 as', 'transfers'],
    ['update', 'u0 as', 'wallets'],
    ['update', 'u1 as', 'transfers'],
    ['addition', 'a0 as', 'notes'],
    ['addition', 'a1 as', 'wallets'],
  ])('is traced to the shape of its %s in the clause %s', (_what, clause, key) => {
    expect(shapesOf(clause, 'select')).toEqual([key]);
  });

  test.each(['limited as', 'taken as', 'bad as', 'eventlog.events'])(
    'may concern any shape when it lies in the clause %s',
    (clause) => {
      expect(shapesOf(clause, 'select')).toEqual(['wallets', 'transfers', 'notes', 'wallets']);
    },
  );
});
