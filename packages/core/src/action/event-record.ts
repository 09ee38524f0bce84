import { InvariantViolation } from '../errors/invariant-violation.js';
import { LimitExceededException } from '../errors/limit-exceeded-exception.js';
import { timeOrderedUuid } from '../id/uuids.js';
import type { AnyEntity } from '../model/entity.js';
import { encodePayload } from '../model/event-codec.js';
import { modelNameOf } from '../model/model-class.js';
import type { EventTypes } from '../model/event-types.js';
import type { EventClass, ModelEvent } from '../model/model-event.js';
import type { EventRecord } from '../persistence/change-set.js';
import type { ExecutionLimits } from './execution-limits.js';

/**
 * Makes the log's record of an event that is attached to a model.
 *
 * @throws InvariantViolation `invariant-violation` when the event belongs to another model, or another class of
 * events has its `event_type`
 * @throws UnstorableValueException `unstorable-value` when its payload would not survive
 * @throws LimitExceededException `limit-exceeded` when its payload is too long
 */
export function eventRecord(
  event: ModelEvent<unknown>,
  model: AnyEntity,
  context: {
    readonly version: number;
    readonly ordinal: number;
    readonly limits: ExecutionLimits;
    readonly eventTypes: EventTypes;
  },
): EventRecord {
  const type = context.eventTypes.claim(event.constructor as unknown as EventClass);
  if (event.modelId !== model.id.value || event.model !== model.constructor) {
    throw new InvariantViolation(
      `${type} of ${modelNameOf(event.model)} ${event.modelId} is attached to ${model.constructor.name} ${model.id.value}`,
    );
  }
  const payload = encodePayload(event);
  const { payloadCharactersMax } = context.limits;
  if (payload.length > payloadCharactersMax) {
    throw new LimitExceededException(
      'payloadCharactersMax',
      payloadCharactersMax,
      `The payload of ${type} has ${payload.length} characters: keep it below ${payloadCharactersMax}`,
    );
  }
  return {
    id: timeOrderedUuid(),
    ordinal: context.ordinal,
    modelId: event.modelId,
    modelName: modelNameOf(event.model),
    modelVersion: context.version,
    type,
    payload,
  };
}
