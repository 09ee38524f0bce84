import { type ShardingConfig, configuredDatabases, primaryConfig } from '@framework/core/adapter';

import { parsePostgresAddress } from '../connection/postgres-address.js';
import { type OperatorCommands, defaultCommands, printWarning } from '../connection/postgres-options.js';
import { EpochGuard } from '../delivery/pg-handler-cursors.js';
import { namingDatabase } from './in-database.js';
import { migrateDatabase } from './migrate-database.js';
import { OwnedShards } from './owned-shards.js';

/** The migrations that were applied to one database. */
export interface ShardMigration {
  /** The database's path in the configuration. */
  readonly database: string;
  /** The migrations by name and owner, in order; empty if none was missing. */
  readonly applied: readonly string[];
}

/**
 * Migrates the databases of all shards one after the other. For a separate deployment step; see `migrate` of the
 * driver.
 *
 * @param migrationsFolder the application's migrations, as `drizzle-kit generate` writes them
 * @param commands the commands that error messages suggest to operators
 * @throws Error naming the database, with the error of `pg` or Drizzle's migrator as its cause. The databases before it
 * have been migrated
 */
export async function migrateShards(
  sharding: ShardingConfig,
  migrationsFolder?: string,
  commands: OperatorCommands = {},
): Promise<readonly ShardMigration[]> {
  const migrations: ShardMigration[] = [];
  for (const database of configuredDatabases(sharding, { parseAddress: parsePostgresAddress })) {
    const { config } = database;
    if (config.name !== primaryConfig) continue;
    const guards = [
      new EpochGuard(config.path, printWarning),
      new OwnedShards(database, commands).whenOpening,
    ];
    const warn = (kind: 'newer-schema' | 'log-partitions', message: string): void =>
      printWarning({ kind, database: config.path, message });
    const opening = {
      migrationsFolder,
      guards,
      migrateCommand: commands.migrate ?? defaultCommands.migrate,
      warn,
    };
    const applied = await namingDatabase(config, migrateDatabase(config, opening));
    migrations.push({ database: config.path, applied });
  }
  return migrations;
}
