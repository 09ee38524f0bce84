import { InvalidRequestError, type RequestBody } from '@framework/http';
import { RequestError, getRequestListener } from '@hono/node-server';
import { once } from 'node:events';
import {
  type IncomingMessage,
  type Server as NodeServer,
  type ServerResponse,
  createServer,
} from 'node:http';
import { Server as TlsServer, createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { SecureContextOptions } from 'node:tls';

import {
  type Client,
  type ClientAddresses,
  ConnectionCounts,
  type TooManyRequestsError,
} from '@framework/http/security';
import { type ConnectionLimits, type ExchangeHandler, HttpConnection } from './http-connection.js';
import { connectionIssue, headerIssue } from './refused-connection.js';
import { TlsHandshakes } from './tls-handshakes.js';

/** How often connections are checked for slow clients, in milliseconds. */
const timeoutCheckMs = 1_000;

/** The limits for the clients of a server. */
export interface ServerLimits extends ConnectionLimits {
  /** The maximum number of connections; further ones are closed at once. */
  readonly connectionsMax: number;
  /** The maximum number of connections of one address that is limited. */
  readonly connectionsPerAddressMax: number;
  /** How long a connection may wait for its next request, in milliseconds. */
  readonly idleTimeoutMs: number;
  /** How long a client may leave an answer unread, in milliseconds. */
  readonly answerTimeoutMs: number;
}

/** Where a server listens, and the limits for its clients. */
export interface HttpServerOptions {
  readonly host: string;
  /** The port to listen on; 0 means any free one. */
  readonly port: number;
  readonly limits: ServerLimits;
  /** Tells clients apart. */
  readonly clients: ClientAddresses;
  /** The certificate and its key, to speak TLS with; a handshake has the time of the headers. Default: plain HTTP. */
  readonly tls?: SecureContextOptions | undefined;
}

/** Answers requests. */
export interface WebHandler {
  readonly fetch: (request: Request, exchange: ServedExchange) => Response | Promise<Response>;
  /** Says why a request is refused before anything of it is read but its headers. Default: no request is. */
  readonly refusal?: (client: Client) => Promise<TooManyRequestsError | undefined>;
  /** Answers input that never becomes a request, such as headers that are too large. */
  readonly refuse: (error: unknown) => Response;
  /** Answers `OPTIONS *`, which asks about the server as a whole. */
  readonly describe: () => Response;
}

/** What a handler needs to know about a request besides its headers. */
interface ServedExchange {
  readonly body: RequestBody;
  readonly client: Client;
  /** Reads no further request from the client's connection for this long, in milliseconds. */
  readonly pause: (durationMs: number) => void;
}

/** Serves a web handler on a TCP port. */
export class HttpServer {
  /** The server's address, for example `http://127.0.0.1:8080`. */
  readonly url: string;
  readonly #server: NodeServer | TlsServer;
  readonly #connections: ReadonlyMap<Duplex, HttpConnection>;
  readonly #handshakes: TlsHandshakes | undefined;

  private constructor(
    server: NodeServer | TlsServer,
    connections: ReadonlyMap<Duplex, HttpConnection>,
    { host, limits }: HttpServerOptions,
  ) {
    const { port } = server.address() as AddressInfo;
    const isTls = server instanceof TlsServer;
    this.url = `${isTls ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${port}`;
    this.#server = server;
    this.#connections = connections;
    this.#handshakes = isTls ? new TlsHandshakes(server, limits.headersTimeoutMs) : undefined;
  }

  /**
   * Starts to accept connections.
   *
   * @throws the system's error, such as EADDRINUSE
   */
  static async listen(handler: WebHandler, options: HttpServerOptions): Promise<HttpServer> {
    const { limits, tls } = options;
    const settings = {
      headersTimeout: limits.headersTimeoutMs,
      requestTimeout: limits.requestTimeoutMs,
      connectionsCheckingInterval: timeoutCheckMs,
      keepAliveTimeout: limits.idleTimeoutMs,
      maxHeaderSize: limits.headersBytesMax,
      // Node's own answer would neither say what is wrong nor carry a request id.
      requireHostHeader: false,
    };
    const server =
      tls === undefined
        ? createServer(settings)
        : createTlsServer({ ...settings, ...tls, allowHalfOpen: true });
    server.maxHeadersCount = limits.headersMax;
    // A client may close its sending half after the request. By default, Node would then close the connection without
    // an answer.
    Object.assign(server, { httpAllowHalfOpen: true });
    server.maxConnections = limits.connectionsMax;
    server.setTimeout(limits.answerTimeoutMs);
    const connections = serveConnections(server, handler, options);
    server.listen(options.port, options.host);
    await once(server, 'listening');
    return new HttpServer(server, connections, options);
  }

  /** Shows a renewed certificate to new connections. Does nothing without TLS. */
  renewCertificate(tls: SecureContextOptions): void {
    if (this.#server instanceof TlsServer) this.#server.setSecureContext(tls);
  }

  /**
   * Stops accepting connections, closes idle ones at once, and resolves when all running requests are answered. A
   * client has 2 s to read an answer that was written. Incomplete requests are refused, and requests that wait behind
   * others on their connection are dropped with it.
   */
  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#closeListener();
    this.#handshakes?.end();
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
  server: NodeServer | TlsServer,
  handler: WebHandler,
  { limits, clients }: Pick<HttpServerOptions, 'limits' | 'clients'>,
): ReadonlyMap<Duplex, HttpConnection> {
  const connections = new Map<Duplex, HttpConnection>();
  const counts = new ConnectionCounts(limits.connectionsPerAddressMax);
  const exchangeHandler = { serve: exchangeServer(handler, clients), refuse: handler.refuse };
  // Also before the handshake of TLS.
  server.on('connection', (socket: Socket) => counts.admit(clients.atAddress(socket.remoteAddress), socket));
  server.on(server instanceof TlsServer ? 'secureConnection' : 'connection', (socket: Socket) => {
    if (socket.destroyed) return;
    const peer = clients.atAddress(socket.remoteAddress);
    connections.set(socket, new HttpConnection(socket, exchangeHandler, { limits, peer }));
    socket.once('close', () => connections.delete(socket));
  });
  server.on('timeout', (socket: Socket) => connections.get(socket)?.timeOut());
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    connections.get(request.socket)?.add(request, response, { fault: headerIssue(request, limits) });
  });
  server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
    const onRead = (): void => response.writeContinue();
    connections.get(request.socket)?.add(request, response, { fault: headerIssue(request, limits), onRead });
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
    // The client has disconnected and cannot receive an answer, or has not finished the handshake.
    if (error.code === 'ECONNRESET' || !socket.writable || !connections.has(socket)) socket.destroy();
    else if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT') connections.get(socket)?.watchDeadline();
    else connections.get(socket)?.refuse(connectionIssue(error, limits));
  });
  return connections;
}

function exchangeServer(
  { fetch, refusal, refuse, describe }: WebHandler,
  clients: ClientAddresses,
): ExchangeHandler['serve'] {
  return ({ request, response, body, fault, peer, pause }) => {
    // `*` is not a valid path for a web `Request`.
    const isOfServer = request.method === 'OPTIONS' && request.url === '*';
    if (isOfServer) request.url = '/';
    const client = peer.isProxy ? clients.behind(peer, request) : peer;
    const served: ServedExchange = { body, client, pause };
    const answer = async (webRequest: Request): Promise<Response> => {
      if (fault !== undefined) return refuse(fault);
      const reason = await refusal?.(client);
      if (reason !== undefined) {
        pause(reason.retryAfterMs);
        return refuse(reason);
      }
      return isOfServer ? describe() : fetch(webRequest, served);
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
