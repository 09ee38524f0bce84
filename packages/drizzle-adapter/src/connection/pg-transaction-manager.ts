import { setTimeout as delay } from 'node:timers/promises';
import {
  type ChangeSet,
  CommitOutcomeUnknownException,
  FrameworkException,
  type GroupOutcome,
  InvariantViolation,
  NestedTransactionException,
  type PersistOutcome,
  type ShardIdentifier,
  StorageFailureException,
  type TransactionManager,
  TransactionOverException,
} from '@framework/core';
import type { NodePgDatabase } from 'drizzle-orm/node-postgres';
import type pg from 'pg';
import { PgIdempotencyKeys } from '../idempotency/pg-idempotency-keys.js';
import { PgEventLog } from '../read/pg-event-log.js';
import { type ConnectionPool, type ServerSession, isPlainServerError } from './connection-pool.js';
import { drizzleOn } from './drizzle-client.js';
import { type OpenTransaction, openTransaction, runWithin } from './open-transactions.js';
import type { PgDatabase } from './pg-database.js';
import { storageError } from './storage-error.js';

const outcomePollMs = 50;

/** By what the outcome of a commit is found. */
interface SentCommit {
  /** The process that ran it; `undefined` when something between client and server hides it. */
  readonly server: ServerSession | undefined;
  /** One of its rows in the log; the action's id would also find those on another shard of the database. */
  readonly eventId: string | undefined;
}

/** The transactions of one shard on PostgreSQL. */
export class PgTransactionManager implements TransactionManager {
  readonly shard: ShardIdentifier;
  readonly log: PgEventLog;
  readonly keys: PgIdempotencyKeys;
  /** Drizzle on this shard; joins the transaction in which it is used. */
  readonly db: NodePgDatabase;
  /** The database that holds the shard. */
  readonly database: PgDatabase;
  readonly #pool: ConnectionPool;

  /** @param pool where the connections come from; those of the requests, unless told otherwise */
  constructor(shard: ShardIdentifier, database: PgDatabase, pool: ConnectionPool = database.pool) {
    this.shard = shard;
    this.database = database;
    this.#pool = pool;
    this.log = new PgEventLog(this);
    this.keys = new PgIdempotencyKeys(this);
    this.db = drizzleOn((query, values) => this.query({ ...query, values }));
  }

  /**
   * Sends one statement: within the transaction in which the caller runs, else on a connection of its own.
   *
   * @throws what {@link storageError} makes of it; TransactionOverException (`transaction-over`) after the end
   */
  async query<R extends pg.QueryResultRow>(
    query: pg.QueryConfig | pg.QueryArrayConfig,
  ): Promise<pg.QueryResult<R>> {
    const open = openTransaction(this);
    if (open?.over === true) throw new TransactionOverException(this.shard);
    try {
      if (open !== undefined) return await open.client.query<R>(query);
      this.database.assertReady(this.shard);
      return await this.#pool.use(this.shard, (client) => client.query<R>(query));
    } catch (error) {
      throw storageError(this.shard, error);
    }
  }

