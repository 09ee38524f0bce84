import {
  type MsgHdrs,
  type NatsConnection,
  PermissionViolationError,
  createInbox,
} from '@nats-io/transport-node';

import { NoAnswerError } from './connection-on-demand.js';

/** What NATS has said against a message. */
export class NatsRefusal extends Error {
  override readonly name = 'NatsRefusal';
  /** The `err_code` of JetStream; 503 when no stream has answered, and 403 when the user may not publish to the subject. */
  readonly code: number;

  constructor(code: number, description: string) {
    super(description);
    this.code = code;
  }
}

/** Where a stream has a message. */
export interface NatsPlace {
  readonly sequence: number;
  /** Whether the stream recognised a duplicate and stored nothing; `sequence` is then the original's. */
  readonly isRepeat: boolean;
}

interface Waiting {
  readonly subject: string;
  readonly sentAtMs: number;
  readonly resolve: (place: NatsPlace) => void;
  readonly reject: (error: unknown) => void;
}

const checkMs = 500;

/**
 * Publishes to JetStream without a request of its own for each message: all answers arrive at one subscription. The client's own
 * `publish` makes a request with a timer for each.
 */
export class NatsAcknowledgements {
  readonly #connection: NatsConnection;
  readonly #timeoutMs: number;
  readonly #inbox: string;
  /** The messages that have no answer yet, in the order in which they were sent. */
  readonly #waiting = new Map<string, Waiting>();
  #sentCount = 0;
  /** Why no answer can arrive on this connection, if the user may not subscribe to them. */
  #isDeaf: NatsRefusal | undefined;

  /**
   * @param options.timeoutMs how long the answer to a message may take
   * @param options.inboxPrefix the prefix of the subject on which acknowledgements arrive. Default: the client's, `_INBOX`
   */
  constructor(
    connection: NatsConnection,
    { timeoutMs, inboxPrefix }: { readonly timeoutMs: number; readonly inboxPrefix?: string | undefined },
  ) {
    this.#connection = connection;
    this.#timeoutMs = timeoutMs;
    this.#inbox = createInbox(inboxPrefix);
    connection.subscribe(`${this.#inbox}.*`, {
      callback: (error, message) => {
        if (error === null) return this.#answered(message.subject, message.headers?.code, message.data);
        // Messages would be stored, and stored again, without an answer that arrives. Another connection may have the right again.
        if (!(error instanceof PermissionViolationError)) return;
        this.#isDeaf = new NatsRefusal(denied, error.message);
        this.#failAll(this.#isDeaf);
        void connection.close();
      },
    });
    const timer = setInterval(() => this.#failOverdue(), Math.min(checkMs, timeoutMs));
    timer.unref();
    void this.#failWhenLost().finally(() => clearInterval(timer));
  }

  /**
   * Waits until the server has looked at the subscription.
   *
   * @throws NatsRefusal when the user may not subscribe to answers
   */
  async assertHears(): Promise<void> {
    // A connection that is closed answers no flush.
    await Promise.race([this.#connection.flush(), this.#connection.closed()]);
    if (this.#isDeaf !== undefined) throw this.#isDeaf;
  }

  /**
   * Publishes one message, and resolves when JetStream has stored it, or recognised it as a repeat.
   *
   * @throws NatsRefusal when JetStream has refused it, NoAnswerError when there is no answer in time, Error when the connection was lost, and what
   * the client throws
   */
  publish(subject: string, body: Uint8Array, headers: MsgHdrs): Promise<NatsPlace> {
    if (this.#isDeaf !== undefined) return Promise.reject(this.#isDeaf);
    const reply = `${this.#inbox}.${++this.#sentCount}`;
    return new Promise((resolve, reject) => {
      this.#waiting.set(reply, { subject, sentAtMs: performance.now(), resolve, reject });
      try {
        this.#connection.publish(subject, body, { headers, reply });
      } catch (error) {
        this.#waiting.delete(reply);
        reject(error);
      }
    });
  }

  #answered(reply: string, status: number | undefined, data: Uint8Array): void {
    const waiting = this.#waiting.get(reply);
    this.#waiting.delete(reply);
    const place = placeIn(status, data);
    if (place instanceof Error) waiting?.reject(place);
    else waiting?.resolve(place);
  }

  #failOverdue(): void {
    const nowMs = performance.now();
    for (const [reply, { sentAtMs, reject }] of this.#waiting) {
      if (nowMs - sentAtMs < this.#timeoutMs) return;
      this.#waiting.delete(reply);
      reject(new NoAnswerError(`JetStream did not answer within ${this.#timeoutMs} ms`));
    }
  }

  #failAll(error: Error, subject?: string): void {
    for (const [reply, waiting] of this.#waiting) {
      if (subject !== undefined && waiting.subject !== subject) continue;
      this.#waiting.delete(reply);
      waiting.reject(error);
    }
  }

  /**
   * No answer arrives on a connection that was lost, although the client opens another one; nor to a message that the user may not publish,
   * which the server only says about its subject.
   */
  async #failWhenLost(): Promise<void> {
    for await (const status of this.#connection.status()) {
      if (status.type === 'disconnect')
        this.#failAll(new Error('The connection to NATS was lost before JetStream answered'));
      if (status.type === 'error' && status.error instanceof PermissionViolationError) {
        const { subject, message } = status.error;
        this.#failAll(new NatsRefusal(denied, message), subject);
      }
    }
    this.#failAll(new Error('The connection to NATS was closed before JetStream answered'));
  }
}

/** The status of an answer that comes from the server itself, because nobody has subscribed to the subject. */
export const noResponders = 503;

/** The user may not publish to the subject. */
const denied = 403;

/** Where a message is stored, or why it is not. */
function placeIn(status: number | undefined, data: Uint8Array): NatsPlace | Error {
  if (status === noResponders) return new NatsRefusal(noResponders, 'no stream has answered');
  const { error, stream, seq, duplicate } = answerIn(data);
  if (error) return new NatsRefusal(error.err_code ?? 0, error.description ?? 'refused');
  if (typeof stream === 'string' && typeof seq === 'number')
    return { sequence: seq, isRepeat: duplicate === true };
  return new Error('The answer does not come from JetStream: does something else reply to this subject?');
}

/** What JetStream answers: where it has stored the message, or why it has not. */
interface Answer {
  readonly stream?: unknown;
  readonly seq?: unknown;
  readonly duplicate?: unknown;
  readonly error?: { readonly err_code?: number; readonly description?: string } | null;
}

function answerIn(data: Uint8Array): Answer {
  try {
    return (JSON.parse(new TextDecoder().decode(data)) ?? {}) as Answer;
  } catch {
    return {};
  }
}
