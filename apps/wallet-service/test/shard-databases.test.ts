import { type FrameworkConfig, parseFrameworkConfig } from '@framework/core';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

import { serviceCommand } from '../../../packages/service/src/service-command.js';
import { walletService } from '../src/wallet-service.js';
import { type RunningWallets, startWallets } from './started-service.js';
import { rowsOf } from './database-session.js';
import { ProgramInProcess } from './service-process.js';
import { type ShardDatabases, type TestServiceOptions, configTree } from './start-test-service.js';
import { WalletClient, anOwner, problem } from './wallet-client.js';

const closing: (() => Promise<unknown>)[] = [];
let folder: string;
let global: TestDatabase;
let mexico: TestDatabase;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'wallet-databases-'));
  [global, mexico] = await Promise.all([createTestDatabase(), createTestDatabase()]);
});
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
  await Promise.all([global.drop(), mexico.drop(), rm(folder, { recursive: true })]);
});

describe('a service with swapped jdbc-urls', () => {
  test("writes no wallet to another shard's database, and reports which shard it holds", async () => {
    await serveOnce({ global, mexico });
    const before = await walletsIn(global, mexico);
    const service = await run({ global: mexico, mexico: global });
    expect(await service.exitCode()).toBe(1);
    expect(service.stderr).toContain(
      `${path(0)} global-1 on ${mexico.host}:${mexico.port}/${mexico.database}: the database holds shard (1, 0), ` +
        'but the configuration assigns shard (0, 0) to it: correct the jdbc-url; or, to keep shard (0, 0) in this ' +
        'database from now on, run `npm run adopt -- 0/0`',
    );
    expect(service.stderr).toContain(
      `${path(1)} mexico-1 on ${global.host}:${global.port}/${global.database}: `,
    );
    expect(await walletsIn(global, mexico)).toEqual(before);
  });

  test('refuses misplaced shards over HTTP and serves the others', async () => {
    const third = await createTestDatabase();
    closing.push(() => third.drop());
    await serveOnce({ global, mexico }, { third });
    const before = await walletsIn(third);
    // The shard (0, 0) is in its own database; that of Mexico is pointed to the database of a third shard.
    const { client } = await start({ global, mexico: third });
    const isRefused = async (): Promise<unknown> => (await client.get('/health/ready')).body;
    await expect.poll(isRefused).toMatchObject({
      shards: [
        { group: 0, status: 'ready' },
        { group: 1, status: 'unavailable', cause: 'other-shards' },
      ],
    });
    expect((await client.openWallet()).shard).toEqual({ group: 0, member: 0 });
    const refused = await client.post('/wallets', { country: 'MX', ownerId: anOwner, currency: 'MXN' });
    expect(refused).toMatchObject(problem(503, 'shard-unavailable'));
    expect(await walletsIn(third)).toEqual(before);
  });

  test('serves after the adopt command, which is right if the rows were swapped as well', async () => {
    await serveOnce({ global, mexico });
    const exchanged = { global: mexico, mexico: global };
    const said = await operate(exchanged, ['adopt', '0/0', '1/0']);
    expect(said).toMatch(/^framework\S+primary-config: holds shard \(0, 0\) from now on\n/);
    expect(said).toMatch(/groups\[1\]\S+primary-config: does not hold shard \(0, 0\) any more$/);
    await serveOnce(exchanged);
  });
});

describe('a service whose shard moves to another database', () => {
  test('is refused by the former database, and serves with the new configuration', async () => {
    const elsewhere = await createTestDatabase();
    closing.push(() => elsewhere.drop());
    const before = { global, mexico };
    const forgotten = await start(before);
    await forgotten.running.service.databases.ready();
    await forgotten.client.openWallet({ country: 'MX' });
    expect(await operate(before, ['release', '1/0'])).toMatch(
      /^framework\S+groups\[1\]\S+primary-config: does not hold shard \(1, 0\) any more$/,
    );

    const refused = await forgotten.client.post('/wallets', {
      country: 'MX',
      ownerId: anOwner,
      currency: 'MXN',
    });
    expect(refused).toMatchObject(problem(503, 'shard-unavailable'));
    expect(await walletsIn(mexico)).toMatchObject([[expect.anything()]]);
    expect((await forgotten.client.openWallet()).shard).toEqual({ group: 0, member: 0 });
    await serveOnce({ global, mexico: elsewhere });
    expect(await walletsIn(mexico)).toMatchObject([[expect.anything()]]);
  });
});

