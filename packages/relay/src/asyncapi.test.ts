import { Parser } from '@asyncapi/parser';
import {
  FrameworkError,
  type Id,
  Model,
  ModelEvent,
  ShardIdentifier,
  ShardedId,
  bigintCodec,
} from '@framework/core';
import { Ajv } from 'ajv';
import { describe, expect, test } from 'vitest';
import * as z from 'zod';

import {
  type AsyncApiDocument,
  type AsyncApiOptions,
  type AsyncApiProtocol,
  asyncApiDocument,
} from './asyncapi.js';
import { Counter, CounterClosedEvent, CounterIncreasedEvent } from '../test/counter.js';
import { orders } from '../test/orders.js';
import { envelopeOf, published } from '../test/published.js';
import { messageOf } from './message.js';

const options: AsyncApiOptions = {
  title: 'Counters',
  version: '1.0.0',
  namespace: 'com.example',
  models: [{ model: Counter, events: [CounterIncreasedEvent, CounterClosedEvent] }],
};

const parser = new Parser();

/** Validates what a place of the document describes, such as a payload. */
function validator(document: AsyncApiDocument, schema: object): (value: unknown) => boolean {
  return new Ajv({ strict: false, validateFormats: false }).compile({ ...document, ...schema });
}

/** What AsyncAPI's own parser finds wrong, except that there is a newer version of AsyncAPI. */
async function problemsOf(document: AsyncApiDocument): Promise<readonly string[]> {
  const { diagnostics } = await parser.parse(JSON.stringify(document));
  return diagnostics
    .filter(({ code }) => code !== 'asyncapi-latest-version')
    .map(({ code, message, path }) => `${code}: ${message} ${path.join('.')}`);
}

/** Refers to its own payload; its type is no key of AsyncAPI. */
class NestedEvent extends ModelEvent<Counter> {
  static readonly eventType = 'counter nested/twice';
  static readonly payload = z.object({
    amount: bigintCodec,
    get inner() {
      return NestedEvent.payload.optional();
    },
  });

  constructor(id: Id<Counter>) {
    super(id.toString(), Counter);
  }
}

