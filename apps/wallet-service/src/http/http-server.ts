import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import {
  type IncomingMessage,
  type Server as NodeServer,
  type ServerResponse,
  createServer,
} from 'node:http';
import type { Duplex } from 'node:stream';
import { RequestError, getRequestListener } from '@hono/node-server';
import { answerAndEnd, connectionFault, headerFault } from './refused-connection.js';
import { RequestFault } from './request/request-fault.js';

/** How long a client may take to send its headers, and the whole request. */
const headersTimeoutMs = 10_000;
const requestTimeoutMs = 30_000;
/** How often is looked for clients that take longer. */
const timeoutCheckMs = 1_000;
/** How long a connection may wait for its next request. */
const keepAliveTimeoutMs = 5_000;
const headersBytesMax = 16 * 1024;

/** What answers requests. */
export interface WebHandler {
  readonly fetch: (request: Request) => Response | Promise<Response>;
  /** Answers what never becomes a request, such as headers that are too large. */
  readonly refuse: (error: unknown) => Response;
  /** Answers `OPTIONS *`, which asks about the server as a whole. */
  readonly describe: () => Response;
}

/** A web handler on a TCP port. */
export class HttpServer {
  /** Such as `http://127.0.0.1:8080`. */
  readonly url: string;
  readonly #server: NodeServer;
  #closing = false;

  private constructor(server: NodeServer, host: string) {
    const { port } = server.address() as AddressInfo;
    this.url = `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
    this.#server = server;
    server.on('request', (_request, response) => {
      response.once('close', () => {
        if (this.#closing) server.closeIdleConnections();
      });
    });
  }

  /**
   * Starts to accept connections; port 0 is any free one.
   *
   * @throws the error of the system, such as EADDRINUSE
   */
  static async listen(
    handler: WebHandler,
    { host, port }: { readonly host: string; readonly port: number },
  ): Promise<HttpServer> {
    const server = createServer(
      {
        headersTimeout: headersTimeoutMs,
        requestTimeout: requestTimeoutMs,
        connectionsCheckingInterval: timeoutCheckMs,
        keepAliveTimeout: keepAliveTimeoutMs,
        maxHeaderSize: headersBytesMax,
        // Node's own answer would say neither what is wrong nor which request it was.
        requireHostHeader: false,
      },
      requestListener(handler),
    );
    refuseConnections(server, handler);
    server.listen(port, host);
    await once(server, 'listening');
    return new HttpServer(server, host);
  }

  /** Stops accepting, closes idle connections at once (Node does), and resolves when what runs is answered. */
  async close(): Promise<void> {
    this.#closing = true;
    const closed = once(this.#server, 'close');
    this.#server.close();
    await closed;
  }
}

type RequestListener = (request: IncomingMessage, response: ServerResponse) => void;

function requestListener({ fetch, refuse, describe }: WebHandler): RequestListener {
  const listenWith = (answer: WebHandler['fetch']) =>
    getRequestListener((request: Request) => answer(request), {
      errorHandler: (error) => refuse(error instanceof RequestError ? unreadable(error) : error),
    });
  const toHandler = listenWith(fetch);
  return (request, response) => {
    const fault = headerFault(request);
    // The asterisk is no address that a request of the web could have.
    const isOfServer = request.method === 'OPTIONS' && request.url === '*';
    if (isOfServer) request.url = '/';
    if (fault !== undefined) void listenWith(() => refuse(fault))(request, response);
    else if (isOfServer) void listenWith(describe)(request, response);
    else void toHandler(request, response);
  };
}

function unreadable(error: RequestError): RequestFault {
  return new RequestFault('bad-request', `The request cannot be read: ${error.message}`, { cause: error });
}

/** Answers on connections what Node would answer without a body, or not at all. */
function refuseConnections(server: NodeServer, { refuse }: WebHandler): void {
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => {
    const { _httpMessage: running } = socket as { readonly _httpMessage?: ServerResponse | null };
    // Who has gone hears nothing, and an answer that has begun cannot become another one.
    if (error.code === 'ECONNRESET' || !socket.writable || running?.headersSent === true) socket.destroy();
    else void answerAndEnd(socket, refuse(connectionFault(error)));
  });
  server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    const fault = new RequestFault('expectation-failed', 'Nothing but 100-continue can be expected');
    // The body that was held back for the answer may come, or not.
    response.setHeader('connection', 'close');
    void getRequestListener(() => refuse(fault))(request, response);
  });
  server.on('connect', (_request: IncomingMessage, socket: Duplex) => {
    const response = refuse(new RequestFault('method-not-allowed', 'CONNECT is not among GET, HEAD, POST'));
    response.headers.set('allow', 'GET, HEAD, POST, OPTIONS');
    void answerAndEnd(socket, response);
  });
}
