import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { delimiter, join } from 'node:path';

import { root } from './workspace.mjs';

/** The workspace contains the Node that its tools need; the one that npm was called with may be too old for them. */
export const workspaceEnvironment = {
  ...process.env,
  PATH: `${join(root, 'node_modules/.bin')}${delimiter}${process.env.PATH}`,
  TURBO_TELEMETRY_DISABLED: '1',
  DO_NOT_TRACK: '1',
};

const endings = ['SIGHUP', 'SIGINT', 'SIGTERM'];

// Ends its process group when its standard input ends, which happens when this process ends, even if it is killed.
const untilInputEnds =
  'exec 3<&0; "$@" </dev/null 3<&- & program=$!; ' +
  '{ read -r _; kill -s TERM 0; } <&3 >/dev/null 2>&1 & watch=$!; ' +
  'wait $program; code=$?; kill -s KILL $watch; exit $code';

/**
 * Runs a program in the workspace's folder and collects its output, each part of which `onOutput` receives at once. A program that
 * cannot be started counts as failed. Resolves to `{ code, output }`.
 *
 * The program ends with this process, however that ends, and so do the programs that it has started: a package manager that
 * continued would write into the same files as the next one.
 */
export function run(command, args, { env = {}, onOutput = () => {} } = {}) {
  return new Promise((resolve) => {
    const child = spawn('/bin/sh', ['-c', untilInputEnds, 'sh', command, ...args], {
      cwd: root,
      env: { ...workspaceEnvironment, ...env },
      // Its own process group, which can be ended as a whole.
      detached: true,
    });
    endTogether(child);
    const chunks = [];
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk) => {
        chunks.push(chunk);
        onOutput(chunk);
      });
    child.on('error', (error) => resolve({ code: 1, output: `${command}: ${error.message}\n` }));
    child.on('close', (code) => resolve({ code: code ?? 1, output: Buffer.concat(chunks).toString('utf8') }));
  });
}

function endTogether(child) {
  let ending;
  const end = (signal) => {
    ending = signal;
    try {
      // Background commands of a shell ignore SIGINT.
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGTERM');
    } catch {
      // All processes of the group have ended meanwhile.
    }
  };
  for (const signal of endings) process.on(signal, end);
  child.on('close', () => {
    for (const signal of endings) process.off(signal, end);
    if (ending !== undefined) process.exit(128 + constants.signals[ending]);
  });
}
