import type { ShardIdentifier } from '@framework/core';
import {
  type ConfiguredDatabase,
  type ShardingConfig,
  configuredDatabases,
  primaryConfig,
} from '@framework/core/adapter';

import { type OperatorCommands, defaultCommands, printWarning } from '../connection/postgres-options.js';
import { EpochGuard } from '../delivery/pg-handler-cursors.js';
import { HeldShards, type ShardNotes, adopt, namedShards, release, shardNotes } from './held-shards.js';
import { HoldingsChange, type Trial, holdersIn } from './holdings-change.js';
import { namingDatabase } from './in-database.js';
import { migrateDatabase } from './migrate-database.js';
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

/** What became of one database when shards were adopted. */
export interface ShardAdoption extends ShardRelease {
  /** The shards that it holds from now on; it may have held them before. */
  readonly adopted: readonly ShardIdentifier[];
}

/**
 * Lets the databases that the configuration names for shards hold them from now on, and no other database of the
 * configuration: for operators, after a shard was moved to another database, or was put into one that holds others.
 *
 * Moves no rows. Ends all sessions of the databases that release a shard, so that processes with the configuration before are
 * refused when they connect again; the others go on. A database that is not in the configuration any more releases nothing: see
 * `releaseShards`. All databases of the configuration must be there and take the change: nothing is changed
 * otherwise, or while somebody else changes which shards they hold. When it fails later, a shard may be released and not adopted
 * yet: then it is refused everywhere, until this is called again.
 *
 * @returns what was changed, in the order of the configuration
 * @throws UnknownShardError `unknown-shard` when a shard is not configured; then nothing is changed
 * @throws Error which database it is when one cannot be reached or is not migrated; its cause says why
 */
export async function adoptShards(
  sharding: ShardingConfig,
  shards: readonly ShardIdentifier[],
): Promise<readonly ShardAdoption[]> {
  const wanted = [...new Set(shards)];
  const databases = holdersIn(sharding, wanted);
  const adoptedBy = ({ shards: those }: ConfiguredDatabase): readonly ShardIdentifier[] =>
    wanted.filter((shard) => those.includes(shard));
  const releasedBy = ({ shards: those }: ConfiguredDatabase): readonly ShardIdentifier[] =>
    wanted.filter((shard) => !those.includes(shard));
  const trial: Trial = async (client, database) => {
    await release(client, releasedBy(database));
    await adopt(client, adoptedBy(database), { onlyFirst: false });
  };
  return HoldingsChange.run(databases, trial, async (change) => {
    const adoptions: ShardAdoption[] = [];
    // First of all, so that no two databases hold a shard.
    for (const database of databases) {
      const others = releasedBy(database);
      const holdings = change.holdings.get(database);
      // Whoever opens it first would have it hold all that his configuration puts there, which may be the one before.
      if (holdings === undefined)
        await change.adopt(
          database,
          database.shards.filter((shard) => !wanted.includes(shard)),
          { onlyFirst: true },
        );
      const sessionsLeft = await change.release(database, others);
      adoptions.push({
        database: database.config.path,
        adopted: adoptedBy(database),
        released: others.filter((shard) => holdings?.held.includes(shard)),
        sessionsLeft,
      });
    }
    for (const database of databases) await change.adopt(database, adoptedBy(database), { onlyFirst: false });
    return adoptions.filter(({ adopted, released, sessionsLeft }) =>
      [adopted, released, sessionsLeft].some(({ length }) => length > 0),
    );
  });
}

/** What became of one database when shards were released. */
export interface ShardRelease {
  /** Where the database stands in the configuration. */
  readonly database: string;
  /** The shards that it held and does not hold any more. */
  readonly released: readonly ShardIdentifier[];
  /**
   * The sessions that could not be ended where shards were released, such as those of a role that this one may not end. Processes
   * with the configuration before may write by them for as long as their connections live, `max-lifetime`: end them.
   */
  readonly sessionsLeft: readonly string[];
}

/**
 * Lets the databases that the configuration names for shards not hold them any more: for operators, before the rows of a shard are
 * moved to another database, with the configuration before the move.
 *
 * Ends all sessions of those databases. From then on, every process with this configuration is refused by them (`other-shards`), with
 * all shards that it has there, also one that starts later. They adopt no shard by themselves: `adoptShards` with this configuration
 * takes the shards back. Other databases of the configuration are not asked. Nothing is changed while one that is asked cannot be
 * reached, never held the shard, or is changed by somebody else. Called again, it ends the sessions again.
 *
 * @returns what was changed, in the order of the configuration
 * @throws UnknownShardError `unknown-shard` when a shard is not configured; then nothing is changed
 * @throws Error which database it is when one cannot be reached, is not migrated, or never held the shard
 */
export async function releaseShards(
  sharding: ShardingConfig,
  shards: readonly ShardIdentifier[],
): Promise<readonly ShardRelease[]> {
  const releasedBy = ({ shards: those }: ConfiguredDatabase): readonly ShardIdentifier[] =>
    those.filter((shard) => shards.includes(shard));
  const databases = holdersIn(sharding, shards).filter((database) => releasedBy(database).length > 0);
  const trial: Trial = async (client, database) => {
    refuseOthers(releasedBy(database), await shardNotes(client));
    await adopt(client, database.shards, { onlyFirst: true });
    await release(client, releasedBy(database));
  };
  return HoldingsChange.run(databases, trial, async (change) => {
    const releases: ShardRelease[] = [];
    for (const database of databases) {
      const released = releasedBy(database);
      // A database of the release before notes what it holds when it is opened: then the shards would be there again.
      if (change.holdings.get(database) === undefined)
        await change.adopt(database, database.shards, { onlyFirst: true });
      const sessionsLeft = await change.release(database, released);
      releases.push({ database: database.config.path, released, sessionsLeft });
    }
    return releases;
  });
}

/** The wrong database must not be taken for one that has released the shards. */
function refuseOthers(shards: readonly ShardIdentifier[], notes: ShardNotes | undefined): void {
  if (notes === undefined) return;
  const unknown = shards.filter((shard) => !notes.held.includes(shard) && !notes.released.includes(shard));
  if (unknown.length === 0) return;
  throw new Error(
    `the database holds ${namedShards(notes.held)}, and never held ${namedShards(unknown)}; nothing was changed: ` +
      'correct the jdbc-url',
  );
}
