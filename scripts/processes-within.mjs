import { readFileSync, readdirSync, readlinkSync } from 'node:fs';
import { execFileSync } from 'node:child_process';

/**
 * The ids of the running processes whose working directory is within the folder: npm, the service, and the database
 * server, which has a process group of its own but works in its data directory.
 */
export function processesWithin(folder) {
  if (process.platform !== 'linux') return processesByLsof(folder);
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && isWithin(workingDirectory(pid), folder) && !hasEnded(pid));
}

function isWithin(path, folder) {
  return path === folder || path?.startsWith(`${folder}/`);
}

function workingDirectory(pid) {
  try {
    return readlinkSync(`/proc/${pid}/cwd`);
  } catch {
    return undefined; // It has ended, or is another user's.
  }
}

// A process that ended stays listed until its parent asks for its exit code.
function hasEnded(pid) {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1).startsWith('Z');
  } catch {
    return true;
  }
}

function processesByLsof(folder) {
  let pid;
  const pids = [];
  for (const line of lsof().split('\n')) {
    if (line.startsWith('p')) pid = Number(line.slice(1));
    if (line.startsWith('n') && isWithin(line.slice(1), folder)) pids.push(pid);
  }
  return pids;
}

function lsof() {
  try {
    return execFileSync('lsof', ['-d', 'cwd', '-Fpn'], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
  } catch (error) {
    return error.stdout ?? ''; // It complains about what it may not see.
  }
}
