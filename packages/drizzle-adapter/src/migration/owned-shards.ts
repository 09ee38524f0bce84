import type { ShardIdentifier } from '@framework/core';
import { type ConfiguredDatabase, DatabaseNotReadyError, primaryConfig } from '@framework/core/adapter';
import pg from 'pg';

import type { ConnectionGuard } from '../connection/client.js';
import { type OperatorCommands, defaultCommands } from '../connection/postgres-options.js';
import { inShortTransaction } from './in-database.js';
import { type ShardRecord, lockingShards, namedShards, readShards, recordAdopted } from './shard-record.js';

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
    return { ensure: (client) => this.#ensure(client, readWithTimeout, () => this.#adoptFirst(client)) };
  }

  /**
   * Checks a database that has been opened before. Only a member's `primary-config` is checked.
   *
   * @throws DatabaseNotReadyError `other-shards` when the database does not hold a shard that the configuration assigns
   * to it; `not-migrated` when it has no record of shards, so it cannot be the database that was opened
   * @throws errors of `pg`
   */
  ensure(client: pg.ClientBase): Promise<void> {
    return this.#ensure(client, readShards, () => {
      throw new DatabaseNotReadyError('not-migrated', {
        what: 'the database has no record of its shards, so it is not the one that was opened',
        remedy: 'correct the jdbc-url or, if the database is being restored, wait for the restore to finish',
        cause: undefined,
      });
    });
  }

  async #ensure(
    client: pg.ClientBase,
    read: typeof readShards,
    withoutRecord: () => Promise<ShardRecord>,
  ): Promise<void> {
    if (this.#database.config.name !== primaryConfig) return;
    try {
      const record = (await read(client)) ?? (await withoutRecord());
      const missing = this.#database.shards.filter((shard) => !record.owned.includes(shard));
      if (missing.length > 0) throw this.#refusal(record, missing);
    } catch (error) {
      // Without the framework's tables, it holds nothing that could belong to another shard.
      if (!(error instanceof pg.DatabaseError && unmigratedStates.has(error.code ?? ''))) throw error;
    }
  }

  /** Records the shards that the database holds, unless another process has just done so. */
  async #adoptFirst(client: pg.ClientBase): Promise<ShardRecord> {
    await lockingShards(client, () => recordAdopted(client, this.#database.shards, { onlyFirst: true }));
    return (await readShards(client)) ?? { owned: [], released: [] };
  }

  #refusal({ owned, released }: ShardRecord, missing: readonly ShardIdentifier[]): DatabaseNotReadyError {
    const { shards } = this.#database;
    const gone = missing.filter((shard) => released.includes(shard));
    const holds = `${namedShards(owned)}${gone.length > 0 ? `, and has released ${namedShards(gone)}` : ''}`;
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
function readWithTimeout(client: pg.ClientBase): Promise<ShardRecord | undefined> {
  return inShortTransaction(client, () => readShards(client));
}
