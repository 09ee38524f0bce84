import { sql } from 'drizzle-orm';
import {
  bigint,
  bigserial,
  bit,
  boolean,
  char,
  cidr,
  customType,
  date,
  doublePrecision,
  geometry,
  halfvec,
  inet,
  integer,
  interval,
  json,
  jsonb,
  line,
  macaddr,
  macaddr8,
  numeric,
  pgEnum,
  pgTable,
  point,
  real,
  smallint,
  text,
  time,
  timestamp,
  uuid,
  varchar,
  vector,
} from 'drizzle-orm/pg-core';
import { describe, expect, test } from 'vitest';

import { columnGuard, columnWriter } from './column-guard.js';

/** A custom type that turns a text with a capital first letter into SQL. */
const lowered = customType<{ data: string; driverData: string }>({
  dataType: () => 'text',
  toDriver: (value) => (/^[A-Z]/.test(value) ? sql`lower(${value})` : value),
});
const terminated = customType<{ data: string; driverData: string }>({
  dataType: () => 'text',
  toDriver: (value) => `${value}\u0000`,
});

const bytes = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'bytea' });
const nullable = customType<{ data: string; driverData: string | null }>({
  dataType: () => 'text',
  toDriver: (value) => (value === '' ? null : value),
});

const size = pgEnum('size', ['S', 'M']);
enum Colour {
  Red = 'red',
}
const colour = pgEnum('colour', Colour);

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
  bytes: bytes('bytes'),
  nullable: nullable('nullable').array(),
  manyBytes: bytes('many_bytes').array(),
  terminated: terminated('terminated'),
  day: date('day', { mode: 'date' }),
  lasting: interval('lasting'),
  lastingHours: interval('lasting_hours', { fields: 'hour' }),
  ownerId: uuid('owner_id'),
  size: size('size'),
  colour: colour('colour'),
  sizes: size('sizes').array(),
  kind: text('kind', { enum: ['a', 'b'] }),
  shortKind: varchar('short_kind', { length: 2, enum: ['a', 'abc'] }),
  letter: char('letter', { length: 1, enum: ['a', 'b'] }),
  initial: char('initial'),
  dayText: date('day_text', { mode: 'string' }),
  dateText: timestamp('date_text', { mode: 'string' }),
  at: time('at'),
  host: inet('host'),
  net: cidr('net'),
  mac: macaddr('mac'),
  mac8: macaddr8('mac8'),
  isOpen: boolean('is_open'),
  little: smallint('little'),
  double: doublePrecision('double'),
  serial: bigserial('serial', { mode: 'bigint' }),
  document: json('document'),
  place: point('place'),
  placeFields: point('place_fields', { mode: 'xy' }),
  border: line('border'),
  borderFields: line('border_fields', { mode: 'abc' }),
  site: geometry('site'),
  siteFields: geometry('site_fields', { mode: 'xy' }),
  embedding: vector('embedding', { dimensions: 2 }),
  smallEmbedding: halfvec('small_embedding', { dimensions: 2 }),
  flags: bit('flags', { dimensions: 3 }),
});
type Column = keyof (typeof table)['_']['columns'];

