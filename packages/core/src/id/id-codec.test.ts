import { expect, test } from 'vitest';
import * as z from 'zod';

import { Wallet } from '../../test/wallet.js';
import { Id, ShardedId, idCodec, shardedIdCodec } from './id.js';

const text = '018f3c00-0000-7abc-8040-000000000000';
const schema = z.object({ walletId: shardedIdCodec(Wallet) });

test('reads text as a sharded id', () => {
  const { walletId } = z.decode(schema, { walletId: text.toUpperCase() });
  expect(walletId).toBeInstanceOf(ShardedId);
  expect(walletId.value).toBe(text);
});

test('writes a sharded id as text', () => {
  expect(z.encode(schema, { walletId: ShardedId.of(Wallet, text) })).toEqual({ walletId: text });
});

test.each(['wallet-1', '018f3c00-0000-4abc-8040-000000000000', ''])(
  'names the path of %j, which is no sharded id, instead of throwing',
  (walletId) => {
    const { success, error } = z.safeDecode(schema, { walletId });
    expect(success).toBe(false);
    expect(error?.issues).toMatchObject([{ code: 'invalid_format', path: ['walletId'] }]);
  },
);

test('does not write an id that carries no shard by its class, and says how to make one that does', () => {
  const walletId = Id.of(Wallet, text) as ShardedId<Wallet>;
  const [issue] = z.safeEncode(schema, { walletId }).error?.issues ?? [];
  expect(issue).toMatchObject({ path: ['walletId'], message: expect.stringContaining('ShardedId.of') });
});

test('does not write what is no id', () => {
  const walletId = text as unknown as ShardedId<Wallet>;
  expect(z.safeEncode(schema, { walletId }).error?.issues).toMatchObject([{ path: ['walletId'] }]);
});

test('reads and writes the text of any other id', () => {
  const id = Id.of(Wallet, 'wallet no. 1');
  expect(z.encode(idCodec(Wallet), id)).toBe('wallet no. 1');
  expect(z.decode(idCodec(Wallet), 'wallet no. 1')).toEqual(id);
});

test.each(['', 'x'.repeat(256), 'a\u0000b', '\ud800'])('reads no id of %j', (value) => {
  expect(z.safeDecode(idCodec(Wallet), value).success).toBe(false);
});
