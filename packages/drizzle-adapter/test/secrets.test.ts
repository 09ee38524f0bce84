import { inspect } from 'node:util';
import { openDatabases, parseFrameworkConfig } from '@framework/core';
import { firstShard } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { postgres } from '../src/index.js';
import { PgTransactionManager } from '../src/pg-transaction-manager.js';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { PgFixture } from './fixtures/pg-fixture.js';
import { proxied } from './fixtures/proxied.js';
import { query } from './fixtures/query.js';
import { shardingConfig } from './fixtures/sharding-config.js';

const password = 'Tr0ub4dor-and-3-secrets';
const role = `role_${process.pid}`;

describe('a password', () => {
  let database: TestDatabase;
  let url: string;
  beforeAll(async () => {
    database = await createTestDatabase();
    await query(database.url, `create role ${role} login superuser password '${password}'`);
    const withPassword = new URL(database.url);
    withPassword.username = role;
    withPassword.password = password;
    url = withPassword.href;
  });
  afterAll(async () => {
    await database.drop();
    const server = new URL(database.url);
    server.pathname = '/postgres';
    await query(server.href, `drop role ${role}`);
  });

  test('does not appear in the configuration, the registry or anything reachable from it', async () => {
    const config = shardingConfig([{ group: 0, member: 0, url }]);
    const registry = openRegistry([{ group: 0, member: 0, url }]);
    await registry.ready();
    const manager = registry.transactionManager(firstShard);
    expect(manager).toBeInstanceOf(PgTransactionManager);
    const { database: opened, db } = manager as PgTransactionManager;
    const { accounts } = new PgFixture(registry);
    await accounts.findAll();
    for (const thing of [config, registry, manager, opened, opened.pool, opened.writer, db, accounts]) {
      expectNoPassword(thing);
    }
  });

  test('does not appear in errors', async () => {
    const registry = openRegistry([{ group: 0, member: 0, url, settings: { 'statement-timeout-ms': 500 } }]);
    await registry.ready();
    const { accounts, tags } = new PgFixture(registry);
    const db = accounts.db(firstShard);
    const failures = [
      db.execute(sql`select pg_sleep(5)`),
      db.execute(sql`select no_such_function()`),
      db.execute(sql`insert into tags values (null)`),
      db.execute(sql`select pg_terminate_backend(pg_backend_pid())`),
      registry.transactionManager(firstShard).inTransaction(() => db.execute(sql`select 1 / 0`)),
      tags.getById('no id'),
    ];
    for (const failure of await Promise.allSettled(failures)) {
      expect(failure.status).toBe('rejected');
      expectNoPassword(failure);
    }
  });

  test('does not appear when the database cannot be reached', async () => {
    const { proxy, url: through } = await proxied(database);
    await proxy.refuse();
    const unreachable = new URL(through);
    unreachable.username = role;
    unreachable.password = password;
    const registry = openRegistry([{ group: 0, member: 0, url: unreachable.href }], { migrate: 'off' });
    expectNoPassword(await registry.status());
    const failure: unknown = await suiteOn(registry)
      .openAccount(firstShard)
      .catch((error: unknown) => error);
    expect(failure).toMatchObject({ code: 'shard-unavailable' });
    expectNoPassword(failure);
  });

  test('does not appear when it is refused', async () => {
    const wrong = new URL(url);
    wrong.pathname = '/no_such_database';
    const registry = openRegistry([{ group: 0, member: 0, url: wrong.href }]);
    const failure: unknown = await registry.ready().catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(Error);
    expectNoPassword(failure);
  });

  test.each([
    ['in a URL of another kind of database', { 'jdbc-url': `jdbc:mysql://${role}:${password}@db/x` }],
    ['in a malformed URL', { 'jdbc-url': `://${role}:${password}@db` }],
    [
      'with a driver of another kind of database',
      { 'jdbc-url': 'jdbc:postgresql://db/x', password, 'driver-class-name': 'com.x' },
    ],
    ['beside an unknown key', { 'jdbc-url': 'jdbc:postgresql://db/x', password, unknown: password }],
  ])('does not appear in a configuration error when it is given %s', async (_where, settings) => {
    const faulty = (): void => {
      const sharding = {
        'default-shard': { group: 0, member: 0 },
        groups: [
          {
            group: 0,
            name: 'group',
            members: [{ member: 0, name: 'member', configs: { 'primary-config': settings } }],
          },
        ],
      };
      const config = parseFrameworkConfig({ framework: { namespace: 'adapter.test', sharding } });
      openDatabases(config.sharding, postgres());
    };
    const failure = caught(faulty);
    expect(failure).toMatchObject({ code: 'invalid-configuration' });
    expectNoPassword(failure);
  });
});

function expectNoPassword(thing: unknown): void {
  const shown = inspect(thing, { depth: Number.POSITIVE_INFINITY, showHidden: true, getters: true });
  expect(shown.length).toBeGreaterThan(10);
  expect(shown.includes(password)).toBe(false);
  expect(String(thing)).not.toContain(password);
}

function caught(work: () => void): unknown {
  try {
    work();
    return undefined;
  } catch (error) {
    return error;
  }
}
