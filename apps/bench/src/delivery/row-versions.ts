import { setTimeout as pause } from 'node:timers/promises';
import { Delivery } from '@framework/events';
import type { Benchmark } from '../benchmark/benchmark.js';
import { openWalletService, openWallets } from '../load/bench-wallets.js';
import { depositAtRate } from '../load/deposit-at-rate.js';
import { recordingHandler } from './recording-handler.js';
import { rowVersions } from './row-counts.js';

const depositsPerSecond = 200;
const walletCount = 200;
const durationMs = 30_000;
const handlerCount = 3;

/** How many row versions the framework writes for an event that is handled without errors. */
export const rowVersionsPerEvent: Benchmark = {
  name: 'delivery-row-versions',
  async run({ server, scale }) {
    const url = await server.createDatabase();
    const first = await openWalletService([url]);
    const wallets = await openWallets(first, walletCount);
    const handlers = Array.from({ length: handlerCount }, (_, index) => recordingHandler(`handler-${index}`));
    // Registers the handlers first, which happens only once.
    const registering = new Delivery({ databases: first.databases, executor: first.executor, handlers });
    registering.start();
    await Promise.all(handlers.map((handler) => handler.reached(0)));
    await pause(1_000);
    await registering.stop();
    // Sessions report their counts no later than when they end.
    await first.databases.close();
    const before = await rowVersions(url);

    const service = await openWalletService([url]);
    const delivery = new Delivery({ databases: service.databases, executor: service.executor, handlers });
    delivery.start();
    const deposits = await depositAtRate(service, wallets, depositsPerSecond, pause(durationMs * scale));
    await Promise.all(handlers.map((handler) => handler.reached(deposits.length)));
    await delivery.stop();
    await service.databases.close();
    const versions = (await rowVersions(url)) - before;
    return [
      {
        title: `row versions written per event for ${handlerCount} handlers at ${depositsPerSecond} deposits/s`,
        value: versions / deposits.length,
        unit: 'rows',
        atMost: 1.05,
        measured: { versions, events: deposits.length },
      },
    ];
  },
};
