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
    const holds = (database: ConfiguredDatabase, shard: ShardIdentifier): boolean =>
      change.holdings.get(database)?.held.includes(shard) === true;
    const moving = wanted.filter((shard) =>
      databases.some((database) => adoptedBy(database).includes(shard) && !holds(database, shard)),
    );
    const adoptions: ShardAdoption[] = [];
    // First of all, so that no two databases hold a shard.
    for (const database of databases) {
      const others = releasedBy(database);
      const sessionsLeft = await change.release(database, others, moving);
      const released = others.filter((shard) => holds(database, shard));
      adoptions.push({
        database: database.config.path,
        adopted: adoptedBy(database),
        released,
        sessionsLeft,
      });
    }
    for (const database of databases) {
      const adopted = adoptedBy(database);
      // Opened for the first time, it would hold everything that the configuration puts there.
      const isFirst = change.holdings.get(database) === undefined;
      if (adopted.length > 0)
        await change.adopt(database, isFirst ? database.shards : adopted, { onlyFirst: false });
    }
    return adoptions.filter((each) => each.adopted.length > 0 || each.released.length > 0);
  });
}
