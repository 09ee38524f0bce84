import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';

import { PostgresServerError } from './deadline.js';
import { type ServerAccount, pathFromWithin } from './server-account.js';
import { type ServerBinaries, serverEnvironment } from './server-binaries.js';

// initdb opens the password file by name, and /dev/stdin can be opened when it is a pipe, but not the socket that Node
// connects children with.
const withPipedInput = 'cat | "$@"';

/**
 * Fills the empty data directory: UTF-8, the builtin locale C.UTF-8 whatever the machine's locale is, checksums, and
 * scram passwords on every connection.
 *
 * @throws PostgresServerError `initialisation-failed` with the last lines that initdb printed.
 */
export async function initialiseData(options: {
  readonly binaries: ServerBinaries;
  readonly account: ServerAccount | undefined;
  readonly dataDirectory: string;
  readonly user: string;
  readonly password: string;
  /** Whether the files are flushed to the disk before this returns. */
  readonly durable: boolean;
}): Promise<void> {
  const { binaries, account, dataDirectory } = options;
  const flags = [
    `--pgdata=${pathFromWithin(dataDirectory, account)}`,
    `--username=${options.user}`,
    '--pwfile=/dev/stdin',
    '--auth=scram-sha-256',
    '--encoding=UTF8',
    '--locale=C',
    '--locale-provider=builtin',
    '--builtin-locale=C.UTF-8',
    '--no-instructions',
    ...(options.durable ? [] : ['--no-sync']),
  ];
  const initdb = spawn('/bin/sh', ['-c', withPipedInput, 'sh', binaries.initdb, ...flags], {
    cwd: dataDirectory,
    stdio: ['pipe', 'pipe', 'pipe'],
    env: serverEnvironment(),
    ...account,
  });
  initdb.stdin.on('error', () => undefined); // It ended before reading; its exit code and output say why.
  initdb.stdin.end(`${options.password}\n`);
  const [output, errors, [code]] = await Promise.all([
    text(initdb.stdout),
    text(initdb.stderr),
    once(initdb, 'close') as Promise<[number | null]>,
  ]);
  if (code === 0) return;
  throw new PostgresServerError(
    'initialisation-failed',
    `initdb could not create ${dataDirectory} (exit code ${code}):\n${lastLines(`${output}${errors}`)}`,
  );
}

function lastLines(output: string): string {
  return output.trim().split('\n').slice(-15).join('\n');
}
