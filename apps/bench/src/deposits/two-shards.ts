import type { Benchmark } from '../benchmark/benchmark.js';
import { valuesOf, measureDeposits } from './measure-deposits.js';
import { openEnvironment } from './deposit-environment.js';
import { frameworkContender, groupedContender } from './contenders/framework-contender.js';

const load = { clientCount: 64, walletCount: 2_000 } as const;

/** Deposits to the wallets of two shards, compared with those of one; both shards are databases of one server here. */
export const twoShards: Benchmark = {
  name: 'deposits-two-shards',
  async run(context) {
    const one = await openEnvironment(context.server);
    const two = await openEnvironment(context.server, 2);
    const contenders = [
      { ...frameworkContender(one), name: 'one shard' },
      { ...frameworkContender(two), name: 'two shards' },
      { ...groupedContender(one), name: 'one shard, grouped' },
      { ...groupedContender(two), name: 'two shards, grouped' },
    ] as const;
    const found = await measureDeposits(contenders, load, context);
    await one.close();
    await two.close();
    const measured = valuesOf(found, 'perSecond');
    return (['two shards', 'two shards, grouped'] as const).map((name) => ({
      title: `wallets of ${name}, 64 clients`,
      value: found[name].perSecond,
      unit: 'deposits/s',
      measured,
    }));
  },
};
