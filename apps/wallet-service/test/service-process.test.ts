import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, type Socket, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import type pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { lockedCount, rowsOf, withSession } from './database-session.js';
import { ServiceProcess } from './service-process.js';
import { type TestServiceOptions, configTree } from './start-test-service.js';
import { type Answer, WalletClient } from './wallet-client.js';

/** A port on which nothing listens: it is reserved. */
const closedPort = 1;
const timeout = 40_000;

const started: ServiceProcess[] = [];
let folder: string;
let global: TestDatabase;
let mexico: TestDatabase;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'wallet-process-'));
  [global, mexico] = await Promise.all([createTestDatabase(), createTestDatabase()]);
});
afterEach(() => {
  for (const service of started.splice(0)) service.kill('SIGKILL');
});
afterAll(async () => {
  await Promise.all([global.drop(), mexico.drop(), rm(folder, { recursive: true })]);
});

describe('the process at its start', { timeout }, () => {
  it('prints where it is, its shards, and what to try', async () => {
    const service = await start();
    const url = await service.printed('is ready');
    expect(service.stdout).toContain(`${url}/docs`);
    expect(service.stdout).toContain(`(0, 0) global-1 on ${global.host}:${global.port}/${global.database}`);
    expect(service.stdout).toContain(`(1, 0) mexico-1 on ${mexico.host}:${mexico.port}/${mexico.database}`);
    expect(service.stdout).toContain(`curl ${url}/wallets`);
  });

  it('serves what it can while a database is down, and says what it waits for', async () => {
    const service = await start({ mexicoPort: closedPort, mexico: { password: 'hunter2' } });
    const url = await service.printed('Waiting for shard (1, 0) mexico-1 (connect ECONNREFUSED');
    const client = new WalletClient(url);
    expect((await client.get('/health/ready')).status).toBe(503);
    expect((await client.openWallet()).balance).toBe('100');
    expect(service.stdout).not.toContain('is ready');
    service.kill('SIGTERM');
    expect(await service.exitCode()).toBe(0);
    expect(service.stdout + service.stderr).not.toContain('hunter2');
  });

  it('delivers what it can while a database is down, and says what it waits for', async () => {
    const worker = await start({ mexicoPort: closedPort }, { WALLET_ROLE: 'worker' });
    await worker.printed('Waiting for shard (1, 0) mexico-1 (connect ECONNREFUSED');
    const lease = "select from eventlog.processes where process_id like $1 || '-%'";
    await expect.poll(() => rowsOf(global, lease, [worker.pid])).toHaveLength(1);
    // That is said once, to people: delivery waits until it is ready, rather than fail again and again.
    expect(worker.stderr).not.toContain('delivery goes on after an error');
    expect(worker.stdout).not.toMatch(/is ready|http:/);
    worker.kill('SIGTERM');
    expect(await worker.exitCode()).toBe(0);
    expect(await rowsOf(global, lease, [worker.pid])).toEqual([]);
  });

  it('ends with every fault of its configuration, and no password', async () => {
    const service = await start({
      global: { 'maximum-pool-size': 0, password: 'hunter2', pasword: 'hunter2' },
    });
    expect(await service.exitCode()).toBe(1);
    const path = 'framework.sharding.groups[0].members[0].configs.primary-config';
    expect(service.stderr).toContain(`${path}.maximum-pool-size: `);
    expect(service.stderr).toContain(`${path}.pasword: is not a known key`);
    expect(service.stdout + service.stderr).not.toMatch(/hunter2|\n\s+at /);
  });

  it.each(['all', 'http', 'worker'])('ends with the faults of its delivery, in the role %s', async (role) => {
    const delivery = { lease: '10 s', retry: { 'attempts-max': 0 } };
    const service = await start({ delivery }, { WALLET_ROLE: role });
    expect(await service.exitCode()).toBe(1);
    expect(service.stderr).toMatch(/^WALLET_CONFIG=.*wallet\.json\n/);
    expect(service.stderr).toContain('framework.delivery.lease: is not a known key');
    expect(service.stderr).toContain('framework.delivery.retry.attempts-max: must be a whole number from 1');
  });

  it('ends with one line when its port is in use', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    const service = await start({}, { PORT: String(port) });
    expect(await service.exitCode()).toBe(1);
    expect(service.stderr).toMatch(new RegExp(`^Port ${port} of 127.0.0.1 is in use: .*\n$`));
    other.close();
  });

  it('ends when a migration fails', async () => {
    const faulty = await createTestDatabase();
    await rowsOf(faulty, 'create table wallets (id int)');
    const service = await start({}, {}, { global: faulty, mexico });
    expect(await service.exitCode()).toBe(1);
    expect(service.stderr).toContain('relation \\"wallets\\" already exists');
    await faulty.drop();
  });

  it.each(['all', 'worker'])(
    'ends when it cannot tell a handler by its names, also while a database is down, in the role %s',
    async (role) => {
      const torn = await createTestDatabase();
      const before = await start({}, { WALLET_ROLE: 'http' }, { global: torn, mexico });
      await before.printed('is ready');
      before.kill('SIGTERM');
      expect(await before.exitCode()).toBe(0);
      // As a version leaves them in which the new name did not list the old one.
      for (const name of ['settle-transfer', 'complete-transfer']) {
        await rowsOf(torn, 'insert into eventlog.handlers (handler) values ($1)', [name]);
        await rowsOf(torn, 'insert into eventlog.handler_names (name, handler) values ($1, $1)', [name]);
      }
      const service = await start(
        { mexicoPort: closedPort },
        { WALLET_ROLE: role },
        { global: torn, mexico },
      );
      expect(await service.exitCode()).toBe(1);
      expect(service.stderr).toMatch(
        /^The names of settle-transfer belong to 2 handlers, complete-transfer and settle-transfer, .*\n.*retire/m,
      );
      expect(service.stderr).not.toMatch(/The names .*delivery goes on|\n\s+at /);
      await torn.drop();
    },
  );
});

