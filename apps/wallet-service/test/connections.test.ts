import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { RawConnection } from './raw-connection.js';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';

let service: TestService;
const opened: RawConnection[] = [];

beforeAll(async () => {
  service = await startTestService();
});
afterEach(() => {
  for (const connection of opened.splice(0)) connection.close();
});
afterAll(() => stopTestService(service));

const one = '{"amount":"1"}';
const get = (path: string) => `GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`;
const post = (path: string, ...headers: readonly string[]) =>
  [`POST ${path} HTTP/1.1`, 'host: x', 'content-type: application/json', ...headers, '', ''].join('\r\n');

describe('a deposit that was read is answered before its connection ends', () => {
  test.each([
    ['malformed text', 'no request at all\r\n\r\n'],
    ['a header without a name', 'GET /health/live HTTP/1.1\r\n: x\r\n\r\n'],
    ['headers that are too large', `GET /health/live HTTP/1.1\r\nx: ${'x'.repeat(20_000)}`],
    ['a tunnel', 'CONNECT x:80 HTTP/1.1\r\nhost: x\r\n\r\n'],
  ])('when it is followed by %s', async (_what, garbage) => {
    const { id, deposit } = await aDeposit();
    const connection = await open();
    const [answer, ...more] = await connection.send(deposit + garbage).ended();
    expect(answer).toMatchObject({ status: 200, headers: { connection: 'close' } });
    expect([more, connection.rest]).toEqual([[], '']);
    expect((await service.client.wallet(id)).balance).toBe('101');
  });

  test('even with Connection: close, and no later request is executed', async () => {
    const { id, deposit } = await aDeposit();
    const connection = await open();
    await connection.send(deposit.replace('host: x', 'host: x\r\nconnection: close') + deposit).ended();
    expect(connection.statuses).toEqual([200]);
    expect((await service.client.wallet(id)).balance).toBe('101');
  });

  test('when the next request has a malformed body and is refused', async () => {
    const { id, deposit } = await aDeposit();
    const connection = await open();
    const broken = `${post(`/wallets/${id}/deposit`, 'transfer-encoding: chunked')}zz\r\n`;
    const [, refused] = await connection.send(deposit + broken).ended();
    expect(connection.statuses).toEqual([200, 400]);
    expectLoggedProblem(refused);
    expect((await service.client.wallet(id)).balance).toBe('101');
  });
});

describe('an incomplete request', () => {
  test.each([
    ['its headers', (path: string) => `POST ${path} HTTP/1.1\r\nhost: x`],
    ['its body', (path: string) => `${post(path, 'content-length: 14')}{"amount":`],
    ['its chunks', (path: string) => `${post(path, 'transfer-encoding: chunked')}e\r\n${one}\r\n`],
  ])('is refused when the client closes its side within %s', async (_what, half) => {
    const { id } = await aDeposit();
    const connection = await open();
    const [answer] = await connection
      .send(half(`/wallets/${id}/deposit`))
      .halfClose()
      .ended();
    expect(connection.statuses).toEqual([400]);
    expectLoggedProblem(answer);
    expect((await service.client.wallet(id)).balance).toBe('100');
  });
});

describe('a limit', () => {
  test.each([
    ['announced', 'content-length: 1000000000', ''],
    ['sent in chunks', 'transfer-encoding: chunked', `1fff0\r\n${'x'.repeat(0x1fff0)}\r\n`.repeat(6)],
  ])('on bodies takes effect before the body ends: %s', async (_what, header, sent) => {
    const connection = await open();
    const [answer] = await connection.send(post('/wallets', header) + sent).answered();
    expect(connection.statuses).toEqual([413]);
    expectLoggedProblem(answer);
  });

  test.each([
    ['too large', ['content-length: 65537'], 413],
    ['of another type', ['content-length: 2', 'content-encoding: gzip'], 415],
  ])('on bodies applies before 100 Continue: %s', async (_what, headers, status) => {
    const connection = await open();
    let received = '';
    connection.socket.on('data', (chunk: Buffer) => (received += chunk.toString()));
    await connection.send(post('/wallets', 'expect: 100-continue', ...headers)).ended();
    expect(connection.statuses).toEqual([status]);
    expect(received).not.toContain('100 Continue');
  });

  test('on bodies keeps no client from an answer that needs none', async () => {
    const connection = await open();
    const body = 'x'.repeat(500_000);
    const request = `GET /health/live HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n`;
    await connection.send(request + body + get('/health/live')).answered(2);
    expect(connection.statuses).toEqual([200, 200]);
  });

  test('on bodies does not reset a client that is still sending, however much its connection has carried before', async () => {
    const connection = await open();
    for (let count = 1; count <= 20; count++) {
      await connection.send(post('/wallets', 'content-length: 60000') + ' '.repeat(60_000)).answered(count);
      expect(connection.statuses.at(-1)).toBe(400);
    }
    let isReset = false;
    connection.socket.on('error', () => (isReset = true));
    await connection.send(post('/wallets', 'content-length: 1000000000')).answered(21);
    expect(connection.statuses.at(-1)).toBe(413);
    let sentCount = 0;
    const hasSentEnough = (): boolean => {
      connection.send('x');
      return isReset || ++sentCount > 20;
    };
    await vi.waitUntil(hasSentEnough, { timeout: 30_000, interval: 20 });
    expect(isReset).toBe(false);
  });

  test('on bodies keeps the connection after chunks that are not read', async () => {
    const connection = await open();
    const unread = 'POST /nothing HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n';
    await connection.send(unread).answered();
    await connection.send(`2\r\n{}\r\n0\r\n\r\n${get('/health/live')}`).answered(2);
    expect(connection.statuses).toEqual([404, 200]);
  });

  test.each([
    ['a header', 'GET / HTTP/1.1\r\nhost: x\r\nx: '],
    ['an address', 'GET /'],
    ['a trailer', `${post('/wallets', 'transfer-encoding: chunked')}2\r\n{}\r\n0\r\nx: `],
  ])('on headers takes effect before they end: %s', async (_what, beginning) => {
    const connection = await open();
    const [answer] = await connection.send(beginning + 'x'.repeat(500_000)).ended();
    expect(connection.statuses).toEqual([431]);
    expectLoggedProblem(answer);
  });

  test.each([
    ['16 KiB', { bytes: 16_000, count: 1 }, { bytes: 16_500, count: 1 }],
    ['1,000 headers', { bytes: 6_000, count: 998 }, { bytes: 6_000, count: 999 }],
  ])('on headers takes effect beyond it: %s', async (_what, within, beyond) => {
    const connection = await open();
    await connection.send(getWith(within)).answered();
    const [, answer] = await connection.send(getWith(beyond)).ended();
    expect(connection.statuses).toEqual([200, 431]);
    expectLoggedProblem(answer);
  });

  test('on bodies counts the bytes of chunks, however short they are', async () => {
    const connection = await open();
    const chunked = post('/wallets', 'transfer-encoding: chunked');
    const space = '1\r\n \r\n';
    await connection.send(`${chunked}${space.repeat(65_534)}2\r\n{}\r\n0\r\n\r\n`).answered();
    const [, answer] = await connection.send(chunked + space.repeat(65_537)).answered(2);
    expect(connection.statuses).toEqual([400, 413]);
    expectLoggedProblem(answer);
  });
});

