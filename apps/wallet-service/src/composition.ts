import { type FrameworkConfig, type DatabaseRegistry, type Repository, systemClock } from '@framework/core';
import type { ModelMapper } from '@framework/core/adapter';
import { PgRepository } from '@framework/drizzle-adapter';
import type { Application, Service } from '@framework/service';

import { notifications } from './notification/notifications-table.js';
import {
  Notification,
  NotifyRecipientAction,
  NotifyRecipientOnDeposit,
} from './notification/notify-recipient.js';
import { walletExtension } from './operator/wallet-extension.js';
import { WalletAccess, handlersOnly, securitySettings } from './security/wallet-access.js';
import { InitiateTransferAction } from './transfer/initiate-transfer-action.js';
import { TransferDecision } from './transfer/transfer-decision.js';
import {
  CompleteTransferAction,
  ReceiveTransfer,
  RefundTransfer,
  RefundTransferAction,
  SettleTransfer,
  SettleTransferAction,
} from './transfer/transfer-saga.js';
import { Transfer } from './transfer/transfer.js';
import { transferDecisions, transfers } from './transfer/transfer-tables.js';
import { WalletTransferAction } from './transfer/wallet-transfer-action.js';
import { AmountLimits, maximumAmounts } from './wallet/amount-limits.js';
import { WalletCloseAction } from './wallet/wallet-close-action.js';
import { WalletCreateAction } from './wallet/wallet-create-action.js';
import { WalletDepositMoneyAction } from './wallet/wallet-deposit-money-action.js';
import { PgWalletRepository, type WalletRepository } from './wallet/wallet-repository.js';
import { WalletWithdrawMoneyAction } from './wallet/wallet-withdraw-money-action.js';

/** The wallet service's own parts, which its routes and operators use. */
export interface WalletApplication extends Application {
  readonly wallets: WalletRepository & ModelMapper;
  readonly transfers: Repository<Transfer>;
  /** Who may read what. The actions have policies of their own. */
  readonly access: WalletAccess;
}

/** The running application, as its routes see it. */
export type WalletService = Service<WalletApplication>;

/** A repository for each model of the service. */
export interface WalletStorage {
  readonly databases: DatabaseRegistry;
  readonly wallets: WalletRepository & ModelMapper;
  readonly transfers: Repository<Transfer> & ModelMapper;
  readonly decisions: Repository<TransferDecision> & ModelMapper;
  readonly notifications: ModelMapper;
}

/** Composes the wallet service on PostgreSQL. */
export function composeWallets(context: {
  readonly config: FrameworkConfig;
  readonly databases: DatabaseRegistry;
}): WalletApplication {
  const { config, databases } = context;
  const storage = {
    databases,
    wallets: new PgWalletRepository(databases),
    transfers: new PgRepository({ model: Transfer, table: transfers, databases }),
    decisions: new PgRepository({ model: TransferDecision, table: transferDecisions, databases }),
    notifications: new PgRepository({ model: Notification, table: notifications, databases }),
  };
  return { ...composeOn(storage, config), extensions: [walletExtension(storage)] };
}

/** Composes the wallet service on a storage. */
export function composeOn(storage: WalletStorage, config: FrameworkConfig): WalletApplication {
  const { databases, wallets, transfers: sent, decisions, notifications: notified } = storage;
  const access = new WalletAccess(wallets, securitySettings(config));
  const limits = new AmountLimits(maximumAmounts(config), wallets);
  return {
    repositories: [wallets, sent, decisions, notified],
    requirePolicies: true,
    actions: [
      new WalletCreateAction(systemClock, limits.opening(access.opening)),
      new WalletDepositMoneyAction(systemClock, wallets, limits.moving(access.owning)),
      new WalletWithdrawMoneyAction(systemClock, wallets, limits.moving(access.owning)),
      new WalletCloseAction(systemClock, wallets, access.closing),
      new WalletTransferAction(systemClock, wallets, limits.sending(access.sending)),
      new InitiateTransferAction(systemClock, wallets, databases, limits.sending(access.sending)),
      new CompleteTransferAction(systemClock, wallets, decisions, handlersOnly),
      new SettleTransferAction(systemClock, sent, handlersOnly),
      new RefundTransferAction(systemClock, wallets, sent, handlersOnly),
      new NotifyRecipientAction(systemClock, handlersOnly),
    ],
    handlers: [
      new ReceiveTransfer(),
      new SettleTransfer(),
      new RefundTransfer(),
      new NotifyRecipientOnDeposit(),
    ],
    wallets,
    transfers: sent,
    access,
  };
}
