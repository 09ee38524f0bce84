import { cpSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';

import { members, root } from '../../scripts/workspace.mjs';

// Runs in the copy of the workspace that contains the mutants. The members' links are copied, so that members find each other
// within the copy: otherwise the tests of one would use the unmutated sources of another.
const workspace = process.env['MUTANTS_WORKSPACE'];

symlinkSync(join(workspace, 'node_modules'), join(root, 'node_modules'));
for (const member of members) {
  const [from, to] = [workspace, root].map((folder) => join(folder, member, 'node_modules'));
  cpSync(from, to, { recursive: true, verbatimSymlinks: true });
}
