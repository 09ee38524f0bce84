import { ActionExecutor, type ExecutorOptions, systemClock } from '@framework/core';
import { WalletDepositMoneyAction } from 'wallet-service';
import { principal } from '../../load/bench-wallets.js';
import { type DepositSide, amount } from '../deposit-side.js';
import type { DepositWorld } from '../deposit-world.js';

/** What an executor needs in order to commit concurrent actions together. */
const groupedCommit: Partial<ExecutorOptions> = { groupCommit: true };

/** Deposits by the framework, each action committed on its own. */
export function frameworkSide(world: DepositWorld): DepositSide<'framework'> {
  return { ...side(world, {}), name: 'framework' };
}

/** Deposits by the framework, concurrent actions committed together. */
export function groupedSide(world: DepositWorld): DepositSide<'framework, grouped'> {
  return { ...side(world, groupedCommit), name: 'framework, grouped' };
}

function side(world: DepositWorld, options: Partial<ExecutorOptions>): Omit<DepositSide, 'name'> {
  const { databases, wallets } = world.service;
  const executor = new ActionExecutor({
    namespace: 'bench',
    databases,
    repositories: [wallets],
    actions: [new WalletDepositMoneyAction(systemClock, wallets)],
    ...options,
  });
  return {
    world,
    deposit: async ({ id }) => {
      await executor.execute(principal, WalletDepositMoneyAction, { walletId: id, amount });
    },
    // Its connections are the service's.
    close: async () => undefined,
  };
}
