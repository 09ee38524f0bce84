import type { Benchmark } from '../benchmark/benchmark.js';
import { valuesOf, measureDeposits } from './measure-deposits.js';
import { openEnvironment } from './deposit-environment.js';
import { frameworkContender, groupedContender } from './contenders/framework-contender.js';
import { relativeUpdateContender } from './contenders/pipelined-contender.js';

const load = { clientCount: 64, walletCount: 1 } as const;

/** Deposits of 64 clients to one wallet; a failed call fails the run. */
export const hotWallet: Benchmark = {
  name: 'deposits-hot-wallet',
  async run(context) {
    const environment = await openEnvironment(context.server);
    const contenders = [
      await relativeUpdateContender(environment),
      frameworkContender(environment),
      groupedContender(environment),
    ] as const;
    const found = await measureDeposits(contenders, load, context);
    await environment.close();
    return [
      {
        title: 'one hot wallet, 64 clients: group commit ÷ relative update',
        value: found['framework, grouped'].perSecond / found['relative update'].perSecond,
        unit: '×',
        atLeast: 8,
        measured: valuesOf(found, 'perSecond'),
      },
    ];
  },
};
