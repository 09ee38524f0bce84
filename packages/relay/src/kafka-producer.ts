import {
  type Broker,
  type Connection,
  MultipleErrors,
  NetworkError,
  Producer,
  type ProducerOptions,
  ProtocolError,
  Writer,
  compressionsAlgorithms,
} from '@platformatic/kafka';
import { setTimeout as delay } from 'node:timers/promises';

import {
  type KafkaSession,
  answerIn,
  endConnections,
  guard,
  produceParsers,
  retryDelayMs,
  startSession,
  topicsAt,
} from './kafka-connection.js';
import type { KafkaMetadata, TopicsAnswer } from './kafka-metadata.js';
import { type KafkaRecord, batchOf, placeOf } from './kafka-records.js';
import type { SilentServers } from './kafka-silence.js';
import { unlessAborted } from './unless-aborted.js';

type KafkaClientOptions = Omit<ProducerOptions<Buffer, Buffer, Buffer, Buffer>, 'bootstrapBrokers'> & {
  readonly bootstrapBrokers: readonly Broker[];
};

/** What Kafka answers about the batch of one partition. */
export interface KafkaAnswer {
  readonly errorCode: number;
  readonly errorMessage?: string | null | undefined;
  /** The records that are to blame, if Kafka says so; it has taken none of the batch. */
  readonly recordErrors: readonly {
    readonly batchIndex: number;
    readonly batchIndexErrorMessage?: string | null | undefined;
  }[];
}

/** What was sent to the server that leads some partitions. */
export interface KafkaRequest {
  readonly places: readonly string[];
  /** By partition; an Error if it takes nothing now. Rejects with what the client throws when there is no answer. */
  readonly answers: Promise<ReadonlyMap<string, KafkaAnswer | Error>>;
}

/**
 * An idempotent producer, for one call at a time: all in-sync replicas must have a batch, and one that is sent again after a lost
 * answer is stored once. When a partition has failed, nothing more may be sent to it, and the producer must be ended after the call, because
 * its numbers may differ from the server's then.
 *
 * The client connects and authenticates. Its own `send` is not used: it takes long to encode messages with many headers, and it can lose
 * a batch, although it is confirmed, when another one of the same producer fails meanwhile. Nor is its own `metadata`: it drops the
 * answer about other topics when one is missing, and keeps each combination of names for ever.
 */
export class KafkaProducer {
  readonly #client: Producer;
  readonly #options: KafkaClientOptions;
  readonly #metadata: KafkaMetadata;
  readonly #silent: SilentServers;
  readonly #sessions = new WeakMap<Connection, KafkaSession>();
  /** The server that has answered a question last on a connection of this producer. */
  #answered: Broker | undefined;
  /** Whether it has asked for topics: a new one follows one that has failed, maybe because a partition had another leader. */
  #hasAsked = false;
  /** Until when a server has asked it to be silent, on the clock of `performance`. */
  #silentUntilMs = 0;
  readonly #ended = new AbortController();
  /** Why the last connection was lost, if it was: a request on it only learns that it is closed. */
  #loss: Error | undefined;

