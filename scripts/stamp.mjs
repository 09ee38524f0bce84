import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { root } from './workspace.mjs';

/**
 * Remembers in `file` the contents of files for which something was done, so that it is done again only when they
 * have changed since it was begun. The paths are files and folders relative to the workspace, and may be absent.
 */
export function stampIn(file, paths) {
  const stamp = join(root, file);
  let digest;
  return {
    /** Whether the files are as they were when the stamp was set. */
    matches: () => existsSync(stamp) && readFileSync(stamp, 'utf8') === digestOf(paths),
    /** To be called before it is done. */
    begin: () => {
      rmSync(stamp, { force: true });
      digest = digestOf(paths);
    },
    /** To be called when it is done. */
    set: () => writeFileSync(stamp, digest),
  };
}

function digestOf(paths) {
  const hash = createHash('sha256').update(`${process.platform} ${process.arch}`);
  for (const path of paths) addTo(hash, path);
  return hash.digest('hex');
}

function addTo(hash, path) {
  const found = statSync(join(root, path), { throwIfNoEntry: false });
  if (found?.isDirectory()) {
    for (const name of readdirSync(join(root, path)).sort()) addTo(hash, `${path}/${name}`);
  } else if (found) {
    hash.update(`\0${path}\0`).update(readFileSync(join(root, path)));
  }
}
