import {
  type Connection,
  ConnectionPool,
  NetworkError,
  Producer,
  Reader,
  ResponseError,
  type Writer,
  readRecordsBatch,
} from '@platformatic/kafka';
import { EventEmitter } from 'node:events';
import { vi } from 'vitest';

/** More than any test needs. */
const requestsMax = 500;

/** The batch of one partition, as the servers of a scripted cluster get it. */
export interface SentBatch {
  readonly topic: string;
  readonly partition: number;
  readonly sequence: number;
  readonly count: number;
}

/** A request to produce, and the server that got it. */
export interface SentRequest {
  readonly server: number;
  readonly version: number;
  readonly batches: readonly SentBatch[];
}

/** What a server answers about a batch. Default: that it has taken it. */
export interface BatchVerdict {
  readonly errorCode?: number;
  readonly errorMessage?: string | null;
  readonly recordErrors?: readonly {
    readonly batchIndex: number;
    readonly batchIndexErrorMessage: string | null;
  }[];
}

/**
 * Servers of Kafka behind the client's own calls, which it replaces until the test is over: the server of that number leads all partitions of
 * topic `t<number>`. As in the client, each producer keeps what it was told of a topic.
 */
export class ScriptedCluster {
  readonly requests: SentRequest[] = [];
  /** Each call of `metadata`. */
  readonly metadata = vi.spyOn(Producer.prototype, 'metadata');
  readonly identities = vi.spyOn(Producer.prototype, 'initIdempotentProducer');
  /** Called with how long each request lets the server wait for its replicas. */
  onRequest: (waitMs: number) => void = () => undefined;
  /** How long a server reads nothing after a request. */
  throttleMs: (server: number) => number = () => 0;
  partitionCount = 1;
  verdict: (batch: SentBatch) => BatchVerdict | undefined = () => ({});
  /** The error of a request, instead of an answer. */
  failure: (request: SentRequest) => Error | undefined = () => undefined;
  /** What each answer waits for. */
  before: (request: SentRequest) => Promise<void> | undefined = () => undefined;

  constructor([minVersion, maxVersion]: readonly [number, number] = [3, 9]) {
    const produce = { name: 'Produce', apiKey: 0, minVersion, maxVersion };
    this.identities.mockImplementation((async () => ({ producerId: 7n, producerEpoch: 3 })) as never);
    vi.spyOn(Producer.prototype, 'listApis').mockImplementation(async () => [produce]);
    const told = new WeakMap<Producer, Map<string, unknown>>();
    const describe = this.#describe;
    this.metadata.mockImplementation(async function (this: Producer, { topics = [], forceUpdate = false }) {
      const known = forceUpdate ? new Map() : (told.get(this) ?? new Map());
      for (const topic of topics) known.set(topic, known.get(topic) ?? describe(topic));
      told.set(this, known);
      const servers = topics.map(
        (topic) => [serverOf(topic), { host: 'kafka', port: serverOf(topic) }] as const,
      );
      return { topics: known, brokers: new Map(servers) };
    } as never);
    const connect = this.#connect;
    vi.spyOn(ConnectionPool.prototype, 'get').mockImplementation(async function (
      this: ConnectionPool,
      { port }: { readonly port: number },
    ) {
      return connect(this, port);
    });
  }

  /** As in the client, a pool says when it connects to a server, first and after a loss. */
  readonly #connect = (pool: ConnectionPool, server: number): Connection => {
    const connected = this.#connected.get(pool) ?? new Set();
    this.#connected.set(pool, connected);
    if (!connected.has(server)) {
      const connection = Object.assign(new EventEmitter(), { send: () => true, close: () => undefined });
      pool.emit('connecting', { connection });
      connected.add(server);
    }
    return this.#connectionTo(server, () => connected.delete(server));
  };

  /** The servers to which a pool is connected. */
  readonly #connected = new WeakMap<ConnectionPool, Set<number>>();

  readonly #describe = (topic: string) => {
    const partitions = Array.from({ length: this.partitionCount }, () => ({ leader: serverOf(topic) }));
    return { partitionsCount: this.partitionCount, partitions };
  };

  #connectionTo(server: number, lose: () => void): Connection {
    const send = (
      _api: number,
      version: number,
      payload: () => Writer,
      _parse: unknown,
      _requestTags: boolean,
      _answerTags: boolean,
      callback: (error: Error | null, response?: unknown) => void,
    ): void => {
      const { batches, waitMs } = contentOf(payload().buffer);
      this.onRequest(waitMs);
      const request = { server, version, batches };
      this.requests.push(request);
      void this.#answer(request, (error, response) => {
        if (error instanceof NetworkError) lose();
        callback(error, response);
      });
    };
    return { send } as unknown as Connection;
  }

  async #answer(
    request: SentRequest,
    callback: (error: Error | null, response?: unknown) => void,
  ): Promise<void> {
    await this.before(request);
    if (this.requests.length > requestsMax)
      return callback(new Error('The client sends requests without end'));
    const failure = this.failure(request);
    if (failure !== undefined) return callback(failure);
    const responses = request.batches.flatMap((batch) => {
      const verdict = this.verdict(batch);
      const answer = { index: batch.partition, errorCode: 0, recordErrors: [], ...verdict };
      return verdict === undefined ? [] : [{ name: batch.topic, partitionResponses: [answer] }];
    });
    const response = { responses, throttleTimeMs: this.throttleMs(request.server) };
    const refused = responses.some(({ partitionResponses: [answer] }) => answer?.errorCode !== 0);
    callback(refused ? new ResponseError(0, 9, { '/': [1, null] }, response) : null, response);
  }
}

/** The error of a connection that is lost. */
export function lostConnection(): Error {
  return new NetworkError('Connection closed');
}

function serverOf(topic: string): number {
  return Number(topic.replace('t', ''));
}

function contentOf(request: Buffer): { readonly batches: readonly SentBatch[]; readonly waitMs: number } {
  const reader = Reader.from(request);
  reader.readNullableString();
  reader.readInt16();
  const waitMs = reader.readInt32();
  const batches = reader
    .readArray((each) => ({
      topic: each.readString(),
      parts: each.readArray((part) => ({ partition: part.readInt32(), bytes: part.readBytes() })),
    }))
    .flatMap(({ topic, parts }) =>
      parts.map(({ partition, bytes }) => {
        const { firstSequence: sequence, records } = readRecordsBatch(Reader.from(bytes));
        return { topic, partition, sequence, count: records.length };
      }),
    );
  return { batches, waitMs };
}
