import { rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

import { type Cluster, isAlive, postmasterFile, readPostmaster, refusedPassword } from './cluster.js';
import { Deadline, PostgresServerError } from './deadline.js';
import { OwnerSession, type Ownership } from './owner-session.js';
import type { ServerAccount } from './server-account.js';
import type { ServerBinaries } from './server-binaries.js';
import { ServerLog, ServerProcess, freePort, serves } from './server-process.js';

const ownershipTimeoutMs = 5_000;
// Long enough that failed starts cost little, short enough that nobody notices the pause.
const retryPauseMs = 200;
// Faults that pass by themselves: the port was taken in the meantime; another start came first, and the next try will
// examine its server; processes of a killed server have not ended yet.
const passingFaults = [
  /could not bind .*Address already in use/,
  /lock file "postmaster.pid" already exists/,
  /lock file "postmaster.pid" is empty/,
  /pre-existing shared memory block .* is still in use/,
];
// The server notices within milliseconds that an owner has ended, and only then frees the owner's lock.
const takenGraceMs = 1_000;
// A start takes the lock within milliseconds after its server is ready.
const freeGraceMs = 300;
const orphanShutdownMs = 10_000;
const notReady = { kind: 'unreachable' } as const;

/** A server that accepts connections and is owned by this process. */
export interface StartedServer {
  readonly port: number;
  readonly process: ServerProcess;
  readonly owner: OwnerSession;
}

/**
 * Starts a server on the cluster once no other server runs there, on the given port or any free one.
 *
 * @throws PostgresServerError `directory-in-use`; `directory-unusable` when the server refuses the cluster's password;
 * `start-failed` with the last lines of the log.
 */
export async function startServer(options: {
  readonly cluster: Cluster;
  readonly account: ServerAccount | undefined;
  readonly binaries: ServerBinaries;
  readonly settings: Readonly<Record<string, string>>;
  readonly deadline: Deadline;
  readonly port: number | undefined;
}): Promise<StartedServer> {
  const { cluster, deadline } = options;
  const log = await ServerLog.open(cluster.logFile);
  try {
    for (;;) {
      await settleDataDirectory(cluster, deadline);
      const port = options.port ?? (await freePort());
      await log.mark();
      const process = new ServerProcess({ ...options, port, log: log.handle });
      const ready = await process.becomesReady(deadline);
      const ownership = ready ? await becomeOwner(cluster, port) : undefined;
      if (ownership?.kind === 'owned') return { port, process, owner: ownership.session };
      await process.stop();
      if (ownership?.kind === 'refused') throw refusedPassword(cluster, ownership.cause);
      const tail = await log.tail();
      const passing = ready || passingFaults.some((fault) => fault.test(tail));
      if (!passing || deadline.passed) throw startFailed(cluster, tail, deadline);
      await pause(Math.min(retryPauseMs, deadline.remainingMs));
    }
  } finally {
    await log.handle.close();
  }
}

// Another start that checks whether this server is an orphan may hold the lock for a moment.
async function becomeOwner(cluster: Cluster, port: number): Promise<Ownership | undefined> {
  return Deadline.after(ownershipTimeoutMs).poll(async () => {
    const ownership = await OwnerSession.tryOpen(cluster, port);
    return ownership.kind === 'owned' || ownership.kind === 'refused' ? ownership : undefined;
  });
}

function startFailed(cluster: Cluster, tail: string, deadline: Deadline): PostgresServerError {
  const what = deadline.passed ? `was not ready within ${deadline.timeoutMs} ms` : 'ended while starting';
  return new PostgresServerError(
    'start-failed',
    `The PostgreSQL server on ${cluster.dataDirectory} ${what}. The last lines of its log, ${cluster.logFile}:\n` +
      `${tail || '(nothing)'}\n` +
      'Correct the problem that they name, and start again.',
  );
}

/**
 * Waits until no server runs on the cluster's data directory, so that one can be started.
 *
 * Waits for a server that is starting or stopping. Leaves a ready server alone if its owner is alive. A ready server
 * whose owner has died is an orphan: it is shut down instead of taken over, so that every running server is the child
 * of a supervisor. Removes a claim whose process id certainly belongs to another process by now, because PostgreSQL
 * would mistake that process for a server. A claim whose process cannot be inspected is left to PostgreSQL, unless its
 * server answers. PostgreSQL itself protects the data from servers that still run without their postmaster.
 *
 * @throws PostgresServerError `directory-in-use`; `directory-unusable` when the server refuses the cluster's password;
 * `start-failed` when the deadline passes.
 */
async function settleDataDirectory(cluster: Cluster, deadline: Deadline): Promise<void> {
  const { dataDirectory } = cluster;
  let taken: Deadline | undefined;
  let free: Deadline | undefined;
  const settled = await deadline.poll(async () => {
    const postmaster = await readPostmaster(dataDirectory);
    if (!postmaster) return true;
    const serving = await serves(postmaster.pid, dataDirectory);
    if (serving === false) {
      if (isAlive(postmaster.pid)) await removeClaim(dataDirectory, postmaster.pid);
      return true;
    }
    if (free && !free.passed) return undefined;
    const ownership = postmaster.ready ? await OwnerSession.tryOpen(cluster, postmaster.port) : notReady;
    const answers = ownership.kind === 'owned' || ownership.kind === 'taken';
    if (serving === undefined && !answers) return true;
    if (ownership.kind === 'refused') throw refusedPassword(cluster, ownership.cause);
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
    `The PostgreSQL server that is already running on ${dataDirectory} (process ${pid}) neither became ready nor ended ` +
      `within ${deadline.timeoutMs} ms. Its log is ${cluster.logFile}. End it with: kill -QUIT ${pid}`,
  );
}

// Another start may have removed the claim already, and its server may have made a new one.
async function removeClaim(dataDirectory: string, pid: number): Promise<void> {
  const claim = await readPostmaster(dataDirectory);
  if (claim?.pid === pid) await rm(postmasterFile(dataDirectory), { force: true });
}

// The process id is that of the server: it comes from the same claim as the port on which the server has answered.
async function shutDownOrphan(pid: number, dataDirectory: string): Promise<void> {
  const runs = async () => (await serves(pid, dataDirectory)) ?? isAlive(pid);
  for (const signal of ['SIGINT', 'SIGQUIT'] as const) {
    if (await runs()) process.kill(pid, signal);
    const ended = await Deadline.after(orphanShutdownMs).poll(async () =>
      (await runs()) ? undefined : true,
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
