import { openDatabases, parseFrameworkConfig } from '@framework/core';
import type { DeadLetters, DeliveryStore, OperatorStore } from '@framework/core/adapter';
import { postgres } from '@framework/drizzle-adapter';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import net from 'node:net';
import { pino } from 'pino';
import { expect, onTestFinished, test, vi } from 'vitest';

import { type OperatorListener, listenForOperators } from './operator-listener.js';

const token = 'a-token-that-is-only-used-in-tests-0123456789';

/** A listener whose database finds blocked events as a test says, and was never opened. */
async function listen(
  find: DeadLetters['find'],
  stored: Partial<OperatorStore> = {},
): Promise<OperatorListener> {
  const configs = { 'primary-config': { 'jdbc-url': 'postgres://nobody@127.0.0.1:1/nothing' } };
  const members = [{ member: 0, name: 'member-0', configs }];
  const sharding = {
    'default-shard': { group: 0, member: 0 },
    groups: [{ group: 0, name: 'group-0', members }],
  };
  const operator = { port: 0, token, 'read-only': false };
  const config = parseFrameworkConfig({ framework: { namespace: 'test', sharding, operator } });
  const databases = openDatabases(config.sharding, postgres());
  onTestFinished(() => databases.close());
  const store = { deadLetters: { find }, operator: stored } as unknown as DeliveryStore;
  vi.spyOn(databases, 'deliveries').mockReturnValue([
    { shards: databases.shards, store, ready: async () => undefined },
  ]);
  const logger = pino({ level: 'silent' });
  const listener = await listenForOperators(config, { databases, relays: [] }, { logger });
  if (listener === undefined) throw new Error('The configuration has a port');
  return listener;
}

const nothing: DeadLetters['find'] = async () => ({ items: [], next: undefined });

async function connect({ url }: OperatorListener, text: string): Promise<net.Socket> {
  const { hostname, port } = new URL(url);
  const socket = net.connect(Number(port), hostname);
  onTestFinished(() => {
    socket.destroy();
  });
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  if (text !== '') socket.write(text);
  return socket;
}

/** Resolves when what other clients have sent was read: a later request is answered. */
async function untilRead({ url }: OperatorListener): Promise<void> {
  const { status } = await fetch(`${url}/about`, { headers: { authorization: `Bearer ${token}` } });
  expect(status).toBe(200);
}

const head = `POST /pause HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\n`;

test.each([
  ['nothing', ''],
  ['a part of the headers', 'GET /about HTTP/1.1\r\nHost:'],
  ['a part of the body', `${head}Content-Length: 100\r\n\r\n{`],
])('the listener for operators closes, although a client has sent %s', async (_what, text) => {
  const listener = await listen(nothing);
  const socket = await connect(listener, text);
  const ended = once(socket, 'close');
  await untilRead(listener);
  await listener.close();
  await ended;
  expect(socket.destroyed).toBe(true);
});

test('a request that runs is answered before the listener for operators has closed', async () => {
  const asked = Promise.withResolvers<void>();
  const answered = Promise.withResolvers<Awaited<ReturnType<DeadLetters['find']>>>();
  const listener = await listen(() => {
    asked.resolve();
    return answered.promise;
  });
  const answer = fetch(`${listener.url}/blocked`, { headers: { authorization: `Bearer ${token}` } });
  await asked.promise;
  await connect(listener, '');
  await untilRead(listener);
  const closed = listener.close();
  setImmediate(answered.resolve, { items: [], next: undefined });
  expect(await (await answer).json()).toEqual({ items: [], failures: [] });
  await closed;
});

test('a client that follows the live snapshots does not keep the listener for operators open', async () => {
  const listener = await listen(nothing);
  const live = await fetch(`${listener.url}/live`, { headers: { authorization: `Bearer ${token}` } });
  expect(live.status).toBe(200);
  const reader = live.body?.getReader();
  await reader?.read();
  await listener.close();
  const rest = await reader?.read().catch(() => ({ done: true }));
  expect(rest?.done).toBe(true);
});

test('clients that leave while a database hangs keep no place in the stream', async () => {
  const asked = Promise.withResolvers<void>();
  const answered = Promise.withResolvers<Awaited<ReturnType<OperatorStore['groupDeadLetters']>>>();
  const groupDeadLetters = vi.fn<OperatorStore['groupDeadLetters']>(async () => {
    asked.resolve();
    return answered.promise;
  });
  const listener = await listen(nothing, { groupDeadLetters });
  const request = `GET /live HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n\r\n`;
  const sockets = await Promise.all(Array.from({ length: 16 }, () => connect(listener, request)));
  await asked.promise;
  await untilRead(listener);
  for (const socket of sockets) socket.destroy();
  // One that is refused is answered at once; one that has a place waits for the database.
  await vi.waitFor(async () => {
    const signal = AbortSignal.timeout(200);
    const refused = fetch(`${listener.url}/live`, { headers: { authorization: `Bearer ${token}` }, signal });
    await expect(refused).rejects.toThrow(/timeout/);
  });
  answered.resolve({ items: [], next: undefined });
  await listener.close();
});

test('a client that does not read the live snapshots does not keep the listener for operators open', async () => {
  // More than the buffers of both ends of a connection take.
  const group = {
    handler: 'notify',
    errorLine: 'x'.repeat(32_000_000),
    count: 1,
    isLowerBound: false,
    exampleEventId: randomUUID(),
    oldestDate: new Date(),
  };
  const groupDeadLetters = vi.fn<OperatorStore['groupDeadLetters']>(async () => ({
    items: [group],
    next: undefined,
  }));
  const listener = await listen(nothing, { groupDeadLetters });
  const request = `GET /live HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n\r\n`;
  const socket = await connect(listener, request);
  socket.pause();
  await vi.waitFor(() => expect(groupDeadLetters).toHaveBeenCalled());
  await untilRead(listener);
  await listener.close();
});
