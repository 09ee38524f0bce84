import { type ErrorCode, ShardIdentifier, StaleRecordError } from '@framework/core';
import pg from 'pg';
import { describe, expect, test } from 'vitest';

import { storageError } from './storage-error.js';

const shard = ShardIdentifier.of(0, 0);

describe('storageError', () => {
  test.each<[state: string, code: ErrorCode, retryable: boolean]>([
    ['40001', 'transient-storage', true],
    ['40P01', 'transient-storage', true],
    ['55P03', 'transient-storage', true],
    ['57014', 'shard-unavailable', true],
    ['57P01', 'shard-unavailable', true],
    ['57P03', 'shard-unavailable', true],
    ['53300', 'shard-unavailable', true],
    ['25P03', 'shard-unavailable', true],
    ['25P04', 'shard-unavailable', true],
    ['08006', 'transient-storage', true],
    ['40003', 'transient-storage', true],
    ['26000', 'transient-storage', true],
    ['42P05', 'transient-storage', true],
    ['25006', 'shard-unavailable', true],
    ['53100', 'shard-unavailable', true],
    ['58030', 'shard-unavailable', true],
    ['58P01', 'shard-unavailable', true],
    ['XX001', 'shard-unavailable', true],
    ['XX002', 'shard-unavailable', true],
    ['XX000', 'storage-failure', false],
    ['23505', 'constraint-violation', false],
    ['23514', 'constraint-violation', false],
    ['22P02', 'storage-failure', false],
    ['42P01', 'storage-failure', false],
  ])('maps SQLSTATE %s to the code %s', (state, code, retryable) => {
    const cause = refusal(state);
    expect(storageError(shard, cause)).toMatchObject({ code, retryable, shard, cause });
  });

  test.each([
    ['42P01', 'relation "eventlog.idempotency_keys" does not exist'],
    ['3F000', 'schema "eventlog" does not exist'],
    ['42883', 'function eventlog.ensure_epoch() does not exist'],
  ])('reports a database that lacks a part of the framework as not migrated (%s)', (state, message) => {
    const cause = Object.assign(new pg.DatabaseError(message, 7, 'error'), { code: state });
    expect(storageError(shard, cause)).toMatchObject({
      code: 'shard-unavailable',
      retryable: true,
      kind: 'not-migrated',
      cause,
    });
  });

  test('names a missing table of the application, and the option with which its migrations are run', () => {
    const cause = Object.assign(new pg.DatabaseError('relation "counters" does not exist', 7, 'error'), {
      code: '42P01',
    });
    const { message } = storageError(shard, cause);
    expect(message).toContain('relation "counters" does not exist (42P01)');
    expect(message).toContain('migrationsFolder in postgres({ … })');
  });

  test.each([
    ['57P01', 'not-serving', /: start the server if it does not restart on its own\./],
    ['58030', 'damaged', /: see the server's log, and repair its disk or the damaged data\./],
    ['XX001', 'damaged', /: see the server's log, and repair its disk or the damaged data\./],
    ['57014', undefined, /: look in pg_stat_activity and pg_locks for what blocks it\./],
  ])('names the remedy for SQLSTATE %s', (state, kind, remedy) => {
    const error = storageError(shard, refusal(state), 'first-1 on db/first');
    expect(error).toMatchObject({ code: 'shard-unavailable', kind });
    expect(error.message).toMatch(/^shard \(0, 0\) first-1 on db\/first is unavailable: refused/);
    expect(error.message).toMatch(remedy);
  });

  test.each([
    ['23502', 'not-null'],
    ['23503', 'foreign-key'],
    ['23505', 'unique'],
    ['23514', 'check'],
    ['23P01', 'exclusion'],
    ['23001', undefined],
  ])('names the kind of the constraint that SQLSTATE %s is about: %s', (state, kind) => {
    const error = storageError(shard, refusal(state));
    expect(error).toMatchObject({ code: 'constraint-violation', kind });
  });

  test('names the constraint and the table that refused the rows', () => {
    const cause = Object.assign(refusal('23505'), { constraint: 'accounts_pkey', table: 'accounts' });
    expect(storageError(shard, cause)).toMatchObject({ constraint: 'accounts_pkey', table: 'accounts' });
  });

  test.each<[string, Partial<pg.DatabaseError>, string, readonly string[], string]>([
    [
      'not-null',
      { code: '23502', table: 'accounts', column: 'owner' },
      'not-null',
      ['owner'],
      'not-null constraint of table accounts (column owner)',
    ],
    [
      'unique',
      {
        code: '23505',
        table: 'accounts',
        constraint: 'accounts_key',
        detail: 'Key (owner, currency)=(secret, )=(EUR) already exists.',
      },
      'unique',
      ['owner', 'currency'],
      'unique constraint accounts_key of table accounts (columns owner, currency)',
    ],
    [
      'unique index of an expression',
      {
        code: '23505',
        table: 'accounts',
        constraint: 'accounts_lower',
        detail: 'Key (lower(owner))=(secret) already exists.',
      },
      'unique',
      [],
      'unique constraint accounts_lower of table accounts',
    ],
    [
      'foreign key, in another language',
      {
        code: '23503',
        table: 'tags',
        constraint: 'tags_fk',
        detail: 'Schlüssel (account_id)=(secret) ist nicht in Tabelle »accounts« vorhanden.',
      },
      'foreign-key',
      ['account_id'],
      'foreign-key constraint tags_fk of table tags (column account_id)',
    ],
    [
      'check',
      {
        code: '23514',
        table: 'accounts',
        constraint: 'balance_check',
        detail: 'Failing row contains (secret).',
      },
      'check',
      [],
      'check constraint balance_check of table accounts',
    ],
  ])('names the kind of a constraint and its columns: %s', (_what, fields, kind, columns, words) => {
    const error = storageError(shard, Object.assign(refusal(''), fields));
    expect(error).toMatchObject({ kind, columns });
    expect(error.message).toBe(`shard (0, 0): ${words} refused the rows. Nothing was written.`);
  });

  test('reports an error that did not come from the server as a lost connection', () => {
    const cause = new Error('Connection terminated unexpectedly');
    const error = storageError(shard, cause, 'first-1 on db/first');
    expect(error).toMatchObject({ code: 'transient-storage', cause });
    expect(error.message).toBe(
      'shard (0, 0) first-1 on db/first: the connection was lost. Nothing was written; try again.',
    );
  });

  test('reports a statement that timed out as an unavailable shard, since a repeat would wait as long', () => {
    const cause = new Error('Query read timeout');
    const error = storageError(shard, cause);
    expect(error).toMatchObject({ code: 'shard-unavailable', shard, cause });
    expect(error.message).toMatch(/: check that the server is running and reachable\./);
  });

  test("passes on the framework's own errors, even when wrapped in others", () => {
    const known = new StaleRecordError('Account', 'a', 1);
    expect(storageError(shard, known)).toBe(known);
    expect(storageError(shard, new Error('Failed query', { cause: known }))).toBe(known);
  });
});

function refusal(state: string): pg.DatabaseError {
  return Object.assign(new pg.DatabaseError('refused', 7, 'error'), { code: state, severity: 'ERROR' });
}
