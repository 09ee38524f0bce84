// @module-tag postgres
import type { DatabaseRegistry } from '@framework/core';
import { UnstorableValueError } from '@framework/core/adapter';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';

import { openRegistry } from './fixtures/open-registry.js';
import { changeSetOf, persist, persistInGroup } from './fixtures/persist.js';
import { query } from './fixtures/query.js';
import { readableJson } from './fixtures/readable-json.js';
import { PgSampleRepository, Sample, type SampleColumn, sampleStatements } from './fixtures/sample.js';

const seed = Number(process.env['FC_SEED'] ?? Date.now() % 2 ** 31);

let database: TestDatabase;
let registry: DatabaseRegistry;
let samples: PgSampleRepository;
beforeAll(async () => {
  database = await createTestDatabase();
  await query(
    database.url,
    `alter database ${database.database} set intervalstyle = 'iso_8601';
     alter database ${database.database} set extra_float_digits = 0;
     alter database ${database.database} set timezone = 'America/New_York';
     alter database ${database.database} set datestyle = 'German'`,
  );
  await query(database.url, sampleStatements);
});
afterAll(() => database.drop());
beforeEach(async () => {
  registry = openRegistry([{ group: 0, member: 0, url: database.url }]);
  await registry.ready();
  samples = new PgSampleRepository(registry);
});

const kept: readonly (readonly [SampleColumn, readonly unknown[]])[] = [
  ['day', [new Date('2026-03-04'), new Date('0001-01-01'), new Date('9999-12-31')]],
  ['dayText', ['2026-03-04', '2024-02-29', '0001-01-01', '9999-12-31']],
  ['at', ['07:05:00', '23:59:59.999999', '00:00:00', '24:00:00', '07:05:00.1']],
  ['atSecond', ['07:05:59']],
  ['moment', [new Date('2026-03-04T15:16:17.123Z')]],
  ['local', [new Date('0001-01-01T00:00:00.001Z'), new Date('9999-12-31T23:59:59.999Z')]],
  ['momentText', ['2026-03-04 15:16:17.123456+00', '2026-07-04 15:16:17+00']],
  ['localText', ['2026-03-08 02:30:00.123']],
  ['owner', ['018f3c00-0000-7abc-8000-00000000000a']],
  ['mood', ['wild', 'NULL']],
  ['isOpen', [true, false]],
  ['note', ['', ' ', 'NULL']],
  ['short', ['ab  ', '']],
  ['code', ['a  ', 'abc', '   ']],
  ['amount', ['1.50', '0.000', `${'9'.repeat(400)}.${'1'.repeat(400)}`]],
  ['score', [0.1 + 0.2, 5e-324, Number.MAX_VALUE]],
  ['weight', [0.1, -0.000244141, 1.26218e-29, 1.54743e26, 1.1755e-38, 16_777_215]],
  ['doc', [{ b: 1, a: [0.1, 1e21, 1e-7] }, 'text', '12']],
  ['data', [{ b: 1, a: [0.1 + 0.2, 1e300, 5e-324, Number.MAX_SAFE_INTEGER] }, ['null', null], '12']],
  ['data', [JSON.parse('{"__proto__":{"a":1}}')]],
  ['content', [Buffer.from([0, 92, 120, 255]), Buffer.alloc(0)]],
  ['notes', [['a', null, 'NULL', 'null', '', '{}', ',', '"', '\\'], [null], []]],
  ['moods', [['calm', null, 'NULL']]],
  ['counts', [[1, null, -1]]],
  ['quotas', [[2n ** 63n - 1n, null]]],
  ['safe', [[Number.MAX_SAFE_INTEGER, null, 0]]],
  ['flags', [[true, null, false]]],
  ['owners', [['018f3c00-0000-7abc-8000-00000000000a', null]]],
];

describe.each([
  ['alone', persist],
  ['in a group', persistInGroup],
])('a row that is written %s', (_how, write) => {
  test.each(kept)('keeps each value of the column %s exactly (case %#)', async (column, values) => {
    for (const value of values) {
      const sample = Sample.of({ [column]: value });
      await write(registry, samples, sample);
      const read = await samples.getById(sample.id);
      expect(read.values[column]).toStrictEqual(value);
      // Values that were read can be written again, unchanged.
      await write(registry, samples, read.next(read.values));
      expect((await samples.getById(sample.id)).values).toStrictEqual(read.values);
    }
  });
});

const refused: readonly (readonly [SampleColumn, readonly unknown[]])[] = [
  ['day', [new Date('2026-03-04T15:16:17Z'), new Date(Number.NaN), '2026-03-04', new Date('-000001-01-01')]],
  ['dayText', ['2026-3-4', '04.03.2026', 'today', '2026-02-30', '10000-01-01', '0000-01-01', new Date(0)]],
  ['at', ['7:5', '07:05', '07:05:00.10', '07:05:00.1234567', '07:05:60', '25:00:00', '7pm', '24:00:01']],
  ['atSecond', ['07:05:59.6']],
  ['momentText', ['2026-03-04T15:16:17Z', '2026-03-04 15:16:17', '2026-03-04 15:16:17+01']],
  [
    'momentText',
    ['2026-03-04 15:16:17.1234567+00', '2026-03-04 15:16:17.120+00', 'now', '2026-03-04 24:00:00+00'],
  ],
  ['localText', ['2026-03-04 15:16:17.1234', '2026-03-04 15:16:17+00']],
  ['owner', ['018F3C00-0000-7ABC-8000-00000000000A', '018f3c0000007abc800000000000000a', 'x']],
  ['mood', ['angry', 1]],
  ['isOpen', ['yes', 1]],
  ['note', [5, true]],
  ['code', ['ab', 'abcd']],
  ['amount', [1.5, `0.${'1'.repeat(20_000)}`]],
  ['count', ['1']],
  ['notes', [['a', undefined], Object.assign([], { 1: 'a' }), 'a', [5]]],
  ['owners', [['X']]],
];

