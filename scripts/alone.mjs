import { mkdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

import { root } from './workspace.mjs';

/** Outside of node_modules, which an installation may remove. */
const lockFile = join(root, '.data/install.lock');
const beatMs = 1_000;
const pollMs = 250;
/**
 * Who waits sees so many times that a lock is not touched any more; then its holder was killed. Clocks may be set, and
 * machines sleep, so its age would tell less; and so would its holder's id, which another process may have by now.
 */
const deadAfterPolls = 40;

/**
 * Does the work while no other command does such work in this workspace: whoever installs or builds removes and writes what
 * the others use. Waits for those that came before, and says so.
 */
export async function alone(work) {
  const holder = `${process.pid} ${performance.timeOrigin}`;
  await take(holder);
  const beat = setInterval(() => touch(holder), beatMs);
  const end = () => release(holder);
  process.once('exit', end);
  try {
    return await work();
  } finally {
    clearInterval(beat);
    process.off('exit', end);
    end();
  }
}

async function take(holder) {
  mkdirSync(dirname(lockFile), { recursive: true });
  let seen;
  let unchanged = 0;
  for (let hasSaid = false; !create(holder);) {
    const beat = statSync(lockFile, { throwIfNoEntry: false })?.mtimeMs;
    unchanged = beat === seen ? unchanged + 1 : 0;
    seen = beat;
    if (unchanged > deadAfterPolls) {
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

/** Who stood still for long may find that another one has it. */
function release(holder) {
  if (isHeldBy(holder)) rmSync(lockFile, { force: true });
}

function touch(holder) {
  if (!isHeldBy(holder)) return;
  try {
    const now = new Date();
    utimesSync(lockFile, now, now);
  } catch {
    // Somebody has removed it by hand.
  }
}
