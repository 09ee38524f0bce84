import { type EventClass, InvariantViolationError, type ModelClass } from '@framework/core';
import { EventTypes, type OptionNames, modelNameOf, refuseUnknownOptions } from '@framework/core/adapter';

import { defaultTopic } from './message.js';
import { type AsyncApiReference, PayloadSchemas, keyOf, referenceTo } from './payload-schemas.js';

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
  /** Whose headers, addresses and bindings are shown. Default: attributes without the prefix of a broker, topics, and no bindings. */
  readonly protocol?: AsyncApiProtocol;
  /** The exchange of RabbitMQ. Default: without a name. */
  readonly exchange?: string;
  /**
   * The template by which the relay makes subjects, routing keys, topics or streams, such as `{namespace}.{model}.{type}.{id}`. Default: that
   * of the broker.
   */
  readonly address?: string;
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
  readonly components: AsyncApiComponents;
}

/** What the channels refer to. */
export interface AsyncApiComponents {
  /** By the types of the events. */
  readonly messages: Readonly<Record<string, AsyncApiMessage>>;
  /** The payloads by the types of the events, and the schemas in them that have an `id` of their own. */
  readonly schemas: Readonly<Record<string, object>>;
}

export type { AsyncApiReference } from './payload-schemas.js';

/** Where the events of a model are published. */
export interface AsyncApiChannel {
  readonly address: string;
  readonly description: string;
  readonly parameters?: Readonly<Record<string, object>>;
  readonly bindings?: Readonly<Record<string, object>>;
  /** By the types of the events. */
  readonly messages: Readonly<Record<string, AsyncApiReference>>;
}

/** A type of event: its attributes as headers, and its payload as it is stored and published. */
export interface AsyncApiMessage {
  /** The attribute `type`. */
  readonly name: string;
  readonly title: string;
  readonly contentType: 'application/json';
  readonly description?: string;
  readonly headers: object;
  readonly payload: AsyncApiReference;
  readonly bindings?: Readonly<Record<string, object>>;
}

const optionNames: OptionNames<AsyncApiOptions> = {
  title: true,
  version: true,
  description: true,
  namespace: true,
  models: true,
  protocol: true,
  exchange: true,
  address: true,
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
 * type of event, with the CloudEvents attributes as headers and the JSON Schema of its payload. Each object and enumeration has a
 * title, by which generators name their classes: its own, otherwise the type of the event and the path, such as `OrderPlacedEventPrice`.
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
  const { title, version, description, servers, models, namespace, protocol } = options;
  const types = new EventTypes();
  const published = models.map(({ model, events }) => ({
    modelName: modelNameOf(model),
    events: events.map((event) => [types.claim(event), event] as const),
  }));
  const schemas = new PayloadSchemas(published.flatMap(({ events }) => events.map(([type]) => type)));
  const messages = published.flatMap(({ modelName, events }) =>
    events.map(([eventType, event]) => {
      const about = { modelName, eventType, type: `${namespace}.${eventType}` };
      return [keyOf(eventType), messageOf(event, about, schemas, protocol)] as const;
    }),
  );
  return {
    asyncapi: '3.0.0',
    info: { title, version, ...(description !== undefined && { description }) },
    defaultContentType: 'application/json',
    ...(servers !== undefined && { servers }),
    channels: byKey(
      published.map(({ modelName, events }) => [keyOf(modelName), channelOf(modelName, events, options)]),
    ),
    operations: Object.fromEntries(
      published.map(({ modelName }) => [`publish${keyOf(modelName)}`, operationOf(modelName, protocol)]),
    ),
    components: { messages: byKey(messages), schemas: schemas.components },
  };
}

/** An event class with its type. */
type TypedEvent = readonly [eventType: string, event: EventClass];

function channelOf(
  modelName: string,
  events: readonly TypedEvent[],
  options: AsyncApiOptions,
): AsyncApiChannel {
  return {
    ...addressOf(modelName, events, options),
    description: `The events of a ${modelName}. Those of one ${modelName} have the same subject.`,
    messages: Object.fromEntries(
      events.map(([eventType]) => [keyOf(eventType), referenceTo('messages', keyOf(eventType))]),
    ),
  };
}

