import { openDatabases, systemClock } from '@framework/core';
import type { ShardingConfig, SourceTarget } from '@framework/core/adapter';
import { migrateShards, postgres } from '@framework/drizzle-adapter';
import { EmbeddedPostgres } from '@framework/embedded-postgres';
import { TestPostgres } from '@framework/testing/postgres';
import { readFileSync } from 'node:fs';
import { expect, onTestFinished, test } from 'vitest';

import { migrationsFolder } from '../../drizzle-adapter/test/fixtures/migrations-folder.js';
import { query } from '../../drizzle-adapter/test/fixtures/query.js';
import { RoleLogins } from '../../drizzle-adapter/test/fixtures/role-logins.js';
import { shardingConfig } from '../../drizzle-adapter/test/fixtures/sharding-config.js';
import { startTlsServer } from '../../drizzle-adapter/test/fixtures/tls-server.js';
import { type EventSource, logicalReplication } from '../src/index.js';

test('a relay may stream the log once the migrator has published it and its user may replicate', async () => {
  const server = await EmbeddedPostgres.startTemporary({ settings: { fsync: 'off', wal_level: 'logical' } });
  onTestFinished(() => server.stop());
  const database = await new TestPostgres(server.url('postgres'), async () => undefined).createDatabase();
  const logins = await RoleLogins.migrated(database);
  const source = await openSource(logins.shardingAs('relay'));
  const reasonIs = (reason: RegExp): Promise<void> =>
    expect
      .poll(() => source.states)
      .toMatchObject([{ kind: 'by-cursor', reason: expect.stringMatching(reason) as string }]);
  await reasonIs(/give the role the attribute REPLICATION/);
  await query(database.url, `alter role ${logins.prefix}_relay_user replication`);
  await reasonIs(/refuses to create the publication framework_events .*: give the role/);
  const page = readFileSync(new URL('../../../docs/operations/database-roles.md', import.meta.url), 'utf8');
  const [publication = ''] = /^create publication .*;$/m.exec(page) ?? [];
  await query(logins.urlAs('migrator'), publication);
  await expect.poll(() => source.states).toMatchObject([{ kind: 'streaming' }]);
});

test('a stream is encrypted, and shows the certificate of its role', async () => {
  const server = await startTlsServer({ wal_level: 'logical' });
  const password = 'Tr0ub4dor-and-3-secrets';
  await query(server.bareUrl, `create role sharded login superuser replication password '${password}'`);
  await server.allow('hostssl all sharded 127.0.0.1/32 scram-sha-256 clientcert=verify-full');
  await server.allow('hostnossl all sharded 127.0.0.1/32 reject');
  const { certFile, keyFile } = await server.issue({ name: 'sharded' });
  const ssl = { 'ca-file': server.caFile, 'cert-file': certFile, 'key-file': keyFile };
  const settings = { username: 'sharded', password, ssl };
  const sharding = shardingConfig([{ group: 0, member: 0, url: server.bareUrl, settings }]);
  await migrateShards(sharding, migrationsFolder);
  const source = await openSource(sharding);
  await expect.poll(() => source.states).toMatchObject([{ kind: 'streaming' }]);
  const streams = `select distinct ssl from pg_stat_activity join pg_stat_ssl using (pid)
                   where usename = 'sharded' and application_name = 'framework stream of notify'`;
  expect(await query(server.bareUrl, streams)).toEqual([{ ssl: true }]);
});

/** Opens the migrated database of a configuration, and streams its log to one handler; closed when the test is over. */
async function openSource(sharding: ShardingConfig): Promise<EventSource> {
  const databases = openDatabases(sharding, postgres({ migrate: 'check', migrationsFolder }));
  onTestFinished(() => databases.close());
  await databases.ready();
  const [delivery] = databases.deliveries();
  if (delivery === undefined) throw new Error('The configuration has no database');
  const target: SourceTarget = {
    ...delivery,
    handler: 'notify',
    clock: systemClock,
    eventBytesMax: 10_000,
    checkMs: 200,
    onCommitted: () => undefined,
    onError: () => undefined,
  };
  const source = logicalReplication();
  const feed = source.open(target);
  onTestFinished(() => feed.close());
  return source;
}
