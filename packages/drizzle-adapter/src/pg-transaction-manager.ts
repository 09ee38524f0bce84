import {
  CommitOutcomeUnknownError,
  FrameworkError,
  InvariantViolationError,
  type ShardIdentifier,
  StaleRecordError,
} from '@framework/core';
import {
  type ChangeSet,
  type GroupOutcome,
  NestedTransactionError,
  OpenTransactions,
  type PersistOptions,
  type PersistOutcome,
  StorageFailureError,
  type TransactionManager,
  TransactionOverError,
  updateOfOtherTimeline,
} from '@framework/core/adapter';
import { type NodePgDatabase, drizzle } from 'drizzle-orm/node-postgres';
import type pg from 'pg';

import { PgEventLog } from './read/pg-event-log.js';
import type { ChangeSetWriter, PreparedWrite } from './write/change-set-writer.js';
import { existingAddition } from './write/existing-addition.js';
import type { GroupWriter } from './write/group-writer.js';
import type { PlainTables } from './write/plain-tables.js';
import { PgIdempotencyKeys } from './write/pg-idempotency-keys.js';
import type { Row } from './write/row-encoder.js';
import { type SentCommit, findCommit } from './connection/commit-outcome.js';
import type { ConnectionPool } from './connection/connection-pool.js';
import type { DatabasePlace } from './connection/not-ready-error.js';
import type { LockWaits } from './connection/lock-waits.js';
import { isLockTimeout, isRefusal, storageError } from './connection/storage-error.js';

/**
 * The maximum number of times that a statement is sent, each time on a new connection, when the server refuses it because the
 * previous connection is outdated.
 */
const sendingsMax = 3;

/**
 * How long a handler's action waits for its turn at a locked row; only one per row may wait. While it waits, it occupies one of the
 * handler's calls, which other models need; if it gives up, delivery retries it later.
 */
const handlerLockWaitMs = 1_000;

/** The transaction in which the caller runs. */
interface OpenTransaction {
  readonly client: pg.PoolClient;
  /** Whether it has ended although work that it started is still running. */
  over: boolean;
}

/** What the shards of one database share. */
export interface TransactionDatabase {
  /** The connections for requests. */
  readonly pool: ConnectionPool;
  readonly writer: ChangeSetWriter;
  readonly groups: GroupWriter;
  readonly plainTables: PlainTables;
  readonly lockWaits: LockWaits;
  readonly place: DatabasePlace;
  readonly statementTimeoutMs: number;
  /** @throws ShardUnavailableError `shard-unavailable` while the database is not ready */
  assertReady(shard: ShardIdentifier): void;
}

const transactions = new OpenTransactions<OpenTransaction>();

/** The transactions of one shard on PostgreSQL, as the methods of your own repositories see them. */
export interface PgTransactions extends TransactionManager {
  /** Drizzle on this shard. Its statements join the caller's transaction. */
  readonly db: NodePgDatabase;
  /**
   * Sends one statement within the caller's transaction if there is one, otherwise on a connection of its own.
   *
   * @throws ConstraintViolationError `constraint-violation`, TransientStorageError `transient-storage`, ShardUnavailableError
   * `shard-unavailable` or StorageFailureError `storage-failure` when the database does not execute the statement
   * @throws TransactionOverError `transaction-over` when the caller's transaction has ended
   */
  query<R extends pg.QueryResultRow>(query: pg.QueryConfig | pg.QueryArrayConfig): Promise<pg.QueryResult<R>>;
}

/** The transactions of one shard on PostgreSQL. */
export class PgTransactionManager implements PgTransactions {
  readonly shard: ShardIdentifier;
  readonly log: PgEventLog;
  readonly keys: PgIdempotencyKeys;
  readonly db: NodePgDatabase;
  /** The database that holds the shard. */
  readonly database: TransactionDatabase;
  readonly #pool: ConnectionPool;

  /** @param pool provides the connections; by default, those for requests */
  constructor(shard: ShardIdentifier, database: TransactionDatabase, pool: ConnectionPool = database.pool) {
    this.shard = shard;
    this.database = database;
    this.#pool = pool;
    this.log = new PgEventLog(this);
    this.keys = new PgIdempotencyKeys(this);
    this.db = drizzleOn((query, values) => this.query({ ...query, values }));
  }

