import {
  ConfigurationError,
  type ConfigurationIssue,
  NoUsableShardError,
  UnknownShardError,
} from '../config/configuration-errors.js';
import {
  type DatabaseConfig,
  type MemberConfig,
  type ShardingConfig,
  primaryConfig,
} from '../config/sharding-config.js';
import type { DatabaseNotReadyError } from '../errors/database-not-ready-error.js';
import { InvariantViolationError } from '../errors/framework-error.js';
import type { ShardIdentifier } from '../id/shard-identifier.js';
import type { Database, DatabaseAddress, DatabaseDriver, PoolUse } from './database.js';
import type { DeliveryStore } from './delivery-store.js';
import { type TransactionManager, currentAttempt } from './transaction-manager.js';

/** Whether one shard is ready. */
export interface ShardStatus {
  readonly shard: ShardIdentifier;
  readonly name: string;
  /** The host and name of its database, such as `db-2:5432/mexico`. */
  readonly place: string;
  readonly ready: boolean;
  /** Why it is not ready, usually a {@link DatabaseNotReadyError}; `undefined` when it is. */
  readonly reason: unknown;
}

/** The delivery store of one database. */
export interface DatabaseDelivery {
  readonly store: DeliveryStore;
  /**
   * Resolves when the database is ready; rejects once it is closed.
   *
   * @param onNotReady called with the reason why it is not ready: at once if one is known, and whenever it changes
   */
  ready(onNotReady?: (reason: DatabaseNotReadyError) => void): Promise<void>;
  /** At least one. */
  readonly shards: readonly ShardIdentifier[];
}

interface OpenShard {
  readonly shard: ShardIdentifier;
  readonly name: string;
  readonly primary: Database;
  readonly config: DatabaseConfig;
  readonly place: string;
  /** The transactions of the primary. */
  readonly manager: TransactionManager;
  readonly managers: ReadonlyMap<string, TransactionManager>;
}

/**
 * Opens the databases of a configuration. Members that name the same database share its connections.
 *
 * Does not wait for the databases: see {@link DatabaseRegistry.ready}.
 *
 * @example apps/counter/src/open-counters.ts
 *
 * ```ts
 * const databases = openDatabases(sharding, postgres());
 * ```
 *
 * @throws ConfigurationError `invalid-configuration` when the driver refuses a database, or when two members name the
 * same database with different settings
 */
export function openDatabases(config: ShardingConfig, driver: DatabaseDriver): DatabaseRegistry {
  return new DatabaseRegistry(config, driver);
}

/** The databases of all shards. It finds the transactions of a shard, and refuses unknown shards. */
export class DatabaseRegistry {
  /** The shard on which to record an action that stages nothing, reads nothing and names no shard. */
  readonly defaultShard: ShardIdentifier;
  /** All configured shards, in order. */
  readonly shards: readonly ShardIdentifier[];
  readonly #databases: readonly Database[];
  readonly #open = new Map<ShardIdentifier, OpenShard>();
  #closed: Promise<void> | undefined;

  /** @see openDatabases */
  constructor(config: ShardingConfig, driver: DatabaseDriver) {
    assertEqualSettings(config, driver);
    const opened = new Map<string, Database>();
    try {
      for (const { config: each, shards } of configuredDatabases(config, driver))
        opened.set(databaseKey(each, driver), driver.open(each, shards));
      for (const member of config.members) this.#open.set(member.shard, openShard(member, opened, driver));
    } catch (error) {
      for (const database of opened.values()) database.close().catch(() => undefined);
      throw error;
    }
    this.defaultShard = config.defaultShard;
    this.shards = config.members.map(({ shard }) => shard);
    this.#databases = [...opened.values()];
  }

  /**
   * The transactions of a shard.
   *
   * @param name one of the member's configurations in camelCase, such as `secondaryConfig`. Default: its primary
   * @throws UnknownShardError `unknown-shard` when the shard is not configured
   * @throws ConfigurationError `invalid-configuration` when the member has no configuration with that name
   */
  transactionManager(shard: ShardIdentifier, name?: string): TransactionManager {
    const open = this.#shard(shard);
    const attempt = currentAttempt();
    attempt?.shards.add(shard);
    const manager = name === undefined ? open.manager : open.managers.get(name);
    if (manager === undefined) {
      throw new ConfigurationError([{ path: `${shard}.configs.${name}`, message: 'is not configured' }]);
    }
    // An execution commits only to primaries.
    if (manager === open.manager) attempt?.reads.timelineOf(manager);
    return manager;
  }

