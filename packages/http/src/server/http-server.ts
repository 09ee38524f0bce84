import { RequestError, getRequestListener } from '@hono/node-server';
import { once } from 'node:events';
import {
  type IncomingMessage,
  type Server as NodeServer,
  type ServerResponse,
  createServer,
} from 'node:http';
import { Server as TlsServer, createServer as createTlsServer } from 'node:https';
import { type AddressInfo, Server as ListeningServer, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { SecureContextOptions } from 'node:tls';

import { InvalidRequestError } from '../request/invalid-request-error.js';
import { RequestBody } from '../request/request-body.js';
import { type Client, type ClientAddresses, ConnectionCounts } from '../security/client-address.js';
import { type HeaderLimits, connectionIssue, headerIssue } from './refused-connection.js';
import { type Exchange, RequestQueue } from './request-queue.js';

/** How often connections are checked for slow clients, in milliseconds. */
const timeoutCheckMs = 1_000;

/**
 * How many bytes of a body are buffered until they are requested. Each chunk takes some hundred bytes of memory, however short it is. Node
 * applies this to plain HTTP only.
 */
const bufferedBytesMax = 1_024;

/** The limits for the clients of a server. */
export interface ServerLimits extends HeaderLimits {
  /** The maximum number of bytes in a body. */
  readonly bodyBytesMax: number;
  /** How long a client may take to send the headers of a request, in milliseconds. */
  readonly headersTimeoutMs: number;
  /** How long a client may take to send a whole request, in milliseconds. */
  readonly requestTimeoutMs: number;
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
  /** The certificate and its key, to speak TLS with. Default: plain HTTP. */
  readonly tls?: SecureContextOptions | undefined;
}

/** Answers requests. */
export interface WebHandler {
  readonly fetch: (request: Request, exchange: ServedExchange) => Response | Promise<Response>;
  /** Answers input that never becomes a request, such as headers that are too large. */
  readonly refuse: (error: unknown) => Response;
  /** Answers `OPTIONS *`, which asks about the server as a whole. */
  readonly describe: () => Response;
}

/** What a handler needs to know about a request besides its headers. */
export interface ServedExchange {
  readonly body: RequestBody;
  readonly client: Client;
  /** Serves no further request of the client's connection for this long, in milliseconds. */
  readonly pause: (durationMs: number) => void;
  /** Node's answer, which is destroyed when it has begun and cannot be completed. */
  readonly outgoing: ServerResponse;
}

/** Serves a web handler on a TCP port. */
export class HttpServer {
  /** The server's address, for example `http://127.0.0.1:8080`. */
  readonly url: string;
  readonly #server: NodeServer | TlsServer;
  readonly #clients: ServedClients;

  private constructor(server: NodeServer | TlsServer, clients: ServedClients, host: string) {
    const { port } = server.address() as AddressInfo;
    const protocol = server instanceof TlsServer ? 'https' : 'http';
    this.url = `${protocol}://${host.includes(':') ? `[${host}]` : host}:${port}`;
    this.#server = server;
    this.#clients = clients;
  }

  /**
   * Starts to accept connections.
   *
   * @throws the system's error, such as EADDRINUSE
   */
  static async listen(handler: WebHandler, options: HttpServerOptions): Promise<HttpServer> {
    const { limits, tls, host, port } = options;
    const settings = {
      headersTimeout: limits.headersTimeoutMs,
      requestTimeout: limits.requestTimeoutMs,
      connectionsCheckingInterval: timeoutCheckMs,
      keepAliveTimeout: limits.idleTimeoutMs,
      maxHeaderSize: limits.headersBytesMax,
      highWaterMark: bufferedBytesMax,
      insecureHTTPParser: false,
      // Node's own answer would neither say what is wrong nor carry a request id.
      requireHostHeader: false,
    };
    const server =
      tls === undefined
        ? createServer(settings)
        : createTlsServer({
            ...settings,
            ...tls,
            handshakeTimeout: limits.headersTimeoutMs,
            // As for plain HTTP: a client that ends its side within a request gets an answer.
            allowHalfOpen: true,
          });
    server.maxHeadersCount = limits.headersMax;
    server.maxConnections = limits.connectionsMax;
    server.setTimeout(limits.answerTimeoutMs);
    const clients = serveClients(server, handler, options);
    server.listen(port, host);
    await once(server, 'listening');
    return new HttpServer(server, clients, host);
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
    // The method of the HTTP server would also destroy connections whose answer is still being sent.
    ListeningServer.prototype.close.call(this.#server);
    const { queues, sockets } = this.#clients;
    await Promise.all(
      Array.from(queues, async ([socket, queue]) => {
        queue.stop(stopping());
        if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve));
      }),
    );
    // Those whose handshake is not finished.
    for (const socket of sockets) socket.destroy();
    await closed;
    // Ends the timer with which Node checks for slow clients.
    this.#server.close();
  }
}

