import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';

import { dataDirectoryIn, isAlive, readPostmaster } from '../src/cluster.js';
import { serves } from '../src/server-process.js';
import { claimForOtherProcess } from './fixtures/claim-for-other-process.js';
import { OwnerProcess } from './fixtures/owner-process.js';
import { query, serverFolder, startServer } from './fixtures/server-folder.js';
import { until } from './fixtures/until.js';

describe('EmbeddedPostgres after processes were killed', () => {
  test('stops the server when the process that started it is killed', async () => {
    const directory = await serverFolder();
    const { owner } = await ownedServer(directory);
    await owner.kill();
    await until('the shutdown', async () => (await readPostmaster(dataDirectoryIn(directory))) === undefined);
    expect(await answersAfterStart(directory)).toEqual([{ answer: 42 }]);
  });

  test('restarts at once after the process that started it was killed', async () => {
    const directory = await serverFolder();
    const { owner } = await ownedServer(directory);
    await owner.kill();
    expect(await answersAfterStart(directory)).toEqual([{ answer: 42 }]);
  });

  test('recovers committed data after the server was killed', async () => {
    const directory = await serverFolder();
    const server = await startServer(directory);
    await query(server.url('postgres'), 'create table kept as select 42 as answer');
    process.kill(await postmasterPid(directory), 'SIGKILL');
    await server.exited;
    expect(await answersAfterStart(directory)).toEqual([{ answer: 42 }]);
  });

  test('recovers committed data after everything was killed', async () => {
    const directory = await serverFolder();
    const { owner, pid } = await ownedServer(directory);
    process.kill(-(await groupOf(pid)), 'SIGKILL');
    await owner.kill();
    expect(await answersAfterStart(directory)).toEqual([{ answer: 42 }]);
  });

  test('replaces a server whose owner and supervisor were killed', async () => {
    const directory = await serverFolder();
    const { owner, pid } = await ownedServer(directory);
    await killSupervisor(pid);
    await owner.kill();
    expect(await serves(pid, dataDirectoryIn(directory))).toBe(true);
    expect(await answersAfterStart(directory)).toEqual([{ answer: 42 }]);
    expect(await serves(pid, dataDirectoryIn(directory))).toBe(false);
  });

  test('starts even if another process now has the process id of a killed server', async () => {
    const directory = await serverFolder();
    const server = await startServer(directory);
    await query(server.url('postgres'), 'create table kept as select 42 as answer');
    const other = await claimForOtherProcess(server);

    expect(await answersAfterStart(directory)).toEqual([{ answer: 42 }]);
    expect(isAlive(other)).toBe(true);
  });

  test('stays owned when the server restarts its processes after a crash', async () => {
    const directory = await serverFolder();
    const server = await startServer(directory);
    const url = server.url('postgres');
    const owners = "from pg_stat_activity where application_name like 'embedded-postgres owner %'";
    const [session] = await query(url, `select pid ${owners}`);
    process.kill(Number(session?.['pid']), 'SIGKILL');
    await until('a new owner session', async () => {
      const rows = await query(url, `select pid ${owners}`).catch(() => []);
      return rows.length > 0 && rows[0]?.['pid'] !== session?.['pid'];
    });
    await expect(startServer(directory)).rejects.toMatchObject({ code: 'directory-in-use' });
  });

  test('creates the data directory anew when its creation was interrupted by a kill', async () => {
    const directory = await serverFolder();
    const owner = new OwnerProcess(directory);
    await until('the creation', async () => {
      const [fresh] = await readdir(directory);
      const files = fresh ? await readdir(join(directory, fresh, 'data')).catch(() => []) : [];
      return files.includes('postgresql.conf');
    });
    await owner.kill();
    expect(await readdir(directory)).not.toContain('cluster');

    const server = await startServer(directory);
    expect(await query(server.url('postgres'), 'select 1 as one')).toEqual([{ one: 1 }]);
    expect((await readdir(directory)).toSorted()).toEqual(['cluster', 'server.log']);
  });
});

async function ownedServer(
  directory: string,
): Promise<{ readonly owner: OwnerProcess; readonly pid: number }> {
  const owner = new OwnerProcess(directory);
  onTestFinished(() => owner.kill());
  await query(await owner.ready(), 'create table kept as select 42 as answer');
  return { owner, pid: await postmasterPid(directory) };
}

async function answersAfterStart(directory: string): Promise<readonly Record<string, unknown>[]> {
  const server = await startServer(directory);
  return query(server.url('postgres'), 'select answer from kept');
}

async function postmasterPid(directory: string): Promise<number> {
  const postmaster = await readPostmaster(dataDirectoryIn(directory));
  if (!postmaster) throw new Error('no server claims the data directory');
  return postmaster.pid;
}

// Fields after the name, which is in parentheses: state, parent, group.
async function groupOf(pid: number): Promise<number> {
  const [, , group] = (await readFile(`/proc/${pid}/stat`, 'utf8')).split(') ')[1]!.split(' ');
  return Number(group);
}

// The part that shuts the server down when its owner is gone is the younger process, and dies first.
async function killSupervisor(postmaster: number): Promise<void> {
  const group = await groupOf(postmaster);
  const pids = (await readdir('/proc')).map(Number).filter((pid) => pid > 0 && pid !== postmaster);
  const groups = await Promise.all(pids.map((pid) => groupOf(pid).catch(() => 0)));
  const members = pids.filter((_, index) => groups[index] === group);
  for (const pid of members.toSorted((a, b) => b - a)) process.kill(pid, 'SIGKILL');
}
