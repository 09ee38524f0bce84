import {
  type ConfiguredDatabase,
  DatabaseNotReadyError,
  type ShardIdentifier,
  primaryConfig,
} from '@framework/core';
import pg from 'pg';
import type { ConnectionGuard } from '../connection/connection-guard.js';
import { inShortTransaction } from './in-database.js';
import { type OperatorCommands, defaultCommands } from './operator-commands.js';
import { type ShardNotes, adopt, changingShards, namedShards, shardNotes } from './shards-table.js';

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