describe('columnGuard', () => {
  test.each<[Column, readonly unknown[]]>([
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
    ['ownerId', ['018f3c00-0000-7abc-8000-00000000000a']],
    ['size', ['S', 'M']],
    ['colour', ['red']],
    ['sizes', [['S', null, 'M'], []]],
    ['kind', ['a', 'b']],
    ['shortKind', ['a']],
    ['letter', ['a']],
    ['initial', ['a']],
    ['dayText', ['2026-03-04']],
    ['dateText', ['2026-03-04 07:05:00.25']],
    ['at', ['07:05:00.25']],
    ['host', ['10.0.0.1', '2001:db8::1']],
    ['net', ['10.0.0.0/8']],
    ['mac', ['08:00:2b:01:02:03']],
    ['mac8', ['08:00:2b:01:02:03:04:05']],
    ['isOpen', [true, false]],
    ['little', [2 ** 15 - 1, -(2 ** 15)]],
    ['double', [0.1 + 0.2, 1e300]],
    ['serial', [2n ** 63n - 1n]],
    ['document', [{ a: [1, 'x', null] }]],
    ['place', [[0.1, -2]]],
    ['placeFields', [{ x: 0.1, y: -2 }]],
    ['border', [[1, 2, 3]]],
    ['borderFields', [{ a: 1, b: 2, c: 3 }]],
    ['site', [[0.1, -2]]],
    ['siteFields', [{ x: 0.1, y: -2 }]],
    ['embedding', [[0.1, -2]]],
    ['smallEmbedding', [[0.5, -2]]],
    ['flags', ['010']],
  ])('accepts the values that %s stores unchanged', (column, values) => {
    const guard = columnGuard(table[column]);
    for (const value of values) expect(() => guard(value, 'T.c')).not.toThrow();
  });

  test.each<[Column, readonly unknown[]]>([
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
    ['manyBytes', [[Buffer.from([255])]]],
    ['day', [new Date('0000-12-31'), new Date('+010000-01-01'), new Date('2026-01-01T01:00:00Z')]],
    ['lasting', ['14 mons', '4:05:06']],
    ['lastingHours', ['04:00:00']],
    ['terminated', ['abc']],
    [
      'ownerId',
      ['owner-1', '018F3C00-0000-7ABC-8000-00000000000A', '018f3c0000007abc800000000000000a', '', 7],
    ],
    ['size', ['L', 's', '', 7]],
    ['colour', ['Red', 'blue']],
    ['sizes', [['S', 'L'], 'S', [undefined]]],
    ['kind', ['c', 'A', '', 7]],
    ['shortKind', ['abc', 'b']],
    ['letter', ['c', '']],
    ['initial', ['', 'ab']],
    ['dayText', ['2026-3-4', '04.03.2026', '2026-02-30', 'today']],
    ['dateText', ['2026-03-04T07:05:00Z', '2026-03-04', '2026-02-30 00:00:00']],
    ['at', ['7:05', '25:00:00', 'noon']],
    ['host', ['10.0.0', '10.0.0.1/33', 'localhost']],
    ['net', ['10.0.0.1/8', '10.0.0.0/33']],
    ['mac', ['08-00-2b-01-02-03', '08:00:2b:01:02']],
    ['mac8', ['08:00:2b:01:02:03']],
    ['isOpen', ['true', 1]],
    ['little', [2 ** 15, -(2 ** 15) - 1]],
    ['double', [Number.NaN, Number.POSITIVE_INFINITY, '1']],
    ['serial', [2n ** 63n, 1]],
    ['document', [{ a: Number.NaN }, new Date()]],
    ['place', [[1], [1, 2, 3], [1, Number.NaN], ['1', 2], '(1,2)']],
    ['placeFields', [{ x: 1 }, { x: 1, y: '2' }, [1, 2]]],
    ['border', [[1, 2]]],
    ['borderFields', [{ a: 1, b: 2 }]],
    ['site', [[1]]],
    ['siteFields', [{ x: 1 }]],
    ['embedding', [[1], [1, 2, 3], [1, Number.NaN]]],
    ['smallEmbedding', [[1]]],
    ['flags', ['01', '012', 5]],
  ])('refuses the values that %s would change', (column, values) => {
    const guard = columnGuard(table[column]);
    for (const value of values) {
      expect(() => guard(value, 'T.c')).toThrow(
        expect.objectContaining({ code: 'unstorable-value', path: expect.stringMatching(/^T\.c/) }) as Error,
      );
    }
  });

  test('takes no time to reject a very long text that is not a decimal', () => {
    const guard = columnGuard(table.any);
    expect(() => guard(`${'0'.repeat(1_000_000)}x`, 'T.c')).toThrow(
      expect.objectContaining({ code: 'unstorable-value' }) as Error,
    );
  });

  test.each([
    numeric('cents', { precision: 12, scale: 2, mode: 'bigint' }),
    numeric('cents', { precision: 12, scale: 2, mode: 'bigint' }).array(),
  ])('refuses a bigint column with decimal places, which could never be read', (cents) => {
    const { cents: column } = pgTable('guarded', { cents });
    expect(() => columnGuard(column)).toThrow(
      expect.objectContaining({ code: 'invariant-violation' }) as Error,
    );
  });
});

test.each<[string, (buffer: Buffer) => Uint8Array]>([
  ['a buffer', (buffer) => buffer],
  ['an array of bytes', (buffer) => new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength)],
])('bytes in %s are sent as they were staged, whatever becomes of them', (_what, viewOf) => {
  const buffer = Buffer.from('a');
  const sent = columnWriter(table.bytes)(viewOf(buffer), 'path');
  buffer.fill('z');
  expect(String(sent)).toBe('a');
});

test('a list of a custom type may have items that are written as null', () => {
  expect(() => columnGuard(table.nullable)(['', 'a'], 'path')).not.toThrow();
});
