import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { rowsOf } from './database-session.js';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';
import { anOwner } from './wallet-client.js';

let service: TestService;

beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => stopTestService(service));

describe('POST /wallets', () => {
  test('opens a wallet and returns its address', async () => {
    const ownerId = anOwner.toUpperCase();
    const wallet = { country: 'DE', ownerId, currency: 'EUR', initialBalance: '100.50' };
    const { status, headers, body } = await service.client.post('/wallets', wallet);
    expect(status).toBe(201);
    expect(headers['content-type']).toBe('application/json');
    expect(headers['location']).toBe(`/wallets/${String(body['id'])}`);
    expect(body).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      shard: { group: 0, member: 0 },
      ownerId: anOwner,
      currency: 'EUR',
      balance: '100.5',
      state: 'OPENED',
      version: 1,
      createdDate: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      updatedDate: body['createdDate'],
    });
    expect(await service.client.wallet(String(body['id']))).toEqual(body);
  });

  test('defaults to an initial balance of zero', async () => {
    const { body } = await service.client.post('/wallets', {
      country: 'DE',
      ownerId: anOwner,
      currency: 'EUR',
    });
    expect(body).toMatchObject({ balance: '0' });
  });

  test.each([
    ['MX', { group: 1, member: 0 }],
    ['mx', { group: 0, member: 0 }],
    ['MX ', { group: 0, member: 0 }],
    ['', { group: 0, member: 0 }],
    ['US', { group: 0, member: 0 }],
  ])('places a wallet of country %j, with its event, on shard %j', async (country, shard) => {
    const wallet = await service.client.openWallet({ country });
    expect(wallet.shard).toEqual(shard);
    const [own, other] =
      shard.group === 1 ? [service.mexico, service.global] : [service.global, service.mexico];
    const row = 'select id from wallets where id = $1';
    const event = `select event_type from eventlog.events where model_id = $1`;
    expect(await rowsOf(own, row, [wallet.id])).toEqual([{ id: wallet.id }]);
    expect(await rowsOf(own, event, [wallet.id])).toEqual([{ event_type: 'WalletCreatedEvent' }]);
    expect(await rowsOf(other, row, [wallet.id])).toEqual([]);
    expect(await rowsOf(other, event, [wallet.id])).toEqual([]);
    expect((await service.client.wallet(wallet.id)).id).toBe(wallet.id);
  });
});

describe('GET /wallets/{id}', () => {
  test('accepts an id in upper case', async () => {
    const { id } = await service.client.openWallet({ country: 'MX' });
    expect((await service.client.wallet(id.toUpperCase())).id).toBe(id);
  });

  test('answers HEAD without a body', async () => {
    const { id } = await service.client.openWallet();
    const { status, body } = await service.client.send(`/wallets/${id}`, { method: 'HEAD' });
    expect({ status, body }).toEqual({ status: 200, body: {} });
  });
});

describe('POST /wallets/{id}/{change}', () => {
  test('deposits, with one event of the exact amount and newBalance', async () => {
    const { id } = await service.client.openWallet();
    const deposit = { amount: '25.50', recipient: 'Ana' };
    const { status, body } = await service.client.post(`/wallets/${id}/deposit`, deposit);
    expect(status).toBe(200);
    expect(body).toMatchObject({ id, balance: '125.5', version: 2 });
    const events = await rowsOf(
      service.global,
      `select event_type, model_name, payload, model_version, principal, headers->>'request-id' as request
       from eventlog.events where model_id = $1 and model_version > 1`,
      [id],
    );
    expect(events).toEqual([
      {
        event_type: 'WalletMoneyDepositedEvent',
        model_name: 'Wallet',
        payload: { amount: '25.5', newBalance: '125.5' },
        model_version: '2',
        principal: 'wallet-service',
        request: expect.stringMatching(/^[0-9a-f-]{36}$/),
      },
    ]);
  });

  test('withdraws down to zero', async () => {
    const { id } = await service.client.openWallet({ country: 'MX', currency: 'MXN' });
    const { status, body } = await service.client.post(`/wallets/${id}/withdraw`, { amount: 100 });
    expect(status).toBe(200);
    expect(body).toMatchObject({ balance: '0', version: 2, state: 'OPENED' });
  });

  test.each([
    ['no body', {}],
    ['an empty object', { body: '{}', headers: { 'content-type': 'application/json' } }],
  ])('closes with %s', async (_name, init) => {
    const { id } = await service.client.openWallet();
    const { status, body } = await service.client.send(`/wallets/${id}/close`, { method: 'POST', ...init });
    expect(status).toBe(200);
    expect(body).toMatchObject({ state: 'CLOSED', version: 2, balance: '100' });
  });
});

describe('decimals', () => {
  test.each([
    ['"0.1" and "0.2"', '0', ['"0.1"', '"0.2"'], '0.3'],
    ['the numbers 0.1 and 0.2', '0', ['0.1', '0.2'], '0.3'],
    ['the number 25.50', '0', ['25.50'], '25.5'],
    ['the number 1e2', '0', ['1e2'], '100'],
    ['the text 1E-2', '0', ['"1E-2"'], '0.01'],
    ['more digits than a float holds', '0', ['12345678901234567890.12'], '12345678901234567890.12'],
    [
      'twenty digits before the decimal point',
      '99999999999999999998.98',
      ['"1.01"'],
      '99999999999999999999.99',
    ],
  ])('are exact for %s', async (_name, initialBalance, amounts, balance) => {
    const { id } = await service.client.openWallet({ initialBalance });
    for (const amount of amounts) {
      const { status } = await service.client.post(`/wallets/${id}/deposit`, `{"amount":${amount}}`);
      expect(status).toBe(200);
    }
    expect((await service.client.wallet(id)).balance).toBe(balance);
    const last =
      'select payload from eventlog.events where model_id = $1 order by model_version desc limit 1';
    expect(await rowsOf(service.global, last, [id])).toMatchObject([{ payload: { newBalance: balance } }]);
  });
});
