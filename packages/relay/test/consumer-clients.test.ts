import { ShardIdentifier, ShardedId } from '@framework/core';
import { headers as natsHeaders } from '@nats-io/transport-node';
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';

import { headerValue } from '../src/message.js';
import { type BrokerDelivery, EventDecoder, UnreadableMessageError } from '../src/inbox/index.js';
import { Counter, CounterIncreasedEvent } from './counter.js';
import { published } from './published.js';

const guide = readFileSync(
  new URL('../../../docs/guides/consume-in-another-service.md', import.meta.url),
  'utf8',
);
const decoder = new EventDecoder({ namespace: 'com.example', events: [CounterIncreasedEvent] });
const id = ShardedId.generate(Counter, ShardIdentifier.of(1, 2));
const { attributes, body } = published(new CounterIncreasedEvent(id, 5), { actionName: 'Erhöhen um 5%' });
const buffer = Buffer.from(body);
const envelope = JSON.stringify({ ...attributes, data: { by: 5 } });
const structured = 'application/cloudevents+json; charset=utf-8';

/** The attributes as headers with this prefix, and other headers that a broker or a client has beside them. */
function entries<T>(
  prefix: string,
  encode: (text: string) => T,
  others: Readonly<Record<string, string>> = {},
): readonly (readonly [name: string, value: T])[] {
  const named = Object.entries(attributes).map(([name, text]) => [prefix + name, text] as const);
  return [...named, ...Object.entries(others)].map(([name, text]) => [name, encode(text)] as const);
}

const record = Object.fromEntries;
const text = (value: string): string => value;
const inHttp = entries('Ce-', headerValue, { 'Content-Type': 'application/json', Host: 'consumer' });
const inKafka = entries('ce_', (value) => Buffer.from(value), { 'content-type': 'application/json' });
const inAmqp = entries('cloudEvents:', text);
const inRedis = entries('', text);

/** As its Java runtime writes a `byte[]`, which has signs. */
const signedBytes = (value: string): readonly number[] => [...Int8Array.from(Buffer.from(value))];

function headersOfNats(): BrokerDelivery['headers'] {
  const headers = natsHeaders();
  for (const [name, value] of entries('ce-', headerValue)) headers.set(name, value);
  return headers;
}

/** What each client delivers, by its row in the guide. */
const clients: Readonly<Record<string, BrokerDelivery>> = {
  'NATS, `@nats-io/jetstream`': { headers: headersOfNats(), body: buffer },
  'RabbitMQ, `amqplib`': { headers: record(inAmqp), body: buffer },
  'AMQP 1.0, `rhea`': { headers: record(inAmqp), body: buffer },
  'Azure Service Bus, `@azure/service-bus`': {
    headers: record(entries('cloudEvents_', text, { 'Diagnostic-Id': '1' })),
    body: { by: 5 },
  },
  'Kafka, `kafkajs`': { headers: record(inKafka), body: buffer },
  'Kafka, `@platformatic/kafka`': {
    headers: new Map(inKafka.map(([name, value]) => [Buffer.from(name), value])),
    body: buffer,
  },
  'Kafka, `@confluentinc/kafka-javascript` or `node-rdkafka`': {
    headers: inKafka.map(([name, value]) => ({ [name]: value })),
    body: buffer,
  },
  'Kafka in AWS Lambda': {
    headers: entries('ce_', signedBytes, { 'content-type': 'application/json' }).map(([name, value]) => ({
      [name]: value,
    })),
    body: buffer.toString('base64'),
  },
  'SNS in AWS Lambda': {
    headers: record(entries('ce_', (Value) => ({ Type: 'String', Value }))),
    body: buffer.toString(),
  },
  'SQS in AWS Lambda': {
    headers: {
      'content-type': {
        stringValue: structured,
        stringListValues: [],
        binaryListValues: [],
        dataType: 'String',
      },
    },
    body: envelope,
  },
  'SQS, `@aws-sdk/client-sqs`': {
    headers: { 'content-type': { StringValue: structured, DataType: 'String' } },
    body: envelope,
  },
  'Redis, `redis`': { headers: { ...record(inRedis), data: '{"by":5}' }, body: '{"by":5}' },
  'Redis, `ioredis`': { headers: [...inRedis.flat(), 'data', '{"by":5}'], body: '{"by":5}' },
  'HTTP, Node': { headers: record(inHttp.map(([name, value]) => [name.toLowerCase(), value])), body: buffer },
  'HTTP, Node, as received': { headers: inHttp.flat(), body: buffer },
  'HTTP, `fetch`': {
    headers: new Headers(inHttp.map(([name, value]) => [name, value])),
    body: new Uint8Array(body).buffer,
  },
  'HTTP in AWS Lambda': {
    headers: record(inHttp.map(([name, value]) => [name.toLowerCase(), value])),
    body: buffer.toString('base64'),
  },
};