describe('the process after SIGTERM', { timeout }, () => {
  it('accepts nothing more, closes what is idle, finishes what runs and ends with 0', async () => {
    const service = await start();
    const url = await service.printed('is ready');
    const idle = await idleConnection(url);
    await whileDepositing(url, async (deposit, session) => {
      const idleClosed = once(idle, 'close');
      service.kill('SIGTERM');
      await idleClosed;
      await expect.poll(() => fetch(`${url}/health/live`).catch(() => 'refused')).toBe('refused');
      await session.query('commit');
      expect(await deposit).toMatchObject({ status: 200, body: { version: 2, balance: '101' } });
      const answeredAtMs = performance.now();
      expect(await service.exitCode()).toBe(0);
      // The connection of the deposit is not kept for the 5 s that an idle one may last.
      expect(performance.now() - answeredAtMs).toBeLessThan(3_000);
    });
  });

  it('ends with 1 when its deadline passes', async () => {
    const service = await start({}, { SHUTDOWN_TIMEOUT_MS: '300' });
    await whileDepositing(await service.printed('is ready'), async (deposit) => {
      service.kill('SIGTERM');
      expect(await service.exitCode()).toBe(1);
      await expect(deposit).rejects.toThrow('fetch failed');
    });
    expect(service.stdout).toContain('Stopping took longer than 300 ms');
  });

  it('ends at once with a second signal', async () => {
    const service = await start({}, { SHUTDOWN_TIMEOUT_MS: '600000' });
    const url = await service.printed('is ready');
    await whileDepositing(url, async (deposit) => {
      service.kill('SIGTERM');
      await expect.poll(() => fetch(`${url}/health/live`).catch(() => 'refused')).toBe('refused');
      service.kill('SIGINT');
      expect(await service.exitCode()).toBe(1);
      await expect(deposit).rejects.toThrow('fetch failed');
    });
  });
});

/** Starts the service on the databases of this file, unless on others. */
async function start(
  options: TestServiceOptions = {},
  environment: Readonly<Record<string, string>> = {},
  databases: { readonly global: TestDatabase; readonly mexico: TestDatabase } = { global, mexico },
): Promise<ServiceProcess> {
  const file = join(folder, 'wallet.json');
  await writeFile(file, JSON.stringify(configTree(databases, options)));
  const service = new ServiceProcess({ WALLET_CONFIG: file, ...environment });
  started.push(service);
  return service;
}

/** Runs work while a deposit waits in the database for the session's commit. */
async function whileDepositing(
  url: string,
  work: (deposit: Promise<Answer>, session: pg.Client) => Promise<void>,
): Promise<void> {
  const client = new WalletClient(url);
  const { id } = await client.openWallet();
  await withSession(global, async (session) => {
    await session.query('begin');
    await session.query('select from wallets where id = $1 for update', [id]);
    const deposit = client.post(`/wallets/${id}/deposit`, { amount: '1' });
    // Whether it fails is for the work to see, which may come later.
    deposit.catch(() => undefined);
    await expect.poll(() => lockedCount(global)).toBe(1);
    await work(deposit, session);
  });
}

/** A connection that has had an answer and waits for its next request. */
async function idleConnection(url: string): Promise<Socket> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  socket.write('GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n');
  const [answer] = (await once(socket, 'data')) as [Buffer];
  expect(answer.toString()).toMatch(/^HTTP\/1\.1 200 /);
  socket.resume();
  return socket;
}
