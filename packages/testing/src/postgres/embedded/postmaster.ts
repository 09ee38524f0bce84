import { readFile } from 'node:fs/promises';
import { join } from 'node:path';

/** What a server writes that takes every statement, or those that read, as a standby does. */
const readyStatuses = new Set(['ready', 'standby']);

/** What a running server, or one that was killed, says of itself in its data directory. */
export interface Postmaster {
  readonly pid: number;
  /** Its TCP port; `NaN` while it has just begun to start. */
  readonly port: number;
  /** Whether it accepts connections; not so during crash recovery and shutdown. */
  readonly ready: boolean;
}

/** The file in a data directory by which a server claims it. */
export function postmasterFile(dataDirectory: string): string {
  return join(dataDirectory, 'postmaster.pid');
}

/** Reads the claim on a data directory; `undefined` when there is none or it is just being written. */
export async function readPostmaster(dataDirectory: string): Promise<Postmaster | undefined> {
  const content = await readFile(postmasterFile(dataDirectory), 'utf8').catch(
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return '';
      throw error;
    },
  );
  // Lines: pid, data directory, start time, port, socket directory, listen address, shared memory, status.
  const lines = content.split('\n');
  const pid = Number(lines[0]);
  if (!Number.isInteger(pid) || pid <= 0) return undefined;
  return { pid, port: Number(lines[3] || Number.NaN), ready: readyStatuses.has(lines[7]?.trim() ?? '') };
}

/** Whether a process has this id, whoever it belongs to; an ended one that nobody waited for counts. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
