import { rm } from 'node:fs/promises';
import { dirname } from 'node:path';

import { Deadline } from '../deadline.js';
import { PostgresServerError } from '../postgres-server-error.js';
import type { Cluster } from './cluster.js';
import { OwnerSession } from './owner-session.js';
import { isAlive, postmasterFile, readPostmaster, serves } from './postmaster.js';

// The server notices the end of an owner within milliseconds; only then is its lock free.
const takenGraceMs = 1_000;
// A start takes the lock within milliseconds after its server became ready.
const freeGraceMs = 300;
const orphanShutdownMs = 10_000;

/**
 * Waits until no server runs on the cluster's data directory, so that one can be started.
 *
 * A server that is starting or stopping is waited for. A ready one whose owner is alive is left alone. A ready one
 * whose owner has died is an orphan: it is shut down rather than taken over, so that every running server is the child
 * of a supervisor. A claim whose process id has gone to another process is removed, because PostgreSQL would take that
 * process for a server; against servers that still run without their postmaster, it protects the data by itself.
 *
 * @throws PostgresServerError `directory-in-use`, or `start-failed` when the deadline passes.
 */
export async function settleDataDirectory(cluster: Cluster, deadline: Deadline): Promise<void> {
  const { dataDirectory } = cluster;
  let taken: Deadline | undefined;
  let free: Deadline | undefined;
  const settled = await deadline.poll(async () => {
    const postmaster = await readPostmaster(dataDirectory);
    if (!postmaster) return true;
    if (!(await serves(postmaster.pid, dataDirectory))) {
      if (isAlive(postmaster.pid)) await rm(postmasterFile(dataDirectory), { force: true });
      return true;
    }
    if (!postmaster.ready || (free && !free.passed)) return undefined;
    const ownership = await OwnerSession.tryOpen(cluster, postmaster.port);
    if (ownership.kind === 'owned') {
      if (free) await shutDownOrphan(postmaster.pid, dataDirectory);
      await ownership.session.close();
      free = Deadline.after(freeGraceMs);
    }
    if (ownership.kind === 'taken') {
      taken ??= Deadline.after(takenGraceMs);
      if (taken.passed) throw inUse(cluster, ownership.ownerPid);
    }
    return undefined;
  });
  if (settled) return;
  const pid = (await readPostmaster(dataDirectory))?.pid;
  throw new PostgresServerError(
    'start-failed',
    `The PostgreSQL server that already runs on ${dataDirectory} (process ${pid}) neither became ready nor ended ` +
      `within ${deadline.timeoutMs} ms. Its log is ${cluster.logFile}. End it with: kill -QUIT ${pid}`,
  );
}

async function shutDownOrphan(pid: number, dataDirectory: string): Promise<void> {
  for (const signal of ['SIGINT', 'SIGQUIT'] as const) {
    if (await serves(pid, dataDirectory)) process.kill(pid, signal);
    const ended = await Deadline.after(orphanShutdownMs).poll(async () =>
      (await serves(pid, dataDirectory)) ? undefined : true,
    );
    if (ended) return;
  }
}

function inUse(cluster: Cluster, ownerPid: string): PostgresServerError {
  const directory = dirname(dirname(cluster.dataDirectory));
  return new PostgresServerError(
    'directory-in-use',
    `The embedded PostgreSQL server in ${directory} is in use by process ${ownerPid}. ` +
      'Stop that process first, or use another directory.',
  );
}
