import type { ProducerOptions } from '@platformatic/kafka';

import { type Broker, type BrokerMessage, type PublishOutcome, callTimeoutMs } from './broker.js';
import { type KafkaAnswer, KafkaProducer, isTooLarge, reasonOf, worded } from './kafka-producer.js';
import { type KafkaRecord, nextRequest, recordBytes, recordOf } from './kafka-records.js';
import { unlessAborted } from './relay.js';

/** How a relay reaches Kafka. */
export interface KafkaOptions {
  /** Such as `127.0.0.1:9092`; the first that answers names all servers of the cluster. */
  readonly bootstrapServers: readonly string[];
  /** The topic. Default: each message's own, `<namespace>.<model name>`. It must exist, unless `client.autocreateTopics` is set. */
  readonly topic?: string;
  /**
   * The largest body that is published. Kafka itself refuses messages larger than the topic's `max.message.bytes`, but disconnects
   * above the server's `socket.request.max.bytes`. Default 100,000,000.
   */
  readonly messageBytesMax?: number;
  /** How long a request may take to be confirmed, in milliseconds. Default 10,000. */
  readonly timeoutMs?: number;
  /** Further options of the client, such as `sasl`, `tls` or `compression`. */
  readonly client?: Partial<
    Pick<
      ProducerOptions<Buffer, Buffer, Buffer, Buffer>,
      'autocreateTopics' | 'clientId' | 'compression' | 'sasl' | 'tls' | 'tlsServerName'
    >
  >;
}

const messageBytesMaxDefault = 100_000_000;
const timeoutMsDefault = 10_000;
/** Less than the default of `max.message.bytes`, 1,048,588, which limits a batch as a whole. */
const batchBytesMaxDefault = 1_000_000;

/**
 * Kafka as the broker of a relay: an idempotent producer, whose messages all in-sync replicas must have. The key of a message is its
 * model's id, so that a model is in one partition. Consumers recognise repeats by the header `ce_id`.
 *
 * A batch is one request per server of the cluster, and more only if a partition gets more than about 1 MB.
 *
 * @throws Error when a bootstrap server has more than a host and a port
 */
export function kafka(options: KafkaOptions): Broker {
  // The client would take anything else for the name of a host, and show it in an error.
  if (options.bootstrapServers.some((server) => /[/@]/.test(server)))
    throw new Error(
      'A bootstrap server of Kafka is a host and a port, such as 127.0.0.1:9092, without a protocol, user or password',
    );
  return new KafkaBroker(options);
}

class KafkaBroker implements Broker {
  readonly limits: { readonly timeoutMs: number };
  readonly #options: KafkaOptions;
  readonly #producers = new Set<KafkaProducer>();
  readonly #idle: KafkaProducer[] = [];
  /** What Kafka has refused as too large, by its topic: how many bytes a batch has since then. */
  readonly #batchBytesMax = new Map<string, number>();
  #closed = false;

  constructor(options: KafkaOptions) {
    this.#options = options;
    this.limits = { timeoutMs: callTimeoutMs(options.timeoutMs ?? timeoutMsDefault) };
  }

