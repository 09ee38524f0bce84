import type { DatabaseRegistry } from '@framework/core';
import type { ShardStatus } from '@framework/core/adapter';
import { otherDatabaseShard, firstShard } from '@framework/conformance';
import type { TestDatabase } from '@framework/testing/postgres';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import type { PostgresWarning } from '../src/index.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { migrationsFolder } from './fixtures/migrations-folder.js';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { proxied } from './fixtures/proxied.js';
import { query } from './fixtures/query.js';
import { startTlsServer } from './fixtures/tls-server.js';

const patience = { timeout: 30_000, interval: 20 };
const password = 'Tr0ub4dor-and-3-secrets';

/** A database that is not ready, and how to fix it. */
interface Faulty {
  readonly url: string;
  readonly heal: () => Promise<unknown>;
}

const faults: readonly (readonly [string, (database: TestDatabase) => Promise<Faulty>, object])[] = [
  [
    'whose server refuses connections',
    async (database) => {
      const { proxy, url } = await proxied(database);
      await proxy.refuse();
      return { url, heal: () => proxy.accept() };
    },
    { kind: 'unreachable', text: /connect ECONNREFUSED .*: start the server, or correct \S+jdbc-url/ },
  ],
  [
    'that does not let its user in',
    async (database) => {
      const role = `role_${database.database}`;
      const url = new URL(database.url);
      url.username = role;
      url.password = password;
      const drop = `drop owned by ${role} cascade; drop role ${role}`;
      onTestFinished(() => query(database.url, drop).then(() => undefined));
      const create = `create role ${role} login superuser password '${password}'`;
      return { url: url.href, heal: () => query(database.url, create) };
    },
    { kind: 'access-refused', text: /"role_\w+".*: correct username and password of framework\S+/ },
  ],
  [
    'that does not exist',
    async (database) => {
      const url = new URL(database.url);
      url.pathname += '_later';
      const name = url.pathname.slice(1);
      onTestFinished(() => query(database.url, `drop database ${name} with (force)`).then(() => undefined));
      return { url: url.href, heal: () => query(database.url, `create database ${name}`) };
    },
    { kind: 'database-missing', text: /database "\w+_later" does not exist: create database "\w+_later"/ },
  ],
  [
    'that does not exist, with special characters in its name,',
    async (database) => {
      const name = `${database.database};=&/?%`;
      const url = new URL(database.url);
      url.pathname = encodeURIComponent(name);
      onTestFinished(() => query(database.url, `drop database "${name}" with (force)`).then(() => undefined));
      return { url: url.href, heal: () => query(database.url, `create database "${name}"`) };
    },
    { kind: 'database-missing', text: /: create database "\w+;=&\/\?%"/ },
  ],
  [
    'that takes no connections',
    async ({ url, database }) => {
      const { href: admin } = new URL('/postgres', url);
      const allow = (isAllowed: boolean) =>
        query(admin, `alter database ${database} allow_connections ${isAllowed}`);
      await allow(false);
      return { url, heal: () => allow(true) };
    },
    { kind: 'not-serving', text: /is not currently accepting connections: the framework retries until/ },
  ],
  [
    'whose certificate is not trusted',
    async () => {
      const server = await startTlsServer();
      return { url: server.url, heal: server.trust };
    },
    { kind: 'tls-refused', text: /certificate.*: correct the server's certificate, or the ssl… parameters/ },
  ],
  [
    'whose certificate authority is in a file that is not there',
    async () => {
      const server = await startTlsServer();
      await server.forget();
      return { url: server.url, heal: server.trust };
    },
    { kind: 'tls-refused', text: /ENOENT.*: correct the server's certificate, or the ssl… parameters/ },
  ],
];

describe('a database', () => {
  test.each(faults)(
    '%s says why everywhere, affects no other shard, and serves once the fault is removed',
    async (_what, makeFaulty, expected) => {
      const { kind, text } = expected as { readonly kind: string; readonly text: RegExp };
      const [database, healthy] = await Promise.all([emptyDatabase(), emptyDatabase()]);
      const { url, heal } = await makeFaulty(database);
      const warnings: PostgresWarning[] = [];
      const registry = openRegistry(
        [
          { group: 0, member: 0, url },
          { group: 1, member: 0, url: healthy.url },
        ],
        { migrationsFolder, onWarning: (warning) => warnings.push(warning) },
      );
      const told: ShardStatus[] = [];
      const ready = registry.ready((status) => told.push(status));
      const suite = suiteOn(registry);
      await vi.waitFor(() => suite.openAccount(otherDatabaseShard), patience);
      // The reason was reported only once in several tries.
      await vi.waitFor(() => expect(warnings).toHaveLength(1), patience);
      const place = `member-0-0 on ${placeOf(url)}`;
      expect(told).toMatchObject([{ shard: firstShard, name: 'member-0-0', reason: { kind } }]);
      expect(warnings[0]).toMatchObject({
        kind: 'not-ready',
        message: expect.stringMatching(text) as string,
      });
      expect(warnings[0]?.message).toContain(`shard (0, 0) ${place} is not ready: `);
      expect(await registry.status()).toMatchObject([{ ready: false, reason: { kind } }, { ready: true }]);
      const failure: unknown = await suite.openAccount(firstShard).catch((error: unknown) => error);
      expect(failure).toMatchObject({
        code: 'shard-unavailable',
        kind,
        message: expect.stringMatching(text) as string,
        cause: expect.any(Error) as Error,
      });
      expect(String(failure)).toContain(`shard (0, 0) ${place} is unavailable: `);
      expect(JSON.stringify([told, warnings, String(failure)])).not.toContain(password);

      await heal();
      await ready;
      await suite.openAccount(firstShard);
      expect(warnings).toHaveLength(1);
      await registry.close();
    },
  );

  test('that was closed before it was ready refuses its callers for good', async () => {
    const { proxy, url } = await proxied(await emptyDatabase());
    await proxy.refuse();
    const registry = openRegistry([{ group: 0, member: 0, url }]);
    const suite = suiteOn(registry);
    const ready = registry.ready();
    await registry.close();
    const refused = { code: 'databases-closed', retryable: false };
    await expect(suite.openAccount(firstShard)).rejects.toMatchObject(refused);
    await expect(ready).rejects.toMatchObject(refused);
    expect(await registry.status()).toMatchObject([{ ready: false, reason: refused }]);
  });

  test('is opened even if the callback for its warnings throws', async () => {
    const { proxy, url } = await proxied(await emptyDatabase());
    await proxy.refuse();
    const fail = vi.fn<() => never>(() => {
      throw new Error('nobody listens');
    });
    const registry = openRegistry([{ group: 0, member: 0, url }], { onWarning: fail });
    const ready = registry.ready(fail);
    await vi.waitFor(() => expect(fail.mock.calls.length).toBeGreaterThan(1), patience);
    await proxy.accept();
    await ready;
    expect(await suiteOn(registry).fixture.databases.status()).toMatchObject([{ ready: true }]);
  });

  test('whose first attempt fails says why, and warns of nothing when the second succeeds', async () => {
    const { proxy, url } = await proxied(await emptyDatabase());
    proxy.judge = ({ connection }) => (connection === 1 ? 'cut' : 'forward');
    const warnings: PostgresWarning[] = [];
    const told: ShardStatus[] = [];
    const registry = openRegistry([{ group: 0, member: 0, url }], {
      onWarning: (warning) => warnings.push(warning),
    });
    await registry.ready((status) => told.push(status));
    expect(told).toMatchObject([{ reason: { kind: 'unreachable' } }]);
    expect(warnings).toEqual([]);
  });

  test('warns again when the reason changes', async () => {
    const database = await emptyDatabase();
    const { proxy, url } = await proxied(database);
    await proxy.refuse();
    const warnings: string[] = [];
    const missing = `${url}_missing`;
    openRegistry([{ group: 0, member: 0, url: missing }], {
      onWarning: ({ message }) => warnings.push(message),
    });
    await vi.waitFor(() => expect(warnings).toHaveLength(1), patience);
    await proxy.accept();
    await vi.waitFor(() => expect(warnings).toHaveLength(2), patience);
    expect(warnings).toEqual([
      expect.stringContaining('ECONNREFUSED'),
      expect.stringContaining('does not exist'),
    ]);
  });

  test('warns once of each reason when every attempt fails for a different one', async () => {
    const { proxy, url } = await proxied(await emptyDatabase());
    proxy.judge = ({ connection }) => {
      if (connection % 2 === 0) proxy.cut('close');
      return 'cut';
    };
    const warnings: string[] = [];
    const registry = openRegistry([{ group: 0, member: 0, url }], {
      onWarning: ({ message }) => warnings.push(message),
    });
    await vi.waitFor(() => expect(proxy.connectionCount).toBeGreaterThan(5), patience);
    expect(warnings).toHaveLength(2);
    expect(new Set(warnings).size).toBe(2);
    proxy.judge = () => 'forward';
    await registry.ready();
  });

  test('continues to serve when its certificate and the file that vouches for it are renewed', async () => {
    const server = await startTlsServer();
    await server.trust();
    const registry = openRegistry([{ group: 0, member: 0, url: server.url }]);
    await registry.ready();
    const suite = suiteOn(registry);
    const account = await suite.openAccount(firstShard);
    await server.renew();
    await vi.waitFor(async () => expect(await suite.accounts.getById(account.id)).toEqual(account), patience);
    expect(await registry.status()).toMatchObject([{ ready: true }]);
  }, 60_000);

  test('that goes down later says why, with its shard, host and name', async () => {
    const { proxy, url } = await proxied(await emptyDatabase());
    const registry = openRegistry([{ group: 0, member: 0, url }]);
    await registry.ready();
    await proxy.refuse();
    proxy.cut('reset');
    const place = `shard (0, 0) member-0-0 on ${placeOf(url)} is unavailable: connect ECONNREFUSED`;
    await vi.waitFor(async () => expect(await failureOf(registry)).toContain(place), patience);
    const [status] = await registry.status();
    expect(status).toMatchObject({ ready: false, reason: { kind: 'unreachable' } });
  });
});

function placeOf(url: string): string {
  const { host, pathname } = new URL(url);
  return `${host}${decodeURIComponent(pathname)}`;
}

async function failureOf(registry: DatabaseRegistry): Promise<string> {
  return suiteOn(registry)
    .openAccount(firstShard)
    .then(() => 'none', String);
}
