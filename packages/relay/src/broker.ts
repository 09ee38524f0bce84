import { unlessAborted } from './unless-aborted.js';

/** A message for a broker: a CloudEvent in binary mode, whose bytes are the same each time it is published. */
export interface BrokerMessage {
  /** The event's id, by which a broker or consumer recognises a repeat. */
  readonly id: string;
  /** Messages of one key are published in order: the model's name and id. */
  readonly key: string;
  /** Where it goes: `<namespace>.<model name>`, unless the relay chooses another topic. */
  readonly topic: string;
  /** The durable name of the event's class; brokers that route by type append it to the topic. */
  readonly eventType: string;
  /** The CloudEvents attributes by their names, without a prefix; each broker has its own binding. */
  readonly attributes: Readonly<Record<string, string>>;
  /** The event's payload as JSON in UTF-8. */
  readonly body: Uint8Array;
}

/**
 * What became of a message.
 *
 * `confirmed`: the broker has stored it, as durably as its page says; it is never sent again. `later`: it was not taken, or there was no
 * answer, and it is sent again with the same id. `refused`: the broker will never take it, for the reason that it gave.
 * `held-back`: it was not published, because an earlier one of its key is not confirmed, others for its target have failed, or the time was
 * over before its turn.
 */
export type PublishOutcome =
  | { readonly kind: 'confirmed' }
  | {
      readonly kind: 'later';
      /**
       * `target`: as far as is known, no message for this target is taken now. `key`: another message for the target was sent after this one
       * had failed, and was taken, so that only the messages of its key wait. If that happens again and again, an attempt counts, unless
       * there is an `afterMs`.
       */
      readonly of: 'target' | 'key';
      readonly reason: string;
      /** How long the target asks not to be sent anything, in milliseconds. Default: the relay's own backoff. */
      readonly afterMs?: number | undefined;
    }
  | { readonly kind: 'refused'; readonly reason: string }
  | { readonly kind: 'held-back' };

/** A message broker, as a relay uses it. */
export interface Broker {
  /**
   * The maximum number of messages in one call of {@link publish}, at least 1, and the longest time that it may take, in milliseconds.
   * Default: the batch size of handlers, and 30,000.
   */
  readonly limits?: { readonly messagesMax?: number; readonly timeoutMs?: number };
  /** What a message goes to that can fail by itself, such as a queue or a topic. Default: all messages have one target. */
  targetOf?(message: BrokerMessage): string;
  /**
   * Publishes messages: those of one key in order, each only once the one before is confirmed, or in such a way that the broker
   * cannot take it without the one before.
   *
   * @param signal aborted when the time is over: nothing further is published, and what is known by then may be returned within a second
   * @returns what became of each message, in the same order
   * @throws when the broker cannot be reached, or nothing is known; then all messages are published again
   */
  publish(messages: readonly BrokerMessage[], signal: AbortSignal): Promise<readonly PublishOutcome[]>;
  /** Resolves when the broker answers; rejects otherwise. */
  ping(): Promise<void>;
  /** Disconnects; later calls are refused. */
  close(): Promise<void>;
}

/** Thrown for a message that the broker will never take; its own `message` is the broker's reason. */
export class RefusedByBroker extends Error {
  override readonly name = 'RefusedByBroker';
}

/** Thrown for a message that the broker has not taken now, for the reason that it gave, and may take later. */
export class NotTakenByBroker extends Error {
  override readonly name = 'NotTakenByBroker';
  /** How long its target asks not to be sent anything, in milliseconds; `undefined` if it does not. */
  readonly afterMs: number | undefined;

  constructor(reason: string, afterMs?: number) {
    super(reason);
    this.afterMs = afterMs;
  }
}

/** The longest delay of a timer. */
export const timerMsMax: number = 2 ** 31 - 1;

/**
 * How long a call of {@link Broker.publish} may take if each request to the broker has a deadline of its own: all messages may be of
 * one model, and go one after the other. If the call ended before, all would be published again, for ever.
 */
export function callTimeoutMs(requestTimeoutMs: number, messagesMax = 1_000): number {
  return Math.min(timerMsMax, messagesMax * requestTimeoutMs);
}

/** Small, because all messages of a batch may be of one model, and those are published one after the other. */
const singlyConfirmedMax = 100;

/** The limits of a broker that confirms each message, within `messageTimeoutMs`. */
export function singlyConfirmedLimits(messageTimeoutMs: number): {
  readonly messagesMax: number;
  readonly timeoutMs: number;
} {
  return {
    messagesMax: singlyConfirmedMax,
    timeoutMs: callTimeoutMs(messageTimeoutMs, singlyConfirmedMax),
  };
}

/** Prints each warning once, as one of the process: that a server is set up in such a way that its confirmations are worth less. */
export function warnOnce(): (text: string) => void {
  const printed = new Set<string>();
  return (text) => {
    if (printed.has(text)) return;
    printed.add(text);
    process.emitWarning(text, { type: 'RelayWarning', code: 'weak-confirmation' });
  };
}

const confirmed: PublishOutcome = { kind: 'confirmed' };
const heldBack: PublishOutcome = { kind: 'held-back' };
export const unanswered: PublishOutcome = {
  kind: 'later',
  of: 'target',
  reason: 'there was no answer in time',
};
/** How many messages for a target fail one after the other before the others are not tried in this call. */
const failuresMax = 8;

