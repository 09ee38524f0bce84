import { DeliveryOperator } from '@framework/events';
import { seededRandom } from '@framework/testing';
import { Big } from 'big.js';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';

import { WalletError } from '../src/wallet/wallet-error.js';
import { rowsOf } from './database-session.js';
import { seed } from './seed.js';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';
import { walletOf } from './wallet-specification.js';

/** The highest balance that deposits can reach. */
const fullBalance = '99999999999999999999.99';
const sentCount = 3;
const patience = { timeout: 30_000, interval: 50 };

let service: TestService;

beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => stopTestService(service));

test('a wallet that was filled up meanwhile takes back every refused transfer', async () => {
  const { client } = service;
  const source = await client.openWallet({ initialBalance: fullBalance });
  const closed = await client.openWallet({ country: 'MX' });
  await client.post(`/wallets/${closed.id}/close`, {});
  const operator = new DeliveryOperator(service.service.databases);
  await operator.pause('receive-transfer');
  const ids: string[] = [];
  for (let n = 0; n < sentCount; n++) {
    const transfer = { sourceId: source.id, destId: closed.id, amount: fullBalance };
    const { status, body } = await client.post('/transfers', transfer);
    expect(status).toBe(202);
    ids.push(String(body['id']));
    expect((await client.post(`/wallets/${source.id}/deposit`, { amount: fullBalance })).status).toBe(200);
  }
  const more = await client.post(`/wallets/${source.id}/deposit`, { amount: '0.01' });
  expect(more).toMatchObject({ status: 422, body: { code: 'invalid-amount' } });

  await operator.resume('receive-transfer');
  await vi.waitFor(async () => {
    const transfers = await Promise.all(ids.map((id) => client.get(`/transfers/${id}`)));
    expect(transfers.map(({ body }) => body['state'])).toEqual(ids.map(() => 'REFUNDED'));
  }, patience);
  const all = new Big(fullBalance).times(sentCount + 1).toFixed();
  expect(await client.wallet(source.id)).toMatchObject({ balance: all });
  // Money above the limit can be taken out, and nothing can be added.
  expect((await client.post(`/wallets/${source.id}/deposit`, { amount: '1' })).status).toBe(422);
  expect((await client.post(`/wallets/${source.id}/withdraw`, { amount: fullBalance })).status).toBe(200);
  expect(await rowsOf(service.global, 'select from eventlog.blocked_models where dead')).toEqual([]);
});

test(`money in transit always fits back into its column, whatever happens meanwhile (seed ${seed})`, async () => {
  const random = seededRandom(seed);
  const [column] = await rowsOf(
    service.global,
    `select numeric_precision - numeric_scale as digits from information_schema.columns
     where table_name = 'wallets' and column_name = 'balance'`,
  );
  const most = new Big(10).pow(Number(column?.['digits']));
  // As many transfers as a wallet could send at a thousand per second for a hundred days.
  const lifetimeCount = new Big(1_000).times(100 * 86_400);
  let wallet = walletOf('0');
  let inTransit = new Big(0);
  let transferCount = 0;
  const attempt = (change: () => typeof wallet): boolean => {
    try {
      wallet = change();
      return true;
    } catch (error) {
      if (error instanceof WalletError) return false;
      throw error;
    }
  };
  for (let step = 0; step < 5_000; step++) {
    const amount = random() < 0.5 ? new Big(fullBalance) : new Big(Math.ceil(random() * 1e9)).div(100);
    const choice = random();
    if (choice < 0.45) attempt(() => wallet.deposit(amount));
    else if (choice < 0.55) attempt(() => wallet.withdraw(amount));
    else if (attempt(() => wallet.withdraw(amount))) {
      transferCount++;
      inTransit = inTransit.plus(amount);
    }
    // The balance if all money in transit came back now; no transfer adds more than the largest deposit.
    const total = wallet.balance.plus(inTransit);
    expect(total.lte(new Big(fullBalance).times(transferCount + 1))).toBe(true);
  }
  expect(transferCount).toBeGreaterThan(500);
  wallet = wallet.takeBack(inTransit);
  expect(wallet.balance.lt(most)).toBe(true);
  expect(new Big(fullBalance).times(lifetimeCount).lt(most)).toBe(true);
});
