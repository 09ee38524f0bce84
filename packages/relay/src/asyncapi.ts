import { type EventClass, InvariantViolationError, type ModelClass } from '@framework/core';
import { EventTypes, type OptionNames, modelNameOf, refuseUnknownOptions } from '@framework/core/adapter';
import * as z from 'zod';

import { defaultTopic } from './message.js';

/** A model, and the classes of the events that happen to it. */
export interface PublishedModel {
  readonly model: ModelClass<unknown>;
  readonly events: readonly EventClass[];
}

/** What a service publishes by its relays. */
export interface AsyncApiOptions {
  readonly title: string;
  /** The version of what is described, such as `1.2.0`. */
  readonly version: string;
  readonly description?: string;
  /** The namespace of the service. */
  readonly namespace: string;
  /** Each model once. */
  readonly models: readonly PublishedModel[];
  /** Whose headers and addresses are shown. Default: attributes without the prefix of a broker, and topics. */
  readonly protocol?: AsyncApiProtocol;
  /** The topic of a model, if the relay has another one. Default: `<namespace>.<model name>`. */
  readonly topic?: (model: { readonly namespace: string; readonly modelName: string }) => string;
  /** The servers by their names, as AsyncAPI describes them. Default: none. */
  readonly servers?: Readonly<Record<string, AsyncApiServer>>;
}

/** A broker of a relay. */
export type AsyncApiProtocol = 'nats' | 'amqp' | 'kafka' | 'redis' | 'http';

/** A server, with whatever else AsyncAPI has for it, such as `security` or `bindings`. */
export interface AsyncApiServer extends Readonly<Record<string, unknown>> {
  readonly host: string;
  readonly protocol: string;
}

/** A document of AsyncAPI 3.0; JSON as it is. */
export interface AsyncApiDocument {
  readonly asyncapi: '3.0.0';
  readonly info: Readonly<Record<string, string>>;
  readonly defaultContentType: 'application/json';
  readonly servers?: Readonly<Record<string, AsyncApiServer>>;
  /** By the names of the models. */
  readonly channels: Readonly<Record<string, AsyncApiChannel>>;
  readonly operations: Readonly<Record<string, object>>;
}

/** Where the events of a model are published. */
export interface AsyncApiChannel {
  readonly address: string;
  readonly description: string;
  readonly parameters?: Readonly<Record<string, object>>;
  /** By the types of the events. */
  readonly messages: Readonly<Record<string, AsyncApiMessage>>;
}

/** A type of event: its attributes as headers, and its payload as it is stored and published. */
export interface AsyncApiMessage {
  /** The attribute `type`. */
  readonly name: string;
  readonly title: string;
  readonly contentType: 'application/json';
  readonly description?: string;
  readonly headers: object;
  readonly payload: object;
}

const optionNames: OptionNames<AsyncApiOptions> = {
  title: true,
  version: true,
  description: true,
  namespace: true,
  models: true,
  protocol: true,
  topic: true,
  servers: true,
};

/** What each broker writes before the names of attributes. */
const prefixes: Readonly<Record<AsyncApiProtocol, string>> = {
  nats: 'ce-',
  amqp: 'cloudEvents:',
  kafka: 'ce_',
  redis: '',
  http: 'ce-',
};

/**
 * Describes what a service publishes by its relays, for those who receive it: a channel for each model, and in it a message for each
 * type of event, with the CloudEvents attributes as headers and the JSON Schema of its payload.
 *
 * @example packages/relay/src/asyncapi.test.ts
 *
 * ```ts
 * const document = asyncApiDocument({
 *   title: 'Counters',
 *   version: '1.0.0',
 *   namespace: 'com.example',
 *   models: [{ model: Counter, events: [CounterIncreasedEvent, CounterClosedEvent] }],
 * });
 * ```
 *
 * @throws ConfigurationError `invalid-configuration` when an option is unknown
 * @throws InvariantViolationError `invariant-violation` when two classes have the same type, a model occurs twice, names differ only
 * in characters that keys of AsyncAPI cannot have, or a payload has no JSON Schema
 * @see https://www.asyncapi.com/docs/reference/specification/v3.0.0
 */
export function asyncApiDocument(options: AsyncApiOptions): AsyncApiDocument {
  refuseUnknownOptions('asyncapi.', optionNames, options);
  const { title, version, description, servers, models } = options;
  const types = new EventTypes();
  const channels = models.map(
    (published) => [modelNameOf(published.model), channelOf(published, types, options)] as const,
  );
  return {
    asyncapi: '3.0.0',
    info: { title, version, ...(description !== undefined && { description }) },
    defaultContentType: 'application/json',
    ...(servers !== undefined && { servers }),
    channels: byKey(channels.map(([name, channel]) => [keyOf(name), channel])),
    operations: Object.fromEntries(
      channels.map(([name]) => [
        `publish${keyOf(name)}`,
        {
          action: 'send',
          channel: { $ref: `#/channels/${keyOf(name)}` },
          summary: `Each event of a ${name}: at least once, and for the first time in the order of versions.`,
        },
      ]),
    ),
  };
}

