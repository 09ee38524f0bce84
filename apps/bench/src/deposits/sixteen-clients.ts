import type { Benchmark } from '../benchmark/benchmark.js';
import { valuesOf } from './values-of.js';
import { openEnvironment } from './deposit-environment.js';
import { measureDeposits } from './measure-deposits.js';
import { drizzleContender } from './contenders/drizzle-contender.js';
import { frameworkContender, groupedContender } from './contenders/framework-contender.js';
import { oneStatementContender, pipelinedContender } from './contenders/one-statement-contender.js';
import { roundTripsContender } from './contenders/round-trips-contender.js';

const load = { clientCount: 16, walletCount: 2_000 } as const;

/** Deposits of 16 clients: what an action costs against what one writes by hand. */
export const sixteenClients: Benchmark = {
  name: 'deposits-16-clients',
  async run(context) {
    const environment = await openEnvironment(context.server);
    const contenders = [
      drizzleContender(environment),
      roundTripsContender(environment),
      oneStatementContender(environment),
      await pipelinedContender(environment),
      frameworkContender(environment),
      groupedContender(environment),
    ] as const;
    const found = await measureDeposits(contenders, load, context);
    await environment.close();
    const { framework, drizzle, 'five round trips': roundTrips, 'one statement': best } = found;
    const pipelined = found['one statement, pipelined'];
    const measured = valuesOf(found, 'perSecond');
    return [
      {
        title: 'framework ÷ hand-written Drizzle, deposits/s, 16 clients',
        value: framework.perSecond / drizzle.perSecond,
        unit: '×',
        atLeast: 2.5,
        measured,
      },
      {
        title: 'framework ÷ hand-written pg, five prepared round trips, 16 clients',
        value: framework.perSecond / roundTrips.perSecond,
        unit: '×',
        atLeast: 1.2,
        measured: { framework: framework.perSecond, 'five round trips': roundTrips.perSecond },
      },
      {
        title: 'framework ÷ best hand-written statement, 16 clients',
        value: framework.perSecond / best.perSecond,
        unit: '×',
        atLeast: 0.95,
        measured: { framework: framework.perSecond, best: best.perSecond },
      },
      {
        title: 'framework ÷ the same statement over pipelined connections, 16 clients',
        value: framework.perSecond / pipelined.perSecond,
        unit: '×',
        measured: { framework: framework.perSecond, pipelined: pipelined.perSecond },
      },
      {
        title: 'framework CPU per deposit ÷ that of the best hand-written statement, 16 clients',
        value: framework.cpuMs / best.cpuMs,
        unit: '×',
        atMost: 1.3,
        measured: valuesOf(found, 'cpuMs'),
      },
    ];
  },
};
