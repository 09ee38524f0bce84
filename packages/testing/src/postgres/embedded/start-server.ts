import { setTimeout as pause } from 'node:timers/promises';

import { type Cluster, refusedPassword } from './cluster.js';
import { settleDataDirectory } from './data-directory.js';
import { Deadline, PostgresServerError } from './deadline.js';
import { OwnerSession, type Ownership } from './owner-session.js';
import type { ServerAccount } from './server-account.js';
import type { ServerBinaries } from './server-binaries.js';
import { ServerLog, ServerProcess, freePort } from './server-process.js';

const ownershipTimeoutMs = 5_000;
// Long enough that starts in vain cost little, short enough that nobody notices one.
const retryPauseMs = 200;
// What passes by itself: the port was taken meanwhile; another start was quicker and is judged anew; processes of a
// killed server have not ended yet.
const passingFaults = [
  /could not bind .*Address already in use/,
  /lock file "postmaster.pid" already exists/,
  /lock file "postmaster.pid" is empty/,
  /pre-existing shared memory block .* is still in use/,
];

/** A server that accepts connections and is owned by this process. */
export interface StartedServer {
  readonly port: number;
  readonly process: ServerProcess;
  readonly owner: OwnerSession;
}

/**
 * Starts a server on the cluster as soon as no other one runs there, on its port, or any free one.
 *
 * @throws PostgresServerError `directory-in-use`, `directory-unusable` when the server refuses the cluster's password, or
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

// Another start that looks whether this server is an orphan may hold the lock for a moment.
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
      'Correct what they name and start again.',
  );
}
