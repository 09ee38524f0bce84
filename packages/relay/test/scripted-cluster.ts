import {
  type Connection,
  ConnectionPool,
  NetworkError,
  Reader,
  ResponseError,
  type Writer,
  readRecordsBatch,
} from '@platformatic/kafka';
import { EventEmitter } from 'node:events';
import { vi } from 'vitest';

/** The requests that it answers; every other one is for a producer id. */
const apis = { produce: 0, metadata: 3, versions: 18 } as const;
/** How many servers there are. */
const serverCount = 100;
/** More than any test needs. */
const requestsMax = 500;

/** The batch of one partition, as the servers of a scripted cluster get it. */
export interface SentBatch {
  readonly topic: string;
  readonly partition: number;
  readonly producerId: bigint;
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

/** What a server answers about a topic. Default: it has `partitionCount` partitions, all led by one server. */
export interface TopicVerdict {
  readonly errorCode?: number;
  readonly topicId?: string;
  readonly isInternal?: boolean;
  readonly partitions?: readonly { readonly partitionIndex: number; readonly leaderId: number }[];
}

type Callback = (error: Error | null, response?: unknown) => void;

/**
 * Servers of Kafka behind the client's connections, which it replaces until the test is over: the server of that number leads all partitions of
 * topic `t<number>`. Each connection gets a producer id of its own.
 */
export class ScriptedCluster {
  readonly requests: SentRequest[] = [];
  /** Each question about topics, and the server that gets it; what it throws is the answer. */
  readonly metadata = vi.fn<(topics: readonly string[], server: number) => void>();
  /** Each producer id that is given out. */
  readonly identities = vi.fn<() => void>();
  describe: (topic: string) => TopicVerdict = () => ({});
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
  readonly #produce: object;

  constructor([minVersion, maxVersion]: readonly [number, number] = [3, 9]) {
    this.#produce = { name: 'Produce', apiKey: 0, minVersion, maxVersion };
    const connect = this.#connect;
    vi.spyOn(ConnectionPool.prototype, 'get').mockImplementation(async function (
      this: ConnectionPool,
      { port }: { readonly port: number },
    ) {
      return connect(this, port);
    });
  }

  /** As in the client, a pool has one connection to a server, and says when it connects, first and after a loss. */
  readonly #connect = (pool: ConnectionPool, server: number): Connection => {
    const connections = this.#connections.get(pool) ?? new Map<number, Connection>();
    this.#connections.set(pool, connections);
    const known = connections.get(server);
    if (known !== undefined) return known;
    const connection = this.#connectionTo(server, () => connections.delete(server));
    connections.set(server, connection);
    pool.emit('connecting', { connection });
    return connection;
  };

  readonly #connections = new WeakMap<ConnectionPool, Map<number, Connection>>();

  #connectionTo(server: number, lose: () => void): Connection {
    const produce = (version: number, payload: Writer, callback: Callback): void => {
      const { batches, waitMs } = contentOf(payload.buffer);
      this.onRequest(waitMs);
      const request = { server, version, batches };
      this.requests.push(request);
      void this.#answer(request, (error, response) => {
        if (error instanceof NetworkError) lose();
        callback(error, response);
      });
    };
    const send = (
      api: number,
      version: number,
      payload: () => Writer,
      _parse: unknown,
      _requestTags: boolean,
      _answerTags: boolean,
      callback: Callback,
    ): void => {
      if (api === apis.produce) produce(version, payload(), callback);
      else if (api === apis.metadata) this.#describeAll(server, payload().buffer, callback);
      else if (api === apis.versions) callback(null, { apiKeys: [this.#produce] });
      else this.#identify(callback);
    };
    return Object.assign(new EventEmitter(), { send, close: () => undefined }) as unknown as Connection;
  }

  #identify(callback: Callback): void {
    this.identities();
    callback(null, { producerId: BigInt(this.identities.mock.calls.length), producerEpoch: 0 });
  }

  #describeAll(server: number, request: Buffer, callback: Callback): void {
    const names = Reader.from(request).readArray((each) => {
      each.readUUID();
      return each.readString();
    });
    const topics = names.map((name) => {
      const partitions = Array.from({ length: this.partitionCount }, (_, partitionIndex) => ({
        partitionIndex,
        leaderId: serverOf(name),
      }));
      return { errorCode: 0, name, topicId: name, isInternal: false, partitions, ...this.describe(name) };
    });
    const brokers = Array.from({ length: serverCount }, (_, nodeId) => ({
      nodeId,
      host: 'kafka',
      port: nodeId,
    }));
    const errors = topics.flatMap(({ errorCode }, index) =>
      errorCode === 0 ? [] : [[`/topics/${index}`, [errorCode, null]] as [string, [number, null]]],
    );
    const response = { topics, brokers };
    try {
      this.metadata(names, server);
    } catch (error) {
      callback(error as Error);
      return;
    }
    if (errors.length === 0) callback(null, response);
    else callback(new ResponseError(3, 11, Object.fromEntries(errors), response));
  }

  async #answer(request: SentRequest, callback: Callback): Promise<void> {
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
        const { producerId, firstSequence: sequence, records } = readRecordsBatch(Reader.from(bytes));
        return { topic, partition, producerId, sequence, count: records.length };
      }),
    );
  return { batches, waitMs };
}
