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

import {
  type MessageHeaders,
  attributesIn,
  attributesOfJson,
  kindOf,
  valuesByName,
} from './message-attributes.js';

/** A message as a broker's client has delivered it. */
export interface BrokerDelivery {
  /**
   * All headers of the message; for Redis, the fields of the entry. With the header `content-type: application/cloudevents+json`, the
   * attributes are in the body (structured mode).
   */
  readonly headers: MessageHeaders;
  /** The body as bytes, as text, as Base64 of a JSON object, or already parsed; for Redis, the field `data`. */
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
  /** Marks an event that an operator has published again, with the id of that change; `undefined` otherwise. */
  readonly republished: string | undefined;
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
    const content = contentOf(message);
    const received = this.#received(content);
    if (received !== undefined) return received;
    throw new UnknownEventTypeError(content.attributes['type'] ?? '', [...this.#classes.keys()]);
  }

  /**
   * Decodes an event, or ignores it.
   *
   * @returns `undefined` when its type belongs to none of the classes: acknowledge the message
   * @throws UnreadableMessageError `unreadable-message` when an attribute is missing or wrong, or the body is not JSON
   * @throws UnreadableEventError `unreadable-event` when the payload does not fit the schema of the class
   */
  decodeIfKnown(message: BrokerDelivery): ReceivedEvent<InstanceType<C>> | undefined {
    return this.#received(contentOf(message));
  }

  #received({ attributes, payload }: MessageContent): ReceivedEvent<InstanceType<C>> | undefined {
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
      republished: attributes['republished'],
      traceparent: attributes['traceparent'],
    };
    const model = this.#models.get(modelName);
    const event = decodeEvent(eventClass, { id, model, modelId, payload: payload() });
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

interface MessageContent {
  readonly attributes: Readonly<Record<string, string>>;
  /** @throws UnreadableMessageError when it is not a JSON object */
  readonly payload: () => object;
}

/**
 * Finds the attributes among the headers (binary mode), or in the body (structured mode).
 *
 * @see https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md#13-content-modes
 */
function contentOf({ headers, body }: BrokerDelivery): MessageContent {
  const values = valuesByName(headers);
  const contentTypes = values.get('content-type') ?? [];
  const format = contentTypes.map(cloudEventFormat).find((each) => each !== undefined);
  if (format === undefined) {
    const attributes = attributesIn(values);
    assertSigned(values.get('webhook-id'), attributes['id']);
    return { attributes, payload: () => jsonObject(body) };
  }
  if (format !== '+json' || contentTypes.length > 1)
    throw new UnreadableMessageError(
      'data',
      `has the content-type ${contentTypes.map(String).join(', ').slice(0, excerptMax)}, of which only application/cloudevents+json is read: one event in JSON`,
    );
  const { data, data_base64: base64, ...attributes } = jsonObject(body) as EnvelopeData;
  assertSigned(values.get('webhook-id'), attributes['id']);
  // A sender may repeat the attributes in the headers.
  for (const name of ['ce-id', 'ce_id', 'cloudevents:id', 'cloudevents_id'])
    if (values.get(name)?.every((value) => String(value) === attributes['id']) === false)
      throw new UnreadableMessageError('id', `is another one in the header ${name} than in the body`);
  return { attributes: attributesOfJson(attributes), payload: () => dataOf(data, base64) };
}

/** The signature covers `webhook-id`, not the attributes: if the ids differ, the message was changed in transit. */
function assertSigned(signed: readonly unknown[] | undefined, id: unknown): void {
  if (signed === undefined || (signed.length === 1 && String(signed[0]) === id)) return;
  throw new UnreadableMessageError('id', 'is not the webhook-id, which is signed');
}

interface EnvelopeData extends Readonly<Record<string, unknown>> {
  readonly data?: unknown;
  readonly data_base64?: unknown;
}

/** What follows `application/cloudevents` in a content type, such as `+json`; `undefined` in binary mode. */
function cloudEventFormat(contentType: unknown): string | undefined {
  const text = contentType instanceof Uint8Array ? Buffer.from(contentType).toString() : String(contentType);
  return /^\s*application\/cloudevents([^\s;]*)/i.exec(text)?.[1]?.toLowerCase();
}

/** The payload in an envelope: text in `data` is data of another format than JSON. */
function dataOf(data: unknown, base64: unknown): object {
  if (base64 === undefined) return objectOf(data);
  if (data !== undefined || typeof base64 !== 'string')
    throw new UnreadableMessageError('data', 'has data_base64 that is not text, or is beside data');
  return jsonObject(Buffer.from(base64, 'base64'));
}

function jsonObject(body: unknown): object {
  return objectOf(typeof body === 'string' || isBytes(body) ? parsed(body) : body);
}

function objectOf(value: unknown): object {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  throw new UnreadableMessageError('data', `is ${kindOf(value)} instead of a JSON object`);
}

/** Base64 of a text that begins with `{`, such as the value of a record in AWS Lambda; no JSON begins with an `e`. */
const base64OfObject = /^e[w-z\d+/][A-Za-z\d+/]*={0,2}$/;

function parsed(body: string | ArrayBuffer | NodeJS.ArrayBufferView): unknown {
  let text = '';
  try {
    if (typeof body !== 'string') text = utf8.decode(body);
    else text = base64OfObject.test(body) ? utf8.decode(Buffer.from(body, 'base64')) : body;
    return JSON.parse(text) as unknown;
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new UnreadableMessageError(
      'data',
      `'${text.slice(0, excerptMax)}' is not JSON in UTF-8 (${reason})`,
      { cause },
    );
  }
}

function isBytes(body: unknown): body is ArrayBuffer | NodeJS.ArrayBufferView {
  return ArrayBuffer.isView(body) || body instanceof ArrayBuffer;
}
