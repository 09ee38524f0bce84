import dns from 'node:dns';
import { once } from 'node:events';
import { type AddressInfo, type Server, type Socket, createServer } from 'node:net';
import { expect, onTestFinished, test, vi } from 'vitest';

import { leftBehind } from '../../../core/test/left-behind.js';
import { ClosingClient, DatabaseSocket } from './client.js';
import { OpeningClient } from './opening-client.js';

const patienceMs = 2_000;

/** A server that accepts a login and any number of statements, and hangs up at the client's goodbye. */
async function listen(onData: (socket: Socket, data: Buffer) => void): Promise<Server> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined).on('data', (data) => onData(socket, data));
  }).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  return server;
}

const portOf = (server: Server): number => (server.address() as AddressInfo).port;

/** AuthenticationOk and ReadyForQuery. */
const welcome = Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 0, 0x5a, 0, 0, 0, 5, 0x49]);
/** The first byte of a goodbye. */
const terminate = 0x58;

test('look-ups of names leave nothing behind, whether they succeed or fail', async () => {
  const server = await listen(() => undefined);
  const lookup = vi.spyOn(dns, 'lookup').mockImplementation(((
    name: string,
    _options: object,
    done: (error: Error | null, addresses: readonly dns.LookupAddress[]) => void,
  ) => {
    const error = name.startsWith('bad') ? new Error('unknown') : null;
    setImmediate(() => done(error, [{ address: '127.0.0.1', family: 4 }]));
  }) as typeof dns.lookup);
  onTestFinished(() => lookup.mockRestore());
  const left = await leftBehind(
    async (number) => {
      const found = [1, 2].map(() => new DatabaseSocket().connect(portOf(server), `good-${number}.test`));
      await Promise.all(found.map((socket) => once(socket, 'connect')));
      for (const socket of found) socket.destroy();
      const missing = new DatabaseSocket().connect(portOf(server), `bad-${number}.test`);
      await expect(once(missing, 'connect')).rejects.toThrow('unknown');
    },
    { patienceMs },
  );
  expect(left).toEqual([]);
  expect(lookup).toHaveBeenCalledTimes(8);
});

test.each([
  ['hangs up', true],
  ['only closes its half', false],
])('clients that say goodbye leave no timer behind when the server %s', async (_how, isProper) => {
  const server = await listen((socket, data) => {
    if (data[0] === terminate) {
      if (isProper) socket.destroy();
      else socket.end();
    } else socket.write(welcome);
  });
  const left = await leftBehind(
    async () => {
      const client = new ClosingClient({ host: '127.0.0.1', port: portOf(server), user: 'a', database: 'a' });
      client.on('error', () => undefined);
      await client.connect();
      await client.end();
    },
    // Shorter than the time that a silent server gets.
    { patienceMs: 500 },
  );
  expect(left).toEqual([]);
});

test('a client whose server stays silent at its goodbye is destroyed after a second', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
  const server = await listen((socket, data) => void (data[0] === terminate || socket.write(welcome)));
  server.on('connection', (socket) => (socket.allowHalfOpen = true));
  const client = new ClosingClient({ host: '127.0.0.1', port: portOf(server), user: 'a', database: 'a' });
  client.on('error', () => undefined);
  await client.connect();
  const ended = client.end();
  vi.advanceTimersByTime(1_000);
  expect(await ended).toBeUndefined();
});

test('new connections leave no deadline behind, whether they are refused, prepared or fail to be', async () => {
  const server = await listen((socket, data) => {
    if (data[0] === terminate) socket.destroy();
    else if (data.includes('refused')) socket.destroy();
    else socket.write(welcome);
  });
  const connect = async (user: string): Promise<OpeningClient> => {
    const client = new OpeningClient({
      connectionTimeoutMillis: 60_000,
      query_timeout: 60_000,
      address: () => ({ host: '127.0.0.1', port: portOf(server), user, database: 'a' }),
    });
    client.on('error', () => undefined);
    await new Promise<void>((resolve, reject) => {
      client.connect((error) => (error === null ? resolve() : reject(error)));
    });
    return client;
  };
  const left = await leftBehind(
    async () => {
      const client = await connect('welcome');
      await client.prepare(async () => undefined);
      await client.end();
      const failing = await connect('welcome');
      await expect(failing.prepare(() => Promise.reject(new Error('unfit')))).rejects.toThrow('unfit');
      await failing.end();
      await expect(connect('refused')).rejects.toBeInstanceOf(Error);
    },
    { patienceMs: 500 },
  );
  expect(left).toEqual([]);
});
