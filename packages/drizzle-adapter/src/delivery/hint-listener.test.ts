import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { HintListener } from './hint-listener.js';

it('a listener for hints closes while the server takes its connection and says nothing', async () => {
  const server = createServer();
  onTestFinished(() => void server.close());
  const connected = once(server, 'connection');
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const settings = { host: '127.0.0.1', port, user: 'anybody', database: 'anything' };
  const listener = new HintListener(settings, 'eventlog', () => undefined);
  await connected;
  expect(await listener.close()).toBeUndefined();
}, 5_000);
