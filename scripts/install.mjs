import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';

import { alone } from './alone.mjs';
import { pnpm } from './pnpm.mjs';
import { run } from './run.mjs';
import { stampIn } from './stamp.mjs';
import { members, root, tool } from './workspace.mjs';

const nodeMajorMin = 20;
const unfinished = join(root, 'node_modules/.install-unfinished');

const stamp = stampIn('node_modules/.install-stamp', [
  'package.json',
  'pnpm-lock.yaml',
  'pnpm-workspace.yaml',
  ...members.map((member) => `${member}/package.json`),
]);

/** Installs the dependencies unless those that the lockfile names are there. Tells whether they are there now. */
export async function installIfNeeded() {
  if (Number.parseInt(process.versions.node, 10) < nodeMajorMin) {
    console.error(`Node ${process.version} is too old: install Node ${nodeMajorMin} or newer and try again.`);
    return false;
  }
  return stamp.matches() || alone(installUnlessThere);
}

async function installUnlessThere() {
  // Another command may have done it meanwhile.
  if (stamp.matches()) return true;
  console.log('Installing dependencies (the first time takes a minute or two) …');
  // An installation that was killed in the middle may look complete to the package manager.
  if (existsSync(unfinished)) await removeInstalled();
  let result = await install();
  if (result.code === 0 && (await faultOfTools()) !== undefined) {
    await removeInstalled();
    result = await install();
  }
  if (result.code !== 0) {
    console.error(result.output);
    console.error(`Installing failed (see above). Check that npm's registry can be reached, then try again.`);
    return false;
  }
  const fault = await faultOfTools();
  if (fault !== undefined) {
    console.error(fault);
    console.error(
      'What was installed does not run here (see above). Let the package manager run install scripts, and on Linux use a distribution with glibc, then try again.',
    );
    return false;
  }
  rmSync(unfinished, { force: true });
  stamp.set();
  return true;
}

function install() {
  stamp.begin();
  mkdirSync(join(root, 'node_modules'), { recursive: true });
  writeFileSync(unfinished, '');
  // In CI mode the package manager asks nothing.
  return pnpm(['install', '--frozen-lockfile'], { CI: 'true' });
}

/** What the first tool says that does not run, if there is one. */
async function faultOfTools() {
  const results = await Promise.all(['node', 'turbo'].map((name) => run(tool(name), ['--version'])));
  return results.find(({ code }) => code !== 0)?.output;
}

async function removeInstalled() {
  for (const folder of ['.', ...members]) {
    await rm(join(root, folder, 'node_modules'), { recursive: true, force: true });
  }
}
