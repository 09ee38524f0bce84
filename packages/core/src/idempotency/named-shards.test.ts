import { expect, test } from 'vitest';

import { global, mexico, openWallet } from '../../test/test-executor.js';
import { namedShards } from './key-search.js';

/** Objects nested to this depth. */
function within(value: unknown, depth: number): unknown {
  return depth === 0 ? value : { field: within(value, depth - 1) };
}

test('the shards of all ids in params are found, wherever they are', () => {
  const params = { from: openWallet(global).id, lines: [{ to: openWallet(mexico).id }], note: null };
  expect(namedShards(params)).toEqual(new Set([global, mexico]));
});

test('ids are looked for eight levels deep', () => {
  const { id } = openWallet(mexico);
  expect(namedShards(within(id, 8))).toEqual(new Set([mexico]));
  expect(namedShards(within(id, 9))).toEqual(new Set());
});

test('params that contain themselves are searched', () => {
  const params: Record<string, unknown> = { id: openWallet(mexico).id };
  params['self'] = params;
  expect(namedShards(params)).toEqual(new Set([mexico]));
});
