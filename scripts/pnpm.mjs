import { run } from './run.mjs';
import { packageManager } from './workspace.mjs';

/** Runs the package manager, in the version that the workspace names, by the Node that npm was called with. */
export function pnpm(args, env = {}) {
  return run('npx', ['--yes', packageManager, ...args], { env: { PATH: process.env.PATH, ...env } });
}

/** Runs turbo, which in turn needs the package manager to be found. */
export function turbo(args) {
  return pnpm(['exec', 'turbo', ...args]);
}
