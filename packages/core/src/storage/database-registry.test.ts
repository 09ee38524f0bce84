import { describe, expect, test, vi } from 'vitest';

import { FakeDriver } from '../../test/fake-databases.js';
import { leftBehind, unhandledIn } from '../../test/left-behind.js';
import { databaseConfig, memberConfig } from '../../test/sharding-configs.js';
import { ConfigurationError } from '../config/configuration-errors.js';
import { Secret } from '../config/database-url.js';
import type { DatabaseConfig, MemberConfig } from '../config/sharding-config.js';
import { DatabaseNotReadyError, type NotReadyKind } from '../errors/database-not-ready-error.js';
import { ShardIdentifier } from '../id/shard-identifier.js';
import { type DatabaseRegistry, type ShardStatus, openDatabases } from './database-registry.js';

const first = ShardIdentifier.of(0, 0);
const second = ShardIdentifier.of(0, 1);
const third = ShardIdentifier.of(1, 0);

function open(members: readonly MemberConfig[], driver: FakeDriver = new FakeDriver()): DatabaseRegistry {
  return openDatabases({ defaultShard: first, members }, driver);
}

describe('opening', () => {
  test('opens each database once, and gives every shard its own transactions', () => {
    const driver = new FakeDriver();
    const shared = databaseConfig();
    const registry = open(
      [memberConfig(first, [shared]), memberConfig(second, [shared]), memberConfig(third)],
      driver,
    );
    expect(driver.opened.map(({ config }) => config.address)).toEqual([
      'postgresql://db/global',
      'postgresql://db/1-0',
    ]);
    expect(registry.transactionManager(first).shard).toBe(first);
    expect(registry.transactionManager(second).shard).toBe(second);
    const groups = registry.eachDatabase().map((managers) => managers.map(({ shard }) => shard));
    expect(groups).toEqual([[first, second], [third]]);
  });

  test.each([
    ['another user', { username: 'admin' }],
    ['another address', { address: 'postgresql://db/other' }],
    ['another name of the configuration', { name: 'secondaryConfig' }],
  ])('opens a database of its own for %s', (_what, settings) => {
    const driver = new FakeDriver();
    const members = [
      memberConfig(first, [databaseConfig()]),
      memberConfig(second, [databaseConfig({ address: 'postgresql://db/2' }), databaseConfig(settings)]),
    ];
    open(
      members.map((member) => withPrimary(member)),
      driver,
    );
    expect(driver.opened.map(({ config }) => config)).toContainEqual(databaseConfig(settings));
  });

  test('opens a database once, however its address is spelled', () => {
    const driver = new FakeDriver();
    open([memberConfig(first, at('localhost')), memberConfig(second, at('LOCALHOST'))], driver);
    expect(driver.opened.map(({ config }) => config.address)).toEqual(['postgresql://localhost/global']);
  });

  test('takes an address as it is written when the driver does not parse it', async () => {
    const driver = new FakeDriver();
    const members = [memberConfig(first, at('localhost')), memberConfig(second, at('LOCALHOST'))];
    const registry = openDatabases(
      { defaultShard: first, members },
      { open: (config) => driver.open(config) },
    );
    expect(driver.opened).toHaveLength(2);
    expect(registry.placeOf(second)).toBe('postgresql://LOCALHOST/global');
    expect(await registry.status()).toMatchObject([
      { place: 'postgresql://localhost/global' },
      { place: 'postgresql://LOCALHOST/global' },
    ]);
    expect(() => registry.placeOf(third)).toThrow(expect.objectContaining({ code: 'unknown-shard' }));
  });

  test('opens a database that needs no password, for several members', () => {
    const driver = new FakeDriver();
    const trusting = databaseConfig({ password: undefined });
    open([memberConfig(first, [trusting]), memberConfig(second, [trusting])], driver);
    expect(driver.opened).toHaveLength(1);
  });

  test.each([
    ['password', { password: new Secret('another') }],
    ['pool size', { poolMax: 11 }],
    ['statement timeout', { statementTimeoutMs: 1 }],
  ])('refuses members that name one database with another %s, before any is opened', (_what, settings) => {
    const driver = new FakeDriver();
    const disagreeing = databaseConfig({ ...settings, path: 'the second path' });
    const members = [
      memberConfig(third),
      memberConfig(first, [databaseConfig()]),
      memberConfig(second, [disagreeing]),
    ];
    expect(() => open(members, driver)).toThrow(
      expect.objectContaining({
        code: 'invalid-configuration',
        faults: [{ path: 'the second path', message: expect.stringContaining(databaseConfig().path) }],
      }),
    );
    expect(driver.opened).toEqual([]);
  });

  test('closes what it has opened when the driver refuses a later database', () => {
    const driver = new FakeDriver();
    const refusal = new ConfigurationError([{ path: 'jdbc-url', message: 'is not for this driver' }]);
    driver.refusals.set('postgresql://db/1-0', refusal);
    expect(() => open([memberConfig(first), memberConfig(third)], driver)).toThrow(refusal);
    expect(driver.opened.map(({ closings }) => closings)).toEqual([1]);
  });

  test('reports the refusal even if what it has opened cannot be closed', async () => {
    const driver = new FakeDriver();
    const refusal = new ConfigurationError([{ path: 'jdbc-url', message: 'is not for this driver' }]);
    driver.refusals.set('postgresql://db/1-0', refusal);
    const openNext = driver.open.bind(driver);
    driver.open = (config) => {
      const database = openNext(config);
      database.close = () => Promise.reject(new Error('The server is away'));
      return database;
    };
    const unhandled = await unhandledIn(() => {
      expect(() => open([memberConfig(first), memberConfig(third)], driver)).toThrow(refusal);
    });
    expect(unhandled).toEqual([]);
  });

  test('uses the primary config, wherever it is in the file', async () => {
    const driver = new FakeDriver();
    const lock = databaseConfig({ name: 'lockConfig', address: 'postgresql://db/lock' });
    const registry = open([memberConfig(first, [lock, databaseConfig()])], driver);
    driver.opened[0]!.pingFailure = new Error('connection refused');
    expect(await registry.status()).toMatchObject([{ place: 'db/global', ready: true }]);
  });

  test('refuses a member without a primary config', () => {
    const members = [memberConfig(first, [databaseConfig({ name: 'lockConfig' })])];
    expect(() => open(members)).toThrow(expect.objectContaining({ code: 'invariant-violation' }));
  });
});

