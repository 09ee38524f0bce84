import {
  type PgColumnBuilderBase,
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
  serial,
  smallint,
  smallserial,
  text,
  time,
  timestamp,
  uuid,
  varchar,
  vector,
} from 'drizzle-orm/pg-core';
import { describe, expect, test } from 'vitest';

import { tableColumns } from './column-type.js';
import type { ValueType } from './value-type.js';

const bytes = customType<{ data: Uint8Array; driverData: Uint8Array }>({ dataType: () => 'bytea' });
const encoded = customType<{ data: string; driverData: string }>({ dataType: () => 'bytea' });
const citext = customType<{ data: string; driverData: string }>({ dataType: () => 'citext' });
const wrapped = customType<{ data: string; driverData: string }>({
  dataType: () => 'text',
  toDriver: (value) => `(${value})`,
});

const size = pgEnum('size', ['S', 'M']);
enum Colour {
  Red = 'red',
}
const colour = pgEnum('colour', Colour);
const id = '018f3c00-0000-7abc-8000-00000000000a';

const table = pgTable('guarded', {
  money: numeric('money', { precision: 5, scale: 2 }),
  whole: numeric('whole', { precision: 3 }),
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
  local: timestamp('local'),
  settings: jsonb('settings'),
  bytes: bytes('bytes'),
  encoded: encoded('encoded'),
  day: date('day', { mode: 'date' }),
  ownerId: uuid('owner_id'),
  size: size('size'),
  colour: colour('colour'),
  sizes: size('sizes').array(),
  notes: text('notes').array(),
  quotas: bigint('quotas', { mode: 'bigint' }).array(),
  kind: text('kind', { enum: ['a', 'b'] }),
  shortKind: varchar('short_kind', { length: 2, enum: ['a', 'abc'] }),
  letter: char('letter', { length: 1, enum: ['a', 'b'] }),
  initial: char('initial'),
  dayText: date('day_text', { mode: 'string' }),
  dateText: timestamp('date_text', { mode: 'string', precision: 3 }),
  zonedText: timestamp('zoned_text', { mode: 'string', withTimezone: true }),
  at: time('at', { precision: 3 }),
  isOpen: boolean('is_open'),
  little: smallint('little'),
  double: doublePrecision('double'),
  serial: bigserial('serial', { mode: 'bigint' }),
  littleSerial: smallserial('little_serial'),
  count: serial('count'),
  document: json('document'),
});
type Column = keyof (typeof table)['_']['columns'];
const types = new Map(tableColumns(table).map(({ key, type }) => [key, type]));

function typeOf(column: Column): ValueType {
  return types.get(column)!;
}

