import type { Benchmark } from '../benchmark/benchmark.js';
import { valuesOf } from './values-of.js';
import { openWorld } from './deposit-world.js';
import { measureDeposits } from './measure-deposits.js';
import { frameworkSide, groupedSide } from './sides/framework-side.js';

const load = { clientCount: 64, walletCount: 2_000 } as const;

/** Deposits to the wallets of two shards, against those of one; both shards are databases of one server here. */
export const twoShards: Benchmark = {
  name: 'deposits-two-shards',
  async run(context) {
    const one = await openWorld(context.server);
    const two = await openWorld(context.server, 2);
    const sides = [
      { ...frameworkSide(one), name: 'one shard' },
      { ...frameworkSide(two), name: 'two shards' },
      { ...groupedSide(one), name: 'one shard, grouped' },
      { ...groupedSide(two), name: 'two shards, grouped' },
    ] as const;
    const found = await measureDeposits(sides, load, context);
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
