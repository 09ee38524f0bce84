import { type Repository, ShardIdentifier, ShardedId } from '@framework/core';
import { type Specification, specification } from '@framework/testing/specification';
import { Big } from 'big.js';

import {
  Notification,
  NotifyRecipientAction,
  NotifyRecipientOnDeposit,
} from '../src/notification/notify-recipient.js';
import { InitiateTransferAction } from '../src/transfer/initiate-transfer-action.js';
import { TransferDecision } from '../src/transfer/transfer-decision.js';
import {
  CompleteTransferAction,
  ReceiveTransfer,
  RefundTransfer,
  RefundTransferAction,
  SettleTransfer,
  SettleTransferAction,
} from '../src/transfer/transfer-saga.js';
import { Transfer } from '../src/transfer/transfer.js';
import { WalletTransferAction } from '../src/transfer/wallet-transfer-action.js';
import { WalletCloseAction } from '../src/wallet/wallet-close-action.js';
import { WalletCreateAction } from '../src/wallet/wallet-create-action.js';
import { WalletDepositMoneyAction } from '../src/wallet/wallet-deposit-money-action.js';
import { WalletWithdrawMoneyAction } from '../src/wallet/wallet-withdraw-money-action.js';
import { Wallet } from '../src/wallet/wallet.js';
import { groupCommit } from './group-commit.js';

export const global: ShardIdentifier = ShardIdentifier.of(0, 0);
export const mexico: ShardIdentifier = ShardIdentifier.of(1, 0);
const shards: readonly [ShardIdentifier, ...ShardIdentifier[]] = [global, mexico];
export const ownerId = '6f1c0c5e-6d5b-4a53-9b1e-0d5f7c2b9a10';

/** The service's actions and handlers on two shards in memory, composed as on PostgreSQL. */
export const walletSpecification: Specification = walletSpecificationWhile(() => undefined);

/**
 * The specification of the service, with a function that is called whenever the destination of a transfer is asked to decide.
 *
 * @param happens receives the time for which the specification has run so far, in milliseconds, and may throw
 */
export function walletSpecificationWhile(happens: (elapsedMs: number) => void): Specification {
  return specification({
    models: [Wallet, Transfer, TransferDecision, Notification],
    shards,
    groupCommit,
    actions: ({ clock, repository }) => {
      const startedMs = clock.now().getTime();
      const wallets = repository(Wallet);
      const transfers = repository(Transfer);
      // Only the action with which a destination decides gets this repository.
      const destinations = {
        findById: async (id) => {
          happens(clock.now().getTime() - startedMs);
          return wallets.findById(id);
        },
      } as Repository<Wallet>;
      return [
        new WalletCreateAction(clock),
        new WalletDepositMoneyAction(clock, wallets),
        new WalletWithdrawMoneyAction(clock, wallets),
        new WalletCloseAction(clock, wallets),
        new WalletTransferAction(clock, wallets),
        new InitiateTransferAction(clock, wallets, { shards }),
        new CompleteTransferAction(clock, destinations, repository(TransferDecision)),
        new SettleTransferAction(clock, transfers),
        new RefundTransferAction(clock, wallets, transfers),
        new NotifyRecipientAction(clock),
      ];
    },
    handlers: () => [
      new ReceiveTransfer(),
      new SettleTransfer(),
      new RefundTransfer(),
      new NotifyRecipientOnDeposit(),
    ],
  });
}

/** A wallet that was opened before a specification begins. */
export function walletOf(
  balance: string,
  { shard = global, currency = 'EUR' }: { readonly shard?: ShardIdentifier; readonly currency?: string } = {},
): Wallet {
  return new Wallet({
    id: ShardedId.generate(Wallet, shard),
    state: 'OPENED',
    createdDate: new Date('2025-12-31T23:59:59Z'),
    ownerId,
    currency,
    balance: new Big(balance),
  });
}
