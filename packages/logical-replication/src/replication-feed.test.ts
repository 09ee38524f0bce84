import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, onTestFinished, test, vi } from 'vitest';

import { leftBehind } from '../../core/test/left-behind.js';
import { ReplicationFeed } from './replication-feed.js';

test('a feed leaves nothing behind each time that its stream cannot be opened', async () => {
  const server = createServer((socket) => socket.destroy()).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  /** Ends the waits before the next attempts. */
  const waits: (() => void)[] = [];
  const clock = { elapsedMs: () => 0, sleep: () => new Promise<void>((resolve) => void waits.push(resolve)) };
  const target = {
    store: { cursors: { load: async () => [] } },
    shards: [],
    handler: 'notify',
    clock,
    eventBytesMax: 1_000,
    checkMs: 1_000,
    onCommitted: () => undefined,
    onError: () => undefined,
  };
  const client = () => ({ host: '127.0.0.1', port, user: 'nobody', database: 'nothing' });
  const settings = { slot: 'slot', publication: 'publication', create: false };
  const feed = new ReplicationFeed(target as never, client, settings);
  const untilFailed = (): Promise<boolean> => vi.waitUntil(() => waits.length > 0, 10_000);
  await untilFailed();
  const left = await leftBehind(
    async () => {
      waits.pop()?.();
      await untilFailed();
    },
    { patienceMs: 2_000 },
  );
  expect(left).toEqual([]);
  const closed = feed.close();
  waits.pop()?.();
  await closed;
});
