import type { ShardIdentifier } from '@framework/core';
import { NestedTransactionError, OpenTransactions, TransactionOverError } from '@framework/core/adapter';
import { DatabaseSync } from 'node:sqlite';

// Every model is a row of one table, with its own fields as JSON. So an application needs no migrations; its queries use
// `fields ->> 'owner'`.
const tables = `
  pragma journal_mode = wal;
  pragma synchronous = full;
  create table if not exists models (
    model text, id text, state text not null, version integer not null, fields text not null,
    primary key (model, id)
  ) strict, without rowid;
  create table if not exists events (
    position integer primary key, id text not null unique, shard text not null, action_id text not null,
    ordinal integer not null, namespace text not null, action_name text not null, action_params text not null,
    principal text not null, model_id text, model_name text, model_version integer, event_type text,
    payload text check (json_valid(payload)), headers text not null, started_ms integer not null,
    created_ms integer not null
  ) strict;
  create index if not exists events_of_models on events (model_id, model_name, model_version, ordinal);
  create index if not exists events_of_actions on events (action_id);
  create table if not exists idempotency_keys (
    serial integer primary key autoincrement, namespace text not null, principal text not null, key text not null,
    fingerprint text not null, action_id text not null, action_name text not null, result text, source text,
    created_ms integer not null, expires_ms integer not null,
    unique (namespace, principal, key)
  ) strict`;

/** A transaction begun by `inTransaction`, on its own connection. */
interface OpenTransaction {
  readonly connection: DatabaseSync;
  /** Whether the transaction has ended; work that it started may still be running. */
  isOver: boolean;
}

const transactions = new OpenTransactions<OpenTransaction>();

/**
 * One SQLite file. Statements are synchronous, so a transaction without waits is only a `begin` and a `commit`. A transaction
 * that waits has its own connection, and other writers wait until it ends.
 */
export class SqliteFile {
  readonly #path: string;
  readonly #connection: DatabaseSync;
  /** Resolves when the last admitted writer has finished. */
  #written: Promise<unknown> = Promise.resolve();

  constructor(path: string) {
    this.#path = path;
    this.#connection = this.#connect();
    this.#connection.exec(tables);
  }

  /** The connection of the caller's transaction; outside of transactions, the shared one, which sees only what is committed. */
  connection(shard: ShardIdentifier): DatabaseSync {
    const open = transactions.of(this);
    if (open?.isOver === true) throw new TransactionOverError(shard);
    return open?.connection ?? this.#connection;
  }

  isInTransaction(): boolean {
    return transactions.of(this) !== undefined;
  }

  /** Writes in one transaction, without waiting in between. */
  write<T>(shard: ShardIdentifier, work: (connection: DatabaseSync) => T): Promise<T> {
    return this.#alone(shard, async () => {
      this.#connection.exec('begin immediate');
      try {
        const result = work(this.#connection);
        this.#connection.exec('commit');
        return result;
      } catch (error) {
        this.#connection.exec('rollback');
        throw error;
      }
    });
  }

  /** Runs work in one transaction, which every read and write started by it joins. */
  inTransaction<T>(shard: ShardIdentifier, work: () => Promise<T>): Promise<T> {
    return this.#alone(shard, async () => {
      const transaction = { connection: this.#connect(), isOver: false };
      try {
        transaction.connection.exec('begin immediate');
        const result = await transactions.runWithin(this, transaction, work);
        transaction.connection.exec('commit');
        return result;
      } finally {
        transaction.isOver = true;
        // Anything that was not committed is rolled back.
        transaction.connection.close();
      }
    });
  }

  /** Admits one writer after the other. */
  async #alone<T>(shard: ShardIdentifier, work: () => Promise<T>): Promise<T> {
    this.connection(shard);
    if (this.isInTransaction()) throw new NestedTransactionError(shard);
    const result = this.#written.then(work);
    this.#written = result.catch(() => undefined);
    return result;
  }

  /** Opens a connection that waits for up to 5 seconds while another process is writing. */
  #connect(): DatabaseSync {
    return new DatabaseSync(this.#path, { timeout: 5_000 });
  }

  /** Closes the file once the writes that were requested have finished. */
  async close(): Promise<void> {
    await this.#written;
    this.#connection.close();
  }
}