/** The configurations of a member whose database is on that host. */
function at(host: string): readonly DatabaseConfig[] {
  return [databaseConfig({ address: `postgresql://${host}/global` })];
}

/** The member with a primary config, added if it has none. */
function withPrimary(member: MemberConfig): MemberConfig {
  const databases = new Map([['primaryConfig', databaseConfig()], ...member.databases]);
  return { ...member, databases };
}

describe('transactionManager', () => {
  const secondary = databaseConfig({ name: 'secondaryConfig', address: 'postgresql://replica/global' });
  const registry = open([memberConfig(first, [databaseConfig(), secondary]), memberConfig(third)]);

  test('returns the same transactions at each call, and others for another name', () => {
    expect(registry.transactionManager(first)).toBe(registry.transactionManager(first));
    expect(registry.transactionManager(first, 'primaryConfig')).toBe(registry.transactionManager(first));
    expect(registry.transactionManager(first, 'secondaryConfig')).not.toBe(
      registry.transactionManager(first),
    );
  });

  test('refuses a shard that is not configured', () => {
    expect(() => registry.transactionManager(second)).toThrow(
      expect.objectContaining({ code: 'unknown-shard', shard: second }),
    );
  });

  test('refuses a name that the member does not have', () => {
    const faults = [{ path: 'shard (1, 0).configs.secondaryConfig', message: 'is not configured' }];
    expect(() => registry.transactionManager(third, 'secondaryConfig')).toThrow(
      expect.objectContaining({ code: 'invalid-configuration', faults }),
    );
  });

  test('belongs to a registry that knows its shards and the default one', () => {
    expect(registry.shards).toEqual([first, third]);
    expect(registry.defaultShard).toBe(first);
  });
});

