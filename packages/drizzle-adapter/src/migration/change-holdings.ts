import { type ConfiguredDatabase, type ShardIdentifier, databasePlace } from '@framework/core';
import type pg from 'pg';
import { isLockedOut } from '../connection/server-error.js';
import { refuseInRecovery } from '../connection/server-role.js';
import { endSessions } from './end-sessions.js';
import { inDatabase, namingDatabase } from './in-database.js';
import { type ShardNotes, changingShards, release, shardNotes } from './shards-table.js';

/** How long a change may take. */
const lockKeptMs = 600_000;
const purpose = 'framework shards';

/** What databases note of shards before something is changed; `undefined` of one that has not been told of any yet. */
export type Holdings = ReadonlyMap<ConfiguredDatabase, ShardNotes | undefined>;

/**
 * Runs the work while nobody else changes which shards the databases hold. Each one has a connection for that, which keeps its lock over
 * the several transactions of the work, also behind a pooler.
 *
 * @throws Error which database it is when one cannot be reached, is not migrated, or is changed by somebody else; its cause says why
 */
export async function changingHoldings<Result>(
  databases: readonly ConfiguredDatabase[],
  work: (holdings: Holdings) => Promise<Result>,
): Promise<Result> {
  const done = Promise.withResolvers<void>();
  const keepers: Promise<unknown>[] = [];
  const holdings = new Map<ConfiguredDatabase, ShardNotes | undefined>();
  try {
    // In one order, so that two operators do not wait for each other.
    for (const database of databases.toSorted(byPlace)) {
      const locked = Promise.withResolvers<void>();
      const keeper = within(database, (client) =>
        changingShards(client, async () => {
          // Whatever the role's settings are: the lock is kept without a statement, but not for a process that is gone.
          await client.query(`set local idle_in_transaction_session_timeout = ${lockKeptMs}`);
          holdings.set(database, await shardNotes(client));
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

/**
 * Lets a database not hold shards any more, and ends its sessions when it has a note of one of those that move: also where an
 * earlier call released it and went no further.
 *
 * @returns the sessions that could not be ended
 */
export async function releaseFrom(
  database: ConfiguredDatabase,
  shards: readonly ShardIdentifier[],
  moving: readonly ShardIdentifier[],
): Promise<readonly string[]> {
  if (shards.length === 0) return [];
  return within(database, async (client) => {
    const noted = await release(client, shards);
    return noted.some((shard) => moving.includes(shard)) ? endSessions(client, purpose) : [];
  });
}

/** Runs the work on a connection of its own to a database that leads; names the database when it fails. */
export function within<Result>(
  { config }: ConfiguredDatabase,
  work: (client: pg.Client) => Promise<Result>,
): Promise<Result> {
  const worked = async (client: pg.Client): Promise<Result> => {
    await refuseInRecovery(client);
    return work(client);
  };
  return namingDatabase(config, inDatabase(config, undefined, worked, purpose));
}

function byPlace({ config: one }: ConfiguredDatabase, { config: other }: ConfiguredDatabase): number {
  return databasePlace(one.address) < databasePlace(other.address) ? -1 : 1;
}
