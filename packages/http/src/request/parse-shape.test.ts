import { describe, expect, test } from 'vitest';
import * as z from 'zod';

import { InvalidRequestError } from './invalid-request-error.js';
import { parseExactJson } from './exact-json.js';
import { parseShape } from './parse-shape.js';

function faultsOf(schema: z.ZodType, value: unknown, part: 'path' | 'query' | 'body' = 'body') {
  try {
    parseShape(part, schema, value);
  } catch (error) {
    if (error instanceof InvalidRequestError) return error.faults;
    throw error;
  }
  return [];
}

describe('the faults of a request', () => {
  test.each([
    [31, 31],
    [32, 32],
    [33, 32],
    [1_000, 32],
  ])('of which there are %d are listed up to 32: %d', (count, expected) => {
    const unknown = Object.fromEntries(Array.from({ length: count }, (_, index) => [`field${index}`, 1]));
    expect(faultsOf(z.strictObject({}), unknown)).toHaveLength(expected);
    const items = Array.from({ length: count }, () => 1);
    expect(faultsOf(z.array(z.string()), items)).toHaveLength(expected);
  });

  test.each([
    ['a', '#/a'],
    ['a/b', '#/a~1b'],
    ['a~b', '#/a~0b'],
    ['~1', '#/~01'],
    ['é€👍', '#/%C3%A9%E2%82%AC%F0%9F%91%8D'],
    ['\ud83d', '#/%EF%BF%BD'],
    ['a b%', '#/a%20b%25'],
    ['', '#/'],
  ])('point to the field %j as %s', (field, pointer) => {
    expect(faultsOf(z.strictObject({}), { [field]: 1 })).toMatchObject([{ pointer }]);
  });

  test.each([
    ['body', '#/a/0'],
    ['path', 'path/a/0'],
    ['query', 'query/a/0'],
  ] as const)('point into the %s as %s', (part, pointer) => {
    expect(faultsOf(z.object({ a: z.array(z.string()) }), { a: [1] }, part)).toMatchObject([{ pointer }]);
  });

  test('tell a missing field from one that is wrong, and name the first fault in the message', () => {
    const schema = z.object({ a: z.string('must be a text'), b: z.string('must be a text') });
    expect(faultsOf(schema, { b: null })).toEqual([
      { pointer: '#/a', message: 'is missing' },
      { pointer: '#/b', message: 'must be a text' },
    ]);
    expect(() => parseShape('body', schema, {})).toThrow('#/a is missing');
  });
});

test.each([
  ['map', z.record(z.string(), z.unknown()).transform((fields) => new Map(Object.entries(fields)))],
  ['map of objects', z.unknown().transform((inner) => new Map([['outer', inner]]))],
  ['set', z.record(z.string(), z.unknown()).transform((fields) => new Set(Object.values(fields)))],
])('a long number does not reach a handler within a %s', (_kind, meta) => {
  const sent = parseExactJson('{"meta":{"a":9007199254740993}}');
  expect(() => parseShape('body', z.object({ meta }), sent)).toThrow(
    '#/meta is a number with too many digits',
  );
});

test('a long number cannot become JSON', () => {
  expect(() => JSON.stringify(parseExactJson('[9007199254740993]'))).toThrow(InvalidRequestError);
});