  /**
   * @param options.bootstrapBrokers in the order in which they are asked
   * @param metadata what is known of topics, also to other producers
   * @param silent what is known of silent servers, also to other producers
   */
  constructor(options: KafkaClientOptions, metadata: KafkaMetadata, silent: SilentServers) {
    this.#silent = silent;
    this.#options = options;
    this.#client = new Producer({
      ...options,
      bootstrapBrokers: [...options.bootstrapBrokers],
      idempotent: true,
    });
    this.#metadata = metadata;
    this.#client.connections.on('connecting', ({ broker, connection }) => {
      guard(connection, () => this.#silent.hear(broker));
      this.#loss = undefined;
      connection.on('error', (error) => {
        this.#loss = error;
      });
    });
  }

  /**
   * Resolves when a server answers. One that has asked for silence has answered, and would not do so again before it is over.
   *
   * @param topic what the user must be permitted to write, if it is known; with `autocreateTopics`, it need not exist
   * @throws ProtocolError when it is not, as far as the server says so, and what the client throws
   */
  async ping(topic: string | undefined): Promise<void> {
    if (this.#silenceMs() > 0) return;
    const { topics } = await this.#query(topic === undefined ? [] : [topic], { withRights: true });
    const { errorCode = 0, topicAuthorizedOperations: rights = rightsUnknown } =
      topics.find(({ name }) => name === topic) ?? {};
    if (errorCode === codes.unknownTopic && this.#options.autocreateTopics === true) return;
    const isForbidden = errorCode === 0 && rights !== rightsUnknown && (rights & writeRight) === 0;
    if (errorCode !== 0 || isForbidden) throw new ProtocolError(errorCode || codes.topicAuthorizationFailed);
  }

  /**
   * Waits as long as a server has asked it to be silent, because a quota was exceeded: until then, that server reads nothing from
   * its connections, so that a request would only miss its deadline.
   *
   * @throws the signal's reason, and an Error when the producer is ended
   */
  async rest(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const ms = this.#silenceMs();
    if (ms > 0) await unlessAborted(delay(ms, undefined, { signal: this.#ended.signal }), signal);
  }

  /** Finds out how many partitions topics have, and who leads them: {@link KafkaMetadata.describe}. */
  async describe(topics: readonly string[]): Promise<void> {
    const isForced = !this.#hasAsked;
    await this.#metadata.describe(topics, (asked) => this.#query(asked, {}), { isForced });
    this.#hasAsked = true;
  }

  /**
   * Sends one request to each server that leads a partition of these records. It answers for a partition that it has taken its batch, would
   * never take it as it is, or does not permit it.
   *
   * @throws what the client throws when the servers are not known
   */
  async send(records: readonly KafkaRecord[]): Promise<readonly KafkaRequest[]> {
    await this.describe([...new Set(records.map(({ topic }) => topic))]);
    const batches = [...Map.groupBy(records, ({ place }) => place)].map(([place, batch]) => {
      const [{ topic, partition } = { topic: '', partition: 0 }] = batch;
      return { place, topic, partition, records: batch, leader: this.#metadata.leaderOf(topic, partition) };
    });
    return [...Map.groupBy(batches, ({ leader }) => leader)].map(([leader, led]) => {
      const answers = this.#request(leader, led);
      // The caller may have given up by now, and a late failure must not end the process.
      answers.catch(() => undefined);
      return { places: led.map(({ place }) => place), answers };
    });
  }

  /** Ends its connections without waiting for a server that may be silent. What is still on its way is not sent again. */
  async end(): Promise<void> {
    this.#ended.abort();
    await endConnections(this.#client.connections, () => this.#client.close(true));
  }

  #silenceMs(): number {
    return this.#silentUntilMs - performance.now();
  }

  /** An error of a call with the words of those that it consists of, which the client keeps apart. */
  worded(error: unknown): unknown {
    if (!(error instanceof MultipleErrors) && !(error instanceof NetworkError)) return error;
    const words = new Set([error, this.#loss].flatMap(leavesOf).map(({ message }) => message));
    return new Error([...words].join(' '), { cause: error });
  }

  /** Asks the servers one after the other for topics, and all of them three times: first the one that has answered last. */
  async #query(
    topics: readonly string[],
    { withRights = false }: { readonly withRights?: boolean },
  ): Promise<TopicsAnswer> {
    const failures: Error[] = [];
    const autocreates = !withRights && this.#options.autocreateTopics === true;
    for (let round = 0; round < queryRounds; round++) {
      if (round > 0) await delay(retryDelayMs, undefined, { signal: this.#ended.signal });
      for (const server of this.#servers())
        try {
          const answer = await this.#silent.unlessSilent(server, async () => {
            const connection = await this.#client.connections.get(server);
            return topicsAt(connection, topics, { autocreates, withRights });
          });
          this.#answered = this.#metadata.answered = server;
          return answer;
        } catch (error) {
          // Also when the caller has given up: the next producer must not begin with a silent server.
          if (server === this.#answered) this.#answered = undefined;
          if (server === this.#metadata.answered) this.#metadata.answered = undefined;
          this.#ended.signal.throwIfAborted();
          failures.push(error as Error);
        }
    }
    const [failure] = failures;
    const isSame = failures.every(({ message }) => message === failure?.message);
    throw isSame ? failure : new MultipleErrors('Kafka has not answered.', failures);
  }

  #servers(): readonly Broker[] {
    const answered = this.#answered ?? this.#metadata.answered;
    return [...(answered === undefined ? [] : [answered]), ...this.#options.bootstrapBrokers];
  }

  async #sessionOf(connection: Connection): Promise<KafkaSession> {
    const { timeout = 0 } = this.#options;
    const session = this.#sessions.get(connection) ?? (await startSession(connection, timeout));
    this.#sessions.set(connection, session);
    return session;
  }

  /** Sends a request, and once more if its connection is lost. */
  async #request(
    leader: Broker | undefined,
    batches: readonly PlacedBatch[],
  ): Promise<ReadonlyMap<string, KafkaAnswer | Error>> {
    if (leader === undefined)
      return new Map(batches.map(({ place }) => [place, new Error(`Kafka names no leader of ${place}`)]));
    const { timeout = 0, compression = 'none' } = this.#options;
    let sent: KafkaSession | undefined;
    let isRepeated = false;
    const sendOnce = async (): Promise<ProduceResponse> => {
      const connection = await this.#client.connections.get(leader);
      isRepeated = sent !== undefined;
      // The same numbers show that it is a repeat. Where they may be another producer's, it is sent as new, and may be stored twice.
      const isTrusted = sent !== undefined && (await this.#isSameCluster(connection, sent, batches));
      const session = isTrusted && sent ? sent : await this.#sessionOf(connection);
      sent = session;
      const timestampMs = Date.now();
      const written = batches.map(({ place, topic, partition, records }) => {
        const stamp = { ...session, sequence: session.sequences.get(place) ?? 0, timestampMs };
        const bytes = batchOf(records, stamp, compressionsAlgorithms[compression]);
        return { topic, partition, bytes };
      });
      const response = await responseTo(connection, requestOf(written, timeout), session);
      session.answeredMs = performance.now();
      return response;
    };
    const { responses, throttleTimeMs } = await this.#silent.unlessSilent(leader, () =>
      sendOnce().catch((error: unknown) => {
        if (!(error instanceof NetworkError)) throw error;
        return sendOnce();
      }),
    );
    this.#silentUntilMs = Math.max(this.#silentUntilMs, performance.now() + throttleTimeMs);
    const answers = new Map<string, KafkaAnswer>(
      responses.flatMap(({ name, partitionResponses }) =>
        partitionResponses.map((answer) => [placeOf(name, answer.index), answer] as const),
      ),
    );
    return new Map<string, KafkaAnswer | Error>(
      batches.map(({ place, records }) => {
        const answer = answers.get(place);
        // An error that answers a repeat proves nothing: the first one may have been stored before a limit or a right was changed.
        if (answer === undefined || !isFinal(answer) || (isRepeated && answer.errorCode !== 0))
          return [place, new ProtocolError(answer?.errorCode ?? unknown)];
        const { sequences } = sent ?? { sequences: new Map<string, number>() };
        if (answer.errorCode === 0)
          sequences.set(place, ((sequences.get(place) ?? 0) + records.length) % sequenceCount);
        return [place, answer];
      }),
    );
  }

  /**
   * Whether a new connection certainly leads to the cluster that has given a producer its id, whatever its address: no cluster is
   * restored from a backup within a second, and another one has other topics.
   */
  async #isSameCluster(
    connection: Connection,
    { answeredMs }: KafkaSession,
    batches: readonly PlacedBatch[],
  ): Promise<boolean> {
    const topics = [...new Set(batches.map(({ topic }) => topic))];
    const answer = await topicsAt(connection, topics, { autocreates: false, withRights: false });
    return performance.now() - answeredMs < trustedMs && this.#metadata.areSame(topics, answer);
  }
}

interface PlacedBatch {
  readonly place: string;
  readonly topic: string;
  readonly partition: number;
  readonly records: readonly KafkaRecord[];
}

/** Whether a batch is more than the topic or the server allows; its records may be fine. */
export function isTooLarge({ errorCode }: KafkaAnswer): boolean {
  return errorCode === codes.messageTooLarge || errorCode === codes.recordListTooLarge;
}

/** Whether the producer may not write to the topic now. */
export function isDenied({ errorCode }: KafkaAnswer): boolean {
  return errorCode === codes.topicAuthorizationFailed;
}

/** Whether Kafka finds a record of a batch invalid, and may say which. */
export function isInvalid({ errorCode }: KafkaAnswer): boolean {
  return errorCode === codes.invalidRecord;
}

/** What Kafka has said against a record. */
export function refusalOf({ errorCode, errorMessage, recordErrors }: KafkaAnswer, index: number): string {
  const ofRecord = recordErrors.find(({ batchIndex }) => batchIndex === index)?.batchIndexErrorMessage;
  return ofRecord ?? errorMessage ?? new ProtocolError(errorCode).message;
}

/** The error codes of the protocol that mean something here. */
const codes = {
  unknownTopic: 3,
  messageTooLarge: 10,
  invalidTopic: 17,
  recordListTooLarge: 18,
  topicAuthorizationFailed: 29,
  invalidRecord: 87,
} as const;
const unknown = -1;
/** What a server says of the rights to a topic, each of which is a bit, if it does not say them. */
const rightsUnknown = -(2 ** 31);
const writeRight = 1 << 4;
const topicRefusals: ReadonlySet<number> = new Set([codes.invalidTopic, codes.topicAuthorizationFailed]);
/** How often all servers are asked before there is no answer. */
const queryRounds = 3;
/** How long after the last answer of a server its cluster is certainly still the same. */
const trustedMs = 1_000;
const produceKey = 0;
const allInSyncReplicas = -1;
const sequenceCount = 2 ** 31;

function isFinal(answer: KafkaAnswer): boolean {
  const { errorCode } = answer;
  return errorCode === 0 || isTooLarge(answer) || isInvalid(answer) || topicRefusals.has(errorCode);
}

async function responseTo(
  connection: Connection,
  request: Writer,
  { produceVersion }: KafkaSession,
): Promise<ProduceResponse> {
  const { promise, resolve, reject } = Promise.withResolvers<ProduceResponse>();
  connection.send<ProduceResponse>(
    produceKey,
    produceVersion,
    () => request,
    produceParsers[produceVersion],
    true,
    true,
    (error, response: ProduceResponse | null | undefined) => {
      const answered = response ?? (answerIn(error) as ProduceResponse | undefined);
      if (answered) resolve(answered);
      else reject(error);
    },
  );
  return promise;
}

interface ProduceResponse {
  /** How long the server reads nothing from this connection. */
  readonly throttleTimeMs: number;
  readonly responses: readonly {
    readonly name: string;
    readonly partitionResponses: readonly (KafkaAnswer & { readonly index: number })[];
  }[];
}

function requestOf(batches: readonly WrittenBatch[], timeoutMs: number): Writer {
  const topics = [...Map.groupBy(batches, ({ topic }) => topic)];
  return Writer.create()
    .appendString(null)
    .appendInt16(allInSyncReplicas)
    .appendInt32(timeoutMs)
    .appendArray(topics, (ofTopics, [topic, ofTopic]) => {
      ofTopics.appendString(topic).appendArray([...ofTopic], (target, { partition, bytes }) => {
        target
          .appendInt32(partition)
          .appendUnsignedVarInt(bytes.byteLength + 1)
          .append(bytes);
      });
    })
    .appendTaggedFields();
}

interface WrittenBatch {
  readonly topic: string;
  readonly partition: number;
  readonly bytes: Buffer;
}

/** The errors that an error consists of, or is caused by, in the end. */
function leavesOf(error: unknown): readonly (Error & { readonly apiCode?: number })[] {
  if (error instanceof AggregateError) return error.errors.flatMap(leavesOf);
  if (!(error instanceof Error)) return [];
  return error.cause === undefined ? [error] : leavesOf(error.cause);
}
