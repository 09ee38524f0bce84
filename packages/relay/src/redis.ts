import { ErrorReply, type RedisClientOptions, createClient } from 'redis';

import { type Broker, type BrokerMessage, type PublishOutcome, callTimeoutMs, warnOnce } from './broker.js';
import { ConnectionOnDemand } from './connection-on-demand.js';
import { NameTemplate } from './name-template.js';
import { unlessAborted } from './unless-aborted.js';

/** How a relay reaches Redis. */
export interface RedisOptions {
  /** Such as `redis://127.0.0.1:6379`. */
  readonly url: string;
  /**
   * The key of the stream, in which `{namespace}`, `{model}`, `{type}`, `{id}` and `{topic}` stand for what a message has. Default `{topic}`, which
   * is `<namespace>.<model name>`.
   */
  readonly stream?: string;
  /** About how many entries a stream keeps; older ones are removed. Default: all. */
  readonly maxLength?: number;
  /** The largest body that is published, in bytes. Default 33,554,432. */
  readonly messageBytesMax?: number;
  /** How long Redis may take to answer, in milliseconds; after that, another connection is opened. Default 30,000. */
  readonly timeoutMs?: number;
  /** Further options of the client, such as `password` or `socket.tls`. */
  readonly client?: Omit<RedisClientOptions, 'url'>;
}

const messageBytesMaxDefault = 32 * 1024 * 1024;
const timeoutMsDefault = 30_000;
/** How long an answer is awaited when the time of a call is over: less than the second that the relay leaves for what is known by then. */
const graceMs = 500;
const streamRule = { of: 'stream', pattern: /[^]/, words: 'not be empty' } as const;

/**
 * Redis streams as the broker of a relay. Each batch is one transaction, so that Redis takes its entries in order; there are more
 * only if models have events in several streams. A stream has no de-duplication of its own: consumers recognise repeats by the
 * attribute `id`.
 *
 * How durable an entry is depends on the server's `appendfsync` and on its replication.
 */
export function redis(options: RedisOptions): Broker {
  return new RedisBroker(options);
}

type Client = ReturnType<typeof clientOf>;

class RedisBroker implements Broker {
  readonly limits: { readonly timeoutMs: number };
  readonly #options: RedisOptions;
  readonly #connection: ConnectionOnDemand<Client>;
  readonly #warn = warnOnce();
  /** The largest value that the server reads. */
  #serverBytesMax = Infinity;
  readonly #stream: NameTemplate;
  #lastStream: string | undefined;

