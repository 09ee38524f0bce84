import { setTimeout as pause } from 'node:timers/promises';
import { defaultDeliverySettings, notifyOfCommits } from '@framework/events';
import type { Benchmark } from '../benchmark/benchmark.js';
import { openWalletService, openWallets } from '../load/bench-wallets.js';
import { depositAtRate, epochMs } from '../load/deposit-at-rate.js';
import { DeliveringProcess } from './delivering-process.js';
import { untilTrue } from './until-true.js';

const depositsPerSecond = 100;
const walletCount = 160;
const leaseS = defaultDeliverySettings.leaseMs / 1_000;

/** How long the slots of a killed process stay without a process. */
export const takeover: Benchmark = {
  name: 'delivery-takeover',
  async run({ server }) {
    const url = await server.createDatabase();
    const service = await openWalletService([url]);
    const wallets = await openWallets(service, walletCount);
    const handledMs = new Map<string, number>();
    const options = { urls: [url], handler: 'takeover' };
    const killed = await DeliveringProcess.start(options, handledMs);
    const survivor = await DeliveringProcess.start(options, handledMs);
    const stopNotifications = notifyOfCommits(service);
    const [database] = service.databases.deliveries();
    await untilTrue('both processes hold slots', async () => {
      const leases = (await database?.store.leases.list()) ?? [];
      const holders = new Set(leases.map(({ processId }) => processId));
      return holders.size === 2 && !holders.has(undefined);
    });
    let killedMs = 0;
    const load = depositAtRate(
      service,
      wallets,
      depositsPerSecond,
      (async () => {
        await pause(3_000);
        await killed.kill();
        killedMs = epochMs();
        await pause(leaseS * 1_000 + 2_000);
      })(),
    );
    const deposits = await load;
    await untilTrue('all deposits are handled', () => deposits.every(({ key }) => handledMs.has(key)));
    stopNotifications();
    await survivor.stop();
    await service.databases.close();
    // The deposits that waited: committed while no process held the slots, or passed to the killed process.
    const waits = deposits.map(
      ({ key, committedMs }) => (handledMs.get(key) ?? Infinity) - Math.max(committedMs, killedMs),
    );
    return [
      {
        title: `SIGKILL of one of two processes: its slots are served again (lease ${leaseS} s)`,
        value: Math.max(...waits) / 1_000,
        unit: 's',
        atMost: leaseS + 1,
        measured: { deposits: deposits.length, waited: waits.filter((wait) => wait > 1_000).length },
      },
    ];
  },
};
