import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import pg from 'pg';
import { expect, onTestFinished, test, vi } from 'vitest';

import { OpeningClient, type OpeningClientConfig } from './opening-client.js';

test('a pool reports why an address cannot be resolved, to waiting callers as well', async () => {
  const failure = new Error('ENOENT');
  const config: pg.PoolConfig & OpeningClientConfig = {
    Client: OpeningClient,
    max: 1,
    connectionTimeoutMillis: 5_000,
    address: () => {
      throw failure;
    },
  };
  const pool = new pg.Pool(config);
  const outcomes = await Promise.allSettled([pool.connect(), pool.connect(), pool.connect()]);
  expect(outcomes).toEqual(Array.from({ length: 3 }, () => ({ status: 'rejected', reason: failure })));
  await pool.end();
});

test('a client that gives up its login leaves no connection open, even if the server waits for more', async () => {
  const mechanism = 'OAUTHBEARER\0\0';
  const asks = Buffer.alloc(9 + mechanism.length);
  asks.write('R');
  asks.writeInt32BE(asks.length - 1, 1);
  asks.writeInt32BE(10, 5);
  asks.write(mechanism, 9);
  let openCount = 0;
  const server = createServer((socket) => {
    openCount++;
    socket.on('close', () => openCount--).once('data', () => socket.write(asks));
  }).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const config: pg.PoolConfig & OpeningClientConfig = {
    Client: OpeningClient,
    connectionTimeoutMillis: 60_000,
    address: () => ({ host: '127.0.0.1', port, user: 'wallet', database: 'wallet' }),
  };
  const pool = new pg.Pool(config);
  await expect(pool.connect()).rejects.toThrow('SASL');
  await vi.waitFor(() => expect(openCount).toBe(0));
  await pool.end();
});
