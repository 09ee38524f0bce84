import type { Benchmark } from '../benchmark/benchmark.js';
import { valuesOf } from './values-of.js';
import { openWorld } from './deposit-world.js';
import { measureDeposits } from './measure-deposits.js';
import { frameworkSide, groupedSide } from './sides/framework-side.js';
import { selectForUpdateSide } from './sides/round-trips-side.js';

const load = { clientCount: 64, walletCount: 1 } as const;

/** Deposits of 64 clients to one wallet; a call that fails fails the run. */
export const hotWallet: Benchmark = {
  name: 'deposits-hot-wallet',
  async run(context) {
    const world = await openWorld(context.server);
    const sides = [selectForUpdateSide(world), frameworkSide(world), groupedSide(world)] as const;
    const found = await measureDeposits(sides, load, context);
    await world.close();
    return [
      {
        title: 'one hot wallet, 64 clients: grouped commit ÷ hand-written `select … for update`',
        value: found['framework, grouped'].perSecond / found['select for update'].perSecond,
        unit: '×',
        atLeast: 12,
        measured: valuesOf(found, 'perSecond'),
      },
    ];
  },
};
