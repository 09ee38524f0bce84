import {
  type Broker,
  type Connection,
  MultipleErrors,
  NetworkError,
  Producer,
  type ProducerInfo,
  type ProducerOptions,
  ProtocolError,
  ResponseError,
  Writer,
  compressionsAlgorithms,
  metadataV12,
  produceV10,
  produceV11,
  produceV9,
} from '@platformatic/kafka';
import { setTimeout as delay } from 'node:timers/promises';

import { guard, socketOf } from './kafka-connection.js';
import { KafkaMetadata, type PartitionCount } from './kafka-metadata.js';
import { type KafkaRecord, batchOf, placeOf } from './kafka-records.js';
import { unlessAborted } from './unless-aborted.js';

type KafkaClientOptions = ProducerOptions<Buffer, Buffer, Buffer, Buffer>;

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
 * The client connects, authenticates, and finds the servers. Its own `send` is not used: it takes long to encode messages
 * with many headers, and it can lose a batch, although it is confirmed, when another one of the same producer fails meanwhile.
 */
export class KafkaProducer {
  readonly #client: Producer;
  readonly #options: KafkaClientOptions;
  readonly #metadata: KafkaMetadata;
  /** The number of the next record, by partition. */
  readonly #sequences = new Map<string, number>();
  #identity: ProducerInfo | undefined;
  #version: keyof typeof parsers | undefined;
  /** Until when a server has asked it to be silent, on the clock of `performance`. */
  #silentUntilMs = 0;
  readonly #ended = new AbortController();
  /** How many connections there have been. */
  #connectionCount = 0;
  /** Why the last connection was lost, if it was: a request on it only learns that it is closed. */
  #loss: Error | undefined;

