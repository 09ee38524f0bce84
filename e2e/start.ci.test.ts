import { execa } from 'execa';
import { randomUUID } from 'node:crypto';
import { existsSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, onTestFailed, test } from 'vitest';

import { processesWithin } from './processes-within.ts';
import { hostPath, killAllWithin, StartedService, until } from './started-service.ts';

// Tries the first command like a newcomer: `npm start` in a fresh clone, and again after it ended in several ways. Each test
// depends on the previous ones: after a failure the rest is skipped.
const firstReadyMs = 15 * 60_000;
const againReadyMs = 5_000;
const endMs = 20_000;

const temporary = realpathSync(mkdtempSync(join(tmpdir(), 'e2e-start-')));
const checkout = join(temporary, 'clone');
let hasFailed = false;
let service: StartedService;
let wallet: string;

beforeAll(async () => {
  await execa('git', ['clone', '--quiet', '--no-local', join(import.meta.dirname, '..'), checkout]);
});

beforeEach(({ skip }) => {
  skip(hasFailed, 'a test before it failed');
  onTestFailed(() => {
    hasFailed = true;
  });
});

afterAll(async () => {
  await killAllWithin(temporary, endMs);
  rmSync(temporary, { recursive: true, force: true });
});

test('an installation that fails is reported', async () => {
  const { all } = await startWhereNpxDoes('exit 1');
  expect(all).toContain('Installing failed');
});

test('an installation ends with the command that started it, however the command ends', async () => {
  const begun = join(checkout, 'begun');
  for (const signal of ['SIGHUP', 'SIGINT', 'SIGKILL'] as const) {
    const command = startWhereNpxDoes('touch begun; exec sleep 600');
    await until('an installation begins', endMs, () => existsSync(begun));
    rmSync(begun);
    command.kill(signal);
    await until(`everything ends after ${signal}`, endMs, () => processesWithin(checkout).length === 0);
    expect((await command).failed).toBe(true);
  }
});

test('an installation that provides nothing fails and is not reused later', async () => {
  for (const _time of ['first', 'second']) {
    const { exitCode, all } = await startWhereNpxDoes('');
    expect({ exitCode, all }).toEqual({ exitCode: 1, all: expect.stringContaining('does not run here') });
  }
});

test('npm start becomes ready even if another command runs while it installs', async () => {
  service = await StartedService.start(checkout);
  await until('an installation begins', firstReadyMs, () => existsSync(join(checkout, 'node_modules/.pnpm')));
  const env = { WALLET_CONFIG: '', PATH: hostPath };
  const other = execa('npm', ['run', 'migrate'], { cwd: checkout, env, all: true, reject: false });
  await service.readyAfterMs(firstReadyMs);
  expect((await other).all).toContain('WALLET_CONFIG is missing');
});

test('a wallet is created with its initial balance', async () => {
  const asked = { country: 'MX', ownerId: randomUUID(), currency: 'MXN', initialBalance: '100.00' };
  const { status, body } = await service.request('POST', '/wallets', asked);
  expect({ status, body }).toMatchObject({ status: 201, body: { balance: '100' } });
  wallet = (body as { id: string }).id;
});

test('a deposit is added to the balance', async () => {
  const answer = await service.request('POST', `/wallets/${wallet}/deposit`, { amount: '25.50' });
  expect(answer).toMatchObject({ status: 200, body: { balance: '125.5' } });
});

test('the balance is read back', expectBalance);

test('the command line that it prints knows the databases and the application', async () => {
  const [, file = ''] = /npm run framework -- doctor --config (\S+)/.exec(service.output) ?? [];
  const framework = async (...command: readonly string[]): Promise<unknown> => {
    const args = ['run', '--silent', 'framework', '--', ...command, '--json', '--config', file];
    const { stdout } = await execa('npm', args, { cwd: checkout, env: { PATH: hostPath } });
    return JSON.parse(stdout);
  };
  expect(await framework('model', wallet)).toMatchObject({
    items: [{ event: { type: 'WalletCreatedEvent' } }, { event: { type: 'WalletMoneyDepositedEvent' } }],
  });
  expect(await framework('check', 'wallet-balances')).toMatchObject({
    invariants: [{ examinedCount: 1, violationCount: 0 }],
  });
});

test('SIGTERM stops the service with nothing left running', terminate);

test('the second npm start is ready within 5 s', () => expectReady(againReadyMs));

test('the balance survives a restart', expectBalance);

test('npm start is ready within 5 s after everything was killed', async () => {
  await killAllWithin(checkout, endMs);
  await expectReady(againReadyMs);
});

test('the balance survives when everything is killed', expectBalance);

test('Ctrl-C stops the service with nothing left running', async () => {
  await service.interrupt(endMs);
  expect(service.output).not.toMatch(/cut short|recovery/);
});

test('nothing keeps running when npm is killed during the build', async () => {
  const built = join(checkout, 'packages/core/dist/index.js');
  rmSync(join(checkout, '.turbo'), { recursive: true });
  rmSync(built);
  service = await StartedService.start(checkout);
  await until('something is built', endMs, () => existsSync(built));
  expect(await service.signal('SIGKILL', firstReadyMs)).toBe(null);
  expect(service.output).not.toContain('Building failed');
});

test('npm start becomes ready after it was killed during the build', () => expectReady(firstReadyMs));

test('npm start is ready within 5 s without access to a registry', async () => {
  await terminate();
  await expectReady(againReadyMs, { npm_config_registry: 'http://127.0.0.1:9' });
});

test('the balance survives Ctrl-C', expectBalance);

test('SIGTERM stops the service a second time', terminate);

async function expectReady(timeoutMs: number, env: NodeJS.ProcessEnv = {}): Promise<void> {
  service = await StartedService.start(checkout, env);
  expect(await service.readyAfterMs(firstReadyMs)).toBeLessThan(timeoutMs);
}

async function terminate(): Promise<void> {
  expect(await service.signal('SIGTERM', endMs)).toBe(0);
  expect(service.output).not.toMatch(/cut short|recovery/);
}

async function expectBalance(): Promise<void> {
  const answer = await service.request('GET', `/wallets/${wallet}`);
  expect(answer).toMatchObject({ status: 200, body: { balance: '125.5' } });
}

/** Runs the command of `npm start` while the package manager behaves in this way. */
function startWhereNpxDoes(script: string) {
  writeFileSync(join(temporary, 'npx'), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  const env = { PATH: `${temporary}${delimiter}${hostPath}` };
  const args = ['scripts/start.mjs', 'anything.mjs'];
  return execa('node', args, { cwd: checkout, env, timeout: endMs, all: true, reject: false });
}