describe('a column', () => {
  test.each<[Column, readonly unknown[]]>([
    ['money', ['123.45', '-123.45', '0.00']],
    ['whole', ['123', '-999']],
    ['any', ['9'.repeat(100), `0.${'1'.repeat(100)}`, '1.50']],
    ['price', [123.45, -0.01, 0]],
    ['units', [99_999n, -1n]],
    ['quota', [2n ** 63n - 1n, -(2n ** 63n)]],
    ['version', [Number.MAX_SAFE_INTEGER, -Number.MAX_SAFE_INTEGER]],
    ['amount', [2 ** 31 - 1, -(2 ** 31)]],
    ['weight', [0.1, -0.5, 0, 123.456, 3.40282e38, 1.1755e-38, -(2 ** 24)]],
    ['short', ['ab', '🚲🚲', '']],
    ['date', [new Date('2026-01-01T00:00:00.100Z')]],
    ['local', [new Date('0001-01-01T00:00:00.001Z'), new Date('9999-12-31T23:59:59.999Z')]],
    ['settings', [{ a: [1, 'x', null] }, 'text', 0]],
    ['bytes', [Buffer.from([0, 92, 255]), Buffer.alloc(0)]],
    ['day', [new Date('0001-01-01'), new Date('9999-12-31')]],
    ['ownerId', [id]],
    ['size', ['S', 'M']],
    ['colour', ['red']],
    ['sizes', [['S', null, 'M'], []]],
    ['notes', [['', 'null', 'NULL', '{}', ',', '"', '\\', null]]],
    ['quotas', [[2n ** 62n, null]]],
    ['kind', ['a', 'b']],
    ['shortKind', ['a']],
    ['letter', ['a']],
    ['initial', ['a', '🚲']],
    ['dayText', ['2026-03-04', '0001-01-01', '9999-12-31', '2024-02-29']],
    ['dateText', ['2026-03-04 07:05:00.25', '2026-03-04 23:59:59']],
    ['zonedText', ['2026-03-04 07:05:00.123456+00']],
    ['at', ['07:05:00.25', '00:00:00', '24:00:00']],
    ['isOpen', [true, false]],
    ['little', [2 ** 15 - 1, -(2 ** 15)]],
    ['double', [0.1 + 0.2, 1e300, 5e-324]],
    ['serial', [2n ** 63n - 1n]],
    ['littleSerial', [1]],
    ['count', [2 ** 31 - 1]],
    ['document', [{ a: [1, 'x', null] }]],
  ])('of the type of %s reads each of its values from what it has sent', (column, values) => {
    const { write, read } = typeOf(column);
    for (const value of values) expect(read(write(value, 'T.c'))).toStrictEqual(value);
  });

  test.each<[Column, readonly unknown[]]>([
    [
      'money',
      ['1234.5', '0.123', '-1000', '', '-', '.', 'NaN', 'Infinity', '1e2', ' 1', '1,5', '0x1', '1.2.3', 5],
    ],
    ['whole', ['1000', '0.5']],
    ['any', ['', 'abc', '-', '1'.repeat(131_073), `0.${'1'.repeat(16_384)}`]],
    ['price', [0.123, 1000, Number.NaN, 1e21, 1e-7, '1']],
    ['units', [100_000n, 1]],
    ['quota', [2n ** 63n, 1, '1']],
    ['version', [2 ** 53, 0.5, Number.NaN]],
    ['amount', [0.5, '1', Number.POSITIVE_INFINITY, 2 ** 31, -(2 ** 31) - 1]],
    [
      'weight',
      [0.1 + 0.2, Math.fround(0.1), 1.000_000_1, 1e39, 1e-45, 277_326_000, Number.NaN, '1', 2 ** 24 + 1],
    ],
    ['short', ['abc', '\u0000', '\ud800']],
    ['note', ['a\u0000', { queryChunks: [] }, 5]],
    ['date', [new Date('2026-01-01T00:00:00.010Z'), new Date(Number.NaN), '2026-01-01']],
    ['local', [new Date('0000-12-31T23:59:59.999Z'), new Date('+010000-01-01')]],
    ['settings', [{ a: Number.NaN }, { a: 1n }, new Date(), [undefined]]],
    ['bytes', ['\\x00', [1, 2], {}]],
    ['encoded', ['text']],
    [
      'day',
      [new Date('0000-12-31'), new Date('+010000-01-01'), new Date('2026-01-01T01:00:00Z'), '2026-01-01'],
    ],
    ['ownerId', ['owner-1', id.toUpperCase(), id.replaceAll('-', ''), `${id}0`, '', 7]],
    ['size', ['L', 's', '', 7]],
    ['colour', ['Red', 'blue']],
    ['sizes', [['S', 'L'], 'S', [undefined]]],
    ['notes', [['a', undefined], Object.assign([], { 1: 'a' }), 'a', [5], [['a']]]],
    ['quotas', [[1], [2n ** 63n]]],
    ['kind', ['c', 'A', '', 7]],
    ['shortKind', ['abc', 'b']],
    ['letter', ['c', '']],
    ['initial', ['', 'ab']],
    [
      'dayText',
      [
        '2026-3-4',
        '04.03.2026',
        '2026-02-30',
        'today',
        'infinity',
        '0044-03-15 BC',
        '10000-01-01',
        '0000-01-01',
      ],
    ],
    [
      'dateText',
      ['2026-03-04T07:05:00Z', '2026-03-04', '2026-02-30 00:00:00', '-infinity', '2026-03-04 07:05:00.1234'],
    ],
    ['zonedText', ['2026-03-04 07:05:00', '2026-03-04 07:05:00+01', '2026-03-04 07:05:00.10+00', 'now']],
    ['at', ['7:05', '25:00:00', '24:00:01', 'noon', '07:05:00.1234', '07:05:00.250', '07:05:00+00']],
    ['isOpen', ['true', 1]],
    ['little', [2 ** 15, -(2 ** 15) - 1]],
    ['double', [Number.NaN, Number.POSITIVE_INFINITY, '1']],
    ['serial', [2n ** 63n, 1]],
    ['document', [{ a: Number.NaN }, new Date()]],
  ])('of the type of %s refuses the values that the database would change', (column, values) => {
    for (const value of values)
      expect(() => typeOf(column).write(value, 'T.c')).toThrow(
        expect.objectContaining({ code: 'unstorable-value', path: expect.stringMatching(/^T\.c/) }),
      );
  });

  test.each<[Column, unknown, string]>([
    ['money', '-.5', '-0.50'],
    ['money', '000123.4500', '123.45'],
    ['money', '-0.00', '0.00'],
    ['whole', '12.000', '12'],
    ['any', '01.50', '1.50'],
    ['any', '5.', '5'],
    ['price', 1.5, '1.50'],
  ])('of the type of %s sends the decimal %j as the database returns it', (column, value, sent) => {
    expect(typeOf(column).write(value, 'T.c')).toBe(sent);
  });

  test.each<[Column, readonly unknown[]]>([
    ['any', ['NaN', 'Infinity', '-Infinity']],
    ['price', ['NaN', `1${'0'.repeat(400)}`]],
    ['units', ['1.5', 'NaN']],
    ['version', ['9007199254740992', '-9007199254740993']],
    ['weight', ['NaN', '-Infinity']],
    ['double', ['NaN', 'Infinity']],
    ['day', ['infinity', '0044-03-15 BC', '10000-01-01']],
    ['dayText', ['-infinity', '0044-03-15 BC', '10000-01-01']],
    ['date', ['infinity', '0044-03-15 00:00:00+00 BC', '294276-12-31 23:59:59+00']],
    ['local', ['-infinity', '0044-03-15 00:00:00 BC', '10000-01-01 00:00:00']],
    ['dateText', ['infinity', '0044-03-15 00:00:00 BC']],
    ['notes', ['{{a},{b}}']],
  ])('of the type of %s does not read what a model cannot hold', (column, texts) => {
    for (const sent of texts) expect(() => typeOf(column).read(sent)).toThrow(Error);
  });

  test.each<[Column, string, unknown]>([
    ['date', '2026-03-04 07:05:00.123456+00', new Date('2026-03-04T07:05:00.123Z')],
    ['date', '2026-03-04 07:05:00-05', new Date('2026-03-04T12:05:00Z')],
    ['date', '2026-03-04 07:05:00+05:30', new Date('2026-03-04T01:35:00Z')],
    ['local', '0001-01-01 07:05:00.5', new Date('0001-01-01T07:05:00.500Z')],
    ['day', '0099-01-01', new Date('0099-01-01T00:00:00Z')],
    ['sizes', '{S,NULL}', ['S', null]],
    ['bytes', '\\x00ff', Buffer.from([0, 255])],
  ])('of the type of %s reads %j as the server means it', (column, sent, value) => {
    expect(typeOf(column).read(sent)).toEqual(value);
  });

  test('refuses a very long text that is not a decimal at once', () => {
    expect(() => typeOf('any').write(`${'0'.repeat(1_000_000)}x`, 'T.c')).toThrow(
      expect.objectContaining({ code: 'unstorable-value' }),
    );
  });

  test.each<[string, (buffer: Buffer) => Uint8Array]>([
    ['a buffer', (buffer) => buffer],
    ['an array', (buffer) => new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength)],
  ])('sends the bytes of %s as they were staged, whatever becomes of them', (_what, viewOf) => {
    const buffer = Buffer.from('a');
    const sent = typeOf('bytes').write(viewOf(buffer), 'path');
    buffer.fill('z');
    expect(sent).toBe(String.raw`\x61`);
  });
});

