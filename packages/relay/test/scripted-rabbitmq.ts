import { once } from 'node:events';
import { createRequire } from 'node:module';
import { type AddressInfo, type Server, type Socket, createServer } from 'node:net';
import { dirname, join } from 'node:path';

const require = createRequire(import.meta.url);

/** The encodings of the client, which its entry does not export. */
interface Definitions {
  readonly decode: (id: number, bytes: Buffer) => Record<string, unknown>;
  readonly encodeMethod: (id: number, channel: number, fields: object) => Buffer;
  readonly [id: string]: unknown;
}

const definitions = require(join(dirname(require.resolve('amqplib')), 'lib/defs.js')) as Definitions;

function idOf(name: string): number {
  return definitions[name] as number;
}

/** A message as the server got it. */
export interface RabbitMqMessage {
  readonly exchange: string;
  readonly routingKey: string;
  readonly mandatory: boolean;
  readonly properties: Readonly<Record<string, unknown>>;
  readonly body: string;
}

/** What the server does with a message: `return` confirms it as well, because no queue takes it. */
export type RabbitMqVerdict = 'ack' | 'nack' | 'return' | 'nothing' | 'close-channel';

interface Publishing {
  readonly method: Readonly<Record<string, unknown>>;
  properties: Readonly<Record<string, unknown>>;
  size: number;
  body: Buffer;
}

const frameEnd = 0xce;
const headBytes = 7;
const methodFrame = 1;
const headerFrame = 2;
const bodyFrame = 3;

/** A server that speaks enough of AMQP for a publisher, and answers as a test says. */
export class ScriptedRabbitMq {
  readonly url: string;
  readonly published: RabbitMqMessage[] = [];
  /** The methods that clients have called, without those of publishing. */
  readonly called: { readonly method: string; readonly fields: Readonly<Record<string, unknown>> }[] = [];
  readonly sockets = new Set<Socket>();
  connectionCount = 0;
  verdict: (message: RabbitMqMessage) => RabbitMqVerdict = () => 'ack';
  /** Whether the exchange exists. */
  hasExchange = true;
  isSilent = false;
  /** Why it will read nothing more, as it says before it opens a channel, if it does. */
  blocksBy: string | undefined;
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
    this.url = `amqp://guest:guest@127.0.0.1:${(server.address() as AddressInfo).port}`;
    server.on('connection', (socket) => this.#serve(socket));
  }

