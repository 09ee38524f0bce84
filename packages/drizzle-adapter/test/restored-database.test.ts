// @module-tag postgres
import { execFile } from 'node:child_process';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type CommitOutcomeUnknownError, ShardedId } from '@framework/core';
import type { DeliveryStore } from '@framework/core/adapter';
import { Tag, firstShard } from '@framework/conformance';
import { EmbeddedPostgres } from '@framework/embedded-postgres';
import { TestDatabase } from '@framework/testing/postgres';
import { expect, onTestFinished, test, vi } from 'vitest';
import { failedOnce } from './fixtures/blocked-models.js';
import { copyDatabase } from './fixtures/copy-database.js';
import { creditedAround, openAccountIn, readTwice } from './fixtures/credited-around.js';
import { allSlots } from './fixtures/delivery-store.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { EventWriter } from './fixtures/event-writer.js';
import { migrationsFolder } from './fixtures/migrations-folder.js';
import { openRegistry } from './fixtures/open-registry.js';
import { changeSetOf } from './fixtures/persist.js';
import { PgTagRepository } from './fixtures/pg-tag-repository.js';
import { cutOnce, proxied } from './fixtures/proxied.js';
import { query } from './fixtures/query.js';
import { refusal } from './fixtures/refusal.js';
import { whileClosed } from './fixtures/while-closed.js';

const handler = 'mails';
const leaseMs = 60_000;

/** Saves the contents of a database, and returns a function that restores them under its name on the same server. */
type Backup = (database: TestDatabase) => Promise<() => Promise<unknown>>;

const dumpUnderAnotherName: Backup = async (database) => {
  const dump = await dumpOf(database);
  return () => swap(database, dump);
};

const dumpWithTheSameOid: Backup = async (database) => {
  const [name, dump, oid] = [database.database, await dumpOf(database), await oidOf(database)];
  return async () => {
    await whileClosed(database, `drop database ${name}; create database ${name} oid ${oid}`);
    await migrate(database.url);
    await copyDatabase(dump.url, database.url, ['tags', 'accounts']);
    expect(await oidOf(database)).toBe(oid);
  };
};

/** The files are copied, with every row as it is, and one transaction renames both databases. */
const filesUnderAnotherName: Backup = async (database) => {
  const { database: name } = database;
  await copyFilesOf(database);
  return async () => {
    const original = new TestDatabase(serverOf(database), `${name}_original`);
    onTestFinished(() => original.drop());
    await whileClosed(database, `alter database ${name}_copy with allow_connections true`);
    await query(
      serverOf(database),
      `alter database ${name} rename to ${original.database}; alter database ${name}_copy rename to ${name}`,
    );
  };
};

const filesWithTheSameOid: Backup = async (database) => {
  const [name, oid] = [database.database, await oidOf(database)];
  await copyFilesOf(database);
  return async () => {
    const create = `create database ${name} oid ${oid} template ${name}_copy`;
    await whileClosed(database, `drop database ${name}; ${create}; drop database ${name}_copy`);
    expect(await oidOf(database)).toBe(oid);
  };
};

/** Like `pg_restore --clean`: open connections stay. */
const dumpInPlace: Backup = async (database) => {
  const dump = await dumpOf(database);
  return () => copyDatabase(dump.url, database.url, ['tags', 'accounts']);
};

