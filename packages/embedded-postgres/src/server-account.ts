import { execFile } from 'node:child_process';
import { chmod, cp, lstat, mkdir, mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';

import { PostgresServerError } from './deadline.js';

const run = promisify(execFile);
const candidates = ['postgres', 'nobody'] as const;

/** The user and group of the server's processes. */
export interface ServerAccount {
  readonly uid: number;
  readonly gid: number;
}

/**
 * The account to run the server as, or `undefined` for the current user.
 *
 * PostgreSQL refuses to run as root. If this process is root, the server runs as the owner of the existing data
 * directory, otherwise as `postgres` or `nobody`. No user is created.
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

/**
 * The path by which a server process that runs inside `dataDirectory` reaches it.
 *
 * When root starts the server under another account, that account may be unable to enter a folder above the data
 * directory, such as a home directory. So the process changes to the data directory while it is still root, and names
 * it by Linux's link to its own working directory, which can be followed without access to the folders above.
 * PostgreSQL never leaves its data directory, nor do the processes that it forks. So the data stays in the folder that
 * the caller chose, without capabilities, user namespaces or changed modes.
 *
 * Before version 16, PostgreSQL leaves its working directory when it starts, so that the account must be able to enter the folders.
 */
export function pathFromWithin(
  dataDirectory: string,
  account: ServerAccount | undefined,
  { majorVersion }: { readonly majorVersion: number },
): string {
  const staysWithin = majorVersion >= 16 && process.platform === 'linux';
  return account && staysWithin ? '/proc/self/cwd' : dataDirectory;
}

/**
 * Copies the folder `source` to `target`, so that everyone can read it and only this user can change it. An existing
 * target is used as it is.
 *
 * The copy is made beside the target and then renamed. So an existing target is always complete, and if several
 * processes copy at once, one wins and the others use its copy.
 *
 * @throws Error when the target cannot be written, belongs to another user, or can be changed by others, in which case
 * its programs cannot be trusted.
 */
export async function copyReadable(source: string, target: string): Promise<string> {
  if (!(await exists(target))) {
    await mkdir(dirname(target), { recursive: true });
    const fresh = await mkdtemp(join(dirname(target), `.${basename(target)}-`));
    try {
      await cp(source, fresh, { recursive: true, verbatimSymlinks: true });
      await makeReadable(fresh);
      await rename(fresh, target);
    } catch (error) {
      if (!(await exists(target))) throw error;
    } finally {
      await rm(fresh, { recursive: true, force: true });
    }
  }
  const found = await lstat(target);
  if (!found.isDirectory() || found.uid !== process.getuid?.() || (found.mode & 0o022) !== 0) {
    throw new Error(`${target} belongs to another user or may be changed by others`);
  }
  return target;
}

async function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

// The modes in node_modules follow the umask of the user who installed it, which may deny access to all others.
async function makeReadable(folder: string): Promise<void> {
  await chmod(folder, 0o755);
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) await makeReadable(path);
    else if (entry.isFile()) await chmod(path, ((await lstat(path)).mode & 0o111) === 0 ? 0o644 : 0o755);
  }
}
