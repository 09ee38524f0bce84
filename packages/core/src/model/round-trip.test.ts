import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { z as z3 } from 'zod/v3';

import { decimalCodec, instantCodec } from './exact-json.js';
import { assertSchema, encodeBySchema, firstDifference, firstLostField, readBack } from './round-trip.js';

class Point {
  readonly x = 1;
}

interface Tree {
  readonly name: string;
  readonly children: readonly Tree[];
}
const tree: z.ZodType<Tree> = z.lazy(() => z.object({ name: z.string(), children: z.array(tree) }));

const inner = z.object({ a: z.string() });
const given = { a: 'a', b: 'b' };
const proto: unknown = JSON.parse('{"__proto__":1}');
const pointCodec = z.codec(z.object({ x: z.number() }), z.instanceof(Point), {
  decode: () => new Point(),
  encode: (point) => point,
});

function roundTrip(schema: z.ZodType, value: unknown): unknown {
  const encoded = encodeBySchema(schema, value, 'Value');
  expect(encoded.success).toBe(true);
  return readBack(schema, encoded.data, 'Value');
}

describe('firstDifference', () => {
  test.each<[string, z.ZodType, unknown, string]>([
    ['a field', inner, given, '.b'],
    ['a nested field', z.object({ inner }), { inner: given }, '.inner.b'],
    ['a field in a list', z.array(inner), [{ a: 'a' }, given], '[1].b'],
    ['a field in a tuple', z.tuple([z.string(), inner], inner), ['', { a: 'a' }, given], '[2].b'],
    ['a field in a record', z.record(z.string(), inner), { key: given }, '.key.b'],
    ['a field of an optional schema', inner.optional(), given, '.b'],
    ['a field of a nullable default', inner.nullable().default(null), given, '.b'],
    ['a field of a readonly schema', inner.readonly(), given, '.b'],
    ['a field of a nonoptional schema', z.nonoptional(inner.optional()), given, '.b'],
    ['a field of a schema with a prefault', inner.prefault({ a: '' }), given, '.b'],
    ['a field of a schema with a catch', inner.catch({ a: '' }), given, '.b'],
    ['a field of a union', z.union([z.string(), inner, z.object({ b: z.string() })]), given, '.b'],
    [
      'a field of a discriminated union',
      z.discriminatedUnion('t', [
        z.object({ t: z.literal(1) }),
        z.object({ t: z.literal(2), b: z.string() }),
      ]),
      { t: 1, b: 'b' },
      '.b',
    ],
    [
      'a field of an intersection',
      z.intersection(inner, z.object({ c: z.string() })),
      { ...given, c: '' },
      '.b',
    ],
    [
      'a field deep in a schema that names itself',
      tree,
      { name: '', children: [{ name: '', children: [], b: 1 }] },
      '.children[0].b',
    ],
    [
      'a field that a codec reads',
      z.codec(z.string(), inner, { decode: (a) => ({ a }), encode: ({ a }) => a }),
      given,
      '.b',
    ],
    ['a field named __proto__ in a record', z.record(z.string(), z.unknown()), proto, '.__proto__'],
    [
      'such a field in a loose object',
      z.object({ inner: z.looseObject({}) }),
      { inner: proto },
      '.inner.__proto__',
    ],
    [
      'such a field in an object that lists it',
      z.object({ ['__proto__']: z.unknown() }),
      proto,
      '.__proto__',
    ],
    [
      'such a field that one part of an intersection drops',
      z.intersection(z.unknown(), z.object({})),
      proto,
      '.__proto__',
    ],
    ['such a field deep in JSON', z.json(), [{ a: proto }], '[0].a.__proto__'],
    [
      'the class of an instance',
      z.object({ point: z.object({ x: z.number() }) }),
      { point: new Point() },
      '.point',
    ],
  ])('finds %s', (_what, schema, value, path) => {
    expect(firstDifference(value, roundTrip(schema, value))).toMatchObject({ path });
  });

  const day = z.codec(z.iso.date(), z.date(), {
    decode: (text) => new Date(text),
    encode: (date) => date.toISOString().slice(0, 10),
  });
  const roles = z.codec(z.array(z.string()), z.set(z.string()), {
    decode: (list) => new Set(list.map((role) => role.toLowerCase())),
    encode: (set) => [...set],
  });
  class Money {
    constructor(
      readonly amount: number,
      readonly currency: string,
    ) {}
  }
  const money = z.codec(z.number(), z.instanceof(Money), {
    decode: (amount) => new Money(amount, 'EUR'),
    encode: ({ amount }) => amount,
  });
  class Price extends Money {}
  /** Like the decimals of libraries: the same value may look different inside. */
  class Decimal {
    readonly digits: string;
    constructor(digits: string) {
      this.digits = digits;
    }
    toFixed(): string {
      return String(Number(this.digits));
    }
    toString(): string {
      return this.toFixed();
    }
  }

  test.each<[string, z.ZodType, unknown, string]>([
    ['text that is trimmed', z.object({ a: z.string().trim() }), { a: ' a' }, '.a'],
    ['text in lower case', z.tuple([z.string().toLowerCase()]), ['A'], '[0]'],
    ['a number that is rounded', z.number().overwrite(Math.round), 1.5, ''],
    ['a field that is added', z.looseObject({}).overwrite((all) => ({ ...all, b: 'b' })), { a: 'a' }, '.b'],
    ['a shorter list', z.array(z.int()).overwrite((list) => list.slice(1)), [1, 2], ''],
    ['a key that is changed', z.record(z.string().toLowerCase(), z.int()), { A: 1 }, '.A'],
    ['a date without its time', z.object({ at: day }), { at: new Date(1) }, '.at'],
    ['a set with other items', roles, new Set(['Reader']), '[0]'],
    ['an instance with another field', money, new Money(1, 'USD'), '.currency'],
    ['an instance of a subclass', money, new Price(1, 'EUR'), ''],
  ])('finds %s', (_what, schema, value, path) => {
    expect(firstDifference(value, roundTrip(schema, value))).toMatchObject({ path });
  });

  test.each<[string, z.ZodType, unknown]>([
    ['a date', z.object({ at: instantCodec }), { at: new Date(1) }],
    ['a decimal', decimalCodec(Decimal), new Decimal('1.50')],
    ['a set', roles, new Set(['reader', 'writer'])],
    ['an instance with the same fields', money, new Money(1, 'EUR')],
    ['a negative zero', z.number(), -0],
    ['what is not a number', z.number().or(z.nan()), Number.NaN],
    [
      'a map whose entries are read in another order',
      z.codec(z.record(z.string(), z.int()), z.map(z.string(), z.int()), {
        decode: (record) => new Map(Object.entries(record).toReversed()),
        encode: (map) => Object.fromEntries(map),
      }),
      new Map([
        ['zoe', 1],
        ['al', 2],
      ]),
    ],
  ])('passes %s', (_what, schema, value) => {
    expect(firstDifference(value, roundTrip(schema, value))).toBeUndefined();
  });

  test.each<[string, z.ZodType, unknown]>([
    ['a field that is undefined', inner, { a: 'a', b: undefined }],
    ['a field of a schema that keeps others', z.looseObject({ a: z.string() }), given],
    ['a field of a catchall', inner.catchall(z.string()), given],
    [
      'a field of a union that lists it',
      z.union([inner.strict(), z.object({ b: z.string() }).loose()]),
      given,
    ],
    ['fields that an intersection lists in parts', z.intersection(inner, z.object({ b: z.string() })), given],
    ['a field named __proto__ within an unknown value', z.object({ any: z.unknown() }), { any: proto }],
    ['fields within an unknown value', z.object({ any: z.unknown() }), { any: given }],
    ['an instance that a codec writes', pointCodec, new Point()],
    ['null in place of an object', inner.nullable(), null],
    ['a field that is absent', z.object({ inner: inner.optional() }), { inner: undefined }],
    ['an object without a prototype', inner, Object.assign(Object.create(null) as object, { a: 'a' })],
  ])('passes %s', (_what, schema, value) => {
    expect(firstDifference(value, roundTrip(schema, value))).toBeUndefined();
  });

  test.each<[string, z.ZodType, unknown, RegExp]>([
    ['to add a field to the schema', inner, given, /add it to the schema/],
    ['to rename a field', z.looseObject({}), proto, /rename the field/],
    [
      'to write an instance with a codec',
      z.object({ x: z.number() }),
      new Point(),
      /an instance of Point.*use a codec/,
    ],
  ])('says %s', (_what, schema, value, reason) => {
    expect(firstDifference(value, roundTrip(schema, value))?.reason).toMatch(reason);
  });

  test('compares each instance once, even if they refer to each other', () => {
    class Node {
      readonly children: readonly Node[];
      constructor(
        readonly name: string,
        depth: number,
        readonly parent?: Node,
      ) {
        this.children = depth === 0 ? [] : ['a', 'b', 'c'].map((each) => new Node(each, depth - 1, this));
      }
    }
    expect(firstDifference(new Node('root', 3), new Node('root', 3))).toBeUndefined();
    const other = new Node('root', 3);
    Object.assign(other.children[2]?.children[2] ?? {}, { name: 'd' });
    expect(firstDifference(new Node('root', 3), other)?.path).toMatch(
      /\.children\[2\]\.children\[2\]\.name$/,
    );
  });

  test('finds a field that is added, although all objects inherit one of that name', () => {
    expect(firstDifference({}, { constructor: 'x' })).toMatchObject({ path: '.constructor' });
  });

  test('finds a change at any depth', () => {
    let [written, read]: unknown[] = [new Date(1), '1970'];
    for (let depth = 0; depth < 500; depth++) [written, read] = [{ inside: written }, { inside: read }];
    expect(firstDifference(written, read)).toBeDefined();
  });

  test('passes an instance if nothing is read back', () => {
    const schema = z.object({ x: z.number() });
    expect(firstLostField(new Point(), roundTrip(schema, new Point()))).toBeUndefined();
  });
});

