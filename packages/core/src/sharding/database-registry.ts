import { currentExecution } from '../action/execution.js';
import { ConfigurationException, type ConfigurationFault } from '../errors/configuration-exception.js';
import { InvariantViolation } from '../errors/invariant-violation.js';
import { UnknownShardException } from '../errors/sharding-exceptions.js';
import type { DeliveryStore } from '../delivery/delivery-store.js';
import type { Database, DatabaseDriver } from '../persistence/database-driver.js';
import type { TransactionManager } from '../persistence/transaction-manager.js';
import {
  type DatabaseConfig,
  type MemberConfig,
  type ShardingConfig,
  primaryConfig,
} from './sharding-config.js';
import { comparableAddress } from './database-url.js';
import type { ShardIdentifier } from './shard-identifier.js';

/** Whether one shard can serve now. */
export interface ShardStatus {
  readonly shard: ShardIdentifier;
  readonly name: string;
  readonly ready: boolean;
  /** What is wrong, for operators; `undefined` when nothing is. */
  readonly reason: unknown;
}

/** The delivery of one database. */
export interface DatabaseDelivery {
  readonly store: DeliveryStore;
  /** Resolves when the database can serve; rejects when waiting cannot help. */
  ready(): Promise<void>;
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
 * @throws ConfigurationException `invalid-configuration` when the driver refuses a database, or when two
 * members name the same database with different settings
 */
export function openDatabases(config: ShardingConfig, driver: DatabaseDriver): DatabaseRegistry {
  return new DatabaseRegistry(config, driver);
}

/** The databases of all shards: finds the transactions of a shard, and never answers for an unknown one. */
export class DatabaseRegistry {
  /** Where actions that stage nothing are recorded. */
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
   * @param name one of the member's named configs in camelCase, such as `secondaryConfig`
   * @throws UnknownShardException `unknown-shard` when the shard is not configured
   * @throws ConfigurationException `invalid-configuration` when the member has no config of that name
   */
  transactionManager(shard: ShardIdentifier, name: string = primaryConfig): TransactionManager {
    currentExecution()?.shards?.add(shard);
    const manager = this.#shard(shard).managers.get(name);
    if (manager === undefined) {
      throw new ConfigurationException([{ path: `${shard}.configs.${name}`, message: 'is not configured' }]);
    }
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
      ready: () => database.ready(),
      shards: group.map(({ shard }) => shard),
    }));
  }

  /**
   * Resolves when every shard can serve; rejects when waiting for one of them cannot help.
   *
   * @throws ConfigurationException `invalid-configuration` when two addresses turn out to lead to one database
   */
  async ready(): Promise<void> {
    const known = new Map<string, OpenShard>();
    await Promise.all(
      [...this.#open.values()].map(async (open) => {
        await open.primary.ready();
        const { identity } = open.primary;
        if (identity === undefined) return;
        const other = known.get(identity) ?? open;
        known.set(identity, other);
        if (other.primary !== open.primary) throw oneDatabaseTwice(other, open);
      }),
    );
  }

  /** Asks every shard whether it can serve now, side by side. */
  async status(): Promise<readonly ShardStatus[]> {
    return Promise.all(
      [...this.#open.values()].map(async ({ shard, name, primary }) => {
        try {
          await primary.ping();
          return { shard, name, ready: true, reason: undefined };
        } catch (reason) {
          return { shard, name, ready: false, reason };
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
    if (open === undefined) throw new UnknownShardException(shard);
    return open;
  }
}

function openShard(
  { shard, name, databases }: MemberConfig,
  opened: Map<string, Database>,
  driver: DatabaseDriver,
): OpenShard {
  const byConfig = [...databases].map(([key, each]) => [key, openOnce(opened, each, driver)] as const);
  const primary = byConfig.find(([key]) => key === primaryConfig)?.[1];
  const config = databases.get(primaryConfig);
  if (primary === undefined || config === undefined)
    throw new InvariantViolation(`${shard} has no primary-config`);
  const managers = new Map(byConfig.map(([key, database]) => [key, database.transactionManager(shard)]));
  return { shard, name, primary, config, managers };
}

/** Opens a database unless an earlier member has named the same one. */
function openOnce(opened: Map<string, Database>, config: DatabaseConfig, driver: DatabaseDriver): Database {
  const identity = identityOf(config);
  const database = opened.get(identity) ?? driver.open(config);
  opened.set(identity, database);
  return database;
}

function assertEqualSettings(config: ShardingConfig): void {
  const known = new Map<string, DatabaseConfig>();
  const faults: ConfigurationFault[] = [];
  for (const each of config.members.flatMap(({ databases }) => [...databases.values()])) {
    const first = known.get(identityOf(each)) ?? each;
    known.set(identityOf(each), first);
    if (settingsOf(first) !== settingsOf(each)) {
      const message = `names the same database as ${first.path} with other settings; make them equal`;
      faults.push({ path: each.path, message });
    }
  }
  if (faults.length > 0) throw new ConfigurationException(faults);
}

/** Its connections would be there twice, and its events be delivered twice. */
function oneDatabaseTwice(first: OpenShard, second: OpenShard): ConfigurationException {
  const message =
    `is the same database as ${first.config.path}, under another address: ` +
    `write ${first.config.address} in both places, or ${second.config.address}`;
  return new ConfigurationException([{ path: second.config.path, message }]);
}

/** What makes two configurations name the same connections, however their addresses are spelled. */
function identityOf({ name, address, username }: DatabaseConfig): string {
  return JSON.stringify([name, comparableAddress(address), username]);
}

function settingsOf({ path: _path, address, password, ...rest }: DatabaseConfig): string {
  return JSON.stringify({ ...rest, address: comparableAddress(address), password: password?.reveal() });
}
