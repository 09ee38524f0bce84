import { once } from 'node:events';
import type { Server, ServerResponse } from 'node:http';

/** How long a client may take to read an answer when the server closes, in milliseconds. */
const readTimeoutMs = 2_000;
/** How often connections without a request are ended while a server closes, in milliseconds. */
const checkMs = 100;

/**
 * Lets a server of Node close although clients keep connections, have sent a part of a request, or do not read: Node's own methods wait for
 * them, and its timeouts no longer run.
 */
export class Draining {
  readonly #server: Server;
  readonly #running = new Set<ServerResponse>();

  /** Begins to observe the requests of a server. */
  constructor(server: Server) {
    this.#server = server;
    server.on('request', (_request, response) => {
      this.#running.add(response);
      response.once('close', () => this.#running.delete(response));
    });
  }

  /**
   * Closes the server: drops incomplete requests, and resolves when the others are answered. A client has 2 s to read what was written.
   *
   * @param close what closes the server. Default: its own method
   */
  async close(close: () => Promise<unknown> = () => this.#close()): Promise<void> {
    const closed = close();
    for (const { req } of this.#running) if (!req.complete) req.socket.destroy();
    const unread = setInterval(() => {
      for (const { req } of this.#running) if (req.socket.writableLength > 0) req.socket.destroy();
    }, readTimeoutMs);
    const idle = setInterval(() => {
      if (this.#running.size === 0) this.#server.closeAllConnections();
    }, checkMs);
    try {
      await closed;
    } finally {
      clearInterval(unread);
      clearInterval(idle);
    }
  }

  async #close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    if (this.#running.size === 0) this.#server.closeAllConnections();
    await closed;
  }
}