test('a schema that does not read what it writes is refused', () => {
  const schema = z.object({
    a: z.codec(z.string(), z.string(), { decode: () => 5 as never, encode: (a) => a }),
  });
  expect(() => roundTrip(schema, { a: 'a' })).toThrow(
    expect.objectContaining({
      code: 'unstorable-value',
      path: 'Value.a',
      reason: expect.stringContaining('codecs'),
    }),
  );
});

test('a schema whose codec throws when it reads is refused', () => {
  const schema = z.codec(z.string(), z.string(), {
    decode: () => {
      throw new TypeError('no address');
    },
    encode: (text) => text,
  });
  expect(() => roundTrip(schema, 'a')).toThrow(
    expect.objectContaining({ code: 'unstorable-value', reason: expect.stringContaining('no address') }),
  );
});

test('a field of an instance that the schema drops is lost, although the instance may become a plain object', () => {
  const schema = z.object({ line: z.object({ count: z.int() }) });
  class Line {
    readonly count = 1;
    readonly note = 'a';
  }
  const value = { line: new Line() };
  expect(firstLostField(value, roundTrip(schema, value))).toMatchObject({ path: '.line.note' });
});

test.each<[string, unknown, RegExp]>([
  [
    'of an earlier version of zod',
    z3.object({}),
    /The params of CloseAction are declared by a schema of zod 3: use zod 4/,
  ],
  ['that is none', { parse: () => 1 }, /not a schema of zod/],
  ['that is missing', undefined, /not a schema of zod/],
  ['of a later version', { _zod: { version: { major: 5 } } }, /a schema of zod 5/],
])('a schema %s is refused by name', (_what, schema, message) => {
  expect(() => assertSchema(schema, 'params of CloseAction')).toThrow(
    expect.objectContaining({ code: 'invariant-violation', message: expect.stringMatching(message) }),
  );
  expect(() => assertSchema(z.object({}), 'params of CloseAction')).not.toThrow();
});
