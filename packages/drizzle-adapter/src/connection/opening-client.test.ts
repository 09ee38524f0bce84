import pg from 'pg';
import { expect, it } from 'vitest';
import { OpeningClient, type OpeningClientConfig } from './opening-client.js';

it('a pool hands on why it is not known where a client connects, also to callers who wait', async () => {
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
