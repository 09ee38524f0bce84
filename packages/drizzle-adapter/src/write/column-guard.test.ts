import { sql } from 'drizzle-orm';
import {
  bigint,
  customType,
  date,
  integer,
  interval,
  jsonb,
  numeric,
  pgTable,
  real,
  text,
  timestamp,
  varchar,
} from 'drizzle-orm/pg-core';
import { describe, expect, it } from 'vitest';

import { columnGuard } from './column-guard.js';

/** Written as SQL where it begins with a capital. */
const lowered = customType<{ data: string; driverData: string }>({
  dataType: () => 'text',
  toDriver: (value) => (/^[A-Z]/.test(value) ? sql`lower(${value})` : value),
});
const terminated = customType<{ data: string; driverData: string }>({
  dataType: () => 'text',
  toDriver: (value) => `${value}\u0000`,
});

const table = pgTable('guarded', {
  money: numeric('money', { precision: 5, scale: 2 }),
  whole: numeric('whole', { precision: 3 }),
  hundreds: numeric('hundreds', { precision: 5, scale: -2 }),
  tiny: numeric('tiny', { precision: 3, scale: 5 }),
  any: numeric('any'),
  price: numeric('price', { precision: 5, scale: 2, mode: 'number' }),
  units: numeric('units', { precision: 5, mode: 'bigint' }),
  quota: bigint('quota', { mode: 'bigint' }),
  version: bigint('version', { mode: 'number' }),
  amount: integer('amount'),
  weight: real('weight'),
  short: varchar('short', { length: 2 }),
  note: text('note'),
  date: timestamp('date', { withTimezone: true, precision: 1 }),
  settings: jsonb('settings'),
  lowered: lowered('lowered'),
  several: lowered('several').array(),
  terminated: terminated('terminated'),
  day: date('day', { mode: 'date' }),
  lasting: interval('lasting'),
  lastingHours: interval('lasting_hours', { fields: 'hour' }),
});
type Column = keyof (typeof table)['_']['columns'];

describe('columnGuard', () => {
  it.each<[Column, readonly unknown[]]>([
    ['money', ['123.45', '-123.45', '000123.4500', '0', '.5', '5.', '-0.00']],
    ['whole', ['123', '-999', '007', '12.000']],
    ['hundreds', ['12300', '-9999900', '0', '100.00']],
    ['tiny', ['0.00999', '-.00100', '0']],
    ['any', ['9'.repeat(100), `0.${'1'.repeat(100)}`]],
    ['price', [123.45, -0.01, 0]],
    ['units', [99_999n, -1n]],
    ['quota', [2n ** 63n - 1n, -(2n ** 63n)]],
    ['version', [Number.MAX_SAFE_INTEGER]],
    ['amount', [2 ** 31 - 1, -(2 ** 31)]],
    ['weight', [0.1, 0.5, 0, 0.00024414062, 1.2621775e-29, 1.5474251e26, 8.999999e9, -(2 ** 24)]],
    ['short', ['ab', '🚲🚲', '']],
    ['date', [new Date('2026-01-01T00:00:00.100Z')]],
    ['settings', [{ a: [1, 'x', null] }, 'text', 0]],
    ['lowered', ['abc']],
    ['several', [['abc', null]]],
    ['day', [new Date('0001-01-01'), new Date('9999-12-31')]],
    ['lasting', ['1 year 2 mons', '04:05:06.25']],
  ])('accepts what %s gives back', (column, values) => {
    const guard = columnGuard(table[column]);
    for (const value of values) expect(() => guard(value, 'T.c')).not.toThrow();
  });

  it.each<[Column, readonly unknown[]]>([
    [
      'money',
      ['1234.5', '0.123', '-1000', '', '-', '.', 'NaN', 'Infinity', '1e2', ' 1', '1,5', '0x1', '1.2.3'],
    ],
    ['whole', ['1000', '0.5']],
    ['hundreds', ['12345', '50', '10000000', '100.5']],
    ['tiny', ['0.01', '0.000001', '1']],
    ['any', ['', 'abc', '-']],
    ['price', [0.123, 1000, Number.NaN, 1e21, 1e-7]],
    ['units', [100_000n]],
    ['quota', [2n ** 63n, 1, '1']],
    ['version', [2 ** 53, 0.5, Number.NaN]],
    ['amount', [0.5, '1', Number.POSITIVE_INFINITY, 2 ** 31, -(2 ** 31) - 1]],
    ['weight', [0.1 + 0.2, Math.fround(0.1), 1e39, Number.NaN, 0.00024414063, 1.26217745e-29, 9e9]],
    ['short', ['abc', '\u0000', '\ud800']],
    ['note', ['a\u0000', { queryChunks: [] }]],
    [
      'date',
      [
        new Date('2026-01-01T00:00:00.010Z'),
        new Date(Number.NaN),
        new Date(0).setUTCFullYear(99),
        '2026-01-01',
      ],
    ],
    ['settings', [{ a: Number.NaN }, { a: 1n }, new Date(), [undefined]]],
    ['lowered', ['Abc', sql`lower('A')`, sql`lower('A')`.as('a')]],
    ['several', [['abc', 'Abc'], [undefined]]],
    ['day', [new Date('0000-12-31'), new Date('+010000-01-01'), new Date('2026-01-01T01:00:00Z')]],
    ['lasting', ['14 mons', '4:05:06']],
    ['lastingHours', ['04:00:00']],
    ['terminated', ['abc']],
  ])('refuses what %s would change', (column, values) => {
    const guard = columnGuard(table[column]);
    for (const value of values) {
      expect(() => guard(value, 'T.c')).toThrow(
        expect.objectContaining({ code: 'unstorable-value', path: expect.stringMatching(/^T\.c/) }) as Error,
      );
    }
  });

  it('is not slowed down by long texts that are no decimals', () => {
    const guard = columnGuard(table.any);
    expect(() => guard(`${'0'.repeat(1_000_000)}x`, 'T.c')).toThrow(
      expect.objectContaining({ code: 'unstorable-value' }) as Error,
    );
  });

  it.each([
    numeric('cents', { precision: 12, scale: 2, mode: 'bigint' }),
    numeric('cents', { precision: 12, scale: 2, mode: 'bigint' }).array(),
  ])('refuses a column of bigints with decimals, which could never be read', (cents) => {
    const { cents: column } = pgTable('guarded', { cents });
    expect(() => columnGuard(column)).toThrow(
      expect.objectContaining({ code: 'invariant-violation' }) as Error,
    );
  });
});
