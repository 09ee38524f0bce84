import { FrameworkError, type Id, ModelEvent, ShardIdentifier, ShardedId } from '@framework/core';
import { describe, expect, expectTypeOf, test } from 'vitest';
import * as z from 'zod';

import { type BrokerDelivery, EventDecoder, type ReceivedEvent, attributesOf } from './index.js';
import { headerValue } from '../message.js';
import { Counter, CounterClosedEvent, CounterIncreasedEvent } from '../../test/counter.js';
import { published } from '../../test/published.js';

const id = ShardedId.generate(Counter, ShardIdentifier.of(1, 2));
const increased = published(new CounterIncreasedEvent(id, 5));
const closedDate = new Date('2026-11-25T13:00:00.000Z');
const closed = published(new CounterClosedEvent(id, closedDate));

const decoder = new EventDecoder({
  namespace: 'com.example',
  events: [CounterIncreasedEvent, CounterClosedEvent],
});

/** Headers of the message of an increase, some of them changed; `undefined` removes one. */
function delivery(
  changed: Readonly<Record<string, unknown>> = {},
  body: unknown = increased.body,
): BrokerDelivery {
  const headers = Object.entries({ ...increased.attributes, ...changed })
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => [`ce-${name}`, value] as const);
  return { headers: Object.fromEntries(headers), body: body as Uint8Array };
}

