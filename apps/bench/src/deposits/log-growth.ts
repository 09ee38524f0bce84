import type { Benchmark } from '../benchmark/benchmark.js';
import { valuesOf, measureDeposits } from './measure-deposits.js';
import { openEnvironment } from './deposit-environment.js';
import { fillHistory } from './fill-history.js';
import { frameworkContender } from './contenders/framework-contender.js';

const load = { clientCount: 16, walletCount: 2_000 } as const;
const eventCount = 10_000_000;

/** How the length of the log affects the cost of a deposit. */
export const logGrowth: Benchmark = {
  name: 'deposits-log-growth',
  async run(context) {
    const count = Math.round(eventCount * context.scale);
    const young = await openEnvironment(context.server);
    const old = await openEnvironment(context.server);
    await fillHistory(old, count, context.say);
    const contenders = [
      { ...frameworkContender(young), name: 'no events' },
      { ...frameworkContender(old), name: 'many events' },
    ] as const;
    const found = await measureDeposits(contenders, load, context);
    await young.close();
    await old.close();
    return [
      {
        title: `cost growth: deposits/s with ${count.toLocaleString('en')} events in the log ÷ with none`,
        value: found['many events'].perSecond / found['no events'].perSecond,
        unit: '×',
        atLeast: 0.95,
        measured: valuesOf(found, 'perSecond'),
      },
    ];
  },
};
