import { parseFrameworkConfig } from '@framework/core';
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest';

import { serviceCommand } from '../../../packages/service/src/service-command.js';
import { walletService } from '../src/wallet-service.js';
import { createShardDatabases } from './database-logins.js';
import { rowsOf } from './database-session.js';
import { Fleet } from './delivery/fleet.js';
import { configTree } from './start-test-service.js';
import { WalletClient } from './wallet-client.js';
import { WebhookReceiver } from './webhook-receiver.js';

const patience = { timeout: 60_000, interval: 20 };

let partner: WebhookReceiver;

beforeEach(async () => {
  partner = new WebhookReceiver();
  await partner.open();
});
afterEach(() => partner.close());

test('processes that have only the privileges of their kind serve, deliver and relay without a warning', async () => {
  const relay = { name: 'events-to-partner', 'start-from': 'beginning', webhooks: partner.section };
  const fleet = await Fleet.create({ 'retention-ms': 1 }, [relay], true);
  onTestFinished(() => fleet.end());
  const http = fleet.start('http');
  const relaying = fleet.start('relay');
  const client = new WalletClient(await http.served());
  await relaying.printed('The wallet relay is ready.');
  const source = await client.openWallet();
  const dest = await client.openWallet({ country: 'MX' });
  const transfer = { sourceId: source.id, destId: dest.id, amount: '40' };
  const { body } = await client.postKeyed('/transfers', transfer, 'transfer-1');
  const id = String(body['id']);
  await vi.waitFor(() => expect(partner.received.map(({ subject }) => subject)).toContain(id), patience);
  // No handler runs in either process.
  expect((await client.get(`/transfers/${id}`)).body['state']).toBe('INITIATED');

  const worker = fleet.start('worker');
  const state = async (): Promise<unknown> => (await client.get(`/transfers/${id}`)).body['state'];
  await vi.waitFor(async () => expect(await state()).toBe('COMPLETED'), patience);
  const paid = await client.post(`/wallets/${dest.id}/deposit`, { amount: '1', recipient: 'ada' });
  expect(paid).toMatchObject({ status: 200, body: { balance: '141' } });
  const notified = (): Promise<readonly unknown[]> =>
    rowsOf(fleet.databases.mexico, `select from notifications where recipient = 'ada'`);
  await vi.waitFor(async () => expect(await notified()).toHaveLength(1), patience);
  const health = await client.get('/health/relay');
  expect(health.body['relays']).toMatchObject([{ state: 'elsewhere', blocked: 0, deadLetters: 0 }]);
  for (const each of [http, relaying, worker]) {
    each.kill('SIGTERM');
    expect(await each.exitCode()).toBe(0);
    // A process that is starved of processor time may lose leases, whatever it is allowed to do.
    const warnings = each.stderr.split('\n').filter((line) => !/^$|leases of slots were lost/.test(line));
    expect(warnings).toEqual([]);
  }
});

test('every table of the service has its decision about roles', async () => {
  const { global, mexico } = await createShardDatabases(true);
  onTestFinished(async () => void (await Promise.all([global.drop(), mexico.drop()])));
  const tables = await rowsOf(
    global,
    `select relname as name from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v', 'm')`,
  );
  const names = tables.map(({ name }) => String(name));
  expect(Object.keys(walletService.tables).toSorted()).toEqual(names.toSorted());
});

function path(group: number): string {
  return `framework.sharding.groups[${group}].members[0].configs.primary-config`;
}

test('the command prints what databases lack, and applies the same', async () => {
  const databases = await createShardDatabases(true);
  const { global, mexico } = databases;
  onTestFinished(async () => void (await Promise.all([global.drop(), mexico.drop()])));
  const missing = 'grant insert on table public.notifications to "wallet_application"';
  await rowsOf(mexico, 'revoke insert on notifications from wallet_application');
  const config = parseFrameworkConfig(configTree(databases, { login: 'migrator' }));
  const run = async (words: string): Promise<readonly string[]> => {
    const said: string[] = [];
    const command = serviceCommand(walletService, words.split(' '));
    if (typeof command === 'object') await command.run(config, (line) => said.push(line));
    return said;
  };
  const printed = [`-- ${path(0)}: nothing is missing`, `-- ${path(1)}`, `${missing};`];
  expect(await run('roles print')).toEqual(printed);
  expect(await run('roles apply')).toEqual([
    `${path(0)}: nothing was missing`,
    `${path(1)}: executed ${missing}`,
  ]);
  expect(await run('roles apply')).toEqual([
    `${path(0)}: nothing was missing`,
    `${path(1)}: nothing was missing`,
  ]);
});
