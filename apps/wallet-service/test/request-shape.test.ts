import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';
import { anOwner, problem } from './wallet-client.js';

let service: TestService;
let walletId: string;

beforeAll(async () => {
  service = await startTestService();
  walletId = (await service.client.openWallet()).id;
});
afterAll(() => stopTestService(service));

const json = { 'content-type': 'application/json' };
const newWallet = { country: 'DE', ownerId: anOwner, currency: 'EUR' };

describe('a malformed body', () => {
  test.each([
    ['nothing', ''],
    ['half of an object', '{"amount":'],
    ['a number with leading zeros', '{"amount":007}'],
    ['two values', '{} {}'],
    ['deep nesting', '['.repeat(30_000)],
    ['a field twice', '{"amount":"1","amount":"5"}'],
    ['a field twice, once escaped', String.raw`{"amount":"1","\u0061mount" :"5"}`],
  ])('is refused: %s', async (_name, text) => {
    expect(await service.client.post(`/wallets/${walletId}/deposit`, text)).toMatchObject(
      problem(400, 'bad-request'),
    );
  });

  test('is refused when it is not UTF-8', async () => {
    const body = new Uint8Array([...Buffer.from('{"amount":"1","recipient":"'), 0xff, ...Buffer.from('"}')]);
    const init = { method: 'POST', headers: json, body };
    expect(await service.client.send(`/wallets/${walletId}/deposit`, init)).toMatchObject(
      problem(400, 'bad-request'),
    );
  });

  test.each([
    ['a missing field', '/wallets', { country: 'DE', currency: 'EUR' }, '#/ownerId', 'is missing'],
    ['an unknown field', '/wallets', { ...newWallet, 'a/b~c ': 1 }, '#/a~1b~0c%20', 'is not a known field'],
    [
      'a field that every object has',
      '/wallets',
      `{"__proto__":{},${JSON.stringify(newWallet).slice(1)}`,
      '#/__proto__',
      undefined,
    ],
    ['a number as text', '/wallets', { ...newWallet, country: 5 }, '#/country', 'must be a string'],
    ['null as text', '/wallets', { ...newWallet, country: null }, '#/country', 'must be a string'],
    ['a NUL character as text', '/wallets', { ...newWallet, country: '\u0000' }, '#/country', undefined],
    [
      'half a surrogate pair as text',
      '/wallets',
      { ...newWallet, country: '\ud800' },
      '#/country',
      undefined,
    ],
    ['no UUID as owner', '/wallets', { ...newWallet, ownerId: 'me' }, '#/ownerId', 'must be a UUID'],
    [
      'a boolean as amount',
      '/wallets',
      { ...newWallet, initialBalance: true },
      '#/initialBalance',
      'must be a decimal',
    ],
    [
      'an object as amount',
      '/wallets',
      { ...newWallet, initialBalance: { source: '1' } },
      '#/initialBalance',
      undefined,
    ],
    ['an array as body', '/wallets', [], '#', undefined],
    [
      'no UUID as source',
      '/transfers',
      { sourceId: 'x', destId: anOwner, amount: '1' },
      '#/sourceId',
      'must be a UUID',
    ],
  ])(
    'is refused with the place of the fault: %s',
    async (_name, path, body, pointer, message = expect.any(String)) => {
      const answer = await service.client.post(path, body);
      expect(answer).toMatchObject(problem(400, 'bad-request'));
      expect(answer.body['errors']).toEqual([{ pointer, message }]);
    },
  );

  test('is refused with all its faults', async () => {
    const answer = await service.client.post('/transfers', { amount: 'x' });
    expect(answer).toMatchObject(problem(400, 'bad-request'));
    expect(answer.body['errors']).toHaveLength(3);
  });

  test.each(['', ' 1', '+1', '1.', '.5', '0x10', '1,5', 'NaN', 'Infinity', '01', '1_000', '١'])(
    'is refused when the amount is the text %j',
    async (amount) => {
      const answer = await service.client.post(`/wallets/${walletId}/deposit`, { amount });
      expect(answer).toMatchObject(problem(400, 'bad-request'));
      expect(answer.body['errors']).toMatchObject([{ pointer: '#/amount' }]);
    },
  );

  test('is refused where no body belongs', async () => {
    expect(await service.client.post(`/wallets/${walletId}/close`, { now: true })).toMatchObject(
      problem(400, 'bad-request'),
    );
    expect(await service.client.post(`/wallets/${walletId}/close`, '[]')).toMatchObject(
      problem(400, 'bad-request'),
    );
  });
});

