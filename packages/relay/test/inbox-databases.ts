import { createTestDatabase } from '@framework/testing/postgres';
import { sql } from 'drizzle-orm';
import { type NodePgDatabase, drizzle } from 'drizzle-orm/node-postgres';
import { CompiledQuery, Kysely, PostgresDialect, type Transaction } from 'kysely';
import { type Connection, type ResultSetHeader, type RowDataPacket, createConnection } from 'mysql2/promise';
import { randomUUID } from 'node:crypto';
import { DatabaseSync } from 'node:sqlite';
import { type ClientBase, Pool } from 'pg';
import postgres from 'postgres';

import type { InboxDialect, InboxQuery } from '../src/inbox/index.js';

/** A consumer's database, with a table `effects` of one row, whose `value` is a number. */
export interface InboxDatabase {
  readonly dialect: InboxDialect;
  /** Runs statements outside of transactions. */
  readonly query: InboxQuery;
  /** Runs work in a transaction on a connection of its own. */
  transaction(work: (query: InboxQuery) => Promise<void>): Promise<void>;
  /** The number in `effects`. */
  value(): Promise<number>;
  /** How many transactions wait for another one; `undefined` if they cannot run at the same time. */
  readonly waiting: (() => Promise<number>) | undefined;
  close(): Promise<void>;
}

export function queryOfPg(tx: ClientBase | Pool): InboxQuery {
  return async (text, values) => {
    const { rowCount } = await tx.query(text, [...values]);
    return rowCount;
  };
}

function queryOfDrizzle(tx: Pick<NodePgDatabase, 'execute'>): InboxQuery {
  return async (text, values) => {
    const parts = text.split(/\$\d/);
    const { rowCount } = await tx.execute(sql(Object.assign(parts, { raw: parts }), ...values));
    return rowCount;
  };
}

function queryOfKysely(tx: Transaction<unknown> | Kysely<unknown>): InboxQuery {
  return async (text, values) => {
    const { numAffectedRows } = await tx.executeQuery(CompiledQuery.raw(text, [...values]));
    return numAffectedRows;
  };
}

function queryOfPostgresJs(tx: postgres.TransactionSql | postgres.Sql): InboxQuery {
  return async (text, values) => {
    const { count } = await tx.unsafe(text, [...values]);
    return count;
  };
}

function queryOfMysql2(tx: Connection): InboxQuery {
  return async (text, values) => {
    const [{ affectedRows }] = await tx.execute<ResultSetHeader>(text, [...values]);
    return affectedRows;
  };
}

function queryOfNodeSqlite(database: DatabaseSync): InboxQuery {
  return (text, values) => database.prepare(text).run(...values).changes;
}

/** A database of its own on the PostgreSQL server of the tests. */
async function openPostgres() {
  const database = await createTestDatabase();
  const pool = new Pool({ connectionString: database.url });
  // The database is dropped while sessions may still be closing.
  pool.on('error', () => undefined);
  await pool.query('create table effects (value int not null)');
  await pool.query('insert into effects values (0)');
  const waiting = `select count(*)::int from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
  const number = async (text: string): Promise<number> => {
    const { rows } = await pool.query<[number]>({ text, rowMode: 'array' });
    return rows[0]?.[0] ?? Number.NaN;
  };
  return {
    url: database.url,
    pool,
    dialect: 'postgresql' as const,
    value: () => number('select value from effects'),
    waiting: () => number(waiting),
    close: async () => {
      await pool.end();
      await database.drop();
    },
  };
}

export async function withPg(): Promise<InboxDatabase> {
  const { pool, ...database } = await openPostgres();
  return {
    ...database,
    query: queryOfPg(pool),
    transaction: (work) => pgTransaction(pool, (client) => work(queryOfPg(client))),
  };
}

/** Runs work in a transaction, as a user of `pg` does. */
export async function pgTransaction<T>(
  pool: Pool,
  work: (tx: ClientBase) => Promise<T>,
  begin = 'begin',
): Promise<T> {
  const client = await pool.connect();
  try {
    await client.query(begin);
    const result = await work(client);
    await client.query('commit');
    return result;
  } catch (error) {
    await client.query('rollback');
    throw error;
  } finally {
    client.release();
  }
}

export async function withDrizzle(): Promise<InboxDatabase> {
  const { pool, ...database } = await openPostgres();
  const db = drizzle(pool);
  return {
    ...database,
    query: queryOfDrizzle(db),
    transaction: (work) => db.transaction((tx) => work(queryOfDrizzle(tx))),
  };
}

export async function withKysely(): Promise<InboxDatabase> {
  const { pool, ...database } = await openPostgres();
  const db = new Kysely<unknown>({ dialect: new PostgresDialect({ pool }) });
  return {
    ...database,
    query: queryOfKysely(db),
    transaction: (work) => db.transaction().execute((tx) => work(queryOfKysely(tx))),
  };
}

export async function withPostgresJs(): Promise<InboxDatabase> {
  const { url, close, ...database } = await openPostgres();
  const db = postgres(url, { onnotice: () => undefined });
  return {
    ...database,
    query: queryOfPostgresJs(db),
    transaction: async (work) => {
      await db.begin((tx) => work(queryOfPostgresJs(tx)));
    },
    close: async () => {
      await db.end();
      await close();
    },
  };
}

/** A database of its own on a server of MariaDB or MySQL. */
export async function withMysql2(server: URL): Promise<InboxDatabase> {
  const name = `inbox_${randomUUID().replaceAll('-', '')}`;
  const administrator = await createConnection(server.href);
  await administrator.query(`create database ${name}`);
  const uri = new URL(`/${name}`, server).href;
  const connection = await createConnection(uri);
  await connection.query('create table effects (value int not null)');
  await connection.query('insert into effects values (0)');
  const number = async (text: string): Promise<number> => {
    const [rows] = await connection.query<RowDataPacket[]>(text);
    return Number((rows[0] as { readonly number: number } | undefined)?.number);
  };
  return {
    dialect: 'mysql',
    query: queryOfMysql2(connection),
    transaction: async (work) => {
      const tx = await createConnection(uri);
      try {
        await tx.beginTransaction();
        await work(queryOfMysql2(tx));
        await tx.commit();
      } finally {
        // What is not committed is rolled back.
        await tx.end();
      }
    },
    value: () => number('select value as number from effects'),
    waiting: () =>
      number(
        'select count(*) as number from information_schema.innodb_trx join information_schema.processlist on id = trx_mysql_thread_id ' +
          "where trx_state = 'LOCK WAIT' and db = database()",
      ),
    close: async () => {
      await connection.end();
      await administrator.query(`drop database ${name}`);
      await administrator.end();
    },
  };
}

/** A database in memory, whose connection is the only one. */
export async function withNodeSqlite(): Promise<InboxDatabase> {
  const database = new DatabaseSync(':memory:');
  database.exec('create table effects (value int not null); insert into effects values (0)');
  const query = queryOfNodeSqlite(database);
  return {
    dialect: 'sqlite',
    query,
    transaction: async (work) => {
      database.exec('begin');
      try {
        await work(query);
        database.exec('commit');
      } catch (error) {
        database.exec('rollback');
        throw error;
      }
    },
    value: async () => Number(database.prepare('select value from effects').get()?.['value']),
    waiting: undefined,
    close: async () => database.close(),
  };
}
