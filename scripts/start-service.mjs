import { spawn } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';

import { processesWithin } from './processes-within.mjs';

const pollIntervalMs = 50;
const requestTimeoutMs = 10_000;

/** Runs `npm start` in a checkout, without any configuration but the port. */
export function startService(folder, port) {
  const env = { ...process.env, PORT: String(port) };
  for (const name of ['WALLET_CONFIG', 'TEST_DATABASE_URL', 'HOST']) delete env[name];
  const npm = spawn('npm', ['start'], {
    cwd: folder,
    env,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const exit = new Promise((resolve) => {
    npm.on('exit', (code, signal) => resolve(code ?? signal));
  });
  let output = '';
  for (const stream of [npm.stdout, npm.stderr]) stream.on('data', (chunk) => (output += chunk));

  return {
    /** What it has printed so far. */
    output: () => output,

    /** Waits until it says that it is ready; tells after how many milliseconds. */
    async ready(timeoutMs) {
      const startedAtMs = performance.now();
      await until('was not ready', timeoutMs, async () => {
        if (npm.exitCode !== null) throw new Error(`npm start ended with ${npm.exitCode}`);
        return (await request('GET', '/health/ready').catch(() => undefined))?.status === 200;
      });
      return performance.now() - startedAtMs;
    },

    request,

    /** Asks npm to end, as `kill` does; resolves to its exit code when nothing of it runs any more. */
    async terminate(timeoutMs) {
      npm.kill('SIGTERM');
      await until('did not end', timeoutMs, () => processesWithin(folder).length === 0);
      return exit;
    },

    /** As Ctrl-C in a terminal: SIGINT to the whole process group. */
    async interrupt(timeoutMs) {
      if (npm.pid !== undefined) process.kill(-npm.pid, 'SIGINT');
      await until('did not end', timeoutMs, () => processesWithin(folder).length === 0);
      return exit;
    },

    /** Kills npm alone; resolves when nothing of it runs any more. */
    async killNpm(timeoutMs) {
      npm.kill('SIGKILL');
      await until('did not end', timeoutMs, () => processesWithin(folder).length === 0);
    },

    /** Kills everything that runs in the checkout, without a chance to clean up. */
    async killAll(timeoutMs) {
      await until('could not be killed', timeoutMs, () => {
        const pids = processesWithin(folder);
        for (const pid of pids) killIfThere(pid);
        return pids.length === 0;
      });
    },
  };

  /** Sends one request; resolves to `{ status, body }`. */
  async function request(method, path, body) {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, {
      method,
      headers: body === undefined ? {} : { 'content-type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(requestTimeoutMs),
    });
    const text = await response.text();
    return { status: response.status, body: text ? JSON.parse(text) : undefined };
  }
}

/** Waits until the condition holds; throws that the service has not done it in time. */
export async function until(fault, timeoutMs, condition) {
  const endsAtMs = performance.now() + timeoutMs;
  while (!(await condition())) {
    if (performance.now() >= endsAtMs) throw new Error(`the service ${fault} within ${timeoutMs} ms`);
    await pause(pollIntervalMs);
  }
}

function killIfThere(pid) {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended meanwhile.
  }
}
