import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { root } from '../workspace.mjs';

const page = 'docs/operations/mutation-testing.md';

/**
 * The changes that the page explains: `{ file, was, is }`, from its headings that name a file and the blocks of `diff` below.
 * In a block, each line with a plus is a change of the last line with a minus.
 */
export function explanations() {
  const changes = [];
  let file;
  let was;
  let isDiff = false;
  for (const line of readFileSync(join(root, page), 'utf8').split('\n')) {
    if (line.startsWith('```')) isDiff = line === '```diff';
    else if (!isDiff) file = /^#+ `(.+)`$/.exec(line)?.[1] ?? (line.startsWith('#') ? undefined : file);
    else if (line.startsWith('- ')) was = line.slice(2);
    else if (line.startsWith('+ ')) changes.push({ file, was, is: line.slice(2) });
  }
  return changes;
}
