import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { type Server as NodeServer, createServer } from 'node:http';
import { createAdaptorServer } from '@hono/node-server';

/** How long a client may take to send its headers, and the whole request. */
const headersTimeoutMs = 10_000;
const requestTimeoutMs = 30_000;
/** How long a connection may wait for its next request. */
const keepAliveTimeoutMs = 5_000;
const headersBytesMax = 16 * 1024;

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
    fetch: (request: Request) => Response | Promise<Response>,
    { host, port }: { readonly host: string; readonly port: number },
  ): Promise<HttpServer> {
    const server = createAdaptorServer({
      fetch: (request) => fetch(request),
      createServer,
      serverOptions: {
        headersTimeout: headersTimeoutMs,
        requestTimeout: requestTimeoutMs,
        keepAliveTimeout: keepAliveTimeoutMs,
        maxHeaderSize: headersBytesMax,
      },
    }) as NodeServer;
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
