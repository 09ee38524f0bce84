import type { Connection, ResponseParser } from '@platformatic/kafka';
import type { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';

/**
 * Keeps whatever a server sends from ending the process, and from leaving something behind. Call it before the connection connects.
 *
 * The client throws out of a socket's event when it cannot read a frame or a step of the authentication, emits errors to which nobody
 * listens, and forgets a connection that has failed. Whoever waits for a connection or an answer learns of it all the same: the
 * connection is lost.
 */
export function guard(connection: Connection): void {
  limitSession(connection);
  // The client would only end its own side, and leave the other one to the server.
  connection.on('error', () => socketOf(connection)?.destroy());
  // Otherwise a timer would authenticate again on a connection that the server has closed, and keep the process until then.
  connection.on('close', () => connection.close(() => undefined));
  // The client makes the socket only after this, but before anything can happen to it.
  queueMicrotask(() => {
    const socket = socketOf(connection);
    if (socket !== undefined) endIfHandlerThrows(socket);
  });
}

/** The socket of a connection, which has none until it connects, whatever the client declares. */
export function socketOf({ socket }: Connection): Socket | undefined {
  return socket;
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
