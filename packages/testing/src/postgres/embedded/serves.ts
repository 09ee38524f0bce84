import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { promisify } from 'node:util';

import { isAlive } from './cluster.js';
import { serverEnvironment } from './server-binaries.js';

const run = promisify(execFile);

/**
 * Whether process `pid` is a server on this data directory; `undefined` when this process may not learn it.
 *
 * A process id alone says little, as it may have gone to another process since; a server is known by its working
 * directory, which is always its data directory.
 */
export async function serves(pid: number, dataDirectory: string): Promise<boolean | undefined> {
  if (process.platform !== 'linux') return servesByLsof(pid, dataDirectory);
  try {
    return await isSameFolder(`/proc/${pid}/cwd`, dataDirectory);
  } catch (error) {
    if (!isAlive(pid)) return false;
    if (process.getuid?.() === 0) return servesAsSeenByOwner(pid, dataDirectory);
    return isAbsent((error as NodeJS.ErrnoException).code ?? '') ? false : undefined;
  }
}

// Linux shows a process's working directory to the process's own user, but to root only with the capability SYS_PTRACE,
// which root lacks in most containers; mounted with hidepid, /proc even shows such a process as absent. A server runs as
// the owner of its data directory, so root asks as that user.
async function servesAsSeenByOwner(pid: number, dataDirectory: string): Promise<boolean | undefined> {
  const { uid, gid } = await stat(dataDirectory);
  const args = ['-L', '-c', '%d:%i', `/proc/${pid}/cwd`, '.'];
  try {
    const found = await run('stat', args, { cwd: dataDirectory, uid, gid, env: serverEnvironment() });
    const [workingDirectory, expected] = found.stdout.split('\n');
    return workingDirectory === expected;
  } catch (error) {
    return isAbsent((error as { readonly stderr?: string }).stderr ?? '') ? false : undefined;
  }
}

async function servesByLsof(pid: number, dataDirectory: string): Promise<boolean | undefined> {
  const found = await run('lsof', ['-a', '-p', String(pid), '-d', 'cwd', '-Fn']).catch(() => undefined);
  const path = found?.stdout.split('\n').find((line) => line.startsWith('n'));
  // It prints the same nothing for a process that has ended and for one that it may not look into.
  return path ? isSameFolder(path.slice(1), dataDirectory).catch(() => undefined) : undefined;
}

async function isSameFolder(path: string, other: string): Promise<boolean> {
  const [found, expected] = await Promise.all([stat(path), stat(other)]);
  return found.ino === expected.ino && found.dev === expected.dev;
}

// The codes as Node gives them, and the texts as `stat` prints them.
function isAbsent(fault: string): boolean {
  return /^ENOENT$|^ESRCH$|No such file or directory|No such process/.test(fault);
}

/** A TCP port of 127.0.0.1 that was free a moment ago; another process may take it before it is used. */
export async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}
