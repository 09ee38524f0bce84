import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import * as z from 'zod';

import { seed } from '../../test/seed.js';
import { requestJson } from './request-fingerprint.js';

const amount = z.codec(z.string(), z.bigint(), { decode: (text) => BigInt(text), encode: String });
const line = z.object({ sku: z.string(), count: z.int().default(1) });

describe('requestJson', () => {
  test.each<[string, z.ZodType, string, string]>([
    ['a default', line, '{"sku":"a","count":1}', '{"sku":"a"}'],
    ['a default that a codec writes', z.object({ amount: amount.default(5n) }), '{"amount":"5"}', '{}'],
    ['a prefault', z.object({ amount: amount.prefault('5') }), '{"amount":"5"}', '{}'],
    ['a default of null', z.object({ note: z.string().nullable().default(null) }), '{"note":null}', '{}'],
    [
      'an object that is a default',
      z.object({ line: line.default({ sku: 'a', count: 2 }) }),
      '{"line":{"count":2,"sku":"a"}}',
      '{}',
    ],
    [
      'a default in a list',
      z.array(line),
      '[{"sku":"a","count":1},{"sku":"b","count":2}]',
      '[{"sku":"a"},{"count":2,"sku":"b"}]',
    ],
    [
      'a default in a tuple',
      z.tuple([line], line),
      '[{"sku":"a","count":1},{"sku":"b","count":1}]',
      '[{"sku":"a"},{"sku":"b"}]',
    ],
    ['a default in a record', z.record(z.string(), line), '{"x":{"sku":"a","count":1}}', '{"x":{"sku":"a"}}'],
    ['a default in an optional schema', line.optional(), '{"sku":"a","count":1}', '{"sku":"a"}'],
    ['a nullable default', z.object({ count: z.int().default(1).nullable() }), '{"count":1}', '{}'],
    ['a default in a nullable schema', line.nullable(), '{"sku":"a","count":1}', '{"sku":"a"}'],
    [
      'a default in a nonoptional schema',
      z.nonoptional(line.optional()),
      '{"sku":"a","count":1}',
      '{"sku":"a"}',
    ],
    ['a default in a readonly schema', line.readonly(), '{"sku":"a","count":1}', '{"sku":"a"}'],
    [
      'a default in a schema with a default',
      line.default({ sku: 'b', count: 2 }),
      '{"sku":"a","count":1}',
      '{"sku":"a"}',
    ],
    [
      'a default in a schema with a prefault',
      line.prefault({ sku: 'b' }),
      '{"sku":"a","count":1}',
      '{"sku":"a"}',
    ],
    [
      'a default in a schema with a catch',
      line.catch({ sku: 'b', count: 2 }),
      '{"sku":"a","count":1}',
      '{"sku":"a"}',
    ],
    ['a readonly default', z.object({ count: z.int().default(1).readonly() }), '{"count":1}', '{}'],
    ['a nonoptional default', z.object({ count: z.nonoptional(z.int().default(1)) }), '{"count":1}', '{}'],
    ['a default in a lazy schema', z.lazy(() => line), '{"sku":"a","count":1}', '{"sku":"a"}'],
    [
      'a default in what a codec writes',
      z.codec(line, z.string(), { decode: ({ sku }) => sku, encode: (sku) => ({ sku, count: 1 }) }),
      '{"sku":"a","count":1}',
      '{"sku":"a"}',
    ],
  ])('leaves out %s', (_what, schema, params, expected) => {
    expect(requestJson(params, schema)).toBe(expected);
  });

  test.each<[string, z.ZodType | undefined, string]>([
    ['a field that is not its default', line, '{"count":2,"sku":"a"}'],
    ['null in place of a record', z.record(z.string(), line).nullable(), 'null'],
    ['null that is not the default', z.object({ note: z.string().nullable() }), '{"note":null}'],
    [
      'zeros, empty texts and lists',
      z.object({ a: z.int(), b: z.string(), c: z.array(z.int()) }),
      '{"a":0,"b":"","c":[]}',
    ],
    ['a default in a union', z.union([z.string(), line]), '{"count":1,"sku":"a"}'],
    ['a default in an intersection', z.intersection(line, z.looseObject({})), '{"count":1,"sku":"a"}'],
    ['an optional default', z.object({ count: z.int().default(1).optional() }), '{"count":1}'],
    ['a default of an optional schema', z.object({ count: z.int().optional().default(1) }), '{"count":1}'],
    ['a default of anything', z.object({ any: z.unknown().default(1) }), '{"any":1}'],
    [
      'a default that JSON cannot represent',
      z.object({ id: z.union([z.string(), z.bigint()]).default(5n) }),
      '{"id":"5"}',
    ],
    [
      'fields with the names of properties that every object has',
      z.looseObject({ sku: z.string() }),
      '{"constructor":1,"sku":"a","toString":"b"}',
    ],
    ['fields of an action without a schema', undefined, '{"count":1,"sku":"a"}'],
    ['a text', undefined, '"text"'],
    ['nothing', undefined, 'null'],
  ])('keeps %s', (_what, schema, params) => {
    expect(requestJson(params, schema)).toBe(params);
  });

  test('does not depend on the order of fields, but does on that of items', () => {
    expect(requestJson('{"b":[{"d":1,"c":2}],"a":0}', undefined)).toBe('{"a":0,"b":[{"c":2,"d":1}]}');
    expect(requestJson('[2,1]', undefined)).toBe('[2,1]');
  });

  test('differs for params that differ', () => {
    // After Node 24 has read a key with a backslash, it mistakes other escaped keys for it.
    const json = fc.jsonValue().filter((value) => !JSON.stringify(value).includes('\\\\'));
    fc.assert(
      fc.property(json, json, (one, other) => {
        const isSame =
          requestJson(JSON.stringify(one), undefined) === requestJson(JSON.stringify(other), undefined);
        expect(isSame).toBe(equal(one, other));
        expect(requestJson(JSON.stringify(one), undefined)).toBe(requestJson(JSON.stringify(one), z.json()));
      }),
      { seed },
    );
  });
});

function equal(one: unknown, other: unknown): boolean {
  try {
    expect(JSON.parse(JSON.stringify(one))).toEqual(JSON.parse(JSON.stringify(other)));
    return true;
  } catch {
    return false;
  }
}
