import { type ChannelModel, type ConfirmChannel, type Message, type Options, connect } from 'amqplib';

import {
  type Broker,
  type BrokerMessage,
  NotTakenByBroker,
  type PublishOutcome,
  RefusedByBroker,
  publishByKey,
  singlyConfirmedLimits,
} from './broker.js';
import { ConnectionOnDemand } from './connection-on-demand.js';
import { NameTemplate } from './name-template.js';

/** How a relay reaches RabbitMQ. */
export interface RabbitMqOptions {
  /** Such as `amqp://user:password@127.0.0.1:5672`. */
  readonly url: string;
  /** The topic exchange. */
  readonly exchange: string;
  /**
   * The routing key of a message, in which `{namespace}`, `{model}`, `{type}`, `{id}` and `{topic}` stand for what it has; up to 255 bytes.
   * Default `{model}.{type}`.
   */
  readonly routingKey?: string;
  /** Declares the exchange, durable and of the type `topic`, if it does not exist. Default false. */
  readonly declare?: boolean;
  /**
   * The largest body that is published, in bytes. The server has a limit of its own, `max_message_size`; when it has closed the channel
   * because of that, larger bodies are refused. Default 134,217,728.
   */
  readonly messageBytesMax?: number;
  /** How long RabbitMQ may take to answer, in milliseconds; after that, another connection is opened. Default 30,000. */
  readonly timeoutMs?: number;
  /** Further options of the client's socket, such as `ca` for TLS. */
  readonly socket?: object;
}

const messageBytesMaxDefault = 128 * 1024 * 1024;
const timeoutMsDefault = 30_000;
const routingKeyRule = {
  of: 'routing key',
  pattern: /^[^]{0,255}$/,
  words: 'have up to 255 characters',
} as const;
/** How long a limit is believed; then the next larger message finds out whether it still is one. */
const limitBelievedMs = 60_000;
const noLimit = { bytesMax: Infinity, untilMs: Infinity } as const;
/** What the client says of a negative confirmation. */
const nacked = 'message nacked';
/** How RabbitMQ says why it has closed the channel on which a message was too large. */
const sizeLimit = /larger than configured max size (\d+)/;

/**
 * RabbitMQ as the broker of a relay: persistent messages with publisher confirms. A message that no queue takes waits, because
 * RabbitMQ would drop it.
 *
 * @throws Error when no routing key can be as `routingKey` says
 */
export function rabbitmq(options: RabbitMqOptions): Broker {
  return new RabbitMqBroker(options);
}

interface Connected {
  readonly connection: ChannelModel;
  readonly channel: ConfirmChannel;
  /** The replies to messages that were returned because no queue takes them, by their ids. */
  readonly returned: Map<string, string>;
  readonly closed: Promise<void>;
  /** Ends the connection without waiting for RabbitMQ. */
  readonly destroy: () => void;
  isOpen: boolean;
  /** Why RabbitMQ has closed the channel or the connection, if it has. */
  reason: Error | undefined;
  /** Why RabbitMQ reads nothing from the connection now, such as too little memory, if it does not. */
  blockedBy: string | undefined;
  /** Ends the waits for confirmations, which do not come while RabbitMQ reads nothing. */
  readonly waits: Set<(error: Error) => void>;
}

class RabbitMqBroker implements Broker {
  readonly limits: { readonly messagesMax: number; readonly timeoutMs: number };
  readonly #options: RabbitMqOptions;
  readonly #connection: ConnectionOnDemand<Connected>;
  /** What the server has said is the largest message that it takes, and until when that is believed; it never says so before. */
  #serverLimit: { readonly bytesMax: number; readonly untilMs: number } = noLimit;
  #isClosedForSize = false;
  /** The routing key of the last message that could be encoded. */
  #lastKey: string | undefined;
  readonly #routingKey: NameTemplate;

