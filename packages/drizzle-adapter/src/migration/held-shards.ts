import { type OperatorCommands, defaultCommands } from '../connection/postgres-options.js';
import { DatabaseNotReadyError, ShardIdentifier } from '@framework/core';
import { type ConfiguredDatabase, primaryConfig } from '@framework/core/adapter';
import pg from 'pg';

import type { ConnectionGuard } from '../connection/client.js';
import { inShortTransaction } from './in-database.js';

/** SQLSTATEs of a database that is not migrated yet: no such schema, or table. */
const unmigratedStates = new Set(['3F000', '42P01']);

/**
 * Compares the shards that a database holds with those that the configuration puts there, so that nothing is read or
 * written where another shard is.
 *
 * A database notes which shards it holds when it is opened first. Later, the configuration may put fewer there, as that of
 * a process does which does not know all of them yet; more are refused until an operator adopts them, see `adoptShards`. What an
 * operator released, see `releaseShards`, is refused as well.
 */
export class HeldShards implements ConnectionGuard {
  readonly #database: ConfiguredDatabase;
  readonly #adoptCommand: Required<OperatorCommands>['adopt'];

  constructor(database: ConfiguredDatabase, commands: OperatorCommands = {}) {
    this.#database = database;
    this.#adoptCommand = commands.adopt ?? defaultCommands.adopt;
  }

  /** Asks when the database is opened, which notes what it holds when it has not been told of any shard yet. */
  get whenOpening(): ConnectionGuard {
    return { ensure: (client) => this.#ensure(client, notesInTime, () => this.#adoptFirst(client)) };
  }

  /**
   * Asks a database that was opened before. A database that is no member's `primary-config` may hold anything.
   *
   * @throws DatabaseNotReadyError `other-shards` when the database does not hold what the configuration puts there,
   * `not-migrated` when it notes nothing, so that it cannot be the one that was opened
   * @throws errors of `pg`
   */
  ensure(client: pg.ClientBase): Promise<void> {
    return this.#ensure(client, shardNotes, () => {
      throw new DatabaseNotReadyError('not-migrated', {
        what: 'the database notes no shard, so it is not the one that was opened',
        remedy: 'correct the jdbc-url; or, while it is being restored, wait until that has ended',
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
      // Then it holds nothing that could be another's.
      if (!(error instanceof pg.DatabaseError && unmigratedStates.has(error.code ?? ''))) throw error;
    }
  }

  /** Notes which shards the database holds, unless another process was faster. */
  async #adoptFirst(client: pg.ClientBase): Promise<ShardNotes> {
    await changingShards(client, () => adopt(client, this.#database.shards, { onlyFirst: true }));
    return (await shardNotes(client)) ?? { held: [], released: [] };
  }

  #refusal({ held, released }: ShardNotes, missing: readonly ShardIdentifier[]): DatabaseNotReadyError {
    const { shards } = this.#database;
    const gone = missing.filter((shard) => released.includes(shard));
    const holds = `${namedShards(held)}${gone.length > 0 ? `, and ${namedShards(gone)} no more` : ''}`;
    const moved = gone.length > 0 ? 'start this process with the configuration after the move; or ' : '';
    return new DatabaseNotReadyError('other-shards', {
      what: `the database holds ${holds}, while the configuration puts ${namedShards(shards)} there`,
      remedy:
        `${moved}correct the jdbc-url; or, if ${namedShards(missing)} is to be in this database from now on, adopt it with ` +
        this.#adoptCommand(missing),
      cause: undefined,
    });
  }
}

/** For a connection whose statements have no deadline. */
function notesInTime(client: pg.ClientBase): Promise<ShardNotes | undefined> {
  return inShortTransaction(client, () => shardNotes(client));
}

interface ShardRow {
  readonly shard_group: number;
  readonly shard_member: number;
}

/** What a database notes of shards, each list in order. */
export interface ShardNotes {
  readonly held: readonly ShardIdentifier[];
  /** Those that it held once, and does not hold any more. */
  readonly released: readonly ShardIdentifier[];
}

/** What a database notes of shards; `undefined` when it has not been told of any yet. */
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

/** Runs the work in a short transaction, in which nobody else changes which shards the database holds. */
export function changingShards(client: pg.ClientBase, work: () => Promise<void>): Promise<void> {
  return inShortTransaction(client, async () => {
    await client.query(`select pg_advisory_xact_lock(hashtextextended('eventlog.shards', 0))`);
    await work();
  });
}

/**
 * Notes that a database holds shards; to be called while nobody else changes them, see {@link changingShards}.
 *
 * @param onlyFirst only when it has not been told of any yet; where it has a log already, it has always held them
 */
export async function adopt(
  client: pg.ClientBase,
  shards: readonly ShardIdentifier[],
  { onlyFirst }: { readonly onlyFirst: boolean },
): Promise<void> {
  await client.query(
    `insert into eventlog.shards as s (shard_group, shard_member, adopted_date)
     select shard_group, shard_member,
       case when $3 and exists (select from eventlog.events) then '-infinity' else clock_timestamp() end
     from unnest($1::smallint[], $2::smallint[]) as given (shard_group, shard_member)
     where not $3 or not exists (select from eventlog.shards)
     on conflict (shard_group, shard_member) do update set adopted_date = clock_timestamp(), released_date = null
       where s.released_date is not null`,
    [...columnsOf(shards), onlyFirst],
  );
}

/**
 * Notes that a database does not hold shards any more, and gives those that it has a note of, also when it released them before;
 * to be called while nobody else changes them.
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

/** Such as `shard (0, 0) and shard (0, 1)`. */
export function namedShards(shards: readonly ShardIdentifier[]): string {
  return shards.length === 0 ? 'no shard' : shards.toSorted(ShardIdentifier.compare).join(' and ');
}

function shardOf({ shard_group: group, shard_member: member }: ShardRow): ShardIdentifier {
  return ShardIdentifier.of(group, member);
}

function columnsOf(shards: readonly ShardIdentifier[]): [number[], number[]] {
  return [shards.map(({ group }) => group), shards.map(({ member }) => member)];
}
