import { existsSync } from 'node:fs';
import { join } from 'node:path';

import { alone } from './alone.mjs';
import { turbo } from './pnpm.mjs';
import { stampIn } from './stamp.mjs';
import { members, root } from './workspace.mjs';

/** The built wallet service, relative to the workspace. */
export const serviceFile = 'apps/wallet-service/dist/main.js';

const inputs = [
  'src',
  'migrations',
  'package.json',
  'tsconfig.json',
  'tsconfig.build.json',
  'tsup.config.ts',
];

const stamp = stampIn('node_modules/.build-stamp', [
  'pnpm-lock.yaml',
  'tsconfig.base.json',
  'tsup.base.ts',
  'turbo.json',
  ...members.flatMap((member) => inputs.map((input) => `${member}/${input}`)),
]);

/** Builds the wallet service and what it needs unless the sources are those of the last build. Tells whether it is there. */
export async function buildIfNeeded() {
  return isBuilt() || alone(buildUnlessThere);
}

async function buildUnlessThere() {
  // Another command may have done it meanwhile.
  if (isBuilt()) return true;
  console.log('Building …');
  stamp.begin();
  if (!(await buildOrExplain('wallet-service'))) return false;
  stamp.set();
  return true;
}

function isBuilt() {
  return stamp.matches() && existsSync(join(root, serviceFile));
}

/** Builds a package and what it needs; what has not changed is kept. Tells whether it is there, and says why not. */
export async function buildOrExplain(name) {
  const { code, output } = await turbo(['run', 'build', `--filter=${name}...`]);
  if (code === 0) return true;
  console.error(output);
  console.error('Building failed (see above). Correct the first error that is named and try again.');
  return false;
}
