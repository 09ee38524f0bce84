import { ActionExecutor, type ExecutorOptions, systemClock } from '@framework/core';
import { WalletDepositMoneyAction } from 'wallet-service';
import { principal } from '../../load/bench-wallets.js';
import { type DepositContender, amount } from '../deposit-contender.js';
import type { DepositEnvironment } from '../deposit-environment.js';

/** What an executor needs to commit concurrent actions together. */
const groupedCommit: Partial<ExecutorOptions> = { groupCommit: true };

/**
 * Deposits with the framework, each action committed on its own.
 *
 * @param options what the executor has beside its defaults
 */
export function frameworkContender(
  environment: DepositEnvironment,
  options: Partial<ExecutorOptions> = {},
): DepositContender<'framework'> {
  return { ...contender(environment, options), name: 'framework' };
}

/** Deposits with the framework, concurrent actions committed together. */
export function groupedContender(environment: DepositEnvironment): DepositContender<'framework, grouped'> {
  return { ...contender(environment, groupedCommit), name: 'framework, grouped' };
}

function contender(
  environment: DepositEnvironment,
  options: Partial<ExecutorOptions>,
): Omit<DepositContender, 'name'> {
  const { databases, wallets } = environment.service;
  const executor = new ActionExecutor({
    namespace: 'bench',
    databases,
    repositories: [wallets],
    actions: [new WalletDepositMoneyAction(systemClock, wallets)],
    ...options,
  });
  return {
    environment,
    deposit: async ({ id }) => {
      await executor.execute(principal, WalletDepositMoneyAction, { walletId: id, amount });
    },
    // The connections belong to the service.
    close: async () => undefined,
  };
}
