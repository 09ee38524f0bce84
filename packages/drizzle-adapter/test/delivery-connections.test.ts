import type { DatabaseRegistry } from '@framework/core';
import type { DeliveryStore } from '@framework/core/adapter';
import { firstShard } from '@framework/conformance';
import pg from 'pg';
import { describe, expect, onTestFinished, test, vi } from 'vitest';

import { NotificationListener } from '../src/delivery/pg-notifications.js';
import { postgres } from '../src/index.js';
import { allSlots, beginningOf } from './fixtures/delivery-store.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { migrationsFolder } from './fixtures/migrations-folder.js';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { proxied } from './fixtures/proxied.js';
import { query } from './fixtures/query.js';

const leaseMs = 60_000;

describe('the connections of delivery', () => {
  test('are separate from those of requests, which may all be in use', async () => {
    const { registry, store } = await openDelivery();
    const [held, release] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    onTestFinished(() => release.resolve());
    const holder = registry.transactionManager(firstShard).inTransaction(async () => {
      held.resolve();
      await release.promise;
    });
    await held.promise;
    await store.cursors.register({ name: 'notify', aliases: [], startFrom: 'beginning' });
    expect((await store.leases.renew('one', ['notify'], leaseMs)).leases).toHaveLength(allSlots.length);
    expect((await store.log.read(allSlots, await beginningOf(store), 10)).events).toEqual([]);
    release.resolve();
    await holder;
  });

  test('may all be in use while requests continue and leases are renewed', async () => {
    const { registry, store, url } = await openDelivery();
    await store.cursors.register({ name: 'notify', aliases: [], startFrom: 'beginning' });
    const locker = new pg.Client({ connectionString: url });
    await locker.connect();
    onTestFinished(() => locker.end());
    await locker.query('begin');
    await locker.query('lock table eventlog.blocked_models in access exclusive mode');
    const counts = Promise.all(Array.from({ length: 3 }, () => store.deadLetters.find({}, { limit: 1 })));
    await vi.waitFor(async () => expect(await connectionCount(url, 'framework delivery')).toBe(2), 30_000);
    expect(await suiteOn(registry).openAccount(firstShard)).toMatchObject({ version: 1 });
    expect((await store.leases.renew('one', ['notify'], leaseMs)).leases).toHaveLength(allSlots.length);
    await locker.query('commit');
    expect(await counts).toHaveLength(3);
    expect(await connectionCount(url, 'framework delivery')).toBe(2);
    expect(await connectionCount(url, 'framework leases')).toBe(1);
  });

  test('are opened when delivery is first used, and closed with the database', async () => {
    const { registry, store, url } = await openDelivery();
    expect(await connectionCount(url, 'framework delivery')).toBe(0);
    await store.deadLetters.find({}, { limit: 1 });
    expect(await connectionCount(url, 'framework delivery')).toBe(1);
    expect(await connectionCount(url, 'framework leases')).toBe(0);
    await store.leases.list();
    expect(await connectionCount(url, 'framework leases')).toBe(1);
    await registry.close();
    await vi.waitFor(async () => expect(await connectionCount(url, 'framework%')).toBe(0), 30_000);
    await expect(store.leases.list()).rejects.toMatchObject({ code: 'databases-closed' });
  });

  test('are refused once the databases are closed, even if delivery has used none of them before', async () => {
    const { url } = await emptyDatabase();
    const registry = openRegistry([{ group: 0, member: 0, url }], { migrationsFolder });
    await registry.ready();
    await registry.close();
    const [delivery] = registry.deliveries();
    const refused = { code: 'databases-closed' };
    await expect(delivery?.store.leases.list()).rejects.toMatchObject(refused);
    await expect(delivery?.store.cursors.load([0])).rejects.toMatchObject(refused);
    await expect(delivery?.store.notifications.listen(() => undefined)).rejects.toMatchObject(refused);
    expect(await connectionCount(url, 'framework%')).toBe(0);
  });

  test('include the one that listens for notifications, which closes with the database', async () => {
    const { registry, store, url } = await openDelivery();
    const end = await store.notifications.listen(() => undefined);
    await vi.waitFor(async () => expect(await connectionCount(url, '% notifications')).toBe(1), 30_000);
    await registry.close();
    await vi.waitFor(async () => expect(await connectionCount(url, 'framework%')).toBe(0), 30_000);
    await end();
  });

  test('close while the network is silent, including the one that listens for notifications', async () => {
    const database = await emptyDatabase();
    const { proxy, url } = await proxied(database);
    const listener = new NotificationListener(
      { client: () => ({ connectionString: url }), lifetimeMaxMs: 0 },
      () => undefined,
    );
    const isListening = `select from pg_stat_activity where datname = current_database() and query = 'listen eventlog' and state = 'idle'`;
    await vi.waitFor(async () => expect(await query(database.url, isListening)).toHaveLength(1), 30_000);
    proxy.silence();
    expect(await listener.close()).toBeUndefined();
  });

  test.each([0, -1, 1.5, NaN, 1_001])('cannot number %d', (deliveryPoolMax) => {
    expect(() => postgres({ deliveryPoolMax })).toThrow(
      expect.objectContaining({ code: 'invalid-configuration' }),
    );
  });
});

/** A database whose requests have one connection. */
async function openDelivery(): Promise<{
  readonly registry: DatabaseRegistry;
  readonly store: DeliveryStore;
  readonly url: string;
}> {
  const { url } = await emptyDatabase();
  const settings = { 'maximum-pool-size': 1, 'acquisition-timeout-ms': 2_000 };
  const registry = openRegistry([{ group: 0, member: 0, url, settings }], { migrationsFolder });
  await registry.ready();
  const [delivery] = registry.deliveries();
  if (delivery === undefined) throw new Error('The registry delivers nothing');
  return { registry, store: delivery.store, url };
}

async function connectionCount(url: string, applicationName: string): Promise<number> {
  const found = await query(
    url,
    'select from pg_stat_activity where datname = current_database() and application_name like $1',
    [applicationName],
  );
  return found.length;
}