  constructor(options: RedisOptions) {
    this.#options = options;
    const { stream = '{topic}' } = options;
    this.#stream = new NameTemplate(stream, streamRule);
    if (!stream.includes('{')) this.#lastStream = stream;

    this.limits = { timeoutMs: callTimeoutMs(options.timeoutMs ?? timeoutMsDefault) };
    this.#connection = new ConnectionOnDemand({
      open: async (late) => {
        const client = clientOf(options);
        late.addEventListener('abort', () => client.destroy());
        // The client has no socket to destroy before that.
        client.on('connect', () => late.aborted && client.destroy());
        await client.connect();
        try {
          await checkServer(client, this.#warn);
          await assertTransactions(client);
          this.#serverBytesMax = await bytesMaxOf(client);
          return client;
        } catch (error) {
          if (client.isOpen) client.destroy();
          throw error;
        }
      },
      isOpen: (client) => client.isReady,
      end: (client) => client.close(),
      destroy: (client) => client.destroy(),
      timeoutMs: options.timeoutMs ?? timeoutMsDefault,
    });
  }

  async publish(messages: readonly BrokerMessage[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    const client = await this.#connection.get();
    const outcomes = this.#refusals(messages);
    for (let waiting = messages.filter((message) => !outcomes.has(message)); waiting.length > 0;) {
      if (signal.aborted && [...outcomes.values()].some(({ kind }) => kind === 'confirmed')) break;
      signal.throwIfAborted();
      const next = this.#nextTransaction(waiting);
      this.#lastStream = next[0] && this.#stream.of(next[0]);
      const failedKeys = new Set<string>();
      const replies = await this.#executeApart(client, next, signal).catch((error: unknown) => {
        // What is confirmed must not be stored again because others have no answer.
        if ([...outcomes.values()].every(({ kind }) => kind !== 'confirmed')) throw error;
        return next.map(() => errorOf(error));
      });
      // A server that has become another one's replica, or holds other keys, closes no connection. One that refuses transactions to the user now
      // stores the entries all the same, and the next connection finds that out.
      if (client.isOpen && replies.some((reply) => isOfWrongServer(reply) || isOfTransactions(reply)))
        client.destroy();
      for (const [index, message] of next.entries()) {
        const reply = replies[index];
        const outcome = failedKeys.has(message.key) ? heldBack : outcomeOf(reply);
        outcomes.set(message, outcome);
        if (outcome.kind !== 'confirmed') failedKeys.add(message.key);
      }
      waiting = waiting.filter((message) => !outcomes.has(message) && !failedKeys.has(message.key));
    }
    return messages.map((message) => outcomes.get(message) ?? heldBack);
  }

  /** The stream. */
  targetOf(message: BrokerMessage): string {
    return this.#stream.targetOf(message);
  }

  /** Also checks that the server accepts entries for the configured stream, or for the stream of the last message. */
  async ping(): Promise<void> {
    const client = await this.#connection.get();
    const stream = this.#lastStream;
    try {
      await this.#connection.answer(client, checkServer(client, this.#warn));
      await this.#connection.answer(client, assertTransactions(client));
      if (stream !== undefined) await this.#connection.answer(client, assertTakes(client, stream));
    } catch (error) {
      if (client.isOpen) client.destroy();
      throw error;
    }
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  /** Messages that are not sent: those that are too large, and later ones of their keys. */
  #refusals(messages: readonly BrokerMessage[]): Map<BrokerMessage, PublishOutcome> {
    const { messageBytesMax = messageBytesMaxDefault } = this.#options;
    const outcomes = new Map<BrokerMessage, PublishOutcome>();
    const keys = new Set<string>();
    for (const message of messages) {
      const { byteLength } = message.body;
      if (keys.has(message.key)) outcomes.set(message, heldBack);
      const [limit, name] =
        messageBytesMax <= this.#serverBytesMax
          ? [messageBytesMax, 'messageBytesMax']
          : [this.#serverBytesMax, 'proto-max-bulk-len of the server'];
      if (keys.has(message.key) || byteLength <= limit) continue;
      keys.add(message.key);
      const reason = `the body has ${byteLength} bytes, more than ${name} (${limit})`;
      outcomes.set(message, { kind: 'refused', reason });
    }
    return outcomes;
  }

  /**
   * The messages that one transaction takes. A command that fails does not keep it from executing the others, so a message for
   * another stream waits until the one before it of its key is confirmed.
   */
  #nextTransaction(waiting: readonly BrokerMessage[]): readonly BrokerMessage[] {
    const streams = new Map<string, string | undefined>();
    return waiting.filter((message) => {
      const { key } = message;
      const stream = this.#stream.of(message);
      const goes = !streams.has(key) || streams.get(key) === stream;
      streams.set(key, goes ? stream : undefined);
      return goes;
    });
  }

  /**
   * Executes one transaction; if Redis has refused it as a whole, one for each stream, because it may have refused it for one of them only,
   * such as one that the user may not write.
   *
   * @throws what the client throws, and the signal's reason, when there is no answer to the first transaction
   */
  async #executeApart(
    client: Client,
    messages: readonly BrokerMessage[],
    signal: AbortSignal,
  ): Promise<readonly unknown[]> {
    const replies = await this.#execute(client, messages, signal);
    const [first] = replies;
    const isRefused = first instanceof Error && replies.every((reply) => reply === first);
    const streams = Map.groupBy(messages, (message) => this.#stream.of(message));
    if (!isRefused || streams.size === 1 || isOfWrongServer(first) || isOfTransactions(first)) return replies;
    const apart = new Map<BrokerMessage, unknown>();
    const execute = async (ofStream: readonly BrokerMessage[]): Promise<void> => {
      const own = await this.#execute(client, ofStream, signal).catch((error: unknown) =>
        ofStream.map(() => errorOf(error)),
      );
      for (const [index, message] of ofStream.entries()) apart.set(message, own[index]);
    };
    await Promise.all(Array.from(streams.values(), execute));
    return messages.map((message) => apart.get(message));
  }

  async #execute(
    client: Client,
    messages: readonly BrokerMessage[],
    signal: AbortSignal,
  ): Promise<readonly unknown[]> {
    signal.throwIfAborted();
    const transaction = client.multi();
    for (const message of messages) this.#add(transaction, message);
    const executing = transaction.exec().catch((error: unknown) => repliesOf(error, messages.length));
    return unlessAborted(this.#connection.answer(client, executing), signal, graceMs);
  }

  #add(transaction: ReturnType<Client['multi']>, message: BrokerMessage): void {
    const { attributes, body } = message;
    const { maxLength } = this.#options;
    const trim =
      maxLength === undefined
        ? {}
        : { TRIM: { strategy: 'MAXLEN', strategyModifier: '~', threshold: maxLength } as const };
    transaction.xAdd(this.#stream.of(message), '*', { ...attributes, data: Buffer.from(body) }, trim);
  }
}

const confirmed: PublishOutcome = { kind: 'confirmed' };
const heldBack: PublishOutcome = { kind: 'held-back' };

/** What Redis answers to an entry that it can never store; every other error says something of the server or of the stream. */
const refusals = /^ERR (?:Elements are too large|string exceeds maximum allowed size)/;

function outcomeOf(reply: unknown): PublishOutcome {
  if (!(reply instanceof Error)) return confirmed;
  const reason = reply.message;
  return refusals.test(reason) ? { kind: 'refused', reason } : { kind: 'later', of: 'target', reason };
}

