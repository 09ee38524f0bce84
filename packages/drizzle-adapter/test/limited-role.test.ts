// @module-tag postgres
import { openDatabases } from '@framework/core';
import { describeStorageAdapter } from '@framework/conformance';
import { createTestDatabase } from '@framework/testing/postgres';
import { migrateShards, postgres } from '../src/index.js';
import { LimitedRole } from './fixtures/limited-role.js';
import { migrationsFolder } from './fixtures/migrations-folder.js';
import { PgFixture } from './fixtures/pg-fixture.js';
import { shardingConfig } from './fixtures/sharding-config.js';

describeStorageAdapter('PostgreSQL, as a role that owns nothing', openAsLimitedRole);

/** The fixture's databases, migrated by their owner and opened by a role with the grants in the guide. */
async function openAsLimitedRole(): Promise<PgFixture> {
  const [firstShard, otherDatabaseShard] = await Promise.all([createTestDatabase(), createTestDatabase()]);
  const configOf = (urlOf: (database: typeof firstShard) => string) =>
    shardingConfig([
      { group: 0, member: 0, url: urlOf(firstShard) },
      { group: 0, member: 1, url: urlOf(firstShard) },
      { group: 1, member: 0, url: urlOf(otherDatabaseShard) },
    ]);
  await migrateShards(
    configOf(({ url }) => url),
    migrationsFolder,
  );
  const role = await LimitedRole.create(firstShard.url);
  for (const database of [firstShard, otherDatabaseShard]) await role.grantIn(database);
  const databases = openDatabases(
    configOf((database) => role.urlOf(database)),
    postgres({ migrate: 'check', migrationsFolder }),
  );
  await databases.ready();
  return new PgFixture(databases, [{ drop: dropAll }]);

  async function dropAll(): Promise<void> {
    await role.drop(firstShard.url);
    await Promise.all([firstShard.drop(), otherDatabaseShard.drop()]);
  }
}
