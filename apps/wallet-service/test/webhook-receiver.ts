import { once } from 'node:events';
import { type Server, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

import { Webhook } from 'standardwebhooks';

/** What a consumer needs to know about an event to check completeness and order. */
interface Received {
  readonly type: string;
  readonly subject: string;
  readonly version: number;
  /** The attributes of the CloudEvent by their names. */
  readonly attributes: Readonly<Record<string, string>>;
  readonly body: string;
}

/** A partner's webhook endpoint, which verifies signatures and keeps what it received. */
export class WebhookReceiver {
  readonly secret = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
  readonly #received: Received[] = [];
  #server: Server | undefined;
  #port = 0;

  /** What was received, in order, with repeats. */
  get received(): readonly Received[] {
    return this.#received;
  }

  /** The section of the configuration for a relay to this endpoint. */
  get section(): object {
    return { url: `http://127.0.0.1:${this.#port}/events`, secret: this.secret };
  }

  /** Begins to listen, at the same address as before if it was closed. */
  async open(): Promise<void> {
    const verifier = new Webhook(this.secret);
    this.#server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const headers = request.headers as Readonly<Record<string, string>>;
        const body = Buffer.concat(chunks).toString();
        verifier.verify(body, headers);
        const { 'ce-type': type = '', 'ce-subject': subject = '', 'ce-modelversion': version } = headers;
        const attributes = Object.fromEntries(
          Object.entries(headers).flatMap(([name, value]) =>
            name.startsWith('ce-') ? [[name.slice('ce-'.length), value] as const] : [],
          ),
        );
        this.#received.push({ type, subject, version: Number(version), attributes, body });
        response.writeHead(204).end();
      });
    }).listen(this.#port, '127.0.0.1');
    await once(this.#server, 'listening');
    this.#port = (this.#server.address() as AddressInfo).port;
  }

  /** Ends every connection, and refuses new ones. */
  async close(): Promise<void> {
    this.#server?.closeAllConnections();
    await new Promise((resolve) => this.#server?.close(resolve));
  }
}
