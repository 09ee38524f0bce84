import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, type Socket, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseFrameworkConfig } from '@framework/core';
import { TestDatabase } from '@framework/testing/postgres';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest';

import { startWorker } from './started-service.js';
import { Fleet } from './delivery/fleet.js';
import { ProgramInProcess } from './service-process.js';
import {
  type TestService,
  configTree,
  startTestService,
  startTestServiceOn,
  stopTestService,
} from './start-test-service.js';
import { WalletClient } from './wallet-client.js';
import { WebhookReceiver } from './webhook-receiver.js';

const patience = { timeout: 60_000, interval: 20 };

let partner: WebhookReceiver;

beforeEach(async () => {
  partner = new WebhookReceiver();
  await partner.open();
});
afterEach(() => partner.close());

/** The configuration of a relay to the partner. */
function relay(): readonly object[] {
  return [{ name: 'events-to-partner', 'start-from': 'beginning', webhooks: partner.section }];
}

/** A configuration for processes that are refused before they connect to a database. */
function treeWithoutDatabases(relays: readonly object[] = []): unknown {
  const nowhere = new TestDatabase('postgres://user:secret@127.0.0.1:1/', 'none');
  return configTree({ global: nowhere, mexico: nowhere }, { login: 'owner', relay: relays });
}

/** The only relay, as the service describes it. */
async function healthOf(client: WalletClient): Promise<Readonly<Record<string, unknown>>> {
  const { status, body } = await client.get('/health/relay');
  expect(status).toBe(200);
  const [health] = body['relays'] as readonly Readonly<Record<string, unknown>>[];
  return health ?? {};
}

test('the service relays the events of both shards to the broker that its configuration names', async () => {
  const service = await startTestService({ relay: relay(), delivery: { 'cursor-save-ms': 20 } });
  try {
    const wallets = await Promise.all(
      ['DE', 'MX'].map((country) => service.client.openWallet({ country, initialBalance: '10' })),
    );
    await vi.waitFor(() => {
      const subjects = partner.received.map(({ subject }) => subject);
      expect(new Set(subjects)).toEqual(new Set(wallets.map(({ id }) => id)));
    }, patience);
    await vi.waitFor(
      async () =>
        expect(await healthOf(service.client)).toEqual({
          name: 'events-to-partner',
          state: 'publishing',
          lagEvents: 0,
          lagSeconds: 0,
          blocked: 0,
          deadLetters: 0,
        }),
      patience,
    );
  } finally {
    await stopTestService(service);
  }
});

test('while the broker is down, requests are served, the service is ready, and the relay reports its lag', async () => {
  const service: TestService = await startTestService({ relay: relay() });
  const { client } = service;
  try {
    await partner.close();
    const { id } = await client.openWallet({ country: 'MX', initialBalance: '10' });
    await client.post(`/wallets/${id}/deposit`, { amount: '1' });
    await vi.waitFor(async () => {
      const health = await healthOf(client);
      expect(health).toMatchObject({ state: 'waiting', blocked: 0, deadLetters: 0 });
      const date = expect.stringMatching(/^\d{4}-/) as string;
      expect(health).toMatchObject({ lastError: { code: 'broker-unavailable', date } });
      // Why is in the log, which not everybody reads.
      expect(JSON.stringify(health)).not.toContain('127.0.0.1');
      expect(service.log.join()).toContain('ECONNREFUSED 127.0.0.1');
      expect(health['lagEvents']).toBeGreaterThanOrEqual(2);
      expect(health['lagSeconds']).toBeGreaterThan(0);
    }, patience);
    expect(await client.get('/health/ready')).toMatchObject({ status: 200 });
    await partner.open();
    await vi.waitFor(
      () =>
        expect(partner.received.filter(({ subject }) => subject === id)).toMatchObject([
          { type: 'com.example.wallet.WalletCreatedEvent', version: 1 },
          { version: 2 },
        ]),
      patience,
    );
  } finally {
    await stopTestService(service);
  }
});

test('a relay that was renamed with its old name among the aliases continues where it was', async () => {
  const [former] = relay();
  const { stop, ...first } = await startTestService({ relay: relay() });
  await partner.close();
  const { id } = await first.client.openWallet({ country: 'MX', initialBalance: '10' });
  await stop();
  const renamed = { ...former, name: 'to-partner', aliases: ['events-to-partner'], 'start-from': 'now' };
  const second = await startTestServiceOn(first, { relay: [renamed] });
  try {
    await vi.waitFor(async () => {
      const health = await healthOf(second.client);
      expect(health).toMatchObject({ name: 'to-partner', state: 'waiting' });
      expect(health['lagEvents']).toBeGreaterThanOrEqual(1);
    }, patience);
    await partner.open();
    await vi.waitFor(() => expect(partner.received).toMatchObject([{ subject: id }]), patience);
  } finally {
    await stopTestService(second);
  }
});

