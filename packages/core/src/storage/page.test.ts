import { expect, test } from 'vitest';

import { Wallet } from '../../test/wallet.js';
import { ShardIdentifier } from '../id/shard-identifier.js';
import { EmbeddedBitsShardingStrategy } from '../reads/repository-reads.js';
import { PageOrder, pageOf, pageSize } from './repository.js';

test.each([1, 2, 999, 1_000])('a page of %d items contains at most as many', (limit) => {
  expect(pageSize(limit)).toBe(limit);
});

test.each([-1, 0, 0.5, 1_001, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53])(
  'a page of %d items is refused',
  (limit) => {
    const message = `The limit of a page is ${limit}: pass a whole number from 1 to 1000`;
    expect(() => pageSize(limit)).toThrow(expect.objectContaining({ code: 'invalid-page-limit', message }));
  },
);

test.each(['', 'abc', '1e2', '0x10', '1.', '1.5.5', ' 1'])(
  'a cursor whose value is %j is invalid in the order of a decimal',
  (value) => {
    const wallets = [Wallet.open(ShardIdentifier.of(0, 0), 5n, new Date(0))];
    const id = wallets[0]!.id.value;
    const after = new PageOrder({ orderBy: 'balance' }).cursorOf({ value, id });
    const page = (): unknown =>
      pageOf<Wallet>(wallets, { limit: 1, orderBy: 'balance', after }, new EmbeddedBitsShardingStrategy());
    expect(page).toThrow(expect.objectContaining({ code: 'invalid-cursor' }));
  },
);
