import {
  type DatabaseRegistry,
  type Page,
  type PageRequest,
  type ShardIdentifier,
  ShardedId,
  openDatabases,
  shardedIdCodec,
} from '@framework/core';
import { primaryConfig, type ShardingConfig } from '@framework/core/adapter';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as z from 'zod';

import { accountCodec } from '../../src/account.js';
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
} from '../../src/index.js';
import { sqlite } from './sqlite.js';
import { SqliteRepository } from './sqlite-repository.js';
import { SqliteTransactionManager } from './sqlite-transaction-manager.js';

const tagFields = z.object({
  id: shardedIdCodec(Tag),
  state: z.enum(['ACTIVE', 'DELETED']),
  version: z.int(),
  label: z.string(),
});

const tagCodec: z.ZodType<Tag> = z.codec(tagFields, z.instanceof(Tag), {
  decode: (read) => new Tag({ ...read, id: ShardedId.of(Tag, read.id.value) }),
  encode: (tag) => tag,
});

/** The suite's accounts on SQLite, with the queries of an application. */
class SqliteAccounts extends SqliteRepository<Account> implements AccountReader {
  constructor(databases: DatabaseRegistry) {
    super({ model: Account, codec: accountCodec, databases });
  }

  findByOwner(owner: string): Promise<readonly Account[]> {
    return this.findAllWhere(ownedBy(owner));
  }

  findOneByOwner(owner: string): Promise<Account | undefined> {
    return this.findOneWhere(ownedBy(owner));
  }

  countByOwner(owner: string): Promise<number> {
    return this.count(ownedBy(owner));
  }

  findPageByOwner(owner: string, page: PageRequest<Account>): Promise<Page<Account>> {
    return this.findPage({ ...page, condition: ownedBy(owner) });
  }
}

function ownedBy(owner: string): { readonly where: string; readonly values: readonly string[] } {
  return { where: `fields ->> 'owner' = ?`, values: [owner] };
}

/** The suite's fixture on SQLite: two files in a folder of their own. */
export class SqliteFixture implements StorageFixture {
  readonly cannotHold = new Set<LimitedValue>(['distant-years', 'missing-fields']);
  readonly databases: DatabaseRegistry;
  readonly accounts: SqliteAccounts;
  readonly tags: SqliteRepository<Tag>;
  readonly #folder = mkdtempSync(join(tmpdir(), 'node-sqlite-'));

  constructor() {
    this.databases = openDatabases(this.#sharding(), sqlite);
    this.accounts = new SqliteAccounts(this.databases);
    this.tags = new SqliteRepository({ model: Tag, codec: tagCodec, databases: this.databases });
  }

  async storedEvents(shard: ShardIdentifier): Promise<readonly StoredEvent[]> {
    const rows = await this.#rows(shard, 'select * from events order by position');
    return rows.map((row) => ({
      id: String(row['id']),
      actionId: String(row['action_id']),
      ordinal: Number(row['ordinal']),
      namespace: String(row['namespace']),
      actionName: String(row['action_name']),
      actionParams: JSON.parse(String(row['action_params'])) as unknown,
      principal: String(row['principal']),
      modelId: row['model_id'] as string | null,
      modelName: row['model_name'] as string | null,
      modelVersion: row['model_version'] as number | null,
      eventType: row['event_type'] as string | null,
      payload: JSON.parse(String(row['payload'])) as unknown,
      headers: JSON.parse(String(row['headers'])) as unknown,
      startedDate: new Date(Number(row['started_ms'])),
      createdDate: new Date(Number(row['created_ms'])),
    }));
  }

  async overwriteNote({ id }: Account, note: string): Promise<void> {
    const update = `update models set fields = json_set(fields, '$.note', ?) where id = ?`;
    await this.#rows(id.resolveShardIdentifier(), update, note, id.value);
  }

  async keyCount(shard: ShardIdentifier): Promise<number> {
    return (await this.#rows(shard, 'select 1 from idempotency_keys')).length;
  }

  expireKeys(): Promise<void> {
    return this.#everywhere('update idempotency_keys set expires_ms = 0');
  }

  async clear(): Promise<void> {
    for (const table of ['models', 'events', 'idempotency_keys'])
      await this.#everywhere(`delete from ${table}`);
  }

  async close(): Promise<void> {
    await this.databases.close();
    rmSync(this.#folder, { recursive: true });
  }

  async #everywhere(text: string): Promise<void> {
    for (const shard of [firstShard, otherDatabaseShard]) await this.#rows(shard, text);
  }

  #rows(
    shard: ShardIdentifier,
    text: string,
    ...values: readonly string[]
  ): Promise<readonly Readonly<Record<string, unknown>>[]> {
    const manager = SqliteTransactionManager.of(this.databases.transactionManager(shard));
    return manager.read((connection) => connection.prepare(text).all(...values));
  }

  #sharding(): ShardingConfig {
    const member = (shard: ShardIdentifier, file: string): ShardingConfig['members'][number] => {
      const limits = { poolMax: 1, acquisitionTimeoutMs: 1, acquisitionQueueMax: 1, statementTimeoutMs: 1 };
      const times = { idleMin: 0, idleTimeoutMs: 0, lifetimeMaxMs: 0, leakThresholdMs: 0 };
      const login = { username: undefined, password: undefined, driverClassName: undefined };
      const address = join(this.#folder, file);
      const config = { path: file, name: primaryConfig, address, ...login, ...limits, ...times };
      return {
        shard,
        groupName: file,
        name: shard.toString(),
        databases: new Map([[primaryConfig, config]]),
      };
    };
    return {
      defaultShard: firstShard,
      members: [
        member(firstShard, 'first.db'),
        member(sameDatabaseShard, 'first.db'),
        member(otherDatabaseShard, 'other.db'),
      ],
    };
  }
}
