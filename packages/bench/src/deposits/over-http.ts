import type { Benchmark } from '../benchmark/benchmark.js';
import { runLoad } from '../load/run-load.js';
import { valuesOf } from './values-of.js';
import type { DepositSide } from './deposit-side.js';
import { anyOf, openTargets, openWorld } from './deposit-world.js';
import { measureDeposits } from './measure-deposits.js';
import { ServiceProcess } from './service-process.js';
import { frameworkSide } from './sides/framework-side.js';
import { httpSide } from './sides/http-side.js';

const load = { clientCount: 16, walletCount: 2_000 } as const;
/** How long a process that was just started compiles what it runs. */
const warmUpMs = 10_000;

/** Deposits by requests to the service, against the same action in the process that measures. */
export const overHttp: Benchmark = {
  name: 'deposits-http',
  async run(context) {
    const world = await openWorld(context.server);
    // Delivery is measured by itself; no side has it.
    const service = await ServiceProcess.start(world.urls, 'http');
    try {
      const http = httpSide(world, service.url, load.clientCount);
      await warmUp(http);
      const sides = [http, frameworkSide(world)] as const;
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

/** Deposits for a while to wallets of their own, so that nothing of it is verified or counted. */
async function warmUp(side: DepositSide): Promise<void> {
  const targets = await openTargets(side.world, load.walletCount);
  await runLoad(() => side.deposit(anyOf(targets)), {
    clientCount: load.clientCount,
    durationMs: warmUpMs,
  });
}