describe('the AsyncAPI document', () => {
  test('has a channel for each model, and a message for each type of event', async () => {
    const document = asyncApiDocument({
      title: 'Counters',
      version: '1.0.0',
      namespace: 'com.example',
      models: [{ model: Counter, events: [CounterIncreasedEvent, CounterClosedEvent] }],
    });
    expect(await problemsOf(document)).toEqual([]);
    expect(Object.keys(document.channels)).toEqual(['Counter']);
    expect(document.channels['Counter']).toMatchObject({
      address: 'com.example.Counter',
      messages: {
        CounterIncreasedEvent: { $ref: '#/components/messages/CounterIncreasedEvent' },
        CounterClosedEvent: { $ref: '#/components/messages/CounterClosedEvent' },
      },
    });
    expect(document.components).toMatchObject({
      messages: {
        CounterIncreasedEvent: {
          name: 'com.example.CounterIncreasedEvent',
          title: 'CounterIncreasedEvent',
          contentType: 'application/json',
          payload: { $ref: '#/components/schemas/CounterIncreasedEvent' },
        },
      },
      schemas: {
        CounterIncreasedEvent: {
          title: 'CounterIncreasedEvent',
          type: 'object',
          properties: { by: { type: 'integer' } },
          required: ['by'],
        },
        // As it is stored, not as it is in the program.
        CounterClosedEvent: { properties: { date: { type: 'string', format: 'date-time' } } },
      },
    });
    expect(document.operations).toMatchObject({
      publishCounter: { action: 'send', channel: { $ref: '#/channels/Counter' } },
    });
  });

  test('describes the messages that a relay makes', () => {
    const id = ShardedId.generate(Counter, ShardIdentifier.of(1, 2));
    const document = asyncApiDocument(options);
    for (const event of [new CounterIncreasedEvent(id, 5), new CounterClosedEvent(id, new Date())]) {
      const { attributes, body, eventType } = published(event);
      const { headers = {}, payload = {} } = document.components.messages[eventType] ?? {};
      const closed = { ...headers, additionalProperties: false, properties: propertiesOf(headers) };
      expect(validator(document, closed)(attributes)).toBe(true);
      const validate = validator(document, payload);
      expect(validate(JSON.parse(new TextDecoder().decode(body)))).toBe(true);
      expect(validate({ by: 'five' })).toBe(false);
    }
  });

  test.each<readonly [AsyncApiProtocol, string, string, object | undefined]>([
    ['nats', 'com.example.Counter.{eventType}', 'ce-modelversion', undefined],
    [
      'amqp',
      'Counter.{eventType}',
      'cloudEvents:modelversion',
      {
        amqp: {
          is: 'routingKey',
          exchange: { name: 'counters', type: 'topic', durable: true },
          bindingVersion: '0.3.0',
        },
      },
    ],
    [
      'kafka',
      'com.example.Counter',
      'ce_modelversion',
      { kafka: { topic: 'com.example.Counter', bindingVersion: '0.5.0' } },
    ],
    ['redis', 'com.example.Counter', 'modelversion', undefined],
    ['http', 'com.example.Counter', 'ce-modelversion', undefined],
  ])('shows addresses, bindings and headers as %s has them', async (protocol, address, header, bindings) => {
    const servers = { broker: { host: '127.0.0.1', protocol } };
    const document = asyncApiDocument({ ...options, protocol, servers, exchange: 'counters' });
    expect(await problemsOf(document)).toEqual([]);
    const channel = document.channels['Counter'];
    expect(channel?.address).toBe(address);
    expect(channel?.bindings).toEqual(bindings);
    expect(document.components.messages['CounterIncreasedEvent']?.headers).toMatchObject({
      required: expect.arrayContaining([header]) as string[],
    });
  });

  test('has the id of the model as the key in Kafka, and the method of webhooks', () => {
    const inKafka = asyncApiDocument({ ...options, protocol: 'kafka' }).components.messages;
    expect(inKafka['CounterIncreasedEvent']?.bindings).toEqual({
      kafka: { key: { type: 'string', description: 'The id of the Counter.' }, bindingVersion: '0.5.0' },
    });
    const { operations } = asyncApiDocument({ ...options, protocol: 'http' });
    expect(operations['publishCounter']).toMatchObject({
      bindings: { http: { method: 'POST', bindingVersion: '0.3.0' } },
    });
    // An exchange without a name is one whose name is not known.
    expect(asyncApiDocument({ ...options, protocol: 'amqp' }).channels['Counter']?.bindings).toMatchObject({
      amqp: { exchange: { type: 'topic', durable: true } },
    });
  });

  test('names every schema of which a generator makes a type, and a schema with an id once', async () => {
    const document = orders();
    expect(await problemsOf(document)).toEqual([]);
    const { schemas } = document.components;
    expect(Object.keys(schemas).toSorted()).toEqual([
      'Money',
      'OrderCancelledEvent',
      'OrderPlacedEvent',
      'OrderPlacedEventCategory',
    ]);
    expect(titlesIn(schemas)).toEqual([
      'Money',
      'MoneyCurrency',
      'OrderCancelledEvent',
      'OrderCancelledEventBy',
      'OrderPlacedEvent',
      'OrderPlacedEventCategory',
      'OrderPlacedEventDelivery',
      'OrderPlacedEventDeliveryOption1',
      'OrderPlacedEventDeliveryOption2',
      'OrderPlacedEventGift',
      'OrderPlacedEventGiftOption1',
      'OrderPlacedEventLinesItem',
      'OrderPlacedEventLinesItemSize',
      'OrderPlacedEventLinesItemTaxes',
      'OrderPlacedEventLinesItemTaxesValue',
      'OrderPlacedEventShipTo',
    ]);
    const money = { $ref: '#/components/schemas/Money' };
    expect(schemas).toMatchObject({
      Money: { description: 'An exact amount.' },
      OrderPlacedEvent: { properties: { price: money, discount: money } },
      OrderCancelledEvent: { properties: { refund: money } },
      OrderPlacedEventCategory: {
        properties: { within: { items: { $ref: '#/components/schemas/OrderPlacedEventCategory' } } },
      },
    });
  });

  test('gives two names to different schemas that would have the same', () => {
    class TwiceEvent extends ModelEvent<Counter> {
      static readonly payload = z.object({
        money: z.object({ cents: z.int() }).meta({ id: 'OrderMoney' }),
        other: z.object({ money: z.object({ euros: z.int() }) }),
        'other-money': z.object({ pounds: z.int() }),
        self: z.object({ own: z.boolean() }).meta({ id: 'TwiceEvent' }),
        titled: z.object({ own: z.boolean() }).meta({ title: 'A title' }),
      });
    }
    class AgainEvent extends ModelEvent<Counter> {
      static readonly payload = z
        .object({ money: z.object({ pesos: z.int() }).meta({ id: 'OrderMoney' }) })
        .meta({ id: 'Again' });
    }
    const models = [{ model: Counter, events: [TwiceEvent, AgainEvent] }];
    const { schemas } = asyncApiDocument({ ...options, models }).components;
    expect(titlesIn(schemas)).toEqual([
      'A title',
      'AgainEvent',
      'OrderMoney',
      'OrderMoney2',
      'TwiceEvent',
      'TwiceEvent2',
      'TwiceEventOther',
      'TwiceEventOtherMoney',
      'TwiceEventOtherMoney2',
    ]);
    expect(schemas).toMatchObject({
      OrderMoney: { properties: { cents: {} } },
      OrderMoney2: { properties: { pesos: {} } },
      TwiceEvent2: { properties: { own: {} } },
    });
  });

  test('keeps a schema whose id has characters of a reference', () => {
    class PaidEvent extends ModelEvent<Counter> {
      static readonly payload = z.object({
        money: z.object({ amount: z.string() }).meta({ id: 'billing/Money~1' }),
      });
    }
    const document = asyncApiDocument({ ...options, models: [{ model: Counter, events: [PaidEvent] }] });
    const [, money] =
      Object.entries(document.components.schemas).find(([name]) => name.includes('Money')) ?? [];
    expect(money).toMatchObject({ properties: { amount: { type: 'string' } } });
  });

  test('has the topics of the relay', () => {
    const document = asyncApiDocument({ ...options, topic: ({ modelName }) => `events.${modelName}` });
    expect(document.channels['Counter']?.address).toBe('events.Counter');
  });

  test('has the addresses that the template of a relay makes, with parameters for what differs in a channel', async () => {
    const address = 'shop.{namespace}.{model}.{id}.{type}';
    const document = asyncApiDocument({ ...options, protocol: 'nats', address });
    expect(document.channels['Counter']).toMatchObject({
      address: 'shop.com.example.Counter.{id}.{eventType}',
      parameters: { id: { description: 'The id of the Counter.' }, eventType: {} },
    });
    expect(await problemsOf(document)).toEqual([]);
    const inKafka = asyncApiDocument({ ...options, protocol: 'kafka', address: 'events-{model}' });
    expect(inKafka.channels['Counter']).toMatchObject({
      address: 'events-Counter',
      bindings: { kafka: { topic: 'events-Counter' } },
    });
  });

  test('describes recursive payloads, earlier forms, and event types that cannot be keys', async () => {
    class Renamed extends CounterIncreasedEvent {
      static readonly eventType = 'Renamed';
      static upcast(payload: object): object {
        return payload;
      }
    }
    const document = asyncApiDocument({
      ...options,
      models: [{ model: Counter, events: [NestedEvent, Renamed] }],
    });
    expect(await problemsOf(document)).toEqual([]);
    const [nested, renamed] = Object.values(document.components.messages);
    expect(nested).toMatchObject({ name: 'com.example.counter nested/twice' });
    expect(renamed?.description).toContain('earlier versions');
    const validate = validator(document, nested?.payload ?? {});
    expect(validate({ amount: '1', inner: { amount: '2' } })).toBe(true);
    expect(validate({ amount: '1', inner: { amount: 2 } })).toBe(false);
  });

  test('refuses a payload without JSON Schema, two classes of one type, and unknown options', () => {
    class Dated extends ModelEvent<Counter> {
      static readonly payload = z.object({ date: z.date() });
    }
    class Increased extends CounterIncreasedEvent {
      static readonly eventType = 'CounterIncreasedEvent';
    }
    class Other extends Model<Other, ShardedId<Other>, 'OPEN'> {}
    const twice = [...options.models, { model: Other, events: [Increased] }];
    expect(codeOf({ ...options, models: [{ model: Counter, events: [Dated] }] })).toBe('invariant-violation');
    expect(codeOf({ ...options, models: twice })).toBe('invariant-violation');
    // Otherwise the second entry would replace the first one.
    const apart = [{ model: Counter, events: [] }, ...options.models];
    expect(codeOf({ ...options, models: apart })).toBe('invariant-violation');
    expect(codeOf({ ...options, titel: 'Counters' } as AsyncApiOptions)).toBe('invalid-configuration');
  });
});

