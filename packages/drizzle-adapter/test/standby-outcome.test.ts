// @module-tag postgres
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CommitOutcomeUnknownError, ShardedId } from '@framework/core';
import type { TransactionManager } from '@framework/core/adapter';
import { EmbeddedPostgres } from '@framework/embedded-postgres';
import type { MessageOutcome } from '@framework/testing';
import { Tag, firstShard } from '@framework/conformance';
import { TestDatabase } from '@framework/testing/postgres';
import { expect, onTestFinished, test } from 'vitest';
import { openRegistry } from './fixtures/open-registry.js';
import { changeSetOf } from './fixtures/persist.js';
import { PgTagRepository } from './fixtures/pg-tag-repository.js';
import { proxied } from './fixtures/proxied.js';
import { query } from './fixtures/query.js';

const name = 'wallets';
/** Short, so that a standby is not asked in vain for long. */
const hasty = { 'statement-timeout-ms': 1_000 };

test('only the original server reports a lost commit as missing; a standby reports only commits that it has', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'standby-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const primary = await start(directory);
  const [missing, there] = await lostCommits(new TestDatabase(primary.url('postgres'), name));
  expect(await managerOn(primary).isCommitted(missing)).toBe(false);
  await primary.stop();

  // The primary's data is started as a standby that has received everything.
  await writeFile(join(primary.dataDirectory, 'standby.signal'), '');
  const standby = await start(directory);
  const manager = managerOn(standby, hasty);
  expect(await query(standby.url(name), 'select pg_is_in_recovery() as standby')).toEqual([
    { standby: true },
  ]);
  // Nothing is read from it before it is promoted.
  await expect(manager.isCommitted(missing)).rejects.toBe(missing);
  await expect(manager.isCommitted(there)).rejects.toBe(there);

  expect(await query(standby.url(name), 'select pg_promote() as promoted')).toEqual([{ promoted: true }]);
  // On a busy machine, the preparations of the promoted server take longer than one statement may.
  await expect
    .poll(() => manager.isCommitted(there).catch((error: unknown) => error), { timeout: 30_000 })
    .toBe(true);
  await expect(manager.isCommitted(missing)).rejects.toBe(missing);
});

async function start(directory: string): Promise<EmbeddedPostgres> {
  const server = await EmbeddedPostgres.start({ directory, settings: { fsync: 'off' } });
  onTestFinished(() => server.stop());
  return server;
}

/** Two commits whose answers were lost: one that did not arrive, and one that did. */
async function lostCommits(
  database: TestDatabase,
): Promise<readonly [CommitOutcomeUnknownError, CommitOutcomeUnknownError]> {
  const administrator = new URL(database.url);
  administrator.pathname = '/postgres';
  await query(administrator.href, `create database ${name}`);
  const { proxy, url } = await proxied(database);
  const registry = openRegistry([{ group: 0, member: 0, url }]);
  await registry.ready();
  const tags = new PgTagRepository(registry);
  const lose = async (verdict: MessageOutcome): Promise<CommitOutcomeUnknownError> => {
    proxy.judge = ({ direction, bytes }) =>
      direction === 'to-server' && bytes.includes('framework_write') ? verdict : 'forward';
    const tag = new Tag({
      id: ShardedId.generate(Tag, firstShard),
      state: 'ACTIVE',
      label: verdict,
      version: 1,
    });
    const sent = registry.transactionManager(firstShard).persist(changeSetOf(tags, tag));
    const error: unknown = await sent.catch((reason: unknown) => reason);
    if (error instanceof CommitOutcomeUnknownError) return error;
    throw new Error(`The answer was not lost, but there was ${String(error)}`);
  };
  const lost = [await lose('cut'), await lose('forward-and-cut')] as const;
  await registry.close();
  return lost;
}

/** The transactions of a process that opens the database there, without migrating it. */
function managerOn(
  server: EmbeddedPostgres,
  settings: Readonly<Record<string, unknown>> = {},
): TransactionManager {
  const url = server.url(name);
  return openRegistry([{ group: 0, member: 0, url, settings }], {
    migrate: 'off',
  }).transactionManager(firstShard);
}
