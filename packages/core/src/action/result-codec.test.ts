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
