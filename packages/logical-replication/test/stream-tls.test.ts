import { openDatabases } from '@framework/core';
import { postgres } from '@framework/drizzle-adapter';
import { expect, onTestFinished, test } from 'vitest';

import { query } from '../../drizzle-adapter/test/fixtures/query.js';
import { shardingConfig } from '../../drizzle-adapter/test/fixtures/sharding-config.js';
import { startTlsServer } from '../../drizzle-adapter/test/fixtures/tls-server.js';
import { logicalReplication } from '../src/index.js';
import { openFeeds } from './open-feeds.js';

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
  const databases = openDatabases(sharding, postgres());
  onTestFinished(() => databases.close());
  await databases.ready();
  const source = logicalReplication();
  openFeeds(databases, source);
  await expect.poll(() => source.states).toMatchObject([{ kind: 'streaming' }]);
  const streams = `select distinct ssl from pg_stat_activity join pg_stat_ssl using (pid)
                   where usename = 'sharded' and application_name = 'framework stream of notify'`;
  expect(await query(server.bareUrl, streams)).toEqual([{ ssl: true }]);
});