function channelOf(
  { model, events }: PublishedModel,
  types: EventTypes,
  options: AsyncApiOptions,
): AsyncApiChannel {
  const modelName = modelNameOf(model);
  const { namespace, protocol } = options;
  const of = events.map((event) => [types.claim(event), event] as const);
  const messages = of.map(([eventType, event]) => {
    const about = { modelName, eventType, type: `${namespace}.${eventType}` };
    return [keyOf(eventType), messageOf(event, about, protocol)] as const;
  });
  return {
    ...addressOf(modelName, of, options),
    description: `The events of a ${modelName}. Those of one ${modelName} have the same subject.`,
    messages: byKey(messages),
  };
}

/** In NATS and RabbitMQ, the subject or routing key ends with the type of the event. */
function addressOf(
  modelName: string,
  events: readonly (readonly [eventType: string, event: EventClass])[],
  { namespace, protocol, topic = defaultTopic }: AsyncApiOptions,
): Pick<AsyncApiChannel, 'address' | 'parameters'> {
  const address = topic({ namespace, modelName });
  if (protocol !== 'nats' && protocol !== 'amqp') return { address };
  const start = protocol === 'nats' ? address : modelName;
  const eventType = { description: 'The type of the event.', enum: events.map(([type]) => type) };
  return { address: `${start}.{eventType}`, parameters: { eventType } };
}

interface About {
  readonly modelName: string;
  readonly eventType: string;
  readonly type: string;
}

function messageOf(event: EventClass, about: About, protocol: AsyncApiProtocol | undefined): AsyncApiMessage {
  const { modelName, eventType, type } = about;
  const place = `#/channels/${keyOf(modelName)}/messages/${keyOf(eventType)}/payload`;
  return {
    name: type,
    title: eventType,
    contentType: 'application/json',
    ...(event.upcast !== undefined && {
      description:
        'Events that earlier versions of the service have written keep their form. The class of the event converts them to this one.',
    }),
    headers: headersOf(about, protocol),
    payload: payloadOf(event, eventType, place),
  };
}

/** The JSON Schema of what the log stores, and the body has: what codecs encode to. */
function payloadOf({ payload }: EventClass, eventType: string, place: string): object {
  try {
    const { $schema: _, ...schema } = z.toJSONSchema(payload, { io: 'input', target: 'draft-7' });
    // A recursive schema refers to its own root, which is not the root of the document.
    return JSON.parse(JSON.stringify(schema), (key, value: unknown) =>
      key === '$ref' && typeof value === 'string' ? place + value.slice(1) : value,
    ) as object;
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new InvariantViolationError(`The payload of ${eventType} has no JSON Schema: ${reason}`, { cause });
  }
}

function headersOf({ type, modelName }: About, protocol: AsyncApiProtocol | undefined): object {
  const text = { type: 'string' };
  const count = { type: 'string', pattern: '^\\d+$' };
  const attributes: Readonly<Record<string, object>> = {
    specversion: { const: '1.0' },
    id: { ...text, description: 'The same at each delivery: repeats are recognised by it.' },
    source: { ...text, description: 'The shard on which it happened: /<namespace>/shards/<group>/<member>.' },
    type: { const: type },
    subject: { ...text, description: `The id of the ${modelName}.` },
    time: { ...text, format: 'date-time', description: 'When it was written.' },
    modelname: { const: modelName },
    modelversion: { ...count, description: `The version of the ${modelName} that it led to.` },
    ordinal: { ...count, description: 'Its place among the events of the same version, from 0.' },
    actionid: { ...text, description: 'The execution of the action that wrote it.' },
    actionname: { ...text, description: 'The action that wrote it.' },
    partitionkey: { ...text, description: 'The same as the subject.' },
    traceparent: { ...text, description: 'The trace context of the action, if there was one.' },
  };
  const prefix = protocol === undefined ? '' : prefixes[protocol];
  const names = Object.keys(attributes);
  const byBroker =
    'The attributes of CloudEvents: with the prefix ce- in NATS and HTTP, ce_ in Kafka, cloudEvents: in AMQP.';
  return {
    type: 'object',
    ...(protocol === undefined && { description: byBroker }),
    properties: Object.fromEntries(names.map((name) => [prefix + name, attributes[name]])),
    required: names.filter((name) => name !== 'traceparent').map((name) => prefix + name),
  };
}

/** Gives each entry its key; otherwise one of two with the same key would be lost. */
function byKey<T>(entries: readonly (readonly [key: string, value: T])[]): Readonly<Record<string, T>> {
  const keys = new Set<string>();
  for (const [key] of entries) {
    if (keys.has(key)) throw new InvariantViolationError(`The AsyncAPI document would have ${key} twice`);
    keys.add(key);
  }
  return Object.fromEntries(entries);
}

/** A name as a key: AsyncAPI allows letters, digits, dots, hyphens and underscores. */
function keyOf(name: string): string {
  return name.replaceAll(/[^\w.-]/gu, (character) => `_${character.codePointAt(0)?.toString(16)}_`);
}
