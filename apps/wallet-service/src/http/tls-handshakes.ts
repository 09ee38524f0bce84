import type { Socket } from 'node:net';
import type { Server as TlsServer } from 'node:tls';

/**
 * The connections of a TLS server whose handshake is not finished yet. Node knows no deadline for them, only one that begins again
 * with every byte, and does not close them with the server.
 */
export class TlsHandshakes {
  /** By the address of the client, since Node does not show which connection belongs to which socket. */
  readonly #running = new Map<string, Socket>();

  /** @param timeoutMs how long a handshake may take before its connection is closed, in milliseconds */
  constructor(server: TlsServer, timeoutMs: number) {
    server.on('connection', (socket: Socket) => this.#begin(socket, timeoutMs));
    server.prependListener('secureConnection', (socket: Socket) => this.#running.delete(clientOf(socket)));
  }

  /** Closes all of them. */
  end(): void {
    for (const socket of this.#running.values()) socket.destroy();
  }

  #begin(socket: Socket, timeoutMs: number): void {
    // The client has disconnected already.
    if (socket.remotePort === undefined) return void socket.destroy();
    const client = clientOf(socket);
    this.#running.set(client, socket);
    const deadline = setTimeout(() => {
      if (this.#running.get(client) === socket) socket.destroy();
    }, timeoutMs).unref();
    socket.once('close', () => {
      clearTimeout(deadline);
      if (this.#running.get(client) === socket) this.#running.delete(client);
    });
  }
}

function clientOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}
