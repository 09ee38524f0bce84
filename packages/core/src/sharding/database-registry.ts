import { currentAttempt } from '../action/attempt-context.js';
import { comparableAddress, databasePlace } from '../config/database-url.js';
import {
  type DatabaseConfig,
  type MemberConfig,
  type ShardingConfig,
  primaryConfig,
} from '../config/sharding-config.js';
import {
  ConfigurationError,
  type ConfigurationIssue,
  NoUsableShardError,
  UnknownShardError,
} from '../errors/configuration-errors.js';
import type { DatabaseNotReadyError } from '../errors/database-not-ready-error.js';
import { InvariantViolationError } from '../errors/framework-error.js';
import type { Database, DatabaseDriver } from '../storage/database.js';
import type { DeliveryStore } from '../storage/delivery-store.js';
import type { TransactionManager } from '../storage/transaction-manager.js';
import type { ShardIdentifier } from './shard-identifier.js';

/** Whether one shard can serve now. */
export interface ShardStatus {
  readonly shard: ShardIdentifier;
  readonly name: string;
  /** The host and the name of its database, such as `db-2:5432/mexico`. */
  readonly place: string;
  readonly ready: boolean;
  /** What is wrong, for operators: best a {@link DatabaseNotReadyError}; `undefined` when nothing is. */
  readonly reason: unknown;
}

/** The delivery of one database. */
export interface DatabaseDelivery {
  readonly store: DeliveryStore;
  /**
   * Resolves when the database can serve; rejects when it is closed before.
   *
   * @param onNotReady called with why it cannot serve now: at once when that is known, and whenever it changes
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
  readonly managers: ReadonlyMap<string, TransactionManager>;
}

/**
 * Opens the databases of a configuration; members that name the same database share its connections.
 *
 * Does not wait for them: see {@link DatabaseRegistry.ready}.
 *
 * @throws ConfigurationError `invalid-configuration` when the driver refuses a database, or when two
 * members name the same database with different settings
 */
export function openDatabases(config: ShardingConfig, driver: DatabaseDriver): DatabaseRegistry {
  return new DatabaseRegistry(config, driver);
}

/** The databases of all shards: finds the transactions of a shard, and never answers for an unknown one. */
export class DatabaseRegistry {
  /** Where actions are recorded that stage nothing, read nothing and name no shard. */
  readonly defaultShard: ShardIdentifier;
  /** All configured shards, in order. */
  readonly shards: readonly ShardIdentifier[];
  readonly #databases: readonly Database[];
  readonly #open = new Map<ShardIdentifier, OpenShard>();
  #closed: Promise<void> | undefined;

