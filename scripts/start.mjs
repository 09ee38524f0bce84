import { spawn } from 'node:child_process';
import { constants } from 'node:os';

import { alone } from './alone.mjs';
import { install } from './install.mjs';
import { run, workspaceEnvironment } from './run.mjs';
import { root, tool } from './workspace.mjs';

// The first step of every command of the project: installs what is missing, builds the packages passed with `--build`, and then
// becomes the program that follows. This script runs in the Node that npm was called with, the program in the Node of the
// workspace.
const parentCheckIntervalMs = 200;
/** The parent process: it may have been killed during the installation or the build. */
const parent = process.ppid;
const args = process.argv.slice(2);
const [, build] = args[0] === '--build' ? args.splice(0, 2) : [];

if ((await install()) && (build === undefined || (await alone(buildOrExplain)))) startProgram();
else process.exitCode = 1;

async function buildOrExplain() {
  const { code, output } = await run(tool('turbo'), ['run', 'build', `--filter=${build}...`]);
  if (code === 0) return true;
  console.error(output);
  console.error('Building failed (see above). Correct the first error that is named and try again.');
  return false;
}

function startProgram() {
  const options = ['--enable-source-maps', '--disable-warning=ExperimentalWarning'];
  const child = spawn(tool('node'), [...options, ...args], {
    cwd: root,
    env: workspaceEnvironment,
    stdio: 'inherit',
  });
  // The program may get a signal twice: a terminal sends Ctrl-C to every process, and npm repeats the signals that it gets.
  for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => child.kill(signal));
  endWithParent(child);
  child.on('error', (error) => {
    console.error(`${args[0]} cannot be started: ${error.message}`);
    process.exitCode = 1;
  });
  child.on('exit', (code, signal) => (process.exitCode = code ?? 128 + constants.signals[signal]));
}

// A killed npm sends no signal; the program would continue without anybody to stop it, and a service would keep its port.
function endWithParent(child) {
  const timer = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(timer);
    child.kill('SIGTERM');
  }, parentCheckIntervalMs);
  timer.unref();
}
