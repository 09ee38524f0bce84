import { ShardIdentifier } from '@framework/core';
import pg from 'pg';
import { describe, expect, test } from 'vitest';

import { isHarmless, isStatementInvalid, isReadOnly, isRefusal, storageError } from './storage-error.js';

/** An error that `pg` makes of a message from a server that speaks German. */
function errorOf(code: string, routine = 'anything'): pg.DatabaseError {
  const error = new pg.DatabaseError('ein Fehler', 100, 'error');
  return Object.assign(error, { code, routine, severity: 'FEHLER' });
}

describe('an error of the server', () => {
  test.each([
    '23505',
    '40001',
    '40P01',
    '55P03',
    '42804',
    '57014',
    '25006',
    '26000',
    'FW001',
    'P0001',
    '53200',
  ])('with SQLSTATE %s means, in any language, that nothing was committed', (code) => {
    expect(isRefusal(errorOf(code))).toBe(true);
  });

  test.each([
    '57P01',
    '57P02',
    '57P03',
    '57P05',
    '08006',
    '08P01',
    '25P03',
    '25P04',
    '40003',
    'XX000',
    '58030',
  ])('with SQLSTATE %s leaves the commit unknown, because the session may have ended after it', (code) => {
    expect(isRefusal(errorOf(code))).toBe(false);
    expect(isHarmless(errorOf(code))).toBe(false);
  });

  test.each(['23505', '40001', '55P03', '42804', 'FW001', '0A000'])(
    'with SQLSTATE %s leaves its connection usable',
    (code) => {
      expect(isHarmless(errorOf(code))).toBe(true);
      expect(isStatementInvalid(errorOf(code))).toBe(false);
    },
  );

  test('with SQLSTATE 57014 costs the connection, and a new one may fare no better', () => {
    expect(isHarmless(errorOf('57014'))).toBe(false);
    expect(isStatementInvalid(errorOf('57014'))).toBe(false);
  });

  test('with SQLSTATE 25006 comes from a read-only session', () => {
    expect(isReadOnly(errorOf('25006'))).toBe(true);
    expect(isReadOnly(errorOf('42501'))).toBe(false);
  });

  test.each([
    ['26000', undefined],
    ['42P05', undefined],
    ['0A000', 'RevalidateCachedQuery'],
  ])('with SQLSTATE %s is resolved by a new connection', (code, routine) => {
    expect(isHarmless(errorOf(code, routine))).toBe(false);
    expect(isStatementInvalid(errorOf(code, routine))).toBe(true);
  });

  test.each([
    ['40001', 'transient-storage'],
    ['40P01', 'transient-storage'],
    ['55P03', 'transient-storage'],
    ['08006', 'transient-storage'],
    ['26000', 'transient-storage'],
    ['25006', 'shard-unavailable'],
    ['53300', 'shard-unavailable'],
    ['57014', 'shard-unavailable'],
    ['57P04', 'shard-unavailable'],
    ['25P04', 'shard-unavailable'],
    ['23505', 'constraint-violation'],
    ['0A000', 'storage-failure'],
    ['42601', 'storage-failure'],
  ])('with SQLSTATE %s is reported as %s', (code, told) => {
    expect(storageError(ShardIdentifier.of(0, 0), errorOf(code))).toMatchObject({ code: told });
  });
});
