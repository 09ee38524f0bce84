import { mkdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

import { root } from './workspace.mjs';

/** Outside of node_modules, which an installation may remove. */
const lockFile = join(root, '.data/install.lock');
const beatMs = 1_000;
const pollMs = 250;
/** A process that was killed does not touch its lock any more. Its id would tell less: another process may have it by now. */
const deadAfterMs = 10_000;

/**
 * Does the work while no other command does such work in this workspace: whoever installs or builds removes and writes what
 * the others use. Waits for those that came before, and says so.
 */
export async function alone(work) {
  const holder = `${process.pid} ${performance.timeOrigin}`;
  await take(holder);
  const beat = setInterval(touch, beatMs);
  process.once('exit', release);
  try {
    return await work();
  } finally {
    clearInterval(beat);
    process.off('exit', release);
    release();
  }
}

async function take(holder) {
  mkdirSync(dirname(lockFile), { recursive: true });
  for (let hasSaid = false; !create(holder);) {
    if (isDead()) {
      rmSync(lockFile, { force: true });
      // Several may find it dead at once: the last one that made it anew has it.
      if (create(holder) && (await pause(pollMs)) === undefined && isHeldBy(holder)) return;
    }
    if (!hasSaid) console.log('Another command installs or builds here, and is waited for …');
    hasSaid = true;
    await pause(pollMs);
  }
}

function create(holder) {
  try {
    writeFileSync(lockFile, holder, { flag: 'wx' });
    return true;
  } catch (error) {
    if (error.code !== 'EEXIST') throw error;
    return false;
  }
}

function isHeldBy(holder) {
  try {
    return readFileSync(lockFile, 'utf8') === holder;
  } catch {
    return false;
  }
}

function isDead() {
  const found = statSync(lockFile, { throwIfNoEntry: false });
  return found !== undefined && Date.now() - found.mtimeMs > deadAfterMs;
}

function release() {
  rmSync(lockFile, { force: true });
}

function touch() {
  try {
    const now = new Date();
    utimesSync(lockFile, now, now);
  } catch {
    // Somebody has removed it by hand.
  }
}
