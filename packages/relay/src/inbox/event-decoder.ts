import type { EventClass, ModelClass } from '@framework/core';
import {
  EventTypes,
  ModelsByName,
  type OptionNames,
  UnknownEventTypeError,
  UnreadableMessageError,
  decodeEvent,
  refuseUnknownOptions,
} from '@framework/core/adapter';

import { type MessageHeaders, attributesOf } from './message-attributes.js';

/** A message as a broker's client has delivered it. */
export interface BrokerDelivery {
  /** All headers of the message; for Redis, the fields of the entry. */
  readonly headers: MessageHeaders;
  /** The body as bytes, as text, or already parsed; for Redis, the field `data`. */
  readonly body: Uint8Array | ArrayBuffer | string | object;
}

/** An event that another service has published, decoded. */
export interface ReceivedEvent<E> {
  /** An instance of its class; `instanceof` says of which. */
  readonly event: E;
  /** The same at each delivery: repeats are recognised by it. */
  readonly id: string;
  /** Where it was written: `/<namespace>/shards/<group>/<member>`. */
  readonly source: string;
  /** `<namespace>.<event type>` */
  readonly type: string;
  /** When it was written. */
  readonly time: Date;
  readonly modelId: string;
  readonly modelName: string;
  /** The version of the model that the event led to. */
  readonly modelVersion: number;
  /** The place among the events of the same version, from 0. */
  readonly ordinal: number;
  readonly actionId: string;
  readonly actionName: string;
  /** The trace context of the action, as W3C Trace Context describes, if there was one. */
  readonly traceparent: string | undefined;
}

/** Which events a service receives. */
export interface EventDecoderOptions<C extends EventClass> {
  /** The namespace of the service that publishes them. */
  readonly namespace: string;
  /** Their classes, from a package that both services have. */
  readonly events: readonly C[];
  /** The classes that `event.model` returns; for other models it returns an empty class with the model's name. */
  readonly models?: readonly ModelClass<unknown>[];
}

const optionNames: OptionNames<EventDecoderOptions<EventClass>> = {
  namespace: true,
  events: true,
  models: true,
};
const utf8 = new TextDecoder('utf-8', { fatal: true });
const excerptMax = 64;

/**
 * Decodes messages of a relay to instances of their event classes, by the schemas of the classes, from whichever broker they come.
 * Payloads that an earlier version of a class has written are converted by its `upcast`.
 *
 * @example packages/relay/src/inbox/event-decoder.test.ts
 *
 * ```ts
 * const decoder = new EventDecoder({
 *   namespace: 'com.example',
 *   events: [CounterIncreasedEvent, CounterClosedEvent],
 * });
 * ```
 */
export class EventDecoder<C extends EventClass> {
  /** By the attribute `type`. */
  readonly #classes: ReadonlyMap<string, C>;
  readonly #models: ModelsByName;

  /**
   * @throws ConfigurationError `invalid-configuration` when an option is unknown
   * @throws InvariantViolationError `invariant-violation` when two classes have the same type, or two models the same name
   */
  constructor(options: EventDecoderOptions<C>) {
    refuseUnknownOptions('decoder.', optionNames, options);
    const { namespace, events, models = [] } = options;
    const types = new EventTypes();
    this.#classes = new Map(events.map((event) => [`${namespace}.${types.claim(event)}`, event]));
    this.#models = new ModelsByName(models);
  }

