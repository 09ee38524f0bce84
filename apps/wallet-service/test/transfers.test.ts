import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';
import { problem } from './wallet-client.js';

let service: TestService;

beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => stopTestService(service));

describe('POST /transfers', () => {
  test('moves money within a shard', async () => {
    const source = await service.client.openWallet({ country: 'MX' });
    const dest = await service.client.openWallet({ country: 'MX' });
    const transfer = { sourceId: source.id.toUpperCase(), destId: dest.id, amount: 25.5 };
    const { status, headers, body } = await service.client.post('/transfers', transfer);
    expect(status).toBe(202);
    expect(headers['location']).toBe(`/transfers/${String(body['id'])}`);
    expect(body).toEqual({
      id: expect.any(String),
      state: 'INITIATED',
      sourceId: source.id,
      destId: dest.id,
      amount: '25.5',
      currency: 'EUR',
      createdDate: expect.any(String),
      updatedDate: body['createdDate'],
    });
    await vi.waitFor(async () => {
      const read = await service.client.get(`/transfers/${String(body['id'])}`);
      expect(read.body).toMatchObject({ state: 'COMPLETED' });
    }, 30_000);
    expect(await service.client.wallet(source.id)).toMatchObject({ balance: '74.5', version: 2 });
    expect(await service.client.wallet(dest.id)).toMatchObject({ balance: '125.5', version: 2 });
  });

  test('refuses a transfer to the same wallet', async () => {
    const { id } = await service.client.openWallet();
    const transfer = { sourceId: id, destId: id.toUpperCase(), amount: '1' };
    expect(await service.client.post('/transfers', transfer)).toMatchObject(problem(422, 'same-wallet'));
  });

  test('refuses a transfer that the source cannot pay', async () => {
    const sourceId = (await service.client.openWallet()).id;
    const destId = (await service.client.openWallet()).id;
    const transfer = { sourceId, destId, amount: '100.01' };
    expect(await service.client.post('/transfers', transfer)).toMatchObject(
      problem(422, 'insufficient-funds'),
    );
  });
});
