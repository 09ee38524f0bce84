import { firstShard } from '@framework/conformance';
import { ShardIdentifier, openDatabases } from '@framework/core';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { sql } from 'drizzle-orm';
import pg from 'pg';
import { expect, onTestFinished, test, vi } from 'vitest';

import { keptInMemory } from '../../core/test/kept-in-memory.js';
import { leftBehind } from '../../core/test/left-behind.js';
import { NotificationListener } from '../src/delivery/pg-notifications.js';
import { postgres } from '../src/index.js';
import { inDatabase, inShortTransaction } from '../src/migration/in-database.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { openSuite } from './fixtures/open-registry.js';
import { PgFixture } from './fixtures/pg-fixture.js';
import { query } from './fixtures/query.js';
import { shardingConfig } from './fixtures/sharding-config.js';

/** How long the server may take to end a session. */
const patienceMs = 2_000;

function configOf(url: string) {
  const config = shardingConfig([{ group: 0, member: 0, url }]).members[0]?.databases.get('primaryConfig');
  if (config === undefined) throw new Error('There is no configuration');
  return config;
}

test('work on connections of its own leaves nothing behind, whether it succeeds, fails or is aborted', async () => {
  const config = configOf((await emptyDatabase()).url);
  const { signal } = new AbortController();
  const left = await leftBehind(
    async () => {
      await inDatabase(config, signal, (client) =>
        inShortTransaction(client, () => client.query('select 1')),
      );
      const failing = inDatabase(config, signal, (client) =>
        inShortTransaction(client, () => client.query('select 1 from nothing')),
      );
      await expect(failing).rejects.toThrow('nothing');
      const aborting = new AbortController();
      const aborted = inDatabase(config, aborting.signal, async (client) => {
        const slow = client.query('select pg_sleep(60)');
        aborting.abort();
        await slow;
      });
      await expect(aborted).rejects.toBeInstanceOf(Error);
    },
    { patienceMs, rounds: 2 },
  );
  expect(left).toEqual([]);
});

test('work that is aborted while it connects leaves nothing behind', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const config = configOf(`postgres://nobody@127.0.0.1:${port}/nothing`);
  const left = await leftBehind(
    async () => {
      const aborting = new AbortController();
      const accepted = once(server, 'connection');
      const working = inDatabase(config, aborting.signal, async () => undefined);
      working.catch(() => undefined);
      await accepted;
      aborting.abort();
      await expect(working).rejects.toBeInstanceOf(Error);
    },
    { patienceMs },
  );
  expect(left).toEqual([]);
});

test('listeners for notifications leave nothing behind on the signal that closes them all', async () => {
  const database = await emptyDatabase();
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  onTestFinished(() => client.end());
  const { signal: closing } = new AbortController();
  const settings = { client: () => ({ connectionString: database.url }), lifetimeMaxMs: 600_000, closing };
  const left = await leftBehind(
    async () => {
      let heardCount = 0;
      const listener = new NotificationListener(settings, () => heardCount++);
      await vi.waitUntil(async () => {
        await client.query('notify eventlog');
        return heardCount > 0;
      });
      await listener.close();
    },
    { patienceMs },
  );
  expect(left).toEqual([]);
});

test('callers that wait for a database, and ask for its state, leave nothing behind', async () => {
  const { url } = await emptyDatabase();
  const databases = openDatabases(shardingConfig([{ group: 0, member: 0, url }]), postgres());
  onTestFinished(() => databases.close());
  await databases.ready();
  const [delivery] = databases.deliveries();
  const left = await leftBehind(
    async () => {
      await databases.ready(() => undefined);
      await delivery!.ready(() => undefined);
      expect(await Promise.all([databases.status(), databases.status()])).toMatchObject([
        [{ ready: true }],
        [{ ready: true }],
      ]);
    },
    { patienceMs },
  );
  expect(left).toEqual([]);
});

test('checks leave nothing behind when the database answers them with a refusal', async () => {
  const { url, database } = await emptyDatabase();
  const databases = openDatabases(shardingConfig([{ group: 0, member: 0, url }]), postgres());
  onTestFinished(() => databases.close());
  await databases.ready();
  await query(url, `alter database ${database} set default_transaction_read_only = on`);
  const left = await leftBehind(
    async () => expect(await databases.status()).toMatchObject([{ ready: false }]),
    { patienceMs },
  );
  expect(left).toEqual([]);
});

test('reads and writes leave nothing behind, even those that fail, and no warning of a connection', async () => {
  const { url } = await emptyDatabase();
  const warn = vi.spyOn(console, 'error').mockReturnValue();
  const suite = await openSuite(url, { 'leak-detection-threshold': 60_000 });
  const left = await leftBehind(
    async () => {
      const account = await suite.openAccount(firstShard);
      await Promise.all([1, 2, 3, 4].map(() => suite.accounts.getById(account.id)));
      await suite.accounts.findAll();
      await expect(
        suite.accounts.getById((await suite.openAccount(ShardIdentifier.of(9, 9)).catch(() => account)).id),
      ).resolves.toMatchObject({ version: 1 });
      const failing = suite.fixture.databases.transactionManager(firstShard).inTransaction(async () => {
        await suite.accounts.getById(account.id);
        throw new Error('refused');
      });
      await expect(failing).rejects.toThrow('refused');
      const failed = new PgFixture(suite.fixture.databases).accounts
        .db(firstShard)
        .execute(sql`select 1 from nothing`);
      await expect(failed).rejects.toBeInstanceOf(Error);
    },
    { patienceMs },
  );
  expect(left).toEqual([]);
  expect(warn).not.toHaveBeenCalled();
});

test('models that were read, alone or with others, are not kept in memory', async () => {
  const { url } = await emptyDatabase();
  const suite = await openSuite(url, {});
  const account = await suite.openAccount(firstShard);
  const read: WeakRef<object>[] = [];
  const round = async (): Promise<void> => {
    const found = await Promise.all([1, 2, 3].map(() => suite.accounts.getById(account.id)));
    read.push(...[...found, ...(await suite.accounts.findAll())].map((model) => new WeakRef(model)));
  };
  for (let number = 0; number < 20; number++) await round();
  expect(read).toHaveLength(20 * 4);
  expect(await keptInMemory(read)).toBe(0);
});
