import { Delivery } from '@framework/events';
import { Big } from 'big.js';
import { type Wallet, WalletDepositMoneyAction, type WalletService } from 'wallet-service';
import type { Benchmark } from '../benchmark/benchmark.js';
import { measureContenders, median } from '../benchmark/measure-contenders.js';
import { openWalletService, openWallets, principal } from '../load/bench-wallets.js';
import { fillLog } from '../load/fill-log.js';
import { graphileContender } from './graphile-contender.js';
import { recordingHandler } from './recording-handler.js';
import { deadRows } from './row-counts.js';

const walletCount = 1_000;
const eventCount = 200_000;

/** A backlog of deposits for an empty handler, compared with jobs of graphile-worker on the same database. */
export const backlog: Benchmark = {
  name: 'delivery-backlog',
  async run({ server, rounds, scale, say }) {
    const count = Math.round((eventCount * scale) / walletCount) * walletCount;
    const url = await server.createDatabase();
    const service = await openWalletService([url]);
    await fillWallets(service, url, walletCount, count);
    let delivered = 0;
    const busyShares: number[] = [];
    const framework = {
      name: 'framework',
      measure: async () => {
        const { perSecond, busyShare } = await drain(service, `empty-${delivered}`, count);
        // The first round warms up.
        if (delivered > 0) busyShares.push(busyShare);
        delivered += count;
        return perSecond;
      },
    } as const;
    const graphile = await graphileContender(url, walletCount, count);
    const measured = await measureContenders([framework, graphile], { rounds, say });
    const dead = await deadRows(url);
    await service.databases.close();
    return [
      {
        title: `empty handler, ${count.toLocaleString('en')} events: events/s ÷ graphile-worker's jobs/s`,
        value: measured.framework / measured['graphile-worker'],
        unit: '×',
        atLeast: 2,
        measured,
      },
      {
        title: 'empty handler: share of the time in which the event loop of the process is busy',
        value: median(busyShares) * 100,
        unit: '%',
        atLeast: 85,
        measured: {},
      },
      {
        title: "dead rows per million delivered events in the framework's tables",
        value: (dead / delivered) * 1_000_000,
        unit: 'rows',
        atMost: 1_000,
        measured: { dead, delivered },
      },
    ];
  },
};

/** Opens wallets with one real deposit each, and copies those until the log has enough deposits. */
export async function fillWallets(
  service: WalletService,
  url: string,
  wallets: number,
  count: number,
): Promise<readonly Wallet[]> {
  const opened = await openWallets(service, wallets);
  for (const { id } of opened) {
    await service.executor.execute(principal, WalletDepositMoneyAction, { walletId: id, amount: Big(1) });
  }
  await fillLog(url, count / wallets - 1);
  return opened;
}

async function drain(
  service: WalletService,
  name: string,
  count: number,
): Promise<{ readonly perSecond: number; readonly busyShare: number }> {
  const handler = recordingHandler(name);
  const errors: unknown[] = [];
  const delivery = new Delivery({
    databases: service.databases,
    executor: service.executor,
    handlers: [handler],
    onError: (error) => errors.push(error),
  });
  const startedAtMs = performance.now();
  const loop = performance.eventLoopUtilization();
  delivery.start();
  await handler.reached(count);
  const perSecond = (count / (performance.now() - startedAtMs)) * 1_000;
  const busyShare = performance.eventLoopUtilization(loop).utilization;
  await delivery.stop();
  if (errors.length > 0) throw new AggregateError(errors, `${name} had errors`);
  if (handler.count !== count) throw new Error(`${name} was given ${handler.count} events of ${count}`);
  return { perSecond, busyShare };
}
