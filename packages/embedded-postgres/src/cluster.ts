import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  chmod,
  chown,
  mkdir,
  mkdtemp,
  readFile,
  readdir,
  rename,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';

import { PostgresServerError } from './deadline.js';
import { type ServerAccount, pathFromWithin } from './server-account.js';
import { type ServerBinaries, serverEnvironment } from './server-binaries.js';

/** The statuses of a server that accepts connections; one that is a standby only serves reads. */
const readyStatuses = new Set(['ready', 'standby']);

/** What a running or killed server says about itself in its data directory. */
export interface Postmaster {
  readonly pid: number;
  /** Its TCP port; `NaN` while it is just starting. */
  readonly port: number;
  /** Whether it accepts connections, which it does not during crash recovery and shutdown. */
  readonly ready: boolean;
}

/** The file with which a server claims a data directory. */
export function postmasterFile(dataDirectory: string): string {
  return join(dataDirectory, 'postmaster.pid');
}

/** Reads the claim on a data directory; `undefined` when there is none, or when it is being written. */
export async function readPostmaster(dataDirectory: string): Promise<Postmaster | undefined> {
  const content = await readFile(postmasterFile(dataDirectory), 'utf8').catch(
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return '';
      throw error;
    },
  );
  // The lines are: pid, data directory, start time, port, socket directory, listen address, shared memory, status.
  const lines = content.split('\n');
  const pid = Number(lines[0]);
  if (!Number.isInteger(pid) || pid <= 0) return undefined;
  return { pid, port: Number(lines[3] || Number.NaN), ready: readyStatuses.has(lines[7]?.trim() ?? '') };
}

/**
 * Whether a process with this id exists, whoever owns it. A process that has ended counts until its parent has waited
 * for it.
 */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

const noFileCall = /^(spawn|connect|listen|getaddrinfo|kill)/;

/** Translates a system error about a file in the server's folder; returns any other error unchanged. */
export function asUnusableDirectory(error: unknown, directory: string): unknown {
  const { code, syscall, message } = error as NodeJS.ErrnoException;
  if (syscall === undefined || noFileCall.test(syscall)) return error;
  const user = process.getuid === undefined ? 'this user' : `the user with id ${process.getuid()}`;
  const remedy =
    code === 'EACCES' || code === 'EPERM'
      ? `Give ownership of the folder and all its files to ${user}`
      : 'Correct the problem';
  return new PostgresServerError(
    'directory-unusable',
    `The folder ${directory} of the embedded PostgreSQL server cannot be used by ${user}: ${message}. ` +
      `${remedy}, or use another folder.`,
    { cause: error },
  );
}

/** The error for a cluster that lacks its data directory or its password. */
function incompleteCluster(fault: string, clusterDirectory: string): PostgresServerError {
  return new PostgresServerError(
    'directory-unusable',
    `The embedded PostgreSQL server cannot start: ${fault}. ` +
      `Restore it, or remove ${clusterDirectory} to begin with empty databases.`,
  );
}

/** The error for a password that the cluster's own server refuses. */
export function refusedPassword(cluster: Cluster, cause: unknown): PostgresServerError {
  return new PostgresServerError(
    'directory-unusable',
    `The PostgreSQL server on ${cluster.dataDirectory} refuses the password in ${cluster.passwordFile}: ` +
      `${(cause as Error).message}. Restore the file that belongs to this data directory, or use another folder.`,
    { cause },
  );
}

const freshPrefix = 'cluster.new-';

/** The name of the server's superuser. */
export const superuser = 'postgres';

/** The files of one embedded server. */
export interface Cluster {
  /** PostgreSQL's data directory, owned by the server's account. */
  readonly dataDirectory: string;
  /** The superuser's password. It is stored beside the data, and only the folder's owner can read it. */
  readonly password: string;
  /** The file that contains the password. */
  readonly passwordFile: string;
  /** The file to which the server appends its log. */
  readonly logFile: string;
}

/** The path of the cluster's data directory in the server's folder; it need not exist. */
export function dataDirectoryIn(directory: string): string {
  return join(directory, 'cluster', 'data');
}

/**
 * Opens the cluster in `directory`, and creates it if there is none.
 *
 * A new cluster is created in a sibling folder and then renamed, with data and password together. If that is
 * interrupted, the next start finds either a complete cluster or none, and removes the remains.
 *
 * @throws PostgresServerError `initialisation-failed` with the output of initdb; `directory-unusable` when the data
 * directory or the password is missing.
 */
