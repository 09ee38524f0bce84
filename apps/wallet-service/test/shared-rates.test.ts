import { RateLimits, type RateStoreSettings, openSharedRates } from '@framework/http/security';
import { FaultProxy } from '@framework/testing';
import { createTestDatabase } from '@framework/testing/postgres';
import pg from 'pg';
import { afterEach, describe, expect, test } from 'vitest';

import { OwnServer, programOf } from '../../../packages/relay/test/faults/own-server.js';

/** Long enough for windows not to end within a test. */
const limit = { requests: 3, seconds: 3_600 };
const ends: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

/** The limits of one of several processes. */
async function openRates(settings: RateStoreSettings, outages: string[] = []): Promise<RateLimits> {
  const shared = await openSharedRates(settings, {
    applicationName: 'wallet-service',
    onOutage: (error) => outages.push(String(error)),
  });
  ends.push(shared.close);
  return new RateLimits({ perAddress: limit, perPrincipal: limit }, shared.counter);
}

async function served(rates: RateLimits, client: string, count: number): Promise<number> {
  const refusals = [];
  while (refusals.length < count) refusals.push(await rates.refusal('principal', client));
  return refusals.filter((refusal) => refusal === undefined).length;
}

/** How many requests of a client two processes serve one after the other, of which the client may send {@link limit}. */
async function counts(
  one: RateLimits,
  other: RateLimits,
  nameOf = (random: string) => random,
): Promise<readonly number[]> {
  const client = nameOf(crypto.randomUUID());
  return [await served(one, client, 2), await served(other, client, 2), await served(one, client, 2)];
}

/** Names that differ only at the end, behind more characters and bytes than a key of the store has. */
function longNameOf(random: string): string {
  return 'é'.repeat(300) + random;
}

/** What they serve if they count together. */
const together = [2, 1, 0];

/** The URL of a database, and of a proxy in front of it. */
async function database(): Promise<{
  readonly direct: string;
  readonly proxied: string;
  readonly proxy: FaultProxy;
}> {
  const created = await createTestDatabase();
  ends.push(() => created.drop());
  const proxy = await FaultProxy.to(created);
  ends.push(() => proxy.close());
  const { user, password, host, port, database: name } = created;
  const urlOf = (at: number): string => `postgresql://${user}:${password}@${host}:${at}/${name}`;
  return { direct: urlOf(port), proxied: urlOf(proxy.port), proxy };
}

describe('processes that share PostgreSQL', () => {
  test('count together again when somebody has dropped the table', async () => {
    const { direct } = await database();
    const settings = { postgresql: direct };
    const [one, other] = [await openRates(settings), await openRates(settings)];
    await expect.poll(() => counts(one, other)).toEqual(together);
    const session = new pg.Client({ connectionString: direct });
    await session.connect();
    await session.query('drop table rate_limits');
    await session.end();
    await expect.poll(() => counts(one, other), { timeout: 10_000 }).toEqual(together);
  });

  test('serve a client together as many requests as it may send, however long its name is', async () => {
    const { direct } = await database();
    const [one, other] = [await openRates({ postgresql: direct }), await openRates({ postgresql: direct })];
    await expect.poll(() => counts(one, other)).toEqual(together);
    await expect.poll(() => counts(one, other, (random) => random.repeat(100))).toEqual(together);
  });

  test('serve each client its own rate, also when long names differ only at the end', async () => {
    const { direct } = await database();
    const [one, other] = [await openRates({ postgresql: direct }), await openRates({ postgresql: direct })];
    await expect.poll(() => counts(one, other)).toEqual(together);
    for (let client = 0; client < 2; client++) expect(await counts(one, other, longNameOf)).toEqual(together);
  });

  test('count alone while it does not answer, and together again afterwards', async () => {
    const { direct, proxied, proxy } = await database();
    const outages: string[] = [];
    const [one, other] = [
      await openRates({ postgresql: proxied }, outages),
      await openRates({ postgresql: direct }),
    ];
    await expect.poll(() => counts(one, other)).toEqual(together);
    outages.length = 0;
    proxy.silence();
    expect(await served(one, 'client', 4)).toBe(3);
    expect(await served(other, 'client', 4)).toBe(3);
    expect(outages).toEqual(['Error: Operation timed out']);
    proxy.resume();
    await expect.poll(() => counts(one, other)).toEqual(together);
  });

  test('report each outage once, also one after the store was there again', async () => {
    const { proxied, proxy } = await database();
    const outages: string[] = [];
    const [one, other] = [
      await openRates({ postgresql: proxied }, outages),
      await openRates({ postgresql: proxied }),
    ];
    for (const _outage of ['first', 'second', 'third']) {
      await expect.poll(() => counts(one, other), { timeout: 10_000 }).toEqual(together);
      outages.length = 0;
      proxy.silence();
      await expect
        .poll(async () => {
          await served(one, crypto.randomUUID(), 4);
          return outages;
        })
        .toEqual(['Error: Operation timed out']);
      proxy.resume();
    }
  });
});

describe('processes that share Redis', () => {
  test('count together, alone while it is down, and together again afterwards', async (context) => {
    const command = await programOf('Redis', 'redis-server');
    if (command === undefined) {
      context.skip();
      return;
    }
    const server = await OwnServer.create((port, folder) => ({
      command,
      args: ['--bind', '127.0.0.1', '--port', `${port}`, '--dir', folder, '--save', ''],
    }));
    ends.push(() => server.end());
    await server.start();
    const redis = `redis://127.0.0.1:${server.port}`;
    const outages: string[] = [];
    const [one, other] = [await openRates({ redis }, outages), await openRates({ redis })];
    await expect.poll(() => counts(one, other)).toEqual(together);
    outages.length = 0;
    await server.stop('SIGKILL');
    expect(await served(one, 'client', 4)).toBe(3);
    expect(outages).toHaveLength(1);
    await server.start();
    await expect.poll(() => counts(one, other)).toEqual(together);
  });
});
