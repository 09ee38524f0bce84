import type {
  ChangeSet,
  Database,
  DatabaseConfig,
  DatabaseAddress,
  DatabaseDriver,
  DatabaseNotReadyError,
  DeliveryStore,
  EventLog,
  GroupOutcome,
  HandlerKey,
  IdempotencyKeys,
  KeyScope,
  PersistOptions,
  PersistOutcome,
  StoredKey,
  TransactionManager,
} from '../src/adapter.js';
import {
  CommitOutcomeUnknownError,
  type DatabaseRegistry,
  FrameworkError,
  type Page,
  type ShardIdentifier,
  openDatabases,
} from '../src/index.js';
import { memberConfig } from './sharding-configs.js';

/** Idempotency keys in memory; they never expire. */
export class FakeIdempotencyKeys implements IdempotencyKeys {
  /** Errors for the next calls of find, one each; `undefined` lets the call succeed. */
  readonly findFailures: unknown[] = [];
  /** The limit on the wait of each search for a key, in milliseconds; `undefined` for none. */
  readonly waits: (number | undefined)[] = [];
  readonly sweeps: number[] = [];
  readonly #stored = new Map<string, StoredKey>();

  async find(scope: KeyScope, waitMs?: number): Promise<StoredKey | undefined> {
    this.waits.push(waitMs);
    const failure = this.findFailures.shift();
    if (failure !== undefined) throw failure;
    return this.#stored.get(textOf(scope));
  }

  async deleteExpired(countMax: number): Promise<number> {
    this.sweeps.push(countMax);
    return 0;
  }

  /** These databases store no keys of handlers. */
  async findHandlerKeys(): Promise<Page<HandlerKey>> {
    return { items: [], next: undefined };
  }

  async delete(scopes: readonly KeyScope[]): Promise<number> {
    return scopes.filter((scope) => this.#stored.delete(textOf(scope))).length;
  }

  /** Returns whether the change set may be written, because it has no key or a free one. Stores the key. */
  take({ key, action }: ChangeSet): boolean {
    if (key === undefined) return true;
    if (this.#stored.has(textOf(key))) return false;
    const { fingerprint, result } = key;
    this.#stored.set(textOf(key), { fingerprint, result, actionId: action.id, actionName: action.name });
    return true;
  }
}

function textOf({ namespace, principal, key }: KeyScope): string {
  return JSON.stringify([namespace, principal, key]);
}

/** One shard in memory: records what was committed, and fails on request. */
export class FakeTransactionManager implements TransactionManager {
  readonly shard: ShardIdentifier;
  readonly log: EventLog = { findByModel: async () => ({ items: [], next: undefined }) };
  readonly keys: FakeIdempotencyKeys = new FakeIdempotencyKeys();
  timeline = 1;
  /** Errors for the next calls of persist, one each; `undefined` lets the call succeed. */
  readonly persistFailures: unknown[] = [];
  /** Answers to the next calls of isCommitted, one each; an error is thrown. */
  readonly outcomes: (boolean | Error)[] = [];
  readonly asked: CommitOutcomeUnknownError[] = [];
  /** How many of the next calls of persist lose their answers. */
  answersToLose = 0;
  /** Whether a change set without an answer was written; isCommitted returns this if nothing else was prepared. */
  hasHappened = false;
  /** The arguments of the calls of persistAll. */
  readonly groups: (readonly ChangeSet[])[] = [];
  /** Errors for the next calls of persistAll, one each; `undefined` lets the call succeed. */
  readonly groupFailures: unknown[] = [];
  /** Whether every caller counts as being inside a transaction. */
  isInside = false;
  readonly #journal: ChangeSet[];

  constructor(shard: ShardIdentifier, journal: ChangeSet[]) {
    this.shard = shard;
    this.#journal = journal;
  }

  inTransaction<T>(work: () => Promise<T>): Promise<T> {
    return work();
  }

  async persist(changes: ChangeSet, _options?: PersistOptions): Promise<PersistOutcome> {
    const failure = this.persistFailures.shift();
    if (failure !== undefined) throw failure;
    if (this.answersToLose > 0) {
      this.answersToLose--;
      throw new CommitOutcomeUnknownError(this.shard, changes.action.id);
    }
    if (!this.keys.take(changes)) return 'key-taken';
    if (this.hasHappened && changes.unknownCommits !== undefined) return 'written-before';
    this.#journal.push(changes);
    return 'written';
  }

  /** Writes the change sets in turn: a FrameworkError becomes the outcome of its own, any other error rejects the group. */
  async persistAll(group: readonly ChangeSet[]): Promise<readonly GroupOutcome[]> {
    this.groups.push(group);
    const failure = this.groupFailures.shift();
    if (failure !== undefined) throw failure;
    const outcomes: GroupOutcome[] = [];
    for (const changes of group) {
      outcomes.push(
        await this.persist(changes).catch((error: unknown) => {
          if (FrameworkError.is(error)) return error;
          throw error;
        }),
      );
    }
    return outcomes;
  }

  isInTransaction(): boolean {
    return this.isInside;
  }

  async isCommitted(unknown: CommitOutcomeUnknownError): Promise<boolean> {
    this.asked.push(unknown);
    const outcome = this.outcomes.shift() ?? this.hasHappened;
    if (outcome instanceof Error) throw outcome;
    return outcome;
  }
}

/** One database in memory, whose state a test sets. */
export class FakeDatabase implements Database {
  readonly config: DatabaseConfig;
  /** Why it does not become ready; `undefined` when it does. */
  notReady: DatabaseNotReadyError | undefined;
  identity: string | undefined;
  pingFailure: Error | undefined;
  closings = 0;
  readonly #journal: ChangeSet[];
  readonly #managers = new Map<ShardIdentifier, FakeTransactionManager>();
  readonly #becomesReady = Promise.withResolvers<void>();

  constructor(config: DatabaseConfig, journal: ChangeSet[]) {
    this.config = config;
    this.#journal = journal;
  }

  get delivery(): DeliveryStore {
    throw new Error('These databases deliver nothing');
  }

  transactionManager(shard: ShardIdentifier): FakeTransactionManager {
    const manager = this.#managers.get(shard) ?? new FakeTransactionManager(shard, this.#journal);
    this.#managers.set(shard, manager);
    return manager;
  }

  async ready(onNotReady?: (reason: DatabaseNotReadyError) => void): Promise<void> {
    if (this.notReady === undefined) return;
    onNotReady?.(this.notReady);
    await this.#becomesReady.promise;
  }

  /** Removes the reason why the database is not ready. */
  heal(): void {
    this.notReady = undefined;
    this.#becomesReady.resolve();
  }

  async ping(): Promise<void> {
    if (this.pingFailure !== undefined) throw this.pingFailure;
  }

  async close(): Promise<void> {
    this.closings++;
  }
}

/** Opens databases in memory; refuses the addresses that it was told to refuse. */
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

  /** Ignores the case of addresses, like a driver that knows its databases. */
  parseAddress(address: string): DatabaseAddress {
    return { key: address.toLowerCase(), place: address.replace('postgresql://', '') };
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
