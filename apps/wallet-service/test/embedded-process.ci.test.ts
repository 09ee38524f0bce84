import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ServiceProcess, fromSources } from './service-process.js';
import { type Answer, WalletClient } from './wallet-client.js';

const timeout = 240_000;
/** The databases are created first, which takes seconds, and much longer if many start at the same time. */
const startTimeoutMs = 90_000;
/** How soon after its end the service must work again, in addition to ten times the time that the checks take without a fault. */
const wellWithinMs = 10_000;
const slownessMax = 10;

let folder: string;
let service: ServiceProcess;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'wallet-embedded-'));
  await chmod(folder, 0o755);
  service = new ServiceProcess({ WALLET_DATA: folder }, fromSources, { leadsGroup: true });
});
afterEach(async () => {
  service.kill('SIGTERM');
  await service.exitCode();
  await rm(folder, { recursive: true, force: true });
});

test('an embedded server that is killed is restarted, and the service recovers', { timeout }, async () => {
  const client = new WalletClient(await service.served(startTimeoutMs));
  // A healthy start has nothing to report to operators.
  expect(service.stderr).toBe('');
  const startedAtMs = performance.now();
  await seeThatAllIsWell(client, startTimeoutMs);
  const timeoutMs = wellWithinMs + slownessMax * (performance.now() - startedAtMs);
  const killed = await postmasterPid();
  process.kill(killed, 'SIGKILL');
  await service.printed('The embedded PostgreSQL server has ended and is being restarted', timeoutMs);
  await seeThatAllIsWell(client, timeoutMs);
  expect(await postmasterPid()).not.toBe(killed);
});

test('the embedded server stops after the service on a single Ctrl-C', { timeout }, async () => {
  const client = new WalletClient(await service.served(startTimeoutMs));
  await client.openWallet();
  // Whoever reads the terminal may look at it as an operator.
  expect((await ask('about')).body).toMatchObject({ readOnly: false });
  service.interruptGroup();
  // The signal comes once more from the parent, which passes it on.
  service.kill('SIGINT');
  expect(await service.exitCode()).toBe(0);
  expect(service.stderr).toBe('');
  expect(service.stdout).not.toContain('has ended');
  expect(await readFile(join(folder, 'server.log'), 'utf8')).toMatch(/database system is shut down\s*$/);
});

test('a demonstration lives by itself, with databases and a handler of its own', { timeout }, async () => {
  service.kill('SIGTERM');
  await service.exitCode();
  service = new ServiceProcess({ WALLET_DATA: folder }, [...fromSources, 'demo'], { leadsGroup: true });
  await service.served(startTimeoutMs);
  await expect
    .poll(async () => (await ask('views/transfers')).body['items'], { timeout: startTimeoutMs })
    .not.toEqual([]);
  expect((await ask('consumers')).body['items']).toContainEqual(
    expect.objectContaining({ handler: 'demo-send-receipt' }),
  );
  expect(service.stdout).not.toContain('The demonstration ends');
});

/** Asks the operator whose address the service has printed. */
async function ask(question: string): Promise<Answer> {
  await service.printed('Console', startTimeoutMs);
  const [, url = '', token = ''] = /Console {2}(\S+)\/console\/#token=(\w+)/.exec(service.stdout) ?? [];
  return new WalletClient(url).send(`/${question}`, { headers: { authorization: `Bearer ${token}` } });
}

/** Checks that wallets are opened on both shards, money goes from one to the other, and the service reports that it is ready. */
async function seeThatAllIsWell(client: WalletClient, withinMs: number): Promise<void> {
  const startedMs = performance.now();
  const soon = <T>(look: () => Promise<T>): Promise<T> =>
    vi.waitFor(look, { timeout: withinMs - (performance.now() - startedMs), interval: 50 });
  const [source, dest] = await Promise.all([
    soon(() => client.openWallet()),
    soon(() => client.openWallet({ country: 'MX' })),
  ]);
  await soon(async () => expect((await client.get('/health/ready')).status).toBe(200));
  const transfer = { sourceId: source.id, destId: dest.id, amount: '1' };
  const { headers } = await client.post('/transfers', transfer);
  await soon(async () => {
    expect((await client.get(headers['location'] ?? '')).body).toMatchObject({ state: 'COMPLETED' });
  });
}

async function postmasterPid(): Promise<number> {
  const [pid = ''] = (await readFile(join(folder, 'cluster', 'data', 'postmaster.pid'), 'utf8')).split('\n');
  return Number(pid);
}
