import { ShardIdentifier, ShardedId } from '@framework/core';
import { describe, expect, test } from 'vitest';

import { Counter, CounterIncreasedEvent } from '../test/counter.js';
import { envelopeOf, published } from '../test/published.js';
import { defaultTopic, headerValue, messageOf } from './message.js';

const event = new CounterIncreasedEvent(ShardedId.generate(Counter, ShardIdentifier.of(1, 2)), 5);
const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
const long = 'x'.repeat(300);

describe('a message', () => {
  test('passes on the trace context of the action', () => {
    expect(published(event, { headers: { traceparent } }).attributes).toMatchObject({ traceparent });
  });

  test.each([
    ['is empty', ''],
    ['is no trace context', 'forged'],
    ['is longer than brokers allow', 'x'.repeat(70_000)],
    ['has a character too many', `${traceparent}0`],
    ['has a character too few', traceparent.slice(0, -1)],
    ['begins with something else', ` ${traceparent}`],
    ['has a further line', `${traceparent}\n`],
    ['has capital letters', traceparent.toUpperCase()],
    ['has a wrong separator', traceparent.replaceAll('-', '_')],
  ])('leaves out a header traceparent that %s', (_how, given) => {
    expect(published(event, { headers: { traceparent: given } }).attributes).not.toHaveProperty(
      'traceparent',
    );
  });

  test('has every attribute of its event, also if its numbers are 0', () => {
    const envelope = envelopeOf(event, {
      eventId: 'an-event',
      actionId: 'an-action',
      modelVersion: 0,
      ordinal: 0,
      shard: ShardIdentifier.of(0, 0),
      headers: {},
    });
    expect(messageOf(envelope, 'a.topic')).toEqual({
      id: 'an-event',
      key: `Counter\0${event.modelId}`,
      topic: 'a.topic',
      eventType: 'CounterIncreasedEvent',
      attributes: {
        specversion: '1.0',
        id: 'an-event',
        source: '/com.example/shards/0/0',
        type: 'com.example.CounterIncreasedEvent',
        subject: event.modelId,
        time: '2026-11-25T12:00:00.123Z',
        datacontenttype: 'application/json',
        modelname: 'Counter',
        modelversion: '0',
        ordinal: '0',
        actionid: 'an-action',
        actionname: 'IncreaseCounterAction',
        partitionkey: event.modelId,
      },
      body: new TextEncoder().encode('{"by":5}'),
    });
  });

  test('has the whole of long names and ids, so that those which differ only at the end stay apart', () => {
    const [one, other] = ['a', 'b'].map((end) =>
      published(event, {
        eventId: `${long}${end}`,
        eventType: `${long}${end}`,
        modelId: `${long}${end}`,
        modelName: `${long}${end}`,
        actionId: `${long}${end}`,
        actionName: `${long}${end}`,
        namespace: `${long}${end}`,
      }),
    );
    for (const field of ['id', 'key', 'topic', 'eventType'] as const)
      expect(one?.[field]).not.toBe(other?.[field]);
    for (const name of [
      'id',
      'source',
      'type',
      'subject',
      'modelname',
      'actionid',
      'actionname',
      'partitionkey',
    ])
      expect(one?.attributes[name]).not.toBe(other?.attributes[name]);
  });

  test('has a key that models of other names do not share', () => {
    const keys = [
      ['Counter', 'a'],
      ['Counte', 'ra'],
      ['Countera', ''],
    ].map(([modelName = '', modelId = '']) => published(event, { modelName, modelId }).key);
    expect(new Set(keys).size).toBe(3);
  });

  test('has its payload as JSON in UTF-8', () => {
    const { body } = published(event, { payload: { text: 'Größe 😀', none: null } });
    expect(Buffer.from(body).toString()).toBe('{"text":"Größe 😀","none":null}');
    expect(body.byteLength).toBe(Buffer.byteLength('{"text":"Größe 😀","none":null}'));
  });

  test('goes to the topic of its namespace and model', () => {
    expect(defaultTopic({ namespace: 'com.example', modelName: 'Counter' })).toBe('com.example.Counter');
  });
});

describe('the value of a header', () => {
  const asIs = Array.from({ length: 0x7f - 0x21 }, (_unused, index) =>
    String.fromCharCode(0x21 + index),
  ).filter((character) => !'"%'.includes(character));

  test('has printable ASCII as it is, except quotes and percent signs', () => {
    expect(headerValue(asIs.join(''))).toBe(asIs.join(''));
  });

  test('has everything else percent-encoded, with two capital digits for each byte', () => {
    expect(headerValue('a b"%\t\n\u007F')).toBe('a%20b%22%25%09%0A%7F');
    expect(headerValue('\0\u0001ü€😀')).toBe('%00%01%C3%BC%E2%82%AC%F0%9F%98%80');
  });

  test('is decoded to the same text for each character', () => {
    const characters = Array.from({ length: 0x500 }, (_unused, code) => String.fromCodePoint(code));
    for (const text of [...characters, characters.join(''), '😀👩‍👩‍👧', `${'ü'.repeat(5_000)}!`]) {
      expect(decodeURIComponent(headerValue(text))).toBe(text);
      expect(headerValue(text)).toMatch(/^[!-~]*$/);
    }
  });

  test('keeps long texts apart that differ only in their last character', () => {
    const longer = 'ü x'.repeat(20_000);
    expect(headerValue(`${longer}a`)).not.toBe(headerValue(`${longer}b`));
    expect(headerValue(`${longer}ä`)).not.toBe(headerValue(`${longer}ö`));
  });
});
