import {
  type ConfiguredDatabase,
  DatabaseNotReadyError,
  ShardIdentifier,
  primaryConfig,
} from '@framework/core';
import pg from 'pg';
import type { ConnectionGuard } from '../connection/connection-guard.js';
import { type OperatorCommands, defaultCommands } from './operator-commands.js';
import { adopt, changingShards, heldShards } from './shards-table.js';

/** SQLSTATEs of a database that is not migrated yet: no such schema, or table. */
const unmigratedStates = new Set(['3F000', '42P01']);

/**
 * Compares the shards that a database holds with those that the configuration puts there, so that nothing is read or
 * written where another shard is.
 *
 * A database notes which shards it holds when it is opened first. Later, the configuration may put fewer there, as that of
 * a process does which does not know all of them yet; more are refused until an operator adopts them, see `adoptShards`.
 */
export class HeldShards implements ConnectionGuard {
  readonly #database: ConfiguredDatabase;
  readonly #adoptCommand: Required<OperatorCommands>['adopt'];

  constructor(database: ConfiguredDatabase, commands: OperatorCommands = {}) {
    this.#database = database;
    this.#adoptCommand = commands.adopt ?? defaultCommands.adopt;
  }

  /**
   * A database that is no member's `primary-config` may hold anything.
   *
   * @throws DatabaseNotReadyError `other-shards` when the database does not hold what the configuration puts there
   * @throws errors of `pg`
   */
  async ensure(client: pg.ClientBase): Promise<void> {
    if (this.#database.config.name !== primaryConfig) return;
    try {
      const held = (await heldShards(client)) ?? (await this.#adoptFirst(client));
      const missing = this.#database.shards.filter((shard) => !held.includes(shard));
      if (missing.length > 0) throw this.#refusal(held, missing);
    } catch (error) {
      // Then it holds nothing that could be another's.
      if (!(error instanceof pg.DatabaseError && unmigratedStates.has(error.code ?? ''))) throw error;
    }
  }

  /** Notes which shards the database holds, unless another process was faster. */
  async #adoptFirst(client: pg.ClientBase): Promise<readonly ShardIdentifier[]> {
    await changingShards(client, () => adopt(client, this.#database.shards, { onlyFirst: true }));
    return (await heldShards(client)) ?? [];
  }

  #refusal(held: readonly ShardIdentifier[], missing: readonly ShardIdentifier[]): DatabaseNotReadyError {
    const { shards } = this.#database;
    return new DatabaseNotReadyError('other-shards', {
      what: `the database holds ${named(held)}, while the configuration puts ${named(shards)} there`,
      remedy:
        `correct the jdbc-url; or, if ${named(missing)} is to be in this database from now on, adopt it with ` +
        this.#adoptCommand(missing),
      cause: undefined,
    });
  }
}

/** Such as `shard (0, 0) and shard (0, 1)`. */
function named(shards: readonly ShardIdentifier[]): string {
  return shards.length === 0 ? 'no shard' : shards.toSorted(ShardIdentifier.compare).join(' and ');
}
