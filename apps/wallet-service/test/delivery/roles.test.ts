import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { DeliveryOperator } from '@framework/events';
import { afterEach, expect, test, vi } from 'vitest';
import { lockedCount, rowsOf, withSession } from '../database-session.js';
import { ProgramInProcess } from '../service-process.js';
import { WalletClient } from '../wallet-client.js';
import { Fleet } from './fleet.js';

const patience = { timeout: 60_000, interval: 20 };
/** Long enough that only a notification can be the reason for a delivery. */
const hardlyPolling = { 'poll-max-ms': 2_400_000 };

const waitingForLock = `select from pg_locks where locktype = 'advisory' and not granted
  and database = (select oid from pg_database where datname = current_database())`;

const fleets: Fleet[] = [];

afterEach(async () => {
  for (const fleet of fleets.splice(0)) await fleet.end();
});

test('a worker delivers what an http process commits, woken by its notifications', async () => {
  const fleet = await newFleet(hardlyPolling);
  const http = fleet.start('http');
  const client = new WalletClient(await http.served());
  const [source, dest] = [
    await client.openWallet({ country: 'DE' }),
    await client.openWallet({ country: 'MX' }),
  ];
  const worker = fleet.start('worker');
  await worker.printed('The wallet worker is ready.');
  await vi.waitFor(async () => expect(await isAllHeld(fleet)).toBe(true), patience);
  expect(new Set(await holders(fleet)).size).toBe(1);
  await vi.waitFor(() => listens(fleet), patience);

  const { body } = await client.post('/transfers', { sourceId: source.id, destId: dest.id, amount: '40' });
  expect(body['state']).toBe('INITIATED');
  await vi.waitFor(async () => {
    const transfer = await client.get(`/transfers/${String(body['id'])}`);
    expect(transfer.body['state']).toBe('COMPLETED');
  }, patience);
  expect(worker.stdout).not.toContain('http://');
});

test('a worker needs no port', async () => {
  const fleet = await newFleet();
  const other = createServer().listen(0, '127.0.0.1');
  await once(other, 'listening');
  const { port } = other.address() as AddressInfo;
  const worker = fleet.start('worker', { PORT: String(port) });
  expect(await worker.printed('The wallet worker is ready')).toBe('');
  other.close();
});

test('a worker is ready once every handler has its place in the log', async () => {
  const fleet = await newFleet();
  const { global, mexico } = fleet.databases;
  const lock = "begin; select pg_advisory_xact_lock(hashtextextended('eventlog.handlers', 0))";
  const worker = await withSession(global, (one) =>
    withSession(mexico, async (other) => {
      await Promise.all([one.query(lock), other.query(lock)]);
      const started = fleet.start('worker');
      await started.printed('Waiting for shard');
      for (const database of [global, mexico])
        await vi.waitFor(
          async () => expect(await rowsOf(database, waitingForLock)).toHaveLength(1),
          patience,
        );
      expect(started.stdout).not.toContain('is ready');
      return started;
    }),
  );
  await worker.printed('The wallet worker is ready');
});

test('a worker gives every slot back when it stops', async () => {
  const fleet = await newFleet();
  const workers = [fleet.start('worker'), fleet.start('worker')];
  await vi.waitFor(async () => {
    expect(await isAllHeld(fleet)).toBe(true);
    expect(new Set(await holders(fleet)).size).toBe(2);
  }, patience);
  workers[0]?.kill('SIGTERM');
  expect(await workers[0]?.exitCode()).toBe(0);
  // The other worker holds each slot, unless it has not taken it yet.
  expect(new Set(await holders(fleet)).size).toBe(1);
  workers[1]?.kill('SIGTERM');
  expect(await workers[1]?.exitCode()).toBe(0);
  expect(await holders(fleet)).toEqual([]);
});

test('a worker gives its slots back in time even while a handler hangs', async () => {
  // Leases are long, so that none is lost on a busy machine, and nothing is handled twice.
  const fleet = await newFleet({ 'lease-ms': 60_000 });
  const wallet = await fleet.openWallet('MX');
  await fleet.deliveries.break(wallet.id.value, 2, 'hangs');
  const worker = fleet.startRecording({ SHUTDOWN_TIMEOUT_MS: '12000' });
  await fleet.deposit(wallet);
  await vi.waitFor(async () => {
    expect(await fleet.deliveries.of('record-deposits', wallet.id.value)).toMatchObject([
      { version: 1 },
      { version: 2 },
    ]);
  }, patience);
  worker.kill('SIGTERM');
  expect(await worker.exitCode()).toBe(0);
  expect(await holders(fleet)).toEqual([]);
});

test('a process gives its slots back in time even while a request hangs', async () => {
  const fleet = await newFleet();
  const service = fleet.start('all', { SHUTDOWN_TIMEOUT_MS: '6000' });
  const client = new WalletClient(await service.served());
  const { id } = await client.openWallet();
  await vi.waitFor(async () => expect(await isAllHeld(fleet)).toBe(true), patience);
  await withSession(fleet.databases.global, async (session) => {
    await session.query('begin');
    await session.query('select from wallets where id = $1 for update', [id]);
    const deposit = client.post(`/wallets/${id}/deposit`, { amount: '1' }).catch(() => 'no answer');
    await vi.waitFor(async () => expect(await lockedCount(fleet.databases.global)).toBe(1), patience);
    service.kill('SIGTERM');
    expect(await service.exitCode()).toBe(1);
    expect(await deposit).toBe('no answer');
  });
  expect(await holders(fleet)).toEqual([]);
});

test.each(['http', 'worker'])('a process of role %s reports that it needs shared databases', async (role) => {
  const process = new ProgramInProcess({ WALLET_ROLE: role });
  expect(await process.exitCode()).toBe(1);
  expect(process.stderr).toContain('WALLET_ROLE');
  expect(process.stderr).toContain('set WALLET_CONFIG');
});

async function newFleet(delivery?: object): Promise<Fleet> {
  const fleet = await Fleet.create(delivery);
  fleets.push(fleet);
  return fleet;
}

/** Whether every slot of every handler has a holder, in both databases. */
async function isAllHeld({ service }: Fleet): Promise<boolean> {
  const { items: leases } = await new DeliveryOperator(service.databases).leases();
  return leases.every(
    ({ slots }) => slots.length > 0 && slots.every(({ processId }) => processId !== undefined),
  );
}

/** The holder of each slot that has one, over both databases. */
async function holders({ service }: Fleet): Promise<readonly string[]> {
  const { items: leases } = await new DeliveryOperator(service.databases).leases();
  return leases.flatMap(({ slots }) => slots.flatMap(({ processId }) => processId ?? []));
}

/** Resolves when a worker receives the notifications of both databases. */
async function listens({ databases: { global, mexico } }: Fleet): Promise<void> {
  const text = `select from pg_stat_activity
                where datname = current_database() and state = 'idle' and query ilike 'listen %'`;
  for (const database of [global, mexico]) expect(await rowsOf(database, text)).not.toEqual([]);
}
