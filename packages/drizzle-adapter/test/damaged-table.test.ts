// @module-tag postgres
import { mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Account, once } from '@framework/conformance';
import { EmbeddedPostgres } from '@framework/embedded-postgres';
import { expect, onTestFinished, test } from 'vitest';
import { openSuite } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';

const database = 'damaged';
const pageBytes = 8_192;

test('a row on a damaged page fails alone among concurrent reads', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'damaged-table-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const { accounts, damaged } = await fillAndDamage(directory);
  const server = await EmbeddedPostgres.start({ directory });
  onTestFinished(() => server.stop());
  const suite = await openSuite(server.url(database), {});
  const lost = accounts.find(({ id }) => damaged.has(id.value));
  const sound = accounts.filter(({ id }) => !damaged.has(id.value)).slice(0, 10);
  expect(sound).toHaveLength(10);
  const [refused, ...credits] = await Promise.allSettled(
    [lost!, ...sound].map((account) => suite.credit(account, '1', once)),
  );
  expect(refused).toMatchObject({ reason: { code: 'shard-unavailable', kind: 'damaged' } });
  expect(credits.map(({ status }) => status)).toEqual(sound.map(() => 'fulfilled'));
});

/** Fills two pages, and overwrites the first one after its server has stopped; returns the ids of the rows on it. */
async function fillAndDamage(
  directory: string,
): Promise<{ readonly accounts: readonly Account[]; readonly damaged: ReadonlySet<string> }> {
  const server = await EmbeddedPostgres.start({ directory, settings: { fsync: 'off' } });
  onTestFinished(() => server.stop());
  const url = server.url(database);
  await server.ensureDatabase(database);
  const suite = await openSuite(url, {});
  const accounts = await Promise.all(Array.from({ length: 120 }, () => suite.openAccount()));
  const rows = await query<{ id: string }>(url, `select id from accounts where ctid < '(1,0)'`);
  const [file] = await query<{ path: string }>(url, `select pg_relation_filepath('accounts') as path`);
  await suite.fixture.databases.close();
  await server.stop();
  const table = await open(join(server.dataDirectory, file!.path), 'r+');
  await table.write(Buffer.alloc(pageBytes, 'x'), 0, pageBytes, 0);
  await table.close();
  return { accounts, damaged: new Set(rows.map(({ id }) => id)) };
}
