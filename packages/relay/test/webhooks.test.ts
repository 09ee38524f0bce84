import { FaultProxy } from '@framework/testing';
import { once } from 'node:events';
import { type IncomingMessage, type ServerResponse, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Webhook } from 'standardwebhooks';
import { describe, expect, test } from 'vitest';

import type { PublishOutcome } from '../src/index.js';
import { attributesOf } from '../src/inbox/index.js';
import { webhooks } from '../src/webhooks.js';
import {
  type BrokerFixture,
  type ReceivedMessage,
  describeBroker,
  faultsOf,
  messageFor,
} from './broker-suite.js';

const secret = `whsec_${Buffer.from('a secret of at least 24 bytes').toString('base64')}`;
const bytesMax = 100_000;

describeBroker('a webhook', new URL('http://127.0.0.1'), async () => (await open()).fixture);

/** The status with which this partner refuses a request, if it does. */
function refusalOf({ method, headers }: IncomingMessage, body: Buffer): number | undefined {
  if (method === 'HEAD') return 405;
  if (headers['ce-modelname'] === 'Nothing') return 404;
  return body.length > bytesMax ? 413 : undefined;
}

/** A partner's service, which verifies signatures and answers what a test chooses. */
async function open() {
  const found: ReceivedMessage[] = [];
  const answers: number[] = [];
  const verifier = new Webhook(secret);
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks);
    const status = refusalOf(request, body) ?? answers.shift() ?? 204;
    if (status === 204) {
      verifier.verify(body, request.headers as Record<string, string>);
      found.push({ attributes: attributesOf(request.headers), body: body.toString() });
    }
    response.writeHead(status, status === 302 ? { location: '/elsewhere' } : {}).end();
  };
  const server = createServer((request, response) => void answer(request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const proxy = await FaultProxy.to({ host: '127.0.0.1', port: (server.address() as AddressInfo).port });
  const broker = webhooks({ url: `http://127.0.0.1:${proxy.port}/events`, secret, timeoutMs: 5_000 });
  const fixture: BrokerFixture = {
    broker,
    topic: 'com.example.Counter',
    unrouted: { attributes: { modelname: 'Nothing' } },
    tooLarge: bytesMax,
    received: async () => found,
    ...faultsOf(proxy),
    close: async () => {
      await broker.close();
      await proxy.close();
      server.closeAllConnections();
      server.close();
    },
  };
  return { fixture, answers };
}

describe('a webhook', () => {
  test.each<readonly [number, string, PublishOutcome['kind']]>([
    [202, 'confirms the message', 'confirmed'],
    [400, 'refuses the message', 'refused'],
    [410, 'gets the message again', 'later'],
    [408, 'gets the message again', 'later'],
    [429, 'gets the message again', 'later'],
    [302, 'gets the message again', 'later'],
    [500, 'gets the message again', 'later'],
    [503, 'gets the message again', 'later'],
  ])('that answers with status %i %s', async (status, _what, kind) => {
    const { fixture, answers } = await open();
    answers.push(status);
    const published = fixture.broker.publish([messageFor('t', 'a', 1)], new AbortController().signal);
    expect((await published)[0]?.kind).toBe(kind);
    await fixture.close();
  });

  test('says how a refusal begins, however long it is', async () => {
    let isEnded = false;
    const endless = createServer((request, response) => {
      request.resume();
      response.writeHead(400);
      const write = (): void => {
        while (!response.destroyed && response.write('no'.repeat(10_000)));
      };
      response.on('drain', write).on('close', () => (isEnded = true));
      write();
    });
    endless.listen(0, '127.0.0.1');
    await once(endless, 'listening');
    const { port } = endless.address() as AddressInfo;
    const broker = webhooks({ url: `http://127.0.0.1:${port}`, secret, timeoutMs: 60_000 });
    const outcomes = await broker.publish([messageFor('t', 'a', 1)], new AbortController().signal);
    expect(outcomes).toEqual([{ kind: 'refused', reason: `400 Bad Request: ${'no'.repeat(250)}` }]);
    await expect.poll(() => isEnded).toBe(true);
    await broker.close();
    endless.close();
  });

  test.each([2, 7_000])(
    'that sends an answer in two parts of %i bytes, one later, keeps its connections',
    async (partBytes) => {
      let connectionCount = 0;
      const server = createServer((request, response) => {
        request.resume().on('end', () => {
          response.write('x'.repeat(partBytes));
          // As a service that computes the rest: the client has the first part by then.
          setTimeout(() => response.end('x'.repeat(partBytes)), 2);
        });
      });
      server.on('connection', () => connectionCount++).listen(0, '127.0.0.1');
      await once(server, 'listening');
      const { port } = server.address() as AddressInfo;
      const broker = webhooks({ url: `http://127.0.0.1:${port}`, secret, concurrency: 4 });
      const messages = Array.from({ length: 80 }, (_unused, index) => messageFor('t', `m${index}`, 1));
      const outcomes = await broker.publish(messages, new AbortController().signal);
      expect(outcomes.every(({ kind }) => kind === 'confirmed')).toBe(true);
      expect(connectionCount).toBeLessThanOrEqual(20);
      await broker.close();
      server.close();
    },
  );

  test('needs a secret and an HTTP URL', () => {
    expect(() => webhooks({ url: 'ftp://example.com', secret })).toThrow('must begin with https: or http:');
    for (const wrong of ['', 'password', 'whsec_', 'whsec_aGk=', `${secret} `, `whsec_${'!'.repeat(40)}`])
      expect(() => webhooks({ url: 'https://example.com', secret: wrong })).toThrow('at least 24 bytes');
    expect(() => webhooks({ url: 'https://example.com', secret: [] })).toThrow('at least one secret');
  });

  test('is not opened with a password in its URL, and the password is not shown', () => {
    expect(() => webhooks({ url: 'https://partner:mellon@example.com', secret })).toThrow(
      /^The URL of a webhook must not contain a user name or password: [^@]*$/,
    );
  });

  test('is not opened with a header that cannot be sent, and its value is not shown', () => {
    const options = { url: 'https://example.com', secret };
    const headers = { authorization: 'Bearer mellon\n' };
    expect(() => webhooks({ ...options, headers })).toThrow(/^Invalid character .*authorization/);
    expect(() => webhooks({ ...options, headers })).not.toThrow(/mellon/);
    expect(() => webhooks({ ...options, headers: { 'a b': 'c' } })).toThrow('a b');
  });

  test.each([0, -1, Number.NaN, 1.5])('is not opened with a concurrency of %d', (concurrency) => {
    expect(() => webhooks({ url: 'https://example.com', secret, concurrency })).toThrow('at least 1');
  });
});
