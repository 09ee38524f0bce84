import { type OperatorCommands, defaultCommands } from '../connection/postgres-options.js';
import { ShardIdentifier } from '@framework/core';
import { type ConfiguredDatabase, DatabaseNotReadyError, primaryConfig } from '@framework/core/adapter';
import pg from 'pg';

import type { ConnectionGuard } from '../connection/client.js';
import { inShortTransaction } from './in-database.js';

/** SQLSTATEs of a database that is not migrated yet: no such schema or table. */
const unmigratedStates = new Set(['3F000', '42P01']);

/**
 * Compares the shards that a database holds with those that the configuration assigns to it, so that nothing is read
 * from or written to the wrong database.
 *
 * A database records its shards when it is first opened. Later, a configuration may assign fewer shards to it, as in a
 * process that does not know all of them yet. It may not assign more until an operator has adopted them with
 * `adoptShards`, nor shards that an operator has released with `releaseShards`.
 */
export class OwnedShards implements ConnectionGuard {
  readonly #database: ConfiguredDatabase;
  readonly #adoptCommand: Required<OperatorCommands>['adopt'];

  constructor(database: ConfiguredDatabase, commands: OperatorCommands = {}) {
    this.#database = database;
    this.#adoptCommand = commands.adopt ?? defaultCommands.adopt;
  }

  /**
   * The check for a database that is being opened. It records the configured shards if the database has no record of
   * any shard yet.
   */
  get whenOpening(): ConnectionGuard {
    return { ensure: (client) => this.#ensure(client, notesInTime, () => this.#adoptFirst(client)) };
  }

  /**
   * Checks a database that has been opened before. Only a member's `primary-config` is checked.
   *
   * @throws DatabaseNotReadyError `other-shards` when the database does not hold a shard that the configuration assigns
   * to it; `not-migrated` when it has no record of shards, so it cannot be the database that was opened
   * @throws errors of `pg`
   */
  ensure(client: pg.ClientBase): Promise<void> {
    return this.#ensure(client, shardNotes, () => {
      throw new DatabaseNotReadyError('not-migrated', {
        what: 'the database has no record of its shards, so it is not the one that was opened',
        remedy: 'correct the jdbc-url or, if the database is being restored, wait for the restore to finish',
        cause: undefined,
      });
    });
  }

  async #ensure(
    client: pg.ClientBase,
    notesOf: typeof shardNotes,
    withoutNotes: () => Promise<ShardNotes>,
  ): Promise<void> {
    if (this.#database.config.name !== primaryConfig) return;
    try {
      const notes = (await notesOf(client)) ?? (await withoutNotes());
      const missing = this.#database.shards.filter((shard) => !notes.held.includes(shard));
      if (missing.length > 0) throw this.#refusal(notes, missing);
    } catch (error) {
      // Without the framework's tables, it holds nothing that could belong to another shard.
      if (!(error instanceof pg.DatabaseError && unmigratedStates.has(error.code ?? ''))) throw error;
    }
  }

  /** Records the shards that the database holds, unless another process has just done so. */
  async #adoptFirst(client: pg.ClientBase): Promise<ShardNotes> {
    await changingShards(client, () => adopt(client, this.#database.shards, { onlyFirst: true }));
    return (await shardNotes(client)) ?? { held: [], released: [] };
  }

  #refusal({ held, released }: ShardNotes, missing: readonly ShardIdentifier[]): DatabaseNotReadyError {
    const { shards } = this.#database;
    const gone = missing.filter((shard) => released.includes(shard));
    const holds = `${namedShards(held)}${gone.length > 0 ? `, and has released ${namedShards(gone)}` : ''}`;
    const moved = gone.length > 0 ? 'start this process with the configuration from after the move; or ' : '';
    return new DatabaseNotReadyError('other-shards', {
      what: `the database holds ${holds}, but the configuration assigns ${namedShards(shards)} to it`,
      remedy:
        `${moved}correct the jdbc-url; or, to keep ${namedShards(missing)} in this database from now on, run ` +
        this.#adoptCommand(missing),
      cause: undefined,
    });
  }
}

/** Reads the record with a limit on the wait for locks, because the connection has no statement timeout. */
function notesInTime(client: pg.ClientBase): Promise<ShardNotes | undefined> {
  return inShortTransaction(client, () => shardNotes(client));
}

interface ShardRow {
  readonly shard_group: number;
  readonly shard_member: number;
}

/** A database's record of its shards; both lists are sorted. */
export interface ShardNotes {
  readonly held: readonly ShardIdentifier[];
  /** Shards that it once held and no longer holds. */
  readonly released: readonly ShardIdentifier[];
}

/** Reads a database's record of its shards; `undefined` if it has none yet. */
export async function shardNotes(client: pg.ClientBase): Promise<ShardNotes | undefined> {
  const { rows } = await client.query<ShardRow & { held: boolean }>(
    `select shard_group, shard_member, released_date is null as held from eventlog.shards
     order by shard_group, shard_member`,
  );
  if (rows.length === 0) return undefined;
  return {
    held: rows.filter(({ held }) => held).map(shardOf),
    released: rows.filter(({ held }) => !held).map(shardOf),
  };
}

/**
 * Runs the work in a short transaction, with a lock that keeps others from changing which shards the database holds.
 */
export function changingShards(client: pg.ClientBase, work: () => Promise<void>): Promise<void> {
  return inShortTransaction(client, async () => {
    await client.query(`select pg_advisory_xact_lock(hashtextextended('eventlog.shards', 0))`);
    await work();
  });
}

/**
 * Records that a database holds shards. Call it within {@link changingShards}.
 *
 * @param onlyFirst whether to do so only if there is no record yet
 */
export async function adopt(
  client: pg.ClientBase,
  shards: readonly ShardIdentifier[],
  { onlyFirst }: { readonly onlyFirst: boolean },
): Promise<void> {
  await client.query(
    `insert into eventlog.shards as s (shard_group, shard_member)
     select * from unnest($1::smallint[], $2::smallint[]) as given (shard_group, shard_member)
     where not $3 or not exists (select from eventlog.shards)
     on conflict (shard_group, shard_member) do update set adopted_date = clock_timestamp(), released_date = null
       where s.released_date is not null`,
    [...columnsOf(shards), onlyFirst],
  );
}

/**
 * Records that a database no longer holds shards, and returns those that it has a record of, including those released
 * before. Call it within {@link changingShards}.
 */
export async function release(
  client: pg.ClientBase,
  shards: readonly ShardIdentifier[],
): Promise<readonly ShardIdentifier[]> {
  const { rows } = await client.query<ShardRow>(
    `update eventlog.shards s set released_date = coalesce(s.released_date, clock_timestamp())
     from unnest($1::smallint[], $2::smallint[]) as given (shard_group, shard_member)
     where (s.shard_group, s.shard_member) = (given.shard_group, given.shard_member)
     returning s.shard_group, s.shard_member`,
    columnsOf(shards),
  );
  return rows.map(shardOf);
}

/** Lists shards in words, such as `shard (0, 0) and shard (0, 1)`. */
export function namedShards(shards: readonly ShardIdentifier[]): string {
  return shards.length === 0 ? 'no shard' : shards.toSorted(ShardIdentifier.compare).join(' and ');
}

function shardOf({ shard_group: group, shard_member: member }: ShardRow): ShardIdentifier {
  return ShardIdentifier.of(group, member);
}

function columnsOf(shards: readonly ShardIdentifier[]): [number[], number[]] {
  return [shards.map(({ group }) => group), shards.map(({ member }) => member)];
}
