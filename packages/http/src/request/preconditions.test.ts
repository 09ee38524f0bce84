import { describe, expect, test } from 'vitest';

import { InvalidRequestError } from './invalid-request-error.js';
import {
  entityTag,
  expectedVersions,
  isKnown,
  prefersMinimal,
  refuseUncheckedConditions,
} from './preconditions.js';

const ifMatch = (value: string): Headers => new Headers({ 'if-match': value });
const ifNoneMatch = (value: string): Headers => new Headers({ 'if-none-match': value });
const tags = (count: number): string =>
  Array.from({ length: count }, (_, index) => `"${index + 1}"`).join(',');

describe('If-Match', () => {
  test.each([
    ['"1"', [1]],
    ['"1", "20" ,"300"', [1, 20, 300]],
    ['"999999999999999"', [999_999_999_999_999]],
    ['"1000000000000000"', []],
    ['"0"', []],
    ['"01"', []],
    ['"-1"', []],
    ['"1.0"', []],
    ['W/"1"', []],
    ['1', []],
    ['""', []],
    ['"1", *', [1]],
    ['*, *', []],
  ])('that is %s asks for the versions %j', (value, expected) => {
    expect(expectedVersions(ifMatch(value))).toEqual(expected);
  });

  test('that is missing, or is a star, asks for none', () => {
    expect([expectedVersions(new Headers()), expectedVersions(ifMatch(' * '))]).toEqual([
      undefined,
      undefined,
    ]);
  });

  test('may list 32 versions, and not one more', () => {
    expect(expectedVersions(ifMatch(tags(32)))).toHaveLength(32);
    expect(() => expectedVersions(ifMatch(tags(33)))).toThrow(
      expect.objectContaining({
        code: 'bad-request',
        faults: [expect.objectContaining({ pointer: 'header/If-Match' })],
      }),
    );
  });
});

describe('If-None-Match', () => {
  test.each(['"7"', 'W/"7"', '"1", "7"', ' "1",W/"7" ', '*'])(
    'that is %s means that version 7 is known',
    (value) => {
      expect(isKnown(ifNoneMatch(value), 7)).toBe(true);
    },
  );

  test.each(['"70"', '"77"', '7', 'w/"7"', '"1", *', ''])(
    'that is %j means that version 7 is not known',
    (value) => {
      expect(isKnown(ifNoneMatch(value), 7)).toBe(false);
    },
  );

  test('that is missing means that no version is known', () => {
    expect(isKnown(new Headers(), 1)).toBe(false);
    expect(isKnown(ifNoneMatch(entityTag(1)), 1)).toBe(true);
  });
});

test.each([
  ['if-match', true, undefined],
  ['if-match', false, 'header/If-Match'],
  ['if-none-match', true, 'header/If-None-Match'],
  ['if-none-match', false, 'header/If-None-Match'],
])(
  'a write with %s, whose path names what it changes (%s), is refused because of: %s',
  (name, changes, pointer) => {
    expect(faultOf(new Headers({ [name]: '"1"' }), changes)).toBe(pointer);
  },
);

/** Where the fault is for which the conditions of a write are refused, if they are. */
function faultOf(headers: Headers, changes: boolean): string | undefined {
  try {
    refuseUncheckedConditions(headers, changes);
    return undefined;
  } catch (error) {
    if (error instanceof InvalidRequestError && error.code === 'bad-request') return error.faults[0]?.pointer;
    throw error;
  }
}

test.each([
  ['return=minimal', true],
  ['RETURN = "Minimal"', true],
  ['respond-async, return=minimal; foo=bar', true],
  ['return=minimal, return=representation', true],
  ['return=representation, return=minimal', false],
  ['return=minimalist', false],
  ['noreturn=minimal', false],
  ['', false],
])('a client that prefers %j wants no body: %s', (prefer, expected) => {
  expect(prefersMinimal(new Headers(prefer === '' ? {} : { prefer }))).toBe(expected);
});
