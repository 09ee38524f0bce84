import { jetstreamManager } from '@nats-io/jetstream';
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
  warnOnce,
} from './broker.js';
import { ConnectionOnDemand, NoAnswerError } from './connection-on-demand.js';
import { headerValue } from './message.js';
import { NameTemplate } from './name-template.js';
import { NatsAcknowledgements, NatsRefusal, noResponders } from './nats-acknowledgements.js';
import { NatsStream, type NatsTerms } from './nats-stream.js';
import { unlessAborted } from './unless-aborted.js';

/** How a relay reaches NATS. */
export interface NatsOptions {
  /** Such as `nats://127.0.0.1:4222`. */
  readonly servers: readonly string[];
  /** The JetStream stream that stores the messages; it must take their subjects. */
  readonly stream: string;
  /**
   * The subject of a message, in which `{namespace}`, `{model}`, `{type}`, `{id}` and `{topic}` stand for what it has. An id with characters that
   * a subject cannot have makes its event a dead letter, as does a subject of more than 3,500 bytes. Default `{topic}.{type}`.
   */
  readonly subject?: string;
  /** The subjects of the stream, if it does not exist and is to be created. Default: it is not created. */
  readonly createWith?: readonly string[];
  /** How long one message may take to be confirmed, in milliseconds. Default 5,000. */
  readonly timeoutMs?: number;
  /**
   * Further options of the client, such as `user`, `pass` or `tls`. `waitOnFirstConnect` has no effect: a first connection fails when no server
   * can be reached, and the next call opens another one.
   */
  readonly connection?: Omit<ConnectionOptions, 'servers'>;
}

const timeoutMsDefault = 5_000;
const subjectRule = {
  of: 'subject',
  pattern: /^[^\s.*>]+(?:\.[^\s.*>]+)*$/,
  words: 'be parts with dots in between, without spaces, * and >',
} as const;
/**
 * A server closes the connection of a client that sends a longer line than `max_control_line`, 4,096 bytes by default, and does not tell a client
 * what it is. The rest of the line is for the reply and the sizes, and for what a consumer's line has besides the subject.
 */
const subjectBytesMax = 3_500;
/** More than the client's own deadlines for connecting, and for the questions after that. */
const openTimeoutMs = 60_000;
/** How long the stream's settings are waited for when the time of a call is over; less than the second for which its outcomes are. */
const graceMs = 500;

