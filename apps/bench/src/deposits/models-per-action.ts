import { ActionExecutor, systemClock } from '@framework/core';
import type { Benchmark } from '../benchmark/benchmark.js';
import { measureContenders } from '../benchmark/measure-contenders.js';
import { principal } from '../load/bench-wallets.js';
import { runLoad } from '../load/run-load.js';
import { amount } from './deposit-contender.js';
import { DepositToManyAction } from './deposit-to-many-action.js';
import { type DepositEnvironment, openTargets, openEnvironment } from './deposit-environment.js';
import { fullDurationMs } from './measure-deposits.js';
import { verifyDeposits } from './verify-deposits.js';

const clientCount = 16;
const walletCount = 2_000;
const modelCounts = [1, 3, 10] as const;

/** Actions that change several models of one shard at once. */
export const modelsPerAction: Benchmark = {
  name: 'deposits-models',
  async run(context) {
    const environment = await openEnvironment(context.server);
    const measured = await measureContenders(
      modelCounts.map((count) => ({
        name: `${count}`,
        measure: () => measureActions(environment, count, fullDurationMs * context.scale),
      })),
      context,
    );
    await environment.close();
    return modelCounts.map((count) => ({
      title: `an action that changes ${count} ${count === 1 ? 'model' : 'models'}, ${clientCount} clients`,
      value: measured[`${count}`] ?? Number.NaN,
      unit: 'actions/s',
      measured: { 'models/s': (measured[`${count}`] ?? Number.NaN) * count },
    }));
  },
};

/** Actions per second; each client has its own wallets, because conflicts are not what is measured. */
async function measureActions(
  environment: DepositEnvironment,
  modelCount: number,
  durationMs: number,
): Promise<number> {
  const { databases, wallets } = environment.service;
  const executor = new ActionExecutor({
    namespace: 'bench',
    databases,
    repositories: [wallets],
    actions: [new DepositToManyAction(systemClock, wallets)],
  });
  const targets = await openTargets(environment, walletCount);
  const perClientCount = walletCount / clientCount;
  const load = await runLoad(
    async (client) => {
      const first = Math.floor(Math.random() * (perClientCount - modelCount + 1)) + client * perClientCount;
      const walletIds = targets.slice(first, first + modelCount).map(({ id }) => id);
      await executor.execute(principal, DepositToManyAction, { walletIds, amount: amount.toString() });
    },
    { clientCount, durationMs },
  );
  await verifyDeposits(environment, targets, load.count * modelCount, 'DepositToManyAction');
  return load.perSecond;
}
