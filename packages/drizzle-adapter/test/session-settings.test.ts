// @module-tag postgres
import { type SuiteContext, decimal, firstShard } from '@framework/conformance';
import { sql } from 'drizzle-orm';
import { describe, expect, test } from 'vitest';
import { emptyDatabase } from './fixtures/empty-database.js';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { PgFixture } from './fixtures/pg-fixture.js';
import { query } from './fixtures/query.js';

/** Settings with which values are written differently from how the adapter and Drizzle read them, or lose precision. */
const hostile = {
  extra_float_digits: '-15',
  IntervalStyle: 'sql_standard',
  DateStyle: 'German, DMY',
  TimeZone: 'Asia/Kathmandu',
  bytea_output: 'escape',
  standard_conforming_strings: 'off',
  array_nulls: 'off',
};

const values = sql`select 0.1::float8 + 0.2::float8 as float, 1.1::float4::float8 as wide, 1.1::float4 as narrow,
  interval '1 day -2:03:04.5' as span, timestamptz '2026-03-04 05:06:07.891+00' as moment, date '2026-03-04' as day,
  '\\x00ff5c41'::bytea as bytes, 'a\\b' as text, array[1, null]::text as list, '{a,NULL}'::text[] as given`;

async function open(url: string): Promise<SuiteContext> {
  const registry = openRegistry([{ group: 0, member: 0, url }]);
  await registry.ready();
  return suiteOn(registry);
}

describe('the contents of a database', () => {
  test('are read and written in the same way, whatever the settings of the role or the database', async () => {
    const [plain, hostiled] = await Promise.all([emptyDatabase(), emptyDatabase()]);
    const [row] = await query<{ name: string }>(hostiled.url, 'select current_database() as name');
    for (const [name, value] of Object.entries(hostile))
      await query(hostiled.url, `alter database ${row?.name} set ${name} = '${value}'`);
    const suites = await Promise.all([open(plain.url), open(hostiled.url)]);
    const [expected, seen] = await Promise.all(
      suites.map(async ({ fixture }) => {
        const { rows } = await new PgFixture(fixture.databases).accounts.db(firstShard).execute(values);
        return rows;
      }),
    );
    expect(seen).toEqual(expected);
    const suite = suites[1];
    const fields = { note: 'a\\b', balance: decimal('0.1'), settings: { a: [1, null] } };
    const account = await suite.openAccount(firstShard, fields);
    expect(await suite.accounts.getById(account.id)).toEqual(account);
  });
});

describe('a transaction', () => {
  test("sees others' commits before each statement, whatever the settings of the role or the database", async () => {
    const { url, database } = await emptyDatabase();
    await query(url, `alter database ${database} set default_transaction_isolation = 'serializable'`);
    const { fixture } = await open(url);
    const { rows } = await new PgFixture(fixture.databases).accounts
      .db(firstShard)
      .execute(sql`select current_setting('transaction_isolation') as level`);
    expect(rows).toEqual([{ level: 'read committed' }]);
  });
});
