import { mkdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

import { root } from './workspace.mjs';

/** Outside node_modules, because an installation may remove that folder. */
const lockFile = join(root, '.data/install.lock');
const beatMs = 1_000;
const pollMs = 250;
/**
 * After this many checks without any sign of life in the lock, its holder counts as killed. The lock's age would prove less,
 * because clocks may be set and machines sleep; and so would its holder's id, which another process may have by now.
 */
const deadAfterPolls = 40;
const holder = `${process.pid} ${performance.timeOrigin}`;

/**
 * Does the work while no other command does such work in this workspace, because installing and building remove and write files
 * that the others use. Waits for earlier commands, and reports that.
 */
export async function alone(work) {
  await take();
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

async function take() {
  mkdirSync(dirname(lockFile), { recursive: true });
  let seen;
  let unchanged = 0;
  for (let hasSaid = false; !create(); hasSaid = true) {
    const beat = statSync(lockFile, { throwIfNoEntry: false })?.mtimeMs;
    unchanged = beat === seen ? unchanged + 1 : 0;
    seen = beat;
    if (unchanged > deadAfterPolls) {
      rmSync(lockFile, { force: true });
      // Several commands may find the lock abandoned at once: the last one that recreated it has it.
      if (create() && (await pause(pollMs)) === undefined && isHeld()) return;
    }
    if (!hasSaid) console.log('Waiting for another command that installs or builds here …');
    await pause(pollMs);
  }
}

function create() {
  try {
    writeFileSync(lockFile, holder, { flag: 'wx' });
    return true;
  } catch (error) {
    if (error.code !== 'EEXIST') throw error;
    return false;
  }
}

/** Whether this process has the lock: after a long suspension, another one may have it, or nobody. */
function isHeld() {
  return (
    statSync(lockFile, { throwIfNoEntry: false }) !== undefined && readFileSync(lockFile, 'utf8') === holder
  );
}

function release() {
  if (isHeld()) rmSync(lockFile, { force: true });
}

function touch() {
  const now = new Date();
  if (isHeld()) utimesSync(lockFile, now, now);
}
