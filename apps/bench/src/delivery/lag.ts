import { setTimeout as pause } from 'node:timers/promises';
import { Delivery, notifyOfCommits } from '@framework/events';
import type { Benchmark } from '../benchmark/benchmark.js';
import { quantile } from '../benchmark/measure-contenders.js';
import { openWalletService, openWallets } from '../load/bench-wallets.js';
import { type CommittedDeposit, depositAtRate, depositKey, epochMs } from '../load/deposit-at-rate.js';
import { recordingHandler } from './recording-handler.js';
import { DeliveringProcess } from './delivering-process.js';
import { untilTrue } from './until-true.js';

const depositsPerSecond = 200;
const walletCount = 200;
const warmUpMs = 2_000;
const durationMs = 15_000;

/** How long after the commit a handler of the same process, and one of another process, is called. */
export const lag: Benchmark = {
  name: 'delivery-lag',
  async run({ server, scale }) {
    const url = await server.createDatabase();
    const service = await openWalletService([url]);
    const wallets = await openWallets(service, walletCount);
    const load = (ms: number): Promise<readonly CommittedDeposit[]> =>
      depositAtRate(service, wallets, depositsPerSecond, pause(ms));

    const handledMs = new Map<string, number>();
    const handler = recordingHandler('same-process', ({ modelId, modelVersion }) => {
      handledMs.set(depositKey(modelId, modelVersion), epochMs());
    });
    const delivery = new Delivery({
      databases: service.databases,
      executor: service.executor,
      handlers: [handler],
    });
    delivery.start();
    const same = await warmLags(load, handledMs, durationMs * scale);
    await delivery.stop();

    const other = await DeliveringProcess.start({ urls: [url], handler: 'other-process' });
    const stopNotifications = notifyOfCommits(service);
    const across = await warmLags(load, other.handledMs, durationMs * scale);
    stopNotifications();
    await other.stop();
    await service.databases.close();
    return [
      ...figuresOf('in the same process', same, { p50: 5, p99: 25 }),
      ...figuresOf('in another process', across, { p50: 25, p99: 100 }),
    ];
  },
};

/** The lags under a load that begins when delivery holds its slots and has warmed up. */
async function warmLags(
  load: (ms: number) => Promise<readonly CommittedDeposit[]>,
  handledMs: ReadonlyMap<string, number>,
  ms: number,
): Promise<readonly number[]> {
  await lagsOf(await load(warmUpMs), handledMs);
  return lagsOf(await load(ms), handledMs);
}

/** Waits until all deposits were handled, and returns how long after its commit each one was; never less than 0. */
export async function lagsOf(
  deposits: readonly CommittedDeposit[],
  handledMs: ReadonlyMap<string, number>,
): Promise<readonly number[]> {
  await untilTrue('all deposits are handled', () => deposits.every(({ key }) => handledMs.has(key)));
  // A handler may be called before the promise of the deposit has resolved.
  return deposits.map(({ key, committedMs }) => Math.max(0, (handledMs.get(key) ?? Infinity) - committedMs));
}

function figuresOf(
  where: string,
  lags: readonly number[],
  bounds: { readonly p50: number; readonly p99: number },
) {
  const measured = {
    deposits: lags.length,
    p50: quantile(lags, 0.5),
    p99: quantile(lags, 0.99),
    max: Math.max(...lags),
  };
  return (['p50', 'p99'] as const).map((name) => ({
    title: `commit to handler ${where} at ${depositsPerSecond} deposits/s, ${name}`,
    value: measured[name],
    unit: 'ms',
    atMost: bounds[name],
    measured,
  }));
}
