import { execaSync } from 'execa';
import { readFileSync, readdirSync, readlinkSync } from 'node:fs';

/**
 * The ids of the running processes whose working directory is within the folder: npm, the service, and the database
 * server, which has a process group of its own but works in its data directory.
 */
export function processesWithin(folder: string): readonly number[] {
  if (process.platform !== 'linux') return processesByLsof(folder);
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && isWithin(workingDirectory(pid), folder) && !hasEnded(pid));
}

function isWithin(path: string | undefined, folder: string): boolean {
  return path !== undefined && `${path}/`.startsWith(`${folder}/`);
}

function workingDirectory(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/cwd`);
  } catch {
    return undefined; // The process has ended, or belongs to another user.
  }
}

/** A process that ended stays listed until its parent asks for its exit code. */
function hasEnded(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.startsWith('Z') ?? true;
  } catch {
    return true;
  }
}

function processesByLsof(folder: string): readonly number[] {
  // lsof fails on processes that it may not inspect.
  const { stdout } = execaSync('lsof', ['-d', 'cwd', '-Fpn'], { reject: false });
  let pid = 0;
  const pids: number[] = [];
  for (const line of stdout.split('\n')) {
    if (line.startsWith('p')) pid = Number(line.slice(1));
    if (line.startsWith('n') && isWithin(line.slice(1), folder)) pids.push(pid);
  }
  return pids;
}
