import { setTimeout as pause } from 'node:timers/promises';
import { Delivery } from '@framework/events';
import { relay } from '@framework/relay';
import { jetstream } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import type { Benchmark } from '../benchmark/benchmark.js';
import { quantile } from '../benchmark/measure-contenders.js';
import { lagsOf } from '../delivery/lag.js';
import { depositAtRate, depositKey, epochMs } from '../load/deposit-at-rate.js';
import { openService, openWallets } from '../load/bench-wallets.js';
import { answers } from './bench-broker.js';
import { natsBroker } from './brokers/nats-broker.js';

const depositsPerSecond = 200;
const walletCount = 200;
const warmUpMs = 2_000;
const durationMs = 15_000;

/** How long after the commit a consumer of the broker has a deposit. */
export const relayLag: Benchmark = {
  name: 'relay-lag',
  async run({ server, scale, say }) {
    if (!(await answers(natsBroker.server))) {
      say(`  ${natsBroker.name} is not measured: nothing answers at ${natsBroker.server.host}`);
      return [];
    }
    const service = await openService([await server.createDatabase()]);
    const wallets = await openWallets(service, walletCount);
    const place = await natsBroker.open();
    const arrivedMs = await arrivals(place.topic);
    const delivery = new Delivery({
      databases: service.databases,
      executor: service.executor,
      handlers: [relay({ name: 'events-to-nats', broker: place.broker, topic: () => place.topic })],
    });
    delivery.start();
    await delivery.started();
    const lagsAfter = async (ms: number): Promise<readonly number[]> =>
      lagsOf(await depositAtRate(service, wallets, depositsPerSecond, pause(ms)), arrivedMs.map);
    await lagsAfter(warmUpMs);
    const lags = await lagsAfter(durationMs * scale);
    await delivery.stop();
    await place.broker.close();
    await arrivedMs.end();
    await place.remove();
    await service.databases.close();
    const measured = { deposits: lags.length, p50: quantile(lags, 0.5), p99: quantile(lags, 0.99) };
    return [
      {
        title: `commit to consumer of NATS at ${depositsPerSecond} deposits/s, p50`,
        value: measured.p50,
        unit: 'ms',
        atMost: 10,
        measured,
      },
      {
        title: `commit to consumer of NATS at ${depositsPerSecond} deposits/s, p99`,
        value: measured.p99,
        unit: 'ms',
        atMost: 50,
        measured,
      },
    ];
  },
};

/** When each deposit arrived at a consumer of a stream. */
async function arrivals(stream: string) {
  const connection = await connect({ servers: natsBroker.server.href });
  const consumer = await jetstream(connection).consumers.get(stream);
  const messages = await consumer.consume();
  const map = new Map<string, number>();
  void (async () => {
    for await (const { headers } of messages) {
      const key = depositKey(headers?.get('ce-subject') ?? '', Number(headers?.get('ce-modelversion')));
      if (!map.has(key)) map.set(key, epochMs());
    }
  })();
  return { map, end: () => connection.close() };
}
