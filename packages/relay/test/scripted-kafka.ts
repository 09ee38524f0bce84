import { once } from 'node:events';
import { type AddressInfo, type Server, type Socket, createServer } from 'node:net';

/** What a client asks for: a number for the kind of request, its version, and what its answer must repeat. */
interface ScriptedRequest {
  readonly api: number;
  readonly version: number;
  readonly correlationId: number;
}

/** Answers a request, or does anything else with its connection. */
export type Script = (request: ScriptedRequest, socket: Socket) => void;

/** The numbers of the requests that a client sends first. */
export const apis = { saslHandshake: 17, apiVersions: 18, saslAuthenticate: 36 } as const;

/** A server that reads what a client of Kafka sends. It leaves its own side of a connection open when the client has ended. */
export class ScriptedKafka {
  readonly address: string;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(server: Server) {
    this.#server = server;
    this.address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  static async start(script: Script): Promise<ScriptedKafka> {
    const server = createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const scripted = new ScriptedKafka(server);
    server.on('connection', (socket) => scripted.#follow(socket, script));
    return scripted;
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
  }

  #follow(socket: Socket, script: Script): void {
    this.#sockets.add(socket);
    socket.on('error', () => undefined);
    let unread = Buffer.alloc(0);
    socket.on('data', (bytes: Buffer) => {
      unread = Buffer.concat([unread, bytes]);
      while (unread.length >= 4 && unread.length >= 4 + unread.readInt32BE(0)) {
        const end = 4 + unread.readInt32BE(0);
        const [api, version, correlationId] = [
          unread.readInt16BE(4),
          unread.readInt16BE(6),
          unread.readInt32BE(8),
        ];
        unread = unread.subarray(end);
        script({ api, version, correlationId }, socket);
      }
    });
  }
}

/** Takes every password, with these bytes as the server's part of the conversation; other requests are left to `others`. */
export function authenticating(
  { authBytes = '', sessionMs = 0 }: { readonly authBytes?: string; readonly sessionMs?: number },
  others: Script,
): Script {
  return (request, socket) => {
    const { api, version, correlationId } = request;
    if (api === apis.apiVersions && version === 1)
      socket.write(frame(correlationId, int16(0), int32(1), int16(apis.saslAuthenticate, 0, 1), int32(0)));
    else if (api === apis.saslHandshake) socket.write(frame(correlationId, int16(0), int32(0)));
    else if (api === apis.saslAuthenticate)
      socket.write(
        frame(
          correlationId,
          int16(0, -1),
          int32(authBytes.length),
          Buffer.from(authBytes),
          int32(0, sessionMs),
        ),
      );
    else others(request, socket);
  };
}

/** An answer with its length in front of it. */
export function frame(correlationId: number, ...parts: readonly Buffer[]): Buffer {
  const body = Buffer.concat([int32(correlationId), ...parts]);
  return Buffer.concat([int32(body.length), body]);
}

export function int16(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(2 * values.length);
  for (const [index, value] of values.entries()) bytes.writeInt16BE(value, 2 * index);
  return bytes;
}

export function int32(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length);
  for (const [index, value] of values.entries()) bytes.writeInt32BE(value, 4 * index);
  return bytes;
}
