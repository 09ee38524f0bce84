import type { DeliverableEvent } from '@framework/core/adapter';
import { type EventEnvelope, errorText } from '@framework/events';

import type { BrokerMessage, PublishOutcome } from './broker.js';

const encoder = new TextEncoder();
/** The header of W3C Trace Context; whoever executes an action may have passed anything. */
const traceContext = /^[\da-f]{2}-[\da-f]{32}-[\da-f]{16}-[\da-f]{2}$/;

/** The topic of an event, unless the relay chooses another one. */
export function defaultTopic({
  namespace,
  modelName,
}: Pick<EventEnvelope<undefined>, 'namespace' | 'modelName'>): string {
  return `${namespace}.${modelName}`;
}

/**
 * Makes the message of an event: its payload is the body, everything else is an attribute.
 *
 * @param republished what marks a message that an operator has published again
 * @see https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md
 */
export function messageOf(
  envelope: EventEnvelope<undefined>,
  topic: string,
  republished?: string,
): BrokerMessage {
  const { eventId, eventType, namespace, shard, modelId, modelName, headers } = envelope;
  const { traceparent } = headers;
  return {
    id: eventId,
    key: `${modelName}\0${modelId}`,
    topic,
    eventType,
    attributes: {
      specversion: '1.0',
      id: eventId,
      source: `/${namespace}/shards/${shard.group}/${shard.member}`,
      type: `${namespace}.${eventType}`,
      subject: modelId,
      time: envelope.createdDate.toISOString(),
      datacontenttype: 'application/json',
      modelname: modelName,
      modelversion: String(envelope.modelVersion),
      ordinal: String(envelope.ordinal),
      actionid: envelope.actionId,
      actionname: envelope.actionName,
      partitionkey: modelId,
      ...(republished !== undefined && { republished }),
      // Brokers never take a header of unlimited length, nor CloudEvents an empty one.
      ...(traceparent !== undefined && traceContext.test(traceparent) && { traceparent }),
    },
    body: encoder.encode(JSON.stringify(envelope.payload)),
  };
}

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

/**
 * An attribute as the value of a header: spaces, quotes, percent signs, and characters that are not printable ASCII are
 * percent-encoded.
 *
 * @see https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md#3132-http-header-values
 */
export function headerValue(text: string): string {
  return text.replaceAll(/[^!#$&-~]+/g, (part) =>
    Array.from(encoder.encode(part), (byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join(
      '',
    ),
  );
}
