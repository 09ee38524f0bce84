import { once } from 'node:events';
import { type Server, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

import type { ArrivedMessage } from './arrivals.js';
import type { Trouble } from './own-broker.js';

const secret = `whsec_${Buffer.alloc(32, 1).toString('base64')}`;

/** An endpoint of a test's own that takes every message, unless it has trouble. */
export class OwnWebhook {
  readonly name: string;
  readonly section: object;
  onArrived: (message: ArrivedMessage) => void = () => undefined;
  readonly troubles: readonly Trouble[] = [
    this.#answering(503, 'is not available'),
    this.#answering(401, 'denies access'),
    this.#answering(429, 'limits the rate', { 'retry-after': '5' }),
    { name: 'is away', begin: () => this.#away(), end: () => this.#listen() },
  ];
  #answer: { readonly status: number; readonly headers: Readonly<Record<string, string>> } = {
    status: 204,
    headers: {},
  };
  readonly #server: Server;
  readonly #port: number;

  private constructor(name: string, server: Server) {
    this.name = name;
    this.#server = server;
    server.on('request', (request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const { status, headers } = this.#answer;
        if (status === 204) {
          const attributes = Object.entries(request.headers).flatMap(([key, value]) =>
            key.startsWith('ce-') ? [[key.slice(3), decodeURIComponent(String(value))] as const] : [],
          );
          const body = Buffer.concat(chunks).toString();
          this.onArrived({ attributes: Object.fromEntries(attributes), body });
        }
        response.writeHead(status, headers).end();
      });
    });
    this.#port = (server.address() as AddressInfo).port;
    this.section = { webhooks: { url: `http://127.0.0.1:${this.#port}/events`, secret } };
  }

  static async start(name: string): Promise<OwnWebhook> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new OwnWebhook(name, server);
  }

  async end(): Promise<void> {
    if (this.#server.listening) await this.#away();
  }

  #answering(status: number, name: string, headers: Readonly<Record<string, string>> = {}): Trouble {
    return {
      name,
      begin: async () => (this.#answer = { status, headers }),
      end: async () => (this.#answer = { status: 204, headers: {} }),
    };
  }

  async #away(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }

  async #listen(): Promise<void> {
    this.#server.listen(this.#port, '127.0.0.1');
    await once(this.#server, 'listening');
  }
}
