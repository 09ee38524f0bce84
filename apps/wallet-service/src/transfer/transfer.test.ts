import { ShardIdentifier, ShardedId } from '@framework/core';
import { Big } from 'big.js';
import { describe, expect, test } from 'vitest';

import { Wallet } from '../wallet/wallet.js';
import {
  Transfer,
  TransferCompletedEvent,
  TransferInitiatedEvent,
  TransferRefundedEvent,
} from './transfer.js';

const now = new Date('2026-01-02T03:04:05.006Z');
const source = Wallet.open(ShardIdentifier.of(1, 0), 'owner-1', 'EUR', new Big(10), now);
const destination = Wallet.open(ShardIdentifier.of(0, 0), 'owner-2', 'EUR', new Big(0), now);

describe('a transfer', () => {
  test.each(['sourceId', 'destId', 'amount', 'currency'])('needs its %s', (field) => {
    const id = ShardedId.generate(Transfer, ShardIdentifier.of(0, 0));
    const fields = {
      ...({ id, state: 'INITIATED', createdDate: now, sourceId: source.id, destId: destination.id } as const),
      amount: new Big(1),
      currency: 'EUR',
      reason: undefined,
    };
    expect(() => new Transfer({ ...fields, [field]: null })).toThrow(
      expect.objectContaining({ code: 'invalid-model', message: `${field} cannot be null` }),
    );
  });
});

describe('an initiated transfer', () => {
  const transfer = Transfer.initiate(source, destination.id, new Big('2.5'), now);

  test('records the money in transit', () => {
    expect(transfer).toMatchObject({ state: 'INITIATED', reason: undefined });
    expect(transfer.events).toEqual([
      new TransferInitiatedEvent(transfer.id, source.id, destination.id, new Big('2.5'), 'EUR'),
    ]);
  });

  test('can be completed', () => {
    const completed = transfer.complete();
    expect(completed.state).toBe('COMPLETED');
    expect(completed.events.at(-1)).toEqual(new TransferCompletedEvent(transfer.id));
  });

  test('can be refunded, with the reason', () => {
    const refunded = transfer.refund('wallet-closed');
    expect(refunded).toMatchObject({ state: 'REFUNDED', reason: 'wallet-closed' });
    expect(refunded.events.at(-1)).toEqual(new TransferRefundedEvent(transfer.id, 'wallet-closed'));
  });
});