describe('a service that only checks schemas', () => {
  test('serves after the command has migrated its databases', async () => {
    const { client } = await start({ global, mexico }, { migrate: 'check' });
    const detail = expect.stringMatching(/command migrate.*restored, wait/) as string;
    await expect
      .poll(async () => (await client.get('/health/ready')).body)
      .toMatchObject({
        shards: [
          { cause: 'not-migrated', detail },
          { cause: 'not-migrated', detail },
        ],
      });
    const refused = await client.post('/wallets', { country: 'DE', ownerId: anOwner, currency: 'EUR' });
    expect(refused).toMatchObject(problem(503, 'shard-unavailable'));
    const migration = await run({ global, mexico }, { migrate: 'check' }, ['migrate']);
    expect(await migration.exitCode()).toBe(0);
    expect(migration.stdout).toMatch(
      /primary-config: applied 0000_log of the framework, .*of the application\n/,
    );
    await expect.poll(async () => (await client.get('/health/ready')).status).toBe(200);
    await client.openWallet();
  });
});

describe('a service whose role owns nothing', () => {
  test('commits, delivers and transfers with the grants of the guide', async () => {
    const role = `wallet_${randomBytes(6).toString('hex')}`;
    await rowsOf(global, `create role ${role} login password '${role}'`);
    closing.push(() => rowsOf(global, `drop role ${role}`));
    expect(await operate({ global, mexico }, ['migrate'])).toContain('0000_wallets');
    const guide = readFileSync(new URL('../../../docs/operations/migrations.md', import.meta.url), 'utf8');
    const [, grants = ''] = /```sql\n(grant [^]*?)```/.exec(guide) ?? [];
    for (const database of [global, mexico]) {
      closing.push(() => rowsOf(database, `drop owned by ${role}`));
      await rowsOf(database, grants.replaceAll(/\bto wallet\b/g, `to ${role}`));
    }
    const credentials = { username: role, password: role };
    const options = { global: credentials, mexico: credentials, migrate: 'check' };
    const { client, running } = await start({ global, mexico }, options);
    await Promise.all([running.service.databases.ready(), running.service.delivery.started()]);
    const [source, dest] = [await client.openWallet(), await client.openWallet({ country: 'MX' })];
    const transfer = { sourceId: source.id, destId: dest.id, amount: '40' };
    const { headers } = await client.postKeyed('/transfers', transfer, 'transfer-1');
    const state = async (): Promise<unknown> => (await client.get(headers['location'] ?? '')).body['state'];
    await expect.poll(state).toBe('COMPLETED');
    expect((await client.wallet(dest.id)).balance).toBe('140');
  });
});

/** The beginning of a message about the shard of a group. */
function path(group: number): string {
  return `framework.sharding.groups[${group}].members[0].configs.primary-config: shard (${group}, 0)`;
}

interface Service {
  readonly client: WalletClient;
  readonly running: RunningWallets;
}

function configOf(databases: ShardDatabases, options: TestServiceOptions): FrameworkConfig {
  return parseFrameworkConfig(configTree(databases, { login: 'owner', ...options }));
}

/** Starts the service in this process, without waiting for its databases; stopped when the test is over. */
async function start(databases: ShardDatabases, options: TestServiceOptions = {}): Promise<Service> {
  const config = configOf(databases, options);
  const logger = pino({ level: 'silent' });
  const running = await startWallets({ config, host: '127.0.0.1', port: 0, logger });
  let stopped: Promise<void> | undefined;
  const stop = (): Promise<void> => (stopped ??= running.stop());
  closing.push(stop);
  return { running: { ...running, stop }, client: new WalletClient(running.url) };
}

/** Opens a wallet on each shard. */
async function serveOnce(databases: ShardDatabases, options: TestServiceOptions = {}): Promise<void> {
  const { running, client } = await start(databases, options);
  await running.service.databases.ready();
  for (const country of ['DE', 'MX']) await client.openWallet({ country });
  await running.stop();
}

async function walletsIn(...databases: readonly TestDatabase[]): Promise<readonly unknown[]> {
  return Promise.all(databases.map((database) => rowsOf(database, 'select id from wallets order by id')));
}

/** Runs an operator's command; returns its output. */
async function operate(databases: ShardDatabases, words: readonly string[]): Promise<string> {
  const command = serviceCommand(walletService, words);
  const said: string[] = [];
  if (typeof command === 'object') await command.run(configOf(databases, {}), (line) => said.push(line));
  return said.join('\n');
}

async function run(
  databases: ShardDatabases,
  options: TestServiceOptions = {},
  words: readonly string[] = [],
): Promise<ProgramInProcess> {
  const file = join(folder, 'wallet.json');
  await writeFile(file, JSON.stringify(configTree(databases, { login: 'owner', ...options })));
  return new ProgramInProcess({ WALLET_CONFIG: file }, words);
}