test.for([
  ['a dump under another name', dumpUnderAnotherName, 14],
  ['a dump with the oid of its original', dumpWithTheSameOid, 15],
  ['copied files under another name', filesUnderAnotherName, 14],
  ['copied files with the oid of their original', filesWithTheSameOid, 15],
  ['a dump in place', dumpInPlace, 14],
] as const)(
  'nothing that was read before a restore on the same server is saved in the restored database (%s)',
  async ([, backUp, versionMin], { skip }) => {
    const database = await emptyDatabase();
    // Older servers choose the oid of a new database themselves.
    skip((await versionOf(database)) < versionMin);
    const { url } = database;
    await migrate(url);
    const store = await openStoreOn(url);
    await store.cursors.register({ name: handler, aliases: [], startFrom: 'beginning' });
    const [first] = await writeIn(url, 1);
    const restore = await backUp(database);
    await writeIn(url, 2);
    const { leases } = await patiently(() => store.leases.renew('one', [handler], leaseMs));
    const cursor = await cursorOf(store);
    const { events, next } = await store.log.read(allSlots, cursor, 10);
    expect(events).toHaveLength(2);
    const event = events[1]!;
    const { slot, token } = leases.find((lease) => lease.slot === event.slot)!;

    await restore();
    const save = () => store.cursors.save([{ handler, slot, token, cursor: next }]);
    expect(await patiently(save)).toEqual([token]);
    expect(await store.blocked.hold([{ ...failedOnce, handler, token, event }])).toEqual([token]);
    expect(await store.blocked.fail([{ ...failedOnce, handler, token, event }])).toEqual([token]);
    await expect(store.log.read(allSlots, next, 10)).rejects.toMatchObject({ code: 'history-changed' });
    const renewal = await store.leases.renew('one', [handler], leaseMs);
    const renewed = renewal.leases.find((lease) => lease.slot === slot)!;
    // Even under a current lease, an old cursor is not saved.
    const stale = { handler, slot, token: renewed.token, cursor: next };
    expect(await store.cursors.save([stale])).toEqual([renewed.token]);
    const restored = await store.log.read(allSlots, await cursorOf(store), 10);
    expect(restored.events.map(({ id }) => id)).toEqual([first]);
  },
);

test('a copy of the files has another history than its original, even if one transaction has changed both', async () => {
  const database = await emptyDatabase();
  const { database: name } = database;
  await migrate(database.url);
  await copyFilesOf(database);
  const copy = new TestDatabase(serverOf(database), `${name}_copy`);
  onTestFinished(() => copy.drop());
  await query(
    serverOf(database),
    `alter database ${name} connection limit 50; alter database ${copy.database} connection limit 50`,
  );
  const history = 'select eventlog.server_history() as history';
  expect(await query(copy.url, history)).not.toEqual(await query(database.url, history));
});

test('an update is stale if a restored dump lacks the version that it read, even if another writer reused the number', async () => {
  const name = 'wallet';
  const server = await startIn(await newFolder());
  await server.ensureDatabase(name);
  const account = await openAccountIn(server.url(name));
  const database = new TestDatabase(server.url('postgres'), name);
  const dump = await dumpOf(database);
  const outcome = await creditedAround(account, name, server, async () => {
    await swap(database, dump);
    return server;
  });
  expect(outcome).toEqual(readTwice);
});

test('an update is stale if a restore in place lacks the version that it read, although its connection stays open', async () => {
  const name = 'wallet';
  const server = await startIn(await newFolder());
  await server.ensureDatabase(name);
  const account = await openAccountIn(server.url(name));
  const dump = await dumpOf(new TestDatabase(server.url('postgres'), name));
  const outcome = await creditedAround(account, name, server, async () => {
    await copyDatabase(dump.url, server.url(name), ['tags', 'accounts']);
    return undefined;
  });
  expect(outcome).toEqual(readTwice);
});

test('an update is stale if the restored files of a clean stop lack the version that it read', async () => {
  const name = 'wallet';
  const [directory, backup] = [await newFolder(), join(await newFolder(), 'backup')];
  const first = await startIn(directory);
  await first.ensureDatabase(name);
  const account = await openAccountIn(first.url(name));
  await first.stop();
  await run('cp', ['-a', directory, backup]);
  const server = await startIn(directory);
  const outcome = await creditedAround(account, name, server, async () => {
    await server.stop();
    await rm(directory, { recursive: true });
    await run('cp', ['-a', backup, directory]);
    return startIn(directory);
  });
  expect(outcome).toEqual(readTwice);
});

