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
 * `confirmed`: the broker has stored it durably. `refused`: the broker will never take it, for the reason that it gave.
 * `held-back`: it was not published, because an earlier one of its key was refused.
 */
export type PublishOutcome =
  | { readonly kind: 'confirmed' }
  | { readonly kind: 'refused'; readonly reason: string }
  | { readonly kind: 'held-back' };

/** A message broker, as a relay uses it. */
export interface Broker {
  /**
   * The maximum number of messages in one call of {@link publish}, and the longest time that it may take. Default: 1,000
   * messages, and the timeout of handlers.
   */
  readonly limits?: { readonly messagesMax: number; readonly timeoutMs?: number };
  /**
   * Publishes messages: those of one key in order, each only once the one before is confirmed, or in such a way that the broker
   * cannot take it without the one before.
   *
   * @param signal aborted when the caller no longer waits: nothing further is published
   * @returns what became of each message, in the same order
   * @throws when the broker cannot be reached, or does not confirm in time; then all messages are published again
   */
  publish(messages: readonly BrokerMessage[], signal: AbortSignal): Promise<readonly PublishOutcome[]>;
  /** Resolves when the broker answers; rejects otherwise. */
  ping(): Promise<void>;
  /** Disconnects; later calls are refused. */
  close(): Promise<void>;
}

/**
 * The maximum number of messages in one call for a broker that confirms each message. It is small, because all messages of a batch
 * may be of one model, and those are published one after the other within the timeout of the call.
 */
export const singlyConfirmedMax = 100;

/** Thrown for a message that the broker will never take; its own `message` is the broker's reason. */
export class RefusedByBroker extends Error {
  override readonly name = 'RefusedByBroker';
}

const confirmed: PublishOutcome = { kind: 'confirmed' };
const heldBack: PublishOutcome = { kind: 'held-back' };

/**
 * Publishes the messages of each key one after the other, and those of different keys at the same time.
 *
 * @param publishOne resolves when the message is confirmed; rejects with {@link RefusedByBroker} if it is refused, and with any
 * other error if its fate is unknown
 * @param concurrency how many messages are published at the same time. Default: one of each key, without a further limit
 * @throws the first of those other errors, or the signal's reason; then nothing further is published
 */
export async function publishByKey(
  messages: readonly BrokerMessage[],
  signal: AbortSignal,
  publishOne: (message: BrokerMessage) => Promise<void>,
  concurrency: number = messages.length,
): Promise<readonly PublishOutcome[]> {
  const outcomes = new Map<BrokerMessage, PublishOutcome>();
  const failed = new AbortController();
  const ended = AbortSignal.any([signal, failed.signal]);
  const publishAll = async (sameKey: readonly BrokerMessage[]): Promise<void> => {
    for (const message of sameKey) {
      ended.throwIfAborted();
      const outcome = await outcomeOf(() => publishOne(message));
      outcomes.set(message, outcome);
      if (outcome.kind === 'refused') return;
    }
  };
  const keys = Map.groupBy(messages, ({ key }) => key).values();
  const work = async (): Promise<void> => {
    for (const sameKey of keys) await publishAll(sameKey);
  };
  const works = Array.from({ length: concurrency }, () =>
    work().catch((error: unknown) => failed.abort(error)),
  );
  await Promise.all(works);
  ended.throwIfAborted();
  return messages.map((message) => outcomes.get(message) ?? heldBack);
}

async function outcomeOf(publishing: () => Promise<void>): Promise<PublishOutcome> {
  try {
    await publishing();
    return confirmed;
  } catch (error) {
    if (error instanceof RefusedByBroker) return { kind: 'refused', reason: error.message };
    throw error;
  }
}
