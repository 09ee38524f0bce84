import { InvariantViolationError, ShardIdentifier, ShardedId } from '@framework/core';
import { like } from '@framework/testing/specification';
import { Big } from 'big.js';
import { describe, expect, test, vi } from 'vitest';

import { global, mexico, walletSpecification as spec, walletOf } from '../../test/wallet-specification.js';
import { WalletWithdrawMoneyAction } from '../wallet/wallet-withdraw-money-action.js';
import {
  Wallet,
  WalletMoneyDepositedEvent,
  WalletMoneyWithdrawnEvent,
  WalletTransferReceivedEvent,
} from '../wallet/wallet.js';
import { InitiateTransferAction } from './initiate-transfer-action.js';
import { TransferDecision, TransferReceivedEvent, TransferRefusedEvent } from './transfer-decision.js';
import { CompleteTransferAction, RefundTransferAction, SettleTransferAction } from './transfer-saga.js';
import {
  Transfer,
  TransferCompletedEvent,
  TransferInitiatedEvent,
  TransferRefundedEvent,
} from './transfer.js';

const amount = new Big('2.50');
const source = walletOf('10', { shard: mexico });
const destination = walletOf('1');
const transfer = Transfer.initiate(source, destination.id, amount, new Date(0));
const transferId = transfer.id;

describe('InitiateTransferAction', () => {
  const initiate = { sourceId: source.id, destId: destination.id, amount };

  test('takes the money out and sends it on its way, on the shard of the source', async () => {
    const environment = await spec
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
    expect(environment.commits.map(({ shard }) => shard)).toEqual([mexico]);
  });

  test.each([
    ['same-wallet', { destId: source.id }],
    ['invalid-amount', { amount: new Big(0) }],
    ['insufficient-funds', { amount: new Big('10.01') }],
    ['entity-not-found', { sourceId: ShardedId.generate(Wallet, mexico) }],
    ['unknown-shard', { destId: ShardedId.generate(Wallet, ShardIdentifier.of(7, 0)) }],
  ])('refuses with %s', async (code, wrong) => {
    await spec
      .given(source)
      .when(InitiateTransferAction, { ...initiate, ...wrong })
      .thenThrows(code);
  });

  test('reports an amount that is not positive', async () => {
    const execution = spec.given(source).when(InitiateTransferAction, { ...initiate, amount: new Big(0) });
    await expect(execution.thenResult(like(Transfer, {}))).rejects.toThrow(
      'Transfer amount must be positive',
    );
  });

  test('takes the money out once for requests under one key', async () => {
    const environment = await spec.given(source).environment();
    const key = { idempotencyKey: 'k-1' };
    const first = await environment.execute(InitiateTransferAction, initiate, key);
    expect(await environment.execute(InitiateTransferAction, initiate, key)).toEqual(first);
    expect(environment.commits).toHaveLength(1);
  });
});