/** An event with this type. */
function typed(eventType: string): typeof CounterIncreasedEvent {
  return class extends CounterIncreasedEvent {
    static readonly eventType = eventType;
  };
}

function keysOf(...types: readonly string[]): readonly string[] {
  const models = [{ model: Counter, events: types.map(typed) }];
  return Object.keys(asyncApiDocument({ ...options, models }).channels['Counter']?.messages ?? {});
}

describe('the keys and headers of the AsyncAPI document', () => {
  test('have only the characters that AsyncAPI allows, whatever the names have', () => {
    expect(keysOf('plain-1.2_3', 'a b', 'a/b', 'ä', '😀')).toEqual([
      'plain-1.2_3',
      'a_20_b',
      'a_2f_b',
      '_e4_',
      '_1f600_',
    ]);
  });

  test('are one for each name, also if long names differ only at the end', () => {
    const long = 'x'.repeat(254);
    expect(keysOf(`${long}a`, `${long}b`)).toEqual([`${long}a`, `${long}b`]);
  });

  test('are refused if two names would have the same', () => {
    const models = [{ model: Counter, events: ['a b', 'a_20_b'].map(typed) }];
    expect(codeOf({ ...options, models })).toBe('invariant-violation');
  });

  test.each<readonly [AsyncApiProtocol | undefined, string]>([
    [undefined, ''],
    ['nats', 'ce-'],
    ['amqp', 'cloudEvents:'],
    ['kafka', 'ce_'],
    ['redis', ''],
    ['http', 'ce-'],
  ])('each have the prefix of %s, %j, and are required except two', (protocol, prefix) => {
    const document = asyncApiDocument({ ...options, ...(protocol && { protocol }) });
    const { headers } = document.components.messages['CounterIncreasedEvent'] ?? {};
    const { properties, required } = headers as {
      readonly properties: object;
      readonly required: readonly string[];
    };
    const envelope = envelopeOf(
      new CounterIncreasedEvent(ShardedId.generate(Counter, ShardIdentifier.of(1, 2)), 5),
    );
    const { attributes } = messageOf(envelope, 'topic', 'change-1');
    const names = Object.keys(attributes).filter((name) => name !== 'datacontenttype');
    expect(Object.keys(properties).toSorted()).toEqual(names.map((name) => prefix + name).toSorted());
    expect(required.toSorted()).toEqual(
      names
        .flatMap((name) => (name === 'traceparent' || name === 'republished' ? [] : [prefix + name]))
        .toSorted(),
    );
  });

  test('leave out a description and servers that are not given', () => {
    expect(asyncApiDocument(options)).not.toHaveProperty('servers');
    expect(asyncApiDocument(options).info).toEqual({ title: 'Counters', version: '1.0.0' });
    const described = asyncApiDocument({ ...options, description: '', servers: {} });
    expect(described).toMatchObject({ servers: {}, info: { description: '' } });
  });
});

/** The titles of all schemas, in order. */
function titlesIn(schema: unknown): readonly string[] {
  if (typeof schema !== 'object' || schema === null) return [];
  const { title } = schema as { readonly title?: unknown };
  const own = typeof title === 'string' ? [title] : [];
  return [...own, ...Object.values(schema).flatMap(titlesIn)].toSorted();
}

function propertiesOf(headers: object): object {
  const { properties = {} } = headers as { readonly properties?: object };
  // Brokers say it in a way of their own.
  return { ...properties, datacontenttype: { const: 'application/json' } };
}

function codeOf(faulty: AsyncApiOptions): string | undefined {
  try {
    asyncApiDocument(faulty);
  } catch (error) {
    return FrameworkError.is(error) ? error.code : String(error);
  }
  return undefined;
}
