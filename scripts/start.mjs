import { spawn } from 'node:child_process';
import { constants } from 'node:os';

import { serviceFile, buildIfNeeded } from './build.mjs';
import { installIfNeeded } from './install.mjs';
import { root, tool } from './workspace.mjs';

const parentCheckIntervalMs = 200;
/** Whoever started this: it may have been killed while something was installed or built. */
const parent = process.ppid;

// What `npm start` runs: installs and builds when needed, then becomes the wallet service, or its command for operators.
if ((await installIfNeeded()) && (await buildIfNeeded())) {
  const service = spawn(tool('node'), ['--enable-source-maps', serviceFile, ...process.argv.slice(2)], {
    cwd: root,
    stdio: 'inherit',
  });
  passOn('SIGTERM', service);
  passOn('SIGINT', service);
  endWithParent(service);
  service.on('error', (error) => {
    console.error(`The service cannot be started: ${error.message}`);
    process.exitCode = 1;
  });
  service.on('exit', (code, signal) => (process.exitCode = code ?? 128 + constants.signals[signal]));
} else {
  process.exitCode = 1;
}

function passOn(signal, service) {
  // The service may get it twice: a terminal sends Ctrl-C to every process, and npm repeats what it was sent.
  process.on(signal, () => service.kill(signal));
}

// A killed npm sends nothing; the service would go on without anybody to stop it, and keep its port.
function endWithParent(service) {
  const timer = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(timer);
    service.kill('SIGTERM');
  }, parentCheckIntervalMs);
  timer.unref();
}