describe('the media type', () => {
  test.each([
    'text/plain',
    'application/json; charset=latin1',
    'application/json; x=y',
    'application/jsonx',
    undefined,
  ])('is refused: %s', async (type) => {
    // A body of bytes has no media type unless one is set.
    const init = {
      method: 'POST',
      body: Buffer.from('{"amount":"1"}'),
      headers: type ? { 'content-type': type } : {},
    };
    expect(await service.client.send(`/wallets/${walletId}/deposit`, init)).toMatchObject(
      problem(415, 'bad-request'),
    );
    expect(await service.client.send(`/wallets/${walletId}/close`, init)).toMatchObject(
      problem(415, 'bad-request'),
    );
  });

  test.each(['application/json; charset=utf-8', 'Application/JSON;charset="UTF-8"'])(
    'is accepted: %s',
    async (type) => {
      const init = { method: 'POST', body: '{"amount":"1"}', headers: { 'content-type': type } };
      expect((await service.client.send(`/wallets/${walletId}/deposit`, init)).status).toBe(200);
    },
  );

  test('is accepted with a text that looks like a name', async () => {
    const body = String.raw`{"recipient":"{\"amount\":\"1\",\\","amount":"1"}`;
    expect((await service.client.post(`/wallets/${walletId}/deposit`, body)).status).toBe(200);
  });

  test.each(['identity', 'Identity', 'IDENTITY'])(
    'is accepted with the content coding %s',
    async (coding) => {
      const init = {
        method: 'POST',
        body: '{"amount":"1"}',
        headers: { ...json, 'content-encoding': coding },
      };
      expect((await service.client.send(`/wallets/${walletId}/deposit`, init)).status).toBe(200);
    },
  );

  test('is refused when the body is compressed', async () => {
    const init = { method: 'POST', body: '{"amount":"1"}', headers: { ...json, 'content-encoding': 'gzip' } };
    expect(await service.client.send(`/wallets/${walletId}/deposit`, init)).toMatchObject(
      problem(415, 'bad-request'),
    );
  });
});

describe('the size of a body', () => {
  test('is accepted up to 64 KiB', async () => {
    expect(bodyOf(65_536)).toHaveLength(65_536);
    expect((await service.client.post(`/wallets/${walletId}/deposit`, bodyOf(65_536))).status).toBe(200);
  });

  test('is refused beyond 64 KiB', async () => {
    expect(await service.client.post(`/wallets/${walletId}/deposit`, bodyOf(65_537))).toMatchObject(
      problem(413, 'bad-request'),
    );
  });

  test('is refused beyond 64 KiB even if it was not announced', async () => {
    const body = new Blob([bodyOf(65_537)]).stream();
    const init: RequestInit = { method: 'POST', headers: json, body, duplex: 'half' };
    expect(await service.client.send(`/wallets/${walletId}/deposit`, init)).toMatchObject(
      problem(413, 'bad-request'),
    );
  });

  test('need not be announced if it is small', async () => {
    const init: RequestInit = {
      method: 'POST',
      headers: json,
      body: new Blob(['{"amount":"1"}']).stream(),
      duplex: 'half',
    };
    expect((await service.client.send(`/wallets/${walletId}/deposit`, init)).status).toBe(200);
  });
});

describe('the path', () => {
  test.each([
    ['/wallets/42', 'path/id'],
    ['/wallets/42/events', 'path/id'],
    ['/transfers/42', 'path/id'],
    ['/wallets/%E0%A4%A', 'path/id'],
    ['/wallets', 'query/ownerId'],
    ['/wallets?ownerId=x', 'query/ownerId'],
    [`/wallets?ownerId=${anOwner}&ownerId=${anOwner}`, 'query/ownerId'],
    [`/wallets?ownerId=${anOwner}&limit=0`, 'query/limit'],
    [`/wallets?ownerId=${anOwner}&limit=101`, 'query/limit'],
    [`/wallets?ownerId=${anOwner}&limit=1e1`, 'query/limit'],
    [`/wallets?ownerId=${anOwner}&cursor=x`, 'query/cursor'],
    [`/wallets?ownerId=${anOwner}&curosr=x`, 'query/curosr'],
    ['/wallets/{known}/events?cursor=x', 'query/cursor'],
    ['/wallets/{known}/events?limit=x', 'query/limit'],
  ])('is refused with the name of the malformed part: %s', async (path, pointer) => {
    const answer = await service.client.get(path.replace('{known}', walletId));
    expect(answer).toMatchObject(problem(400, 'bad-request'));
    expect(answer.body['errors']).toMatchObject([{ pointer }]);
  });

  test('is not found when no route matches', async () => {
    expect(await service.client.get('/nothing')).toMatchObject(problem(404, 'not-found'));
    expect(await service.client.get(`/wallets/${walletId}/`)).toMatchObject(problem(404, 'not-found'));
  });

  test.each([
    ['GET', '/wallets/{known}', 200],
    ['HEAD', '/wallets/{known}', 200],
    ['OPTIONS', '/wallets/{known}', 204],
    ['DELETE', '/wallets/{known}', 405],
    ['GET', '/nothing', 404],
    ['GET', '/health/live', 200],
    ['GET', '/docs', 200],
  ])('is answered with its id: %s %s', async (method, path, status) => {
    const answer = await fetch(`${service.url}${path.replace('{known}', walletId)}`, { method });
    expect(answer.status).toBe(status);
    expect(answer.headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
  });

  test('is answered with its allowed methods', async () => {
    const refused = await service.client.send(`/wallets/${walletId}`, { method: 'DELETE' });
    expect(refused).toMatchObject(problem(405, 'method-not-allowed'));
    expect(refused.headers['allow']).toBe('GET, HEAD, OPTIONS');
    const asked = await service.client.send('/wallets', { method: 'OPTIONS' });
    expect(asked.status).toBe(204);
    expect(asked.headers['allow']).toBe('POST, GET, HEAD, OPTIONS');
  });
});

/** A deposit with this many bytes. */
function bodyOf(bytes: number): string {
  return `{"amount":"1","recipient":"${'x'.repeat(bytes - 29)}"}`;
}
