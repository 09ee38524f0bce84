import type { Benchmark } from '../benchmark/benchmark.js';
import { valuesOf, measureDeposits } from './measure-deposits.js';
import { openEnvironment } from './deposit-environment.js';
import { drizzleContender, drizzlePerConnectionContender } from './contenders/drizzle-contender.js';
import { frameworkContender, groupedContender } from './contenders/framework-contender.js';
import { relativeUpdateContender, statementContender } from './contenders/pipelined-contender.js';

const load = { clientCount: 64, walletCount: 2_000 } as const;

/** Deposits of 64 clients: the gain from committing concurrent actions together. */
export const sixtyFourClients: Benchmark = {
  name: 'deposits-64-clients',
  async run(context) {
    const environment = await openEnvironment(context.server);
    const contenders = [
      drizzleContender(environment),
      drizzlePerConnectionContender(environment),
      await statementContender(environment),
      await relativeUpdateContender(environment),
      frameworkContender(environment),
      groupedContender(environment),
    ] as const;
    const found = await measureDeposits(contenders, load, context);
    await environment.close();
    const { framework, 'framework, grouped': grouped, drizzle, statement } = found;
    const relative = found['relative update'];
    return [
      {
        title: 'group commit ÷ Drizzle with prepared queries, 64 clients',
        value: grouped.perSecond / drizzle.perSecond,
        unit: '×',
        atLeast: 6,
        measured: valuesOf(found, 'perSecond'),
      },
      {
        title: 'group commit ÷ Drizzle with queries prepared per connection, 64 clients',
        value: grouped.perSecond / found['drizzle, per connection'].perSecond,
        unit: '×',
        measured: { grouped: grouped.perSecond, drizzle: found['drizzle, per connection'].perSecond },
      },
      {
        title: 'framework ÷ pipelined statement, 64 clients',
        value: framework.perSecond / statement.perSecond,
        unit: '×',
        atLeast: 1,
        measured: { framework: framework.perSecond, statement: statement.perSecond },
      },
      {
        title: 'group commit ÷ pipelined statement, 64 clients',
        value: grouped.perSecond / statement.perSecond,
        unit: '×',
        atLeast: 2.5,
        measured: { grouped: grouped.perSecond, statement: statement.perSecond },
      },
      {
        title: 'group commit ÷ relative update, 64 clients',
        value: grouped.perSecond / relative.perSecond,
        unit: '×',
        measured: { grouped: grouped.perSecond, 'relative update': relative.perSecond },
      },
      {
        title: 'p99 latency, group commit ÷ pipelined statement, 64 clients',
        value: grouped.p99Ms / statement.p99Ms,
        unit: '×',
        atMost: 0.7,
        measured: valuesOf(found, 'p99Ms'),
      },
    ];
  },
};