describe('CompleteTransferAction', () => {
  const arrival = { transferId, destId: destination.id, amount, currency: 'EUR' };
  const decisionId = TransferDecision.idOf(arrival);

  test('credits the destination and records the receipt in one commit on its shard', async () => {
    const received = TransferDecision.received(arrival, new Date(0));
    const environment = await spec
      .given(destination)
      .when(CompleteTransferAction, arrival)
      .thenExpect({
        result: like(TransferDecision, { state: 'RECEIVED', ...arrival, version: 1 }),
        events: [
          new WalletMoneyDepositedEvent(destination.id, amount, new Big('3.50')),
          new WalletTransferReceivedEvent(destination.id, transferId.value, amount),
          new TransferReceivedEvent(decisionId, transferId, destination.id, amount, 'EUR'),
        ],
        models: [destination.deposit(amount), received],
      });
    expect(environment.commits.map(({ shard }) => shard)).toEqual([global]);
  });

  const full = walletOf('99999999999999999999');

  test.each([
    ['is in another currency', 'currency-mismatch', destination, { ...arrival, currency: 'USD' }],
    ['comes to a wallet that is closed', 'wallet-closed', destination.close(), arrival],
    ['comes to no wallet', 'wallet-not-found', source, arrival],
    ['is more than the wallet can hold', 'invalid-amount', full, { ...arrival, destId: full.id }],
  ])('refuses money that %s', async (_case, reason, wallet, refused) => {
    const { destId, currency } = refused;
    const environment = await spec
      .given(wallet)
      .when(CompleteTransferAction, refused)
      .thenExpect({
        events: [
          new TransferRefusedEvent(
            TransferDecision.idOf(refused),
            transferId,
            destId,
            amount,
            currency,
            reason,
          ),
        ],
        models: [TransferDecision.refused(refused, reason, new Date(0))],
      });
    expect(environment.commits.map(({ shard }) => shard)).toEqual([global]);
  });

  test.each([
    ['under the same key', 'k-1'],
    ['under another key', 'k-2'],
    ['without a key', undefined],
  ])('credits once and returns the decision when it is executed again manually %s', async (_how, key) => {
    const environment = await spec.given(destination).environment();
    const first = await environment.execute(CompleteTransferAction, arrival, { idempotencyKey: 'k-1' });
    const again = { ...(key !== undefined && { idempotencyKey: key }) };
    const { events } = environment;
    expect(await environment.execute(CompleteTransferAction, arrival, again)).toEqual(first);
    expect(environment.events).toEqual(events);
  });

  test('keeps a refusal even after its reason has gone', async () => {
    const emptied = { ...arrival, destId: full.id };
    const environment = await spec.given(full).environment();
    const refused = await environment.execute(CompleteTransferAction, emptied);
    await environment.execute(WalletWithdrawMoneyAction, { walletId: full.id, amount: new Big(1_000) });
    expect(await environment.execute(CompleteTransferAction, emptied)).toEqual(refused);
    expect(refused.state).toBe('REFUSED');
  });

  test.each([
    ['another amount', { amount: new Big(7) }],
    ['another destination', { destId: source.id }],
    ['another currency', { currency: 'USD' }],
  ])('fails for a transfer that was decided with %s', async (_what, wrong) => {
    const onShard = walletOf('1', { shard: mexico });
    const environment = await spec.given(onShard, source).environment();
    await environment.execute(CompleteTransferAction, { ...arrival, destId: onShard.id });
    const mistaken = environment.execute(CompleteTransferAction, {
      ...arrival,
      destId: onShard.id,
      ...wrong,
    });
    await expect(mistaken).rejects.toMatchObject({ code: 'invariant-violation' });
  });

  test('decides nothing when the shard of the destination is not configured', async () => {
    const destId = ShardedId.generate(Wallet, ShardIdentifier.of(7, 3));
    await spec.when(CompleteTransferAction, { ...arrival, destId }).thenThrows('unknown-shard');
  });

  test('decides nothing when it fails with a bug, even one with an error code', async () => {
    const receive = vi.spyOn(Wallet.prototype, 'receive').mockImplementation(() => {
      throw new InvariantViolationError('a bug');
    });
    try {
      await spec.given(destination).when(CompleteTransferAction, arrival).thenThrows('invariant-violation');
    } finally {
      receive.mockRestore();
    }
  });
});

test('SettleTransferAction completes a transfer once', async () => {
  const completed = transfer.complete();
  await spec
    .given(transfer)
    .when(SettleTransferAction, { transferId })
    .thenExpect({ events: [new TransferCompletedEvent(transferId)], models: [completed] });
  await spec.given(completed).when(SettleTransferAction, { transferId }).thenNothing();
});

describe('RefundTransferAction', () => {
  const refund = { transferId, reason: 'wallet-closed' };

  test.each([
    ['opened', source],
    ['closed', source.close()],
    ['full', source.deposit(new Big('99999999999999999989.99'))],
  ])('returns the money to a source that is %s in one commit', async (_state, wallet) => {
    const environment = await spec
      .given(wallet, transfer)
      .when(RefundTransferAction, refund)
      .thenExpect({
        events: [
          new WalletMoneyDepositedEvent(source.id, amount, wallet.balance.plus(amount)),
          new TransferRefundedEvent(transferId, 'wallet-closed'),
        ],
        models: [wallet.takeBack(amount), transfer.refund('wallet-closed')],
      });
    expect(environment.commits).toHaveLength(1);
  });

  test('returns no money of a completed transfer', async () => {
    await spec.given(source, transfer.complete()).when(RefundTransferAction, refund).thenNothing();
  });
});
