import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { type FileHandle, open, rename, stat } from 'node:fs/promises';
import { type AddressInfo, type Socket, createServer } from 'node:net';
import { promisify } from 'node:util';

import { type Cluster, isAlive, readPostmaster } from './cluster.js';
import { Deadline } from './deadline.js';
import { type ServerAccount, pathFromWithin } from './server-account.js';
import { type ServerBinaries, serverEnvironment } from './server-binaries.js';

// The server's parent is a shell that reads names of signals from a pipe. The pipe closes when this process ends, even
// by SIGKILL, and the shell then shuts the server down. The shell waits for the server, so the process id that it
// signals is always the server's.
const supervisor = `
exec 3<&0
"$@" 3<&- </dev/null &
server=$!
{ while read -r signal <&3; do kill -s "$signal" "$server"; done; kill -s INT "$server"; } 2>/dev/null &
watcher=$!
exec 3<&- </dev/null
wait "$server"
code=$?
kill "$watcher" 2>/dev/null
exit "$code"
`;

// TERM is not among them, because the server would wait for its clients to disconnect. INT rolls their transactions
// back and writes a checkpoint, QUIT skips the checkpoint, and KILL always works.
const shutdownSteps = [
  { signal: 'INT', timeoutMs: 10_000 },
  { signal: 'QUIT', timeoutMs: 5_000 },
  { signal: 'KILL', timeoutMs: 5_000 },
] as const;

/** The settings of a server process. */
export interface ServerProcessOptions {
  readonly cluster: Cluster;
  readonly account: ServerAccount | undefined;
  readonly binaries: ServerBinaries;
  readonly port: number;
  readonly settings: Readonly<Record<string, string>>;
  readonly log: FileHandle;
}

/** A running PostgreSQL server that does not outlive this process. */
export class ServerProcess {
  readonly #supervisor: ChildProcess;
  readonly #options: ServerProcessOptions;
  readonly #exited: Promise<unknown>;
  #ended = false;

  /**
   * Starts the server. It does not keep this process alive, and it has its own process group, so that Ctrl-C does not
   * reach it.
   */
  constructor(options: ServerProcessOptions) {
    const { account, binaries, cluster, log } = options;
    this.#options = options;
    this.#supervisor = spawn(
      '/bin/sh',
      ['-c', supervisor, 'sh', binaries.postgres, ...serverArguments(options)],
      {
        cwd: cluster.dataDirectory,
        detached: true,
        stdio: ['pipe', log.fd, log.fd],
        env: serverEnvironment(),
        ...account,
      },
    );
    this.#supervisor.stdin?.on('error', () => undefined); // The supervisor has ended, which `exited` reports.
    this.#supervisor.unref();
    (this.#supervisor.stdin as Socket).unref();
    this.#exited = once(this.#supervisor, 'exit').then(
      () => (this.#ended = true),
      () => (this.#ended = true),
    );
  }

  /** Settles when the server has ended, for whatever reason. */
  get exited(): Promise<unknown> {
    return this.#exited;
  }

  /** Waits until the server accepts connections. Resolves to `false` if it ends or the deadline passes first. */
  async becomesReady(deadline: Deadline): Promise<boolean> {
    const { cluster, port } = this.#options;
    const ready = await deadline.poll(async () => {
      if (this.#ended) return false;
      const postmaster = await readPostmaster(cluster.dataDirectory);
      return postmaster?.ready && postmaster.port === port ? true : undefined;
    });
    return ready ?? false;
  }

  /**
   * Shuts the server down: disconnects its sessions and leaves the data clean, or ends it by force if that takes too
   * long.
   */
  async stop(): Promise<void> {
    this.#supervisor.ref();
    for (const { signal, timeoutMs } of shutdownSteps) {
      if (this.#ended) return;
      this.#supervisor.stdin?.write(`${signal}\n`);
      if (await Deadline.after(timeoutMs).reaches(this.#exited)) return;
    }
  }
}

function serverArguments({
  account,
  binaries,
  cluster,
  port,
  settings,
}: ServerProcessOptions): readonly string[] {
  const all = {
    ...settings,
    port: String(port),
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
  };
  return [
    '-D',
    pathFromWithin(cluster.dataDirectory, account, binaries),
    ...Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
  ];
}

const bytesMax = 10 * 1024 * 1024;
const linesShown = 20;
const tailBytes = 8 * 1024;

/** The file for the server's messages. If it is larger than 10 MiB when it is opened, it is first renamed to `….1`. */
export class ServerLog {
  readonly handle: FileHandle;
  readonly #file: string;
  #startBytes: number;

  private constructor(file: string, handle: FileHandle, sizeBytes: number) {
    this.#file = file;
    this.handle = handle;
    this.#startBytes = sizeBytes;
  }

  /**
   * Opens the file for appending with this process's rights. The server inherits the handle, so it needs no access to
   * the folder.
   */
  static async open(file: string): Promise<ServerLog> {
    const size = await stat(file).then(
      (found) => found.size,
      () => 0,
    );
    if (size > bytesMax) await rename(file, `${file}.1`);
    return new ServerLog(file, await open(file, 'a', 0o600), size > bytesMax ? 0 : size);
  }

  /** Makes `tail` return only what is written after this call. */
  async mark(): Promise<void> {
    this.#startBytes = (await this.handle.stat()).size;
  }

  /** The last lines written since the mark, at most 20. */
  async tail(): Promise<string> {
    const reader = await open(this.#file, 'r');
    try {
      const { size } = await reader.stat();
      const start = Math.max(this.#startBytes, size - tailBytes);
      const { buffer, bytesRead } = await reader.read({
        buffer: Buffer.alloc(size - start),
        position: start,
      });
      return buffer.toString('utf8', 0, bytesRead).trim().split('\n').slice(-linesShown).join('\n');
    } finally {
      await reader.close();
    }
  }
}

const run = promisify(execFile);

/**
 * Whether process `pid` is a server on this data directory; `undefined` if this process has no permission to find out.
 *
 * A process id alone proves little, since another process may have it by now. A server is recognised by its working
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

// Linux shows a process's working directory to its own user, but to root only with the capability SYS_PTRACE, which
// root lacks in most containers. With hidepid, /proc even hides the process. A server runs as the owner of its data
// directory, so root asks as that user.
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
  // lsof prints nothing in either case: the process has ended, or lsof may not inspect it.
  return path ? isSameFolder(path.slice(1), dataDirectory).catch(() => undefined) : undefined;
}

async function isSameFolder(path: string, other: string): Promise<boolean> {
  const [found, expected] = await Promise.all([stat(path), stat(other)]);
  return found.ino === expected.ino && found.dev === expected.dev;
}

// Matches Node's error codes and the messages of `stat`.
function isAbsent(fault: string): boolean {
  return /^ENOENT$|^ESRCH$|No such file or directory|No such process/.test(fault);
}

/** A TCP port of 127.0.0.1 that was free a moment ago; another process may take it in the meantime. */
export async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}