describe('a decoder of events', () => {
  test.each(Object.entries(clients))('reads what the guide says to pass from %s', (_client, delivery) => {
    expect(decoder.decode(delivery)).toMatchObject({
      event: { by: 5, modelId: id.value },
      id: attributes['id'],
      actionName: 'Erhöhen um 5%',
      modelVersion: 2,
      time: new Date('2026-11-25T12:00:00.123Z'),
    });
  });

  test('has a test for each row of the guide', () => {
    const [, table = ''] = /^\| client +\|.*\n\|.*\n((?:\|.*\n)+)/m.exec(guide) ?? [];
    const rows = [...table.matchAll(/^\| (.+?) +\| /gm)].map(([, client]) => client);
    expect(rows).toEqual(Object.keys(clients));
  });

  test.each<readonly [string, BrokerDelivery]>([
    ['HTTP', { headers: { 'Content-Type': structured }, body: envelope }],
    ['HTTP, parsed', { headers: { 'content-type': structured }, body: JSON.parse(envelope) as object }],
    [
      'HTTP with attributes in its headers, too',
      { headers: record([...inHttp, ['Content-Type', structured]]), body: envelope },
    ],
    ['KafkaJS', { headers: { 'content-type': Buffer.from(structured) }, body: Buffer.from(envelope) }],
    ['KafkaJS with a list', { headers: { 'content-type': [Buffer.from(structured)] }, body: envelope }],
    ['Kafka', { headers: [{ 'content-type': Buffer.from(structured) }], body: Buffer.from(envelope) }],
    [
      'Kafka in AWS Lambda',
      {
        headers: [{ 'content-type': signedBytes(structured) }],
        body: Buffer.from(envelope).toString('base64'),
      },
    ],
    ['AMQP', { headers: { 'content-type': 'Application/CloudEvents+JSON' }, body: Buffer.from(envelope) }],
    ['a sender of numbers and null', deliveryOf({ modelversion: 2, ordinal: 0, dataschema: null })],
    ['a sender of Base64', deliveryOf({ data: undefined, data_base64: buffer.toString('base64') })],
  ])('reads the structured mode of %s', (_client, delivery) => {
    expect(decoder.decode(delivery)).toMatchObject({
      event: { by: 5, modelId: id.value },
      id: attributes['id'],
      actionName: 'Erhöhen um 5%',
      modelVersion: 2,
      ordinal: 0,
    });
  });

  test.each<readonly [string, BrokerDelivery, string, string]>([
    [
      'a batch',
      { headers: { 'content-type': 'application/cloudevents-batch+json' }, body: `[${envelope}]` },
      'data',
      'has the content-type application/cloudevents-batch+json, of which only application/cloudevents+json',
    ],
    [
      'a format that is not JSON',
      { headers: { 'content-type': 'application/cloudevents+protobuf' }, body: buffer },
      'data',
      'has the content-type application/cloudevents+protobuf',
    ],
    [
      'two content types',
      { headers: { 'content-type': [structured, 'application/json'] }, body: envelope },
      'data',
      'utf-8, application/json',
    ],
    ['data as text', deliveryOf({ data: '{"by":5}' }), 'data', 'is a string instead of a JSON object'],
    ['no data', deliveryOf({ data: undefined }), 'data', 'is undefined instead of a JSON object'],
    ['data twice', deliveryOf({ data_base64: buffer.toString('base64') }), 'data', 'is beside data'],
    ['an attribute that is a list', deliveryOf({ id: ['1'] }), 'id', 'is a list instead of text'],
    ['no version', deliveryOf({ specversion: undefined }), 'specversion', 'is missing'],
    [
      'an envelope that is a list',
      { headers: { 'content-type': structured }, body: `[${envelope}]` },
      'data',
      'is a list instead of a JSON object',
    ],
    [
      'a list of whole records',
      { headers: [record(inKafka)], body: buffer },
      'specversion',
      'neither a record, nor pairs',
    ],
    [
      'names and values of which one is missing',
      { headers: inHttp.flat().slice(1), body: buffer },
      'specversion',
      'nor names and values in turn',
    ],
    [
      'a header twice, with names in another case',
      { headers: [...inHttp, ['ce-id', '1']] as never, body: buffer },
      'id',
      'has 2 values',
    ],
    [
      'a header twice, in records with one key each',
      { headers: [...inKafka, ['ce_id', '1'] as const].map((pair) => record([pair])), body: buffer },
      'id',
      'has 2 values',
    ],
    [
      'the headers of two bindings',
      { headers: record([...inKafka, ...entries('ce-', headerValue)]), body: buffer },
      'specversion',
      'is there more than once (ce-specversion, ce_specversion)',
    ],
    [
      'the bytes of AWS Lambda outside of their list',
      { headers: record(entries('ce_', signedBytes)), body: buffer.toString('base64') },
      'specversion',
      'is a list of numbers instead of text',
    ],
    [
      'numbers in AWS Lambda that are not bytes',
      {
        headers: entries('ce_', (value) => [...Buffer.from(value), 300]).map((p) => record([p])),
        body: buffer,
      },
      'specversion',
      'is a list of numbers instead of text',
    ],
    [
      'a binary message attribute',
      {
        headers: record(
          entries('ce_', (value) => ({ binaryValue: btoa(value.slice(0, 3)), dataType: 'Binary' })),
        ),
        body: buffer,
      },
      'specversion',
      'is an object instead of text',
    ],
    [
      'a list in a message attribute',
      {
        headers: record(
          entries('ce_', (Value) => ({ Type: 'String.Array', Value: JSON.stringify([Value]) })),
        ),
        body: buffer,
      },
      'specversion',
      'is an object instead of text',
    ],
    [
      'Base64 of something else than an object',
      { headers: record(inKafka), body: Buffer.from('[5]').toString('base64') },
      'data',
      "'WzVd' is not JSON",
    ],
    [
      'Base64 of half an object',
      { headers: record(inKafka), body: Buffer.from('{"by"').toString('base64') },
      'data',
      `'{"by"' is not JSON`,
    ],
  ])('refuses %s', (_what, delivery, attribute, reason) => {
    const error = errorOf(() => decoder.decode(delivery));
    expect(error).toMatchObject({ code: 'unreadable-message', attribute });
    expect(error.reason).toContain(reason);
  });

  test('ignores an event of an unknown type in structured mode, whatever its data', () => {
    const unknown = deliveryOf({ type: 'com.example.Other', data: '<xml/>' });
    expect(decoder.decodeIfKnown(unknown)).toBeUndefined();
  });
});

