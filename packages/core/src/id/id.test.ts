import { expect, test } from 'vitest';

import { Wallet } from '../../test/wallet.js';
import { Id, ShardedId } from './id.js';

test.each(['1', 'customer/42', 'x'.repeat(255)])('an id keeps its text unchanged', (text) => {
  expect(Id.of(Wallet, text).value).toBe(text);
});

test.each(['', 'x'.repeat(256)])('an id that is empty or longer than 255 characters is refused', (text) => {
  expect(() => Id.of(Wallet, text)).toThrow(expect.objectContaining({ code: 'invalid-id' }));
});

test.each(['a\u0000', '\ud83d', 42 as unknown as string, undefined as unknown as string])(
  'an id that a database cannot store is refused: %j',
  (value) => {
    expect(() => Id.of(Wallet, value)).toThrow(expect.objectContaining({ code: 'invalid-id' }));
    expect(() => ShardedId.of(Wallet, value)).toThrow(expect.objectContaining({ code: 'invalid-id' }));
  },
);

test('an error shows at most 64 characters of a refused id', () => {
  expect(() => Id.of(Wallet, 'x'.repeat(256))).toThrow(new RegExp(`^'x{64}' is`));
});

test('an id equals another id with the same text', () => {
  expect(Id.of(Wallet, 'a').equals(Id.of(Wallet, 'a'))).toBe(true);
  expect(Id.of(Wallet, 'a').equals(Id.of(Wallet, 'b'))).toBe(false);
});

test('an id is written as its text in strings and in JSON', () => {
  const id = Id.of(Wallet, 'wallet-1');
  expect(`${id}`).toBe('wallet-1');
  expect(JSON.stringify({ id })).toBe('{"id":"wallet-1"}');
});