function operationOf(modelName: string, protocol: AsyncApiProtocol | undefined): object {
  return {
    action: 'send',
    channel: { $ref: `#/channels/${keyOf(modelName)}` },
    summary: `Each event of a ${modelName}: at least once, and for the first time in the order of versions.`,
    ...(protocol === 'http' && { bindings: { http: { method: 'POST', bindingVersion: '0.3.0' } } }),
  };
}

/** What the brokers make of a message when the relay has no template; others have the topic. */
const templates: Partial<Readonly<Record<AsyncApiProtocol, string>>> = {
  nats: '{topic}.{type}',
  amqp: '{model}.{type}',
};

/** The type of the event and the id of the model are parameters of an address that has them. */
function addressOf(
  modelName: string,
  events: readonly TypedEvent[],
  options: AsyncApiOptions,
): Pick<AsyncApiChannel, 'address' | 'parameters' | 'bindings'> {
  const { namespace, protocol, exchange: name, topic: topicOf = defaultTopic } = options;
  const { address: template = (protocol && templates[protocol]) ?? '{topic}' } = options;
  const topic = topicOf({ namespace, modelName });
  const known = new Map([
    ['{namespace}', namespace],
    ['{model}', modelName],
    ['{topic}', topic],
    ['{type}', '{eventType}'],
  ]);
  const address = template.replaceAll(/\{\w*\}/g, (part) => known.get(part) ?? part);
  const parameters = {
    ...(template.includes('{type}') && {
      eventType: { description: 'The type of the event.', enum: events.map(([type]) => type) },
    }),
    ...(template.includes('{id}') && { id: { description: `The id of the ${modelName}.` } }),
  };
  const isOne = Object.keys(parameters).length === 0;
  const exchange = { ...(name !== undefined && { name }), type: 'topic', durable: true };
  const bindings = {
    ...(protocol === 'kafka' && isOne && { kafka: { topic: address, bindingVersion: '0.5.0' } }),
    ...(protocol === 'amqp' && { amqp: { is: 'routingKey', exchange, bindingVersion: '0.3.0' } }),
  };
  return {
    address,
    ...(!isOne && { parameters }),
    ...(Object.keys(bindings).length > 0 && { bindings }),
  };
}

interface About {
  readonly modelName: string;
  readonly eventType: string;
  readonly type: string;
}

function messageOf(
  event: EventClass,
  about: About,
  schemas: PayloadSchemas,
  protocol: AsyncApiProtocol | undefined,
): AsyncApiMessage {
  const { modelName, eventType, type } = about;
  const key = { type: 'string', description: `The id of the ${modelName}.` };
  return {
    name: type,
    title: eventType,
    contentType: 'application/json',
    ...(event.upcast !== undefined && {
      description:
        'Events that earlier versions of the service have written keep their form. The class of the event converts them to this one.',
    }),
    headers: headersOf(about, protocol),
    payload: schemas.add(eventType, event),
    ...(protocol === 'kafka' && { bindings: { kafka: { key, bindingVersion: '0.5.0' } } }),
  };
}

function headersOf({ type, eventType, modelName }: About, protocol: AsyncApiProtocol | undefined): object {
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
    republished: {
      ...text,
      description: 'Only of a message that an operator has published again: the id of that change.',
    },
  };
  const prefix = protocol === undefined ? '' : prefixes[protocol];
  const names = Object.keys(attributes);
  const byBroker =
    'The attributes of CloudEvents: with the prefix ce- in NATS and HTTP, ce_ in Kafka, cloudEvents: in AMQP.';
  return {
    type: 'object',
    title: `${eventType}Headers`,
    ...(protocol === undefined && { description: byBroker }),
    properties: Object.fromEntries(names.map((name) => [prefix + name, attributes[name]])),
    required: names
      .filter((name) => name !== 'traceparent' && name !== 'republished')
      .map((name) => prefix + name),
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
