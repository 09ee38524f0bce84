import { ShardIdentifier, ShardedId } from '@framework/core';
import { like } from '@framework/testing/specification';
import { Big } from 'big.js';
import { describe, expect, test } from 'vitest';

import { mexico, walletSpecification as spec, walletOf } from '../../test/wallet-specification.js';
import { Wallet, WalletMoneyDepositedEvent, WalletTransferReceivedEvent } from '../wallet/wallet.js';
import { TransferReceivedEvent, TransferRefusedEvent } from './transfer-decision.js';
import { Transfer, TransferInitiatedEvent } from './transfer.js';

const amount = new Big('2.50');
const source = walletOf('10');
const destination = walletOf('1', { shard: mexico });
const transfer = Transfer.initiate(source, destination.id, amount, new Date(0));
const initiated = new TransferInitiatedEvent(transfer.id, source.id, destination.id, amount, 'EUR');

describe('ReceiveTransfer', () => {
  test('credits the destination once for an event that is delivered twice', async () => {
    await spec
      .given(source, destination, transfer)
      .whenHandled(initiated, { times: 2 })
      .thenEvents(
        new WalletMoneyDepositedEvent(destination.id, amount, new Big('3.50')),
        new WalletTransferReceivedEvent(destination.id, transfer.id.value, amount),
        like(TransferReceivedEvent, { transferId: transfer.id, amount }),
      );
  });

  test('records a refusal, and leaves the refund to its handler, when the destination refuses the money', async () => {
    await spec
      .given(source, destination.close(), transfer)
      .whenHandled(initiated)
      .thenExpect({
        attempts: 1,
        events: [like(TransferRefusedEvent, { transferId: transfer.id, reason: 'wallet-closed' })],
      });
  });

  test('is retried forever, without a refund, while the shard of the destination is not configured', async () => {
    const nowhere = ShardedId.generate(Wallet, ShardIdentifier.of(7, 3));
    const lost = new TransferInitiatedEvent(transfer.id, source.id, nowhere, amount, 'EUR');
    const handled = spec.given(source, transfer).whenHandled(lost).thenNothing();
    await expect(handled).rejects.toMatchObject({ code: 'never-idle' });
  });
});
