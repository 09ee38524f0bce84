import { fileURLToPath } from 'node:url';
import type { Benchmark } from '../benchmark/benchmark.js';
import { runLoad } from '../load/run-load.js';
import { valuesOf, measureDeposits } from './measure-deposits.js';
import type { DepositContender } from './deposit-contender.js';
import { anyOf, openTargets, openEnvironment } from './deposit-environment.js';
import { ServiceProcess } from './service-process.js';
import { frameworkContender } from './contenders/framework-contender.js';
import { httpContender } from './contenders/http-contender.js';

const load = { clientCount: 16, walletCount: 2_000 } as const;
/** The bundle of `src/processes/serve-deposits.ts`; this file is part of `dist/main.js`. */
const bareFile = fileURLToPath(new URL('processes/serve-deposits.js', import.meta.url));
/** How long a newly started process compiles its code. */
const warmUpMs = 10_000;

/** Deposits with requests to the service, compared with the same action in the measuring process. */
export const overHttp: Benchmark = {
  name: 'deposits-http',
  async run(context) {
    const environment = await openEnvironment(context.server);
    // Delivery is measured separately; no contender has it.
    const service = await ServiceProcess.start(environment.urls, 'http');
    const bare = await ServiceProcess.start(environment.urls, 'http', {}, [], bareFile);
    try {
      const http = httpContender('http', environment, service, load.clientCount);
      const hono = httpContender('Hono', environment, bare, load.clientCount);
      await warmUp(http);
      await warmUp(hono);
      const contenders = [http, hono, frameworkContender(environment)] as const;
      const found = await measureDeposits(contenders, load, context);
      return [
        {
          title: 'over HTTP with keep-alive ÷ in process, deposits/s, 16 clients',
          value: found.http.perSecond / found.framework.perSecond,
          unit: '×',
          atLeast: 0.7,
          measured: valuesOf(found, 'perSecond'),
        },
        {
          title: 'over HTTP ÷ the same action behind a route of Hono and zod, deposits/s, 16 clients',
          value: found.http.perSecond / found.Hono.perSecond,
          unit: '×',
          measured: valuesOf(found, 'perSecond'),
        },
      ];
    } finally {
      await service.stop();
      await bare.stop();
      await environment.close();
    }
  },
};

/** Deposits for a while to separate wallets, which are neither verified nor counted. */
async function warmUp(contender: DepositContender): Promise<void> {
  const targets = await openTargets(contender.environment, load.walletCount);
  await runLoad(() => contender.deposit(anyOf(targets)), {
    clientCount: load.clientCount,
    durationMs: warmUpMs,
  });
}