  static async start(): Promise<ScriptedRabbitMq> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new ScriptedRabbitMq(server);
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
    const send = (channel: number, name: string, fields: object = {}): void => {
      if (!this.isSilent) socket.write(definitions.encodeMethod(idOf(name), channel, fields));
    };
    let received = Buffer.alloc(0);
    let isGreeted = false;
    let deliveryTag = 0;
    const publishing = new Map<number, Publishing>();
    const finish = (channel: number): void => {
      const { method, properties, body, size } = publishing.get(channel)!;
      if (body.byteLength < size) return;
      publishing.delete(channel);
      if ((properties as { readonly expiration?: string }).expiration !== undefined) {
        send(channel, 'ChannelClose', {
          replyCode: 406,
          replyText: 'PRECONDITION_FAILED - invalid expiration',
          classId: 60,
          methodId: 40,
        });
        return;
      }
      deliveryTag++;
      const { exchange, routingKey, mandatory } = method as unknown as RabbitMqMessage;
      const message = { exchange, routingKey, mandatory, properties, body: body.toString() };
      this.published.push(message);
      this.#judge(
        message,
        deliveryTag,
        (name, fields) => send(channel, name, fields),
        (bytes) => socket.write(bytes),
        channel,
      );
    };
    socket.on('data', (bytes: Buffer) => {
      received = Buffer.concat([received, bytes]);
      if (!isGreeted) {
        if (received.length < 8) return;
        received = received.subarray(8);
        isGreeted = true;
        const mechanisms = Buffer.from('PLAIN');
        const start = {
          versionMajor: 0,
          versionMinor: 9,
          serverProperties: {},
          mechanisms,
          locales: Buffer.from('en_US'),
        };
        send(0, 'ConnectionStart', start);
      }
      while (received.length >= headBytes && received.length > headBytes + received.readUInt32BE(3)) {
        const [type, channel, size] = [received[0], received.readUInt16BE(1), received.readUInt32BE(3)];
        const payload = received.subarray(headBytes, headBytes + size);
        received = received.subarray(headBytes + size + 1);
        if (type === methodFrame) {
          const id = payload.readUInt32BE(0);
          const fields = definitions.decode(id, payload.subarray(4));
          if (id === idOf('ChannelOpen') && this.blocksBy !== undefined)
            send(0, 'ConnectionBlocked', { reason: this.blocksBy });
          if (id === idOf('BasicPublish'))
            publishing.set(channel, { method: fields, properties: {}, size: 0, body: Buffer.alloc(0) });
          else this.#answer(id, fields, (name, given) => send(channel, name, given), socket);
        } else if (type === headerFrame) {
          const opened = publishing.get(channel)!;
          opened.size = Number(payload.readBigUInt64BE(4));
          opened.properties = definitions.decode(idOf('BasicProperties'), payload.subarray(12));
          finish(channel);
        } else if (type === bodyFrame) {
          const opened = publishing.get(channel)!;
          opened.body = Buffer.concat([opened.body, payload]);
          finish(channel);
        }
      }
    });
  }

  #answer(
    id: number,
    fields: Readonly<Record<string, unknown>>,
    send: (name: string, fields?: object) => void,
    socket: Socket,
  ): void {
    const method = Object.keys(answers).find((name) => idOf(name) === id);
    if (method === undefined) return;
    this.called.push({ method, fields });
    if (method === 'ExchangeDeclare' && fields['passive'] === true && !this.hasExchange)
      send('ChannelClose', { replyCode: 404, replyText: 'NOT_FOUND', classId: 40, methodId: 10 });
    else for (const [name, given] of answers[method] ?? []) send(name, given);
    if (method === 'ConnectionClose') socket.end();
  }

  #judge(
    message: RabbitMqMessage,
    deliveryTag: number,
    send: (name: string, fields?: object) => void,
    write: (bytes: Buffer) => void,
    channel: number,
  ): void {
    const verdict = this.verdict(message);
    if (verdict === 'nothing') return;
    if (verdict === 'close-channel')
      return send('ChannelClose', {
        replyCode: 406,
        replyText: 'PRECONDITION_FAILED',
        classId: 60,
        methodId: 40,
      });
    if (verdict === 'return') {
      const { exchange, routingKey } = message;
      send('BasicReturn', { replyCode: 312, replyText: 'NO_ROUTE', exchange, routingKey });
      write(contentOf(message, channel));
    }
    send(verdict === 'nack' ? 'BasicNack' : 'BasicAck', { deliveryTag, multiple: false, requeue: false });
  }
}

/** The answers to methods, which are sent when a client calls them. */
const answers: Readonly<Record<string, readonly (readonly [name: string, fields?: object])[]>> = {
  ConnectionStartOk: [['ConnectionTune', { channelMax: 0, frameMax: 131_072, heartbeat: 0 }]],
  ConnectionTuneOk: [],
  ConnectionOpen: [['ConnectionOpenOk', { knownHosts: '' }]],
  ConnectionClose: [['ConnectionCloseOk']],
  ChannelOpen: [['ChannelOpenOk', { channelId: Buffer.alloc(0) }]],
  ChannelClose: [['ChannelCloseOk']],
  ChannelCloseOk: [],
  ConfirmSelect: [['ConfirmSelectOk']],
  ExchangeDeclare: [['ExchangeDeclareOk']],
};

/** The frames of a message behind the method that returns it. */
function contentOf({ properties, body }: RabbitMqMessage, channel: number): Buffer {
  const encode = definitions['encodeProperties'] as (
    id: number,
    channel: number,
    size: number,
    fields: object,
  ) => Buffer;
  const bytes = Buffer.from(body);
  const header = encode(idOf('BasicProperties'), channel, bytes.byteLength, properties);
  const head = Buffer.alloc(headBytes);
  head.writeUInt8(bodyFrame, 0);
  head.writeUInt16BE(channel, 1);
  head.writeUInt32BE(bytes.byteLength, 3);
  return Buffer.concat([header, head, bytes, Buffer.from([frameEnd])]);
}
