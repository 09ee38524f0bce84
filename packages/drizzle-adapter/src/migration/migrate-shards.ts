import { type ShardingConfig, configuredDatabases, primaryConfig } from '@framework/core';
import { printWarning } from '../connection/postgres-options.js';
import { EpochGuard } from '../delivery/epoch-guard.js';
import { HeldShards } from './held-shards.js';
import { namingDatabase } from './in-database.js';
import { migrateDatabase } from './migrate-database.js';
import { type OperatorCommands, defaultCommands } from './operator-commands.js';
import { replaceDeliveryIndex } from './replace-delivery-index.js';

/** What was applied to one database. */
export interface ShardMigration {
  /** Where the database stands in the configuration. */
  readonly database: string;
  /** The names of the migrations, and whose they are, in order; empty when none was missing. */
  readonly applied: readonly string[];
}

/**
 * Migrates the databases of all shards one after the other, for a job of its own; see `migrate` of the driver.
 *
 * @param migrationsFolder the application's migrations, as `drizzle-kit generate` writes them
 * @param commands what operators are told to do about what is refused
 * @throws Error which database it is; its cause is what `pg` or Drizzle's migrator said. The databases before are migrated
 */
export async function migrateShards(
  sharding: ShardingConfig,
  migrationsFolder?: string,
  commands: OperatorCommands = {},
): Promise<readonly ShardMigration[]> {
  const migrations: ShardMigration[] = [];
  for (const database of configuredDatabases(sharding)) {
    const { config } = database;
    if (config.name !== primaryConfig) continue;
    const guards = [
      new EpochGuard(config.path, printWarning),
      new HeldShards(database, commands).whenOpening,
    ];
    const warn = (kind: 'newer-schema' | 'log-partitions', message: string): void =>
      printWarning({ kind, database: config.path, message });
    const opening = {
      migrationsFolder,
      guards,
      migrateCommand: commands.migrate ?? defaultCommands.migrate,
      warn,
    };
    const { hasEarlierIndex, applied } = await namingDatabase(config, migrateDatabase(config, opening));
    if (hasEarlierIndex)
      await namingDatabase(config, replaceDeliveryIndex(config, new AbortController().signal));
    migrations.push({ database: config.path, applied });
  }
  return migrations;
}
