import { once } from 'node:events';
import { type AddressInfo, type Server, type Socket, createServer } from 'node:net';

/** A message as the server got it. */
export interface NatsMessage {
  readonly subject: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** An answer of the server: JSON, or the status of one that comes without a responder. */
export type NatsAnswer = object | number | undefined;

const notFound = { error: { code: 404, err_code: 10_059, description: 'stream not found' } };

/** A server that speaks enough of NATS for a publisher, and answers as a test says. */
export class ScriptedNats {
  readonly address: string;
  readonly published: NatsMessage[] = [];
  /** The requests to JetStream itself. */
  readonly requests: string[] = [];
  /** Its answer to a message; `undefined` for none. */
  answers: (message: NatsMessage) => NatsAnswer = () => ({ stream: 's', seq: 1 });
  /** What JetStream answers about streams. */
  streamExists = true;
  stream: object = { config: { name: 's' }, created: '2026-01-01T00:00:00Z', state: { messages: 0 } };
  /** The subjects that its consumers get. */
  consumed: readonly string[] = [];
  /** The streams that take a subject, or an error instead. */
  takers: (subject: string) => object = () => ({ streams: ['s'], total: 1, offset: 0, limit: 1_024 });
  /** Whether JetStream leaves requests without an answer, but not messages. */
  isSilent = false;
  /** What every request to JetStream gets. Default: its answer. */
  refusal: object | undefined;
  connectionCount = 0;
  /** Whether the user may not subscribe to answers. */
  deniesAnswers = false;
  readonly sockets = new Set<Socket>();
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
    this.address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    server.on('connection', (socket) => this.#serve(socket));
  }

  static async start(): Promise<ScriptedNats> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new ScriptedNats(server);
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
    const info = {
      server_id: 'scripted',
      version: '2.12.0',
      headers: true,
      max_payload: 1_048_576,
      jetstream: true,
    };
    socket.write(`INFO ${JSON.stringify({ ...info, proto: 1 })}\r\n`);
    const subscriptions = new Map<string, string>();
    let received = Buffer.alloc(0);
    socket.on('data', (bytes: Buffer) => {
      received = Buffer.concat([received, bytes]);
      for (let end = received.indexOf('\r\n'); end >= 0; end = received.indexOf('\r\n')) {
        const [verb = '', ...words] = received.subarray(0, end).toString().split(' ');
        const size = /^H?PUB$/i.test(verb) ? Number(words.at(-1)) + 2 : 0;
        if (received.length < end + 2 + size) return;
        const content = received.subarray(end + 2, end + size);
        received = received.subarray(end + 2 + size);
        if (verb === 'PING') socket.write('PONG\r\n');
        if (verb === 'SUB' && this.deniesAnswers)
          socket.write(`-ERR 'Permissions Violation for Subscription to "${words[0]}"'\r\n`);
        else if (verb === 'SUB') subscriptions.set(words.at(-1) ?? '', words[0] ?? '');
        if (size > 0) this.#take(socket, subscriptions, { hasHeaders: verb === 'HPUB', words, content });
      }
    });
  }

  #take(
    socket: Socket,
    subscriptions: ReadonlyMap<string, string>,
    given: { readonly hasHeaders: boolean; readonly words: readonly string[]; readonly content: Buffer },
  ): void {
    const { hasHeaders, words, content } = given;
    const headBytes = hasHeaders ? Number(words.at(-2)) : 0;
    const [subject = '', reply = ''] = words.slice(0, hasHeaders ? -2 : -1);
    const lines = content.subarray(0, headBytes).toString().split('\r\n').slice(1);
    const headers = Object.fromEntries(
      lines.flatMap((line) =>
        line === '' ? [] : [[line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim()]],
      ),
    );
    const message = { subject, headers, body: content.subarray(headBytes).toString() };
    const answer = subject.startsWith('$JS.API.') ? this.#ofJetStream(message) : this.#ofMessage(message);
    const [sid] = [...subscriptions].find(([, pattern]) => reply.startsWith(pattern.replace('*', ''))) ?? [];
    if (answer === undefined || sid === undefined) return;
    if (typeof answer === 'number') {
      const head = `NATS/1.0 ${answer}\r\n\r\n`;
      socket.write(`HMSG ${reply} ${sid} ${head.length} ${head.length}\r\n${head}\r\n`);
      return;
    }
    const body = JSON.stringify(answer);
    socket.write(`MSG ${reply} ${sid} ${Buffer.byteLength(body)}\r\n${body}\r\n`);
  }

  #ofMessage(message: NatsMessage): NatsAnswer {
    this.published.push(message);
    return this.answers(message);
  }

  #ofJetStream({ subject, body }: NatsMessage): NatsAnswer {
    const request = subject.replace('$JS.API.', '');
    this.requests.push(request);
    if (this.isSilent) return undefined;
    if (this.refusal !== undefined) return this.refusal;
    if (request === 'STREAM.NAMES')
      return this.takers((JSON.parse(body) as { readonly subject: string }).subject);
    if (request.startsWith('STREAM.CREATE.')) {
      this.streamExists = true;
      return { ...this.stream, ...(JSON.parse(body) as object) };
    }
    if (request.startsWith('CONSUMER.LIST.')) {
      const consumers = this.consumed.map((each) => ({ config: { filter_subject: each } }));
      const type = 'io.nats.jetstream.api.v1.consumer_list_response';
      return { type, consumers, total: consumers.length, offset: 0, limit: 256 };
    }
    return this.streamExists ? this.stream : notFound;
  }
}
