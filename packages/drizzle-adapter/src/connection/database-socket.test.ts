import { AsyncLocalStorage } from 'node:async_hooks';
import dns from 'node:dns';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, onTestFinished, test, vi } from 'vitest';

import { DatabaseSocket } from './client.js';

test('incoming data is handled outside any async context, even that of the caller that connected', async () => {
  const server = createServer((client) => client.end('hello')).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const request = new AsyncLocalStorage<string>();
  const contexts: unknown[] = [];
  const socket = new DatabaseSocket();
  socket.on('connect', () => contexts.push(request.getStore()));
  socket.on('data', () => contexts.push(request.getStore()));
  // The host is given by name, so that it must be looked up first.
  request.run('first', () => socket.connect((server.address() as AddressInfo).port, 'localhost'));
  await once(socket, 'close');
  expect(contexts).toEqual([undefined, undefined]);
});

test('concurrent connections share one look-up per name, so a silent name server holds up no other name', async () => {
  const server = createServer((client) => client.resume()).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const answers: (() => void)[] = [];
  const lookup = vi.spyOn(dns, 'lookup').mockImplementation(((
    _name: string,
    _options: object,
    done: (error: null, addresses: readonly dns.LookupAddress[]) => void,
  ) => {
    answers.push(() => done(null, [{ address: '127.0.0.1', family: 4 }]));
  }) as typeof dns.lookup);
  onTestFinished(() => lookup.mockRestore());
  const connect = async (): Promise<void> => {
    const socket = new DatabaseSocket().connect(port, 'db.example.test');
    await once(socket, 'connect');
    socket.destroy();
  };
  const first = [connect(), connect(), connect()];
  expect(answers).toHaveLength(1);
  answers[0]?.();
  await Promise.all(first);
  const later = connect();
  expect(answers).toHaveLength(2);
  answers[1]?.();
  await later;
});