function stopping(): InvalidRequestError {
  return new InvalidRequestError(
    'request-timeout',
    'The service is stopping, and the request had not arrived completely: nothing was done; send it again',
  );
}

/** The connections of a server. */
interface ServedClients {
  /** Every connection of TCP. */
  readonly sockets: ReadonlySet<Socket>;
  /** By connection: over TLS, only those whose handshake is finished. */
  readonly queues: ReadonlyMap<Duplex, RequestQueue>;
}

/** Serves the connections of a server, each with its requests in order. */
function serveClients(
  server: NodeServer | TlsServer,
  handler: WebHandler,
  { limits, clients }: Pick<HttpServerOptions, 'limits' | 'clients'>,
): ServedClients {
  const sockets = new Set<Socket>();
  const queues = new Map<Duplex, RequestQueue>();
  const counts = new ConnectionCounts(limits.connectionsPerAddressMax);
  // Also before the handshake of TLS.
  server.on('connection', (socket: Socket) => {
    if (!counts.admit(clients.atAddress(socket.remoteAddress), socket)) return;
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  server.on(server instanceof TlsServer ? 'secureConnection' : 'connection', (socket: Socket) => {
    // A handshake may be finished only after the server was closed.
    if (!server.listening) socket.destroy();
    if (socket.destroyed) return;
    const peer = clients.atAddress(socket.remoteAddress);
    const serve = (exchange: Exchange): void => answer(exchange, handler, { clients, peer, queue });
    const queue = new RequestQueue(socket, serve, handler.refuse);
    queues.set(socket, queue);
    socket.once('close', () => queues.delete(socket));
  });
  const add = (
    request: IncomingMessage,
    response: ServerResponse,
    { fault = headerIssue(request), onRead }: { fault?: InvalidRequestError; onRead?: () => void } = {},
  ): void => {
    const body = new RequestBody(request, limits.bodyBytesMax, onRead);
    queues.get(request.socket)?.add({ request, response, body, fault });
  };
  server.on('request', (request, response) => add(request, response));
  server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) =>
    add(request, response, { onRead: () => response.writeContinue() }),
  );
  server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    const message = 'The only supported expectation is 100-continue';
    add(request, response, { fault: new InvalidRequestError('expectation-failed', message) });
  });
  server.on('connect', (_request: IncomingMessage, socket: Socket) => {
    const queue = queues.get(socket);
    // Node no longer listens.
    socket.on('error', () => undefined).on('timeout', () => queue?.timeOut());
    const message = 'CONNECT is not supported';
    queue?.refuse(new InvalidRequestError('method-not-allowed', message));
  });
  server.on('timeout', (socket: Socket) => queues.get(socket)?.timeOut());
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => {
    const queue = queues.get(socket);
    // The client has disconnected and cannot receive an answer, or has not finished the handshake.
    if (error.code === 'ECONNRESET' || !socket.writable || queue === undefined) socket.destroy();
    else queue.refuse(connectionIssue(error, limits));
  });
  return { sockets, queues };
}

function answer(
  { request, response, body, fault }: Exchange,
  handler: WebHandler,
  {
    clients,
    peer,
    queue,
  }: { readonly clients: ClientAddresses; readonly peer: Client; readonly queue: RequestQueue },
): void {
  // `*` is not a valid path for a web `Request`.
  const isOfServer = request.method === 'OPTIONS' && request.url === '*';
  if (isOfServer) request.url = '/';
  // A proxy may have read a faulty request otherwise, and after an upgrade that is not made, Node's parser hides what follows.
  if (fault !== undefined || request.headers.upgrade !== undefined) response.setHeader('connection', 'close');
  const client = peer.isProxy ? clients.behind(peer, request) : peer;
  const pause = (durationMs: number): void => {
    // Others may use the connection of a proxy, too.
    if (peer.isLimited) queue.pause(durationMs);
  };
  const answerTo = (webRequest: Request): Response | Promise<Response> => {
    if (fault !== undefined) return handler.refuse(fault);
    return isOfServer
      ? handler.describe()
      : handler.fetch(webRequest, { body, client, pause, outgoing: response });
  };
  const listener = getRequestListener(answerTo, {
    // HTTP/1.0 has no Host header.
    hostname: 'localhost',
    // Node reads and drops what remains of a body, until the time for the request is over.
    autoCleanupIncoming: false,
    errorHandler: (error) => handler.refuse(error instanceof RequestError ? unreadable(error) : error),
  });
  void listener(request, response);
}

function unreadable(error: RequestError): InvalidRequestError {
  return new InvalidRequestError('bad-request', `The request cannot be read: ${error.message}`, {
    cause: error,
  });
}
