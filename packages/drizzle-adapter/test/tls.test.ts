import type { DatabaseRegistry } from '@framework/core';
import { firstShard } from '@framework/conformance';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { migrationsFolder } from './fixtures/migrations-folder.js';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';
import { shardingConfig } from './fixtures/sharding-config.js';
import { type TlsServer, startTlsServer } from './fixtures/tls-server.js';

const patience = { timeout: 30_000, interval: 20 };
const password = 'Tr0ub4dor-and-3-secrets';

/** The ways to say the same: in the URL, and by keys. */
const ways = [
  [
    'the URL',
    ({ bareUrl, caFile }: TlsServer) => ({
      url: `${bareUrl}?sslmode=verify-full&sslrootcert=${encodeURIComponent(caFile)}`,
      settings: {},
    }),
  ],
  ['keys', ({ bareUrl, caFile }: TlsServer) => ({ url: bareUrl, settings: { ssl: { 'ca-file': caFile } } })],
] as const;

describe.each(ways)('a database whose authority is named by %s', (_way, trusting) => {
  test('is ready only while its certificate is valid for its host', async () => {
    const server = await startTlsServer();
    const registry = open(trusting(server));
    await registry.ready();
    await server.show({ host: 'elsewhere.example' });
    await expect
      .poll(() => reasonOf(registry))
      .toMatchObject(tlsRefused(/does not match certificate's altnames: IP: 127\.0\.0\.1/));
    await server.show({ notAfterDate: new Date('2020-01-01') });
    await expect.poll(() => reasonOf(registry)).toMatchObject(tlsRefused(/certificate has expired/));
    await server.show({});
    await vi.waitFor(async () => expect(await registry.status()).toMatchObject([{ ready: true }]), patience);
  });

  test('is refused when its certificate is of another authority', async () => {
    const server = await startTlsServer();
    await server.renew();
    const registry = open(trusting(server));
    await expect.poll(() => reasonOf(registry)).toMatchObject(tlsRefused(/certificate/));
  });
});

test('a database with no-verify is encrypted, and whom it is is not checked', async () => {
  const server = await startTlsServer();
  const registry = open({ url: server.bareUrl, settings: { ssl: { mode: 'no-verify' } } });
  await registry.ready();
  await suiteOn(registry).openAccount(firstShard);
  expect(await encryption(server)).toEqual([{ application_name: 'framework', ssl: true }]);
});

test('a client requests encryption unless it is disabled, even if the server does not require it', async () => {
  const server = await startTlsServer();
  await query(server.bareUrl, 'alter system set ssl = off');
  await query(server.bareUrl, 'select pg_reload_conf()');
  await vi.waitFor(
    async () => expect(await query(server.bareUrl, 'show ssl')).toEqual([{ ssl: 'off' }]),
    patience,
  );
  const registry = open({ url: server.bareUrl, settings: { ssl: {} } });
  await expect.poll(() => reasonOf(registry)).toMatchObject(tlsRefused(/does not support SSL/));
  await open({ url: server.bareUrl, settings: { ssl: { mode: 'disable' } } }).ready();
});

test('all connections to a database show the certificate of its role', async () => {
  const server = await startTlsServer();
  await query(server.bareUrl, `create role sharded login superuser password '${password}'`);
  await server.allow('hostssl all sharded 127.0.0.1/32 scram-sha-256 clientcert=verify-full');
  await server.allow('hostnossl all sharded 127.0.0.1/32 reject');
  const { certFile, keyFile } = await server.issue({ name: 'sharded' });
  const ssl = { 'ca-file': server.caFile, 'cert-file': certFile, 'key-file': keyFile };
  const registry = open({ url: server.bareUrl, settings: { username: 'sharded', password, ssl } });
  await registry.ready();
  await deliverFrom(registry);
  await suiteOn(registry).openAccount(firstShard);
  await vi.waitFor(async () => {
    const connections = await encryption(server, 'sharded');
    expect(connections).toEqual(
      ['framework', 'framework delivery', 'framework leases', 'framework notifications'].map(
        (application_name) => ({ application_name, ssl: true }),
      ),
    );
  }, patience);
});

test.each([
  ['without a certificate', undefined, 'access-refused'],
  ['with the certificate of another role', { name: 'somebody' }, 'access-refused'],
])('a role is refused %s', async (_what, contents, kind) => {
  const server = await startTlsServer();
  await query(server.bareUrl, `create role sharded login superuser password '${password}'`);
  await server.allow('hostssl all sharded 127.0.0.1/32 scram-sha-256 clientcert=verify-full');
  const files = contents && (await server.issue(contents));
  const own = files && { 'cert-file': files.certFile, 'key-file': files.keyFile };
  const ssl = { 'ca-file': server.caFile, ...own };
  const registry = open({ url: server.bareUrl, settings: { username: 'sharded', password, ssl } });
  await expect
    .poll(() => reasonOf(registry))
    .toMatchObject({ kind, message: expect.stringMatching(/certificate|for user "sharded"/) as string });
});

test('a database with TLS in its URL and in its keys is refused', () => {
  const url = 'postgres://127.0.0.1/x?sslmode=verify-full';
  expect(() => open({ url, settings: { ssl: {} } })).toThrow(
    /jdbc-url: has parameters about TLS beside the section ssl/,
  );
});

test.each([
  [{ mode: 'require' }, 'ssl.mode: must be one of verify-full, no-verify, disable'],
  [{ 'cert-file': '/client.crt' }, 'ssl: must have both cert-file and key-file, or neither'],
  [{ mode: 'no-verify', 'ca-file': '/ca.crt' }, 'ssl: has a ca-file, which only verify-full reads'],
  [{ 'ca-files': '/ca.crt' }, 'ssl.ca-files: is not a known key'],
])('a section of TLS is refused as %j', (ssl, message) => {
  const members = [{ group: 0, member: 0, url: 'postgres://127.0.0.1/x', settings: { ssl } }];
  expect(() => shardingConfig(members)).toThrow(message);
});

function open({ url, settings }: { readonly url: string; readonly settings: object }): DatabaseRegistry {
  return openRegistry([{ group: 0, member: 0, url, settings: { ...settings } }], {
    migrationsFolder,
    onWarning: () => undefined,
  });
}

/** Why the database of a registry is not ready, as its status says now. */
async function reasonOf(registry: DatabaseRegistry): Promise<unknown> {
  const [status] = await registry.status();
  return status?.reason;
}

function tlsRefused(message: RegExp): object {
  return { kind: 'tls-refused', message: expect.stringMatching(message) as string };
}

/** The connections of a role to the database of the test, and whether they are encrypted. */
function encryption({ bareUrl }: TlsServer, role = 'postgres'): Promise<readonly object[]> {
  const text = `select distinct application_name, ssl from pg_stat_activity join pg_stat_ssl using (pid)
                where usename = $1 and application_name like 'framework%' order by 1`;
  return query(bareUrl, text, [role]);
}

/** Opens every kind of connection that delivery has. */
async function deliverFrom(registry: DatabaseRegistry): Promise<void> {
  const [delivery] = registry.deliveries();
  if (delivery === undefined) throw new Error('the registry has no database');
  const { store } = delivery;
  const unlisten = await store.notifications.listen(() => undefined);
  onTestFinished(() => unlisten());
  await store.leases.release('nobody');
  await store.partitions.drop(3_155_760_000_000);
}
