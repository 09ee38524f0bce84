import { type ChannelModel, type ConfirmChannel, type Message, type Options, connect } from 'amqplib';

import {
  type Broker,
  type BrokerMessage,
  type PublishOutcome,
  RefusedByBroker,
  publishByKey,
  singlyConfirmedMax,
} from './broker.js';
import { ConnectionOnDemand } from './connection-on-demand.js';

/** How a relay reaches RabbitMQ. */
export interface RabbitMqOptions {
  /** Such as `amqp://user:password@127.0.0.1:5672`. */
  readonly url: string;
  /** The topic exchange; the routing key of a message is `<model name>.<event type>`. */
  readonly exchange: string;
  /** Declares the exchange, durable and of the type `topic`, if it does not exist. Default false. */
  readonly declare?: boolean;
  /**
   * The largest body that is published, in bytes; one that exceeds the server's own `max_message_size` closes the channel.
   * Default 134,217,728.
   */
  readonly messageBytesMax?: number;
  /** Further options of the client's socket, such as `ca` for TLS. */
  readonly socket?: object;
}

const messageBytesMaxDefault = 128 * 1024 * 1024;

/**
 * RabbitMQ as the broker of a relay: persistent messages with publisher confirms. A message that no queue takes is refused, because
 * RabbitMQ would drop it.
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
  isOpen: boolean;
}

class RabbitMqBroker implements Broker {
  readonly limits = { messagesMax: singlyConfirmedMax };
  readonly #options: RabbitMqOptions;
  readonly #connection: ConnectionOnDemand<Connected>;

  constructor(options: RabbitMqOptions) {
    this.#options = options;
    this.#connection = new ConnectionOnDemand({
      open: () => openRabbitMq(options),
      isOpen: ({ isOpen }) => isOpen,
      end: async ({ connection, closed }) => {
        // A connection that breaks at the same time gives no answer.
        await Promise.race([connection.close(), closed]);
      },
    });
  }

  async publish(messages: readonly BrokerMessage[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    const connected = await this.#connection.get();
    return publishByKey(messages, signal, (message) => this.#publishOne(connected, message));
  }

  async ping(): Promise<void> {
    const { channel } = await this.#connection.get();
    await channel.checkExchange(this.#options.exchange);
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  #publishOne({ channel, returned }: Connected, message: BrokerMessage): Promise<void> {
    const { exchange, messageBytesMax = messageBytesMaxDefault } = this.#options;
    const { id, attributes, body } = message;
    if (body.byteLength > messageBytesMax)
      throw new RefusedByBroker(
        `the body has ${body.byteLength} bytes, more than messageBytesMax (${messageBytesMax})`,
      );
    const routingKey = `${attributes['modelname'] ?? ''}.${message.eventType}`;
    return new Promise((resolve, reject) => {
      const onAnswer = (error: unknown): void => {
        const reply = returned.get(id);
        returned.delete(id);
        if (reply !== undefined) reject(new RefusedByBroker(`${reply}: no queue is bound for ${routingKey}`));
        else if (error) reject(error);
        else resolve();
      };
      try {
        channel.publish(exchange, routingKey, Buffer.from(body), propertiesOf(message), onAnswer);
      } catch (error) {
        // What cannot be encoded, such as a routing key of more than 255 bytes, can never be published.
        reject(error instanceof TypeError ? new RefusedByBroker(error.message) : error);
      }
    });
  }
}

async function openRabbitMq({ url, exchange, declare = false, socket }: RabbitMqOptions): Promise<Connected> {
  const connection = await connect(url, socket);
  // Each publisher learns the reason from the rejection of what it waits for.
  connection.on('error', () => undefined);
  try {
    const channel = await connection.createConfirmChannel();
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    const connected: Connected = { connection, channel, returned: new Map(), closed, isOpen: true };
    const onClose = (): void => {
      connected.isOpen = false;
      resolve();
    };
    connection.on('close', onClose);
    channel.on('close', onClose);
    channel.on('error', () => undefined);
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
    await connection.close().catch(() => undefined);
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
