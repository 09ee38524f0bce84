import type { TestDatabase } from '@framework/testing/postgres';
import pg from 'pg';

import { withSession } from '../database-session.js';
import type { ShardDatabases } from '../start-test-service.js';

/** All rows of all tables of both databases, as texts, by database and table. */
export async function allRows({
  global,
  mexico,
}: ShardDatabases): Promise<Readonly<Record<string, readonly string[]>>> {
  const [one, other] = await Promise.all([rowsIn('global', global), rowsIn('mexico', mexico)]);
  return { ...one, ...other };
}

function rowsIn(name: string, database: TestDatabase): Promise<Readonly<Record<string, readonly string[]>>> {
  return withSession(database, async (session) => {
    const { rows: tables } = await session.query<{ schemaname: string; tablename: string }>(
      `select schemaname, tablename from pg_tables where schemaname not in ('pg_catalog', 'information_schema')`,
    );
    const contents: Record<string, readonly string[]> = {};
    for (const { schemaname, tablename } of tables) {
      const table = `${pg.escapeIdentifier(schemaname)}.${pg.escapeIdentifier(tablename)}`;
      const { rows } = await session.query<{ row: string }>(
        `select to_jsonb(t)::text as row from ${table} t order by 1`,
      );
      contents[`${name}: ${schemaname}.${tablename}`] = rows.map(({ row }) => row);
    }
    return contents;
  });
}
