import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';

import { RawConnection } from './raw-connection.js';
import {
  type KeyServer,
  TestIssuer,
  audience,
  issuer,
  serveKeys,
} from '../../../packages/http/test/test-issuer.js';
import { type ProxiedService, startProxiedService } from './start-proxied-service.js';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';
import { anOwner, problem } from './wallet-client.js';

const opened: RawConnection[] = [];

afterEach(() => {
  for (const connection of opened.splice(0)) connection.close();
});

const [flooding, calm, proxy] = ['127.0.0.2', '127.0.0.3', '127.0.0.4'];
const get = (path: string, ...headers: readonly string[]) =>
  [`GET ${path} HTTP/1.1`, 'host: x', ...headers, '', ''].join('\r\n');
/** A request whose body does not arrive. */
const bodiless = (path: string, ...headers: readonly string[]) =>
  [
    `POST ${path} HTTP/1.1`,
    'host: x',
    'content-type: application/json',
    'content-length: 14',
    ...headers,
    '',
    '',
  ].join('\r\n');

async function openTo({ url }: { readonly url: string }, from = '127.0.0.1'): Promise<RawConnection> {
  const connection = await RawConnection.open(url, from);
  opened.push(connection);
  return connection;
}

describe('with limits per address', () => {
  let service: TestService;

  beforeAll(async () => {
    service = await startTestService({
      http: {
        'trusted-proxies': [proxy],
        limits: {
          'unlimited-addresses': ['127.0.0.1'],
          'per-address': { requests: 3, seconds: 3_600 },
          'connections-per-address-max': 2,
          'body-bytes-max': 1_024,
          'headers-bytes-max': 2_048,
          'headers-max': 20,
          amounts: { EUR: '150.50' },
        },
      },
    });
  });
  afterAll(() => stopTestService(service));

  test('an address that sends too much is refused before its body arrives, and others are served', async () => {
    const connection = await openTo(service, flooding);
    await connection.send(get('/health/live').repeat(3)).answered(3);
    const [, , , answer] = await connection.send(bodiless('/wallets')).answered(4);
    expect(connection.statuses).toEqual([200, 200, 200, 429]);
    expect(answer?.headers).toMatchObject({
      'content-type': 'application/problem+json',
      'retry-after': expect.stringMatching(/^3(599|600)$/),
      'ratelimit-policy': '"address";q=3;w=3600',
      ratelimit: expect.stringMatching(/^"address";r=0;t=3(599|600)$/),
    });
    expect(JSON.parse(answer?.body ?? '')).toMatchObject({ status: 429, code: 'too-many-requests' });
    expect(service.log.some((line) => line.includes(answer?.headers['x-request-id'] ?? 'none'))).toBe(true);
    expect((await (await openTo(service, calm)).send(get('/health/live')).answered())[0]?.status).toBe(200);
    expect((await service.client.get('/health/live')).status).toBe(200);
  });

  test('a connection that continues after a refusal gets at most one answer in a second', async () => {
    const connection = await openTo(service, '127.0.0.5');
    await connection.send(get('/health/live').repeat(6)).answered(4);
    const refusedAtMs = performance.now();
    await connection.answered(6);
    expect(performance.now() - refusedAtMs).toBeGreaterThan(1_900);
    expect(connection.statuses).toEqual([200, 200, 200, 429, 429, 429]);
  });

  test('a trusted proxy sends the requests of clients that are counted apart', async () => {
    const connections = await Promise.all([proxy, proxy, proxy].map((from) => openTo(service, from)));
    const [one, other] = ['203.0.113.1', '203.0.113.2'].map((client) =>
      get('/health/live', `x-forwarded-for: 198.51.100.7, ${client}`),
    );
    const [first] = connections;
    await first?.send((one ?? '').repeat(4) + (other ?? '').repeat(2)).answered(6);
    expect(first?.statuses).toEqual([200, 200, 200, 429, 200, 200]);
  });

  test('an untrusted client does not choose its address', async () => {
    const connection = await openTo(service, '127.0.0.6');
    const forged = [1, 2, 3, 4].map((last) => get('/health/live', `x-forwarded-for: 203.0.113.${last}`));
    await connection.send(forged.join('')).answered(4);
    expect(connection.statuses).toEqual([200, 200, 200, 429]);
  });

  test('an address has only so many connections, until some of them end', async () => {
    const connections = await Promise.all([1, 2, 3].map(() => openTo(service, '127.0.0.7')));
    const refused = await Promise.any(connections.map((each) => each.ended().then(() => each)));
    expect(refused.answers).toEqual([]);
    const [kept, other] = connections.filter((each) => each !== refused);
    kept?.close();
    expect((await other?.send(get('/health/live')).answered())?.[0]?.status).toBe(200);
    await expect
      .poll(
        async () =>
          (await (await openTo(service, '127.0.0.7')).send(get('/health/live')).settled(1))[0]?.status,
      )
      .toBe(200);
  });

  test.each([
    [413, `{"country":"${'x'.repeat(1_024)}"}`, {}],
    [431, '{}', { x: 'x'.repeat(2_048) }],
    [431, '{}', Object.fromEntries(Array.from({ length: 20 }, (_, index) => [`x-${index}`, '']))],
  ])('a request beyond a configured size is refused with %i', async (status, body, headers) => {
    const answer = await service.client.send('/wallets', {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body,
    });
    expect(answer.status).toBe(status);
  });

  test('money beyond the maximum of its currency is not moved at once', async () => {
    const { client } = service;
    const [{ id }, { id: destId }] = [
      await client.openWallet({ initialBalance: '150.50' }),
      await client.openWallet({ country: 'MX' }),
    ];
    expect((await client.post(`/wallets/${id}/deposit`, { amount: '150.50' })).status).toBe(200);
    const wallet = { country: 'DE', ownerId: anOwner, currency: 'EUR', initialBalance: '150.51' };
    const answers = [
      await client.post('/wallets', wallet),
      await client.post(`/wallets/${id}/deposit`, '{"amount":150.51}'),
      await client.post(`/wallets/${id}/withdraw`, { amount: '150.51' }),
      await client.post('/transfers', { sourceId: id, destId, amount: '1505.1e-1' }),
    ];
    for (const answer of answers) {
      expect(answer).toMatchObject(problem(422, 'invalid-amount'));
      expect(answer.body['detail']).toBe('At most 150.5 EUR may be moved at once');
    }
    expect((await client.wallet(id)).balance).toBe('301');
    expect((await client.openWallet({ currency: 'USD', initialBalance: '1000000' })).balance).toBe('1000000');
  });
});