/**
 * Publishes the messages of each key one after the other, and those of different keys at the same time.
 *
 * @param publishOne resolves when the message is confirmed; rejects with {@link RefusedByBroker} if it is refused, with
 * {@link NotTakenByBroker} if the broker has not taken it now, and with any other error if there was no answer
 * @param options.concurrency how many messages are published at the same time. Default: one of each key, without a further limit
 * @param options.targetOf as {@link Broker.targetOf}
 * @returns what became of each message; when the signal is aborted, as far as it is known by then
 * @throws the first error, or the signal's reason, when there was no answer to any message
 */
export async function publishByKey(
  messages: readonly BrokerMessage[],
  signal: AbortSignal,
  publishOne: (message: BrokerMessage) => Promise<void>,
  {
    concurrency = messages.length,
    targetOf = () => '',
  }: { readonly concurrency?: number; readonly targetOf?: (message: BrokerMessage) => string } = {},
): Promise<readonly PublishOutcome[]> {
  const targets = new Map<string, TargetProgress>();
  const outcomes = new Map<BrokerMessage, PublishOutcome>();
  const publishAll = async (sameKey: readonly BrokerMessage[]): Promise<void> => {
    for (const message of sameKey) {
      signal.throwIfAborted();
      const name = targetOf(message);
      const target = targets.get(name) ?? new TargetProgress();
      targets.set(name, target);
      // In case the signal is aborted before the answer.
      outcomes.set(message, unanswered);
      const outcome = await target.publish(message, publishOne);
      if (signal.aborted && outcome.kind !== 'confirmed') return;
      outcomes.set(message, outcome);
      if (outcome.kind !== 'confirmed') return;
    }
  };
  const keys = Map.groupBy(messages, ({ key }) => key).values();
  const work = async (): Promise<void> => {
    for (const sameKey of keys) await publishAll(sameKey);
  };
  const working = Promise.allSettled(Array.from({ length: Math.min(concurrency, messages.length) }, work));
  const ended = await unlessAborted(working, signal).catch((): PromiseSettledResult<void>[] => []);
  const reached = [...targets.values()];
  if (messages.length > 0 && reached.every(({ isAnswered }) => !isAnswered)) {
    signal.throwIfAborted();
    const rejected = ended.find((each): each is PromiseRejectedResult => each.status === 'rejected');
    throw reached[0]?.firstError ?? rejected?.reason ?? new Error('Nothing is published with no concurrency');
  }
  for (const target of reached)
    for (const [message, outcome] of target.passed()) outcomes.set(message, outcome);
  return messages.map((message) => outcomes.get(message) ?? heldBack);
}

/**
 * What is not confirmed although everything before it is would otherwise wait for nothing.
 *
 * @throws Error when the broker leaves out what became of a message, or holds one back without a reason
 */
export function assertComplete(
  messages: readonly BrokerMessage[],
  outcomes: readonly PublishOutcome[],
  targetOf: (message: BrokerMessage) => string,
): void {
  const keys = new Set<string>();
  const targets = new Set<string>();
  for (const [index, message] of messages.entries()) {
    const kind = outcomes[index]?.kind;
    if (kind === 'refused' || kind === 'later') keys.add(message.key);
    if (kind === 'later') targets.add(targetOf(message));
  }
  for (const [index, message] of messages.entries()) {
    const kind = outcomes[index]?.kind;
    if (
      kind === undefined ||
      (kind === 'held-back' && !keys.has(message.key) && !targets.has(targetOf(message)))
    )
      throw new Error(
        `The broker has not published message ${message.id}, although nothing that it depends on has failed`,
      );
  }
}

/** The message of an error, and those of its causes: that of `fetch` alone says only that it has failed. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause === undefined ? error.message : `${error.message}: ${reasonOf(error.cause)}`;
}

type LaterOutcome = PublishOutcome & { readonly kind: 'later' };

/** What was sent to one target in one call. */
class TargetProgress {
  readonly #failed: (readonly [BrokerMessage, LaterOutcome])[] = [];
  /** How many of the failures had happened when a message was sent that was taken. */
  #passedCount = 0;
  #failuresInARow = 0;
  #asksForTime = false;
  /** Whether there was an answer to any message. */
  isAnswered = false;
  firstError: unknown;

  async publish(
    message: BrokerMessage,
    publishOne: (message: BrokerMessage) => Promise<void>,
  ): Promise<PublishOutcome> {
    if (this.#asksForTime || this.#failuresInARow >= failuresMax) return heldBack;
    const failedCount = this.#failed.length;
    try {
      await publishOne(message);
      this.isAnswered = true;
      this.#passedCount = Math.max(this.#passedCount, failedCount);
      this.#failuresInARow = 0;
      return confirmed;
    } catch (error) {
      this.isAnswered ||= error instanceof RefusedByBroker || error instanceof NotTakenByBroker;
      if (error instanceof RefusedByBroker) return { kind: 'refused', reason: error.message };
      this.firstError ??= error;
      return this.#failedWith(message, error);
    }
  }

  /** The messages that failed although one that was sent later was taken, with what that means for them. */
  passed(): readonly (readonly [BrokerMessage, LaterOutcome])[] {
    if (this.#asksForTime) return [];
    return this.#failed
      .slice(0, this.#passedCount)
      .map(([message, outcome]) => [message, { ...outcome, of: 'key' }]);
  }

  #failedWith(message: BrokerMessage, error: unknown): LaterOutcome {
    const reason = reasonOf(error);
    const afterMs = error instanceof NotTakenByBroker ? error.afterMs : undefined;
    const outcome: LaterOutcome = { kind: 'later', of: 'target', reason, afterMs };
    this.#failed.push([message, outcome]);
    this.#failuresInARow++;
    this.#asksForTime ||= afterMs !== undefined && afterMs > 0;
    return outcome;
  }
}
