import { type ModelEvent, ShardIdentifier } from '@framework/core';
import { encodePayload, eventTypeOf, modelNameOf } from '@framework/core/adapter';
import type { EventEnvelope } from '@framework/events';
import { randomUUID } from 'node:crypto';

import type { BrokerMessage } from '../src/index.js';
import { defaultTopic, messageOf } from '../src/message.js';

/** The message that a relay makes of an event, which is the second change of its model. */
export function published(
  event: ModelEvent<unknown>,
  about: Partial<EventEnvelope<undefined>> = {},
): BrokerMessage {
  const envelope = envelopeOf(event, about);
  return messageOf(envelope, defaultTopic(envelope));
}

/** An event as a relay gets it, which is the second change of its model. */
export function envelopeOf(
  event: ModelEvent<unknown>,
  about: Partial<EventEnvelope<undefined>> = {},
): EventEnvelope<undefined> {
  return {
    event: undefined,
    eventId: randomUUID(),
    eventType: eventTypeOf(event.constructor as never),
    namespace: 'com.example',
    payload: JSON.parse(encodePayload(event)),
    shard: ShardIdentifier.of(1, 2),
    modelId: event.modelId,
    modelName: modelNameOf(event.model),
    modelVersion: 2,
    ordinal: 0,
    actionId: randomUUID(),
    actionName: 'IncreaseCounterAction',
    actionParams: {},
    principal: 'test',
    headers: { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' },
    startedDate: new Date('2026-11-25T12:00:00.000Z'),
    createdDate: new Date('2026-11-25T12:00:00.123Z'),
    attempt: 1,
    ...about,
  };
}
