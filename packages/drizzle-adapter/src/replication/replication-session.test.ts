import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';

import { leftBehind } from '../../../core/test/left-behind.js';
import { ReplicationSession } from './replication-session.js';

/** The port of a server that ends each connection at once. */
async function refusingPort(): Promise<number> {
  const server = createServer((socket) => socket.destroy()).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

test('a stream of the log that cannot be opened leaves nothing behind on the signal that ends it', async () => {
  const port = await refusingPort();
  const { signal } = new AbortController();
  const ends: unknown[] = [];
  const left = await leftBehind(
    async () => {
      const opening = ReplicationSession.open({
        client: { host: '127.0.0.1', port, user: 'nobody', database: 'nothing' },
        settings: { slot: 'slot', publication: 'publication', isSlotOutdated: false } as never,
        eventBytesMax: 1_000,
        history: undefined,
        signal,
        onRetained: () => undefined,
        onCommit: () => undefined,
        onEnded: (error) => ends.push(error),
        onRecreated: () => undefined,
      });
      await expect(opening).rejects.toThrow();
    },
    // The client's goodbye takes a second at most.
    { patienceMs: 2_000 },
  );
  expect(left).toEqual([]);
});
