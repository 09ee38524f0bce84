import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';

import { leftBehind } from '../../core/test/left-behind.js';
import { ReplicationSession } from './replication-session.js';

/** AuthenticationOk and ReadyForQuery. */
const welcome = Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 0, 0x5a, 0, 0, 0, 5, 0x49]);
/** ErrorResponse with the SQLSTATE XX000, and ReadyForQuery. */
const refusal = Buffer.from([0x45, 0, 0, 0, 12, 0x43, 88, 88, 48, 48, 48, 0, 0, 0x5a, 0, 0, 0, 5, 0x49]);

/** The port of a server that ends each connection at once, or that accepts the login, and refuses every statement. */
async function portOf(answer: 'ends' | 'refuses'): Promise<number> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    if (answer === 'ends') socket.destroy();
    let isLogin = true;
    socket.on('data', () => {
      socket.write(isLogin ? welcome : refusal);
      isLogin = false;
    });
  }).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

test.each(['ends', 'refuses'] as const)(
  'a stream of the log leaves nothing behind when the server %s its opening',
  async (answer) => {
    const port = await portOf(answer);
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
        await expect(opening).rejects.toBeInstanceOf(Error);
      },
      // The client's goodbye takes a second at most.
      { patienceMs: 2_000 },
    );
    expect(left).toEqual([]);
  },
);
