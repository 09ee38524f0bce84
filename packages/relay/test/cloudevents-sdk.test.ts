import { ShardIdentifier, ShardedId } from '@framework/core';
import { type CloudEventV1, HTTP, Kafka, type KafkaMessage } from 'cloudevents';
import { once } from 'node:events';
import { type IncomingHttpHeaders, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';

import type { BrokerMessage } from '../src/index.js';
import { headerValue } from '../src/message.js';
import { webhooks } from '../src/webhooks.js';
import { Counter, CounterIncreasedEvent } from './counter.js';
import { published } from './published.js';

// The consumers here know CloudEvents, and nothing of this project.
const id = ShardedId.generate(Counter, ShardIdentifier.of(1, 2));
const message = published(new CounterIncreasedEvent(id, 5));

/** What every consumer has to find, whatever it uses. */
const expected = {
  specversion: '1.0',
  id: message.id,
  type: 'com.example.CounterIncreasedEvent',
  source: '/com.example/shards/1/2',
  subject: id.value,
  time: '2026-11-25T12:00:00.123Z',
  datacontenttype: 'application/json',
  modelname: 'Counter',
  modelversion: '2',
  partitionkey: id.value,
  data: { by: 5 },
};

test('the SDK of CloudEvents reads the request of a webhook', async () => {
  const requests: { readonly headers: IncomingHttpHeaders; readonly body: string }[] = [];
  const server = createServer((request, response) => {
    const keep = async (): Promise<void> => {
      requests.push({ headers: request.headers, body: await text(request) });
      response.end();
    };
    void keep();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const broker = webhooks({ url, secret: `whsec_${Buffer.alloc(24).toString('base64')}` });
  await broker.publish([message], new AbortController().signal);
  await broker.close();
  server.close();
  expect(requests.map(readByHttp)).toMatchObject([expected]);
});

test('the SDK of CloudEvents reads headers of NATS', () => {
  const headers = named(message, (name) => `ce-${name}`, headerValue);
  const read = readByHttp({
    headers: { ...headers, 'content-type': 'application/json' },
    body: textOf(message),
  });
  expect(read).toMatchObject(expected);
});

test('the SDK of CloudEvents reads headers of Kafka', () => {
  const value = textOf(message);
  const headers = { ...named(message, (name) => `ce_${name}`, String), 'content-type': 'application/json' };
  const received: KafkaMessage<string> = { headers, key: id.value, value, body: value };
  const read = Kafka.toEvent(received) as CloudEventV1<unknown>;
  expect({ ...read, data: dataOf(read) }).toMatchObject(expected);
});

function readByHttp(request: { readonly headers: IncomingHttpHeaders; readonly body: string }) {
  return HTTP.toEvent(request) as CloudEventV1<unknown>;
}

function named(
  { attributes }: BrokerMessage,
  nameOf: (name: string) => string,
  valueOf: (text: string) => string,
): Record<string, string> {
  return Object.fromEntries(
    Object.entries(attributes).map(([name, value]) => [nameOf(name), valueOf(value)] as const),
  );
}

function textOf({ body }: BrokerMessage): string {
  return new TextDecoder().decode(body);
}

/** The SDK leaves the value of a Kafka message as it is. */
function dataOf({ data }: CloudEventV1<unknown>): unknown {
  return typeof data === 'string' ? JSON.parse(data) : data;
}
