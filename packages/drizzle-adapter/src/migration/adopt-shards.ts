import {
  type ShardIdentifier,
  type ShardingConfig,
  UnknownShardException,
  configuredDatabases,
  primaryConfig,
} from '@framework/core';
import { changingHoldings, releaseFrom, within } from './change-holdings.js';
import type { ShardRelease } from './release-shards.js';
import { adopt } from './shards-table.js';

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
 * `releaseShards`. All databases of the configuration must be there: nothing is changed
 * otherwise, or while somebody else changes which shards they hold. When it fails later, a shard may be released and not adopted
 * yet: then it is refused everywhere, until this is called again.
 *
 * @returns what was changed, in the order of the configuration
 * @throws UnknownShardException `unknown-shard` when a shard is not configured; then nothing is changed
 * @throws Error which database it is when one cannot be reached or is not migrated; its cause says why
 */
export async function adoptShards(
  sharding: ShardingConfig,
  shards: readonly ShardIdentifier[],
): Promise<readonly ShardAdoption[]> {
  const databases = configuredDatabases(sharding).filter(({ config }) => config.name === primaryConfig);
  for (const shard of shards)
    if (!databases.some((database) => database.shards.includes(shard)))
      throw new UnknownShardException(shard);
  return changingHoldings(databases, async (holdings) => {
    const moving = shards.filter((shard) =>
      databases.some((each) => each.shards.includes(shard) && !holdings.get(each)?.held.includes(shard)),
    );
    const adoptions: ShardAdoption[] = [];
    // First of all, so that no two databases hold a shard.
    for (const database of databases) {
      const others = shards.filter((shard) => !database.shards.includes(shard));
      const released = others.filter((shard) => holdings.get(database)?.held.includes(shard));
      const sessionsLeft = await releaseFrom(database, others, moving);
      const adopted = shards.filter((shard) => database.shards.includes(shard));
      adoptions.push({ database: database.config.path, adopted, released, sessionsLeft });
    }
    for (const [index, database] of databases.entries()) {
      // Opened for the first time, it would hold everything that the configuration puts there.
      const isFirst = holdings.get(database) === undefined;
      const adopted = adoptions[index]?.adopted ?? [];
      if (adopted.length > 0)
        await within(database, (client) =>
          adopt(client, isFirst ? database.shards : adopted, { onlyFirst: false }),
        );
    }
    return adoptions.filter((each) => each.adopted.length > 0 || each.released.length > 0);
  });
}
