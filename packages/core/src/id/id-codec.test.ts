import { expect, test } from 'vitest';
import * as z from 'zod';

import { Wallet } from '../../test/wallet.js';
import { Id, ShardedId, idCodec, shardedIdCodec } from './id.js';

const text = '018f3c00-0000-7abc-8040-000000000000';
const schema = z.object({ walletId: shardedIdCodec(Wallet) });

test('a codec reads text as a sharded id', () => {
  const { walletId } = z.decode(schema, { walletId: text.toUpperCase() });
  expect(walletId).toBeInstanceOf(ShardedId);
  expect(walletId.value).toBe(text);
});

test('a codec writes a sharded id as text', () => {
  expect(z.encode(schema, { walletId: ShardedId.of(Wallet, text) })).toEqual({ walletId: text });
});

test.each(['wallet-1', '018f3c00-0000-4abc-8040-000000000000', ''])(
  'a codec reports the path of %j, which is not a sharded id, instead of throwing',
  (walletId) => {
    const { success, error } = z.safeDecode(schema, { walletId });
    expect(success).toBe(false);
    expect(error?.issues).toMatchObject([{ code: 'invalid_format', path: ['walletId'] }]);
  },
);

test('a codec does not write an id without a shard, and says how to make one', () => {
  const walletId = Id.of(Wallet, text) as ShardedId<Wallet>;
  const [issue] = z.safeEncode(schema, { walletId }).error?.issues ?? [];
  expect(issue).toMatchObject({ path: ['walletId'], message: expect.stringContaining('ShardedId.of') });
});

test('a codec does not write a value that is not an id', () => {
  const walletId = text as unknown as ShardedId<Wallet>;
  expect(z.safeEncode(schema, { walletId }).error?.issues).toMatchObject([{ path: ['walletId'] }]);
});

test('a codec reads and writes the text of any other id', () => {
  const id = Id.of(Wallet, 'wallet no. 1');
  expect(z.encode(idCodec(Wallet), id)).toBe('wallet no. 1');
  expect(z.decode(idCodec(Wallet), 'wallet no. 1')).toEqual(id);
});

test.each(['', 'x'.repeat(256), 'a\u0000b', '\ud800'])('a codec does not read %j as an id', (value) => {
  expect(z.safeDecode(idCodec(Wallet), value).success).toBe(false);
});
