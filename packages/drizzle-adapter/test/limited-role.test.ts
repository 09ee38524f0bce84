import { openDatabases } from '@framework/core';
import { describeStorageAdapter } from '@framework/testing/conformance';
import { createTestDatabase } from '@framework/testing/postgres';
import { migrateShards, postgres } from '../src/index.js';
import { LimitedRole } from './fixtures/limited-role.js';
import { migrationsFolder } from './fixtures/migrations-folder.js';
import { PgFixture } from './fixtures/pg-fixture.js';
import { shardingConfig } from './fixtures/sharding-config.js';

describeStorageAdapter('PostgreSQL, as a role that owns nothing', openAsLimitedRole);

/** The fixture's databases, migrated by their owner and opened by a role with the grants of the guide. */
async function openAsLimitedRole(): Promise<PgFixture> {
  const [home, abroad] = await Promise.all([createTestDatabase(), createTestDatabase()]);
  const configOf = (urlOf: (database: typeof home) => string) =>
    shardingConfig([
      { group: 0, member: 0, url: urlOf(home) },
      { group: 0, member: 1, url: urlOf(home) },
      { group: 1, member: 0, url: urlOf(abroad) },
    ]);
  await migrateShards(
    configOf(({ url }) => url),
    migrationsFolder,
  );
  const role = await LimitedRole.create(home.url);
  for (const database of [home, abroad]) await role.grantIn(database);
  const databases = openDatabases(
    configOf((database) => role.urlOf(database)),
    postgres({ migrate: 'check', migrationsFolder }),
  );
  await databases.ready();
  return new PgFixture(databases, [{ drop: dropAll }]);

  async function dropAll(): Promise<void> {
    await role.drop(home.url);
    await Promise.all([home.drop(), abroad.drop()]);
  }
}
