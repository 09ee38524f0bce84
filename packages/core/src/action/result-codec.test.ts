import { expect, test } from 'vitest';
import * as z from 'zod';

import { resultCodec } from './action-registry.js';

const codec = resultCodec('CountAction', z.object({ count: z.int() }).optional());

test('a result is read as it was written, even if it is undefined', () => {
  expect(codec.decode(codec.encode({ count: 1 }))).toEqual({ count: 1 });
  expect(codec.encode(undefined)).toBeUndefined();
  expect(codec.decode(undefined)).toBeUndefined();
});

test.each<[string, () => unknown]>([
  ['written', () => codec.encode({ count: 'one' })],
  ['read', () => codec.decode('{"count":"one"}')],
])('a result that does not fit its schema is not %s', (_what, work) => {
  expect(work).toThrow(expect.objectContaining({ code: 'unstorable-value', path: 'CountAction result' }));
});

test.each<[string, z.ZodType]>([
  ['an unknown value', z.any()],
  ['a union with undefined', z.string().or(z.undefined())],
])('a result whose field is undefined is not written if %s could not be read without it', (_what, note) => {
  const noted = resultCodec('NoteAction', z.object({ note }));
  expect(() => noted.encode({ note: undefined })).toThrow(
    expect.objectContaining({ code: 'unstorable-value', path: 'NoteAction result.note' }),
  );
});

test('a repeat gets a result of its own, even if it is the default of the schema', () => {
  const listed = resultCodec(
    'ListAction',
    z.object({ list: z.object({ of: z.array(z.int()) }).default({ of: [1] }) }),
  );
  const first = listed.decode('{}') as { readonly list: { readonly of: number[] } };
  first.list.of.pop();
  expect(listed.decode('{}')).toEqual({ list: { of: [1] } });
});
