import type { ConfiguredDatabase, ShardIdentifier, ShardingConfig } from '@framework/core';
import { HoldingsChange, type Trial, holdersIn } from './holdings-change.js';
import { type ShardNotes, adopt, namedShards, release, shardNotes } from './shards-table.js';

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
 * @throws UnknownShardException `unknown-shard` when a shard is not configured; then nothing is changed
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
