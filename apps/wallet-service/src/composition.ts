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
import { WalletCloseAction } from './actions/wallet-close-action.js';
import { WalletCreateAction } from './actions/wallet-create-action.js';
import { WalletDepositMoneyAction } from './actions/wallet-deposit-money-action.js';
import { WalletTransferAction } from './actions/wallet-transfer-action.js';
import { WalletWithdrawMoneyAction } from './actions/wallet-withdraw-money-action.js';
import type { WalletService } from './http/wallet-service.js';
import { TransferRepository } from './transfer/transfer-repository.js';
import { WalletRepository } from './wallet/wallet-repository.js';

/** This file stands as deep in `src` as the bundle does in `dist`. */
const migrationsFolder = fileURLToPath(new URL('../migrations', import.meta.url));

/** Puts the wallet service together: the only place that names concrete adapters. Does not wait for databases. */
export function composeWalletService(
  config: FrameworkConfig,
  options: { readonly retry?: Partial<RetryPolicy> } = {},
): WalletService {
  const databases = openDatabases(
    config.sharding,
    postgres({ migrationsFolder, applicationName: 'wallet-service' }),
  );
  const wallets = new WalletRepository(databases);
  const transfers = new TransferRepository(databases);
  const executor = new ActionExecutor({
    ...options,
    namespace: config.namespace,
    databases,
    repositories: [wallets, transfers],
    actions: [
      new WalletCreateAction(systemClock),
      new WalletDepositMoneyAction(systemClock, wallets),
      new WalletWithdrawMoneyAction(systemClock, wallets),
      new WalletCloseAction(systemClock, wallets),
      new WalletTransferAction(systemClock, wallets),
    ],
  });
  return { databases, wallets, transfers, executor, principalOf };
}

/** The same for everyone in this example; a real service reads a token of the request. */
function principalOf(_request: Request): Principal {
  return { name: 'wallet-service' };
}
