import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const page = join(import.meta.dirname, 'survivors.md');

/** A line of a source, and the line in a mutant. */
export interface Change {
  readonly file: string;
  readonly was: string;
  readonly is: string;
}

/**
 * The changes that the page explains: `{ file, was, is }`, from its headings that name a file and its `diff` blocks. In a block,
 * each line with a plus replaces the last line with a minus.
 */
export function explanations(): readonly Change[] {
  const changes: Change[] = [];
  let file: string | undefined;
  let was = '';
  let isDiff = false;
  for (const line of readFileSync(page, 'utf8').split('\n')) {
    if (line.startsWith('```')) isDiff = line === '```diff';
    else if (!isDiff) file = /^#+ `(.+)`$/.exec(line)?.[1] ?? (line.startsWith('#') ? undefined : file);
    else if (line.startsWith('- ')) was = line.slice(2);
    else if (line.startsWith('+ ') && file !== undefined) changes.push({ file, was, is: line.slice(2) });
  }
  return changes;
}
