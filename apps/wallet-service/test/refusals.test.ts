import { ShardIdentifier, ShardedId } from '@framework/core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { Wallet } from '../src/wallet/wallet.js';
import { rowsOf } from './database-session.js';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';
import { anOwner, problem } from './wallet-client.js';

let service: TestService;

beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => stopTestService(service));

describe('amounts', () => {
  test.each(['0', '-1', 0, -0.01, '0e9', '-0'])('must be positive: %j', async (amount) => {
    const { id } = await service.client.openWallet();
    const deposit = await service.client.post(`/wallets/${id}/deposit`, { amount });
    expect(deposit).toMatchObject(problem(422, 'invalid-amount'));
    expect(deposit.body['detail']).toBe('Deposit amount must be positive');
    const withdrawal = await service.client.post(`/wallets/${id}/withdraw`, { amount });
    expect(withdrawal).toMatchObject(problem(422, 'invalid-amount'));
    expect(withdrawal.body['detail']).toBe('Withdraw amount must be positive');
    const destId = (await service.client.openWallet()).id;
    const transfer = await service.client.post('/transfers', { sourceId: id, destId, amount });
    expect(transfer).toMatchObject(problem(422, 'invalid-amount'));
    expect(transfer.body['detail']).toBe('Transfer amount must be positive');
    expect(await service.client.wallet(id)).toMatchObject({ balance: '100', version: 1 });
  });

  test.each([
    ['EUR', '"0.001"'],
    ['EUR', '0.001'],
    ['JPY', '"1.5"'],
    ['EUR', '"100000000000000000000"'],
    ['EUR', '"99999999999999999999.99"'],
    ['EUR', '"1e1000000"'],
    ['EUR', '1e1000000'],
    ['EUR', '"-1e1000000"'],
    ['EUR', '1e-1000000'],
    ['EUR', `1e${'9'.repeat(400)}`],
    ['EUR', `"${'9'.repeat(60_000)}"`],
  ])('must fit %s: %s', async (currency, amount) => {
    const { id } = await service.client.openWallet({ currency });
    const before = process.cpuUsage();
    const answer = await service.client.post(`/wallets/${id}/deposit`, `{"amount":${amount}}`);
    expect(answer).toMatchObject(problem(422, 'invalid-amount'));
    // The service runs in this process. Writing out all the digits would take seconds.
    const { user, system } = process.cpuUsage(before);
    expect((user + system) / 1_000).toBeLessThan(1_000);
    expect(await service.client.wallet(id)).toMatchObject({ balance: '100', version: 1 });
  });

  test('must not be negative when a wallet is opened', async () => {
    const wallet = { country: 'DE', ownerId: anOwner, currency: 'EUR', initialBalance: '-0.01' };
    expect(await service.client.post('/wallets', wallet)).toMatchObject(problem(422, 'invalid-amount'));
  });

  test('must be covered by the balance', async () => {
    const { id } = await service.client.openWallet();
    expect(await service.client.post(`/wallets/${id}/withdraw`, { amount: '100.01' })).toMatchObject(
      problem(422, 'insufficient-funds'),
    );
    expect(await service.client.wallet(id)).toMatchObject({ balance: '100', version: 1 });
  });
});

describe('currencies', () => {
  test.each(['XYZ', 'eur', '', 'toString', 'EUR '])('must be listed in ISO 4217: %j', async (currency) => {
    const wallet = { country: 'DE', ownerId: anOwner, currency };
    expect(await service.client.post('/wallets', wallet)).toMatchObject(problem(422, 'unknown-currency'));
  });
});

describe('a closed wallet', () => {
  test('no longer changes', async () => {
    const { id } = await service.client.openWallet();
    const open = (await service.client.openWallet()).id;
    await service.client.post(`/wallets/${id}/close`, {});
    const changes = [
      service.client.post(`/wallets/${id}/deposit`, { amount: 1 }),
      service.client.post(`/wallets/${id}/withdraw`, { amount: 1 }),
      service.client.post(`/wallets/${id}/close`, {}),
      service.client.post('/transfers', { sourceId: id, destId: open, amount: 1 }),
    ];
    for (const answer of await Promise.all(changes))
      expect(answer).toMatchObject(problem(409, 'wallet-closed'));
    expect((await service.client.wallet(id)).version).toBe(2);
    expect((await service.client.wallet(open)).version).toBe(1);
  });
});

describe('an unknown wallet', () => {
  const unknownIds = [
    ['on a configured shard', ShardedId.generate(Wallet, ShardIdentifier.of(1, 0)).value],
    ['on a shard that is not configured', ShardedId.generate(Wallet, ShardIdentifier.of(7, 3)).value],
    ['with a UUID of another version', 'f47ac10b-58cc-4372-a567-0e02b2c3d479'],
    ['with the nil UUID', '00000000-0000-0000-0000-000000000000'],
  ] as const;

  test.each(unknownIds)('is not found: %s', async (_name, id) => {
    const known = (await service.client.openWallet()).id;
    const answers = await Promise.all([
      service.client.get(`/wallets/${id}`),
      service.client.get(`/wallets/${id}/events`),
      service.client.post(`/wallets/${id}/deposit`, { amount: 1 }),
      service.client.post(`/wallets/${id}/withdraw`, { amount: 1 }),
      service.client.post(`/wallets/${id}/close`, {}),
      service.client.post('/transfers', { sourceId: id, destId: known, amount: 1 }),
    ]);
    for (const answer of answers) expect(answer).toMatchObject(problem(404, 'wallet-not-found'));
    for (const database of [service.global, service.mexico]) {
      expect(await rowsOf(database, 'select from eventlog.events where model_id = $1', [id])).toEqual([]);
    }
  });

  test.each(unknownIds)('is not found by a transfer: %s', async (_name, id) => {
    expect(await service.client.get(`/transfers/${id}`)).toMatchObject(problem(404, 'transfer-not-found'));
  });
});