  /**
   * The transaction managers of all shards, grouped by database, so that a query to all shards runs once per database.
   */
  eachDatabase(): readonly (readonly TransactionManager[])[] {
    const groups = Map.groupBy(this.#open.values(), ({ primary }) => primary);
    return [...groups.values()].map((group) => group.map(({ shard }) => this.transactionManager(shard)));
  }

  /**
   * The transaction managers of all shards in the database of one shard. If an action asks for them, only that shard
   * counts as accessed.
   *
   * @throws UnknownShardError `unknown-shard` when the shard is not configured
   */
  managersBeside(shard: ShardIdentifier): readonly TransactionManager[] {
    const { primary } = this.#shard(shard);
    currentAttempt()?.shards.add(shard);
    return [...this.#open.values()].filter((open) => open.primary === primary).map(({ manager }) => manager);
  }

  /**
   * The delivery store of each database, with the shards that it holds.
   *
   * @throws InvariantViolationError `invariant-violation` when a database has none
   */
  deliveries(): readonly DatabaseDelivery[] {
    const groups = Map.groupBy(this.#open.values(), ({ primary }) => primary);
    return [...groups].map(([database, group]) => {
      const { delivery: store } = database;
      if (store === undefined)
        throw new InvariantViolationError(
          'The driver of these databases cannot deliver events: use a driver whose databases have a delivery store',
        );
      return {
        store,
        ready: (onNotReady) => database.ready(onNotReady),
        shards: group.map(({ shard }) => shard),
      };
    });
  }

  /** How the pools of connections are used now; databases without pools are left out. */
  pools(): readonly PoolUse[] {
    return this.#databases.flatMap((database) => database.pools?.() ?? []);
  }

  /**
   * Resolves when every shard is ready, and waits as long as one is not; see {@link DatabaseRegistry.status}.
   *
   * @param onNotReady called for each shard that is not ready: at once if the reason is known, and whenever it changes
   * @throws NoUsableShardError `no-usable-shard` when no shard can become ready until somebody corrects something
   * @throws ConfigurationError `invalid-configuration` when two addresses turn out to lead to the same database
   */
  async ready(onNotReady: (status: ShardStatus) => void = () => undefined): Promise<void> {
    const known = new Map<string, OpenShard>();
    const reasons = new Map<OpenShard, DatabaseNotReadyError>();
    const unusable = Promise.withResolvers<never>();
    const refuseTwice = (open: OpenShard): void => {
      const { identity } = open.primary;
      if (identity === undefined) return;
      const other = known.get(identity) ?? open;
      known.set(identity, other);
      if (other.primary !== open.primary) unusable.reject(oneDatabaseTwice(other, open));
    };
    const all = [...this.#open.values()].map(async (open) => {
      await open.primary.ready((reason) => {
        // If both are one database, the one that was opened first may have recorded its shards
        // there, and the other is refused for that.
        refuseTwice(open);
        reasons.set(open, reason);
        if (reasons.size === this.#open.size && [...reasons.values()].every(({ mayPass }) => !mayPass)) {
          unusable.reject(noUsableShard(reasons));
        }
        // Comes last, because it may throw.
        onNotReady({ ...describe(open), ready: false, reason });
      });
      reasons.delete(open);
      refuseTwice(open);
    });
    await Promise.race([Promise.all(all), unusable.promise]);
  }

  /**
   * Where the database of a shard is, for messages, such as `db-2:5432/mexico`.
   *
   * @throws UnknownShardError `unknown-shard` when the shard is not configured
   */
  placeOf(shard: ShardIdentifier): string {
    return this.#shard(shard).place;
  }

  /**
   * Resolves when a shard is ready, and waits as long as it is not.
   *
   * @throws UnknownShardError `unknown-shard` when the shard is not configured
   */
  async readyOn(shard: ShardIdentifier): Promise<void> {
    await this.#shard(shard).primary.ready();
  }

  /**
   * Resolves if the database of a shard answers now; rejects with the reason why it cannot be used.
   *
   * @throws UnknownShardError `unknown-shard` when the shard is not configured
   */
  async assertUsable(shard: ShardIdentifier): Promise<void> {
    await this.#shard(shard).primary.ping();
  }

  /** Checks all shards in parallel. */
  async status(): Promise<readonly ShardStatus[]> {
    return Promise.all(
      [...this.#open.values()].map(async (open) => {
        try {
          await open.primary.ping();
          return { ...describe(open), ready: true, reason: undefined };
        } catch (reason) {
          return { ...describe(open), ready: false, reason };
        }
      }),
    );
  }

  /** Finishes running work, then closes every connection. A second call waits for the first. */
  async close(): Promise<void> {
    this.#closed ??= Promise.all(this.#databases.map((database) => database.close())).then(() => undefined);
    return this.#closed;
  }

  #shard(shard: ShardIdentifier): OpenShard {
    const open = this.#open.get(shard);
    if (open === undefined) throw new UnknownShardError(shard);
    return open;
  }
}

