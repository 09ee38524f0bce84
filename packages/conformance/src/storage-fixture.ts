import type { DatabaseRegistry, Page, PageRequest, Repository, ShardIdentifier } from '@framework/core';
import type { AnyEntity, ModelMapper } from '@framework/core/adapter';

import type { Account, Tag } from './account.js';

/**
 * What an adapter gives the suite: its registry, its repositories of the suite's models, and some means of looking
 * behind them.
 *
 * The shards (0, 0) and (1, 0) stand in different databases, and (0, 1) in the database of (0, 0); (0, 0) is the
 * default. Every database has tables for {@link Account} and {@link Tag}; where columns have types, a balance has 20
 * digits before and 18 after the point.
 */
export interface StorageFixture {
  /** What the database cannot hold: it must be refused when it is staged. Everything else must come back as it is. */
  readonly cannotHold: ReadonlySet<LimitedValue>;
  readonly databases: DatabaseRegistry;
  readonly accounts: AccountReader;
  readonly tags: ModelReader<Tag>;
  /** Every row of the log in the shard's database, in the order in which they were written. */
  storedEvents(shard: ShardIdentifier): Promise<readonly StoredEvent[]>;
  /** Sets the note of an account's row behind the framework's back, within the transaction in which it is called. */
  overwriteNote(account: Account, note: string): Promise<void>;
  /** How many idempotency keys the shard's database holds, expired ones included. */
  keyCount(shard: ShardIdentifier): Promise<number>;
  /** Lets every idempotency key of all databases expire now. */
  expireKeys(): Promise<void>;
  /** Empties every table, every log and the idempotency keys. */
  clear(): Promise<void>;
  /** Closes the registry and removes what the fixture made. */
  close(): Promise<void>;
}

/**
 * A kind of value that some databases hold and others do not: dates after the year 9999, decimals with more than 20 digits before or 18
 * after the point, texts of decimals that are not digits and a point, integers of more than 64 bits, fields that are `undefined`.
 */
export type LimitedValue =
  'distant-years' | 'long-decimals' | 'other-decimals' | 'large-integers' | 'missing-fields';

/** The repository of accounts, with reads by a condition as users write them. */
export interface AccountReader extends ModelReader<Account> {
  /** On all shards, in the order of ids. */
  findByOwner(owner: string): Promise<readonly Account[]>;
  /** The one account of the owner, `undefined` when there is none; refused with `not-unique` when several are. */
  findOneByOwner(owner: string): Promise<Account | undefined>;
  countByOwner(owner: string): Promise<number>;
  findPageByOwner(owner: string, page: PageRequest<Account>): Promise<Page<Account>>;
}

/** One row of the log, column by column; JSON columns as values. */
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

/** What the suite reads and writes through: both ports of an adapter's repositories. */
export interface ModelReader<M extends AnyEntity> extends Repository<M>, ModelMapper<M> {}
