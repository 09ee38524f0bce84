import type { EventEnvelope } from '@framework/events';

/** One call of a handler with one event. */
export interface DeliveryRecord {
  readonly handler: string;
  readonly eventId: string;
  /** Of this call among all that was recorded: begins and ends are in this order, and those of one batch begin together. */
  readonly begun: number;
  /** `undefined` while it has not succeeded. */
  done: number | undefined;
  /** Everything of the event, as the handler received it, that must be the same at each delivery. */
  readonly text: string;
}

/** The records of a call that begins. */
export function deliveryRecords(
  handler: string,
  envelopes: readonly EventEnvelope<never>[],
  begun: number,
): readonly DeliveryRecord[] {
  return envelopes.map((envelope) => ({
    handler,
    eventId: envelope.eventId,
    begun,
    done: undefined,
    text: textOf(envelope),
  }));
}

function textOf(envelope: EventEnvelope<never>): string {
  const { eventId, eventType, payload, namespace, modelId, modelName, modelVersion, ordinal } = envelope;
  const { actionId, actionName, actionParams, principal, headers, startedDate, createdDate } = envelope;
  return JSON.stringify([
    [eventId, eventType, payload, namespace, modelId, modelName, modelVersion, ordinal],
    [actionId, actionName, actionParams, principal, headers, startedDate, createdDate],
  ]);
}
