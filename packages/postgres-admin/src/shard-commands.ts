import type { ShardIdentifier } from '@framework/core';
import type { ConfiguredDatabase, ShardingConfig } from '@framework/core/adapter';
import {
  type ShardRecord,
  namedShards,
  readShards,
  recordAdopted,
  recordReleased,
} from '@framework/drizzle-adapter/operation';

import { type DryRun, ShardOwnershipChange, primaryDatabases } from './shard-ownership-change.js';

/** How adopting shards changed one database. */
export interface ShardAdoption extends ShardRelease {
  /** The shards that it holds from now on. It may have held some of them before. */
  readonly adopted: readonly ShardIdentifier[];
}

/**
 * Assigns shards to the databases for which they are configured: from now on, no other database of the configuration holds
 * them. For operators, after a shard was moved to another database or added to one that holds others.
 *
 * Moves no rows. Ends all sessions of databases that release a shard, so that processes with the old configuration are
 * refused when they reconnect; other processes continue. A database that is no longer in the configuration releases
 * nothing: see `releaseShards`. Nothing is changed if one of the configured databases cannot be reached or refuses the
 * change, or while another operator is changing which shards it holds. After a later failure, a shard may be released and
 * not adopted yet. It is refused everywhere then, until this function is called again.
 *
 * @returns the changes, in the order of the configuration
 * @throws UnknownShardError `unknown-shard` when a shard is not configured; nothing is changed then
 * @throws Error naming the database that cannot be reached or is not migrated; its cause says why
 */
export async function adoptShards(
  sharding: ShardingConfig,
  shards: readonly ShardIdentifier[],
): Promise<readonly ShardAdoption[]> {
  const wanted = [...new Set(shards)];
  const databases = primaryDatabases(sharding, wanted);
  const adoptedBy = ({ shards: those }: ConfiguredDatabase): readonly ShardIdentifier[] =>
    wanted.filter((shard) => those.includes(shard));
  const releasedBy = ({ shards: those }: ConfiguredDatabase): readonly ShardIdentifier[] =>
    wanted.filter((shard) => !those.includes(shard));
  const dryRun: DryRun = async (client, database) => {
    await recordReleased(client, releasedBy(database));
    await recordAdopted(client, adoptedBy(database), { onlyFirst: false });
  };
  return ShardOwnershipChange.run(databases, dryRun, async (change) => {
    const adoptions: ShardAdoption[] = [];
    // All databases release before any adopts, so that no two databases hold a shard at the same time.
    for (const database of databases) {
      const others = releasedBy(database);
      const before = change.records.get(database);
      // Without a record, the next process to open it would assign all shards of its own, possibly old, configuration
      // to it.
      if (before === undefined)
        await change.adopt(
          database,
          database.shards.filter((shard) => !wanted.includes(shard)),
          { onlyFirst: true },
        );
      const sessionsLeft = await change.release(database, others);
      adoptions.push({
        database: database.config.path,
        adopted: adoptedBy(database),
        released: others.filter((shard) => before?.owned.includes(shard)),
        sessionsLeft,
      });
    }
    for (const database of databases) await change.adopt(database, adoptedBy(database), { onlyFirst: false });
    return adoptions.filter(({ adopted, released, sessionsLeft }) =>
      [adopted, released, sessionsLeft].some(({ length }) => length > 0),
    );
  });
}

/** How releasing shards changed one database. */
export interface ShardRelease {
  /** The database's path in the configuration. */
  readonly database: string;
  /** The shards that it held and no longer holds. */
  readonly released: readonly ShardIdentifier[];
  /**
   * Sessions that could not be ended in a database that released shards, such as those of a role that this one may not
   * end. End them yourself: until their connections reach `max-lifetime`, processes with the old configuration may
   * write through them.
   */
  readonly sessionsLeft: readonly string[];
}

/**
 * Makes the configured databases stop holding these shards. For operators, before the rows of a shard are moved to
 * another database; call it with the configuration from before the move.
 *
 * Ends all sessions of those databases. From then on they refuse every process with this configuration
 * (`other-shards`), for all shards that it has there, including processes that start later. They do not adopt the
 * shards again on their own: call `adoptShards` with this configuration to take the shards back. Other databases of the
 * configuration are not contacted. Nothing is changed if one of the databases cannot be reached, never held the shard,
 * or is being changed by another operator. Calling it again ends the sessions again.
 *
 * @returns the changes, in the order of the configuration
 * @throws UnknownShardError `unknown-shard` when a shard is not configured; nothing is changed then
 * @throws Error naming the database that cannot be reached, is not migrated, or never held the shard
 */
export async function releaseShards(
  sharding: ShardingConfig,
  shards: readonly ShardIdentifier[],
): Promise<readonly ShardRelease[]> {
  const releasedBy = ({ shards: those }: ConfiguredDatabase): readonly ShardIdentifier[] =>
    those.filter((shard) => shards.includes(shard));
  const databases = primaryDatabases(sharding, shards).filter((database) => releasedBy(database).length > 0);
  const dryRun: DryRun = async (client, database) => {
    refuseOthers(releasedBy(database), await readShards(client));
    await recordAdopted(client, database.shards, { onlyFirst: true });
    await recordReleased(client, releasedBy(database));
  };
  return ShardOwnershipChange.run(databases, dryRun, async (change) => {
    const releases: ShardRelease[] = [];
    for (const database of databases) {
      const released = releasedBy(database);
      // A database without a record of its shards would record all of them when it is next opened, including the
      // released ones.
      if (change.records.get(database) === undefined)
        await change.adopt(database, database.shards, { onlyFirst: true });
      const sessionsLeft = await change.release(database, released);
      releases.push({ database: database.config.path, released, sessionsLeft });
    }
    return releases;
  });
}

/** Refuses to release shards that the database never held, because it is then probably the wrong database. */
function refuseOthers(shards: readonly ShardIdentifier[], record: ShardRecord | undefined): void {
  if (record === undefined) return;
  const unknown = shards.filter((shard) => !record.owned.includes(shard) && !record.released.includes(shard));
  if (unknown.length === 0) return;
  throw new Error(
    `the database holds ${namedShards(record.owned)}, and never held ${namedShards(unknown)}; nothing was changed: ` +
      'correct the jdbc-url',
  );
}