  /** @see openDatabases */
  constructor(config: ShardingConfig, driver: DatabaseDriver) {
    assertEqualSettings(config);
    const opened = new Map<string, Database>();
    try {
      for (const { config: each, shards } of configuredDatabases(config))
        opened.set(databaseKey(each), driver.open(each, shards));
      for (const member of config.members) this.#open.set(member.shard, openShard(member, opened));
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
   * @param name one of the member's named configs in camelCase, such as `secondaryConfig`
   * @throws UnknownShardError `unknown-shard` when the shard is not configured
   * @throws ConfigurationError `invalid-configuration` when the member has no config of that name
   */
  transactionManager(shard: ShardIdentifier, name: string = primaryConfig): TransactionManager {
    const { managers } = this.#shard(shard);
    const attempt = currentAttempt();
    attempt?.shards.add(shard);
    const manager = managers.get(name);
    if (manager === undefined) {
      throw new ConfigurationError([{ path: `${shard}.configs.${name}`, message: 'is not configured' }]);
    }
    // Only the primary's is what the execution may commit to.
    if (name === primaryConfig) attempt?.reads.timelineOf(manager);
    return manager;
  }

  /** The transaction managers of all shards, grouped by database: a question to all shards asks each group once. */
  eachDatabase(): readonly (readonly TransactionManager[])[] {
    const groups = Map.groupBy(this.#open.values(), ({ primary }) => primary);
    return [...groups.values()].map((group) => group.map(({ shard }) => this.transactionManager(shard)));
  }

  /** What delivery needs of each database, with the shards whose events it holds. */
  deliveries(): readonly DatabaseDelivery[] {
    const groups = Map.groupBy(this.#open.values(), ({ primary }) => primary);
    return [...groups].map(([database, group]) => ({
      store: database.delivery,
      ready: (onNotReady) => database.ready(onNotReady),
      shards: group.map(({ shard }) => shard),
    }));
  }

  /**
   * Resolves when every shard can serve. It waits for as long as one of them cannot; see {@link DatabaseRegistry.status}.
   *
   * @param onNotReady called with a shard that cannot serve now: at once when that is known, and whenever the reason
   * changes
   * @throws NoUsableShardError `no-usable-shard` when somebody has to correct something before any shard can serve
   * @throws ConfigurationError `invalid-configuration` when two addresses turn out to lead to one database
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
        // What was noted by the one may be what refuses the other.
        refuseTwice(open);
        reasons.set(open, reason);
        if (reasons.size === this.#open.size && [...reasons.values()].every(({ mayPass }) => !mayPass)) {
          unusable.reject(noUsableShard(reasons));
        }
        // Last, because it may throw.
        onNotReady({ ...describe(open), ready: false, reason });
      });
      reasons.delete(open);
      refuseTwice(open);
    });
    await Promise.race([Promise.all(all), unusable.promise]);
  }

  /**
   * Resolves when a shard can serve; waits for as long as it cannot.
   *
   * @throws UnknownShardError `unknown-shard` when the shard is not configured
   */
  async readyOn(shard: ShardIdentifier): Promise<void> {
    await this.#shard(shard).primary.ready();
  }

  /** Asks every shard whether it can serve now, side by side. */
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

  /** Finishes what runs, then closes every connection; a second call waits for the first. */
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
  opened: ReadonlyMap<string, Database>,
): OpenShard {
  const byConfig = [...databases].flatMap(([key, each]) => {
    const database = opened.get(databaseKey(each));
    return database === undefined ? [] : [[key, database] as const];
  });
  const primary = byConfig.find(([key]) => key === primaryConfig)?.[1];
  const config = databases.get(primaryConfig);
  if (primary === undefined || config === undefined)
    throw new InvariantViolationError(`${shard} has no primary-config`);
  const managers = new Map(
    byConfig.map(([key, database]) => [key, database.transactionManager(shard, name)]),
  );
  return { shard, name, primary, config, managers };
}

function assertEqualSettings(config: ShardingConfig): void {
  const known = new Map<string, DatabaseConfig>();
  const faults: ConfigurationIssue[] = [];
  for (const each of config.members.flatMap(({ databases }) => [...databases.values()])) {
    const first = known.get(databaseKey(each)) ?? each;
    known.set(databaseKey(each), first);
    if (settingsOf(first) !== settingsOf(each)) {
      const message = `names the same database as ${first.path} with other settings; make them equal`;
      faults.push({ path: each.path, message });
    }
  }
  if (faults.length > 0) throw new ConfigurationError(faults);
}

function describe({ shard, name, config }: OpenShard): Pick<ShardStatus, 'shard' | 'name' | 'place'> {
  return { shard, name, place: databasePlace(config.address) };
}

function noUsableShard(reasons: ReadonlyMap<OpenShard, DatabaseNotReadyError>): NoUsableShardError {
  const faults = [...reasons].map(([open, { message }]) => {
    const { shard, name, place } = describe(open);
    return { shard, path: open.config.path, message: `${shard.toString()} ${name} on ${place}: ${message}` };
  });
  const [cause] = reasons.values();
  return new NoUsableShardError(faults, { cause });
}

/** Its connections would be there twice, and its events be delivered twice. */
function oneDatabaseTwice(first: OpenShard, second: OpenShard): ConfigurationError {
  const message =
    `is the same database as ${first.config.path}, under another address: ` +
    `write ${first.config.address} in both places, or ${second.config.address}`;
  return new ConfigurationError([{ path: second.config.path, message }]);
}

function settingsOf({ path: _path, address, password, ...rest }: DatabaseConfig): string {
  return JSON.stringify({ ...rest, address: comparableAddress(address), password: password?.reveal() });
}

/** A database of a configuration, and what the configuration puts there. */
export interface ConfiguredDatabase {
  /** As the first member that names it has it. */
  readonly config: DatabaseConfig;
  /** In the order of the configuration; at least one. */
  readonly shards: readonly ShardIdentifier[];
}

/** The databases of a configuration, each once, however often and however spelled members name it. */
export function configuredDatabases({ members }: ShardingConfig): readonly ConfiguredDatabase[] {
  const places = members.flatMap(({ shard, databases }) =>
    [...databases.values()].map((config) => ({ shard, config })),
  );
  const groups = Map.groupBy(places, ({ config }) => databaseKey(config));
  return [...groups.values()].flatMap((group) => {
    const [first] = group;
    return first === undefined ? [] : [{ config: first.config, shards: group.map(({ shard }) => shard) }];
  });
}

/** What makes two configurations name the same connections, however their addresses are spelled. */
function databaseKey({ name, address, username }: DatabaseConfig): string {
  return JSON.stringify([name, comparableAddress(address), username]);
}
