import type { Benchmark } from '../benchmark/benchmark.js';
import { valuesOf } from './values-of.js';
import { openEnvironment } from './deposit-environment.js';
import { measureDeposits } from './measure-deposits.js';
import { drizzleContender } from './contenders/drizzle-contender.js';
import { frameworkContender, groupedContender } from './contenders/framework-contender.js';
import { oneStatementContender, pipelinedContender } from './contenders/one-statement-contender.js';

const load = { clientCount: 64, walletCount: 2_000 } as const;

/** Deposits of 64 clients: what committing concurrent actions together gains. */
export const sixtyFourClients: Benchmark = {
  name: 'deposits-64-clients',
  async run(context) {
    const environment = await openEnvironment(context.server);
    const contenders = [
      drizzleContender(environment),
      oneStatementContender(environment),
      await pipelinedContender(environment),
      frameworkContender(environment),
      groupedContender(environment),
    ] as const;
    const found = await measureDeposits(contenders, load, context);
    await environment.close();
    const { framework, 'framework, grouped': grouped, drizzle, 'one statement': best } = found;
    const pipelined = found['one statement, pipelined'];
    return [
      {
        title: 'framework ÷ best hand-written statement, 64 clients',
        value: framework.perSecond / best.perSecond,
        unit: '×',
        atLeast: 0.95,
        measured: valuesOf(found, 'perSecond'),
      },
      {
        title: 'grouped commit ÷ hand-written Drizzle, 64 clients',
        value: grouped.perSecond / drizzle.perSecond,
        unit: '×',
        atLeast: 10,
        measured: { grouped: grouped.perSecond, drizzle: drizzle.perSecond },
      },
      {
        title: 'grouped commit ÷ best hand-written statement, 64 clients',
        value: grouped.perSecond / best.perSecond,
        unit: '×',
        atLeast: 3,
        measured: { grouped: grouped.perSecond, best: best.perSecond },
      },
      {
        title: 'framework ÷ the same statement over pipelined connections, 64 clients',
        value: framework.perSecond / pipelined.perSecond,
        unit: '×',
        measured: { framework: framework.perSecond, pipelined: pipelined.perSecond },
      },
      {
        title: 'grouped commit ÷ the same statement over pipelined connections, 64 clients',
        value: grouped.perSecond / pipelined.perSecond,
        unit: '×',
        measured: { grouped: grouped.perSecond, pipelined: pipelined.perSecond },
      },
      {
        title: 'p99 latency, grouped commit ÷ best hand-written statement, 64 clients',
        value: grouped.p99Ms / best.p99Ms,
        unit: '×',
        atMost: 0.7,
        measured: valuesOf(found, 'p99Ms'),
      },
    ];
  },
};
