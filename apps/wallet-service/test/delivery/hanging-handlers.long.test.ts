import { tuneProcess } from '@framework/events/internal';
import { afterEach, expect, test, vi } from 'vitest';
import { withSession } from '../database-session.js';
import { type TestService, startTestService, stopTestService } from '../start-test-service.js';
import { WalletClient } from '../wallet-client.js';
import { Fleet } from './fleet.js';

const patience = { timeout: 60_000, interval: 50 };
const impatient = { 'timeout-ms': 1_000 };
const lockWallets = 'begin; lock table wallets in access exclusive mode';

const ends: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const end of ends.splice(0)) await end();
  tuneProcess({});
});

test('a process whose handlers hang exits with code 1, and the next one continues', async () => {
  const fleet = await Fleet.create(impatient);
  ends.push(() => fleet.end());
  const service = fleet.startImpatient();
  const client = new WalletClient(await service.served());
  const transfer = await withSession(fleet.databases.mexico, (session) =>
    transferTo(client, async () => {
      await session.query(lockWallets);
      return async () => {
        expect(await service.exitCode()).toBe(1);
      };
    }),
  );
  expect(service.stderr).toContain('handlers hang: this process stops delivering and exits');
  const next = new WalletClient(await fleet.start('all').served());
  await vi.waitFor(async () => {
    expect((await next.get(`/transfers/${transfer}`)).body['state']).toBe('COMPLETED');
  }, patience);
});

test('a service that must be restarted is not ready for as long as it runs', async () => {
  tuneProcess({ abandonedMax: 1, abandonedForMs: 2_000 });
  const service: TestService = await startTestService({ delivery: impatient });
  ends.push(() => stopTestService(service));
  expect((await service.client.get('/health/ready')).status).toBe(200);
  await withSession(service.mexico, (session) =>
    transferTo(service.client, async () => {
      await session.query(lockWallets);
      return () =>
        vi.waitFor(async () => {
          const { status, body } = await service.client.get('/health/ready');
          expect([status, body['status']]).toEqual([503, 'unavailable']);
        }, patience);
    }),
  );
  expect((await service.client.get('/health/ready')).status).toBe(503);
  expect((await service.client.get('/health/live')).status).toBe(200);
});

/** Sends money to a wallet whose shard is locked meanwhile, and returns the transfer's id. */
async function transferTo(client: WalletClient, lock: () => Promise<() => Promise<void>>): Promise<string> {
  const source = await client.openWallet({ country: 'DE' });
  const dest = await client.openWallet({ country: 'MX' });
  const hung = await lock();
  const { body } = await client.post('/transfers', { sourceId: source.id, destId: dest.id, amount: '40' });
  expect(body['state']).toBe('INITIATED');
  await hung();
  return String(body['id']);
}
