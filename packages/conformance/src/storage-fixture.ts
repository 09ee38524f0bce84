import type { DatabaseRegistry, Page, PageRequest, Repository, ShardIdentifier } from '@framework/core';
import type { AnyEntity, ModelMapper } from '@framework/core/adapter';

import type { Account, Tag } from './account.js';

/**
 * What an adapter passes to the suite: its registry, its repositories of the suite's models, and some ways to inspect the
 * databases directly.
 *
 * The shards (0, 0) and (1, 0) are in different databases, and (0, 1) is in the database of (0, 0); (0, 0) is the default. Every
 * database has tables for {@link Account} and {@link Tag}; if columns have types, a balance has 20 digits before and 18 after the
 * decimal point.
 */
export interface StorageFixture {
  /** Values that the database cannot hold: they must be refused when they are staged. All others must be read back unchanged. */
  readonly cannotHold: ReadonlySet<LimitedValue>;
  readonly databases: DatabaseRegistry;
  readonly accounts: AccountReader;
  readonly tags: ModelReader<Tag>;
  /** Every row of the log in the shard's database, in the order in which they were written. */
  storedEvents(shard: ShardIdentifier): Promise<readonly StoredEvent[]>;
  /** Sets the note of an account's row without the framework, in the caller's transaction. */
  overwriteNote(account: Account, note: string): Promise<void>;
  /** How many idempotency keys the shard's database has, including expired ones. */
  keyCount(shard: ShardIdentifier): Promise<number>;
  /** Makes every idempotency key of all databases expire now. */
  expireKeys(): Promise<void>;
  /** Empties every table, every log and the idempotency keys. */
  clear(): Promise<void>;
  /** Closes the registry and removes everything that the fixture created. */
  close(): Promise<void>;
}

/**
 * A kind of value that some databases can hold and others cannot: dates after the year 9999, decimals with more than 20 digits
 * before or 18 after the decimal point, texts of decimals in any other form than digits and a decimal point, integers of more
 * than 64 bits, fields that are `undefined`.
 */
export type LimitedValue =
  'distant-years' | 'long-decimals' | 'other-decimals' | 'large-integers' | 'missing-fields';

/** The repository of accounts, with reads by a condition as users write them. */
export interface AccountReader extends ModelReader<Account> {
  /** All accounts of the owner, on all shards, in the order of ids. */
  findByOwner(owner: string): Promise<readonly Account[]>;
  /** The one account of the owner, `undefined` if there is none; throws `not-unique` if there are several. */
  findOneByOwner(owner: string): Promise<Account | undefined>;
  /** The number of the owner's accounts on all shards. */
  countByOwner(owner: string): Promise<number>;
  /** One page of the owner's accounts; throws like {@link Repository.findPage}. */
  findPageByOwner(owner: string, page: PageRequest<Account>): Promise<Page<Account>>;
}

/** One row of the log, column by column; JSON columns are parsed. */
export interface StoredEvent {
  readonly id: string;
  readonly actionId: string;
  readonly ordinal: number;
  readonly namespace: string;
  readonly actionName: string;
  readonly actionParams: unknown;
  readonly principal: string;
  readonly modelId: string | null;
  readonly modelName: string | null;
  readonly modelVersion: number | null;
  readonly eventType: string | null;
  readonly payload: unknown;
  readonly headers: unknown;
  readonly startedDate: Date;
  readonly createdDate: Date;
}

/** What the suite reads and writes with: both ports of an adapter's repositories. */
export interface ModelReader<M extends AnyEntity> extends Repository<M>, ModelMapper<M> {}
