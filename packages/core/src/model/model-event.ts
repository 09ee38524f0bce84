import * as z from 'zod';

import { InvariantViolationError } from '../errors/framework-error.js';
import { UnreadableEventError, UnstorableValueError } from '../errors/value-errors.js';
import { type ModelClass, durableName } from '../id/model-class.js';
import { asRead, copyOfValue, exactJson } from './exact-json.js';
import { assertSchema, encodeBySchema, firstDifference, readBack } from './round-trip.js';

/**
 * A fact about a change of a model: immutable data, attached to the version that the change produced.
 *
 * A subclass declares `static readonly payload`, the schema that encodes and decodes its own fields. The schema must
 * work in both directions: codecs are allowed, one-way transforms are not.
 *
 * @example apps/counter/src/counter.ts
 *
 * ```ts
 * export class CounterIncreasedEvent extends ModelEvent<Counter> {
 *   static readonly payload = z.object({ by: z.int() });
 *   readonly by: number;
 *
 *   constructor(id: Id<Counter>, by: number) {
 *     super(id.toString(), Counter);
 *     this.by = by;
 *   }
 * }
 * ```
 */
export abstract class ModelEvent<M> {
  /** The id of the model. */
  readonly modelId: string;
  /** The class of the model. */
  readonly model: ModelClass<M>;

  /** @throws InvariantViolationError `invariant-violation` when the class declares no payload schema */
  constructor(modelId: string, model: ModelClass<M>) {
    if (!('payload' in new.target)) {
      throw new InvariantViolationError(
        `${new.target.name} declares no payload: add static readonly payload = z.object({ … })`,
      );
    }
    this.modelId = modelId;
    this.model = model;
  }
}

/** The class of an event as a value: its payload schema and its durable name. */
export type EventClass<E extends ModelEvent<unknown> = ModelEvent<unknown>> = (abstract new (
  ...args: never[]
) => E) & {
  readonly name: string;
  readonly payload: z.ZodObject;
  /** The `event_type` in the log. Default: the name of the class. */
  readonly eventType?: string;
  /**
   * Converts a payload written by an earlier version of the class to the form that the schema reads now, and returns a
   * current payload unchanged. Rows of the log never change, so keep this method for as long as such rows exist. By
   * default, there is only one form.
   */
  readonly upcast?: (payload: never, event: { readonly modelId: string }) => unknown;
};

/** The name of an event in the log: its static `eventType`, otherwise the name of its class. */
export function eventTypeOf(event: EventClass): string {
  return durableName(event, event.eventType, 'static readonly eventType');
}

/** The classes of events by `event_type`; each type belongs to one class. */
export class EventTypes {
  readonly #classes = new Map<string, EventClass>();

  /**
   * Returns the `event_type` of a class, and reserves it for that class.
   *
   * @throws InvariantViolationError `invariant-violation` when another class has the same type, because handlers of one
   * class would get events of the other
   */
  claim(eventClass: EventClass): string {
    const type = eventTypeOf(eventClass);
    const known = this.#classes.get(type);
    if (known === undefined) {
      assertSchema(eventClass.payload, `fields of ${type}`);
      this.#classes.set(type, eventClass);
    } else if (known !== eventClass) {
      throw new InvariantViolationError(
        `Two event classes have the event_type ${type}: declare a different static readonly eventType on one of them`,
      );
    }
    return type;
  }
}

/**
 * Encodes an event's own fields as JSON, with the schema of its class.
 *
 * @throws UnstorableValueError `unstorable-value` when a field does not fit the schema or JSON, or would not be read back as it is
 */
export function encodePayload(event: ModelEvent<unknown>): string {
  const eventClass = event.constructor as unknown as EventClass;
  const name = eventTypeOf(eventClass);
  const { modelId: _modelId, model: _model, ...ownFields } = event;
  const fields = encodeBySchema(eventClass.payload, ownFields, name);
  if (!fields.success) throw misfit(name, fields.error);
  const json = exactJson(fields.data, name);
  assertNothingUnlisted(eventClass.payload, ownFields, name);
  const different = firstDifference(ownFields, readBack(eventClass.payload, asRead(fields.data, json), name));
  if (different !== undefined) throw new UnstorableValueError(name + different.path, different.reason);
  return json;
}

/**
 * Decodes an event from its payload as an instance of its class, without calling the constructor.
 *
 * @param event.id names the row of the log in the error
 * @throws UnreadableEventError `unreadable-event` when the payload does not fit the schema of the class
 */
export function decodeEvent<E extends ModelEvent<unknown>>(
  eventClass: EventClass<E>,
  event: {
    readonly id?: string;
    readonly model: ModelClass<unknown>;
    readonly modelId: string;
    readonly payload: unknown;
  },
): E {
  const fields = z.safeDecode(eventClass.payload, currentPayload(eventClass, event) as never);
  if (!fields.success) throw unreadable(eventClass, event, fields.error);
  const decoded = Object.create(eventClass.prototype as object) as E;
  // A default of the schema may be the same object for every event.
  const mayBeShared = Object.values(fields.data).some((field) => typeof field === 'object');
  const own = mayBeShared ? copyOfValue(fields.data) : fields.data;
  return Object.assign(decoded, { modelId: event.modelId, model: event.model }, own);
}

/**
 * Converts a payload from the log to its current form, with the class's `upcast` if there is one.
 *
 * For code that shows payloads as JSON. {@link decodeEvent} does the same itself.
 */
export function currentPayload(
  { upcast }: EventClass,
  { modelId, payload }: { readonly modelId: string; readonly payload: unknown },
): unknown {
  return upcast === undefined ? payload : upcast(payload as never, { modelId });
}

/**
 * Refuses unlisted fields even if they are undefined, so that the first event reveals the mistake and not a later one.
 */
function assertNothingUnlisted(payload: z.ZodObject, ownFields: object, name: string): void {
  const { shape, catchall } = payload.def;
  if (catchall !== undefined) return;
  const unlisted = Object.keys(ownFields).find((field) => !Object.hasOwn(shape, field));
  if (unlisted !== undefined) {
    throw new UnstorableValueError(
      `${name}.${unlisted}`,
      'the payload schema lacks it: add it there, or make it a #private field',
    );
  }
}

function misfit(name: string, error: z.ZodError): UnstorableValueError {
  const { path, message } = firstIssue(error);
  return new UnstorableValueError([name, ...path].join('.'), message, { cause: error });
}

function unreadable(
  eventClass: EventClass,
  { id, modelId }: { readonly id?: string; readonly modelId: string },
  error: z.ZodError,
): UnreadableEventError {
  const { path, message } = firstIssue(error);
  const event = { type: eventTypeOf(eventClass), id, modelId };
  return new UnreadableEventError(event, { path: path.join('.'), reason: message }, { cause: error });
}

function firstIssue(error: z.ZodError): z.core.$ZodIssue {
  // A failed parse has at least one issue.
  const [issue] = error.issues as [z.core.$ZodIssue];
  return issue;
}
