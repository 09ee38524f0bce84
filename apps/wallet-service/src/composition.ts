import { fileURLToPath } from 'node:url';
import {
  ActionExecutor,
  type FrameworkConfig,
  type Principal,
  type RetryPolicy,
  openDatabases,
  systemClock,
} from '@framework/core';
import { postgres } from '@framework/drizzle-adapter';
import { Delivery } from '@framework/events';
import { CompleteTransferAction } from './actions/complete-transfer-action.js';
import { InitiateTransferAction } from './actions/initiate-transfer-action.js';
import { NotifyRecipientAction } from './actions/notify-recipient-action.js';
import { ReceiveTransferAction } from './actions/receive-transfer-action.js';
import { RefundTransferAction } from './actions/refund-transfer-action.js';
import { WalletCloseAction } from './actions/wallet-close-action.js';
import { WalletCreateAction } from './actions/wallet-create-action.js';
import { WalletDepositMoneyAction } from './actions/wallet-deposit-money-action.js';
import { WalletTransferAction } from './actions/wallet-transfer-action.js';
import { WalletWithdrawMoneyAction } from './actions/wallet-withdraw-money-action.js';
import { CompleteTransfer } from './handlers/complete-transfer.js';
import { NotifyRecipientOnDeposit } from './handlers/notify-recipient-on-deposit.js';
import { ReceiveTransfer } from './handlers/receive-transfer.js';
import type { WalletService } from './http/wallet-service.js';
import { NotificationRepository } from './notification/notification-repository.js';
import { TransferRepository } from './transfer/transfer-repository.js';
import { WalletRepository } from './wallet/wallet-repository.js';

/** This file stands as deep in `src` as the bundle does in `dist`. */
const migrationsFolder = fileURLToPath(new URL('../migrations', import.meta.url));

/** Puts the wallet service together: the only place that names concrete adapters. Does not wait for databases. */
export function composeWalletService(
  config: FrameworkConfig,
  options: {
    readonly retry?: Partial<RetryPolicy>;
    readonly onDeliveryError?: (error: unknown) => void;
  } = {},
): WalletService {
  const databases = openDatabases(
    config.sharding,
    postgres({ migrationsFolder, applicationName: 'wallet-service' }),
  );
  const wallets = new WalletRepository(databases);
  const transfers = new TransferRepository(databases);
  const notifications = new NotificationRepository(databases);
  const executor = new ActionExecutor({
    ...(options.retry && { retry: options.retry }),
    namespace: config.namespace,
    databases,
    repositories: [wallets, transfers, notifications],
    actions: [
      new WalletCreateAction(systemClock),
      new WalletDepositMoneyAction(systemClock, wallets),
      new WalletWithdrawMoneyAction(systemClock, wallets),
      new WalletCloseAction(systemClock, wallets),
      new WalletTransferAction(systemClock, wallets),
      new InitiateTransferAction(systemClock, wallets),
      new ReceiveTransferAction(systemClock, wallets),
      new CompleteTransferAction(systemClock, transfers),
      new RefundTransferAction(systemClock, wallets, transfers),
      new NotifyRecipientAction(systemClock),
    ],
  });
  const delivery = new Delivery({
    databases,
    executor,
    handlers: [new ReceiveTransfer(transfers), new CompleteTransfer(), new NotifyRecipientOnDeposit()],
    ...(options.onDeliveryError && { onError: options.onDeliveryError }),
  });
  return { databases, wallets, transfers, executor, delivery, principalOf };
}

/** The same for everyone in this example; a real service reads a token of the request. */
function principalOf(_request: Request): Principal {
  return { name: 'wallet-service' };
}
