import type { Benchmark } from '../benchmark/benchmark.js';
import { valuesOf, measureDeposits } from './measure-deposits.js';
import { openEnvironment } from './deposit-environment.js';
import { drizzleContender, drizzlePerConnectionContender } from './contenders/drizzle-contender.js';
import { frameworkContender, groupedContender } from './contenders/framework-contender.js';
import { relativeUpdateContender, statementContender } from './contenders/pipelined-contender.js';

const load = { clientCount: 16, walletCount: 2_000 } as const;

/** Deposits of 16 clients: the cost of an action compared with hand-written code. */
export const sixteenClients: Benchmark = {
  name: 'deposits-16-clients',
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
    const { framework, drizzle, statement, 'relative update': relative } = found;
    const measured = valuesOf(found, 'perSecond');
    return [
      {
        title: 'framework ÷ Drizzle with prepared queries, 16 clients',
        value: framework.perSecond / drizzle.perSecond,
        unit: '×',
        atLeast: 1.6,
        measured,
      },
      {
        title: 'framework ÷ Drizzle with queries prepared per connection, 16 clients',
        value: framework.perSecond / found['drizzle, per connection'].perSecond,
        unit: '×',
        measured: { framework: framework.perSecond, drizzle: found['drizzle, per connection'].perSecond },
      },
      {
        title: 'framework ÷ pipelined statement, 16 clients',
        value: framework.perSecond / statement.perSecond,
        unit: '×',
        atLeast: 1,
        measured: { framework: framework.perSecond, statement: statement.perSecond },
      },
      {
        title: 'framework ÷ relative update, 16 clients',
        value: framework.perSecond / relative.perSecond,
        unit: '×',
        measured: { framework: framework.perSecond, 'relative update': relative.perSecond },
      },
      {
        title: 'CPU per deposit, framework ÷ pipelined statement, 16 clients',
        value: framework.cpuMs / statement.cpuMs,
        unit: '×',
        atMost: 1.3,
        measured: valuesOf(found, 'cpuMs'),
      },
    ];
  },
};
