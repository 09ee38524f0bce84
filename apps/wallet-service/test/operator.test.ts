import { afterAll, beforeAll, expect, test } from 'vitest';

import { rowsOf } from './database-session.js';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';
import { type Answer, WalletClient } from './wallet-client.js';

const token = 'a-token-that-is-only-used-in-tests-0123456789';
const handler = 'notify-recipient-on-deposit';
const signed = { by: 'olivia', reason: 'the mail server is back' };
let service: TestService;

beforeAll(async () => {
  service = await startTestService({
    login: 'owner',
    operator: { port: 0, token, 'read-only': false },
    delivery: { 'poll-max-ms': 100, retry: { 'attempts-max': 1 } },
  });
});

afterAll(() => stopTestService(service));

function ask(path: string, body?: object): Promise<Answer> {
  const operators = new WalletClient(service.operatorUrl ?? '');
  const authorization = `Bearer ${token}`;
  if (body === undefined) return operators.send(path, { headers: { authorization } });
  const headers = { authorization, 'content-type': 'application/json' };
  return operators.send(path, { method: 'POST', headers, body: JSON.stringify(body) });
}

test('a dead letter is found, explained and replayed over HTTP, and the change is recorded', async () => {
  await rowsOf(
    service.global,
    `create function refuse_mail() returns trigger language plpgsql as $$ begin raise exception 'mailbox full'; end $$`,
  );
  await rowsOf(
    service.global,
    'create trigger refuse_mail before insert on notifications for each row execute function refuse_mail()',
  );
  const wallet = await service.client.openWallet();
  await service.client.post(`/wallets/${wallet.id}/deposit`, { amount: '25.50', recipient: 'a@b.example' });
  await expect
    .poll(async () => (await ask('/dead-letters')).body['items'])
    .toMatchObject([
      { handler, count: 1, shards: ['0/0'], errorLine: expect.stringContaining('mailbox full') as string },
    ]);
  const why = await ask(`/why/${wallet.id}`);
  expect(why.body['sentences']).toContainEqual(expect.stringContaining(`${handler}: has as dead letters 1`));

  await rowsOf(service.global, 'drop trigger refuse_mail on notifications');
  const filter = { handler };
  const counted = await ask('/replay', { filter, ...signed, dryRun: true });
  expect(counted).toMatchObject({ status: 200, body: { count: 1 } });
  const replayed = await ask('/replay', { filter, ...signed });
  expect(replayed).toMatchObject({ status: 200, body: { count: 1, failures: [] } });
  await expect.poll(() => rowsOf(service.global, 'select from notifications')).toHaveLength(1);
  await expect
    .poll(async () => (await ask(`/models/${wallet.id}`)).body['items'])
    .toMatchObject([
      { event: { type: 'WalletCreatedEvent' } },
      {
        event: {
          type: 'WalletMoneyDepositedEvent',
          payload: { amount: '25.5' },
          principal: 'wallet-service',
        },
        deliveries: expect.arrayContaining([{ handler, state: 'passed' }]) as unknown,
      },
    ]);
  // Each database that was asked has recorded it.
  const entry = { operation: 'replay', actor: 'olivia', reason: signed.reason, target: { filter } };
  const { items } = (await ask('/audit')).body;
  expect(items).toMatchObject([entry, entry]);
  expect(items).toMatchObject(
    expect.arrayContaining([
      expect.objectContaining({ ended: expect.objectContaining({ outcome: 'done', count: 1 }) as unknown }),
    ]),
  );
});

test("the service's own address answers nothing of the operator", async () => {
  expect((await service.client.get('/consumers')).status).toBe(404);
});
