import { execFile } from 'node:child_process';
import { stat } from 'node:fs/promises';
import { promisify } from 'node:util';

import { PostgresServerError } from '../postgres-server-error.js';

const run = promisify(execFile);
const candidates = ['postgres', 'nobody'] as const;

/** The user and group that the server's processes run as. */
export interface ServerAccount {
  readonly uid: number;
  readonly gid: number;
}

/**
 * The account to run the server as, or `undefined` for the current user.
 *
 * PostgreSQL refuses to run as root. When this process is root, the server runs as the owner of the existing data
 * directory, else as `postgres`, else as `nobody`; no user is created.
 *
 * @throws PostgresServerError `unsupported-platform` when this process is root and the machine has neither user.
 */
export async function serverAccount(dataDirectory: string): Promise<ServerAccount | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const owner = await stat(dataDirectory).catch(() => undefined);
  if (owner && owner.uid !== 0) return { uid: owner.uid, gid: owner.gid };
  for (const name of candidates) {
    const account = await findAccount(name);
    if (account) return account;
  }
  throw new PostgresServerError(
    'unsupported-platform',
    'PostgreSQL does not run as root, and this machine has neither a user postgres nor a user nobody. ' +
      'Run this as a normal user.',
  );
}

async function findAccount(name: string): Promise<ServerAccount | undefined> {
  try {
    const [uid, gid] = await Promise.all([run('id', ['-u', name]), run('id', ['-g', name])]);
    return { uid: Number(uid.stdout), gid: Number(gid.stdout) };
  } catch {
    return undefined;
  }
}
