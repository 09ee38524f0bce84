import type { Benchmark } from '../benchmark/benchmark.js';
import { valuesOf } from './best-of.js';
import { openWorld } from './deposit-world.js';
import { measureDeposits } from './measure-deposits.js';
import { ServiceProcess } from './service-process.js';
import { frameworkSide } from './sides/framework-side.js';
import { httpSide } from './sides/http-side.js';

const load = { clientCount: 16, walletCount: 2_000 } as const;

/** Deposits by requests to the service, against the same action in the process that measures. */
export const overHttp: Benchmark = {
  name: 'deposits-http',
  async run(context) {
    const world = await openWorld(context.server);
    // Delivery is measured by itself; no side has it.
    const service = await ServiceProcess.start(world.urls, 'http');
    try {
      const sides = [httpSide(world, service.url, load.clientCount), frameworkSide(world)] as const;
      const found = await measureDeposits(sides, load, context);
      return [
        {
          title: 'over HTTP with keep-alive ÷ in process, deposits/s, 16 clients',
          value: found.http.perSecond / found.framework.perSecond,
          unit: '×',
          atLeast: 0.6,
          measured: valuesOf(found, 'perSecond'),
        },
      ];
    } finally {
      await service.stop();
      await world.close();
    }
  },
};