  async publish(messages: readonly BrokerMessage[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    signal.throwIfAborted();
    return this.#withProducer((producer) => this.#publishAll(producer, messages, signal));
  }

  async ping(): Promise<void> {
    await this.#withProducer((producer) => this.#answer(producer.ping(), forever));
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(Array.from(this.#producers, (producer) => producer.end()));
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
      throw worded(error);
    }
  }

  #open(): KafkaProducer {
    const { bootstrapServers, client, timeoutMs = timeoutMsDefault } = this.#options;
    const producer = new KafkaProducer({
      clientId: 'framework-relay',
      ...client,
      bootstrapBrokers: [...bootstrapServers],
      retries: 2,
      retryDelay: 100,
      connectTimeout: timeoutMs,
      requestTimeout: timeoutMs,
      timeout: timeoutMs,
    });
    this.#producers.add(producer);
    return producer;
  }

  async #publishAll(
    producer: KafkaProducer,
    messages: readonly BrokerMessage[],
    signal: AbortSignal,
  ): Promise<readonly PublishOutcome[]> {
    const outcomes = new Map<BrokerMessage, PublishOutcome>();
    let waiting = await this.#records(producer, messages, outcomes, signal);
    while (waiting.length > 0) {
      signal.throwIfAborted();
      const request = nextRequest(waiting, (topic) => this.#batchBytesMax.get(topic) ?? batchBytesMaxDefault);
      await this.#send(producer, request, outcomes, signal);
      const refused = new Set<string>();
      for (const { message } of request)
        if (outcomes.get(message)?.kind === 'refused') refused.add(message.key);
      waiting = waiting.filter(({ message }) => !outcomes.has(message) && !refused.has(message.key));
    }
    return inOrder(messages, outcomes);
  }

  /** The records of messages that can be published, as far as is known; others are refused. */
  async #records(
    producer: KafkaProducer,
    messages: readonly BrokerMessage[],
    outcomes: Map<BrokerMessage, PublishOutcome>,
    signal: AbortSignal,
  ): Promise<readonly KafkaRecord[]> {
    const { messageBytesMax = messageBytesMaxDefault } = this.#options;
    const counts = new Map<string, number | { readonly refused: string }>();
    for (const topic of new Set(messages.map((message) => this.#topicOf(message))))
      counts.set(topic, await this.#answer(producer.partitionCountOf(topic), signal));
    const refused = new Set<string>();
    return messages.flatMap((message) => {
      if (refused.has(message.key)) return [];
      const topic = this.#topicOf(message);
      const { byteLength } = message.body;
      const found = counts.get(topic) ?? 0;
      const tooLarge = { refused: `the body has ${byteLength} bytes, more than ${messageBytesMax}` };
      const count = byteLength > messageBytesMax ? tooLarge : found;
      if (typeof count === 'number') return [recordOf(message, topic, count)];
      refused.add(message.key);
      outcomes.set(message, { kind: 'refused', reason: count.refused });
      return [];
    });
  }

  #topicOf({ topic }: BrokerMessage): string {
    return this.#options.topic ?? topic;
  }

  /** Sends one request to each server that has a partition of these records, and notes what has become of them. */
  async #send(
    producer: KafkaProducer,
    request: readonly KafkaRecord[],
    outcomes: Map<BrokerMessage, PublishOutcome>,
    signal: AbortSignal,
  ): Promise<void> {
    const answers = await this.#answer(producer.send(request), signal);
    for (const [place, records] of Map.groupBy(request, (record) => record.place)) {
      const answer = answers.get(place);
      if (answer !== undefined) this.#note(records, answer, outcomes);
    }
  }

  /** Notes nothing of records that must be sent once more, because others are to blame. */
  #note(
    records: readonly KafkaRecord[],
    answer: KafkaAnswer,
    outcomes: Map<BrokerMessage, PublishOutcome>,
  ): void {
    const [{ topic } = { topic: '' }] = records;
    if (isTooLarge(answer) && records.length > 1) {
      const bytes = records.reduce((sum, record) => sum + recordBytes(record), 0);
      this.#batchBytesMax.set(topic, Math.floor(bytes / 2));
      return;
    }
    const blamed = new Set(answer.recordErrors.map(({ batchIndex }) => batchIndex));
    for (const [index, { message }] of records.entries()) {
      if (answer.errorCode === 0) outcomes.set(message, confirmed);
      else if (blamed.size === 0 || blamed.has(index))
        outcomes.set(message, { kind: 'refused', reason: reasonOf(answer, index) });
    }
  }

  /** @throws the signal's reason, an Error when there is no answer in time, and what the client throws */
  async #answer<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
    const { timeoutMs = timeoutMsDefault } = this.#options;
    const late = new AbortController();
    const timer = setTimeout(
      () => late.abort(new Error(`Kafka has not answered within ${timeoutMs} ms`)),
      timeoutMs,
    );
    try {
      return await unlessAborted(work, AbortSignal.any([signal, late.signal]));
    } finally {
      clearTimeout(timer);
    }
  }
}

const confirmed: PublishOutcome = { kind: 'confirmed' };
const heldBack: PublishOutcome = { kind: 'held-back' };
const forever = new AbortController().signal;

/** Holds back whatever comes behind a refused message of its key. */
function inOrder(
  messages: readonly BrokerMessage[],
  outcomes: ReadonlyMap<BrokerMessage, PublishOutcome>,
): readonly PublishOutcome[] {
  const refused = new Set<string>();
  return messages.map((message) => {
    const outcome = refused.has(message.key) ? heldBack : (outcomes.get(message) ?? heldBack);
    if (outcome.kind === 'refused') refused.add(message.key);
    return outcome;
  });
}
