import { ShardIdentifier, ShardedId } from '@framework/core';
import { Big } from 'big.js';
import { expect, test } from 'vitest';
import * as z from 'zod';

import { Wallet } from '../wallet/wallet.js';
import { transferCodec } from './transfer-repository.js';
import { Transfer } from './transfer.js';

const shard = ShardIdentifier.of(1, 0);

test.each([
  ['INITIATED', undefined],
  ['COMPLETED', undefined],
  ['REFUNDED', 'wallet-closed'],
] as const)('a transfer that is %s is read from a stored answer as it was written', (state, reason) => {
  const transfer = new Transfer({
    id: ShardedId.generate(Transfer, shard),
    state,
    version: 2,
    createdDate: new Date('2026-01-02T03:04:05.006Z'),
    updatedDate: new Date('2026-01-02T03:04:06.007Z'),
    sourceId: ShardedId.generate(Wallet, shard),
    destId: ShardedId.generate(Wallet, ShardIdentifier.of(0, 0)),
    amount: new Big('2.50'),
    currency: 'EUR',
    reason,
  });
  const stored = JSON.stringify(z.encode(transferCodec, transfer));
  expect(z.decode(transferCodec, JSON.parse(stored))).toEqual(transfer);
});