  async inTransaction<T>(work: () => Promise<T>): Promise<T> {
    this.#assertOutside();
    return this.#pool.use(this.shard, async (client) => {
      const transaction: OpenTransaction = { client, over: false };
      try {
        await this.#begin(client);
        const result = await runWithin(this, transaction, work);
        transaction.over = true;
        await this.#commit(client);
        return result;
      } catch (error) {
        transaction.over = true;
        if (client.getTransactionStatus() !== 'I') await client.query('rollback').catch(() => undefined);
        throw error;
      }
    });
  }

  async persist(changes: ChangeSet): Promise<PersistOutcome> {
    this.#assertOutside();
    const write = this.database.writer.prepare(changes);
    let server: ServerSession | undefined;
    let sent = false;
    try {
      const send = async (client: pg.PoolClient): Promise<PersistOutcome> => {
        server = this.#pool.sessionOf(client);
        sent = true;
        return this.database.writer.send(client, write);
      };
      return await (write.length === 1
        ? this.#pool.share(this.shard, send)
        : this.#pool.use(this.shard, send));
    } catch (error) {
      if (!sent || isDecided(error)) throw storageError(this.shard, error);
      const session: SentCommit = { server, eventId: write[0]?.batch.events[0]?.id };
      throw new CommitOutcomeUnknownException(this.shard, changes.action.id, { session, cause: error });
    }
  }

  async persistAll(group: readonly ChangeSet[]): Promise<readonly GroupOutcome[]> {
    this.#assertOutside();
    const { groups } = this.database;
    const write = groups.prepare(group);
    if (write === undefined) return group.map(() => 'alone');
    let server: ServerSession | undefined;
    let sent = false;
    try {
      return await this.#pool.use(this.shard, async (client) => {
        server = this.#pool.sessionOf(client);
        sent = true;
        const { rows } = await client.query<(string | null)[]>(write.query);
        return write.outcomes(rows[0] ?? []);
      });
    } catch (error) {
      groups.learnFrom(error, write);
      if (!sent || isDecided(error)) throw storageError(this.shard, error);
      return group.map(({ action }, index) => {
        const eventId = write.eventIds[index];
        if (eventId === undefined) return 'alone';
        const session: SentCommit = { server, eventId };
        return new CommitOutcomeUnknownException(this.shard, action.id, { session, cause: error });
      });
    }
  }

  isInTransaction(): boolean {
    return openTransaction(this) !== undefined;
  }

  /**
   * Looks for the action in the log, until the server's process that ran the commit is gone.
   *
   * The server ends a statement after its timeout, so waiting that long is enough. Behind a pooler that hides the
   * server's processes, only a commit that happened can be told for certain.
   */
  async isCommitted(unknown: CommitOutcomeUnknownException): Promise<boolean> {
    const { server, eventId } = unknown.session as SentCommit;
    const deadline = performance.now() + this.database.statementTimeoutMs + outcomePollMs;
    do {
      try {
        // Asked in this order: a process that is gone before the log is read can add nothing to it.
        const decided = server !== undefined && !(await this.#isWorking(server));
        if (await this.#isLogged(eventId, unknown.actionId)) return true;
        if (decided) return false;
      } catch (error) {
        if (!(FrameworkException.is(error) && error.retryable)) throw error;
      }
      await delay(outcomePollMs);
    } while (performance.now() < deadline);
    throw unknown;
  }

  async #isWorking({ pid, started }: ServerSession): Promise<boolean> {
    const { rowCount } = await this.query({
      text: 'select from pg_stat_activity where pid = $1 and extract(epoch from backend_start)::text = $2',
      values: [pid, started],
    });
    return rowCount !== 0;
  }

  async #isLogged(eventId: string | undefined, actionId: string | undefined): Promise<boolean> {
    const { rowCount } = await this.query({
      text: 'select from eventlog.events where action_id = $1 and id = $2',
      values: [actionId, eventId],
    });
    return rowCount !== 0;
  }

  #assertOutside(): void {
    const open = openTransaction(this);
    if (open?.over === true) throw new TransactionOverException(this.shard);
    if (open !== undefined) throw new NestedTransactionException(this.shard);
    this.database.assertReady(this.shard);
  }

  async #begin(client: pg.PoolClient): Promise<void> {
    try {
      await client.query('begin');
    } catch (error) {
      throw storageError(this.shard, error);
    }
  }

  async #commit(client: pg.PoolClient): Promise<void> {
    const { command } = await client.query('commit').catch((error: unknown) => {
      if (isDecided(error)) throw storageError(this.shard, error);
      throw new CommitOutcomeUnknownException(this.shard, undefined, { cause: error });
    });
    if (command === 'COMMIT') return;
    const reason = 'the transaction was rolled back, because the work caught the error of a statement in it';
    throw new StorageFailureException(this.shard, reason);
  }
}

/** The manager of a shard as PostgreSQL's; throws InvariantViolation where the registry has another driver. */
export function pgManager(manager: TransactionManager): PgTransactionManager {
  if (manager instanceof PgTransactionManager) return manager;
  throw new InvariantViolation(
    `${manager.shard.toString()} was not opened by postgres(): PgRepository cannot read it`,
  );
}

/** Of the managers of one database: the one in whose transaction the caller runs, else the first. */
export function joinedManager(managers: readonly TransactionManager[]): PgTransactionManager {
  const own = managers.map(pgManager);
  const joined = own.find((manager) => openTransaction(manager) !== undefined) ?? own[0];
  if (joined === undefined) throw new InvariantViolation('A database holds no shard');
  return joined;
}

/** Whether the server itself said that nothing is committed. */
function isDecided(error: unknown): boolean {
  return isPlainServerError(error) || FrameworkException.is(error);
}
