import { RequestError, getRequestListener } from '@hono/node-server';
import { once } from 'node:events';
import {
  type IncomingMessage,
  type Server as NodeServer,
  type ServerResponse,
  createServer,
} from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';

import { type ExchangeHandler, HttpConnection } from './http-connection.js';
import { InvalidRequestError } from './parse-shape.js';
import { connectionIssue, headerIssue, headersBytesMax, headersCountMax } from './refused-connection.js';
import type { RequestBody } from './request-body.js';
import type { RequestTimeLimits } from './request-deadline.js';

const headersTimeoutMsDefault = 10_000;
const requestTimeoutMsDefault = 30_000;
/** How often connections are checked for slow clients, in milliseconds. */
const timeoutCheckMs = 1_000;
/** How long a connection may wait for its next request, in milliseconds. */
const keepAliveTimeoutMs = 5_000;
const connectionsMaxDefault = 2_000;
const answerTimeoutMsDefault = 30_000;

/** Where a server listens, and the limits for its clients. */
export interface HttpServerOptions {
  readonly host: string;
  /** The port to listen on; 0 means any free one. */
  readonly port: number;
  /** The maximum number of connections; further ones are closed at once. Default 2,000. */
  readonly connectionsMax?: number;
  /** How long a client may leave an answer unread, in milliseconds. Default 30,000. */
  readonly answerTimeoutMs?: number;
  /**
   * How long a client may take to send the headers of a request, in milliseconds, not counting the time in which the
   * server does not read from its connection. Default 10,000.
   */
  readonly headersTimeoutMs?: number;
  /** How long a client may take to send the whole request, counted in the same way. Default 30,000. */
  readonly requestTimeoutMs?: number;
}

/** Answers requests. */
export interface WebHandler {
  readonly fetch: (request: Request, body: RequestBody) => Response | Promise<Response>;
  /** Answers input that never becomes a request, such as headers that are too large. */
  readonly refuse: (error: unknown) => Response;
  /** Answers `OPTIONS *`, which asks about the server as a whole. */
  readonly describe: () => Response;
}

/** Serves a web handler on a TCP port. */
export class HttpServer {
  /** The server's address, for example `http://127.0.0.1:8080`. */
  readonly url: string;
  readonly #server: NodeServer;
  readonly #connections: ReadonlyMap<Duplex, HttpConnection>;

  private constructor(server: NodeServer, connections: ReadonlyMap<Duplex, HttpConnection>, host: string) {
    const { port } = server.address() as AddressInfo;
    this.url = `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
    this.#server = server;
    this.#connections = connections;
  }

  /**
   * Starts to accept connections.
   *
   * @throws the system's error, such as EADDRINUSE
   */
  static async listen(
    handler: WebHandler,
    {
      host,
      port,
      connectionsMax = connectionsMaxDefault,
      answerTimeoutMs = answerTimeoutMsDefault,
      headersTimeoutMs = headersTimeoutMsDefault,
      requestTimeoutMs = requestTimeoutMsDefault,
    }: HttpServerOptions,
  ): Promise<HttpServer> {
    const server = createServer({
      headersTimeout: headersTimeoutMs,
      requestTimeout: requestTimeoutMs,
      connectionsCheckingInterval: timeoutCheckMs,
      keepAliveTimeout: keepAliveTimeoutMs,
      maxHeaderSize: headersBytesMax,
      // Node's own answer would neither say what is wrong nor carry a request id.
      requireHostHeader: false,
    });
    server.maxHeadersCount = headersCountMax;
    // A client may close its sending half after the request. By default, Node would then close the connection without
    // an answer.
    Object.assign(server, { httpAllowHalfOpen: true });
    server.maxConnections = connectionsMax;
    server.setTimeout(answerTimeoutMs);
    const connections = serveConnections(server, handler, { headersTimeoutMs, requestTimeoutMs });
    server.listen(port, host);
    await once(server, 'listening');
    return new HttpServer(server, connections, host);
  }

  /**
   * Stops accepting connections, closes idle ones at once, and resolves when all running requests are answered. A
   * client has 2 s to read an answer that was written. Incomplete requests are refused, and requests that wait behind
   * others on their connection are dropped with it.
   */
  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#closeListener();
    for (const [socket, connection] of this.#connections) {
      if (!socket.destroyed) connection.stop(stopping());
    }
    await closed;
  }

  /**
   * On close, Node destroys idle connections, and mistakes a connection for idle while its answer is still being sent.
   */
  #closeListener(): void {
    const sending = [...this.#connections.keys()].filter(({ writableLength }) => writableLength > 0);
    for (const socket of sending) socket.destroy = () => socket;
    this.#server.close();
    for (const socket of sending) Reflect.deleteProperty(socket, 'destroy');
  }
}

function stopping(): InvalidRequestError {
  return new InvalidRequestError(
    'request-timeout',
    'The service is stopping, and the request had not arrived completely: nothing was done; send it again',
  );
}

/** Serves the connections of a server, each with its requests in order. */
function serveConnections(
  server: NodeServer,
  handler: WebHandler,
  limits: RequestTimeLimits,
): ReadonlyMap<Duplex, HttpConnection> {
  const connections = new Map<Duplex, HttpConnection>();
  const exchangeHandler = { serve: exchangeServer(handler), refuse: handler.refuse };
  server.on('connection', (socket: Socket) => {
    connections.set(socket, new HttpConnection(socket, exchangeHandler, limits));
    socket.once('close', () => connections.delete(socket));
  });
  server.on('timeout', (socket: Socket) => connections.get(socket)?.timeOut());
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    connections.get(request.socket)?.add(request, response, { fault: headerIssue(request) });
  });
  server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
    const onRead = (): void => response.writeContinue();
    connections.get(request.socket)?.add(request, response, { fault: headerIssue(request), onRead });
  });
  server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    const fault = new InvalidRequestError(
      'expectation-failed',
      'The only supported expectation is 100-continue',
    );
    // The client may or may not send the body that it held back.
    response.setHeader('connection', 'close');
    connections.get(request.socket)?.add(request, response, { fault });
  });
  server.on('connect', (_request: IncomingMessage, socket: Duplex) => {
    const fault = new InvalidRequestError(
      'method-not-allowed',
      'CONNECT is not supported: use GET, HEAD or POST',
    );
    connections.get(socket)?.refuse(fault);
  });
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => {
    // The client has disconnected and cannot receive an answer.
    if (error.code === 'ECONNRESET' || !socket.writable) socket.destroy();
    else if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT') connections.get(socket)?.watchDeadline();
    else connections.get(socket)?.refuse(connectionIssue(error));
  });
  return connections;
}

function exchangeServer({ fetch, refuse, describe }: WebHandler): ExchangeHandler['serve'] {
  return ({ request, response, body, fault }) => {
    // `*` is not a valid path for a web `Request`.
    const isOfServer = request.method === 'OPTIONS' && request.url === '*';
    if (isOfServer) request.url = '/';
    const answer = (webRequest: Request): Response | Promise<Response> => {
      if (fault !== undefined) return refuse(fault);
      return isOfServer ? describe() : fetch(webRequest, body);
    };
    const listener = getRequestListener(answer, {
      // HTTP/1.0 has no Host header.
      hostname: 'localhost',
      // `HttpConnection` reads and drops what remains of a body.
      autoCleanupIncoming: false,
      errorHandler: (error) => refuse(error instanceof RequestError ? unreadable(error) : error),
    });
    void listener(request, response);
  };
}

function unreadable(error: RequestError): InvalidRequestError {
  return new InvalidRequestError('bad-request', `The request cannot be read: ${error.message}`, {
    cause: error,
  });
}
