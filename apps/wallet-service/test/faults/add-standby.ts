import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { EmbeddedPostgres } from '@framework/embedded-postgres';
import { TestDatabase } from '@framework/testing/postgres';
import { vi } from 'vitest';
import { rowsOf } from '../database-session.js';

const patience = { timeout: 30_000, interval: 50 };

/**
 * Gives a server a synchronous standby, which has every commit before the server acknowledges it: a copy of its files, for
 * which the server is stopped, and then a stream of its changes.
 *
 * @param directory the server's data directory
 * @param restart starts the server again
 */
export async function addStandby(
  first: EmbeddedPostgres,
  directory: string,
  restart: () => Promise<EmbeddedPostgres>,
): Promise<{ readonly server: EmbeddedPostgres; readonly standby: EmbeddedPostgres }> {
  const copy = `${directory}-standby`;
  await first.stop();
  await promisify(execFile)('cp', ['-a', directory, copy]);
  await writeFile(join(copy, 'cluster', 'data', 'standby.signal'), '');
  const server = await restart();
  const { host, port, user, password } = server;
  const source = `host=${host} port=${port} user=${user} password=${password}`;
  const standby = await EmbeddedPostgres.start({
    directory: copy,
    settings: { fsync: 'off', primary_conninfo: source },
  });
  const administered = new TestDatabase(server.url(''), 'postgres');
  await rowsOf(administered, `alter system set synchronous_standby_names = '*'`);
  await rowsOf(administered, 'select pg_reload_conf()');
  await vi.waitFor(async () => {
    const states = await rowsOf(administered, 'select sync_state from pg_stat_replication');
    assert.deepEqual(states, [{ sync_state: 'sync' }]);
  }, patience);
  return { server, standby };
}
