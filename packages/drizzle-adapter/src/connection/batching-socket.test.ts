import { AsyncLocalStorage } from 'node:async_hooks';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { BatchingSocket } from './batching-socket.js';

it('runs what comes in in the async context of nobody, whoever connected', async () => {
  const server = createServer((client) => client.end('hello')).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const request = new AsyncLocalStorage<string>();
  const contexts: unknown[] = [];
  const socket = new BatchingSocket();
  socket.on('connect', () => contexts.push(request.getStore()));
  socket.on('data', () => contexts.push(request.getStore()));
  // By name, so that it is looked up first.
  request.run('first', () => socket.connect((server.address() as AddressInfo).port, 'localhost'));
  await once(socket, 'close');
  expect(contexts).toEqual([undefined, undefined]);
});
