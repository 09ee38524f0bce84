import { type ShardIdentifier, ShardedId } from '@framework/core';
import { like } from '@framework/testing/specification';
import { Big } from 'big.js';
import { describe, expect, test } from 'vitest';

import { global, mexico, walletSpecification as spec, walletOf } from '../../test/wallet-specification.js';
import {
  Wallet,
  WalletMoneyDepositedEvent,
  WalletMoneyWithdrawnEvent,
  WalletTransferReceivedEvent,
} from '../wallet/wallet.js';
import { InitiateTransferAction } from './initiate-transfer-action.js';
import { TransferDecision, TransferReceivedEvent, TransferRefusedEvent } from './transfer-decision.js';
import {
  Transfer,
  TransferCompletedEvent,
  TransferInitiatedEvent,
  TransferRefundedEvent,
} from './transfer.js';

const amount = new Big('25.50');
const source = walletOf('100');
const destination = walletOf('1', { shard: mexico });

describe('a transfer', () => {
  test.each([
    ['between shards', mexico],
    ['within a shard', global],
  ])('%s takes the money out, puts it in, and is complete', async (_where, shard: ShardIdentifier) => {
    const dest = walletOf('1', { shard });
    await spec
      .given(source, dest)
      .when(InitiateTransferAction, { sourceId: source.id, destId: dest.id, amount })
      .delivered()
      .thenExpect({
        result: like(Transfer, { state: 'INITIATED' }),
        events: [
          new WalletMoneyWithdrawnEvent(source.id, amount, new Big('74.50')),
          like(TransferInitiatedEvent, { sourceId: source.id, destId: dest.id, amount, currency: 'EUR' }),
          new WalletMoneyDepositedEvent(dest.id, amount, new Big('26.50')),
          like(WalletTransferReceivedEvent, { modelId: dest.id.value, amount }),
          like(TransferReceivedEvent, { destId: dest.id, amount }),
          like(TransferCompletedEvent, {}),
        ],
        models: [
          source.withdraw(amount),
          like(Transfer, { state: 'COMPLETED' }),
          dest.deposit(amount),
          like(TransferDecision, { state: 'RECEIVED' }),
        ],
      });
  });

  test.each([
    ['was closed', 'wallet-closed', destination.close()],
    ['holds another currency', 'currency-mismatch', walletOf('1', { shard: mexico, currency: 'USD' })],
    ['does not exist', 'wallet-not-found', undefined],
  ])('returns the money when the destination %s', async (_case, reason, dest) => {
    const destId = dest?.id ?? ShardedId.generate(Wallet, mexico);
    const given = dest === undefined ? spec.given(source) : spec.given(source, dest);
    await given
      .when(InitiateTransferAction, { sourceId: source.id, destId, amount })
      .delivered()
      .thenExpect({
        events: [
          new WalletMoneyWithdrawnEvent(source.id, amount, new Big('74.50')),
          like(TransferInitiatedEvent, { destId }),
          like(TransferRefusedEvent, { destId, reason }),
          new WalletMoneyDepositedEvent(source.id, amount, new Big('100')),
          like(TransferRefundedEvent, { reason }),
        ],
        models: [
          source,
          like(Transfer, { state: 'REFUNDED', reason }),
          like(TransferDecision, { state: 'REFUSED', reason }),
        ],
      });
  });

  test('has one effect even if all its events are delivered again', async () => {
    const environment = await spec
      .given(source, destination)
      .when(InitiateTransferAction, { sourceId: source.id, destId: destination.id, amount })
      .delivered()
      .thenModels(
        source.withdraw(amount),
        like(Transfer, {}),
        destination.deposit(amount),
        like(TransferDecision, {}),
      );
    const { events } = environment;
    await environment.redeliverAll();
    expect(environment.events).toEqual(events);
  });
});
