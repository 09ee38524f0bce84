import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { EmbeddedPostgres } from './embedded/embedded-postgres.js';
import { isAlive } from './embedded/postmaster.js';
import { TestPostgres } from './test-postgres.js';

const prefix = 'test-postgres-';
// A database that is thrown away needs no safety against power failures.
const settings = {
  fsync: 'off',
  synchronous_commit: 'off',
  full_page_writes: 'off',
  max_connections: '300',
} as const;

/** An embedded server in a temporary folder; folders that killed test runs left behind are removed on the way. */
export async function startEmbeddedTestPostgres(): Promise<TestPostgres> {
  await removeRemains();
  const directory = await mkdtemp(join(tmpdir(), `${prefix}${process.pid}-`));
  const server = await EmbeddedPostgres.start({ directory, settings: settings });
  return new TestPostgres(server.url('postgres'), async () => {
    await server.stop();
    await rm(directory, { recursive: true, force: true });
  });
}

async function removeRemains(): Promise<void> {
  for (const name of await readdir(tmpdir())) {
    const pid = name.startsWith(prefix) ? Number.parseInt(name.slice(prefix.length), 10) : Number.NaN;
    if (Number.isNaN(pid) || isAlive(pid)) continue;
    // Another user's, or in use by a server that is just ending: not worth a failure.
    await rm(join(tmpdir(), name), { recursive: true, force: true }).catch(() => undefined);
  }
}
