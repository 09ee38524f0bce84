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
    const blocked = 'select from eventlog.blocked_models where model_id = $1';
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

test('a transfer is settled while an earlier one to the same wallet waits for its source', async () => {
  const [far, near, dest] = await Promise.all(
    ['MX', 'DE', 'DE'].map((country) => service.client.openWallet({ country })),
  );
  const stateOf = async (id: unknown): Promise<unknown> =>
    (await service.client.get(`/transfers/${String(id)}`)).body['state'];
  const send = async (sourceId: string): Promise<unknown> =>
    (await service.client.post('/transfers', { sourceId, destId: dest!.id, amount: '1' })).body['id'];
  // The shard accepts the transfer, and then cannot record its end.
  await rowsOf(
    service.mexico,
    `create function refuse_end() returns trigger language plpgsql as $$
       begin raise exception using errcode = 'disk_full', message = 'no space'; end $$;
     create trigger refuse_end before update on transfers for each row execute function refuse_end()`,
  );
  const first = await send(far!.id);
  await vi.waitFor(async () => {
    const waiting = `select from eventlog.blocked_models where handler = 'settle-transfer'`;
    expect(await rowsOf(service.global, waiting)).toHaveLength(1);
  }, patience);

  const second = await send(near!.id);
  await vi.waitFor(async () => expect(await stateOf(second)).toBe('COMPLETED'), patience);
  expect(await stateOf(first)).toBe('INITIATED');

  await rowsOf(service.mexico, 'drop function refuse_end cascade');
  await vi.waitFor(async () => expect(await stateOf(first)).toBe('COMPLETED'), patience);
});
