import { once } from 'node:events';
import { type AddressInfo, type Server, type Socket, createServer } from 'node:net';

/** An entry as the server got it: the stream, the options before the id, and the fields. */
export interface RedisEntry {
  readonly stream: string;
  readonly options: readonly string[];
  readonly fields: Readonly<Record<string, string>>;
}

/** A server that speaks enough of Redis for a publisher, and answers as a test says. */
export class ScriptedRedis {
  readonly url: string;
  /** The entries of each transaction that was executed. */
  readonly transactions: (readonly RedisEntry[])[] = [];
  readonly sockets = new Set<Socket>();
  connectionCount = 0;
  /** The error of a command in a transaction, if it fails. */
  refuses: (entry: RedisEntry) => string | undefined = () => undefined;
  /** The error of whole transactions. */
  aborts: string | undefined;
  /** The error of a whole transaction, if it is refused because of its entries. */
  refusesAll: (entries: readonly RedisEntry[]) => string | undefined = () => undefined;
  /** The type of what a key has, or an error. */
  typeOf: (key: string) => `+${string}` | `-${string}` = () => '+none';
  isSilent = false;
  /** Called with each command that gets no answer. */
  onSilence: () => void = () => undefined;
  /** What it says of itself. */
  info = 'redis_mode:standalone\r\nrole:master\r\n';
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
    this.url = `redis://127.0.0.1:${(server.address() as AddressInfo).port}`;
    server.on('connection', (socket) => this.#serve(socket));
  }

  static async start(): Promise<ScriptedRedis> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new ScriptedRedis(server);
  }

  async stop(): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, 'close');
  }

  /** Ends all connections. */
  cut(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  #serve(socket: Socket): void {
    this.connectionCount++;
    this.sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => this.sockets.delete(socket));
    const queued: (RedisEntry | 'PING')[] = [];
    let isInTransaction = false;
    let received = Buffer.alloc(0);
    socket.on('data', (bytes: Buffer) => {
      received = Buffer.concat([received, bytes]);
      for (let read = commandIn(received); read !== undefined; read = commandIn(received)) {
        received = received.subarray(read.bytes);
        const [name] = read.words;
        if (this.isSilent) this.onSilence();
        if (!this.isSilent && name === 'PING' && isInTransaction) {
          queued.push('PING');
          socket.write('+QUEUED\r\n');
        } else if (!this.isSilent) socket.write(this.#answer(read.words, queued));
        if (name === 'MULTI' || name === 'EXEC') isInTransaction = name === 'MULTI';
      }
    });
  }

  #answer([name = '', ...words]: readonly string[], queued: (RedisEntry | 'PING')[]): string {
    if (name === 'HELLO') return '%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n';
    if (name === 'PING') return '+PONG\r\n';
    if (name === 'CONFIG') return "-ERR unknown command 'CONFIG'\r\n";
    if (name === 'INFO') return `$${this.info.length}\r\n${this.info}\r\n`;
    if (name === 'TYPE') return `${this.typeOf(words[0] ?? '')}\r\n`;
    if (name === 'XADD' && words.includes('0-0'))
      return `-${this.aborts ?? 'ERR The ID specified in XADD must be greater than 0-0'}\r\n`;
    if (name === 'XADD') {
      const id = words.indexOf('*');
      const pairs = words.slice(id + 1);
      const fields = pairs.flatMap((key, index) => (index % 2 === 0 ? [[key, pairs[index + 1] ?? '']] : []));
      queued.push({
        stream: words[0] ?? '',
        options: words.slice(1, id),
        fields: Object.fromEntries(fields),
      });
      return '+QUEUED\r\n';
    }
    if (name !== 'EXEC') return '+OK\r\n';
    const commands = queued.splice(0);
    if (commands[0] === 'PING') return '*1\r\n+PONG\r\n';
    const entries = commands.filter((command) => command !== 'PING');
    const aborts = this.aborts ?? this.refusesAll(entries);
    if (aborts !== undefined) return `-${aborts}\r\n`;
    this.transactions.push(entries);
    const answers = entries.map((entry, index) => {
      const error = this.refuses(entry);
      return error === undefined ? `+1-${index}\r\n` : `-${error}\r\n`;
    });
    return `*${answers.length}\r\n${answers.join('')}`;
  }
}

/** The first command in what was received, if it is complete. */
function commandIn(
  received: Buffer,
): { readonly words: readonly string[]; readonly bytes: number } | undefined {
  const words: string[] = [];
  let at = 0;
  const line = (): string | undefined => {
    const end = received.indexOf('\r\n', at);
    if (end < 0) return undefined;
    const text = received.subarray(at, end).toString();
    at = end + 2;
    return text;
  };
  const count = Number(line()?.slice(1));
  if (Number.isNaN(count)) return undefined;
  for (let index = 0; index < count; index++) {
    const length = Number(line()?.slice(1));
    if (Number.isNaN(length) || received.length < at + length + 2) return undefined;
    words.push(received.subarray(at, at + length).toString());
    at += length + 2;
  }
  return { words, bytes: at };
}
