import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { type TestService, startTestService, stopTestService } from './start-test-service.js';
import { type Answer, type WalletBody, anOwner, problem } from './wallet-client.js';

let service: TestService;

beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => stopTestService(service));

const change = (
  path: string,
  headers: Readonly<Record<string, string>>,
  body: object = { amount: '1' },
): Promise<Answer> =>
  service.client.send(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });

const read = (path: string, headers: Readonly<Record<string, string>> = {}): Promise<Answer> =>
  service.client.send(path, { headers });

async function transferOf({ id: sourceId }: WalletBody): Promise<string> {
  const { id: destId } = await service.client.openWallet();
  const { headers } = await service.client.post('/transfers', { sourceId, destId, amount: '1' });
  return headers['location'] ?? '';
}

describe('the version of a wallet', () => {
  test('is the entity tag of each answer that represents the wallet', async () => {
    const opened = await service.client.post('/wallets', {
      country: 'MX',
      ownerId: anOwner,
      currency: 'MXN',
      initialBalance: '5',
    });
    const address = `/wallets/${String(opened.body['id'])}`;
    expect(opened.headers).toMatchObject({ etag: '"1"', location: address, 'content-location': address });
    const deposited = await change(`${address}/deposit`, {});
    expect(deposited.headers).toMatchObject({ etag: '"2"', 'content-location': address });
    expect((await read(address)).headers).toMatchObject({ etag: '"2"' });
  });

  test.each(['"1"', 'W/"1"', '"7", "1"', '*'])('is not sent again to a client that has %s', async (tag) => {
    const { id } = await service.client.openWallet();
    const { status, headers, body } = await read(`/wallets/${id}`, { 'if-none-match': tag });
    expect({ status, body, etag: headers['etag'] }).toEqual({ status: 304, body: {}, etag: '"1"' });
  });

  test.each(['"2"', '"01"', '1', '', '"a,*,b"', '"2", *'])('is sent to a client that has %j', async (tag) => {
    const wallet = await service.client.openWallet();
    const { status, body } = await read(`/wallets/${wallet.id}`, { 'if-none-match': tag });
    expect({ status, body }).toEqual({ status: 200, body: wallet });
  });

  test.each(['deposit', 'withdraw', 'close'])(
    'is demanded by a client that wants to %s',
    async (operation) => {
      const { id } = await service.client.openWallet();
      const path = `/wallets/${id}/${operation}`;
      const body = operation === 'close' ? {} : { amount: '1' };
      for (const tag of ['"2"', 'W/"1"', '1', '"1', '"2", "3"', '"a,*,b"', '"2", *'])
        expect(await change(path, { 'if-match': tag }, body)).toMatchObject(
          problem(412, 'precondition-failed'),
        );
      expect(await service.client.wallet(id)).toMatchObject({ version: 1, state: 'OPENED' });
      expect(await change(path, { 'if-match': '"4", "1"' }, body)).toMatchObject({
        status: 200,
        body: { version: 2 },
      });
    },
  );

  test('is demanded by a client that reads', async () => {
    const { id } = await service.client.openWallet();
    expect(await read(`/wallets/${id}`, { 'if-match': '"2"' })).toMatchObject(
      problem(412, 'precondition-failed'),
    );
    expect(await read(`/wallets/${id}`, { 'if-match': '"1"' })).toMatchObject({ status: 200 });
  });

  test('lets only one of many concurrent changes that demand it pass', async () => {
    const { id } = await service.client.openWallet();
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => change(`/wallets/${id}/withdraw`, { 'if-match': '"1"' })),
    );
    const statuses = answers.map(({ status }) => status).toSorted((one, other) => one - other);
    expect(statuses).toEqual([200, ...Array<number>(19).fill(412)]);
    expect(await service.client.wallet(id)).toMatchObject({ version: 2, balance: '99' });
  });

  test('is part of the request that an idempotency key stands for, and repeats get the first answer', async () => {
    const { id } = await service.client.openWallet();
    const path = `/wallets/${id}/deposit`;
    const keyed = { 'idempotency-key': 'once', 'if-match': '"1"' };
    const first = await change(path, keyed);
    const again = await change(path, keyed);
    expect(again).toMatchObject({
      status: 200,
      body: first.body,
      headers: { 'idempotency-replayed': 'true' },
    });
    expect(await change(path, { ...keyed, 'if-match': '"2"' })).toMatchObject(
      problem(422, 'idempotency-key-reused'),
    );
  });

  test('is any if the client says so, but the wallet must exist', async () => {
    const { id } = await service.client.openWallet();
    expect(await change(`/wallets/${id}/deposit`, { 'if-match': '*' })).toMatchObject({ status: 200 });
    const unknown = `${id.slice(0, -4)}0000`;
    expect(await change(`/wallets/${unknown}/deposit`, { 'if-match': '*' })).toMatchObject(
      problem(404, 'wallet-not-found'),
    );
  });
});

