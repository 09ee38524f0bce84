import { once } from 'node:events';
import { type AddressInfo, type Server, type Socket, connect, createServer } from 'node:net';

/** Bytes on their way through a {@link FaultProxy}, from one read of a socket. */
export interface ProxyMessage {
  readonly direction: 'to-server' | 'to-client';
  readonly bytes: Buffer;
  /** The number of its connection in the proxy, from 1. */
  readonly connection: number;
}

/**
 * What happens to a message: `forward` passes it on; `cut` ends its connection instead, so that the other side never sees it;
 * `forward-and-cut` passes it on and then ends the connection, so that no answer comes back; `drop` passes nothing on and leaves
 * the connection open, so that the sender waits for an answer.
 */
export type MessageOutcome = 'forward' | 'cut' | 'forward-and-cut' | 'drop';

interface Link {
  readonly client: Socket;
  readonly server: Socket;
  /** The sockets to which the end of the other side must be passed on when the silence is over. */
  readonly unended: Set<Socket>;
}

/**
 * A proxy between a TCP client and its server, which makes the network fail as a test requests.
 *
 * ```ts
 * const proxy = await FaultProxy.to({ host: '127.0.0.1', port: 5432 });
 * proxy.judge = ({ direction, bytes }) =>
 *   direction === 'to-server' && bytes.includes('commit') ? 'forward-and-cut' : 'forward';
 * ```
 */
export class FaultProxy {
  readonly host = '127.0.0.1';
  /** The port to which clients connect; it stays the same, even while the proxy refuses connections. */
  readonly port: number;
  /** Decides about every message; by default all are forwarded. */
  judge: (message: ProxyMessage) => MessageOutcome = () => 'forward';
  readonly #target: { readonly host: string; readonly port: number };
  readonly #links = new Set<Link>();
  #listener: Server;
  #connectionCount = 0;
  #silent = false;

  private constructor(target: { readonly host: string; readonly port: number }, listener: Server) {
    this.#target = target;
    this.#listener = listener;
    this.port = (listener.address() as AddressInfo).port;
    listener.on('connection', (client: Socket) => this.#link(client));
  }

  /** Opens a proxy on a free port, which forwards to the target. */
  static async to(target: { readonly host: string; readonly port: number }): Promise<FaultProxy> {
    return new FaultProxy(target, await listening(0));
  }

  /** How many connections it has accepted so far. */
  get connectionCount(): number {
    return this.#connectionCount;
  }

  /** Forwards nothing and sends nothing, like a partitioned network; new connections get the same treatment. */
  silence(): void {
    this.#silent = true;
    for (const link of this.#links) pause(link);
  }

  /** Ends the silence: passes on what was held back. */
  resume(): void {
    this.#silent = false;
    for (const link of this.#links) resume(link);
  }

  /** Ends all connections, cleanly or with a reset. */
  cut(manner: 'close' | 'reset' = 'close'): void {
    for (const link of this.#links) end(link, manner);
  }

  /** Ends all connections and refuses further ones, like a server that is down. */
  async refuse(): Promise<void> {
    this.cut('reset');
    if (!this.#listener.listening) return;
    this.#listener.close();
    await once(this.#listener, 'close');
  }

  /** Accepts connections again after {@link refuse}. */
  async accept(): Promise<void> {
    if (this.#listener.listening) return;
    this.#listener = await listening(this.port);
    this.#listener.on('connection', (client: Socket) => this.#link(client));
  }

  /** Ends all connections and frees the port. */
  async close(): Promise<void> {
    await this.refuse();
  }

  #link(client: Socket): void {
    const server = connect({ ...this.#target, allowHalfOpen: true });
    const link = { client, server, unended: new Set<Socket>() };
    const connection = ++this.#connectionCount;
    this.#links.add(link);
    this.#forward(link, 'to-server', connection);
    this.#forward(link, 'to-client', connection);
    if (this.#silent) pause(link);
  }

  #forward(link: Link, direction: ProxyMessage['direction'], connection: number): void {
    const [from, to] = direction === 'to-server' ? [link.client, link.server] : [link.server, link.client];
    from.setNoDelay(true);
    from.on('data', (bytes: Buffer) => {
      const verdict = this.judge({ direction, bytes, connection });
      if (verdict === 'drop') return;
      if (verdict !== 'cut' && !to.destroyed) to.write(bytes);
      if (verdict === 'forward-and-cut') leave(from, to);
      if (verdict === 'cut') end(link, 'reset');
    });
    // A pause comes too late for an end that was read together with the bytes before it.
    from.on('end', () => (this.#silent ? link.unended.add(to) : to.end()));
    // An error needs no handling of its own: `close` follows, which ends the other side.
    from.on('error', () => undefined);
    from.on('close', () => {
      this.#links.delete(link);
      to.destroySoon();
    });
  }
}

async function listening(port: number): Promise<Server> {
  const listener = createServer({ allowHalfOpen: true });
  listener.listen(port, '127.0.0.1');
  await once(listener, 'listening');
  return listener;
}

function pause({ client, server }: Link): void {
  client.pause();
  server.pause();
}

function resume({ client, server, unended }: Link): void {
  client.resume();
  server.resume();
  for (const socket of unended) socket.end();
  unended.clear();
}

/** Breaks the side that sent, and closes the other once all data has been written to it. */
function leave(from: Socket, to: Socket): void {
  to.end();
  from.resetAndDestroy();
}

function end({ client, server }: Link, manner: 'close' | 'reset'): void {
  for (const socket of [client, server]) {
    if (manner === 'reset') socket.resetAndDestroy();
    else socket.destroy();
  }
}
