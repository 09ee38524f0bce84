import { spawn } from 'node:child_process';
import { delimiter, join } from 'node:path';

import { root } from './workspace.mjs';

const environment = { TURBO_TELEMETRY_DISABLED: '1', DO_NOT_TRACK: '1' };
// The workspace brings the Node that its tools need; the one that npm was called with may be too old for them.
const PATH = `${join(root, 'node_modules/.bin')}${delimiter}${process.env.PATH}`;

/**
 * Runs a program to its end and collects what it prints, unless `show` passes that on. It runs in the workspace's
 * folder unless `cwd` names another. A program that cannot be started counts as failed. Resolves to `{ code, output }`.
 */
export function run(command, args, { cwd = root, env = {}, show = false } = {}) {
  return new Promise((resolve) => {
    const child = spawn(command, args, {
      cwd,
      env: { ...process.env, ...environment, PATH, ...env },
      stdio: show ? ['ignore', 'inherit', 'inherit'] : ['ignore', 'pipe', 'pipe'],
    });
    const chunks = [];
    child.stdout?.on('data', (chunk) => chunks.push(chunk));
    child.stderr?.on('data', (chunk) => chunks.push(chunk));
    child.on('error', (error) => resolve({ code: 1, output: `${command}: ${error.message}\n` }));
    child.on('close', (code) => resolve({ code: code ?? 1, output: Buffer.concat(chunks).toString('utf8') }));
  });
}
