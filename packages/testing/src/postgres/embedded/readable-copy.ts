import { chmod, cp, lstat, mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

/**
 * A copy of the folder `source` at `target` that everyone may read and only this user may change; an existing one is
 * used as it is.
 *
 * The copy is made beside the target and then renamed, so a target that exists is complete, and of several processes
 * that copy at once one wins and the others use its copy.
 *
 * @throws Error when the target cannot be written, or belongs to another user or may be changed by others: its
 * programs are not to be trusted then.
 */
export async function copyReadable(source: string, target: string): Promise<string> {
  if (!(await exists(target))) {
    await mkdir(dirname(target), { recursive: true });
    const fresh = await mkdtemp(join(dirname(target), `.${basename(target)}-`));
    try {
      await cp(source, fresh, { recursive: true, verbatimSymlinks: true });
      await makeReadable(fresh);
      await rename(fresh, target);
    } catch (error) {
      if (!(await exists(target))) throw error;
    } finally {
      await rm(fresh, { recursive: true, force: true });
    }
  }
  const found = await lstat(target);
  if (!found.isDirectory() || found.uid !== process.getuid?.() || (found.mode & 0o022) !== 0) {
    throw new Error(`${target} belongs to another user or may be changed by others`);
  }
  return target;
}

async function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

// The modes in node_modules follow the umask of whoever installed, which may leave nothing to other users.
async function makeReadable(folder: string): Promise<void> {
  await chmod(folder, 0o755);
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) await makeReadable(path);
    else if (entry.isFile()) await chmod(path, ((await lstat(path)).mode & 0o111) === 0 ? 0o644 : 0o755);
  }
}
