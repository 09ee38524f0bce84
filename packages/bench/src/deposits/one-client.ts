import type { Benchmark } from '../benchmark/benchmark.js';
import { valuesOf } from './values-of.js';
import { openWorld } from './deposit-world.js';
import { measureDeposits } from './measure-deposits.js';
import { frameworkSide, groupedSide } from './sides/framework-side.js';

const load = { clientCount: 1, walletCount: 2_000 } as const;

/** Deposits one after the other: what grouped commit costs when there is nobody to share it with. */
export const oneClient: Benchmark = {
  name: 'deposits-1-client',
  async run(context) {
    const world = await openWorld(context.server);
    const found = await measureDeposits([frameworkSide(world), groupedSide(world)], load, context);
    await world.close();
    return [
      {
        title: 'one client: latency (median), grouped commit ÷ per action',
        value: found['framework, grouped'].p50Ms / found.framework.p50Ms,
        unit: '×',
        atMost: 1.05,
        measured: valuesOf(found, 'p50Ms'),
      },
    ];
  },
};
