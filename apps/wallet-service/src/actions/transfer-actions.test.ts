import { ShardedId } from '@framework/core';
import { like } from '@framework/testing/specification';
import { Big } from 'big.js';
import { describe, expect, test } from 'vitest';
import { mexico, walletOf, walletSpecification as spec } from '../../test/wallet-specification.js';
import {
  Transfer,
  TransferCompletedEvent,
  TransferInitiatedEvent,
  TransferRefundedEvent,
} from '../transfer/transfer.js';
import {
  Wallet,
  WalletMoneyDepositedEvent,
  WalletMoneyWithdrawnEvent,
  WalletTransferReceivedEvent,
} from '../wallet/wallet.js';
import { CompleteTransferAction } from './complete-transfer-action.js';
import { InitiateTransferAction } from './initiate-transfer-action.js';
import { ReceiveTransferAction } from './receive-transfer-action.js';
import { RefundTransferAction } from './refund-transfer-action.js';

const amount = new Big('2.50');
const source = walletOf('10', { shard: mexico });
const destination = walletOf('1');
const transfer = Transfer.initiate(source, destination.id, amount, new Date(0));
const transferId = transfer.id;

describe('InitiateTransferAction', () => {
  const initiate = { sourceId: source.id, destId: destination.id, amount };

  test('takes the money out and sends it on its way, on the shard of the source', async () => {
    const world = await spec
      .given(source)
      .when(InitiateTransferAction, initiate)
      .thenExpect({
        result: like(Transfer, { ...initiate, state: 'INITIATED', currency: 'EUR' }),
        events: [
          new WalletMoneyWithdrawnEvent(source.id, amount, new Big('7.50')),
          like(TransferInitiatedEvent, { ...initiate, currency: 'EUR' }),
        ],
        models: [source.withdraw(amount), like(Transfer, initiate)],
      });
    expect(world.commits.map(({ shard }) => shard)).toEqual([mexico]);
  });

  test.each([
    ['same-wallet', { destId: source.id }],
    ['invalid-amount', { amount: new Big(0) }],
    ['insufficient-funds', { amount: new Big('10.01') }],
    ['entity-not-found', { sourceId: ShardedId.generate(Wallet, mexico) }],
  ])('refuses by %s', async (code, wrong) => {
    await spec
      .given(source)
      .when(InitiateTransferAction, { ...initiate, ...wrong })
      .thenThrows(code);
  });

  test('takes the money out once for requests under one key', async () => {
    const world = await spec.given(source).world();
    const key = { idempotencyKey: 'k-1' };
    const first = await world.execute(InitiateTransferAction, initiate, key);
    expect(await world.execute(InitiateTransferAction, initiate, key)).toEqual(first);
    expect(world.commits).toHaveLength(1);
  });
});

describe('ReceiveTransferAction', () => {
  const receive = { transferId, destId: destination.id, amount, currency: 'EUR' };

  test('puts the money into the destination', async () => {
    await spec
      .given(destination)
      .when(ReceiveTransferAction, receive)
      .thenEvents(
        new WalletMoneyDepositedEvent(destination.id, amount, new Big('3.50')),
        new WalletTransferReceivedEvent(destination.id, transferId.value, amount),
      );
  });

  test.each([
    ['currency-mismatch', destination, 'USD'],
    ['wallet-closed', destination.close(), 'EUR'],
  ])('refuses by %s', async (code, wallet, currency) => {
    await spec
      .given(wallet)
      .when(ReceiveTransferAction, { ...receive, currency })
      .thenThrows(code);
  });
});

test('CompleteTransferAction ends a transfer, once', async () => {
  const completed = transfer.complete();
  await spec
    .given(transfer)
    .when(CompleteTransferAction, { transferId })
    .thenExpect({ events: [new TransferCompletedEvent(transferId)], models: [completed] });
  await spec.given(completed).when(CompleteTransferAction, { transferId }).thenNothing();
});

describe('RefundTransferAction', () => {
  const refund = { transferId, reason: 'wallet-closed' };

  test.each([
    ['opened', source],
    ['closed', source.close()],
  ])('gives the money back to a source that is %s, in one commit', async (_state, wallet) => {
    const world = await spec
      .given(wallet, transfer)
      .when(RefundTransferAction, refund)
      .thenExpect({
        events: [
          new WalletMoneyDepositedEvent(source.id, amount, new Big('12.50')),
          new TransferRefundedEvent(transferId, 'wallet-closed'),
        ],
        models: [wallet.takeBack(amount), transfer.refund('wallet-closed')],
      });
    expect(world.commits).toHaveLength(1);
  });

  test('gives nothing back of a transfer that is over', async () => {
    await spec.given(source, transfer.complete()).when(RefundTransferAction, refund).thenNothing();
  });
});
