import { setTimeout as pause } from 'node:timers/promises';
import { Delivery, DeliveryOperator } from '@framework/events';
import type { WalletService } from 'wallet-service';
import type { Benchmark, Figure } from '../benchmark/benchmark.js';
import { measureContenders } from '../benchmark/measure-contenders.js';
import { openWalletService } from '../load/bench-wallets.js';
import { fillWallets } from './backlog.js';
import { type RecordingHandler, recordingHandler } from './recording-handler.js';
import { blockedRowVersions } from './row-counts.js';
import { untilTrue } from './until-true.js';

/** How quickly events that waited in blocked models are handled when their handler works again, compared with a backlog. */
export const drain: Benchmark = {
  name: 'delivery-drain',
  async run(context) {
    const { server, rounds, scale, say } = context;
    const figures: Figure[] = [];
    for (const { walletCount, perWalletCount, handleMs, title, atLeast } of [
      { walletCount: 1, perWalletCount: 100_000, handleMs: 0, title: 'one model', atLeast: 0.8 },
      { walletCount: 10_000, perWalletCount: 10, handleMs: 0, title: '10,000 models', atLeast: 0.5 },
      {
        walletCount: 10_000,
        perWalletCount: 10,
        handleMs: 1,
        title: '10,000 models, 1 ms each',
        atLeast: 0.5,
      },
    ]) {
      const wallets = Math.max(1, Math.round(walletCount * (walletCount === 1 ? 1 : scale)));
      const each = Math.max(2, Math.round(perWalletCount * (walletCount === 1 ? scale : 1)));
      const url = await server.createDatabase();
      const service = await openWalletService([url]);
      await fillWallets(service, url, wallets, wallets * each);
      let run = 0;
      const written: number[] = [];
      const measured = await measureContenders(
        [
          {
            name: 'undisturbed',
            measure: () => deliver(service, `undisturbed-${run++}`, wallets * each, handleMs),
          },
          {
            name: 'after an outage',
            measure: async () => {
              const before = await blockedRowVersions(url);
              const perSecond = await recover(service, `failing-${run++}`, wallets, wallets * each, handleMs);
              written.push((await blockedRowVersions(url)) - before);
              return perSecond;
            },
          },
        ] as const,
        { rounds, say },
      );
      await service.databases.close();
      const count = (wallets * each).toLocaleString('en');
      figures.push({
        title: `${count} events of ${title} that waited in blocked models: events/s ÷ delivery of the same backlog`,
        value: measured['after an outage'] / measured.undisturbed,
        unit: '×',
        atLeast,
        measured,
      });
      if (walletCount > 1) continue;
      figures.push({
        title: 'rows of blocked models written per event that waited in one model',
        value: Math.max(...written) / (wallets * each),
        unit: 'rows',
        atMost: 0.05,
        measured: { events: wallets * each },
      });
    }
    return figures;
  },
};

async function deliver(
  service: WalletService,
  name: string,
  count: number,
  handleMs: number,
): Promise<number> {
  const handler = recordingHandler(name, () => work(handleMs));
  const delivery = deliveryOf(service, handler);
  const startedAtMs = performance.now();
  delivery.start();
  await handler.reached(count);
  const perSecond = (count / (performance.now() - startedAtMs)) * 1_000;
  await stopped(delivery, handler, count);
  return perSecond;
}

/** Blocks every model at its first event, and then lets the handler work again. */
async function recover(
  service: WalletService,
  name: string,
  models: number,
  count: number,
  handleMs: number,
): Promise<number> {
  let isDown = true;
  let startedAtMs = 0;
  const handler = recordingHandler(name, () => {
    if (isDown) throw new Error('The handler does not work yet');
    startedAtMs ||= performance.now();
    return work(handleMs);
  });
  const delivery = deliveryOf(service, handler);
  const operator = new DeliveryOperator(service.databases);
  delivery.start();
  await untilTrue('all events wait', async () => {
    const { items } = await operator.lag();
    const own = items.find((item) => item.handler === name);
    return own?.pendingCount === 0 && own.blockedCount >= Math.min(models, 10_000);
  });
  isDown = false;
  await handler.reached(count);
  const perSecond = (count / (performance.now() - startedAtMs)) * 1_000;
  await stopped(delivery, handler, count);
  return perSecond;
}

/** Takes that many milliseconds without using the processor; none when it is 0. */
function work(durationMs: number): Promise<void> | undefined {
  return durationMs === 0 ? undefined : pause(durationMs);
}

function deliveryOf(service: WalletService, handler: RecordingHandler): Delivery {
  return new Delivery({
    databases: service.databases,
    executor: service.executor,
    handlers: [handler],
    settings: { retry: { attemptsMax: 1_000, backoffBaseMs: 1_000, backoffMaxMs: 1_000 } },
    onAttemptFailed: () => undefined,
  });
}

async function stopped(delivery: Delivery, handler: RecordingHandler, count: number): Promise<void> {
  await delivery.stop();
  if (handler.count !== count) throw new Error(`A handler was given ${handler.count} events of ${count}`);
}
