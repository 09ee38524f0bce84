import { JetStreamApiError, type JetStreamManager, jetstreamManager } from '@nats-io/jetstream';
import {
  type ConnectionOptions,
  type MsgHdrs,
  type NatsConnection,
  connect,
  headers,
} from '@nats-io/transport-node';

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
import { headerValue } from './message.js';
import { NatsAcknowledgements, NatsRefusal, noResponders } from './nats-acknowledgements.js';

/** How a relay reaches NATS. */
export interface NatsOptions {
  /** Such as `nats://127.0.0.1:4222`. */
  readonly servers: readonly string[];
  /** The JetStream stream that stores the messages; it must take their subjects, `<topic>.<event type>`. */
  readonly stream: string;
  /** The subjects of the stream, if it does not exist and is to be created. Default: it is not created. */
  readonly createWith?: readonly string[];
  /** How long one message may take to be confirmed, in milliseconds. Default 5,000. */
  readonly timeoutMs?: number;
  /** Further options of the client, such as `user`, `pass` or `tls`. */
  readonly connection?: Omit<ConnectionOptions, 'servers'>;
}

const timeoutMsDefault = 5_000;
/** More than the client's own deadlines for connecting, and for the questions after that. */
const openTimeoutMs = 60_000;

/**
 * NATS JetStream as the broker of a relay. The stream's own de-duplication drops repeats that arrive within its window, by the
 * event's id and the subject (`Nats-Msg-Id`): relays may publish the same event to several subjects of one stream.
 *
 * @throws Error when the URL of a server contains a user or password
 */
export function nats(options: NatsOptions): Broker {
  // The client would leave them out, and the server would refuse it.
  if (options.servers.some((server) => server.includes('@')))
    throw new Error(
      'A server of NATS must not contain a user or password: pass them as options of their own',
    );
  return new NatsBroker(options);
}

interface Connected {
  readonly connection: NatsConnection;
  readonly acknowledgements: NatsAcknowledgements;
  readonly manager: JetStreamManager;
}

class NatsBroker implements Broker {
  readonly limits: { readonly messagesMax: number; readonly timeoutMs: number };
  readonly #options: NatsOptions;
  readonly #connection: ConnectionOnDemand<Connected>;

  constructor(options: NatsOptions) {
    this.#options = options;
    this.limits = singlyConfirmedLimits(options.timeoutMs ?? timeoutMsDefault);
    this.#connection = new ConnectionOnDemand({
      open: () => openNats(options),
      // The client reconnects by itself until it gives up.
      isOpen: ({ connection }) => !connection.isClosed(),
      end: ({ connection }) => connection.close(),
      destroy: ({ connection }) => void connection.close(),
      timeoutMs: openTimeoutMs,
    });
  }

  async publish(messages: readonly BrokerMessage[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    const connected = await this.#connection.get();
    const targetOf = (message: BrokerMessage): string => this.targetOf(message);
    return publishByKey(messages, signal, (message) => this.#publishOne(connected, message), { targetOf });
  }

  /** The subject: other streams may take others. */
  targetOf({ topic, eventType }: BrokerMessage): string {
    return `${topic}.${eventType}`;
  }

  async ping(): Promise<void> {
    const { manager } = await this.#connection.get();
    await manager.streams.info(this.#options.stream);
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  async #publishOne({ acknowledgements }: Connected, message: BrokerMessage): Promise<void> {
    const subject = this.targetOf(message);
    // Neither client nor server says that there can be no such subject: nobody would ever answer.
    if (subject.split('.').includes(''))
      throw new RefusedByBroker(`the subject ${subject} has an empty part`);
    try {
      await acknowledgements.publish(
        subject,
        message.body,
        headersOf(message, subject, this.#options.stream),
      );
    } catch (error) {
      if (isRefusal(error)) throw new RefusedByBroker((error as Error).message);
      if (error instanceof NatsRefusal && error.code === noResponders)
        throw new NotTakenByBroker(
          `no stream takes the subject ${subject}, or the one that does has no leader`,
        );
      throw error instanceof NatsRefusal ? new NotTakenByBroker(error.message) : error;
    }
  }
}

/** Whether the message can never be published as it is. */
function isRefusal(error: unknown): boolean {
  if (error instanceof NatsRefusal) return error.code === messageTooLarge;
  // The client itself refuses what no server would take.
  const { name = '' } = error instanceof Error ? error : {};
  return name === 'InvalidArgumentError' || name === 'InvalidSubjectError';
}

async function openNats(options: NatsOptions): Promise<Connected> {
  const { servers, stream, createWith, timeoutMs = timeoutMsDefault, connection: further } = options;
  // A connection on which the server is silent is replaced after three of these intervals.
  const connection = await connect({ pingInterval: timeoutMs, ...further, servers: [...servers] });
  try {
    const manager = await jetstreamManager(connection);
    if (createWith !== undefined) await createStream(manager, stream, createWith);
    return { connection, manager, acknowledgements: new NatsAcknowledgements(connection, timeoutMs) };
  } catch (error) {
    await connection.close();
    throw error;
  }
}

/** What JetStream answers when no stream takes a subject. */
const streamNotFound = 10_059;
/** What JetStream answers to a message that is larger than the stream allows. */
const messageTooLarge = 10_054;

async function createStream(
  manager: JetStreamManager,
  stream: string,
  subjects: readonly string[],
): Promise<void> {
  try {
    await manager.streams.info(stream);
  } catch (error) {
    if (!isNotFound(error)) throw error;
    await manager.streams.add({ name: stream, subjects: [...subjects] });
  }
}

function isNotFound(error: unknown): boolean {
  return error instanceof JetStreamApiError && error.code === streamNotFound;
}

/** @see https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/nats-protocol-binding.md */
function headersOf({ id, attributes }: BrokerMessage, subject: string, stream: string): MsgHdrs {
  const made = headers();
  made.set('Nats-Msg-Id', `${id} ${subject}`);
  made.set('Nats-Expected-Stream', stream);
  for (const [name, value] of Object.entries(attributes)) made.set(`ce-${name}`, headerValue(value));
  return made;
}
