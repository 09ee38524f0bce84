import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

import { alone } from './alone.mjs';
import { run } from './run.mjs';
import { members, packageManager, root, tool } from './workspace.mjs';

const nodeMajorMin = 20;
/** Exists during an installation; one that was killed may look complete to the package manager. */
const unfinished = join(root, '.data/install-unfinished');

const cannotInstall = `Installing failed (see above). Check that npm's registry can be reached, then try again.`;
const doesNotRun =
  'What was installed does not run here (see above). Let the package manager run install scripts, and on Linux use a distribution with glibc, then try again.';

/** Installs the dependencies unless those in the lockfile are already installed. Returns whether they are now. */
export async function install() {
  if (Number.parseInt(process.versions.node, 10) < nodeMajorMin) {
    console.error(`Node ${process.version} is too old: install Node ${nodeMajorMin} or newer and try again.`);
    return false;
  }
  return (await isInstalled()) || alone(installUnlessThere);
}

async function isInstalled() {
  const [wanted, there] = ['pnpm-lock.yaml', 'node_modules/.pnpm/lock.yaml'].map((file) => join(root, file));
  const isThere =
    !existsSync(unfinished) && existsSync(there) && readFileSync(there).equals(readFileSync(wanted));
  return isThere && (await errorOfTools()) === undefined;
}

async function installUnlessThere() {
  // Another command may have installed everything meanwhile.
  if (await isInstalled()) return true;
  console.log('Installing dependencies (the first time takes a minute or two) …');
  if (existsSync(unfinished)) removeInstalled();
  let result = await runPackageManager();
  if (result.code === 0 && (await errorOfTools()) !== undefined) {
    removeInstalled();
    result = await runPackageManager();
  }
  const error = result.code === 0 ? await errorOfTools() : result.output;
  if (error === undefined) rmSync(unfinished, { force: true });
  else console.error(`${error}\n${result.code === 0 ? doesNotRun : cannotInstall}`);
  return error === undefined;
}

function runPackageManager() {
  mkdirSync(dirname(unfinished), { recursive: true });
  writeFileSync(unfinished, '');
  // In CI mode the package manager asks no questions. It uses the Node that npm was called with.
  const env = { PATH: process.env.PATH, CI: 'true' };
  return run('npx', ['--yes', packageManager, 'install', '--frozen-lockfile'], { env });
}

/** The error of the first tool that does not run, if there is one. */
async function errorOfTools() {
  const results = await Promise.all(['node', 'pnpm', 'turbo'].map((name) => run(tool(name), ['--version'])));
  return results.find(({ code }) => code !== 0)?.output;
}

function removeInstalled() {
  for (const folder of ['.', ...members])
    rmSync(join(root, folder, 'node_modules'), { recursive: true, force: true });
}