/** A message in structured mode, with something changed in its envelope. */
function deliveryOf(changed: object): BrokerDelivery {
  const changedEnvelope = { ...attributes, data: { by: 5 }, ...changed };
  return { headers: { 'content-type': structured }, body: JSON.stringify(changedEnvelope) };
}

function errorOf(work: () => unknown): UnreadableMessageError {
  try {
    work();
  } catch (error) {
    if (error instanceof UnreadableMessageError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

const webhook = (webhookId: string) => record([...inHttp, ['webhook-id', webhookId]]);

/** How long it takes to refuse a message with so many headers of one name. */
function refusalMs(count: number): number {
  const headers = Array.from({ length: count }, () => ['ce_x', 'y'] as const);
  const begunMs = performance.now();
  expect(() => decoder.decode({ headers, body: buffer })).toThrow(UnreadableMessageError);
  return performance.now() - begunMs;
}

describe('a changed message', () => {
  test('is refused if its id is not the one that is signed', () => {
    expect(decoder.decode({ headers: webhook(attributes['id'] ?? ''), body: buffer }).id).toBe(
      attributes['id'],
    );
    for (const message of [
      { headers: webhook('other'), body: buffer },
      { headers: { 'content-type': structured, 'webhook-id': 'other' }, body: envelope },
    ])
      expect(() => decoder.decode(message)).toThrow('webhook-id');
  });

  test('is refused if its headers have another id than its body', () => {
    const headers = { ...record(inHttp), 'Ce-id': 'other', 'Content-Type': structured };
    expect(() => decoder.decode({ headers, body: envelope })).toThrow('than in the body');
  });

  test('is refused if a header was there twice', () => {
    const headers = { ...record(inHttp), 'Ce-id': '1, 2' };
    expect(() => decoder.decode({ headers, body: buffer })).toThrow(UnreadableMessageError);
  });

  test('is refused in a time that grows no faster than its headers', () => {
    refusalMs(5_000);
    // Forty times as much took sixteen hundred times as long.
    expect(refusalMs(200_000)).toBeLessThan(400 * Math.max(1, refusalMs(5_000)));
  });
});