test('the lag of a relay that was renamed is reported even if its old name is no longer among the aliases', async () => {
  const [former] = relay();
  await partner.close();
  const { stop, ...service } = await startTestService({ relay: relay() });
  await service.client.openWallet({ country: 'MX', initialBalance: '10' });
  await stop();
  const renamed = { ...former, name: 'to-partner', aliases: ['events-to-partner'] };
  const { stop: stopRenamed } = await startTestServiceOn(service, { relay: [renamed] });
  await stopRenamed();
  const last = await startTestServiceOn(service, { relay: [{ ...renamed, aliases: [] }] });
  try {
    await vi.waitFor(async () => {
      const health = await healthOf(last.client);
      expect(health).toMatchObject({ name: 'to-partner', state: 'waiting' });
      expect(health['lagEvents']).toBeGreaterThanOrEqual(1);
    }, patience);
  } finally {
    await stopTestService(last);
  }
});

test('a service without relays reports no health of relays', async () => {
  const service = await startTestService();
  try {
    expect(await service.client.get('/health/relay')).toMatchObject({ status: 404 });
  } finally {
    await stopTestService(service);
  }
});

test('the relays run alone in a process with the role relay, and a process with the role http reports their lag', async () => {
  const fleet = await Fleet.create({}, relay());
  try {
    const http = fleet.start('http');
    const client = new WalletClient(await http.served());
    const [source, dest] = [await client.openWallet(), await client.openWallet()];
    const { body } = await client.post('/transfers', { sourceId: source.id, destId: dest.id, amount: '1' });
    const { id } = body as { readonly id: string };
    expect(await healthOf(client)).toMatchObject({ state: 'nowhere' });
    const relaying = fleet.start('relay');
    await relaying.printed('The wallet relay is ready.');
    expect(await healthOf(client)).toMatchObject({ state: 'elsewhere' });
    await vi.waitFor(() => expect(partner.received.map(({ subject }) => subject)).toContain(id), patience);
    await vi.waitFor(async () => expect(await healthOf(client)).toMatchObject({ lagEvents: 0 }), patience);
    // No handler runs anywhere.
    expect((await client.get(`/transfers/${id}`)).body['state']).toBe('INITIATED');
    relaying.kill('SIGTERM');
    expect(await relaying.exitCode()).toBe(0);
    fleet.start('worker', { WALLET_ROLE: 'worker' });
    await vi.waitFor(
      async () => expect((await client.get(`/transfers/${id}`)).body['state']).toBe('COMPLETED'),
      patience,
    );
  } finally {
    await fleet.end();
  }
});

test.each(['receive-transfer', 'complete-transfer'])(
  'a relay cannot have the name %s of a handler, not even in a process without handlers',
  async (name) => {
    const config = parseFrameworkConfig(treeWithoutDatabases([{ ...relay()[0], name }]));
    const starting = startWorker({ config, role: 'relay', logger: pino({ level: 'silent' }) });
    await expect(starting).rejects.toThrow(
      `framework.relay[0]: the name ${name} belongs to a handler of the service`,
    );
  },
);

test('a process with the role relay refuses to start without a relay', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'wallet-relay-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const WALLET_CONFIG = join(folder, 'wallet.json');
  await writeFile(WALLET_CONFIG, JSON.stringify(treeWithoutDatabases()));
  const relaying = new ProgramInProcess({ WALLET_CONFIG, WALLET_ROLE: 'relay' });
  expect(await relaying.exitCode()).toBe(1);
  expect(relaying.stderr).toContain('framework.relay: has no relay, but WALLET_ROLE is relay');
});

test('the service stops although a broker is silent', async () => {
  const sockets = new Set<Socket>();
  const silent = createServer((socket) => sockets.add(socket.on('error', () => undefined).resume()));
  silent.listen(0, '127.0.0.1');
  await once(silent, 'listening');
  const { port } = silent.address() as AddressInfo;
  const redis = { url: `redis://127.0.0.1:${port}` };
  const service = await startTestService({
    relay: [{ name: 'to-redis', 'start-from': 'beginning', redis }],
    delivery: { 'stop-timeout-ms': 50 },
  });
  try {
    await service.client.openWallet({ country: 'MX', initialBalance: '10' });
    await vi.waitFor(() => expect(sockets.size).toBeGreaterThan(0), patience);
  } finally {
    await stopTestService(service);
    for (const socket of sockets) socket.destroy();
    silent.close();
  }
});
