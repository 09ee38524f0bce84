import * as z from 'zod';

import { InvariantViolationError } from '../errors/framework-error.js';
import { UnreadableEventError, UnstorableValueError } from '../errors/value-errors.js';
import { droppedField } from './dropped-fields.js';
import { encodeBySchema, exactJson } from './exact-json.js';
import { type ModelClass, durableName } from './model-class.js';

/**
 * Says that something happened to a model: a data carrier, attached to the version that it led to.
 *
 * A subclass declares `static readonly payload`, the schema of its own fields, by which they are written
 * and read back. The schema must work in both directions: codecs are fine, one-way transforms are not.
 *
 * ```ts
 * class WalletMoneyDepositedEvent extends ModelEvent<Wallet> {
 *   static readonly payload = z.object({ amount: decimal, newBalance: decimal });
 *   constructor(walletId: Id<Wallet>, readonly amount: Big, readonly newBalance: Big) {
 *     super(walletId.toString(), Wallet);
 *   }
 * }
 * ```
 */
export abstract class ModelEvent<M> {
  /** The id of the model to which it happened. */
  readonly modelId: string;
  /** The class of that model. */
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

/** The class of an event, as a value: its payload's schema and its durable name. */
export type EventClass<E extends ModelEvent<unknown> = ModelEvent<unknown>> = (abstract new (
  ...args: never[]
) => E) & {
  readonly name: string;
  readonly payload: z.ZodObject;
  /** The `event_type` of the log; the class name unless set. */
  readonly eventType?: string;
  /**
   * Brings a payload that an earlier version of the class wrote to what the schema reads now, and leaves a current one as
   * it is. Rows of the log never change, so it stays for as long as there are such rows. Default: none was ever
   * different.
   */
  readonly upcast?: (payload: never, event: { readonly modelId: string }) => unknown;
};

/** The name under which the log knows an event: its static `eventType`, else its class name. */
export function eventTypeOf(event: EventClass): string {
  return durableName(event, event.eventType, 'static readonly eventType');
}

/** The classes of events by the `event_type` under which the log knows them: one for each. */
export class EventTypes {
  readonly #classes = new Map<string, EventClass>();

  /**
   * The `event_type` of a class, which is this class's from now on.
   *
   * @throws InvariantViolationError `invariant-violation` when it is that of another class: handlers of the one would get
   * the other one's events
   */
  claim(eventClass: EventClass): string {
    const type = eventTypeOf(eventClass);
    const known = this.#classes.get(type);
    if (known === undefined) this.#classes.set(type, eventClass);
    else if (known !== eventClass) {
      throw new InvariantViolationError(
        `Two event classes have the event_type ${type}: declare another static readonly eventType on one`,
      );
    }
    return type;
  }
}

/**
 * Writes an event's own fields as JSON, by the schema of its class.
 *
 * @throws UnstorableValueError `unstorable-value` when a field does not fit the schema or JSON, or the schema
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
      throw new UnstorableValueError(
        `${name}.${unlisted}`,
        'the payload schema lacks it: add it there, or make it a #private field',
      );
    }
  }
  const dropped = droppedField(payload, ownFields, { instances: true });
  if (dropped !== undefined) throw new UnstorableValueError(name + dropped.path, dropped.reason);
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
  // What does not fit has an issue.
  const [issue] = error.issues as [z.core.$ZodIssue];
  return issue;
}
