import { ConstraintViolationError, ShardIdentifier } from '@framework/core';
import type { Change } from '@framework/core/adapter';
import pg from 'pg';
import { expect, test } from 'vitest';

import { existingAddition } from './existing-addition.js';

const shard = ShardIdentifier.of(0, 0);

/** An addition to `public."my tags"`, whose id's column has a quote in its name. */
function addition(id: string, kind: Change['kind'] = 'add'): Change {
  const shape = { table: '"public"."my tags"', columns: ['"label"', '"the ""id"""'], idIndex: 1 };
  return { kind, model: { id: { value: id } }, row: { shape } } as unknown as Change;
}

type ConstraintViolation = ConstructorParameters<typeof ConstraintViolationError>[1];

/** What the database said about a violated unique constraint. */
function violation(own: ConstraintViolation & { readonly values?: string }): ConstraintViolationError {
  const { values, ...known } = own;
  const cause = new pg.DatabaseError('duplicate key', 0, 'error');
  if (values !== undefined) cause.detail = `Key (${known.columns?.join(', ')})=(${values}) already exists.`;
  return new ConstraintViolationError(shard, { kind: 'unique', ...known }, { cause });
}

const names = { constraint: 'my tags_pkey', table: 'my tags' };
const ofId = { ...names, columns: ['the "id"'] };
const [first, second] = [addition('a'), addition('ab')];

test.each<[string, ConstraintViolationError, Change | undefined]>([
  ['the key of the id', violation({ ...ofId, values: 'ab' }), second],
  ['an id that begins like another one', violation({ ...ofId, values: 'a' }), first],
  ['a partition of the table', violation({ ...ofId, table: 'tags_2', values: 'ab' }), second],
  [
    'a key of the id and another column',
    violation({ ...names, columns: ['tenant', 'the "id"'], values: '7, ab' }),
    second,
  ],
  ['a key without the id', violation({ ...names, columns: ['label'], values: 'a' }), undefined],
  ['an id that the plan does not add', violation({ ...ofId, values: 'c' }), undefined],
  ['a primary key without its values', violation(names), first],
  [
    'another constraint without its values',
    violation({ ...names, constraint: 'my tags_label_key' }),
    undefined,
  ],
  ['a constraint of another kind', violation({ ...ofId, kind: 'check', values: 'ab' }), undefined],
])('a violation of %s is told apart', (_what, error, expected) => {
  expect(existingAddition(error, [addition('c', 'update'), first, second])).toBe(expected);
});

test('an error that is no violation of a constraint has no such addition', () => {
  expect(existingAddition(new Error('duplicate key'), [first])).toBeUndefined();
});