export async function openCluster(options: {
  readonly directory: string;
  readonly account: ServerAccount | undefined;
  readonly binaries: ServerBinaries;
  /** Whether the new files must survive a power failure; false is faster. */
  readonly durable: boolean;
  readonly onProgress: (message: string) => void;
}): Promise<Cluster> {
  const { directory } = options;
  const clusterDirectory = join(directory, 'cluster');
  const dataDirectory = dataDirectoryIn(directory);
  const passwordFile = join(clusterDirectory, 'password');
  if ((await readIfPresent(passwordFile)) === undefined && !(await isPresent(dataDirectory))) {
    options.onProgress('Creating the PostgreSQL data directory');
    await removeRemains(directory, freshPrefix);
    await createCluster(options);
  }
  const password = (await readIfPresent(passwordFile))?.trim();
  if (!password) throw incompleteCluster(`${passwordFile} is missing or empty`, clusterDirectory);
  if (!(await isPresent(dataDirectory))) {
    throw incompleteCluster(`${dataDirectory} is missing`, clusterDirectory);
  }
  return {
    dataDirectory,
    password,
    passwordFile,
    logFile: join(directory, 'server.log'),
  };
}

async function createCluster(options: Parameters<typeof openCluster>[0]): Promise<void> {
  const { directory, account } = options;
  const fresh = await mkdtemp(join(directory, `${freshPrefix}${process.pid}-`));
  try {
    const dataDirectory = join(fresh, 'data');
    const password = randomBytes(24).toString('hex');
    // The password has a mode of its own.
    await chmod(fresh, 0o711);
    await mkdir(dataDirectory, { mode: 0o700 });
    if (account) await chown(dataDirectory, account.uid, account.gid);
    await initialiseData({ ...options, dataDirectory, password, user: superuser });
    await writeFile(join(fresh, 'password'), `${password}\n`, { mode: 0o600, flush: true });
    await rename(fresh, join(directory, 'cluster')).catch((error: NodeJS.ErrnoException) => {
      // Another process that started at the same time has created the cluster; use it.
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
    });
  } finally {
    await rm(fresh, { recursive: true, force: true });
  }
}

/** Removes the folders whose names begin with the prefix and the id of a process that no longer runs. */
export async function removeRemains(directory: string, prefix: string): Promise<void> {
  for (const name of await readdir(directory)) {
    const pid = name.startsWith(prefix) ? Number.parseInt(name.slice(prefix.length), 10) : Number.NaN;
    if (Number.isNaN(pid) || isAlive(pid)) continue;
    // This fails if the folder belongs to another user, or if a program that outlived its caller still writes to it. A
    // later call will try again.
    await rm(join(directory, name), { recursive: true, force: true }).catch(() => undefined);
  }
}

function readIfPresent(file: string): Promise<string | undefined> {
  return readFile(file, 'utf8').catch(undefinedIfAbsent);
}

async function isPresent(path: string): Promise<boolean> {
  return (await stat(path).catch(undefinedIfAbsent)) !== undefined;
}

function undefinedIfAbsent(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}

// initdb opens the password file by name. /dev/stdin can be opened if it is a pipe, but not if it is a socket, which
// Node uses for child processes.
const withPipedInput = 'cat | "$@"';

const builtinLocale = ['--locale-provider=builtin', '--builtin-locale=C.UTF-8'];
/** Older servers sort and compare by bytes as well, but know upper and lower case of ASCII only. */
const builtinLocaleSince = 17;

/**
 * Fills the empty data directory: UTF-8, the builtin locale C.UTF-8 whatever the machine's locale is, checksums, and
 * scram passwords on every connection.
 *
 * @throws PostgresServerError `initialisation-failed` with the last lines of initdb's output.
 */
async function initialiseData(options: {
  readonly binaries: ServerBinaries;
  readonly account: ServerAccount | undefined;
  readonly dataDirectory: string;
  readonly user: string;
  readonly password: string;
  /** Whether to flush the files to disk before returning. */
  readonly durable: boolean;
}): Promise<void> {
  const { binaries, account, dataDirectory } = options;
  const flags = [
    `--pgdata=${pathFromWithin(dataDirectory, account, binaries)}`,
    `--username=${options.user}`,
    '--pwfile=/dev/stdin',
    '--auth=scram-sha-256',
    '--encoding=UTF8',
    '--locale=C',
    ...(binaries.majorVersion >= builtinLocaleSince ? builtinLocale : []),
    '--no-instructions',
    ...(options.durable ? [] : ['--no-sync']),
  ];
  const initdb = spawn('/bin/sh', ['-c', withPipedInput, 'sh', binaries.initdb, ...flags], {
    cwd: dataDirectory,
    stdio: ['pipe', 'pipe', 'pipe'],
    env: serverEnvironment(),
    ...account,
  });
  initdb.stdin.on('error', () => undefined); // It ended before it read the password; its exit code and output say why.
  initdb.stdin.end(`${options.password}\n`);
  const [output, errors, [code]] = await Promise.all([
    text(initdb.stdout),
    text(initdb.stderr),
    once(initdb, 'close') as Promise<[number | null]>,
  ]);
  if (code === 0) return;
  throw new PostgresServerError(
    'initialisation-failed',
    `initdb could not create ${dataDirectory} (exit code ${code}):\n${lastLines(`${output}${errors}`)}\n` +
      'Correct the problem that it reports, and start again.',
  );
}

function lastLines(output: string): string {
  return output.trim().split('\n').slice(-15).join('\n');
}
