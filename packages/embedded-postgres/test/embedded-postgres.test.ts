import { spawnSync } from 'node:child_process';
import { mkdtemp, stat } from 'node:fs/promises';
import { networkInterfaces, tmpdir } from 'node:os';
import { connect } from 'node:net';
import { once } from 'node:events';
import { join } from 'node:path';

import { Client } from 'pg';
import { describe, expect, test } from 'vitest';

import { EmbeddedPostgres } from '../src/index.js';
import { query, serverFolder, startServer } from './fixtures/server-folder.js';

const unsafeButFast = { fsync: 'off' };

describe('EmbeddedPostgres', () => {
  test('keeps its data between starts, and later starts are faster', async () => {
    const directory = await serverFolder();
    const [first, firstMs] = await timed(() => startServer(directory));
    await query(first.url('postgres'), 'create table kept as select 42 as answer');
    await first.stop();

    const [second, secondMs] = await timed(() => startServer(directory));
    expect(secondMs).toBeLessThan(firstMs);
    expect(await query(second.url('postgres'), 'select answer from kept')).toEqual([{ answer: 42 }]);
    expect(second.password).toBe(first.password);
  });

  test('serves clients of a database that it created', async () => {
    const directory = await serverFolder();
    const server = await EmbeddedPostgres.start({ directory });
    await server.ensureDatabase('wallet');
    const client = new Client({ connectionString: server.url('wallet') });
    await client.connect();
    expect((await client.query('select current_database() as name')).rows).toEqual([{ name: 'wallet' }]);
    await client.end();
    await server.stop();
  });

  test('stores UTF-8 under the same locale on every machine, and flushes commits', async () => {
    const server = await startServer(await serverFolder());
    const rows = await query(
      server.url('postgres'),
      `select pg_encoding_to_char(encoding) as encoding, datlocale as locale, current_setting('fsync') as fsync
         from pg_database where datname = 'postgres'`,
    );
    expect(rows).toEqual([{ encoding: 'UTF8', locale: 'C.UTF-8', fsync: 'on' }]);
  });

  test('refuses a wrong password and keeps the right one readable only by its owner', async () => {
    const directory = await serverFolder();
    const server = await startServer(directory, { settings: unsafeButFast });
    const wrong = server.url('postgres').replace(server.password, 'wrong');
    await expect(query(wrong, 'select 1')).rejects.toMatchObject({ code: '28P01' });
    expect((await stat(join(directory, 'cluster/password'))).mode & 0o777).toBe(0o600);
  });

  test('listens only on the loopback address', async (context) => {
    const other = Object.values(networkInterfaces())
      .flatMap((addresses) => addresses ?? [])
      .find((address) => address.family === 'IPv4' && !address.internal);
    context.skip(!other, 'the machine has no other address');
    const server = await startServer(await serverFolder(), { settings: unsafeButFast });
    const socket = connect(server.port, other?.address);
    await expect(once(socket, 'connect')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });

  test('creates a database once, even for concurrent requests', async () => {
    const server = await startServer(await serverFolder(), { settings: unsafeButFast });
    await Promise.all([1, 2, 3].map(() => server.ensureDatabase('wallet "1"')));
    expect(await query(server.url('wallet "1"'), 'select current_database() as name')).toEqual([
      { name: 'wallet "1"' },
    ]);
  });

  test('refuses a second start while the first server is in use, and does not disturb it', async () => {
    const directory = await serverFolder();
    const first = await startServer(directory, { settings: unsafeButFast });
    await expect(startServer(directory)).rejects.toMatchObject({
      code: 'directory-in-use',
      message: expect.stringContaining(`process ${process.pid}`),
    });
    expect(await query(first.url('postgres'), 'select 1 as one')).toEqual([{ one: 1 }]);
  });

  test('lets one of two simultaneous first starts win and refuses the other', async () => {
    const directory = await serverFolder();
    const starts = await Promise.allSettled([startServer(directory), startServer(directory)]);
    const lost = starts.filter((start) => start.status === 'rejected');
    expect(lost.map((start) => start.reason.code)).toEqual(['directory-in-use']);
  });

  test('reports the last lines of the log when the server does not start', async () => {
    const start = startServer(await serverFolder(), { settings: { work_mem: 'plenty' } });
    await expect(start).rejects.toMatchObject({
      code: 'start-failed',
      message: expect.stringMatching(/invalid value for parameter "work_mem"/),
    });
  });

  test('reports its progress while it creates the data directory', async () => {
    const heard: string[] = [];
    const directory = await serverFolder();
    const options = { settings: unsafeButFast, onProgress: (message: string) => heard.push(message) };
    await (await startServer(directory, options)).stop();
    await startServer(directory, options);
    expect(heard).toEqual(['Creating the PostgreSQL data directory']);
  });

  test('deletes a temporary server together with the remains of killed processes', async () => {
    const { pid } = spawnSync('true');
    const remains = await mkdtemp(join(tmpdir(), `temporary-postgres-${pid}-`));
    const server = await EmbeddedPostgres.startTemporary({ settings: unsafeButFast });
    try {
      await expect(stat(remains)).rejects.toMatchObject({ code: 'ENOENT' });
      expect(await query(server.url('postgres'), 'select 1 as one')).toEqual([{ one: 1 }]);
    } finally {
      await server.stop();
    }
    await expect(stat(join(server.dataDirectory, '../..'))).rejects.toMatchObject({ code: 'ENOENT' });
  });
});

/** The result of the work, and how long it took. */
async function timed<T>(work: () => Promise<T>): Promise<readonly [T, number]> {
  const startedMs = performance.now();
  return [await work(), performance.now() - startedMs];
}
