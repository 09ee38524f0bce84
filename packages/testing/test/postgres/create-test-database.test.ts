import { Client } from 'pg';
import { afterEach, describe, expect, test, vi } from 'vitest';

import { createTestDatabase, startTestPostgres } from '../../src/postgres/index.js';

describe('createTestDatabase', () => {
  test('creates databases that share nothing', async () => {
    const [one, other] = await Promise.all([createTestDatabase(), createTestDatabase()]);
    await query(one.url, 'create table own (id int)');
    expect(await query(other.url, "select to_regclass('own')::text as found")).toEqual([{ found: null }]);
    await Promise.all([one.drop(), other.drop()]);
  });

  test('exposes the parts of the URL', async () => {
    const created = await createTestDatabase();
    const { database, host, password, port, url, user } = created;
    const client = new Client({ host, port, user, password, database });
    await client.connect();
    expect((await client.query('select current_database() as name')).rows).toEqual([{ name: database }]);
    await client.end();
    expect(new URL(url).pathname).toBe(`/${database}`);
    await created.drop();
  });

  test('creates databases that can be dropped while they have sessions, even twice', async () => {
    const database = await createTestDatabase();
    const session = new Client({ connectionString: database.url });
    const lost = new Promise<Error>((resolve) => session.on('error', resolve));
    await session.connect();
    await database.drop();
    await database.drop();
    expect(await lost).toMatchObject({ code: '57P01' });
    await expect(query(database.url, 'select 1')).rejects.toMatchObject({ code: '3D000' });
  });
});

describe('startTestPostgres', () => {
  afterEach(() => void vi.unstubAllEnvs());

  test('refuses an unreachable TEST_DATABASE_URL without revealing its password', async () => {
    vi.stubEnv('TEST_DATABASE_URL', 'postgres://somebody:secret@127.0.0.1:1/postgres');
    const refusal = await startTestPostgres().catch((error: unknown) => error);
    expect(refusal).toMatchObject({ code: 'server-unreachable' });
    expect(String(refusal)).not.toContain('secret');
  });
});

/** Runs one statement in a separate session; returns the rows. */
async function query(url: string, statement: string): Promise<readonly Record<string, unknown>[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(statement)).rows;
  } finally {
    await client.end();
  }
}