  constructor(options: KafkaClientOptions) {
    this.#options = options;
    this.#client = new Producer({ ...options, idempotent: true });
    this.#metadata = new KafkaMetadata(
      this.#client,
      options.autocreateTopics === true,
      () => this.#connectionCount,
    );
    this.#client.connections.on('connecting', ({ connection }) => {
      guard(connection);
      this.#connectionCount++;
      this.#loss = undefined;
      connection.on('error', (error) => {
        this.#loss = error;
      });
    });
  }

  /**
   * Resolves when a server answers. One that has asked for silence has answered, and would not do so again before it is over.
   *
   * @param topic what the user must be permitted to write, if it is known
   * @throws ProtocolError when it is not, as far as the server says so, and what the client throws
   */
  async ping(topic: string | undefined): Promise<void> {
    if (this.#silenceMs() > 0) return;
    const { brokers } = await this.#client.metadata({ topics: [], forceUpdate: true });
    const [broker] = brokers.values();
    if (topic === undefined || broker === undefined || !(await this.#tellsRights())) return;
    const connection = await this.#client.connections.get(broker);
    const { topics } = await metadataV12.api.async(connection, [topic], false, true);
    const { topicAuthorizedOperations: rights = rightsUnknown } =
      topics.find(({ name }) => name === topic) ?? {};
    if (rights !== rightsUnknown && (rights & writeRight) === 0)
      throw new ProtocolError(codes.topicAuthorizationFailed);
  }

  async #tellsRights(): Promise<boolean> {
    const apis = await this.#client.listApis();
    const { minVersion = 0, maxVersion = 0 } = apis.find(({ name }) => name === 'Metadata') ?? {};
    return minVersion <= metadataV12.api.version && metadataV12.api.version <= maxVersion;
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

  /** As {@link KafkaMetadata.partitionCounts}. */
  partitionCounts(
    topics: readonly string[],
    knownCountOf: (topic: string) => number,
  ): Promise<ReadonlyMap<string, PartitionCount>> {
    return this.#metadata.partitionCounts(topics, knownCountOf);
  }

  /**
   * Sends one request to each server that leads a partition of these records. It answers for a partition that it has taken its batch, would
   * never take it as it is, or does not permit it.
   *
   * @throws what the client throws when the servers are not known
   */
  async send(records: readonly KafkaRecord[]): Promise<readonly KafkaRequest[]> {
    this.#identity ??= await this.#client.initIdempotentProducer({});
    this.#version ??= await this.#produceVersion();
    const version = this.#version;
    const stamp = { ...this.#identity, timestampMs: Date.now() };
    const topicNames = [...new Set(records.map(({ topic }) => topic))];
    const { topics, brokers } = await this.#metadata.describe(topicNames);
    const places = [...Map.groupBy(records, ({ place }) => place)].map(([place, batch]) => {
      const [{ topic, partition } = { topic: '', partition: 0 }] = batch;
      const sequence = this.#sequences.get(place) ?? 0;
      const compression = compressionsAlgorithms[this.#options.compression ?? 'none'];
      const found = topics.get(topic);
      const leader = found instanceof Error ? -1 : (found?.partitions[partition]?.leader ?? -1);
      const bytes = batchOf(batch, { ...stamp, sequence }, compression);
      return { place, topic, partition, leader, count: batch.length, bytes };
    });
    return [...Map.groupBy(places, ({ leader }) => leader)].map(([leader, led]) => {
      const answers = this.#request(brokers.get(leader), led, version);
      // The caller may have given up by now, and a late failure must not end the process.
      answers.catch(() => undefined);
      return { places: led.map(({ place }) => place), answers };
    });
  }

  /** Ends its connections without waiting for a server that may be silent. What is still on its way is not sent again. */
  async end(): Promise<void> {
    this.#ended.abort();
    const sockets = Array.from(this.#client.connections, ([, connection]) => socketOf(connection));
    const closed = this.#client.close(true);
    for (const socket of sockets) socket?.destroy();
    await closed.catch(() => undefined);
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

  async #produceVersion(): Promise<keyof typeof parsers> {
    const apis = await this.#client.listApis();
    const { minVersion = 0, maxVersion = 0 } = apis.find(({ name }) => name === 'Produce') ?? {};
    const version = versions.find((each) => minVersion <= each && each <= maxVersion);
    if (version === undefined)
      throw new Error(
        `Kafka takes versions ${minVersion} to ${maxVersion} of requests to produce: update it`,
      );
    return version;
  }

  /** Sends a request, and once more if its connection is lost; the numbers in it show that it is the same. */
  async #request(
    leader: Broker | undefined,
    batches: readonly PlacedBatch[],
    version: keyof typeof parsers,
  ): Promise<ReadonlyMap<string, KafkaAnswer | Error>> {
    if (leader === undefined)
      return new Map(batches.map(({ place }) => [place, new Error(`Kafka names no leader of ${place}`)]));
    const { timeout = 0 } = this.#options;
    const topics = [...new Set(batches.map(({ topic }) => topic))];
    const sendOnce = async () => {
      const connection = await this.#client.connections.get(leader);
      // The connection may lead to a new cluster, which has given this producer's id to another one.
      await this.#metadata.verify(topics);
      return responseTo(connection, batches, version, timeout);
    };
    let isRepeated = false;
    const { responses, throttleTimeMs } = await sendOnce().catch((error: unknown) => {
      if (!(error instanceof NetworkError)) throw error;
      isRepeated = true;
      return sendOnce();
    });
    this.#silentUntilMs = Math.max(this.#silentUntilMs, performance.now() + throttleTimeMs);
    const answers = new Map<string, KafkaAnswer>(
      responses.flatMap(({ name, partitionResponses }) =>
        partitionResponses.map((answer) => [placeOf(name, answer.index), answer] as const),
      ),
    );
    return new Map<string, KafkaAnswer | Error>(
      batches.map(({ place, count }) => {
        const answer = answers.get(place);
        // An error that answers a repeat proves nothing: the first one may have been stored before a limit or a right was changed.
        if (answer === undefined || !isFinal(answer) || (isRepeated && answer.errorCode !== 0))
          return [place, new ProtocolError(answer?.errorCode ?? unknown)];
        if (answer.errorCode === 0)
          this.#sequences.set(place, ((this.#sequences.get(place) ?? 0) + count) % sequenceCount);
        return [place, answer];
      }),
    );
  }
}

interface PlacedBatch {
  readonly place: string;
  readonly topic: string;
  readonly partition: number;
  readonly count: number;
  readonly bytes: Buffer;
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
const produceKey = 0;
const allInSyncReplicas = -1;
const sequenceCount = 2 ** 31;
/** The versions of the request that have the same form, which are answered in different ones. */
const parsers = { 9: produceV9.parseResponse, 10: produceV10.parseResponse, 11: produceV11.parseResponse };
/** The lowest first: while a cluster is upgraded, the server that says what it takes may be newer than a leader. */
const versions = [9, 10, 11] as const;

function isFinal(answer: KafkaAnswer): boolean {
  const { errorCode } = answer;
  return errorCode === 0 || isTooLarge(answer) || isInvalid(answer) || topicRefusals.has(errorCode);
}

async function responseTo(
  connection: Connection,
  batches: readonly PlacedBatch[],
  version: keyof typeof parsers,
  timeoutMs: number,
): Promise<ProduceResponse> {
  const { promise, resolve, reject } = Promise.withResolvers<ProduceResponse>();
  connection.send<ProduceResponse>(
    produceKey,
    version,
    () => requestOf(batches, timeoutMs),
    parsers[version],
    true,
    true,
    (error, response: ProduceResponse | null | undefined) => {
      // An error that the server has answered has the whole answer.
      const answered = error instanceof ResponseError ? (error as ErrorWithResponse).response : response;
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

/** The client's declarations leave the response out. */
interface ErrorWithResponse extends ResponseError {
  readonly response?: ProduceResponse;
}

function requestOf(batches: readonly PlacedBatch[], timeoutMs: number): Writer {
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

/** The errors that an error consists of, or is caused by, in the end. */
function leavesOf(error: unknown): readonly (Error & { readonly apiCode?: number })[] {
  if (error instanceof AggregateError) return error.errors.flatMap(leavesOf);
  if (!(error instanceof Error)) return [];
  return error.cause === undefined ? [error] : leavesOf(error.cause);
}
