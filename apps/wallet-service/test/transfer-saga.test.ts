import { ShardIdentifier, ShardedId } from '@framework/core';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';

import { Wallet } from '../src/wallet/wallet.js';
import { rowsOf } from './database-session.js';
import { moneyByCurrency } from './money-in-all.js';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';
import { problem } from './wallet-client.js';

let service: TestService;
const patience = { timeout: 30_000, interval: 20 };

beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => stopTestService(service));

describe('a transfer between shards', () => {
  test('takes the money out at once and puts it in soon after', async () => {
    const [source, dest] = [await open('DE'), await open('MX')];
    const { status, headers, body } = await transfer(source.id, dest.id, '25.50');
    expect(status).toBe(202);
    expect(headers['location']).toBe(`/transfers/${String(body['id'])}`);
    expect(body).toMatchObject({ state: 'INITIATED', sourceId: source.id, destId: dest.id, amount: '25.5' });
    expect(await ended(body['id'])).toMatchObject({ state: 'COMPLETED' });
    expect(await service.client.wallet(source.id)).toMatchObject({ balance: '74.5' });
    expect(await service.client.wallet(dest.id)).toMatchObject({ balance: '125.5' });
  });

  test.each([
    ['was closed', 'wallet-closed', async () => closed(await open('MX'))],
    ['holds another currency', 'currency-mismatch', async () => (await open('MX', 'USD')).id],
    ['does not exist', 'wallet-not-found', async () => (await open('MX')).id.replace(/.{6}$/, '000000')],
  ])('returns the money when the destination %s', async (_case, reason, destination) => {
    const source = await open('DE');
    const { body } = await transfer(source.id, await destination(), '40');
    expect(await ended(body['id'])).toMatchObject({ state: 'REFUNDED', reason });
    expect(await service.client.wallet(source.id)).toMatchObject({ balance: '100', version: 3 });
  });

  test.each([
    ['on a shard that is not configured', ShardedId.generate(Wallet, ShardIdentifier.of(7, 3)).value],
    ['with a UUID of another version', 'f47ac10b-58cc-4372-a567-0e02b2c3d479'],
  ])('is refused at once when the destination is %s', async (_case, destId) => {
    const source = await open('DE');
    expect(await transfer(source.id, destId, '1')).toMatchObject(problem(404, 'wallet-not-found'));
    expect(await service.client.wallet(source.id)).toMatchObject({ balance: '100', version: 1 });
  });

  test('returns the money to a source that was closed meanwhile', async () => {
    const [source, dest] = [await open('DE'), await open('MX', 'USD')];
    const { body } = await transfer(source.id, dest.id, '40');
    await closed(source);
    expect(await ended(body['id'])).toMatchObject({ state: 'REFUNDED' });
    expect(await service.client.wallet(source.id)).toMatchObject({ balance: '100' });
  });

  test('keeps the sum of each currency the same at every moment', async () => {
    const wallets = await Promise.all(
      Array.from({ length: 6 }, (_unused, n) => open(n % 2 === 0 ? 'DE' : 'MX')),
    );
    const before = await moneyByCurrency(service);
    const transfers = Array.from({ length: 60 }, (_unused, n) =>
      transfer(wallets[n % 6]!.id, wallets[(n * 5 + 1) % 6]!.id, '1'),
    );
    const running = new AbortController();
    const sampling = (async () => {
      while (!running.signal.aborted) expect(await moneyByCurrency(service)).toEqual(before);
    })();
    const initiated = (await Promise.all(transfers)).filter(({ status }) => status === 202);
    expect(initiated.length).toBeGreaterThan(0);
    await Promise.all(initiated.map(({ body }) => ended(body['id'])));
    running.abort();
    await sampling;
    expect(await moneyByCurrency(service)).toEqual(before);
  });
});

describe('the recipient of a deposit', () => {
  test('is notified once', async () => {
    const wallet = await open('MX');
    await service.client.post(`/wallets/${wallet.id}/deposit`, { amount: '5', recipient: 'ana@example.com' });
    await service.client.post(`/wallets/${wallet.id}/deposit`, { amount: '6' });
    const notifications = (): Promise<unknown> =>
      rowsOf(service.mexico, 'select recipient, text from notifications where wallet_id = $1', [wallet.id]);
    await vi.waitFor(async () => {
      expect(await notifications()).toEqual([
        { recipient: 'ana@example.com', text: '5 was deposited; the balance is 105' },
      ]);
    }, patience);
  });
});

async function open(country: string, currency = 'EUR'): Promise<{ readonly id: string }> {
  return service.client.openWallet({ country, currency });
}

async function closed({ id }: { readonly id: string }): Promise<string> {
  expect(await service.client.post(`/wallets/${id}/close`, {})).toMatchObject({ status: 200 });
  return id;
}

function transfer(sourceId: string, destId: string, amount: string) {
  return service.client.post('/transfers', { sourceId, destId, amount });
}

async function ended(id: unknown): Promise<unknown> {
  return vi.waitFor(async () => {
    const { body } = await service.client.get(`/transfers/${String(id)}`);
    expect(body['state']).not.toBe('INITIATED');
    return body;
  }, patience);
}