function openShard(
  { shard, name, databases }: MemberConfig,
  byKey: ReadonlyMap<string, Database>,
  driver: DatabaseDriver,
): OpenShard {
  const opened = [...databases].flatMap(([key, config]) => {
    const database = byKey.get(databaseKey(config, driver));
    if (database === undefined) return [];
    return [{ key, config, database, manager: database.transactionManager(shard, name) }];
  });
  const primary = opened.find(({ key }) => key === primaryConfig);
  if (primary === undefined) throw new InvariantViolationError(`${shard} has no primary-config`);
  const { config, database, manager } = primary;
  const managers = new Map(opened.map((each) => [each.key, each.manager]));
  const { place } = addressOf(config, driver);
  return { shard, name, primary: database, config, place, manager, managers };
}

function assertEqualSettings(config: ShardingConfig, driver: DatabaseDriver): void {
  const known = new Map<string, DatabaseConfig>();
  const faults: ConfigurationIssue[] = [];
  for (const each of config.members.flatMap(({ databases }) => [...databases.values()])) {
    const key = databaseKey(each, driver);
    const first = known.get(key) ?? each;
    known.set(key, first);
    if (settingsOf(first) !== settingsOf(each)) {
      const message = `names the same database as ${first.path} with different settings: make them equal`;
      faults.push({ path: each.path, message });
    }
  }
  if (faults.length > 0) throw new ConfigurationError(faults);
}

function describe({ shard, name, place }: OpenShard): Pick<ShardStatus, 'shard' | 'name' | 'place'> {
  return { shard, name, place };
}

function noUsableShard(reasons: ReadonlyMap<OpenShard, DatabaseNotReadyError>): NoUsableShardError {
  const faults = [...reasons].map(([open, { message }]) => {
    const { shard, name, place } = describe(open);
    return { shard, path: open.config.path, message: `${shard.toString()} ${name} on ${place}: ${message}` };
  });
  const [cause] = reasons.values();
  return new NoUsableShardError(faults, { cause });
}

/** The error for two addresses of one database: it would have two pools of connections, and deliver its events twice. */
function oneDatabaseTwice(first: OpenShard, second: OpenShard): ConfigurationError {
  const message =
    `is the same database as ${first.config.path}, under another address: ` +
    `write either ${first.config.address} or ${second.config.address} in both places`;
  return new ConfigurationError([{ path: second.config.path, message }]);
}

/** What must be equal in all configurations with the same key; not the address, which may be spelled differently. */
function settingsOf({ path: _path, address: _address, password, ...rest }: DatabaseConfig): string {
  return JSON.stringify({ ...rest, password: password?.reveal() });
}

/** A database of a configuration, and the shards assigned to it. */
export interface ConfiguredDatabase {
  /** Its settings as in the first member that names it. */
  readonly config: DatabaseConfig;
  /** In the order of the configuration; at least one. */
  readonly shards: readonly ShardIdentifier[];
}

/** The databases of a configuration, each listed once even if several members name it in different spellings. */
export function configuredDatabases(
  { members }: ShardingConfig,
  driver: Pick<DatabaseDriver, 'parseAddress'>,
): readonly ConfiguredDatabase[] {
  const places = members.flatMap(({ shard, databases }) =>
    [...databases.values()].map((config) => ({ shard, config })),
  );
  const groups = Map.groupBy(places, ({ config }) => databaseKey(config, driver));
  return [...groups.values()].flatMap((group) => {
    const [first] = group;
    return first === undefined ? [] : [{ config: first.config, shards: group.map(({ shard }) => shard) }];
  });
}

/** The key under which two configurations share connections, whatever the spelling of their addresses. */
function databaseKey(config: DatabaseConfig, driver: Pick<DatabaseDriver, 'parseAddress'>): string {
  return JSON.stringify([config.name, addressOf(config, driver).key, config.username]);
}

function addressOf(
  { address }: DatabaseConfig,
  driver: Pick<DatabaseDriver, 'parseAddress'>,
): DatabaseAddress {
  return driver.parseAddress?.(address) ?? { key: address, place: address };
}
