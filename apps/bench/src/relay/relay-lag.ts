import { setTimeout as pause } from 'node:timers/promises';
import type { EventFeed, EventSource, EventSourceState, SourceTarget } from '@framework/core/adapter';
import { logicalReplication } from '@framework/logical-replication';
import { Delivery } from '@framework/events';
import { relay } from '@framework/relay';
import { jetstream } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import type { Wallet, WalletService } from 'wallet-service';
import type { BenchContext, Benchmark, Figure } from '../benchmark/benchmark.js';
import { measureContenders, median, quantile } from '../benchmark/measure-contenders.js';
import { BenchServer } from '../database/bench-server.js';
import { lagsOf } from '../delivery/lag.js';
import { untilTrue } from '../delivery/until-true.js';
import { depositAtRate, depositKey, epochMs } from '../load/deposit-at-rate.js';
import { openWalletService, openWallets } from '../load/bench-wallets.js';
import { answers } from './bench-broker.js';
import { natsBroker } from './brokers/nats-broker.js';

const depositsPerSecond = 200;
const walletCount = 200;
const warmUpMs = 2_000;
const durationMs = 5_000;
const checkMs = 50;
const bounds = { p50: 10, p99: 50 } as const;

/** How a relay learns of commits. */
type Way = 'by cursor' | 'by logical replication';

/** How long after the commit a consumer of the broker has a deposit, for each way in which a relay can read the log. */
export const relayLag: Benchmark = {
  name: 'relay-lag',
  async run(context) {
    if (!(await answers(natsBroker.server))) {
      context.say(`  ${natsBroker.name} is not measured: nothing answers at ${natsBroker.server.host}`);
      return [];
    }
    // Only a server whose write-ahead log is logical can stream it. That of the other benchmarks has PostgreSQL's default.
    const server = await BenchServer.start({ wal_level: 'logical' });
    try {
      return await measure(server, context);
    } finally {
      await server.stop();
    }
  },
};

async function measure(
  server: BenchServer,
  { rounds, scale, say }: Pick<BenchContext, 'rounds' | 'scale' | 'say'>,
): Promise<readonly Figure[]> {
  const service = await openWalletService([await server.createDatabase()]);
  const wallets = await openWallets(service, walletCount);
  const cursor = await lagContender('by cursor', service, wallets, durationMs * scale);
  const stream = await lagContender('by logical replication', service, wallets, durationMs * scale);
  await measureContenders([cursor, stream], { rounds, say });
  await Promise.all([cursor.end(), stream.end()]);
  await service.databases.close();
  return [...figuresOf(cursor), ...figuresOf(stream)];
}

/** The medians of the rounds; the first one warms up. */
function figuresOf({ name, rounds: [, ...rounds] }: Awaited<ReturnType<typeof lagContender>>) {
  const measured = {
    deposits: rounds.flat().length,
    p50: median(rounds.map((lags) => quantile(lags, 0.5))),
    p99: median(rounds.map((lags) => quantile(lags, 0.99))),
  };
  return (['p50', 'p99'] as const).map((share) => ({
    title: `commit to consumer of NATS ${name} at ${depositsPerSecond} deposits/s, ${share}`,
    value: measured[share],
    unit: 'ms',
    atMost: bounds[share],
    measured,
  }));
}

/** A relay to NATS that reads the log in one way, and the consumer of its messages. */
async function lagContender<Name extends Way>(
  name: Name,
  service: WalletService,
  wallets: readonly Wallet[],
  ms: number,
) {
  const place = await natsBroker.open();
  const arrivedMs = await arrivals(place.topic);
  const rounds: (readonly number[])[] = [];
  const lagsAfter = async (forMs: number): Promise<readonly number[]> =>
    lagsOf(await depositAtRate(service, wallets, depositsPerSecond, pause(forMs)), arrivedMs.map);
  return {
    name,
    /** The lags of each round. */
    rounds,
    /** Relays from where the round before has ended, and returns the median lag. */
    measure: async () => {
      const source = name === 'by cursor' ? undefined : new WatchedStream();
      const delivery = relaying(service, place, name, source);
      delivery.start();
      await delivery.started();
      await source?.begun();
      await lagsAfter(warmUpMs);
      const lags = await (source?.throughout(() => lagsAfter(ms)) ?? lagsAfter(ms));
      await delivery.stop();
      rounds.push(lags);
      return quantile(lags, 0.5);
    },
    end: async () => {
      await place.broker.close();
      await arrivedMs.end();
      await place.remove();
    },
  };
}

function relaying(
  { databases, executor }: WalletService,
  { broker, topic }: Awaited<ReturnType<typeof natsBroker.open>>,
  way: Way,
  source: EventSource | undefined,
): Delivery {
  const name = `events-to-nats-${way.replaceAll(' ', '-')}`;
  const publisher = relay({ name, broker, topic: () => topic, ...(source && { source }) });
  return new Delivery({ databases, executor, handlers: [publisher] });
}

/** Logical replication that knows whether the log was really streamed: otherwise, its figures would be those of a cursor. */
class WatchedStream implements EventSource {
  readonly #source = logicalReplication();
  #feed: EventFeed | undefined;

  get states(): readonly EventSourceState[] {
    return this.#source.states;
  }

  open(target: SourceTarget): EventFeed {
    this.#feed = this.#source.open(target);
    return this.#feed;
  }

  /** Resolves when events are read from the stream. */
  begun(): Promise<void> {
    return untilTrue('the log is streamed', () => this.#fault() === undefined);
  }

  /** @throws Error when the log was not streamed all the time while the work was done */
  async throughout<T>(work: () => Promise<T>): Promise<T> {
    let fault = this.#fault();
    const checks = setInterval(() => (fault ??= this.#fault()), checkMs);
    const done = await work().finally(() => clearInterval(checks));
    fault ??= this.#fault();
    if (fault !== undefined) throw new Error(`The log was not streamed all the time: ${fault}`);
    return done;
  }

  #fault(): string | undefined {
    const [state] = this.states;
    if (state?.kind !== 'streaming') return state?.reason ?? 'there is no stream';
    return this.#feed?.isLive === true ? undefined : 'it is streamed, but still read with SQL';
  }
}

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
