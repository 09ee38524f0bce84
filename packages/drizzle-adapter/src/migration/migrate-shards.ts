import { type ShardingConfig, primaryConfig } from '@framework/core';
import { printWarning } from '../connection/postgres-options.js';
import { EpochGuard } from '../delivery/epoch-guard.js';
import { migrateDatabase } from './migrate-database.js';
import { replaceDeliveryIndex } from './replace-delivery-index.js';

/**
 * Migrates the databases of all shards one after the other, for a job of its own; see `migrateOnOpen`.
 *
 * @param migrationsFolder the application's migrations, as `drizzle-kit generate` writes them
 * @throws errors of `pg` and of Drizzle's migrator as they are; the databases before the failing one are migrated
 */
export async function migrateShards(sharding: ShardingConfig, migrationsFolder?: string): Promise<void> {
  const configs = sharding.members.map(({ databases }) => databases.get(primaryConfig));
  for (const config of configs) {
    if (config === undefined) continue;
    const epochs = new EpochGuard(config.path, printWarning);
    const { hasEarlierIndex } = await migrateDatabase(config, migrationsFolder, { epochs });
    if (hasEarlierIndex) await replaceDeliveryIndex(config, new AbortController().signal);
  }
}
