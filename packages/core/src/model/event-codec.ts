import * as z from 'zod';
import { UnstorableValueException } from '../errors/value-exceptions.js';
import { encodeBySchema } from './encode-by-schema.js';
import { exactJson } from './exact-json.js';
import type { ModelClass } from './model-class.js';
import { type EventClass, type ModelEvent, eventTypeOf } from './model-event.js';

/**
 * Writes an event's own fields as JSON, by the schema of its class.
 *
 * @throws UnstorableValueException `unstorable-value` when a field does not fit the schema or JSON
 */
export function encodePayload(event: ModelEvent<unknown>): string {
  const eventClass = event.constructor as unknown as EventClass;
  const name = eventTypeOf(eventClass);
  return exactJson(encodeFields(eventClass, event, name), name);
}

/**
 * Reads an event back from its payload, as its class, without calling the constructor.
 *
 * @throws UnstorableValueException `unstorable-value` when the payload does not fit the schema of the class
 */
export function decodeEvent<E extends ModelEvent<unknown>>(
  eventClass: EventClass<E>,
  event: { readonly model: ModelClass<unknown>; readonly modelId: string; readonly payload: unknown },
): E {
  const fields = z.safeDecode(eventClass.payload, event.payload as never);
  if (!fields.success) throw misfit(eventTypeOf(eventClass), fields.error);
  const decoded = Object.create(eventClass.prototype as object) as E;
  return Object.assign(decoded, { modelId: event.modelId, model: event.model }, fields.data);
}

function encodeFields(eventClass: EventClass, event: ModelEvent<unknown>, name: string): unknown {
  const { modelId: _modelId, model: _model, ...ownFields } = event;
  const fields = encodeBySchema(eventClass.payload, ownFields, name);
  if (!fields.success) throw misfit(name, fields.error);
  return fields.data;
}

function misfit(name: string, error: z.ZodError): UnstorableValueException {
  const issue = error.issues[0];
  const path = [name, ...(issue?.path ?? [])].join('.');
  return new UnstorableValueException(path, issue?.message ?? 'it does not fit the payload schema', {
    cause: error,
  });
}