  async query<R extends pg.QueryResultRow>(
    query: pg.QueryConfig | pg.QueryArrayConfig,
  ): Promise<pg.QueryResult<R>> {
    const open = transactions.of(this);
    if (open?.over === true) throw new TransactionOverError(this.shard);
    if (open === undefined) return this.#queryAlone(query);
    try {
      return await open.client.query<R>(query);
    } catch (error) {
      if (!this.#pool.isSoundAfter(error)) this.#pool.discard(open.client);
      this.#pool.retireIfStale(error, open.client);
      throw this.#errorOf(error);
    }
  }

  async inTransaction<T>(work: () => Promise<T>): Promise<T> {
    this.#assertOutside();
    // The result is returned as a function, because an error of the work says nothing about the connection and must not
    // reach the pool.
    const { end } = await this.#pool.use(this.shard, async (client) => ({
      end: await this.#transact(client, work),
    }));
    return end();
  }

  async persist(
    changes: ChangeSet,
    { shortLockWait = false, onLockedOut }: PersistOptions = {},
  ): Promise<PersistOutcome> {
    this.#assertOutside();
    const { writer, lockWaits } = this.database;
    const rows = updatedRows(changes);
    const send = (isBrief: boolean): Promise<PersistOutcome> =>
      this.#send(changes, writer.prepare(changes, isBrief));
    // When other writes already wait for a row, trying it would use a connection and fail.
    if (shortLockWait || !lockWaits.hasOneOf(rows)) {
      try {
        return await send(true);
      } catch (error) {
        if (shortLockWait || !isLockTimeout(error)) throw error;
      }
    }
    onLockedOut?.();
    const isOfHandler = changes.key?.source !== undefined;
    return lockWaits.run(this.shard, rows, send, isOfHandler ? handlerLockWaitMs : undefined);
  }

  /** Only a brief write shares a connection: a write that may wait a long time for a lock would delay those behind it. */
  async #send(changes: ChangeSet, write: PreparedWrite): Promise<PersistOutcome> {
    let client: pg.PoolClient | undefined;
    const send = async (lent: pg.PoolClient): Promise<PersistOutcome> => {
      client = lent;
      const stale = updateOfOtherTimeline(changes, this.#pool.timelineOf(lent));
      if (stale !== undefined) throw StaleRecordError.of(stale);
      return this.database.writer.send(lent, write);
    };
    for (let sending = 1; ; sending++) {
      try {
        return await (write.isBrief && write.statements.length === 1
          ? this.#pool.share(this.shard, send)
          : this.#pool.use(this.shard, send));
      } catch (error) {
        if (sending < sendingsMax && this.#pool.retireIfStale(error, client)) continue;
        if (client === undefined || isDecided(error)) throw this.#refusalOf(error, changes);
        const session = this.#sent(client, write.statements[0]?.batch.events[0]?.id);
        throw new CommitOutcomeUnknownError(this.shard, changes.action.id, { session, cause: error });
      }
    }
  }

  async persistAll(group: readonly ChangeSet[]): Promise<readonly GroupOutcome[]> {
    this.#assertOutside();
    const { groups } = this.database;
    const write = await groups.prepare(group, (query) => this.query(query));
    if (write === undefined) return group.map(() => 'single');
    let client: pg.PoolClient | undefined;
    const send = async (lent: pg.PoolClient): Promise<readonly GroupOutcome[]> => {
      client = lent;
      // One of the plans is stale. Writing them one by one will show which.
      if (group.some((changes) => updateOfOtherTimeline(changes, this.#pool.timelineOf(lent)) !== undefined))
        return group.map(() => 'single');
      const { rows } = await lent.query<(string | null)[]>(write.query);
      return write.outcomes(rows[0] ?? []);
    };
    for (let sending = 1; ; sending++) {
      try {
        return await this.#pool.use(this.shard, send);
      } catch (error) {
        if (sending < sendingsMax && this.#pool.retireIfStale(error, client)) continue;
        if (client === undefined || isDecided(error)) throw this.#errorOf(error);
        const sentOn = client;
        return group.map(({ action }, index) => {
          const eventId = write.eventIds[index];
          if (eventId === undefined) return 'single';
          const session = this.#sent(sentOn, eventId);
          return new CommitOutcomeUnknownError(this.shard, action.id, { session, cause: error });
        });
      }
    }
  }

  /** Whether an encoded row will certainly be stored exactly as it was sent. */
  isStoredAsSent({ shape }: Row): boolean {
    return this.database.plainTables.isKnownPlain(shape, (query) => this.#queryAlone(query));
  }

  get timeline(): number {
    return this.#pool.timeline;
  }

  isInTransaction(): boolean {
    return transactions.of(this) !== undefined;
  }

  async isCommitted(unknown: CommitOutcomeUnknownError): Promise<boolean> {
    return findCommit(this.#pool, unknown, this.database.statementTimeoutMs);
  }

  #sent(client: pg.PoolClient, eventId: string | undefined): SentCommit {
    return { server: this.#pool.sessionOf(client), eventId };
  }

  async #queryAlone<R extends pg.QueryResultRow>(
    query: pg.QueryConfig | pg.QueryArrayConfig,
  ): Promise<pg.QueryResult<R>> {
    this.database.assertReady(this.shard);
    let client: pg.PoolClient | undefined;
    const send = (lent: pg.PoolClient): Promise<pg.QueryResult<R>> => (client = lent).query<R>(query);
    for (let sending = 1; ; sending++) {
      try {
        return await this.#pool.use(this.shard, send);
      } catch (error) {
        if (sending < sendingsMax && this.#pool.retireIfStale(error, client)) continue;
        throw this.#errorOf(error);
      }
    }
  }

  /** Runs the work between begin and commit. Returns a function that yields its result or throws its error. */
  async #transact<T>(client: pg.PoolClient, work: () => Promise<T>): Promise<() => T> {
    const transaction: OpenTransaction = { client, over: false };
    try {
      await this.#begin(client);
      const result = await transactions.runWithin(this, transaction, work);
      transaction.over = true;
      await this.#commit(client);
      return () => result;
    } catch (error) {
      transaction.over = true;
      if (client.getTransactionStatus() !== 'I') {
        await client.query('rollback').catch(() => this.#pool.discard(client));
      }
      return () => {
        throw error;
      };
    }
  }

  /** The error for a change set that was not written. */
  #refusalOf(error: unknown, { changes }: ChangeSet): FrameworkError {
    const refusal = this.#errorOf(error);
    const existing = existingAddition(refusal, changes);
    return existing === undefined ? refusal : StaleRecordError.of(existing);
  }

  #errorOf(error: unknown): FrameworkError {
    return storageError(this.shard, error, this.database.place.of(this.shard));
  }

  #assertOutside(): void {
    const open = transactions.of(this);
    if (open?.over === true) throw new TransactionOverError(this.shard);
    if (open !== undefined) throw new NestedTransactionError(this.shard);
    this.database.assertReady(this.shard);
  }

  async #begin(client: pg.PoolClient): Promise<void> {
    await client.query('begin').catch((error: unknown) => {
      this.#pool.discard(client);
      throw this.#errorOf(error);
    });
  }

  async #commit(client: pg.PoolClient): Promise<void> {
    const { command } = await client.query('commit').catch((error: unknown) => {
      if (!this.#pool.isSoundAfter(error)) this.#pool.discard(client);
      if (isDecided(error)) throw this.#errorOf(error);
      throw new CommitOutcomeUnknownError(this.shard, undefined, { cause: error });
    });
    if (command === 'COMMIT') return;
    const reason =
      'the transaction was rolled back because a statement in it failed, although the work caught the error';
    throw new StorageFailureError(this.shard, reason);
  }
}

/** Narrows a shard's manager to PostgreSQL's; throws InvariantViolationError if another driver opened the shard. */
export function pgManager(manager: TransactionManager): PgTransactionManager {
  if (manager instanceof PgTransactionManager) return manager;
  throw new InvariantViolationError(
    `${manager.shard.toString()} was not opened with postgres(), so a PgRepository cannot use it: ` +
      'pass it the result of openDatabases(sharding, postgres())',
  );
}

/** Whether it is certain that nothing was committed. */
function isDecided(error: unknown): boolean {
  return isRefusal(error) || FrameworkError.is(error);
}

function updatedRows({ changes }: ChangeSet): readonly string[] {
  return changes.filter(({ kind }) => kind === 'update').map(({ model }) => model.id.value);
}

/** Sends a statement of Drizzle on the right connection. */
type Send = (query: pg.QueryConfig, values: unknown[]) => Promise<pg.QueryResult>;

/** Looks like a pool to Drizzle, which recognises one by the word `Pool` in the name of its class. */
class ShardPool {
  constructor(readonly query: Send) {}

  connect(): never {
    throw new InvariantViolationError(
      "Use the transaction manager's inTransaction(…) instead of Drizzle's transaction(…)",
    );
  }
}

/** A Drizzle instance for one shard. Every statement goes to the caller's transaction or to the pool. */
function drizzleOn(send: Send): NodePgDatabase {
  return drizzle(new ShardPool(send) as unknown as pg.Pool);
}
