import type { EventEnvelope } from '@framework/events';

import type { BrokerMessage } from './broker.js';

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