describe('pipelined requests', () => {
  test('are all answered in order, while other connections have their turn', async () => {
    const { deposit } = await aDeposit();
    const [pipelining, other] = await Promise.all([open(), open()]);
    pipelining.send((deposit + get('/nothing')).repeat(8));
    await pipelining.answered();
    await other.send(get('/health/live')).answered();
    expect(pipelining.statuses.length).toBeLessThan(16);
    await pipelining.answered(16);
    expect(pipelining.statuses).toEqual(Array.from({ length: 8 }, () => [200, 404]).flat());
  });

  test('wait until the client reads the answers', async () => {
    const path = '/docs/swagger-ui-bundle.js';
    const [pipelining, other] = await Promise.all([open(), open()]);
    pipelining.socket.pause();
    pipelining.send(get(path).repeat(16));
    for (let count = 1; count <= 100; count += 1) await other.send(get('/openapi.json')).answered(count);
    expect(service.log.filter((line) => line.includes(path)).length).toBeLessThan(16);
  });

  test('with bodies take effect one after the other', async () => {
    const { id, deposit } = await aDeposit();
    const connection = await open();
    const answers = await connection.send(deposit.repeat(16)).answered(16);
    const versions = answers.map(({ body }) => (JSON.parse(body) as { readonly version: number }).version);
    expect(versions).toEqual(Array.from({ length: 16 }, (_, index) => index + 2));
    expect((await service.client.wallet(id)).balance).toBe('116');
  });
});

test('a request to upgrade the protocol is answered over HTTP/1.1, and its connection ends', async () => {
  const connection = await open();
  const request = get('/health/live').replace(
    'host: x',
    'host: x\r\nupgrade: websocket\r\nconnection: upgrade',
  );
  const [answer] = await connection.send(`${request}no request\r\n\r\n`).ended();
  expect(answer).toMatchObject({ status: 200, headers: { connection: 'close' } });
});

test.each([
  [
    'chunks in HTTP/1.0',
    'POST /wallets HTTP/1.0\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n',
  ],
  ['two hosts', 'POST /wallets HTTP/1.1\r\nhost: x\r\nhost: y\r\ncontent-length: 2\r\n\r\n{}'],
])('a request that cannot be read as HTTP/1.1 is the last of its connection: %s', async (_what, text) => {
  const connection = await open();
  await connection.send(get('/health/live') + text + get('/health/live').repeat(2)).ended();
  expect(connection.statuses).toEqual([200, 400]);
});

test('a request of HTTP/1.0 needs no host, and its connection ends', async () => {
  const connection = await open();
  await connection.send('GET /health/live HTTP/1.0\r\n\r\n').ended();
  expect(connection.statuses).toEqual([200]);
});

async function open(): Promise<RawConnection> {
  const connection = await RawConnection.open(service.url);
  opened.push(connection);
  return connection;
}

/** A request with this many bytes, and this many headers besides two others. */
function getWith({ bytes, count }: { readonly bytes: number; readonly count: number }): string {
  const many = get('/health/live').replace('\r\n\r\n', `\r\n${'a: \r\n'.repeat(count)}x: \r\n\r\n`);
  return many.replace('x: ', `x: ${'x'.repeat(bytes - many.length)}`);
}

/** A wallet with 100, and a request that deposits 1 into it. */
async function aDeposit(): Promise<{ readonly id: string; readonly deposit: string }> {
  const { id } = await service.client.openWallet();
  return { id, deposit: post(`/wallets/${id}/deposit`, `content-length: ${one.length}`) + one };
}

function expectLoggedProblem(answer: RawConnection['answers'][number] | undefined): void {
  const { status, headers, body } = answer ?? { status: 0, headers: {}, body: '{}' };
  const requestId = headers['x-request-id'] ?? 'none';
  expect(headers['content-type']).toBe('application/problem+json');
  expect(JSON.parse(body)).toMatchObject({ status, code: 'bad-request', instance: `urn:uuid:${requestId}` });
  expect(service.log.some((line) => line.includes(requestId))).toBe(true);
}
