import type { TestDatabase } from '@framework/testing/postgres';
import pg from 'pg';

/** Runs work on a connection to a database that the service does not use. */
export async function withSession<T>(
  database: TestDatabase,
  work: (session: pg.Client) => Promise<T>,
): Promise<T> {
  const session = new pg.Client({ connectionString: database.url });
  await session.connect();
  try {
    return await work(session);
  } finally {
    await session.end();
  }
}

/** The rows of a query. */
export async function rowsOf(
  database: TestDatabase,
  text: string,
  values: readonly unknown[] = [],
): Promise<readonly Readonly<Record<string, unknown>>[]> {
  return withSession(database, async (session) => (await session.query(text, [...values])).rows);
}

/** How many statements of the service are waiting for a lock in the database. */
export async function lockedCount(database: TestDatabase): Promise<number> {
  const rows = await rowsOf(
    database,
    `select from pg_stat_activity
     where datname = current_database() and wait_event_type = 'Lock' and application_name = 'wallet-service'`,
  );
  return rows.length;
}
