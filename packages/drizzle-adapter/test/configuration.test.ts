import { openDatabases } from '@framework/core';
import { firstShard } from '@framework/conformance';
import { sql } from 'drizzle-orm';
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';

import { urlParameters } from '../src/connection/postgres-options.js';
import { migrateShards, postgres } from '../src/index.js';
import { pgManager } from '../src/pg-transaction-manager.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';
import { shardingConfig } from './fixtures/sharding-config.js';

describe('the configuration of a database', () => {
  test.each([
    ['pool sizes', { 'maximum-pool-size': 5 }],
    ['timeouts', { 'statement-timeout-ms': 5 }],
    ['passwords', { password: 'another' }],
  ])('is refused when two members name one database with different values of %s', async (_what, settings) => {
    const { url } = await emptyDatabase();
    const config = shardingConfig([
      { group: 0, member: 0, url },
      { group: 0, member: 1, url, settings },
    ]);
    expect(() => openDatabases(config, { open: () => closedDatabase })).toThrow(
      expect.objectContaining({
        code: 'invalid-configuration',
        faults: [
          expect.objectContaining({
            path: 'framework.sharding.groups[0].members[1].configs.primary-config',
          }),
        ],
      }) as Error,
    );
  });

  test('is refused when it has an unknown driver option', () => {
    expect(() => postgres({ migrationFolder: 'migrations' } as object)).toThrow(
      expect.objectContaining({
        code: 'invalid-configuration',
        faults: [expect.objectContaining({ path: 'postgres.migrationFolder' })],
      }) as Error,
    );
  });

  test.each([
    ['another database', 'mysql://db/x', {}, 'jdbc-url'],
    ['a schema in the way of another driver', 'postgresql://db/x?currentSchema=a', {}, 'jdbc-url'],
    ['another driver', 'postgresql://db/x', { 'driver-class-name': 'com.mysql.Driver' }, 'driver-class-name'],
  ])('is refused when it names %s', (_what, url, settings, key) => {
    const config = shardingConfig([{ group: 0, member: 0, url, settings }]);
    expect(() => openDatabases(config, postgres())).toThrow(
      expect.objectContaining({
        code: 'invalid-configuration',
        faults: [
          expect.objectContaining({
            path: `framework.sharding.groups[0].members[0].configs.primary-config.${key}`,
          }),
        ],
      }) as Error,
    );
  });

  test.each([
    ['sslmod=require', [/sslmod, .*ignored.*sslmode/]],
    ['SSLMODE=require', [/SSLMODE, .*ignored.*sslmode/]],
    ['sslmode=require&sslrootcrt=a&port=5', [/sslrootcrt, .*ignored.*sslrootcert/]],
    [
      'targetServerType=primary&aplication_name=x',
      [/targetServerType, .*ignored/, /aplication_name, .*ignored/],
    ],
    ['sslmode=requierd', [/sslmode.*disable, prefer, require, verify-ca, verify-full, no-verify/]],
    ['sslmode=', [/sslmode.*require/]],
    ['ssl=yes', [/ssl.*true/]],
    ['sslmode=require&sslmode=disable', [/sslmode .*more than once/]],
    ['host=db-1,db-2', [/several hosts/]],
    ['sslrootcert=', [/sslrootcert .*without a value/]],
    ['application=x#sslmode=require', [/application, .*ignored/, /#/]],
  ])('is refused as a whole when the URL says %s', (parameters, messages) => {
    const config = shardingConfig([{ group: 0, member: 0, url: `postgresql://127.0.0.1:1/x?${parameters}` }]);
    const path = 'framework.sharding.groups[0].members[0].configs.primary-config.jdbc-url';
    const faults = messages.map((message) => ({ path, message: expect.stringMatching(message) as string }));
    const refusal = expect.objectContaining({ code: 'invalid-configuration', faults }) as Error;
    expect(() => openDatabases(config, postgres())).toThrow(refusal);
  });

  test('does not reveal a part of a password that looks like a parameter', () => {
    const url = 'postgresql://127.0.0.1:1/x?user=ann&password=12&s3cret';
    const config = shardingConfig([{ group: 0, member: 0, url }]);
    const open = (): unknown => openDatabases(config, postgres());
    expect(open).toThrow(/parameter without a value/);
    expect(open).not.toThrow(/s3cret/);
  });

  test('is refused with an unknown parameter even by a job that only migrates', async () => {
    const { url } = await emptyDatabase();
    const config = shardingConfig([{ group: 0, member: 0, url: `${url}?sslmod=require` }]);
    await expect(migrateShards(config)).rejects.toMatchObject({ code: 'invalid-configuration' });
  });

  test('accepts the parameters that the reference lists, and the reference lists all that it accepts', async () => {
    const { url } = await emptyDatabase();
    const reference = readFileSync(
      new URL('../../../docs/reference/configuration.md', import.meta.url),
      'utf8',
    );
    const [, section = ''] = /^Parameters of the URL:\n\n(.*?)\n\n/ms.exec(reference) ?? [];
    const cells = [...section.matchAll(/^\| (`[^|]+)\|/gm)].map(([, cell = '']) => cell);
    const listed = [...cells.join().matchAll(/\w+/g)].map(([name]) => name);
    expect(listed.sort()).toEqual([...urlParameters.keys()].sort());
    const parameters = 'sslmode=disable&options=-c%20geqo%3Doff&lock_timeout=5000&ssl=false';
    const registry = openRegistry([{ group: 0, member: 0, url: `${url}?${parameters}` }]);
    await registry.ready();
    expect(await suiteOn(registry).openAccount(firstShard)).toMatchObject({ version: 1 });
  });

  test('accepts JDBC URLs and the name of the PostgreSQL driver', async () => {
    const { url } = await emptyDatabase();
    const settings = { 'driver-class-name': 'org.postgresql.Driver' };
    const registry = openRegistry([{ group: 0, member: 0, url: `jdbc:${url}`, settings }]);
    await registry.ready();
    expect(await suiteOn(registry).openAccount(firstShard)).toMatchObject({ version: 1 });
  });

  test('gives an additional named config its own transactions', async () => {
    const [primary, secondary] = await Promise.all([emptyDatabase(), emptyDatabase()]);
    const configs = {
      'secondary-config': { 'jdbc-url': secondary.url },
      'lock-config': { 'jdbc-url': primary.url },
    };
    const registry = openRegistry([{ group: 0, member: 0, url: primary.url, configs }]);
    await registry.ready();
    const names = await Promise.all(
      [undefined, 'secondaryConfig', 'lockConfig'].map(async (name) => {
        const manager = pgManager(registry.transactionManager(firstShard, name));
        expect(manager.shard).toBe(firstShard);
        const { rows } = await manager.inTransaction(() =>
          manager.db.execute<{ name: string }>(sql`select current_database() as name`),
        );
        return rows[0]?.name;
      }),
    );
    expect(names).toEqual([primary.database, secondary.database, primary.database]);
    expect(() => registry.transactionManager(firstShard, 'archiveConfig')).toThrow(
      expect.objectContaining({ code: 'invalid-configuration' }) as Error,
    );
  });

  test('does not migrate the database of an additional named config', async () => {
    const [primary, secondary] = await Promise.all([emptyDatabase(), emptyDatabase()]);
    const configs = { 'secondary-config': { 'jdbc-url': secondary.url } };
    await openRegistry([{ group: 0, member: 0, url: primary.url, configs }]).ready();
    const found = await query(secondary.url, `select to_regclass('eventlog.events')::text as found`);
    expect(found).toEqual([{ found: null }]);
  });

  test('lets transactions of two configs of one shard nest', async () => {
    const { url } = await emptyDatabase();
    const registry = openRegistry([
      { group: 0, member: 0, url, configs: { 'lock-config': { 'jdbc-url': url } } },
    ]);
    await registry.ready();
    const inner = registry.transactionManager(firstShard, 'lockConfig');
    const result = registry
      .transactionManager(firstShard)
      .inTransaction(() => inner.inTransaction(async () => 'both'));
    expect(await result).toBe('both');
  });
});

const closedDatabase = {
  delivery: undefined as never,
  transactionManager: () => undefined as never,
  ready: () => Promise.resolve(),
  ping: () => Promise.resolve(),
  close: () => Promise.resolve(),
};