test.each<[string, PgColumnBuilderBase]>([
  ['point', point('odd')],
  ['point', point('odd', { mode: 'xy' })],
  ['line', line('odd')],
  ['geometry(point)', geometry('odd')],
  ['vector(2)', vector('odd', { dimensions: 2 })],
  ['halfvec(2)', halfvec('odd', { dimensions: 2 })],
  ['bit(3)', bit('odd', { dimensions: 3 })],
  ['interval', interval('odd')],
  ['inet', inet('odd')],
  ['cidr', cidr('odd')],
  ['macaddr', macaddr('odd')],
  ['macaddr8', macaddr8('odd')],
  ['time with time zone', time('odd', { withTimezone: true })],
  ['citext', citext('odd')],
  ['text', wrapped('odd')],
  ['numeric(5, -2)', numeric('odd', { precision: 5, scale: -2 })],
  ['numeric(3, 5)', numeric('odd', { precision: 3, scale: 5 })],
  ['numeric(12, 2)', numeric('odd', { precision: 12, scale: 2, mode: 'bigint' })],
  ['numeric[]', numeric('odd').array()],
  ['timestamp with time zone[]', timestamp('odd', { withTimezone: true }).array()],
  ['jsonb[]', jsonb('odd').array()],
  ['bytea[]', bytes('odd').array()],
  ['text[][]', text('odd').array().array()],
])('a column of the type %s is refused with what to do', (type, odd) => {
  const unsupported = pgTable('oddities', { id: uuid('id'), odd });
  expect(() => tableColumns(unsupported)).toThrow(
    expect.objectContaining({
      code: 'invariant-violation',
      message: expect.stringMatching(
        new RegExp(
          `^Column oddities\\.odd has the type ${type.replaceAll(/[()[\]]/g, String.raw`\$&`)}, .*toRow.*toModel.*Supported are text, `,
        ),
      ),
    }),
  );
});
