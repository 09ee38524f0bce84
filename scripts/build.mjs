import { existsSync } from 'node:fs';
import { join } from 'node:path';

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
  if (stamp.matches() && existsSync(join(root, serviceFile))) return true;
  console.log('Building …');
  stamp.clear();
  const result = await turbo(['run', 'build', '--filter=wallet-service...']);
  if (result.code !== 0) {
    console.error(result.output);
    console.error('Building failed (see above). Correct the first error that is named and try again.');
    return false;
  }
  stamp.set();
  return true;
}
