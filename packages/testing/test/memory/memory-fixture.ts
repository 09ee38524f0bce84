import {
  Account,
  type AccountReader,
  type LimitedValue,
  type StorageFixture,
  type StoredEvent,
  Tag,
  firstShard,
  otherDatabaseShard,
  sameDatabaseShard,
} from '@framework/conformance';
import { type DatabaseRegistry, type ShardIdentifier, openDatabases } from '@framework/core';
import type { ShardingConfig } from '@framework/core/adapter';
import {
  type MemoryCommit,
  MemoryFaults,
  MemoryRepository,
  type MemoryServer,
  type MemoryTables,
  memory,
  memoryManager,
  memorySharding,
} from '../../src/memory/index.js';

/** The suite's accounts in memory. */
class MemoryAccounts extends MemoryRepository<Account> implements AccountReader {
  constructor(databases: DatabaseRegistry) {
    super({ model: Account, databases });
  }

  findByOwner(owner: string): Promise<readonly Account[]> {
    return this.findAllWhere((account) => account.owner === owner);
  }

  findOneByOwner(owner: string): Promise<Account | undefined> {
    return this.findOneWhere((account) => account.owner === owner);
  }

  countByOwner(owner: string): Promise<number> {
    return this.count((account) => account.owner === owner);
  }

  findPageByOwner(
    owner: string,
    page: Parameters<AccountReader['findPage']>[0],
  ): ReturnType<AccountReader['findPage']> {
    return this.findPage({ where: (account) => account.owner === owner, ...page });
  }
}

/** The databases of the suite. */
export const suiteSharding: ShardingConfig = memorySharding(
  [firstShard, sameDatabaseShard],
  otherDatabaseShard,
);

/** The suite's fixture in memory. */
export class MemoryFixture implements StorageFixture {
  readonly cannotHold: ReadonlySet<LimitedValue> = new Set();
  readonly faults = new MemoryFaults();
  readonly databases: DatabaseRegistry;
  readonly accounts: MemoryAccounts;
  readonly tags: MemoryRepository<Tag>;

  /** @param server the server whose databases the fixture opens. Default: a new one */
  constructor(server?: MemoryServer) {
    const driver = memory({ faults: this.faults, ...(server !== undefined && { server }) });
    this.databases = openDatabases(suiteSharding, driver);
    this.accounts = new MemoryAccounts(this.databases);
    this.tags = new MemoryRepository({ model: Tag, databases: this.databases });
  }

  async storedEvents(shard: ShardIdentifier): Promise<readonly StoredEvent[]> {
    return this.#tables(shard).commits.flatMap(rowsOf);
  }

  async overwriteNote(account: Account, note: string): Promise<void> {
    const stored = await this.accounts.getById(account.id);
    await this.accounts.put(stored.variant({ note }));
  }

  async keyCount(shard: ShardIdentifier): Promise<number> {
    return this.#tables(shard).keys.size;
  }

  async expireKeys(): Promise<void> {
    for (const { keys } of this.#eachTables())
      for (const [scope, key] of keys) keys.set(scope, { ...key, expiresMs: 0 });
  }

  async clear(): Promise<void> {
    for (const tables of this.#eachTables()) tables.clear();
  }

  async close(): Promise<void> {
    await this.databases.close();
  }

  #tables(shard: ShardIdentifier): MemoryTables {
    return memoryManager(this.databases.transactionManager(shard)).tables;
  }

  #eachTables(): readonly MemoryTables[] {
    return [firstShard, otherDatabaseShard].map((shard) => this.#tables(shard));
  }
}

/** The log's rows for a commit, one row for each event. */
function rowsOf({ action, createdDate, events, recordId }: MemoryCommit): readonly StoredEvent[] {
  const shared = {
    actionId: action.id,
    namespace: action.namespace,
    actionName: action.name,
    actionParams: JSON.parse(action.params) as unknown,
    principal: action.principal,
    headers: JSON.parse(action.headers) as unknown,
    startedDate: action.startedDate,
    createdDate,
  };
  const none = { modelId: null, modelName: null, modelVersion: null, eventType: null, payload: null };
  if (events.length === 0) return [{ ...shared, ...none, id: recordId, ordinal: 0 }];
  return events.map(({ id, ordinal, modelId, modelName, modelVersion, type, payload }) => {
    return { ...shared, id, ordinal, modelId, modelName, modelVersion, eventType: type, payload };
  });
}