function notReady(kind: NotReadyKind): DatabaseNotReadyError {
  return new DatabaseNotReadyError(kind, { what: 'no', remedy: 'correct it', cause: undefined });
}

test('a registry lists each database once for delivery, with its shards and its readiness', async () => {
  const driver = new FakeDriver();
  const shared = databaseConfig();
  const registry = open(
    [memberConfig(first, [shared]), memberConfig(second, [shared]), memberConfig(third)],
    driver,
  );
  for (const database of driver.opened) Object.defineProperty(database, 'delivery', { value: { database } });
  const deliveries = registry.deliveries();
  expect(deliveries.map(({ store }) => store)).toEqual(driver.opened.map((database) => ({ database })));
  expect(deliveries.map(({ shards }) => shards)).toEqual([[first, second], [third]]);
  const reason = notReady('unreachable');
  driver.opened[0]!.notReady = reason;
  const told: unknown[] = [];
  const isReady = deliveries[0]!.ready((why) => told.push(why));
  expect(told).toEqual([reason]);
  driver.opened[0]!.heal();
  await isReady;
});

describe('a registry', () => {
  test('is ready when every database is ready', async () => {
    await expect(open([memberConfig(first), memberConfig(third)]).ready()).resolves.toBeUndefined();
  });

  test('is not ready while one of its databases is not, and gives the reason whenever that changes', async () => {
    const driver = new FakeDriver();
    const registry = open([memberConfig(first), memberConfig(third)], driver);
    const reason = notReady('access-refused');
    driver.opened[1]!.notReady = reason;
    const told = vi.fn<(status: ShardStatus) => void>();
    const ready = registry.ready(told);
    const isReady = vi.fn<() => void>();
    void ready.then(isReady);
    await Promise.resolve();
    const status = { shard: third, name: 'member-1-0', place: 'db/1-0', ready: false, reason };
    expect(told.mock.calls).toEqual([[status]]);
    expect(isReady).not.toHaveBeenCalled();
    await registry.readyOn(first);
    await expect(registry.readyOn(second)).rejects.toMatchObject({ code: 'unknown-shard' });
    driver.opened[1]!.heal();
    await ready;
  });

  test('stops waiting when no shard can be used before somebody corrects something', async () => {
    const driver = new FakeDriver();
    const registry = open([memberConfig(first), memberConfig(third)], driver);
    const [one, other] = driver.opened;
    one!.notReady = notReady('access-refused');
    other!.notReady = notReady('database-missing');
    await expect(registry.ready()).rejects.toMatchObject({
      code: 'no-usable-shard',
      shards: [first, third],
      message: expect.stringMatching(
        /: shard \(0, 0\) member-0-0 on db\/0-0: no: correct it\n.*: shard \(1, 0\) member-1-0 on db\/1-0: no: correct it$/,
      ),
      cause: one!.notReady,
    });
  });

  test('has stopped waiting for good, although a database then fails or becomes ready', async () => {
    const driver = new FakeDriver();
    const registry = open([memberConfig(first), memberConfig(third)], driver);
    const [one, other] = driver.opened;
    other!.notReady = notReady('access-refused');
    const closed = Promise.withResolvers<void>();
    one!.ready = (onNotReady) => {
      onNotReady?.(notReady('access-refused'));
      return closed.promise;
    };
    const unhandled = await unhandledIn(async () => {
      await expect(registry.ready()).rejects.toMatchObject({ code: 'no-usable-shard' });
      closed.reject(new Error('It was closed'));
      other!.heal();
    });
    expect(unhandled).toEqual([]);
  });

  test('leaves nothing behind with each caller that waits for it or asks for its state', async () => {
    const driver = new FakeDriver();
    const registry = open([memberConfig(first), memberConfig(third)], driver);
    driver.opened[1]!.pingFailure = new Error('connection refused');
    const left = await leftBehind(async () => {
      await registry.ready();
      await registry.status();
    });
    expect(left).toEqual([]);
  });

  test('keeps waiting while one shard may recover by itself, whatever the others need', async () => {
    const driver = new FakeDriver();
    const registry = open([memberConfig(first), memberConfig(third)], driver);
    driver.opened[0]!.notReady = notReady('unreachable');
    driver.opened[1]!.notReady = notReady('access-refused');
    const settled = vi.fn<() => void>();
    registry.ready().then(settled, settled);
    await new Promise((resolve) => setImmediate(resolve));
    expect(settled).not.toHaveBeenCalled();
  });

  test('is not ready when two addresses lead to one database', async () => {
    const driver = new FakeDriver();
    const registry = open([memberConfig(first), memberConfig(second), memberConfig(third)], driver);
    const [one, other, another] = driver.opened;
    one!.identity = other!.identity = 'server 1, database 1';
    another!.identity = 'server 1, database 2';
    const failure: unknown = await registry.ready().catch((error: unknown) => error);
    expect(failure).toMatchObject({ code: 'invalid-configuration' });
    expect(String(failure)).toMatch(/is the same database as .*postgresql:\/\/db\/0-0/);
  });

  test('is not ready when the address of an unready database leads to another of its databases', async () => {
    const driver = new FakeDriver();
    const registry = open([memberConfig(first), memberConfig(third)], driver);
    for (const database of driver.opened) database.identity = 'server 1, database 1';
    driver.opened[1]!.notReady = notReady('unreachable');
    await expect(registry.ready()).rejects.toMatchObject({ code: 'invalid-configuration' });
  });

  test('is ready when shards share a database under one address', async () => {
    const driver = new FakeDriver();
    const shared = databaseConfig();
    const registry = open([memberConfig(first, [shared]), memberConfig(second, [shared])], driver);
    driver.opened[0]!.identity = 'server 1, database 1';
    await expect(registry.ready()).resolves.toBeUndefined();
  });

  test('keeps waiting while one shard can be used, even if it could not be used at first', async () => {
    const driver = new FakeDriver();
    const registry = open([memberConfig(first), memberConfig(third)], driver);
    const [one, other] = driver.opened;
    one!.notReady = notReady('access-refused');
    const tellOther = Promise.withResolvers<(reason: DatabaseNotReadyError) => void>();
    other!.ready = (onNotReady) => {
      tellOther.resolve(onNotReady!);
      return new Promise(() => undefined);
    };
    const settled = vi.fn<() => void>();
    registry.ready().then(settled, settled);
    one!.heal();
    await new Promise((resolve) => setImmediate(resolve));
    (await tellOther.promise)(notReady('access-refused'));
    await new Promise((resolve) => setImmediate(resolve));
    expect(settled).not.toHaveBeenCalled();
  });

  test('says for each shard whether it is ready, and what is wrong', async () => {
    const driver = new FakeDriver();
    const registry = open([memberConfig(first), memberConfig(third)], driver);
    const reason = new Error('connection refused');
    driver.opened[1]!.pingFailure = reason;
    expect(await registry.status()).toEqual([
      { shard: first, name: 'member-0-0', place: 'db/0-0', ready: true, reason: undefined },
      { shard: third, name: 'member-1-0', place: 'db/1-0', ready: false, reason },
    ]);
  });
});

test('close closes every database once, however often it is called', async () => {
  const driver = new FakeDriver();
  const shared = databaseConfig();
  const registry = open(
    [memberConfig(first, [shared]), memberConfig(second, [shared]), memberConfig(third)],
    driver,
  );
  await Promise.all([registry.close(), registry.close()]);
  await registry.close();
  expect(driver.opened.map(({ closings }) => closings)).toEqual([1, 1]);
});

test('close closes every database, although one of them fails, and says so to each caller', async () => {
  const driver = new FakeDriver();
  const registry = open([memberConfig(first), memberConfig(third)], driver);
  const failure = new Error('The server is away');
  driver.opened[0]!.close = () => Promise.reject(failure);
  const outcomes = await Promise.allSettled([registry.close(), registry.close()]);
  const rejected = { status: 'rejected', reason: failure };
  expect([outcomes, driver.opened[1]!.closings]).toEqual([[rejected, rejected], 1]);
});
