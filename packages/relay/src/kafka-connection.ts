import {
  type Connection,
  type ConnectionPool,
  ResponseError,
  type ResponseParser,
  apiVersionsV3,
  initProducerIdV4,
  metadataV11,
  produceV10,
  produceV11,
  produceV9,
} from '@platformatic/kafka';
import type { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

/**
 * Keeps whatever a server sends from ending the process, and from leaving something behind. Call it before the connection connects.
 *
 * The client throws out of a socket's event when it cannot read a frame or a step of the authentication, emits errors to which nobody
 * listens, and forgets a connection that has failed. Whoever waits for a connection or an answer learns of it all the same: the
 * connection is lost.
 *
 * @param onData called whenever something arrives
 */
export function guard(connection: Connection, onData?: () => void): void {
  limitSession(connection);
  // The client would only end its own side, and leave the other one to the server.
  connection.on('error', () => socketOf(connection)?.destroy());
  // Otherwise a timer would authenticate again on a connection that the server has closed, and keep the process until then.
  connection.on('close', () => connection.close(() => undefined));
  // The client makes the socket only after this, but before anything can happen to it.
  queueMicrotask(() => {
    const socket = socketOf(connection);
    if (socket === undefined) return;
    endIfHandlerThrows(socket);
    // A listener would let it read before the client listens.
    if (onData !== undefined) tellOfData(socket, onData);
  });
}

/** The socket of a connection, which has none until it connects, whatever the client declares. */
export function socketOf({ socket }: Connection): Socket | undefined {
  return socket;
}

/** Ends all connections of a pool without waiting for a server that may be silent. */
export async function endConnections(pool: ConnectionPool, close: () => Promise<void>): Promise<void> {
  const sockets = Array.from(pool, ([, connection]) => socketOf(connection));
  const closed = close();
  for (const socket of sockets) socket?.destroy();
  await closed.catch(() => undefined);
}

function endIfHandlerThrows(socket: Socket): void {
  const emit = socket.emit.bind(socket) as EventEmitter['emit'];
  socket.emit = (...event: Parameters<EventEmitter['emit']>): boolean => {
    try {
      return emit(...event);
    } catch (error) {
      socket.destroy(error as Error);
      return true;
    }
  };
}

function tellOfData(socket: Socket, onData: () => void): void {
  const emit = socket.emit.bind(socket) as EventEmitter['emit'];
  socket.emit = (...event: Parameters<EventEmitter['emit']>): boolean => {
    if (event[0] === 'data') onData();
    return emit(...event);
  };
}

/** The versions of the request to produce that have the same form, and how their answers are parsed. */
export const produceParsers = {
  9: produceV9.parseResponse,
  10: produceV10.parseResponse,
  11: produceV11.parseResponse,
};

/** What a server has agreed with a producer on one connection. */
export interface KafkaSession {
  readonly produceVersion: keyof typeof produceParsers;
  readonly producerId: bigint;
  readonly producerEpoch: number;
  /** The number of the next record, by partition. */
  readonly sequences: Map<string, number>;
  /** When the server has answered last. */
  answeredMs: number;
}

/**
 * Starts to produce on a connection, with a producer id of its own.
 *
 * The id and the numbers of the records are worth something only as long as the connection lasts. The cluster behind a new one may have been
 * set up again, or restored from a backup, and may have given the same id to another producer: it would take new batches for repeats
 * of that producer's, and confirm them without storing them.
 *
 * @throws Error when the server is too old, and what the client throws
 */
export async function startSession(connection: Connection, timeoutMs: number): Promise<KafkaSession> {
  const { apiKeys } = await apiVersionsV3.api.async(connection, 'framework-relay', '1');
  const { minVersion = 0, maxVersion = 0 } = apiKeys.find(({ name }) => name === 'Produce') ?? {};
  // The lowest, which most servers have.
  const produceVersion = ([9, 10, 11] as const).find((each) => minVersion <= each && each <= maxVersion);
  if (produceVersion === undefined)
    throw new Error(`Kafka takes versions ${minVersion} to ${maxVersion} of requests to produce: update it`);
  const { producerId, producerEpoch } = await identityAt(connection, timeoutMs);
  return {
    produceVersion,
    producerId,
    producerEpoch,
    sequences: new Map(),
    answeredMs: performance.now(),
  };
}

/** A server that has started just now may give out no ids for a moment. */
async function identityAt(
  connection: Connection,
  timeoutMs: number,
): Promise<Pick<KafkaSession, 'producerId' | 'producerEpoch'>> {
  for (let left = identityRepeats; ; left--)
    try {
      return await initProducerIdV4.api.async(connection, null, timeoutMs, -1n, -1);
    } catch (error) {
      if (left === 0 || !(error instanceof ResponseError)) throw error;
      await delay(retryDelayMs);
    }
}

/**
 * Asks a server for topics, and for the rights of the user.
 *
 * @throws what the client throws when there is no answer; a server that can take requests to produce can also answer this one
 */
export async function topicsAt(
  connection: Connection,
  topics: readonly string[],
  { autocreates, withRights }: { readonly autocreates: boolean; readonly withRights: boolean },
): Promise<metadataV11.MetadataResponse> {
  try {
    return await metadataV11.api.async(connection, [...topics], autocreates, withRights);
  } catch (error) {
    const answer = answerIn(error);
    if (answer === undefined) throw error;
    return answer as metadataV11.MetadataResponse;
  }
}

/** The whole answer in the error that the client makes if any part of it is an error; its declarations leave it out. */
export function answerIn(error: unknown): unknown {
  return error instanceof ResponseError ? (error as { readonly response?: unknown }).response : undefined;
}

/** How long to wait before a question is repeated. */
export const retryDelayMs = 100;
const identityRepeats = 2;
const saslAuthenticateKey = 36;
/** The longest delay of a timer. */
const sessionMsMax = 2n ** 31n - 1n;

/**
 * Lets the client authenticate again after 20 days at the latest. For a session of more than 31 days, its timer would overflow and fire
 * at once, again and again, which Kafka refuses.
 */
function limitSession(connection: Connection): void {
  const send = connection.send.bind(connection);
  connection.send = (key, version, createPayload, parse, ...rest) =>
    send(key, version, createPayload, key === saslAuthenticateKey ? limited(parse) : parse, ...rest);
}

function limited<T>(parse: ResponseParser<T>): ResponseParser<T> {
  return (...answer) => {
    const response = parse(...answer) as T & { sessionLifetimeMs?: bigint };
    const { sessionLifetimeMs = 0n } = response;
    return sessionLifetimeMs > sessionMsMax ? { ...response, sessionLifetimeMs: sessionMsMax } : response;
  };
}
