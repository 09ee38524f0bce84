import {
  type ChangeSet,
  type CommitOutcomeUnknownException,
  type Database,
  type DatabaseConfig,
  type DatabaseDriver,
  type DatabaseRegistry,
  type EventLog,
  type ShardIdentifier,
  type TransactionManager,
  openDatabases,
} from '../src/index.js';
import { memberConfig } from './sharding-configs.js';

/** One shard in memory: keeps what was committed, and fails as a test tells it to. */
export class FakeTransactionManager implements TransactionManager {
  readonly shard: ShardIdentifier;
  readonly log: EventLog = { findByModel: async () => ({ items: [], next: undefined }) };
  /** Thrown by the next calls of persist, one each; `undefined` lets the call pass. */
  readonly persistFailures: unknown[] = [];
  /** Given by the next calls of isCommitted, one each; an error is thrown. */
  readonly outcomes: (boolean | Error)[] = [];
  readonly asked: CommitOutcomeUnknownException[] = [];
  readonly #journal: ChangeSet[];

  constructor(shard: ShardIdentifier, journal: ChangeSet[]) {
    this.shard = shard;
    this.#journal = journal;
  }

  inTransaction<T>(work: () => Promise<T>): Promise<T> {
    return work();
  }

  async persist(changes: ChangeSet): Promise<void> {
    const failure = this.persistFailures.shift();
    if (failure !== undefined) throw failure;
    this.#journal.push(changes);
  }

  async isCommitted(unknown: CommitOutcomeUnknownException): Promise<boolean> {
    this.asked.push(unknown);
    const outcome = this.outcomes.shift() ?? false;
    if (outcome instanceof Error) throw outcome;
    return outcome;
  }
}

/** One database in memory, whose state a test sets. */
export class FakeDatabase implements Database {
  readonly config: DatabaseConfig;
  readyFailure: Error | undefined;
  pingFailure: Error | undefined;
  closings = 0;
  readonly #journal: ChangeSet[];
  readonly #managers = new Map<ShardIdentifier, FakeTransactionManager>();

  constructor(config: DatabaseConfig, journal: ChangeSet[]) {
    this.config = config;
    this.#journal = journal;
  }

  transactionManager(shard: ShardIdentifier): FakeTransactionManager {
    const manager = this.#managers.get(shard) ?? new FakeTransactionManager(shard, this.#journal);
    this.#managers.set(shard, manager);
    return manager;
  }

  async ready(): Promise<void> {
    if (this.readyFailure !== undefined) throw this.readyFailure;
  }

  async ping(): Promise<void> {
    if (this.pingFailure !== undefined) throw this.pingFailure;
  }

  async close(): Promise<void> {
    this.closings++;
  }
}

/** Opens databases in memory; refuses those whose address it was told to. */
export class FakeDriver implements DatabaseDriver {
  readonly opened: FakeDatabase[] = [];
  /** Every change set of all shards, in the order of the commits. */
  readonly committed: ChangeSet[] = [];
  readonly refusals = new Map<string, Error>();

  open(config: DatabaseConfig): FakeDatabase {
    const refusal = this.refusals.get(config.address);
    if (refusal !== undefined) throw refusal;
    const database = new FakeDatabase(config, this.committed);
    this.opened.push(database);
    return database;
  }
}

/** A registry of databases in memory, one for each shard; the first one is the default. */
export function openFakeDatabases(...shards: readonly [ShardIdentifier, ...ShardIdentifier[]]): {
  readonly databases: DatabaseRegistry;
  readonly driver: FakeDriver;
  readonly manager: (shard: ShardIdentifier) => FakeTransactionManager;
} {
  const driver = new FakeDriver();
  const members = shards.map((shard) => memberConfig(shard));
  const databases = openDatabases({ defaultShard: shards[0], members }, driver);
  const manager = (shard: ShardIdentifier): FakeTransactionManager =>
    databases.transactionManager(shard) as FakeTransactionManager;
  return { databases, driver, manager };
}
