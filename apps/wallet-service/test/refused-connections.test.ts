import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';
import { openSocket } from '../../../packages/http/test/test-tls.js';

let service: TestService;

beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => stopTestService(service));

const big = 'a'.repeat(20_000);
const wallet = '{"country":"DE","ownerId":"7c9e6679-7425-40de-944b-e07fc1f90ae7","currency":"EUR"}';
const posted = `content-type: application/json\r\ncontent-length: ${wallet.length}`;

describe('input that never becomes a request', () => {
  test.each([
    ['a malformed host', 400, 'GET /wallets HTTP/1.1\r\nhost: a b\r\n\r\n'],
    ['a host with a path', 400, 'GET /wallets HTTP/1.1\r\nhost: x/y?z\r\n\r\n'],
    ['a host with a path that is as long as its address', 400, 'GET /live HTTP/1.1\r\nhost: 1.1/aaa\r\n\r\n'],
    ['no host', 400, 'GET /wallets HTTP/1.1\r\n\r\n'],
    ['two hosts', 400, 'GET /wallets HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n'],
    ['a backslash in the path', 400, 'GET /\\wallets HTTP/1.1\r\nhost: x\r\n\r\n'],
    ['an address without a slash', 400, 'GET wallets HTTP/1.1\r\nhost: x\r\n\r\n'],
    ['an asterisk with another method than OPTIONS', 400, 'GET * HTTP/1.1\r\nhost: x\r\n\r\n'],
    ['no HTTP', 400, 'HELLO\r\n\r\n'],
    ['another protocol', 400, 'GET /wallets GOPHER/1.1\r\nhost: x\r\n\r\n'],
    ['an unknown method', 400, 'BREW /wallets HTTP/1.1\r\nhost: x\r\n\r\n'],
    ['a header without a name', 400, 'GET /wallets HTTP/1.1\r\nhost: x\r\n: y\r\n\r\n'],
    [
      'two lengths',
      400,
      'POST /wallets HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n',
    ],
    [
      'a length and chunks',
      400,
      'POST /wallets HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n',
    ],
    [
      'chunks in HTTP/1.0',
      400,
      'POST /wallets HTTP/1.0\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n',
    ],
    [
      'chunks of something compressed',
      400,
      'POST /wallets HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n',
    ],
    [
      'malformed chunks',
      400,
      'POST /wallets HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n',
    ],
    ['headers beyond 16 KiB', 431, `GET /wallets HTTP/1.1\r\nhost: x\r\nx-a: ${big}\r\n\r\n`],
    ['an address beyond 16 KiB', 431, `GET /${big} HTTP/1.1\r\nhost: x\r\n\r\n`],
    [
      'another expectation',
      417,
      `POST /wallets HTTP/1.1\r\nhost: x\r\nexpect: coffee\r\n${posted}\r\n\r\n${wallet}`,
    ],
    ['a tunnel', 405, 'CONNECT x:80 HTTP/1.1\r\nhost: x\r\n\r\n'],
    [
      'two idempotency keys',
      400,
      `POST /wallets HTTP/1.1\r\nhost: x\r\nidempotency-key: a\r\nIdempotency-Key: b\r\n${posted}\r\n\r\n${wallet}`,
    ],
  ])('is answered with a problem whose id is in the log: %s', async (_what, status, text) => {
    const answer = await exchange(text);
    expect(answer).toMatchObject({
      status,
      headers: { 'content-type': 'application/problem+json', 'x-content-type-options': 'nosniff' },
    });
    const { body, headers } = answer;
    const id = headers['x-request-id'] ?? '';
    expect(id).toMatch(/^[0-9a-f-]{36}$/);
    const code = status === 405 ? 'method-not-allowed' : 'bad-request';
    expect(JSON.parse(body)).toMatchObject({ status, code, instance: `urn:uuid:${id}` });
    expect(service.log.some((line) => line.includes(id))).toBe(true);
  });

  test('may concern the server as a whole, which lists its methods', async () => {
    const { status, headers, body } = await exchange('OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n');
    expect([status, headers['allow'], body]).toEqual([204, 'GET, HEAD, POST, OPTIONS', '']);
    expect(headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/);
  });
});

describe('an unusual request', () => {
  test.each([
    ['in absolute form', 404, 'GET http://evil/nothing HTTP/1.1\r\nhost: x\r\n\r\n'],
    ['with a double slash', 404, 'GET //wallets HTTP/1.1\r\nhost: x\r\n\r\n'],
    ['with a bad escape', 400, 'GET /wallets/%E0%A4%A HTTP/1.1\r\nhost: x\r\n\r\n'],
    ['by TRACE', 405, 'TRACE /wallets HTTP/1.1\r\nhost: x\r\n\r\n'],
    [
      'that asks for another protocol',
      404,
      'GET /no HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n',
    ],
    ['by HEAD', 404, 'HEAD /nothing HTTP/1.1\r\nhost: x\r\n\r\n'],
    [
      'that waits for leave to send its body',
      201,
      `POST /wallets HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n${posted}\r\n\r\n${wallet}`,
    ],
  ])('is answered with its id: %s', async (_what, status, text) => {
    const answer = await exchange(text);
    expect(answer.status).toBe(status);
    expect(answer.headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/);
    const type = status < 300 ? 'application/json' : 'application/problem+json';
    expect(answer.headers['content-type']).toBe(type);
  });
});

/** Sends raw bytes, and reads the answer until it is complete. */
async function exchange(text: string) {
  const { socket } = await openSocket(service.url);
  return new Promise<{ status: number; headers: Record<string, string>; body: string }>((resolve, reject) => {
    let received = '';
    const settle = (isOver: boolean): void => {
      const answer = received.replace(/^HTTP\/1\.1 100 Continue\r\n\r\n/, '');
      const [head = '', body = ''] = answer.split('\r\n\r\n');
      const [statusLine = '', ...lines] = head.split('\r\n');
      const headers = Object.fromEntries(
        lines.map((line) => [
          line.slice(0, line.indexOf(':')).toLowerCase(),
          line.slice(line.indexOf(':') + 2),
        ]),
      );
      const isComplete =
        answer.includes('\r\n\r\n') &&
        (text.startsWith('HEAD') || body.length >= Number(headers['content-length'] ?? 0));
      if (!isComplete && !isOver) return;
      socket.destroy();
      if (isComplete) resolve({ status: Number(statusLine.split(' ')[1]), headers, body });
      else reject(new Error(`The connection ended after ${JSON.stringify(received)}`));
    };
    socket.on('data', (data: Buffer) => {
      received += data.toString('latin1');
      settle(false);
    });
    socket.on('error', reject);
    socket.on('close', () => settle(true));
    socket.write(text);
  });
}
