import type { DeliverableEvent } from '@framework/core/adapter';
import { type EventEnvelope, errorText } from '@framework/events';

import { type Broker, type BrokerMessage, type PublishOutcome, reasonOf } from './broker.js';

/** Whether a filter wants an event, or fails, which only publishing tells. */
export function isWanted(
  filter: (envelope: EventEnvelope<undefined>) => boolean,
  envelope: EventEnvelope<undefined>,
): boolean {
  try {
    return filter(envelope);
  } catch {
    return true;
  }
}

/** What became of an event that was to be published again; `left-out`: the relay's filter does not want it. */
export type AgainOutcome = PublishOutcome | { readonly kind: 'left-out' };

/**
 * The message of each event that is to be published again, or what becomes of the event without one. Later events of a model are held back
 * behind one whose message cannot be made.
 *
 * @param make returns `undefined` for an event that the relay does not want
 */
export function messagesAgain(
  events: readonly DeliverableEvent[],
  make: (event: DeliverableEvent) => BrokerMessage | undefined,
): readonly (BrokerMessage | AgainOutcome)[] {
  const refusedModels = new Set<string>();
  return events.map((event): BrokerMessage | AgainOutcome => {
    const model = `${event.modelName}\0${event.modelId}`;
    if (refusedModels.has(model)) return { kind: 'held-back' };
    try {
      if (event.omitted === true) throw new Error('The payload was left out: load the event');
      return make(event) ?? { kind: 'left-out' };
    } catch (error) {
      refusedModels.add(model);
      return { kind: 'refused', reason: errorText(error) };
    }
  });
}

/** The batch size of handlers, for a broker without a limit. */
const messagesMaxDefault = 1_000;

/**
 * Publishes any number of messages, as many at a time as a broker takes, up to the first call in which one is not confirmed.
 *
 * @param call publishes the messages of one call
 * @returns what became of each message; those that were not sent are missing
 * @throws the error of the first call
 */
export async function publishInCalls(
  messages: readonly BrokerMessage[],
  { messagesMax = messagesMaxDefault }: NonNullable<Broker['limits']> = {},
  call: (called: readonly BrokerMessage[]) => Promise<readonly PublishOutcome[]>,
): Promise<ReadonlyMap<BrokerMessage, PublishOutcome>> {
  const outcomes = new Map<BrokerMessage, PublishOutcome>();
  for (let from = 0; from < messages.length; from += messagesMax) {
    const called = messages.slice(from, from + messagesMax);
    const answered = await call(called).catch((error: unknown) => {
      if (from === 0) throw error;
      return called.map(() => ({ kind: 'later', of: 'target', reason: reasonOf(error) }) as const);
    });
    for (const [index, message] of called.entries())
      outcomes.set(message, answered[index] ?? { kind: 'held-back' });
    if (called.some((message) => outcomes.get(message)?.kind !== 'confirmed')) break;
  }
  return outcomes;
}
