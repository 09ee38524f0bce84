import * as z from 'zod';
import { UnstorableValueException } from '../errors/value-exceptions.js';
import { droppedField } from './dropped-fields.js';
import { encodeBySchema } from './encode-by-schema.js';
import { exactJson } from './exact-json.js';
import type { ModelClass } from './model-class.js';
import { type EventClass, type ModelEvent, eventTypeOf } from './model-event.js';

/**
 * Writes an event's own fields as JSON, by the schema of its class.
 *
 * @throws UnstorableValueException `unstorable-value` when a field does not fit the schema or JSON, or the schema
 * would drop it
 */
export function encodePayload(event: ModelEvent<unknown>): string {
  const eventClass = event.constructor as unknown as EventClass;
  const name = eventTypeOf(eventClass);
  const { modelId: _modelId, model: _model, ...ownFields } = event;
  const fields = encodeBySchema(eventClass.payload, ownFields, name);
  if (!fields.success) throw misfit(name, fields.error);
  const json = exactJson(fields.data, name);
  assertNothingDropped(eventClass.payload, ownFields, name);
  return json;
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
  const fields = z.safeDecode(eventClass.payload, currentPayload(eventClass, event) as never);
  if (!fields.success) throw misfit(eventTypeOf(eventClass), fields.error);
  const decoded = Object.create(eventClass.prototype as object) as E;
  return Object.assign(decoded, { modelId: event.modelId, model: event.model }, fields.data);
}

/**
 * A payload of the log as the class writes it today: one of an earlier version goes through its `upcast`.
 *
 * For code that shows payloads as JSON; {@link decodeEvent} does it by itself.
 */
export function currentPayload(
  { upcast }: EventClass,
  { modelId, payload }: { readonly modelId: string; readonly payload: unknown },
): unknown {
  return upcast === undefined ? payload : upcast(payload as never, { modelId });
}

/** Also a field that is undefined must be in the schema, so that the first event tells and not a later one. */
function assertNothingDropped(payload: z.ZodObject, ownFields: object, name: string): void {
  const { shape, catchall } = payload.def;
  if (catchall === undefined) {
    const unlisted = Object.keys(ownFields).find((field) => !Object.hasOwn(shape, field));
    if (unlisted !== undefined) {
      throw new UnstorableValueException(
        `${name}.${unlisted}`,
        'the payload schema lacks it: add it there, or make it a #private field',
      );
    }
  }
  const dropped = droppedField(payload, ownFields, { instances: true });
  if (dropped !== undefined) throw new UnstorableValueException(name + dropped.path, dropped.reason);
}

function misfit(name: string, error: z.ZodError): UnstorableValueException {
  // What does not fit has an issue.
  const [{ path, message }] = error.issues as [z.core.$ZodIssue];
  return new UnstorableValueException([name, ...path].join('.'), message, { cause: error });
}
