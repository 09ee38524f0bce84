import { ShardIdentifier, parseFrameworkConfig } from '@framework/core';
import { createTestDatabase } from '@framework/testing/postgres';
import { pino } from 'pino';
import { afterAll, expect, test, vi } from 'vitest';

import { startWallets } from './started-service.js';
import { leastPrivileges, prepareDatabases } from './database-logins.js';
import { rowsOf } from './database-session.js';
import { configTree } from './start-test-service.js';
import { WalletClient } from './wallet-client.js';

// The placement rule is the only line of code that changes for a third shard.
vi.mock('../src/wallet/placement.js', () => ({
  placementOf: (country: string) => ShardIdentifier.of(country === 'BR' ? 2 : 0, 0),
}));

const global = await createTestDatabase();
const mexico = await createTestDatabase();
const brazil = await createTestDatabase();
if (leastPrivileges) await prepareDatabases([global, mexico, brazil]);
afterAll(() => Promise.all([global.drop(), mexico.drop(), brazil.drop()]));

test('a third shard needs only a placement, a configuration entry and a database', async () => {
  const config = parseFrameworkConfig(configTree({ global, mexico }, { third: brazil }));
  const service = await startWallets({
    config,
    host: '127.0.0.1',
    port: 0,
    logger: pino({ level: 'silent' }),
  });
  try {
    await service.service.databases.ready();
    const client = new WalletClient(service.url);
    const wallet = await client.openWallet({ country: 'BR', currency: 'BRL' });
    expect(wallet.shard).toEqual({ group: 2, member: 0 });
    const { body } = await client.post(`/wallets/${wallet.id}/deposit`, { amount: '1.50' });
    expect(body).toMatchObject({ id: wallet.id, balance: '101.5', version: 2 });
    const events = 'select event_type from eventlog.events where model_id = $1 order by model_version';
    expect(await rowsOf(brazil, events, [wallet.id])).toEqual([
      { event_type: 'WalletCreatedEvent' },
      { event_type: 'WalletMoneyDepositedEvent' },
    ]);
    expect(await rowsOf(global, events, [wallet.id])).toEqual([]);
  } finally {
    await service.stop();
  }
});