describe('a decoder of events', () => {
  test('decodes an event to an instance of its class, with everything that a handler knows', () => {
    const received = decoder.decode({ headers: increased.attributes, body: increased.body });
    expect(received).toEqual({
      event: expect.any(CounterIncreasedEvent) as CounterIncreasedEvent,
      id: increased.id,
      source: '/com.example/shards/1/2',
      type: 'com.example.CounterIncreasedEvent',
      time: new Date('2026-11-25T12:00:00.123Z'),
      modelId: id.value,
      modelName: 'Counter',
      modelVersion: 2,
      ordinal: 0,
      actionId: expect.any(String) as string,
      actionName: 'IncreaseCounterAction',
      republished: undefined,
      traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
    } satisfies ReceivedEvent<CounterIncreasedEvent | CounterClosedEvent>);
    expect(received.event).toMatchObject({ by: 5, modelId: id.value });
  });

  test('has events of several classes, which their classes tell apart', () => {
    const texts = [increased, closed].map(({ attributes, body }) => {
      const { event } = decoder.decode({ headers: attributes, body });
      if (event instanceof CounterClosedEvent) return `closed at ${event.date.toISOString()}`;
      expectTypeOf(event).toEqualTypeOf<CounterIncreasedEvent>();
      return `increased by ${event.by}`;
    });
    expect(texts).toEqual(['increased by 5', `closed at ${closedDate.toISOString()}`]);
  });

  test.each<readonly [string, BrokerDelivery['body']]>([
    ['bytes', increased.body],
    ['a buffer', Buffer.from(increased.body)],
    ['an ArrayBuffer', new Uint8Array(increased.body).buffer],
    ['text', '{"by":5}'],
    ['an object', { by: 5 }],
  ])('takes the body as %s', (_kind, body) => {
    expect(decoder.decode(delivery({}, body)).event).toMatchObject({ by: 5 });
  });

  test('returns the classes of models that it knows, and stands in for the others', () => {
    const { namespace, events } = { namespace: 'com.example', events: [CounterIncreasedEvent] };
    const knowing = new EventDecoder({ namespace, events, models: [Counter] });
    expect(knowing.decode(delivery()).event.model).toBe(Counter);
    expect(decoder.decode(delivery()).event.model.modelName).toBe('Counter');
  });

  test('converts payloads that an earlier version of the class has written', () => {
    class CounterRenamedEvent extends ModelEvent<Counter> {
      static readonly payload = z.object({ name: z.string(), id: z.string() });
      readonly name: string;

      constructor(counter: Id<Counter>, name: string) {
        super(counter.toString(), Counter);
        this.name = name;
      }

      static upcast(payload: { title?: string }, { modelId }: { readonly modelId: string }): object {
        const { title, ...others } = payload;
        return title === undefined ? others : { ...others, id: modelId, name: title };
      }
    }
    const renaming = new EventDecoder({ namespace: 'com.example', events: [CounterRenamedEvent] });
    const old = delivery({ type: 'com.example.CounterRenamedEvent' }, '{"title":"first"}');
    expect(renaming.decode(old).event).toMatchObject({ name: 'first', id: id.value });
  });

  test('refuses events of unknown types and of other namespaces, or ignores them', () => {
    for (const type of ['com.example.CounterOpenedEvent', 'com.other.CounterIncreasedEvent']) {
      const message = delivery({ type });
      expect(decoder.decodeIfKnown(message)).toBeUndefined();
      const error = errorOf(() => decoder.decode(message));
      expect(error).toMatchObject({ code: 'unknown-event-type', type });
      expect(error.message).toContain(
        'only for com.example.CounterIncreasedEvent, com.example.CounterClosedEvent',
      );
    }
    expect(decoder.decodeIfKnown(delivery())).toMatchObject({ id: increased.id });
  });

  test.each([
    ['type', undefined, 'is missing'],
    ['id', undefined, 'is missing'],
    ['id', '', 'is missing'],
    ['source', undefined, 'is missing'],
    ['subject', undefined, 'is missing'],
    ['modelname', undefined, 'is missing'],
    ['actionid', undefined, 'is missing'],
    ['actionname', undefined, 'is missing'],
    ['specversion', undefined, 'is missing among the headers (ce-id, ce-source, ce-type'],
    ['specversion', '0.3', "'0.3' is not a version 1 of CloudEvents"],
    ['time', '25-November', "'25-November' is not a time such as"],
    ['time', '2026-13-25T12:00:00Z', "'2026-13-25T12:00:00Z' is not a time such as"],
    ['modelversion', '-1', "'-1' is not a whole number from 0"],
    ['ordinal', '1.5', "'1.5' is not a whole number from 0"],
    ['ordinal', ['1', '2'], 'has 2 values'],
    ['ordinal', { a: 1 }, 'is an object instead of text'],
    ['subject', '%C3', "'%C3' is not encoded as text"],
  ])('names the attribute %s when it is %j', (name, value, reason) => {
    const error = errorOf(() => decoder.decode(delivery({ [name]: value })));
    expect(error).toMatchObject({ code: 'unreadable-message', attribute: name });
    expect(error.message).toContain(reason);
  });

  test.each([
    ['{"by":', `'{"by":' is not JSON in UTF-8`],
    [new Uint8Array([0x22, 0xff, 0x22]), 'is not JSON in UTF-8'],
    ['[]', 'is a list instead of a JSON object'],
    ['"5"', 'is a string instead of a JSON object'],
    ['null', 'is null instead of a JSON object'],
    [undefined, 'is undefined instead of a JSON object'],
  ])('says why the body %j cannot be read', (body, reason) => {
    const message = { ...delivery(), body } as BrokerDelivery;
    const error = errorOf(() => decoder.decode(message));
    expect(error).toMatchObject({ code: 'unreadable-message', attribute: 'data' });
    expect(error.message).toContain(reason);
  });

  test('names the field of a payload that does not fit the class', () => {
    const error = errorOf(() => decoder.decode(delivery({}, '{"by":"5"}')));
    expect(error).toMatchObject({ code: 'unreadable-event', eventId: increased.id, path: 'by' });
  });

  test('refuses two classes of one type, and unknown options', () => {
    class Another extends CounterIncreasedEvent {
      static readonly eventType = 'CounterIncreasedEvent';
    }
    const options = { namespace: 'com.example', events: [CounterIncreasedEvent, Another] };
    expect(errorOf(() => new EventDecoder(options)).code).toBe('invariant-violation');
    const misspelled = { namespace: 'com.example', events: [], modles: [] };
    expect(errorOf(() => new EventDecoder(misspelled)).code).toBe('invalid-configuration');
  });
});

describe('the attributes of a message', () => {
  const attributes = { ...increased.attributes, subject: 'Konto 7/ä%20"x"' };
  const named = (nameOf: (name: string) => string, valueOf: (text: string) => unknown) =>
    Object.entries(attributes).map(([name, value]) => [nameOf(name), valueOf(value)] as const);

  test.each([
    [
      'NATS',
      named(
        (name) => `ce-${name}`,
        (text) => [headerValue(text)],
      ),
    ],
    ['HTTP', Object.fromEntries(named((name) => `ce-${name}`, headerValue))],
    ['fetch', new Headers(named((name) => `ce-${name}`, headerValue) as [string, string][])],
    ['HTTP with capitals', Object.fromEntries(named((name) => `Ce-${name.toUpperCase()}`, headerValue))],
    ['Kafka as a record of buffers', Object.fromEntries(named((name) => `ce_${name}`, bytes))],
    [
      'Kafka as a map of buffers',
      new Map(named((name) => `ce_${name}`, bytes).map(([name, value]) => [bytes(name), value])),
    ],
    ['AMQP', Object.fromEntries(named((name) => `cloudEvents:${name}`, String))],
    ['AMQP with underscores', Object.fromEntries(named((name) => `cloudEvents_${name}`, String))],
    ['Redis', { ...attributes, data: '{"by":5}' }],
  ])('are read from headers of %s', (_broker, headers) => {
    expect(attributesOf(headers as never)).toEqual(attributes);
  });

  test('leave out all other headers, such as one of another binding', () => {
    const headers = {
      'ce-specversion': '1.0',
      'ce-id': '1',
      ce_id: '2',
      'content-type': 'text/html',
      host: ['a', 'b'],
    };
    expect(attributesOf(headers)).toEqual({ specversion: '1.0', id: '1' });
    const inKafka = { ce_specversion: '1.0', ce_id: '2', id: '3', 'content-type': Buffer.from([0xff]) };
    expect(attributesOf(inKafka)).toEqual({ specversion: '1.0', id: '2' });
  });

  test.each([[{}], [undefined], ['ce-id: 1'], [['specversion']], [[[null, '1.0']]], [7]])(
    'are missing in %j',
    (headers) => {
      expect(errorOf(() => attributesOf(headers as never)).code).toBe('unreadable-message');
    },
  );
});

