import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';

let service: TestService;

beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => stopTestService(service));

describe('GET /wallets', () => {
  test("lists an owner's wallets of all shards in pages, oldest first", async () => {
    const ownerId = randomUUID();
    const ids: string[] = [];
    for (const country of ['MX', 'DE', 'DE', 'MX', 'MX']) {
      ids.push((await service.client.openWallet({ ownerId, country })).id);
    }
    await service.client.openWallet();
    const pages = await pagesOf(`/wallets?ownerId=${ownerId.toUpperCase()}&limit=2`);
    expect(pages.map((page) => page.map(({ id }) => id))).toEqual([
      ids.slice(0, 2),
      ids.slice(2, 4),
      ids.slice(4),
    ]);
  });

  test('lists twenty by default, and no next page after the last', async () => {
    const ownerId = randomUUID();
    await Promise.all(Array.from({ length: 21 }, () => service.client.openWallet({ ownerId })));
    expect((await pagesOf(`/wallets?ownerId=${ownerId}`)).map((page) => page.length)).toEqual([20, 1]);
    expect((await pagesOf(`/wallets?ownerId=${ownerId}&limit=21`)).map((page) => page.length)).toEqual([21]);
    expect((await service.client.get(`/wallets?ownerId=${randomUUID()}`)).body).toEqual({
      items: [],
      next: null,
    });
  });
});

describe('GET /wallets/{id}/events', () => {
  test("lists the wallet's history in pages, oldest first", async () => {
    const { id } = await service.client.openWallet({ country: 'MX' });
    await service.client.post(`/wallets/${id}/deposit`, { amount: '1.5' });
    await service.client.post(`/wallets/${id}/withdraw`, { amount: '0.5' });
    await service.client.post(`/wallets/${id}/close`, {});
    const pages = await pagesOf(`/wallets/${id.toUpperCase()}/events?limit=3`);
    expect(pages.map((page) => page.length)).toEqual([3, 1]);
    const events = pages
      .flat()
      .map(({ type, version, actionName, payload }) => ({ type, version, actionName, payload }));
    expect(events).toEqual([
      {
        type: 'WalletCreatedEvent',
        version: 1,
        actionName: 'WalletCreateAction',
        payload: expect.any(Object),
      },
      {
        type: 'WalletMoneyDepositedEvent',
        version: 2,
        actionName: 'WalletDepositMoneyAction',
        payload: { amount: '1.5', newBalance: '101.5' },
      },
      {
        type: 'WalletMoneyWithdrawnEvent',
        version: 3,
        actionName: 'WalletWithdrawMoneyAction',
        payload: { amount: '0.5', newBalance: '101' },
      },
      { type: 'WalletClosedEvent', version: 4, actionName: 'WalletCloseAction', payload: {} },
    ]);
    expect(pages[0]?.[0]).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      type: 'WalletCreatedEvent',
      version: 1,
      actionId: expect.stringMatching(/^[0-9a-f-]{36}$/),
      actionName: 'WalletCreateAction',
      principal: 'wallet-service',
      payload: { id, ownerId: expect.any(String), currency: 'EUR', initialBalance: '100' },
      createdDate: expect.stringMatching(/Z$/),
    });
  });
});

type Items = readonly Readonly<Record<string, unknown>>[];

/** Reads all pages of a list. */
async function pagesOf(path: string): Promise<readonly Items[]> {
  const pages: Items[] = [];
  let cursor: string | null = null;
  do {
    const { status, body } = await service.client.get(cursor === null ? path : `${path}&cursor=${cursor}`);
    expect(status).toBe(200);
    pages.push(body['items'] as Items);
    cursor = body['next'] as string | null;
  } while (cursor !== null);
  return pages;
}
