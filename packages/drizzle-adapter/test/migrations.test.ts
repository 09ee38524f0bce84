import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { emptyDatabase } from './fixtures/empty-database.js';
import { ChildProgram } from './fixtures/child-program.js';
import { migrationsFolder } from './fixtures/migrations-folder.js';
import { migrateShards } from '../src/index.js';
import { openRegistry } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';
import { shardingConfig } from './fixtures/sharding-config.js';

const processCount = 10;

describe('migrations', () => {
  it('are applied once when many registries open at once', async () => {
    const [one, other] = await Promise.all([emptyDatabase(), emptyDatabase()]);
    const registries = Array.from({ length: processCount }, () =>
      openRegistry([
        { group: 0, member: 0, url: one.url },
        { group: 1, member: 0, url: other.url },
      ]),
    );
    await Promise.all(registries.map((registry) => registry.ready()));
    for (const { url } of [one, other]) expect(await applied(url)).toEqual({ framework: 6, application: 1 });
  });

  it.each(['repeatable read', 'serializable'])(
    'are applied once when many registries open at once, also where transactions are %s by default',
    async (level) => {
      const { url, database } = await emptyDatabase();
      await query(url, `alter database ${database} set default_transaction_isolation = '${level}'`);
      const registries = Array.from({ length: processCount }, () =>
        openRegistry([{ group: 0, member: 0, url }]),
      );
      await Promise.all(registries.map((registry) => registry.ready()));
      expect(await applied(url)).toEqual({ framework: 6, application: 1 });
    },
  );

  it('are applied once when many processes start at once', async () => {
    const { url } = await emptyDatabase();
    const program = await ChildProgram.of('migrating-process.ts');
    onTestFinished(() => program.remove());
    const runs = Array.from({ length: processCount }, () => program.run(url, migrationsFolder));
    expect(await Promise.all(runs)).toEqual(Array.from({ length: processCount }, () => 'ready'));
    expect(await applied(url)).toEqual({ framework: 6, application: 1 });
  });

  it('of the application are applied once to a database that holds several shards', async () => {
    const { url } = await emptyDatabase();
    await openRegistry([
      { group: 0, member: 0, url },
      { group: 0, member: 1, url },
    ]).ready();
    await openRegistry([{ group: 0, member: 0, url }]).ready();
    expect(await applied(url)).toEqual({ framework: 6, application: 1 });
  });

  it('of the application are left out where there are none', async () => {
    const { url } = await emptyDatabase();
    await openRegistry([{ group: 0, member: 0, url }], {}).ready();
    expect(await query(url, `select to_regclass('accounts')::text as found`)).toEqual([{ found: null }]);
  });

  it('are left out on demand', async () => {
    const { url } = await emptyDatabase();
    await openRegistry([{ group: 0, member: 0, url }], { migrateOnOpen: false }).ready();
    expect(await query(url, `select to_regclass('eventlog.events')::text as found`)).toEqual([
      { found: null },
    ]);
  });

  it('run from a job of their own, for every shard', async () => {
    const [one, other] = await Promise.all([emptyDatabase(), emptyDatabase()]);
    const members = [
      { group: 0, member: 0, url: one.url },
      { group: 1, member: 0, url: other.url },
    ];
    await migrateShards(shardingConfig(members), migrationsFolder);
    for (const { url } of [one, other]) expect(await applied(url)).toEqual({ framework: 6, application: 1 });
  });

  it('that are faulty reject ready() with what is wrong, once, and leave nothing half done', async () => {
    const { url } = await emptyDatabase();
    const folder = await folderOf('create table half_done (id int); select no_such_function()');
    const registry = openRegistry([{ group: 0, member: 0, url }], { migrationsFolder: folder });
    const failure: unknown = await registry.ready().catch((error: unknown) => error);
    expect(failure).toMatchObject({ cause: { code: '42883' } });
    expect(String(failure)).toContain('no_such_function');
    await expect(registry.ready()).rejects.toBe(failure);
    const [status] = await registry.status();
    expect(status).toMatchObject({ ready: false, reason: { cause: failure } });
    expect(await query(url, `select to_regclass('half_done')::text as found`)).toEqual([{ found: null }]);
    // No process of the registry is left that could be trying again.
    const sessions = await query(url, 'select from pg_stat_activity where datname = current_database()');
    expect(sessions).toHaveLength(1);
  });

  it('make partitions of the log for this month and the next three', async () => {
    const { url } = await emptyDatabase();
    await openRegistry([{ group: 0, member: 0, url }], {}).ready();
    const partitions = await query<{ name: string }>(
      url,
      `select inhrelid::regclass::text as name from pg_inherits where inhparent = 'eventlog.events'::regclass order by 1`,
    );
    expect(partitions.map(({ name }) => name)).toEqual([
      expect.stringMatching(/^eventlog\.events_\d{4}_\d{2}$/),
      expect.stringMatching(/^eventlog\.events_\d{4}_\d{2}$/),
      expect.stringMatching(/^eventlog\.events_\d{4}_\d{2}$/),
      expect.stringMatching(/^eventlog\.events_\d{4}_\d{2}$/),
      'eventlog.events_default',
    ]);
  });
});

async function applied(url: string): Promise<unknown> {
  const [counts] = await query(
    url,
    `select (select count(*)::int from eventlog.migrations) as framework,
            (select count(*)::int from drizzle.__drizzle_migrations) as application`,
  );
  return counts;
}

/** A folder with one migration, removed when the test is over. */
async function folderOf(statements: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'migrations-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  await mkdir(join(folder, 'meta'));
  const entry = { idx: 0, version: '7', when: 1_795_132_800_000, tag: '0000_faulty', breakpoints: true };
  const journal = { version: '7', dialect: 'postgresql', entries: [entry] };
  await writeFile(join(folder, 'meta', '_journal.json'), JSON.stringify(journal));
  await writeFile(join(folder, '0000_faulty.sql'), statements);
  return folder;
}