test.for([
  ['a renamed dump', dumpUnderAnotherName, 14],
  ['copied files with the oid', filesWithTheSameOid, 15],
] as const)(
  'a lost commit is not reported as missing by a restored database (%s)',
  async ([, backUp, versionMin], { skip }) => {
    const database = await emptyDatabase();
    skip((await versionOf(database)) < versionMin);
    await migrate(database.url);
    const restore = await backUp(database);
    const { proxy, url } = await proxied(database);
    const registry = openRegistry([{ group: 0, member: 0, url }]);
    await registry.ready();
    const manager = registry.transactionManager(firstShard);
    cutOnce(proxy, 'framework_write', 'cut');
    const id = ShardedId.generate(Tag, firstShard);
    const tag = new Tag({ id, state: 'ACTIVE', label: 'lost', version: 1 });
    const sent = manager.persist(changeSetOf(new PgTagRepository(registry), tag));
    const lost = (await refusal(sent)) as CommitOutcomeUnknownError;
    expect(await manager.isCommitted(lost)).toBe(false);
    await restore();
    await expect(patiently(() => manager.isCommitted(lost))).rejects.toBe(lost);
  },
);

const run = promisify(execFile);

async function newFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'restored-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await chmod(folder, 0o755);
  return folder;
}

async function startIn(directory: string): Promise<EmbeddedPostgres> {
  const server = await EmbeddedPostgres.start({
    directory,
    settings: { fsync: 'off' },
    installation: process.env['TEST_POSTGRES_INSTALLATION'],
  });
  onTestFinished(() => server.stop());
  return server;
}

/** A database beside this one, with its contents, as a dump that was restored there. */
async function dumpOf(database: TestDatabase): Promise<TestDatabase> {
  const name = `${database.database}_dump`;
  const server = serverOf(database);
  await query(server, `create database ${name}`);
  const dump = new TestDatabase(server, name);
  onTestFinished(() => dump.drop());
  await migrate(dump.url);
  await copyDatabase(database.url, dump.url, ['tags', 'accounts']);
  return dump;
}

/** Creates a database beside this one from its files. */
async function copyFilesOf(database: TestDatabase): Promise<void> {
  const { database: name } = database;
  await whileClosed(
    database,
    `create database ${name}_copy template ${name}; alter database ${name} with allow_connections true`,
  );
}

/** Renames a restored dump to the name of its original. */
async function swap(database: TestDatabase, dump: TestDatabase): Promise<void> {
  const name = database.database;
  await whileClosed(dump, `alter database ${dump.database} with allow_connections true`);
  const original = new TestDatabase(serverOf(database), `${name}_original`);
  onTestFinished(() => original.drop());
  await whileClosed(
    database,
    `alter database ${name} rename to ${original.database}; alter database ${dump.database} rename to ${name}`,
  );
}

function serverOf({ url }: TestDatabase): string {
  const server = new URL(url);
  server.pathname = '/postgres';
  return server.href;
}

async function oidOf({ url }: TestDatabase): Promise<number> {
  const [row] = await query<{ oid: number }>(
    url,
    'select oid from pg_database where datname = current_database()',
  );
  return row!.oid;
}

/** The major version of the server. */
async function versionOf({ url }: TestDatabase): Promise<number> {
  const [row] = await query<{ version: string }>(
    url,
    `select current_setting('server_version_num') as version`,
  );
  return Math.floor(Number(row!.version) / 10_000);
}

async function migrate(url: string): Promise<void> {
  const registry = openRegistry([{ group: 0, member: 0, url }], { migrationsFolder });
  await registry.ready();
  await registry.close();
}

async function openStoreOn(url: string): Promise<DeliveryStore> {
  const registry = openRegistry([{ group: 0, member: 0, url }], { migrationsFolder });
  await registry.ready();
  return registry.deliveries()[0]!.store;
}

/** The place of the handler, which is the same in all slots. */
async function cursorOf(store: DeliveryStore): Promise<string> {
  const [first] = await store.cursors.load(allSlots);
  return first!.cursor;
}

async function writeIn(url: string, version: number): Promise<readonly string[]> {
  const writer = await EventWriter.open(url);
  const ids = await writer.write('a', version);
  await writer.close();
  return ids;
}

/** Repeats what fails because its connection was ended. */
function patiently<T>(work: () => Promise<T>): Promise<T> {
  return vi.waitFor(work, { timeout: 30_000, interval: 20 });
}