test.each(refused)(
  'the column %s refuses the values that it would not return unchanged (case %#)',
  (column, values) => {
    for (const value of values) {
      expect(() => samples.encode(Sample.of({ [column]: value }))).toThrow(
        expect.objectContaining({
          code: 'unstorable-value',
          path: expect.stringContaining(`Sample.${column}`) as string,
        }) as Error,
      );
    }
  },
);

const digits = (max: number): fc.Arbitrary<string> => fc.nat(max).map(String);
const pair = fc.oneof(
  digits(99),
  fc.nat(60).map((n) => String(n).padStart(2, '0')),
);
const fraction = fc.oneof(
  fc.constant(''),
  digits(9_999_999).map((n) => `.${n}`),
);
const clock = fc.oneof(
  fc.tuple(pair, pair, pair, fraction).map(([h, m, s, f]) => `${h}:${m}:${s}${f}`),
  fc
    .tuple(fc.date({ noInvalidDate: true }), fraction)
    .map(([date, f]) => date.toISOString().slice(-13, -5) + f),
);
const day = fc
  .tuple(fc.oneof(digits(20_000), fc.integer({ min: 1900, max: 2100 }).map(String)), pair, pair)
  .map((parts) => parts.join('-'));
const validDay = fc.oneof(
  day,
  fc
    .date({ noInvalidDate: true, min: new Date('0001-01-01'), max: new Date('9999-12-31') })
    .map((date) => date.toISOString().slice(0, 10)),
);
const zone = fc.constantFrom(
  '',
  'Z',
  '+00',
  '-00',
  '+05:30',
  '+05:00',
  '-12',
  '+5',
  ' +02',
  '-00:30',
  '+00:00',
);
const element = fc.option(
  fc.oneof(fc.string({ unit: 'binary' }), fc.constantFrom('NULL', 'null', '{}', '"', '\\')),
);

const messy: readonly (readonly [SampleColumn, fc.Arbitrary<unknown>])[] = [
  [
    'day',
    fc.oneof(
      fc.date(),
      fc.integer({ min: -800_000, max: 3_000_000 }).map((n) => new Date(n * 86_400_000)),
    ),
  ],
  ['dayText', fc.oneof(validDay, fc.constantFrom('infinity', 'epoch'))],
  ['at', clock],
  ['atSecond', clock],
  // Only those in UTC are stored as they are.
  [
    'momentText',
    fc.tuple(validDay, clock, fc.oneof(zone, fc.constant('+00'))).map(([d, c, z]) => `${d} ${c}${z}`),
  ],
  ['localText', fc.tuple(validDay, clock).map((parts) => parts.join(' '))],
  ['moment', fc.date()],
  [
    'owner',
    fc.oneof(
      fc.uuid(),
      fc.uuid().map((id) => id.toUpperCase()),
    ),
  ],
  ['code', fc.string({ maxLength: 4, unit: 'grapheme' })],
  ['short', fc.string({ maxLength: 5, unit: 'grapheme' })],
  ['score', fc.double()],
  [
    'weight',
    fc.oneof(
      fc.double(),
      fc.integer({ min: -(2 ** 25), max: 2 ** 25 }),
      fc
        .tuple(fc.integer({ min: -1_000_000, max: 1_000_000 }), fc.integer({ min: -44, max: 33 }))
        .map(([n, e]) => Number(`${n}e${e}`)),
    ),
  ],
  ['content', fc.uint8Array().map((bytes) => Buffer.from(bytes))],
  ['local', fc.date()],
  ['data', readableJson],
  ['doc', readableJson],
  ['notes', fc.array(element)],
  ['quotas', fc.array(fc.option(fc.bigInt({ min: -(2n ** 64n), max: 2n ** 64n })))],
];

test.each(messy)(
  `the column %s returns unchanged every random value that it accepts (seed ${seed})`,
  async (column, arbitrary) => {
    const candidates = fc.sample(arbitrary, { seed, numRuns: 300 });
    const accepted = candidates.map((value) => Sample.of({ [column]: value })).filter(isStorable);
    expect(accepted.length).toBeGreaterThan(0);
    const manager = registry.transactionManager(changeSetOf(samples, accepted[0]!).shard);
    const sets = accepted.map((sample) => changeSetOf(samples, sample));
    await manager.persist({ ...sets[0]!, changes: sets.flatMap(({ changes }) => changes) });
    for (const { id, values } of accepted) {
      expect(plain((await samples.getById(id)).values[column])).toEqual(plain(values[column]));
    }
  },
);

/** Whether the guards accept it; any error other than their refusal fails the test. */
function isStorable(sample: Sample): boolean {
  try {
    samples.encode(sample);
    return true;
  } catch (error) {
    if (error instanceof UnstorableValueError) return false;
    throw error;
  }
}

/** JSON and PostgreSQL have only one zero. */
function plain(value: unknown): unknown {
  if (value === 0) return 0;
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null || value instanceof Date || Buffer.isBuffer(value))
    return value;
  return Object.fromEntries(Object.entries(value).map(([key, field]) => [key, plain(field)]));
}
