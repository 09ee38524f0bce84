import type { Benchmark } from '../benchmark/benchmark.js';
import { valuesOf } from './values-of.js';
import { openWorld } from './deposit-world.js';
import { measureDeposits } from './measure-deposits.js';
import { drizzleSide } from './sides/drizzle-side.js';
import { frameworkSide, groupedSide } from './sides/framework-side.js';
import { oneStatementSide, pipelinedSide } from './sides/one-statement-side.js';
import { roundTripsSide } from './sides/round-trips-side.js';

const load = { clientCount: 16, walletCount: 2_000 } as const;

/** Deposits of 16 clients: what an action costs against what one writes by hand. */
export const sixteenClients: Benchmark = {
  name: 'deposits-16-clients',
  async run(context) {
    const world = await openWorld(context.server);
    const sides = [
      drizzleSide(world),
      roundTripsSide(world),
      oneStatementSide(world),
      await pipelinedSide(world),
      frameworkSide(world),
      groupedSide(world),
    ] as const;
    const found = await measureDeposits(sides, load, context);
    await world.close();
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
