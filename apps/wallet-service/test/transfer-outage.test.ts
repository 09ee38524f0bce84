import type { FaultProxy } from '@framework/testing';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { rowsOf } from './database-session.js';
import { moneyByCurrency, operatorQuery } from './money-in-all.js';
import { startProxiedService } from './start-proxied-service.js';
import type { TestService } from './start-test-service.js';

const patience = { timeout: 30_000, interval: 20 };

let service: TestService;
let proxy: FaultProxy;
let stop: () => Promise<void>;

beforeAll(async () => {
  ({ service, proxy, stop } = await startProxiedService({
    mexico: { 'statement-timeout-ms': 2_000, 'acquisition-timeout-ms': 3_000 },
    delivery: { retry: { 'backoff-base-ms': 50, 'backoff-max-ms': 200 } },
  }));
});
afterAll(() => stop());

test('a transfer to a shard that is down stays in transit and completes after the outage', async () => {
  const [source, dest] = await Promise.all(
    ['DE', 'MX'].map((country) => service.client.openWallet({ country })),
  );
  const money = await moneyByCurrency(service);
  await proxy.refuse();
  const transfer = { sourceId: source!.id, destId: dest!.id, amount: '40' };
  const { body } = await service.client.post('/transfers', transfer);
  await vi.waitFor(async () => {
    const blocked = 'select from eventlog.parked_events where model_id = $1';
    expect(await rowsOf(service.global, blocked, [body['id']])).toHaveLength(1);
  }, patience);
  expect((await service.client.get(`/transfers/${String(body['id'])}`)).body).toMatchObject({
    state: 'INITIATED',
  });
  expect(await rowsOf(service.global, operatorQuery('in transit'))).toMatchObject([
    { id: body['id'], source_id: source!.id, dest_id: dest!.id, currency: 'EUR' },
  ]);
  expect(await moneyByCurrency(service)).toEqual(money);

  await proxy.accept();
  await vi.waitFor(async () => {
    expect((await service.client.get(`/transfers/${String(body['id'])}`)).body).toMatchObject({
      state: 'COMPLETED',
    });
  }, patience);
  expect(await rowsOf(service.mexico, operatorQuery('decided'), [body['id']])).toMatchObject([
    { state: 'RECEIVED', reason: null },
  ]);
  expect(await rowsOf(service.global, operatorQuery('in transit'))).toEqual([]);
  expect(await moneyByCurrency(service)).toEqual(money);
});