/**
 * NATS JetStream as the broker of a relay. The stream's own de-duplication drops repeats that arrive within its window, by the
 * event's id and the subject (`Nats-Msg-Id`), with `retention: interest` also by when it was created: relays may publish the same event to several
 * subjects of one stream.
 *
 * @throws Error when the URL of a server contains a user or password, or no subject can be as `subject` says
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
  readonly stream: NatsStream;
}

class NatsBroker implements Broker {
  readonly limits: { readonly messagesMax: number; readonly timeoutMs: number };
  readonly #options: NatsOptions;
  readonly #connection: ConnectionOnDemand<Connected>;
  readonly #subject: NameTemplate;
  /** The subject of the message that was sent last, of those that were not refused. */
  #lastSubject: string | undefined;
  #lastPlace = 0;
  #sentCount = 0;

  constructor(options: NatsOptions) {
    this.#options = options;
    this.#subject = new NameTemplate(options.subject ?? '{topic}.{type}', subjectRule);
    this.limits = singlyConfirmedLimits(options.timeoutMs ?? timeoutMsDefault);
    const warn = warnOnce();
    this.#connection = new ConnectionOnDemand({
      open: () => openNats(options, warn),
      // The client reconnects by itself until it gives up.
      isOpen: ({ connection }) => !connection.isClosed(),
      end: ({ connection }) => connection.close(),
      destroy: ({ connection }) => void connection.close(),
      timeoutMs: openTimeoutMs,
    });
  }

  async publish(messages: readonly BrokerMessage[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    const connected = await this.#connection.get();
    const { stream } = connected;
    const terms = await stream.terms();
    const publishOne = (message: BrokerMessage): Promise<void> =>
      this.#publishOne(connected, message, terms).catch((error: unknown) => {
        // Its settings may be the reason.
        if (error instanceof NotTakenByBroker || error instanceof NoAnswerError) stream.forget();
        throw error;
      });
    const targetOf = (message: BrokerMessage): string => this.targetOf(message);
    const outcomes = await publishByKey(messages, signal, publishOne, { targetOf });
    if (
      !outcomes.some(({ kind }) => kind === 'confirmed') ||
      (await unlessAborted(stream.keeps(terms), signal, graceMs))
    )
      return outcomes;
    const reason = `the stream ${this.#options.stream} was created or edited meanwhile (retention: interest), and may have dropped the message`;
    return outcomes.map((each) =>
      each.kind === 'confirmed' ? { kind: 'later', of: 'target', reason } : each,
    );
  }

  /** The subject: other streams may take others. */
  targetOf(message: BrokerMessage): string {
    return this.#subject.targetOf(message);
  }

  /**
   * Also checks that the user may publish to the subject of the last message that was not refused, if there was one. The probe is not stored, but plain
   * subscribers of the subject receive it, without body and attributes.
   */
  async ping(): Promise<void> {
    const { stream, acknowledgements } = await this.#connection.get();
    await stream.check();
    if (this.#lastSubject === undefined) return;
    try {
      // No stream can have this name, so that nothing is stored.
      await acknowledgements.publish(this.#lastSubject, new Uint8Array(), expecting('.'));
    } catch (error) {
      if (error instanceof NatsRefusal && error.code === otherStreamExpected) return;
      throw error;
    }
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  async #publishOne(
    { acknowledgements, stream }: Connected,
    message: BrokerMessage,
    { isTaken, interestSince }: NatsTerms,
  ): Promise<void> {
    const subject = this.#subject.of(message);
    const { stream: name } = this.#options;
    // Neither client nor server refuses these: nobody would ever answer the first one, or ask for the others alone.
    if (subject.split('.').some((part) => part === '' || part === '*' || part === '>'))
      throw new RefusedByBroker(`the subject ${subject} has a part that is empty, * or >`);
    const bytes = Buffer.byteLength(subject);
    if (bytes > subjectBytesMax)
      throw new RefusedByBroker(`the subject has ${bytes} bytes: it may have up to ${subjectBytesMax}`);
    if (!isTaken(subject))
      throw new NotTakenByBroker(
        `the stream ${name} keeps messages for its consumers (retention: interest), and none of them gets ${subject}`,
      );
    const place = ++this.#sentCount;
    try {
      const { sequence, isRepeat } = await acknowledgements.publish(
        subject,
        message.body,
        headersOf(message, subject, name, interestSince),
      );
      this.#noteSubject(subject, place);
      if (!isRepeat || (await stream.has(sequence))) return;
    } catch (error) {
      if (isRefusal(error)) throw new RefusedByBroker((error as Error).message);
      this.#noteSubject(subject, place);
      if (error instanceof NatsRefusal && error.code === noResponders)
        throw new NotTakenByBroker(
          `no stream takes the subject ${subject}, or the one that does has no leader`,
        );
      throw error instanceof NatsRefusal ? new NotTakenByBroker(error.message) : error;
    }
    throw new NotTakenByBroker(
      `somebody has removed the message from the stream ${name}, which takes it after its duplicate window`,
    );
  }

  /** Answers come in another order than messages are sent. */
  #noteSubject(subject: string, place: number): void {
    if (place < this.#lastPlace) return;
    this.#lastSubject = subject;
    this.#lastPlace = place;
  }
}

/** Whether the message can never be published as it is. */
function isRefusal(error: unknown): boolean {
  if (error instanceof NatsRefusal) return error.code === messageTooLarge;
  // The client itself refuses what no server would take.
  const { name = '' } = error instanceof Error ? error : {};
  return name === 'InvalidArgumentError' || name === 'InvalidSubjectError';
}

async function openNats(options: NatsOptions, warn: (text: string) => void): Promise<Connected> {
  const { servers, stream: name, createWith, timeoutMs = timeoutMsDefault, connection: further } = options;
  // A connection on which the server is silent is replaced after three of these intervals.
  const connection = await connect({
    pingInterval: timeoutMs,
    ...further,
    // Nothing could end the client's attempts, and each call would add its own.
    waitOnFirstConnect: false,
    servers: [...servers],
  }).catch((cause: unknown) => {
    // The client says only what happened, such as "timeout".
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new Error(`There is no connection to NATS at ${servers.join(', ')}: ${reason}`, { cause });
  });
  try {
    const manager = await jetstreamManager(connection, { timeout: timeoutMs, checkAPI: false });
    const stream = new NatsStream(manager, { servers, name, createWith, warn });
    const { inboxPrefix } = further ?? {};
    const acknowledgements = new NatsAcknowledgements(connection, { timeoutMs, inboxPrefix });
    await acknowledgements.assertHears();
    await stream.terms();
    return { connection, stream, acknowledgements };
  } catch (error) {
    await connection.close();
    throw error;
  }
}

/** What JetStream answers to a message that is larger than the stream allows. */
const messageTooLarge = 10_054;
/** What JetStream answers to a message for another stream than the one that takes its subject. */
const otherStreamExpected = 10_060;

/** @see https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/nats-protocol-binding.md */
function headersOf(
  { id, attributes }: BrokerMessage,
  subject: string,
  stream: string,
  interestSince: string | undefined,
): MsgHdrs {
  const made = expecting(stream);
  // Otherwise the stream would drop, within its duplicate window, what an operator publishes again, and take for a repeat what it has dropped
  // since it was created or edited with `retention: interest`.
  const idParts = [id, subject, attributes['republished'], interestSince];
  made.set('Nats-Msg-Id', idParts.filter((part) => part !== undefined).join(' '));
  for (const [name, value] of Object.entries(attributes)) made.set(`ce-${name}`, headerValue(value));
  return made;
}

function expecting(stream: string): MsgHdrs {
  const made = headers();
  made.set('Nats-Expected-Stream', stream);
  return made;
}
