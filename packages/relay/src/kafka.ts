import { isIP } from 'node:net';
import type { Broker as KafkaAddress, ProducerOptions } from '@platformatic/kafka';

import { type Broker, type BrokerMessage, type PublishOutcome, callTimeoutMs, reasonOf } from './broker.js';
import {
  type KafkaAnswer,
  KafkaProducer,
  type KafkaRequest,
  isDenied,
  isInvalid,
  isTooLarge,
  refusalOf,
} from './kafka-producer.js';
import { KafkaMetadata, topicPatienceMs } from './kafka-metadata.js';
import {
  type KafkaRecord,
  nextRequest,
  partitionOf,
  placeOf,
  recordBytes,
  recordOf,
} from './kafka-records.js';
import { SilentServers } from './kafka-silence.js';
import { NameTemplate } from './name-template.js';
import { unlessAborted } from './unless-aborted.js';

/** How a relay reaches Kafka. */
export interface KafkaOptions {
  /**
   * Each a host, with a port unless it is 9092, such as `127.0.0.1:9092` or `[::1]:9092`; the first that answers names all servers of
   * the cluster.
   */
  readonly bootstrapServers: readonly string[];
  /**
   * The topic, in which `{namespace}`, `{model}`, `{type}`, `{id}` and `{topic}` stand for what a message has; it must exist, unless
   * `client.autocreateTopics` is set. Default `{topic}`, which is `<namespace>.<model name>`.
   */
  readonly topic?: string;
  /**
   * The largest body that is published. Kafka itself refuses messages larger than the topic's `max.message.bytes`, but disconnects
   * above the server's `socket.request.max.bytes`. Default 100,000,000.
   */
  readonly messageBytesMax?: number;
  /** How long a request may take to be confirmed, in milliseconds. Default 10,000. */
  readonly timeoutMs?: number;
  /**
   * Further options of the client, such as `sasl`, `tls` or `compression`. With `tls`, a connection asks for the server by name (SNI)
   * unless a bootstrap server is an IP address, or `tlsServerName` says otherwise.
   */
  readonly client?: Partial<
    Pick<
      ProducerOptions<Buffer, Buffer, Buffer, Buffer>,
      'autocreateTopics' | 'clientId' | 'compression' | 'sasl' | 'tls' | 'tlsServerName'
    >
  >;
}

