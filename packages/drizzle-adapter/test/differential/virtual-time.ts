import { onTestFinished } from 'vitest';
import pg from 'pg';
import { emptyDatabase } from '../fixtures/empty-database.js';

/**
 * Stands before `pg_catalog` in the path in which names are looked up, so that the log's own statements and functions ask this clock;
 * what names `pg_catalog` itself, such as the notes of servers and histories, goes on with real time.
 */
const clockText = `
  create schema virtual_time;
  create table virtual_time.clock (instant timestamptz not null);
  insert into virtual_time.clock values ('epoch');
  create function virtual_time.now() returns timestamptz language sql stable as 'select instant from virtual_time.clock';
  create function virtual_time.statement_timestamp() returns timestamptz language sql stable
    as 'select instant from virtual_time.clock';
  create function virtual_time.clock_timestamp() returns timestamptz language sql volatile
    as 'select instant from virtual_time.clock'`;

/** A PostgreSQL database in which time passes only as a test says. */
export class VirtualTimeDatabase {
  readonly url: string;
  readonly #client: pg.Client;

  private constructor(url: string, client: pg.Client) {
    this.url = url;
    this.#client = client;
  }

  /** Creates it at an instant, without any table; it is dropped when the test is over. */
  static async create(now: Date): Promise<VirtualTimeDatabase> {
    const { url, database } = await emptyDatabase();
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    onTestFinished(() => client.end());
    await client.query(clockText);
    await client.query(
      `alter database ${pg.escapeIdentifier(database)} set search_path = public, virtual_time, pg_catalog`,
    );
    const made = new VirtualTimeDatabase(url, client);
    await made.setTime(now);
    return made;
  }

  async setTime(now: Date): Promise<void> {
    await this.#client.query('update virtual_time.clock set instant = $1', [now]);
  }

  /** Empties its tables. */
  async clear(): Promise<void> {
    await this.#client.query(
      `truncate public.accounts, eventlog.events, eventlog.idempotency_keys, eventlog.handlers, eventlog.processes cascade`,
    );
  }
}
