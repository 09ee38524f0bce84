import { once } from 'node:events';
import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** How long a client may take to read what was written when the server closes, in milliseconds. */
const readTimeoutMs = 2_000;
/** How often connections on which nothing runs are ended while a server closes, in milliseconds. */
const checkMs = 100;

/** What was last seen of an answer. */
interface Progress {
  /** How many bytes its connection had taken. */
  readonly takenBytes: number;
  /** Whether it was written completely. */
  readonly isEnded: boolean;
}

/**
 * Lets a server of Node close although clients keep connections, have sent a part of a request, or do not read: Node's own methods wait for
 * them, and its timeouts no longer run.
 */
export class Draining {
  readonly #server: Server;
  /** Every connection of TCP: Node's own methods do not know those whose handshake of TLS is not finished. */
  readonly #sockets = new Set<Socket>();
  /** The answers that are not sent, with those that wait behind others on their connection. */
  readonly #running = new Map<ServerResponse, Progress | undefined>();

  /** Begins to observe the connections and requests of a server. */
  constructor(server: Server) {
    this.#server = server;
    server.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    });
    server.on('request', (_request, response) => {
      this.#running.set(response, undefined);
      response.once('close', () => this.#running.delete(response));
    });
  }

  /**
   * Closes the server: drops incomplete requests, also those that arrive later, and resolves when the others are answered. A client that
   * reads nothing for 2 s is dropped, and has 2 s to read the rest of an answer that was written completely.
   *
   * @param close what closes the server. Default: its own method
   */
  async close(close: () => Promise<unknown> = () => this.#close()): Promise<void> {
    // Node's would destroy connections whose answer is still being sent.
    this.#server.closeIdleConnections = () => undefined;
    const idle = setInterval(() => this.#dropIdle(), checkMs);
    const unread = setInterval(() => {
      this.#dropUnread();
      // The handshakes, and what the application has made of connections: it had time to end these itself.
      if (this.#isDone) for (const socket of this.#sockets) socket.destroy();
    }, readTimeoutMs);
    try {
      const closed = close();
      this.#dropUnread();
      this.#dropIdle();
      await closed;
    } finally {
      clearInterval(idle);
      clearInterval(unread);
    }
  }

  /** Whether nothing runs, and no connection is accepted any more. */
  get #isDone(): boolean {
    return !this.#server.listening && this.#running.size === 0;
  }

  #dropIdle(): void {
    // Until then, `close` may wait for something else, and requests are served.
    if (this.#server.listening) return;
    // A response has its connection when those before it are answered.
    for (const { req, socket } of this.#running.keys()) if (!req.complete) socket?.destroy();
    if (this.#isDone) this.#server.closeAllConnections();
  }

  #dropUnread(): void {
    for (const [response, last] of this.#running) {
      const { socket, writableEnded: isEnded } = response;
      if (socket === null) continue;
      const takenBytes = socket.bytesWritten - socket.writableLength;
      const isUnread = socket.writableLength > 0;
      if (isUnread && (last?.isEnded === true || last?.takenBytes === takenBytes)) socket.destroy();
      else this.#running.set(response, isUnread ? { takenBytes, isEnded } : undefined);
    }
  }

  async #close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    await closed;
  }
}