describe('with limits per principal', () => {
  let service: TestService;
  let keys: KeyServer;
  let tokenOf: (subject: string) => Promise<string>;

  beforeAll(async () => {
    const from = await TestIssuer.create();
    keys = await serveKeys(from);
    tokenOf = (subject) => from.token({ subject });
    service = await startTestService({
      security: { jwt: { issuer, audience, 'jwks-uri': keys.url, algorithms: ['ES256'] } },
      http: { limits: { 'per-principal': { requests: 3, seconds: 3_600 }, amounts: { EUR: '150' } } },
    });
  });
  afterAll(async () => {
    await keys.close();
    await stopTestService(service);
  });

  const post = async (path: string, subject: string, body: object) =>
    service.client.send(path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${await tokenOf(subject)}` },
      body: JSON.stringify(body),
    });

  test('a principal that sends too much is refused before its body arrives, and others are served', async () => {
    const connection = await openTo(service);
    const [one, other] = [
      `authorization: Bearer ${await tokenOf('one')}`,
      `authorization: Bearer ${await tokenOf('other')}`,
    ];
    await connection.send(get('/wallets', one).repeat(3) + bodiless('/wallets', one)).answered(4);
    const [, , , answer] = connection.answers;
    expect(connection.statuses).toEqual([400, 400, 400, 429]);
    expect(answer?.headers['ratelimit-policy']).toBe('"principal";q=3;w=3600');
    const another = await openTo(service);
    expect((await another.send(get('/wallets', other)).answered())[0]?.status).toBe(400);
    expect((await another.send(get('/wallets')).answered(2))[1]?.status).toBe(401);
  });

  test('a principal that sends too much does not hold up others on the connection of an unlimited address', async () => {
    const [one, other] = [
      `authorization: Bearer ${await tokenOf('hasty')}`,
      `authorization: Bearer ${await tokenOf('patient')}`,
    ];
    const connection = await openTo(service);
    const sentAtMs = performance.now();
    await connection.send(get('/wallets', one).repeat(10) + get('/wallets', other)).answered(11);
    expect(connection.statuses.slice(3)).toEqual([...Array.from({ length: 7 }, () => 429), 400]);
    // Each of the seven refusals would take a second.
    expect(performance.now() - sentAtMs).toBeLessThan(5_000);
  });

  test('the maximum of a currency says nothing about the wallets of others', async () => {
    const [owner, other] = [crypto.randomUUID(), crypto.randomUUID()];
    const wallet = { country: 'DE', ownerId: owner, currency: 'EUR', initialBalance: '150' };
    const { body } = await post('/wallets', owner, wallet);
    const path = `/wallets/${String(body['id'])}/deposit`;
    expect(await post(path, owner, { amount: '151' })).toMatchObject(problem(422, 'invalid-amount'));
    expect(await post(path, other, { amount: '151' })).toMatchObject(problem(404, 'wallet-not-found'));
  });
});

describe('a shard that does not answer', () => {
  const requestsMax = 4;
  let slow: ProxiedService;

  beforeAll(async () => {
    slow = await startProxiedService({
      mexico: { 'acquisition-timeout-ms': 30_000, 'statement-timeout-ms': 30_000 },
      http: { limits: { 'requests-per-shard-max': requestsMax } },
    });
  });
  afterAll(async () => {
    slow.proxy.resume();
    await slow.stop();
  });

  test('has only so many requests, while the other shard is served', async () => {
    const { service, proxy: network } = slow;
    const { client } = service;
    const [mexican, german] = [await client.openWallet({ country: 'MX' }), await client.openWallet()];
    // Slow clients do not count.
    const waiting = await Promise.all(Array.from({ length: requestsMax }, () => openTo(service)));
    for (const each of waiting) each.send(bodiless(`/wallets/${mexican.id}/deposit`));
    expect((await client.wallet(mexican.id)).version).toBe(1);
    network.silence();
    const running = Array.from({ length: requestsMax }, () => client.get(`/wallets/${mexican.id}`));
    const early = await openTo(service);
    await expect
      .poll(async () => (await early.send(bodiless(`/wallets/${mexican.id}/deposit`)).settled(1)).length, {
        interval: 50,
      })
      .toBe(1);
    const [refused] = early.answers;
    expect(refused).toMatchObject({ status: 503, headers: { 'retry-after': '1' } });
    expect(JSON.parse(refused?.body ?? '')).toMatchObject({
      code: 'shard-unavailable',
      detail: expect.stringMatching(/^Shard \(1, 0\) is unavailable: it is busy with 4 requests/),
    });
    const refusals = [
      await client.post('/wallets', { country: 'MX', ownerId: anOwner, currency: 'EUR' }),
      await client.get(`/wallets?ownerId=${anOwner}`),
      await client.post('/transfers', { sourceId: mexican.id, destId: german.id, amount: '1' }),
    ];
    for (const answer of refusals) expect(answer).toMatchObject(problem(503, 'shard-unavailable'));
    expect((await client.post(`/wallets/${german.id}/deposit`, { amount: '1' })).status).toBe(200);
    const reports = service.log.filter((line) => line.includes('it is busy with 4 requests'));
    // One, however many are refused.
    expect(reports).toMatchObject([expect.stringContaining('"msg":"requests are refused"')]);
    network.resume();
    expect((await Promise.all(running)).map(({ status }) => status)).toEqual(Array(requestsMax).fill(200));
    await expect.poll(async () => (await client.get(`/wallets/${mexican.id}`)).status).toBe(200);
  });
});

test('two hundred slow clients do not keep others from being served, and are refused in time', async () => {
  const service = await startTestService({
    http: {
      limits: { 'headers-timeout-ms': 2_000, 'request-timeout-ms': 3_000, 'answer-timeout-ms': 2_000 },
    },
  });
  try {
    const connect = (count: number): Promise<RawConnection[]> =>
      Promise.all(Array.from({ length: count }, () => openTo(service)));
    const [slowHeaders, slowBodies, unread] = [await connect(100), await connect(100), await connect(10)];
    for (const { socket } of unread) socket.pause();
    for (const each of slowHeaders) each.send('GET /health/live HTTP/1.1\r\nhost: x\r\nx: ');
    for (const each of slowBodies) each.send(bodiless('/wallets'));
    for (const each of unread) each.send(get('/docs/swagger-ui-bundle.js').repeat(10));
    const timer = setInterval(() => {
      for (const each of [...slowHeaders, ...slowBodies]) each.send(' ');
    }, 500);
    try {
      const { id } = await service.client.openWallet();
      for (let version = 2; version <= 20; version++) {
        const { status, body } = await service.client.post(`/wallets/${id}/deposit`, { amount: '1' });
        expect([status, body['version']]).toEqual([200, version]);
      }
      const answers = await Promise.all([...slowHeaders, ...slowBodies].map((each) => each.ended()));
      expect(new Set(answers.map(([answer]) => answer?.status))).toEqual(new Set([408]));
    } finally {
      clearInterval(timer);
    }
    for (const { socket } of unread) socket.destroy();
  } finally {
    await stopTestService(service);
  }
});
