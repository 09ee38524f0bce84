import { strictEqual } from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';

import { processesWithin } from './processes-within.mjs';
import { run } from './run.mjs';
import { startService, until } from './start-service.mjs';
import { Tally } from './tally.mjs';
import { root } from './workspace.mjs';

// Tries the first command as a newcomer would: `npm start` in a fresh clone, and again after it ended in several ways.
const firstReadyMs = 15 * 60_000;
const againReadyMs = 5_000;
const endMs = 20_000;

const temporary = realpathSync(mkdtempSync(join(tmpdir(), 'check-start-')));
const checkout = join(temporary, 'clone');
const tally = new Tally();
let service;
let wallet;

await check('a fresh clone is made', async () => {
  const { code, output } = await run('git', ['clone', '--quiet', '--no-local', root, checkout]);
  strictEqual(code, 0, output);
});
await check(
  'a lock is taken over whose holder was killed, also when the clock was set back since',
  async () => {
    const lock = join(checkout, '.data/install.lock');
    mkdirSync(join(checkout, '.data'));
    writeFileSync(lock, 'killed');
    const tomorrow = Date.now() / 1_000 + 86_400;
    utimesSync(lock, tomorrow, tomorrow);
    const command = startWith('exit 1');
    await until('did not take the lock', endMs, () => command.exitCode !== null);
  },
);
await check('an installation ends with the command that began it, however that ends', async () => {
  const begun = join(checkout, 'begun');
  for (const signal of ['SIGHUP', 'SIGINT', 'SIGKILL']) {
    const command = startWith('touch begun; exec sleep 600');
    await until('did not begin to install', endMs, () => existsSync(begun));
    rmSync(begun);
    command.kill(signal);
    await until(`did not end after ${signal}`, endMs, () => processesWithin(checkout).length === 0);
  }
});
await check('an installation that brings nothing fails, and is not taken for one later', async () => {
  const env = pathWith('');
  for (const _time of ['first', 'second']) {
    const { code, output } = await run(process.execPath, ['scripts/start.mjs'], { cwd: checkout, env });
    strictEqual(code, 1, output);
    strictEqual(output.includes('does not run here'), true, output);
  }
});
await check('npm start becomes ready, also when another command is given while it installs', async () => {
  service = startService(checkout, await freePort());
  await until('did not begin to install', firstReadyMs, () =>
    existsSync(join(checkout, 'node_modules/.pnpm')),
  );
  const other = run('npm', ['run', 'migrate'], { cwd: checkout, env: { WALLET_CONFIG: '' } });
  const readyMs = await service.ready(firstReadyMs);
  const { output } = await other;
  strictEqual(output.includes('WALLET_CONFIG is missing'), true, output);
  return `${(readyMs / 1_000).toFixed(1)} s`;
});
await check('a wallet is created with its initial balance', async () => {
  const request = { country: 'MX', ownerId: randomUUID(), currency: 'MXN', initialBalance: '100.00' };
  const { status, body } = await service.request('POST', '/wallets', request);
  strictEqual(status, 201, JSON.stringify(body));
  wallet = body.id;
  strictEqual(Number(body.balance), 100);
});
await check('a deposit is added to the balance', async () => {
  const { status, body } = await service.request('POST', `/wallets/${wallet}/deposit`, { amount: '25.50' });
  strictEqual(status, 200, JSON.stringify(body));
  strictEqual(Number(body.balance), 125.5);
});
await check('the balance is read back', readBalance);
await check('SIGTERM ends it with nothing left running', () => endService());
await check('the second npm start is ready within 5 s', () => start(againReadyMs));
await check('the balance is still there', readBalance);
await check('npm start is ready within 5 s after everything was killed', async () => {
  await service.killAll(endMs);
  return start(againReadyMs);
});
await check('the balance is still there after that', readBalance);
await check('Ctrl-C ends it with nothing left running', () => endService('interrupt'));
await check('nothing is left running of an npm that is killed while it builds', async () => {
  rmSync(join(checkout, 'node_modules/.build-stamp'));
  service = startService(checkout, await freePort());
  await until('did not begin to build', endMs, () => service.output().includes('Building'));
  await service.killNpm(firstReadyMs);
});
await check('the third npm start is ready within 5 s', () => start(againReadyMs));
await check('the balance is still there after Ctrl-C', readBalance);
await check('SIGTERM ends it once more', () => endService());

if (tally.failed > 0 && service)
  console.log(`What the last npm start printed:\n${service.output().trimEnd()}`);
await service?.killAll(endMs);
rmSync(temporary, { recursive: true, force: true });
tally.close();

/** An environment in which the package manager does this. */
function pathWith(script) {
  writeFileSync(join(temporary, 'npx'), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return { PATH: `${temporary}${delimiter}${process.env.PATH}` };
}

/** Runs what `npm start` runs while the package manager does this. */
function startWith(script) {
  const env = { ...process.env, ...pathWith(script) };
  return spawn(process.execPath, ['scripts/start.mjs'], { cwd: checkout, env, stdio: 'ignore' });
}

async function start(timeoutMs) {
  service = startService(checkout, await freePort());
  const readyMs = await service.ready(timeoutMs);
  return `${(readyMs / 1_000).toFixed(1)} s`;
}

async function readBalance() {
  const { status, body } = await service.request('GET', `/wallets/${wallet}`);
  strictEqual(status, 200, JSON.stringify(body));
  strictEqual(Number(body.balance), 125.5);
}

async function endService(how = 'terminate') {
  const startedAtMs = performance.now();
  const code = await service[how](endMs);
  // npm ends as a command does that was interrupted.
  if (how === 'terminate') strictEqual(code, 0);
  strictEqual(/cut short|recovery/.test(service.output()), false, service.output());
  return `${((performance.now() - startedAtMs) / 1_000).toFixed(1)} s`;
}

// Each check builds on those before it: after a failure the rest is skipped.
async function check(title, perform) {
  if (tally.failed > 0) {
    tally.add({ skipped: 1 });
    return;
  }
  try {
    const figure = await perform();
    tally.add({ passed: 1 });
    console.log(`✓ ${title}${figure ? ` (${figure})` : ''}`);
  } catch (error) {
    tally.add({ failed: 1 });
    console.log(`✗ ${title}: ${error.message}`);
  }
}

async function freePort() {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address();
  probe.close();
  await once(probe, 'close');
  return port;
}