  /**
   * Decodes an event of one of the classes.
   *
   * @throws UnknownEventTypeError `unknown-event-type` when its type belongs to none of them
   * @throws UnreadableMessageError `unreadable-message` when an attribute is missing or wrong, or the body is not JSON
   * @throws UnreadableEventError `unreadable-event` when the payload does not fit the schema of the class
   */
  decode(message: BrokerDelivery): ReceivedEvent<InstanceType<C>> {
    const attributes = attributesOf(message.headers);
    const received = this.#received(attributes, message.body);
    if (received !== undefined) return received;
    throw new UnknownEventTypeError(attributes['type'] ?? '', [...this.#classes.keys()]);
  }

  /**
   * Decodes an event, or ignores it.
   *
   * @returns `undefined` when its type belongs to none of the classes: acknowledge the message
   * @throws UnreadableMessageError `unreadable-message` when an attribute is missing or wrong, or the body is not JSON
   * @throws UnreadableEventError `unreadable-event` when the payload does not fit the schema of the class
   */
  decodeIfKnown(message: BrokerDelivery): ReceivedEvent<InstanceType<C>> | undefined {
    return this.#received(attributesOf(message.headers), message.body);
  }

  #received(
    attributes: Readonly<Record<string, string>>,
    body: unknown,
  ): ReceivedEvent<InstanceType<C>> | undefined {
    const read = new AttributeReader(attributes);
    read.version();
    const type = read.text('type');
    const eventClass = this.#classes.get(type);
    if (eventClass === undefined) return undefined;
    const id = read.text('id');
    const modelId = read.text('subject');
    const modelName = read.text('modelname');
    const about = {
      id,
      source: read.text('source'),
      type,
      time: read.time('time'),
      modelId,
      modelName,
      modelVersion: read.count('modelversion'),
      ordinal: read.count('ordinal'),
      actionId: read.text('actionid'),
      actionName: read.text('actionname'),
      traceparent: attributes['traceparent'],
    };
    const model = this.#models.get(modelName);
    const event = decodeEvent(eventClass, { id, model, modelId, payload: payloadOf(body) });
    return { ...about, event: event as InstanceType<C> };
  }
}

/** Reads attributes that a message must have. */
class AttributeReader {
  readonly #attributes: Readonly<Record<string, string>>;

  constructor(attributes: Readonly<Record<string, string>>) {
    this.#attributes = attributes;
  }

  text(name: string): string {
    const value = this.#attributes[name];
    if (value === undefined || value === '') throw new UnreadableMessageError(name, 'is missing');
    return value;
  }

  version(): void {
    this.#matching('specversion', /^1\./, "is not a version 1 of CloudEvents, such as '1.0'");
  }

  count(name: string): number {
    return Number(this.#matching(name, /^\d{1,15}$/, 'is not a whole number from 0'));
  }

  time(name: string): Date {
    const expected = "is not a time such as '2026-11-25T12:00:00.000Z'";
    const form = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/i;
    const date = new Date(this.#matching(name, form, expected));
    if (Number.isNaN(date.getTime())) throw this.#wrong(name, expected);
    return date;
  }

  #matching(name: string, form: RegExp, expected: string): string {
    const value = this.text(name);
    if (!form.test(value)) throw this.#wrong(name, expected);
    return value;
  }

  #wrong(name: string, expected: string): UnreadableMessageError {
    return new UnreadableMessageError(name, `'${this.text(name).slice(0, excerptMax)}' ${expected}`);
  }
}

function payloadOf(body: unknown): object {
  const payload = typeof body === 'string' || isBytes(body) ? parsed(body) : body;
  if (typeof payload === 'object' && payload !== null && !Array.isArray(payload)) return payload;
  throw new UnreadableMessageError('data', `is ${kindOf(payload)} instead of a JSON object`);
}

function kindOf(value: unknown): string {
  if (Array.isArray(value)) return 'a list';
  return value === null ? 'null' : typeof value;
}

function parsed(body: string | ArrayBuffer | Uint8Array): unknown {
  let text = '';
  try {
    text = typeof body === 'string' ? body : utf8.decode(body);
    return JSON.parse(text) as unknown;
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new UnreadableMessageError(
      'data',
      `'${text.slice(0, excerptMax)}' is not JSON in UTF-8 (${reason})`,
      {
        cause,
      },
    );
  }
}

function isBytes(body: unknown): body is ArrayBuffer | Uint8Array {
  return body instanceof Uint8Array || body instanceof ArrayBuffer;
}
