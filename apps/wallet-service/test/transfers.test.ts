import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rowsOf } from './database-session.js';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';
import { problem } from './wallet-client.js';

let service: TestService;

beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => stopTestService(service));

describe('POST /transfers', () => {
  it('moves money within a shard and says where the transfer is', async () => {
    const source = await service.client.openWallet({ country: 'MX' });
    const dest = await service.client.openWallet({ country: 'MX' });
    const transfer = { sourceId: source.id.toUpperCase(), destId: dest.id, amount: 25.5 };
    const { status, headers, body } = await service.client.post('/transfers', transfer);
    expect(status).toBe(202);
    expect(headers['location']).toBe(`/transfers/${String(body['id'])}`);
    expect(body).toEqual({
      id: expect.any(String),
      state: 'COMPLETED',
      sourceId: source.id,
      destId: dest.id,
      amount: '25.5',
      currency: 'EUR',
      createdDate: expect.any(String),
      updatedDate: body['createdDate'],
    });
    expect((await service.client.get(`/transfers/${String(body['id'])}`)).body).toEqual(body);
    expect(await service.client.wallet(source.id)).toMatchObject({ balance: '74.5', version: 2 });
    expect(await service.client.wallet(dest.id)).toMatchObject({ balance: '125.5', version: 2 });
  });

  it('refuses one to the same wallet', async () => {
    const { id } = await service.client.openWallet();
    const transfer = { sourceId: id, destId: id.toUpperCase(), amount: '1' };
    expect(await service.client.post('/transfers', transfer)).toMatchObject(problem(422, 'same-wallet'));
  });

  it('refuses one that the source cannot pay', async () => {
    const sourceId = (await service.client.openWallet()).id;
    const destId = (await service.client.openWallet()).id;
    const transfer = { sourceId, destId, amount: '100.01' };
    expect(await service.client.post('/transfers', transfer)).toMatchObject(
      problem(422, 'insufficient-funds'),
    );
  });

  it('refuses one to a wallet of another currency', async () => {
    const sourceId = (await service.client.openWallet()).id;
    const destId = (await service.client.openWallet({ currency: 'USD' })).id;
    const transfer = { sourceId, destId, amount: '1' };
    expect(await service.client.post('/transfers', transfer)).toMatchObject(
      problem(422, 'currency-mismatch'),
    );
  });

  it('refuses one between shards and writes nothing', async () => {
    const sourceId = (await service.client.openWallet()).id;
    const destId = (await service.client.openWallet({ country: 'MX' })).id;
    expect(await service.client.post('/transfers', { sourceId, destId, amount: '1' })).toMatchObject(
      problem(422, 'cross-shard'),
    );
    for (const database of [service.global, service.mexico]) {
      const changes = 'select from eventlog.events where model_id in ($1, $2) and model_version > 1';
      expect(await rowsOf(database, changes, [sourceId, destId])).toEqual([]);
      expect(await rowsOf(database, 'select from transfers where source_id = $1', [sourceId])).toEqual([]);
    }
    expect(await service.client.wallet(sourceId)).toMatchObject({ balance: '100', version: 1 });
    expect(await service.client.wallet(destId)).toMatchObject({ balance: '100', version: 1 });
  });
});