  constructor(options: RabbitMqOptions) {
    const { timeoutMs = timeoutMsDefault } = options;
    this.#options = options;
    this.#routingKey = new NameTemplate(options.routingKey ?? '{model}.{type}', routingKeyRule);
    this.limits = singlyConfirmedLimits(timeoutMs);
    this.#connection = new ConnectionOnDemand({
      open: (late) => {
        // Whoever raises the limit may restart the server or close its connections.
        if (!this.#isClosedForSize) this.#serverLimit = noLimit;
        this.#isClosedForSize = false;
        return openRabbitMq(options, late);
      },
      isOpen: ({ isOpen }) => isOpen,
      end: async ({ connection, closed }) => {
        // A connection that breaks at the same time gives no answer.
        await Promise.race([connection.close(), closed]);
      },
      destroy: ({ destroy }) => destroy(),
      timeoutMs,
    });
  }

  async publish(messages: readonly BrokerMessage[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    const connected = await this.#connection.get();
    const publishOne = (message: BrokerMessage): Promise<void> =>
      this.#connection.answer(connected, this.#publishOne(connected, message));
    return publishByKey(messages, signal, publishOne, { targetOf: (message) => this.targetOf(message) });
  }

  /** The routing key, because it decides which queues take a message. */
  targetOf(message: BrokerMessage): string {
    return this.#routingKey.targetOf(message);
  }

  /** Also checks that the user may publish, with the routing key of the last message if there was one. */
  async ping(): Promise<void> {
    const connected = await this.#connection.get();
    await this.#connection.answer(connected, this.#probe(connected), true);
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  /**
   * Publishes what RabbitMQ never takes: it looks at the exchange, the rights and the size, and then at the expiration. As it closes the
   * channel for any of these, this has one of its own.
   *
   * @throws Error with what RabbitMQ has said against the exchange or the user
   */
  async #probe({ connection, blockedBy, waits }: Connected): Promise<void> {
    if (blockedBy !== undefined) throw blockedError(blockedBy);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    // It may be rejected before it is awaited.
    promise.catch(() => undefined);
    waits.add(reject);
    const opening = connection.createChannel();
    try {
      const channel = await Promise.race([opening, promise.then(() => undefined)]);
      if (channel === undefined) return;
      channel.on('error', (error: Error) => {
        const isTaken = error.message.includes('invalid expiration');
        // A user may have rights for some routing keys only.
        const isOfKey = this.#lastKey === undefined && error.message.includes("access to topic ''");
        if (isTaken || isOfKey) resolve();
        else reject(error);
      });
      channel.on('close', () => reject(new Error('The connection to RabbitMQ was lost')));
      channel.publish(this.#options.exchange, this.#lastKey ?? '', Buffer.alloc(0), { expiration: 'never' });
      await promise;
    } finally {
      waits.delete(reject);
      // Unless RabbitMQ has closed it, as it does when it answers.
      opening.then((channel) => channel.close()).catch(() => undefined);
    }
  }

  async #publishOne(connected: Connected, message: BrokerMessage): Promise<void> {
    const { channel, returned } = connected;
    const { exchange, messageBytesMax = messageBytesMaxDefault } = this.#options;
    const { id, body } = message;
    if (body.byteLength > messageBytesMax)
      throw new RefusedByBroker(
        `the body has ${body.byteLength} bytes, more than messageBytesMax (${messageBytesMax})`,
      );
    if (performance.now() > this.#serverLimit.untilMs) this.#serverLimit = noLimit;
    const { bytesMax } = this.#serverLimit;
    if (body.byteLength > bytesMax)
      throw new RefusedByBroker(
        `the body has ${body.byteLength} bytes, more than max_message_size of the server (${bytesMax})`,
      );
    // Another connection would be blocked as well, and remain until RabbitMQ reads again.
    if (connected.blockedBy !== undefined) throw blockedError(connected.blockedBy);
    const routingKey = this.#routingKey.of(message);
    return new Promise((resolve, reject) => {
      connected.waits.add(reject);
      const onAnswer = (error: unknown): void => {
        connected.waits.delete(reject);
        const reply = returned.get(id);
        returned.delete(id);
        if (reply !== undefined)
          reject(new NotTakenByBroker(`${reply}: no queue is bound for ${routingKey}`));
        else if (error) reject(this.#failureOf(error, connected));
        else resolve();
      };
      try {
        channel.publish(exchange, routingKey, Buffer.from(body), propertiesOf(message), onAnswer);
        this.#lastKey = routingKey;
      } catch (error) {
        connected.waits.delete(reject);
        // What cannot be encoded, such as a routing key of more than 255 bytes, can never be published.
        const isFinal = error instanceof TypeError || error instanceof RangeError;
        reject(isFinal ? new RefusedByBroker(error.message) : this.#failureOf(error, connected));
      }
    });
  }

  /** What RabbitMQ itself has said; the client only says that the channel is closed, or that a message was not taken. */
  #failureOf(error: unknown, { reason }: Connected): unknown {
    if (reason === undefined)
      return (error as Error).message === nacked
        ? new NotTakenByBroker(
            'RabbitMQ has not taken the message (basic.nack), for example because a queue is full',
          )
        : error;
    const [, max] = sizeLimit.exec(reason.message) ?? [];
    if (max !== undefined) {
      this.#isClosedForSize = true;
      this.#serverLimit = { bytesMax: Number(max), untilMs: performance.now() + limitBelievedMs };
    }
    return reason;
  }
}

function blockedError(reason: string): Error {
  return new Error(`RabbitMQ takes no messages now (connection.blocked): ${reason}`);
}

async function openRabbitMq(
  { url, exchange, declare = false, socket }: RabbitMqOptions,
  late: AbortSignal,
): Promise<Connected> {
  const over = new AbortController();
  // Node's sockets are destroyed by this signal; the client's declarations do not know it.
  const options: object = { ...socket, signal: AbortSignal.any([late, over.signal]) };
  const connection = await connect(url, options);
  // Each publisher learns the reason from the rejection of what it waits for.
  connection.on('error', () => undefined);
  try {
    const channel = await connection.createConfirmChannel();
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    const onClose = (): void => {
      connected.isOpen = false;
      resolve();
    };
    const destroy = (): void => {
      over.abort();
      onClose();
    };
    const connected: Connected = {
      connection,
      channel,
      returned: new Map(),
      closed,
      destroy,
      isOpen: true,
      reason: undefined,
      blockedBy: undefined,
      waits: new Set(),
    };
    connection.on('close', onClose);
    // The connection of a closed channel is of no use, and would stay open.
    channel.on('close', destroy);
    connection.on('blocked', (blockedBy: string) => {
      connected.blockedBy = blockedBy;
      for (const reject of connected.waits) reject(blockedError(blockedBy));
      connected.waits.clear();
    });
    connection.on('unblocked', () => {
      connected.blockedBy = undefined;
    });
    const onError = (error: Error): void => {
      connected.reason ??= error;
    };
    channel.on('error', onError);
    connection.on('error', onError);
    // RabbitMQ returns a message before it confirms it.
    channel.on('return', ({ properties, fields }: Message) => {
      const { messageId } = properties as { readonly messageId?: string };
      const { replyText = 'returned' } = fields as { readonly replyText?: string };
      if (messageId !== undefined) connected.returned.set(messageId, replyText);
    });
    if (declare) await channel.assertExchange(exchange, 'topic', { durable: true });
    else await channel.checkExchange(exchange);
    return connected;
  } catch (error) {
    connection.close().catch(() => undefined);
    throw error;
  }
}

/** @see https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/amqp-protocol-binding.md */
function propertiesOf({ id, attributes }: BrokerMessage): Options.Publish {
  const { datacontenttype = 'application/json', ...others } = attributes;
  const headers = Object.entries(others).map(([name, value]) => [`cloudEvents:${name}`, value] as const);
  return {
    headers: Object.fromEntries(headers),
    contentType: datacontenttype,
    messageId: id,
    persistent: true,
    mandatory: true,
  };
}
