import type { ConfiguredDatabase, ShardIdentifier, ShardingConfig } from '@framework/core';
import { HoldingsChange, type Trial, holdersIn } from './holdings-change.js';
import type { ShardRelease } from './release-shards.js';
import { adopt, release } from './shards-table.js';

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
 * @throws UnknownShardException `unknown-shard` when a shard is not configured; then nothing is changed
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
