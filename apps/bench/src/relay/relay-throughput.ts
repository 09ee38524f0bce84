import { Delivery } from '@framework/events';
import { type Broker, type BrokerMessage, relay } from '@framework/relay';
import type { WalletService } from 'wallet-service';
import type { Benchmark, Figure } from '../benchmark/benchmark.js';
import { measureContenders } from '../benchmark/measure-contenders.js';
import { fillWallets } from '../delivery/backlog.js';
import { openWalletService } from '../load/bench-wallets.js';
import { type BenchBroker, answers } from './bench-broker.js';
import { kafkaBroker } from './brokers/kafka-broker.js';
import { natsBroker } from './brokers/nats-broker.js';
import { rabbitmqBroker } from './brokers/rabbitmq-broker.js';
import { redisBroker } from './brokers/redis-broker.js';

const walletCount = 1_000;
const eventCount = 100_000;

const brokers: readonly BenchBroker[] = [natsBroker, kafkaBroker, rabbitmqBroker, redisBroker];

/** A backlog that a relay publishes, compared with a bare client of the broker that publishes the same bytes. */
export const relayThroughput: Benchmark = {
  name: 'relay-throughput',
  async run({ server, rounds, scale, say }) {
    const count = Math.round((eventCount * scale) / walletCount) * walletCount;
    const url = await server.createDatabase();
    const service = await openWalletService([url]);
    await fillWallets(service, url, walletCount, count);
    const messages = await messagesOf(service, walletCount + count);
    const figures: Figure[] = [];
    for (const broker of brokers) {
      if (!(await answers(broker.server))) {
        say(`  ${broker.name} is not measured: nothing answers at ${broker.server.host}`);
        continue;
      }
      const measured = await measureContenders(contendersOf(broker, service, messages), { rounds, say });
      figures.push(
        {
          title: `log → ${broker.name}, one process`,
          value: measured.relay,
          unit: 'events/s',
          atLeast: broker.perSecondMin,
          measured,
        },
        {
          title: `log → ${broker.name} ÷ a bare client with the same bytes`,
          value: measured.relay / measured['bare client'],
          unit: '×',
          atLeast: 0.7,
          measured,
        },
      );
    }
    await service.databases.close();
    return figures;
  },
};

function contendersOf(
  { name, open }: BenchBroker,
  service: WalletService,
  messages: readonly BrokerMessage[],
) {
  let relayCount = 0;
  /** Measures, with a new place each time. */
  const inPlace = async (
    work: (place: Awaited<ReturnType<typeof open>>) => Promise<void>,
  ): Promise<number> => {
    const place = await open();
    try {
      const startedAtMs = performance.now();
      await work(place);
      const perSecond = (messages.length / (performance.now() - startedAtMs)) * 1_000;
      const count = await place.count();
      if (count !== messages.length) throw new Error(`${name} has ${count} of ${messages.length} messages`);
      return perSecond;
    } finally {
      await place.remove();
    }
  };
  return [
    {
      name: 'relay',
      measure: () =>
        inPlace((place) => relayAll(service, `bench-${name}-${++relayCount}`, place, messages.length)),
    },
    { name: 'bare client', measure: () => inPlace(({ publishBare }) => publishBare(messages)) },
  ] as const;
}

/** Relays the whole log to a broker, and returns when everything is confirmed. */
async function relayAll(
  service: WalletService,
  name: string,
  { broker, topic }: { readonly broker: Broker; readonly topic: string },
  count: number,
): Promise<void> {
  const { promise: confirmed, resolve, reject } = Promise.withResolvers<void>();
  let confirmedCount = 0;
  const counting: Broker = {
    ...(broker.limits && { limits: broker.limits }),
    publish: async (messages, signal) => {
      const outcomes = await broker.publish(messages, signal);
      confirmedCount += outcomes.length;
      if (confirmedCount >= count) resolve();
      return outcomes;
    },
    ping: () => broker.ping(),
    close: () => broker.close(),
  };
  const delivery = new Delivery({
    databases: service.databases,
    executor: service.executor,
    handlers: [relay({ name, broker: counting, startFrom: 'beginning', topic: () => topic })],
    onError: reject,
    onAttemptFailed: ({ error }) => reject(error),
  });
  delivery.start();
  try {
    await confirmed;
  } finally {
    await delivery.stop();
    await broker.close();
  }
}

/** The messages of the whole log, as a relay makes them. */
async function messagesOf(service: WalletService, count: number): Promise<readonly BrokerMessage[]> {
  const kept: BrokerMessage[] = [];
  const keeping: Broker = {
    publish: async (messages) => {
      kept.push(...messages);
      return messages.map(() => ({ kind: 'confirmed' }));
    },
    ping: async () => undefined,
    close: async () => undefined,
  };
  await relayAll(service, 'bench-messages', { broker: keeping, topic: 'bench' }, count);
  return kept;
}
