import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { rowsOf } from './database-session.js';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';
import { type Answer, anOwner, problem } from './wallet-client.js';

let service: TestService;

beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => stopTestService(service));

let keyCount = 0;
const newKey = (): string => `key-${++keyCount}`;
const newWallet = { ownerId: anOwner, currency: 'EUR', initialBalance: '100' };
const reused = problem(422, 'idempotency-key-reused');

/** What an answer must have in common with the first one. */
function sameAs({ status, body, headers }: Answer): object {
  const replayed = { 'idempotency-replayed': 'true' };
  const location = headers['location'];
  return { status, body, headers: location === undefined ? replayed : { ...replayed, location } };
}

describe('a write with an Idempotency-Key', () => {
  test.each([
    ['deposit', { amount: '25.50', recipient: 'bob' }, '125.5'],
    ['withdraw', { amount: 100 }, '0'],
    ['close', {}, '100'],
  ])('has one effect and one answer: %s', async (change, body, balance) => {
    const { id } = await service.client.openWallet({ country: 'MX' });
    const key = newKey();
    const first = await service.client.postKeyed(`/wallets/${id}/${change}`, body, key);
    expect(first).toMatchObject({ status: 200, body: { balance, version: 2 } });
    expect(first.headers).not.toHaveProperty('idempotency-replayed');
    const repeat = await service.client.postKeyed(`/wallets/${id}/${change}`, body, key);
    expect(repeat).toMatchObject(sameAs(first));
    expect(await service.client.wallet(id)).toEqual(first.body);
  });

  test.each(['DE', 'MX'])('opens one wallet in %s', async (country) => {
    const key = newKey();
    const first = await service.client.postKeyed('/wallets', { ...newWallet, country }, key);
    expect(first.status).toBe(201);
    const repeats = await Promise.all(
      Array.from({ length: 10 }, () => service.client.postKeyed('/wallets', { ...newWallet, country }, key)),
    );
    for (const repeat of repeats) expect(repeat).toMatchObject(sameAs(first));
    const database = country === 'MX' ? service.mexico : service.global;
    const wallets =
      "select id from wallets join eventlog.idempotency_keys on result->>'id' = id::text where key = $1";
    expect(await rowsOf(database, wallets, [key])).toEqual([{ id: first.body['id'] }]);
  });

  test('moves money once', async () => {
    const sourceId = (await service.client.openWallet()).id;
    const destId = (await service.client.openWallet()).id;
    const key = newKey();
    const transfer = { sourceId, destId, amount: '100' };
    const first = await service.client.postKeyed('/transfers', transfer, key);
    expect(first.status).toBe(202);
    expect(await service.client.postKeyed('/transfers', transfer, key)).toMatchObject(sameAs(first));
    expect(await service.client.wallet(sourceId)).toMatchObject({ balance: '0', version: 2 });
  });

  test('has one effect for 100 concurrent requests', async () => {
    const { id } = await service.client.openWallet();
    const key = newKey();
    const answers = await Promise.all(
      Array.from({ length: 100 }, () =>
        service.client.postKeyed(`/wallets/${id}/withdraw`, { amount: '100' }, key),
      ),
    );
    const [first] = answers;
    expect(first).toMatchObject({ status: 200, body: { balance: '0', version: 2 } });
    expect(answers.map(({ status, body }) => ({ status, body }))).toEqual(
      Array.from({ length: 100 }, () => ({ status: 200, body: first?.body })),
    );
    expect(answers.filter(({ headers }) => headers['idempotency-replayed'] === 'true')).toHaveLength(99);
    expect(await service.client.wallet(id)).toEqual(first?.body);
  });

  test('returns the first answer even after the wallet was closed', async () => {
    const { id } = await service.client.openWallet();
    const key = newKey();
    const first = await service.client.postKeyed(`/wallets/${id}/withdraw`, { amount: '1' }, key);
    await service.client.post(`/wallets/${id}/close`, {});
    const repeat = await service.client.postKeyed(`/wallets/${id}/withdraw`, { amount: '1' }, key);
    expect(repeat).toMatchObject(sameAs(first));
  });

  test('accepts the same amount in another notation as a repeat', async () => {
    const { id } = await service.client.openWallet();
    const key = newKey();
    const first = await service.client.postKeyed(`/wallets/${id}/deposit`, { amount: '1.50' }, key);
    const path = `/wallets/${id.toUpperCase()}/deposit`;
    expect(await service.client.postKeyed(path, { amount: 1.5 }, key)).toMatchObject(sameAs(first));
  });

  test('is refused when its key belongs to another request on any shard', async () => {
    const wallet = await service.client.openWallet();
    const mexican = await service.client.openWallet({ country: 'MX' });
    const key = newKey();
    await service.client.postKeyed(`/wallets/${wallet.id}/deposit`, { amount: '1' }, key);
    const others: readonly [string, object][] = [
      [`/wallets/${wallet.id}/deposit`, { amount: '2' }],
      [`/wallets/${wallet.id}/withdraw`, { amount: '1' }],
      [`/wallets/${mexican.id}/deposit`, { amount: '1' }],
      ['/wallets', { ...newWallet, country: 'MX' }],
    ];
    for (const [path, body] of others)
      expect(await service.client.postKeyed(path, body, key)).toMatchObject(reused);
    expect(await service.client.wallet(mexican.id)).toEqual(mexican);
    expect(await service.client.wallet(wallet.id)).toMatchObject({ balance: '101', version: 2 });
  });

  test('is evaluated again after it was refused', async () => {
    const { id } = await service.client.openWallet({ initialBalance: '0' });
    const key = newKey();
    const withdraw = (): Promise<Answer> =>
      service.client.postKeyed(`/wallets/${id}/withdraw`, { amount: '1' }, key);
    expect(await withdraw()).toMatchObject(problem(422, 'insufficient-funds'));
    await service.client.post(`/wallets/${id}/deposit`, { amount: '1' });
    expect(await withdraw()).toMatchObject({ status: 200, body: { balance: '0' } });
  });

  test.each([
    ['empty', ''],
    ['too long', 'k'.repeat(256)],
    ['a tab', 'a\tb'],
    ['a control character', 'a\u0085b'],
    ['a letter beyond ASCII in Latin-1', 'schl\u00fcssel'],
    ['a letter beyond ASCII in UTF-8', Buffer.from('schlüssel').toString('latin1')],
  ])('is refused when the key is malformed: %s', async (_title, key) => {
    const wallet = await service.client.openWallet();
    const answer = await service.client.postKeyed(`/wallets/${wallet.id}/deposit`, { amount: '1' }, key);
    const refusal = problem(400, 'bad-request');
    expect(answer).toMatchObject(refusal);
    expect(answer.body['errors']).toMatchObject([{ pointer: 'header/Idempotency-Key' }]);
    expect(await service.client.wallet(wallet.id)).toEqual(wallet);
  });

  test.each([
    ['255 characters', 'k'.repeat(255)],
    ['blanks between signs', '~ order (4711) !'],
    ['quotes', '"8e03978e-40d5-43dd-bc93-6894a57f9324"'],
  ])('accepts a key of %s', async (_title, key) => {
    const { id } = await service.client.openWallet();
    const first = await service.client.postKeyed(`/wallets/${id}/deposit`, { amount: '1' }, key);
    const repeat = await service.client.postKeyed(`/wallets/${id}/deposit`, { amount: '1' }, key);
    expect(repeat).toMatchObject(sameAs(first));
  });
});