test('a transfer that has not changed since is not sent again', async () => {
  const address = await transferOf(await service.client.openWallet());
  await expect.poll(async () => (await read(address)).body['state']).toBe('COMPLETED');
  const { headers } = await read(address);
  expect(await read(address, { 'if-none-match': headers['etag'] ?? '' })).toMatchObject({ status: 304 });
});

test.each(['/openapi.json', '/asyncapi.json', '/docs/swagger-ui.css'])(
  '%s is not sent again to a client that has it',
  async (path) => {
    const { headers } = await read(path);
    expect(await read(path, { 'if-none-match': headers['etag'] ?? '' })).toMatchObject({ status: 304 });
  },
);

describe('a condition that nothing would check', () => {
  test.each([
    ['/wallets', 'if-match'],
    ['/transfers', 'if-match'],
    ['/wallets', 'if-none-match'],
  ])('is refused: POST %s with %s', async (path, name) => {
    const { id } = await service.client.openWallet();
    const wallet = { country: 'DE', ownerId: anOwner, currency: 'EUR' };
    const transfer = { sourceId: id, destId: (await service.client.openWallet()).id, amount: '1' };
    const answer = await change(path, { [name]: '"1"' }, path === '/wallets' ? wallet : transfer);
    expect(answer).toMatchObject({ status: 400, body: { errors: [{ message: expect.any(String) }] } });
    expect(await service.client.wallet(id)).toMatchObject({ version: 1 });
  });

  test('is refused: a change of a wallet with If-None-Match', async () => {
    const { id } = await service.client.openWallet();
    expect(await change(`/wallets/${id}/deposit`, { 'if-none-match': '"9"' })).toMatchObject({ status: 400 });
    expect(await service.client.wallet(id)).toMatchObject({ version: 1 });
  });

  test('is refused: a list of more than 32 versions', async () => {
    const { id } = await service.client.openWallet();
    const tags = Array.from({ length: 33 }, (_unused, index) => `"${index + 1}"`).join();
    expect(await change(`/wallets/${id}/deposit`, { 'if-match': tags })).toMatchObject({ status: 400 });
  });
});

describe('a client that prefers no body', () => {
  const prefer = { prefer: 'respond-async, return=minimal; foo' };

  test('gets 204 with the version after a change', async () => {
    const { id } = await service.client.openWallet();
    const { status, headers, body } = await change(`/wallets/${id}/deposit`, prefer);
    expect({ status, body }).toEqual({ status: 204, body: {} });
    expect(headers).toMatchObject({ etag: '"2"', 'preference-applied': 'return=minimal' });
    expect(headers).not.toHaveProperty('content-location');
  });

  test('gets the address of what it has created', async () => {
    const wallet = { country: 'DE', ownerId: anOwner, currency: 'EUR', initialBalance: '5' };
    const opened = await change('/wallets', prefer, wallet);
    expect(opened).toMatchObject({ status: 201, body: {}, headers: { etag: '"1"' } });
    const { id } = (await read(opened.headers['location'] ?? '')).body;
    const dest = await service.client.openWallet();
    const transfer = { sourceId: id, destId: dest.id, amount: '1' };
    const started = await change('/transfers', prefer, transfer);
    expect(started).toMatchObject({ status: 202, body: {} });
    expect(await read(started.headers['location'] ?? '')).toMatchObject({ status: 200 });
  });

  test.each(['return=representation', 'return=representation, return=minimal', 'minimal', ''])(
    'is not one that sends %j',
    async (value) => {
      const { id } = await service.client.openWallet();
      const answer = await change(`/wallets/${id}/deposit`, { prefer: value });
      expect(answer).toMatchObject({ status: 200, body: { version: 2 } });
      expect(answer.headers).not.toHaveProperty('preference-applied');
    },
  );
});
