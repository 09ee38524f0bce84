import {
  type ConfiguredDatabase,
  type ShardIdentifier,
  type ShardingConfig,
  UnknownShardException,
  configuredDatabases,
  databasePlace,
  primaryConfig,
} from '@framework/core';
import type pg from 'pg';
import { isLockedOut } from '../connection/server-error.js';
import { refuseInRecovery } from '../connection/server-role.js';
import { endSessions } from './end-sessions.js';
import { inDatabase, namingDatabase } from './in-database.js';
import { adopt, changingShards, heldShards, release } from './shards-table.js';

/** How long an adoption may take. */
const lockKeptMs = 600_000;
const purpose = 'framework adoption';

/** What became of one database when shards were adopted. */
export interface ShardAdoption {
  /** Where the database stands in the configuration. */
  readonly database: string;
  /** The shards that it holds from now on; it may have held them before. */
  readonly adopted: readonly ShardIdentifier[];
  /** The shards that it held and does not hold any more. */
  readonly released: readonly ShardIdentifier[];
  /**
   * The sessions that could not be ended where shards were released, such as those of a role that this one may not end. Processes
   * with the configuration before may write by them for as long as their connections live, `max-lifetime`: end them.
   */
  readonly sessionsLeft: readonly string[];
}

/** What a database of the configuration holds before something is changed; `undefined` when it has not been told of any yet. */
type Holdings = ReadonlyMap<ConfiguredDatabase, readonly ShardIdentifier[] | undefined>;

/**
 * Lets the databases that the configuration names for shards hold them from now on, and no other database of the
 * configuration: for operators, after a shard was moved to another database, or was put into one that holds others.
 *
 * Moves no rows. Ends all sessions of the databases that release a shard, so that processes with the configuration before are
 * refused when they connect again; the others go on. All databases of the configuration must be there: nothing is changed
 * otherwise, or while somebody else adopts. When it fails later, a shard may be released and not adopted
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
  return lockingAll(databases, async (holdings) => {
    const moving = shards.filter((shard) =>
      databases.some((each) => each.shards.includes(shard) && !holdings.get(each)?.includes(shard)),
    );
    const adoptions: ShardAdoption[] = [];
    // First of all, so that no two databases hold a shard.
    for (const database of databases) {
      const others = shards.filter((shard) => !database.shards.includes(shard));
      const released = others.filter((shard) => holdings.get(database)?.includes(shard));
      const sessionsLeft = await releaseAll(database, others, moving);
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

/** Also ends the sessions where an earlier call released what is moving still, and went no further. */
async function releaseAll(
  database: ConfiguredDatabase,
  others: readonly ShardIdentifier[],
  moving: readonly ShardIdentifier[],
): Promise<readonly string[]> {
  if (others.length === 0) return [];
  return within(database, async (client) => {
    const noted = await release(client, others);
    return noted.some((shard) => moving.includes(shard)) ? endSessions(client, purpose) : [];
  });
}

/**
 * Runs the work while nobody else changes which shards the databases hold. Each one has a connection for that, which keeps its lock over
 * the several transactions of the work, also behind a pooler.
 */
async function lockingAll<Result>(
  databases: readonly ConfiguredDatabase[],
  work: (holdings: Holdings) => Promise<Result>,
): Promise<Result> {
  const done = Promise.withResolvers<void>();
  const keepers: Promise<unknown>[] = [];
  const holdings = new Map<ConfiguredDatabase, readonly ShardIdentifier[] | undefined>();
  try {
    // In one order, so that two operators do not wait for each other.
    for (const database of databases.toSorted(byPlace)) {
      const locked = Promise.withResolvers<void>();
      const keeper = within(database, (client) =>
        changingShards(client, async () => {
          // Whatever the role's settings are: the lock is kept without a statement, but not for a process that is gone.
          await client.query(`set local idle_in_transaction_session_timeout = ${lockKeptMs}`);
          holdings.set(database, await heldShards(client));
          locked.resolve();
          await done.promise;
        }).catch((error: unknown) => {
          if (!isLockedOut(error)) throw error;
          throw new Error(
            'somebody else changes which shards it holds; nothing was changed, try again later',
            {
              cause: error,
            },
          );
        }),
      );
      keepers.push(keeper);
      await Promise.race([locked.promise, keeper]);
    }
    return await work(holdings);
  } finally {
    done.resolve();
    await Promise.allSettled(keepers);
  }
}

function byPlace({ config: one }: ConfiguredDatabase, { config: other }: ConfiguredDatabase): number {
  return databasePlace(one.address) < databasePlace(other.address) ? -1 : 1;
}

function within<Result>(
  { config }: ConfiguredDatabase,
  work: (client: pg.Client) => Promise<Result>,
): Promise<Result> {
  const worked = async (client: pg.Client): Promise<Result> => {
    await refuseInRecovery(client);
    return work(client);
  };
  return namingDatabase(config, inDatabase(config, undefined, worked, purpose));
}