function errorOf(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

/** Whether a server has answered that another one must be asked. */
function isOfWrongServer(reply: unknown): boolean {
  return (
    reply instanceof Error && /^(?:READONLY|MOVED|ASK|CLUSTERDOWN|MASTERDOWN|LOADING)\b/.test(reply.message)
  );
}

/**
 * Checks that the server is one that takes entries, and whether it keeps them.
 *
 * @param warn called when it may remove streams
 * @throws Error when it is a replica, a sentinel, or a node of a cluster
 */
async function checkServer(client: Client, warn: (text: string) => void): Promise<void> {
  const info = await client.info().catch((error: unknown) => {
    // Where the command is hidden or not permitted, the first entry shows whether the server takes it.
    if (error instanceof ErrorReply) return '';
    throw error;
  });
  const valueOf = (name: string): string | undefined => new RegExp(`^${name}:(.*?)\r?$`, 'm').exec(info)?.[1];
  const reason = unusable.get(valueOf('redis_mode')) ?? unusable.get(valueOf('role'));
  if (reason !== undefined) throw new Error(reason);
  const policy = valueOf('maxmemory_policy');
  // Other policies remove nothing, or only what has a time to live.
  if (valueOf('maxmemory') !== '0' && policy?.startsWith('allkeys') === true)
    warn(
      `Redis removes whole streams when its memory is full (maxmemory-policy ${policy}), also confirmed entries: set noeviction`,
    );
}

const unusable: ReadonlyMap<string | undefined, string> = new Map([
  [
    'cluster',
    'This Redis is a node of a cluster, whose keys are on several servers: use a Redis that is none',
  ],
  [
    'sentinel',
    'This is a sentinel of Redis: pass the address of the Redis that it watches, such as one that follows failovers',
  ],
  ['slave', 'This Redis is a replica, which takes no entries'],
]);

/**
 * Checks that the user may use transactions: otherwise the server would store the entries of one, and answer that it has not.
 *
 * @throws ErrorReply with the right that is missing
 */
async function assertTransactions(client: Client): Promise<void> {
  await client
    .multi()
    .ping()
    .exec()
    .catch((error: unknown) => {
      if (!(error instanceof ErrorReply) || isOfTransactions(error)) throw error;
    });
}

/** Whether the user may not use transactions. */
function isOfTransactions(reply: unknown): boolean {
  return reply instanceof Error && /^NOPERM.*'(?:multi|exec)'/i.test(reply.message);
}

/** The largest value that the server reads, in bytes, if it says so: it closes a connection on which it gets a larger one. */
async function bytesMaxOf(client: Client): Promise<number> {
  const name = 'proto-max-bulk-len';
  const found = await client.configGet(name).catch((error: unknown) => {
    // Some users may not ask, and some services hide the command.
    if (error instanceof ErrorReply) return {};
    throw error;
  });
  const { [name]: bytesMax }: Readonly<Record<string, string>> = found;
  return Number(bytesMax ?? Infinity);
}

/**
 * Checks that the server takes entries of a stream, by one that it never takes because of its id. The type of what the key has is a question of
 * its own, because the server looks at the id before.
 *
 * @throws ErrorReply with the reason why it takes none; Error when the key has something else than a stream
 */
async function assertTakes(client: Client, stream: string): Promise<void> {
  await client.xAddNoMkStream(stream, '0-0', { probe: '' }).catch((error: unknown) => {
    if (!(error instanceof ErrorReply && error.message.includes('must be greater than 0-0'))) throw error;
  });
  const type = await client.type(stream).catch((error: unknown) => {
    // The first entry shows it to users who may not ask.
    if (error instanceof ErrorReply) return 'none';
    throw error;
  });
  if (type !== 'none' && type !== 'stream') throw new Error(`The key ${stream} has a ${type}, not a stream`);
}

function clientOf({ url, client, timeoutMs = timeoutMsDefault }: RedisOptions) {
  const connectTimeout = Math.min(timeoutMs, client?.socket?.connectTimeout ?? timeoutMs);
  // A lost connection is reopened by the next call, not by the client, so that nothing is sent twice behind the caller's back.
  const made = createClient({
    ...client,
    url,
    disableOfflineQueue: true,
    socket: { ...client?.socket, connectTimeout, reconnectStrategy: false } as NonNullable<
      RedisClientOptions['socket']
    >,
  });
  // Each publisher learns the reason from the rejection of what it waits for.
  made.on('error', () => undefined);
  return made;
}

/**
 * The replies of a transaction in which commands failed. One that was not executed at all, because a command was refused before or the server
 * takes none, has the error of each command as its reply.
 */
function repliesOf(error: unknown, count: number): readonly unknown[] {
  if (!(error instanceof ErrorReply)) throw error;
  const { replies } = error as { readonly replies?: readonly unknown[] };
  return replies ?? Array.from({ length: count }, () => error);
}
