import { AsyncLocalStorage } from 'node:async_hooks';
import { once } from 'node:events';
import { type AddressInfo, type Socket, createServer } from 'node:net';
import { expect, onTestFinished, test, vi } from 'vitest';

import { leftBehind } from '../../../core/test/left-behind.js';
import { NotificationListener } from './pg-notifications.js';

test('a notification listener closes while the server accepts its connection and stays silent', async () => {
  // Time stands still, so the deadline for the server's answer never passes.
  vi.useFakeTimers({ toFake: ['setTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
  const server = createServer();
  onTestFinished(() => void server.close());
  const connected = once(server, 'connection');
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const settings = {
    client: () => ({ host: '127.0.0.1', port, user: 'anybody', database: 'anything' }),
    lifetimeMaxMs: 0,
  };
  const listener = new NotificationListener(settings, () => undefined);
  await connected;
  expect(await listener.close()).toBeUndefined();
}, 30_000);

test('a notification listener runs outside any async context, even that of its caller', async () => {
  const server = createServer((client) => client.destroy()).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const settings = {
    client: () => ({ host: '127.0.0.1', port, user: 'anybody', database: 'anything' }),
    lifetimeMaxMs: 0,
  };
  const request = new AsyncLocalStorage<string>();
  const heard = Promise.withResolvers<unknown>();
  const listener = request.run(
    'first',
    () => new NotificationListener(settings, () => heard.resolve(request.getStore())),
  );
  expect(await heard.promise).toBeUndefined();
  await listener.close();
});

test.each([
  ['replaced when it reaches its maximum age', 40, 1],
  ['kept when it has no maximum age', 0, 0],
])('the connection of a notification listener is %s', async (_what, lifetimeMaxMs, expected) => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
  const server = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const connected = once(server, 'connection') as Promise<[Socket]>;
  const client = (): { host: string; port: number } => ({ host: '127.0.0.1', port });
  let heardCount = 0;
  const listener = new NotificationListener({ client, lifetimeMaxMs }, () => heardCount++);
  const [socket] = await connected;
  vi.advanceTimersByTime(40);
  if (expected > 0) await once(socket.resume(), 'close');
  await new Promise(setImmediate);
  expect(heardCount).toBe(expected);
  await listener.close();
});

test('a listener for notifications leaves nothing behind each time that it must connect again', async () => {
  const server = createServer((socket) => socket.destroy()).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  let brokenCount = 0;
  const settings = { client: () => ({ host: '127.0.0.1', port }), lifetimeMaxMs: 600_000 };
  const listener = new NotificationListener(settings, () => brokenCount++);
  onTestFinished(() => listener.close());
  const left = await leftBehind(
    async () => {
      const before = brokenCount;
      await vi.waitUntil(() => brokenCount > before, 10_000);
    },
    { rounds: 2 },
  );
  expect(left).toEqual([]);
});