const messageBytesMaxDefault = 100_000_000;
const timeoutMsDefault = 10_000;
/** A host, which is in brackets if it is an IPv6 address, and maybe a port. */
const serverPattern = /^(?<host>[^\s,:/@?#[\]]+|\[[^\s/@?#[\]]+\])(?::(?<port>\d{1,5}))?$/;
const portDefault = 9092;
const portMax = 65_535;
const topicRule = {
  of: 'topic',
  pattern: /^(?!\.{1,2}$)[\w.-]{1,249}$/,
  words: 'be up to 249 letters, digits, dots, underscores and hyphens',
} as const;
/** Less than the default of `max.message.bytes`, 1,048,588, which limits a batch as a whole. */
const batchBytesMaxDefault = 1_000_000;
/** How much of a request's time the server may wait for its replicas. */
const replicasShare = 0.8;
/** A hundredth of the requests may be refused because of that. */
const takenBeforeLarger = 100;

/**
 * Kafka as the broker of a relay: an idempotent producer, whose messages all in-sync replicas must have. The key of a message is its
 * model's id, so that a model is in one partition. Consumers recognise repeats by the header `ce_id`.
 *
 * A batch is one request per server of the cluster, and more only if a partition gets more than about 1 MB, or all get more than 10.
 *
 * @throws Error when a bootstrap server is anything but a host and a port, or no topic can be as `topic` says
 */
export function kafka(options: KafkaOptions): Broker {
  // The client would take anything else for the name of a host, and show it in an error.
  if (!options.bootstrapServers.every(isServer))
    throw new Error(
      'Each bootstrap server of Kafka is a host and a port, such as 127.0.0.1:9092 or [::1]:9092, without a protocol, user or password',
    );
  return new KafkaBroker(options);
}

class KafkaBroker implements Broker {
  readonly limits: { readonly timeoutMs: number };
  readonly #options: KafkaOptions;
  readonly #servers: readonly KafkaAddress[];
  readonly #clientOptions: Omit<ConstructorParameters<typeof KafkaProducer>[0], 'bootstrapBrokers'>;
  readonly #producers = new Set<KafkaProducer>();
  readonly #idle: KafkaProducer[] = [];
  /** How many bytes a batch of a topic has since Kafka has refused a larger one, and how many it has taken since then. */
  readonly #lowered = new Map<string, { readonly bytesMax: number; readonly takenCount: number }>();
  readonly #topic: NameTemplate;
  readonly #metadata: KafkaMetadata;
  readonly #silent: SilentServers;
  /** A message keeps its target, even if the number of partitions changes during the call. */
  readonly #targets = new WeakMap<BrokerMessage, string>();
  #lastTopic: string | undefined;
  /** How many producers there have been: each begins with the next bootstrap server. */
  #openedCount = 0;
  #closed = false;

  constructor(options: KafkaOptions) {
    this.#options = options;
    const { topic = '{topic}' } = options;
    this.#topic = new NameTemplate(topic, topicRule);
    const { client, timeoutMs = timeoutMsDefault } = options;
    this.#metadata = new KafkaMetadata(client?.autocreateTopics === true);
    this.#servers = options.bootstrapServers.map(addressOf);
    this.#clientOptions = {
      clientId: 'framework-relay',
      // The name of a server is never an address, and servers of a cluster have names if those that lead to it do.
      ...(client?.tls && { tlsServerName: this.#servers.every(({ host }) => isIP(host) === 0) }),
      ...client,
      connectTimeout: timeoutMs,
      requestTimeout: timeoutMs,
      // The server answers for all partitions of a request together, and has to do so before its time is over.
      timeout: Math.ceil(timeoutMs * replicasShare),
    };
    this.#silent = new SilentServers(this.#clientOptions.clientId, this.#clientOptions);
    if (!topic.includes('{')) this.#lastTopic = topic;
    this.limits = { timeoutMs: callTimeoutMs(options.timeoutMs ?? timeoutMsDefault) };
  }

  async publish(messages: readonly BrokerMessage[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    signal.throwIfAborted();
    const outcomes = new Map<BrokerMessage, PublishOutcome>();
    try {
      await this.#withProducer((producer) => this.#publishAll(producer, messages, outcomes, signal));
      return inOrder(messages, outcomes, heldBack);
    } catch (error) {
      // Keeps the outcomes that are known, so that nothing confirmed is sent again.
      if (outcomes.size === 0) throw error;
      return inOrder(messages, outcomes, outcomeOf('later', reasonOf(error)));
    }
  }

  /** The partition, which may have no leader or too few replicas, as far as it is known. */
  targetOf(message: BrokerMessage): string {
    const known = this.#targets.get(message);
    if (known !== undefined) return known;
    const topic = this.#topic.targetOf(message);
    // What has the id of a model in its name is no topic.
    const count = this.#metadata.countOf(topic);
    const target = typeof count === 'number' ? placeOf(topic, partitionOf(message, count)) : topic;
    this.#targets.set(message, target);
    return target;
  }

  /** Also checks that the user may write to the configured topic, or to the topic of the last message whose topic can exist. */
  async ping(): Promise<void> {
    await this.#withProducer((producer) => this.#answer(producer.ping(this.#lastTopic), forever));
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(Array.from([...this.#producers, this.#silent], (each) => each.end()));
  }

  /** Each call has a producer of its own, and leaves it to the next one unless it has failed. */
  async #withProducer<T>(work: (producer: KafkaProducer) => Promise<T>): Promise<T> {
    if (this.#closed) throw new Error('This broker was closed');
    const producer = this.#idle.pop() ?? this.#open();
    try {
      const result = await work(producer);
      this.#idle.push(producer);
      return result;
    } catch (error) {
      this.#producers.delete(producer);
      void producer.end();
      throw producer.worded(error);
    }
  }

  #open(): KafkaProducer {
    // A server that is silent uses up the time of a call, so that the call never comes to those behind it.
    const first = this.#openedCount++ % this.#servers.length;
    const bootstrapBrokers = [...this.#servers.slice(first), ...this.#servers.slice(0, first)];
    const options = { ...this.#clientOptions, bootstrapBrokers };
    const producer = new KafkaProducer(options, this.#metadata, this.#silent);
    this.#producers.add(producer);
    return producer;
  }

  /**
   * Publishes messages, and notes what becomes of them.
   *
   * @throws the first error when a partition has failed or the signal is aborted; messages without an answer have no outcome then
   */
  async #publishAll(
    producer: KafkaProducer,
    messages: readonly BrokerMessage[],
    outcomes: Map<BrokerMessage, PublishOutcome>,
    signal: AbortSignal,
  ): Promise<void> {
    const searched = new Map<string, number>();
    const failures = new Map<string, unknown>();
    const batchBytesMax = (topic: string): number =>
      Math.min(searched.get(topic) ?? Infinity, this.#lowered.get(topic)?.bytesMax ?? batchBytesMaxDefault);
    await producer.rest(signal);
    const records = await this.#records(producer, messages, outcomes, signal);
    let waiting = records;
    while (waiting.length > 0) {
      await producer.rest(signal);
      const request = nextRequest(waiting, batchBytesMax);
      const batches = Map.groupBy(request, ({ place }) => place);
      const sent = await this.#answer(producer.send(request), signal);
      // The server has answered, so only this partition waits.
      const fail = (place: string, error: Error): void => {
        failures.set(place, error);
        for (const { message } of batches.get(place) ?? [])
          outcomes.set(message, outcomeOf('later', error.message));
      };
      const noteAnswers = async ({ places, answers }: KafkaRequest): Promise<void> => {
        try {
          for (const [place, answer] of await this.#answer(answers, signal))
            if (answer instanceof Error) fail(place, answer);
            else this.#note(batches.get(place) ?? [], answer, outcomes, searched);
        } catch (error) {
          for (const place of places) failures.set(place, error);
        }
      };
      await Promise.all(sent.map(noteAnswers));
      waiting = unsettled(waiting, outcomes, failures);
    }
    const [failure] = failures.values();
    if (failure === undefined) return;
    // If another server answers, only these partitions wait.
    if (outcomes.size === 0 && (await this.#isThere(producer, signal)))
      for (const { message } of records) outcomes.set(message, outcomeOf('later', reasonOf(failure)));
    throw failure;
  }

  async #isThere(producer: KafkaProducer, signal: AbortSignal): Promise<boolean> {
    return this.#answer(producer.ping(undefined), signal).then(
      () => true,
      () => false,
    );
  }

  /** The records of messages that can be published, as far as is known; notes what becomes of others. */
  async #records(
    producer: KafkaProducer,
    messages: readonly BrokerMessage[],
    outcomes: Map<BrokerMessage, PublishOutcome>,
    signal: AbortSignal,
  ): Promise<readonly KafkaRecord[]> {
    const { messageBytesMax = messageBytesMaxDefault } = this.#options;
    const topics = [...new Set(messages.map((message) => this.#topic.of(message)))];
    await this.#answer(producer.describe(topics), signal, topicPatienceMs).catch((error: unknown) => {
      // The caller's time may be over because missing topics were awaited.
      const isKnown = topics.every((topic) => this.#metadata.countOf(topic) !== undefined);
      if (!signal.aborted || !isKnown) throw error;
    });
    this.#lastTopic = topics.findLast((topic) => this.#metadata.mayExist(topic)) ?? this.#lastTopic;
    const failedKeys = new Set<string>();
    return messages.flatMap((message) => {
      if (failedKeys.has(message.key)) return [];
      const topic = this.#topic.of(message);
      const { byteLength } = message.body;
      const found = this.#metadata.countOf(topic) ?? notKnown;
      const tooLarge = `the body has ${byteLength} bytes, more than ${messageBytesMax}`;
      const answer = byteLength > messageBytesMax ? ({ kind: 'refused', reason: tooLarge } as const) : found;
      if (typeof answer === 'number') return [recordOf(message, topic, answer)];
      failedKeys.add(message.key);
      outcomes.set(message, outcomeOf(answer.kind, answer.reason));
      return [];
    });
  }

  /**
   * Notes nothing of records that must be sent once more: others are to blame, or it is not known which, and smaller batches show it.
   *
   * @param searched how many bytes a batch of a topic has in this call, because one of its records is invalid
   */
  #note(
    records: readonly KafkaRecord[],
    answer: KafkaAnswer,
    outcomes: Map<BrokerMessage, PublishOutcome>,
    searched: Map<string, number>,
  ): void {
    const [{ topic } = { topic: '' }] = records;
    const indexes = new Set(answer.recordErrors.map(({ batchIndex }) => batchIndex));
    const blamed = records.filter((_, index) => indexes.has(index));
    if (records.length > 1 && (isTooLarge(answer) || (isInvalid(answer) && blamed.length === 0))) {
      const bytes = records.reduce((sum, record) => sum + recordBytes(record), 0);
      const bytesMax = Math.floor(bytes / 2);
      if (isTooLarge(answer)) this.#lowered.set(topic, { bytesMax, takenCount: 0 });
      else searched.set(topic, bytesMax);
      return;
    }
    if (answer.errorCode === 0) this.#raise(topic);
    for (const [index, record] of records.entries()) {
      if (answer.errorCode === 0) outcomes.set(record.message, confirmed);
      else if (blamed.length === 0 || blamed.includes(record))
        outcomes.set(
          record.message,
          outcomeOf(isDenied(answer) ? 'later' : 'refused', refusalOf(answer, index)),
        );
    }
  }

  /** Doubles the lowered limit of a topic after Kafka has taken a number of batches, because the topic's own limit may have been raised. */
  #raise(topic: string): void {
    const { bytesMax, takenCount } = this.#lowered.get(topic) ?? {};
    if (bytesMax === undefined || takenCount === undefined) return;
    if (takenCount + 1 < takenBeforeLarger)
      this.#lowered.set(topic, { bytesMax, takenCount: takenCount + 1 });
    else if (bytesMax * 2 >= batchBytesMaxDefault) this.#lowered.delete(topic);
    else this.#lowered.set(topic, { bytesMax: bytesMax * 2, takenCount: 0 });
  }

  /** @throws the signal's reason, an Error when there is no answer in time, and what the client throws */
  async #answer<T>(work: Promise<T>, signal: AbortSignal, patienceMs = 0): Promise<T> {
    const { timeoutMs = timeoutMsDefault } = this.#options;
    const late = new AbortController();
    const timer = setTimeout(
      () => late.abort(new Error(`Kafka has not answered within ${timeoutMs} ms`)),
      timeoutMs + patienceMs,
    );
    try {
      return await unlessAborted(unlessAborted(work, signal), late.signal);
    } finally {
      clearTimeout(timer);
    }
  }
}

function isServer(server: string): boolean {
  const { port } = addressOf(server);
  return serverPattern.test(server) && port >= 1 && port <= portMax;
}

function addressOf(server: string): KafkaAddress {
  const { host = '', port = portDefault } = serverPattern.exec(server)?.groups ?? {};
  // An IPv6 address is in brackets.
  return { host: host.replaceAll(/[[\]]/g, ''), port: Number(port) };
}

const confirmed: PublishOutcome = { kind: 'confirmed' };
const heldBack: PublishOutcome = { kind: 'held-back' };
const notKnown = { kind: 'later', reason: 'nothing is known of the topic' } as const;
const forever = new AbortController().signal;

function outcomeOf(kind: 'refused' | 'later', reason: string): PublishOutcome {
  return kind === 'later' ? { kind, of: 'target', reason } : { kind, reason };
}

/**
 * The records of which nothing is known so far, and that are not behind a failed one of their key.
 *
 * @param failures the partitions that get nothing more in this call
 */
function unsettled(
  records: readonly KafkaRecord[],
  outcomes: ReadonlyMap<BrokerMessage, PublishOutcome>,
  failures: ReadonlyMap<string, unknown>,
): readonly KafkaRecord[] {
  const failedKeys = new Set<string>();
  return records.filter(({ message, place }) => {
    const outcome = outcomes.get(message);
    const hasFailed = outcome === undefined ? failures.has(place) : outcome.kind !== 'confirmed';
    if (hasFailed) failedKeys.add(message.key);
    return outcome === undefined && !failedKeys.has(message.key);
  });
}

/**
 * Holds back whatever comes behind a message of its key that is not confirmed.
 *
 * @param unknown what became of messages of which nothing is known
 */
function inOrder(
  messages: readonly BrokerMessage[],
  outcomes: ReadonlyMap<BrokerMessage, PublishOutcome>,
  unknown: PublishOutcome,
): readonly PublishOutcome[] {
  const failedKeys = new Set<string>();
  return messages.map((message) => {
    const outcome = failedKeys.has(message.key) ? heldBack : (outcomes.get(message) ?? unknown);
    if (outcome.kind !== 'confirmed') failedKeys.add(message.key);
    return outcome;
  });
}
