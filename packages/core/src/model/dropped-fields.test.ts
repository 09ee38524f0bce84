import { describe, expect, test } from 'vitest';
import * as z from 'zod';

import { droppedField } from './exact-json.js';

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

describe('droppedField', () => {
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
    expect(droppedField(schema, value, { instances: true })).toMatchObject({ path });
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
    expect(droppedField(schema, value, { instances: true })).toBeUndefined();
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
    expect(droppedField(schema, value, { instances: true })?.reason).toMatch(reason);
  });

  test('passes an instance if nothing is read back', () => {
    expect(droppedField(z.object({ x: z.number() }), new Point())).toBeUndefined();
  });
});