function bytes(text: string): Uint8Array {
  return Buffer.from(text);
}

function errorOf(work: () => unknown): FrameworkError {
  try {
    work();
  } catch (error) {
    if (FrameworkError.is(error)) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

/** The event of a message with these attributes, if they are readable. */
function decoded(changed: Readonly<Record<string, unknown>>): ReceivedEvent<unknown> | undefined {
  try {
    return decoder.decode(delivery(changed));
  } catch (error) {
    if (FrameworkError.is(error) && error.code === 'unreadable-message') return undefined;
    throw error;
  }
}

describe('a decoder of events at its limits', () => {
  test.each([
    ['0', true],
    ['999999999999999', true],
    ['1000000000000000', false],
    ['007', true],
    ['1e3', false],
    ['0x1', false],
    [' 1', false],
    ['1\n', false],
    ['', false],
  ])('reads the version and the ordinal %j: %s', (text, may) => {
    expect(decoded({ modelversion: headerValue(text) }) !== undefined).toBe(may);
    expect(decoded({ ordinal: headerValue(text) }) !== undefined).toBe(may);
  });

  test.each([
    ['2026-11-25T12:00:00Z', '2026-11-25T12:00:00.000Z'],
    ['2026-11-25T12:00:00.1Z', '2026-11-25T12:00:00.100Z'],
    ['2026-11-25T12:00:00.123456Z', '2026-11-25T12:00:00.123Z'],
    ['2026-11-25t13:30:00+01:30', '2026-11-25T12:00:00.000Z'],
    ['2026-11-25T11:00:00-01:00', '2026-11-25T12:00:00.000Z'],
    ['0001-01-01T00:00:00Z', '0001-01-01T00:00:00.000Z'],
    ['2026-11-25T12:00:00', undefined],
    ['2026-11-25 12:00:00Z', undefined],
    ['2026-11-25', undefined],
    ['2026-11-25T24:00:01Z', undefined],
    ['2026-11-25T12:00:00.Z', undefined],
    ['x2026-11-25T12:00:00Z', undefined],
    ['2026-11-25T12:00:00Zx', undefined],
  ])('reads the time %s as %s', (text, time) => {
    expect(decoded({ time: headerValue(text) })?.time.toISOString()).toBe(time);
  });

  test.each([
    ['1.0', true],
    ['1.1', true],
    ['10.0', false],
    ['2.0', false],
    ['1', false],
  ])('reads the version %s of CloudEvents: %s', (specversion, may) => {
    expect(decoded({ specversion }) !== undefined).toBe(may);
  });

  test('has no trace context if the message has none', () => {
    expect(decoder.decode(delivery({ traceparent: undefined })).traceparent).toBeUndefined();
  });

  test('tells apart types that are long and differ only at the end', () => {
    const long = 'x'.repeat(254);
    class OneEvent extends CounterIncreasedEvent {
      static readonly eventType = `${long}a`;
    }
    class OtherEvent extends CounterIncreasedEvent {
      static readonly eventType = `${long}b`;
    }
    const both = new EventDecoder({ namespace: 'com.example', events: [OneEvent, OtherEvent] });
    const event = (end: string) => both.decode(delivery({ type: `com.example.${long}${end}` })).event;
    expect(event('a')).toBeInstanceOf(OneEvent);
    expect(event('b')).toBeInstanceOf(OtherEvent);
    expect(both.decodeIfKnown(delivery({ type: `com.example.${long}c` }))).toBeUndefined();
  });
});
