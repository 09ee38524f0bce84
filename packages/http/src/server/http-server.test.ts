import { channel } from 'node:diagnostics_channel';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';

import { openSocket, overTls, testCertificate } from '../../test/test-tls.js';
import { ClientAddresses } from '../security/client-address.js';
import { HttpServer, type ServerLimits } from './http-server.js';
import { httpSchema } from '../security/http-settings.js';
import { type FrameworkProblem, frameworkProblems } from '../problem/framework-problems.js';
import { ProblemError } from '../problem/problem-error.js';

/** The number of chunks in a large answer: more than the buffers of a connection can hold. */
const largeChunks = 32;
const chunk = Buffer.alloc(1024 * 1024, 'x');
/** An answer that is sent in a single write. */
const whole = 'x'.repeat(16 * chunk.length);
const get = (path: string) => `GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`;

let close: (() => Promise<void>) | undefined;

afterEach(() => close?.());

test('a client loses its connection only when it reads nothing of an answer', async () => {
  const server = await start({ answerTimeoutMs: 2_000 });
  const open = (): Promise<Socket> => server.connect();
  const [slow, reading, stalled] = await Promise.all([open(), open(), open()]);
  slow.write(get('/slow'));
  reading.resume().write(get('/large'));
  stalled.pause();
  stalled.write(get('/large'));
  // By then the timeout of the slow client has passed as well.
  await expect.poll(server.droppedCount).toBe(1);
  await expect.poll(() => reading.bytesRead).toBeGreaterThan(largeChunks * chunk.length);
  server.answerSlow();
  const [answer] = (await once(slow, 'data')) as [Buffer];
  expect(answer.toString()).toMatch(/^HTTP\/1.1 200 OK/);
});

test.each([
  ['requests', get('/counted').repeat(1_500)],
  [
    'bytes',
    `POST /counted HTTP/1.1\r\nhost: x\r\ncontent-length: 40000\r\n\r\n${'x'.repeat(40_000)}`.repeat(8),
  ],
])(
  'a connection on which too many %s wait is closed, and nothing of them is served',
  async (_what, waiting) => {
    const server = await start({});
    const [pipelining, other] = await Promise.all([answersOf(server), answersOf(server)]);
    pipelining.socket.write(get('/slow') + waiting);
    await expect.poll(() => pipelining.socket.destroyed).toBe(true);
    server.answerSlow();
    other.socket.write(get('/counted'));
    await expect.poll(other.statuses).toEqual([200]);
    expect([pipelining.statuses(), server.countedCount()]).toEqual([[], 1]);
  },
);

test('a client that closes its side before its answer gets none', async () => {
  const server = await start({});
  const gone = await answersOf(server);
  gone.socket.end(get('/slow') + get('/counted'));
  await expect.poll(() => gone.socket.destroyed).toBe(true);
  server.answerSlow();
  const other = await answersOf(server);
  other.socket.write(get('/'));
  await expect.poll(other.statuses).toEqual([200]);
  expect([gone.statuses(), server.countedCount()]).toEqual([[], 0]);
});

test.each([
  ['spaces before a value', 'GET / HTTP/1.1\r\nhost: x\r\nx: ', ' '],
  ['spaces before an address', 'GET ', ' '],
  ['empty lines before a request', '', '\r\n'],
  [
    'zeros before the size of a chunk',
    'POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n',
    '0',
  ],
])('what has no limit of bytes ends with the time of a request: %s', async (_what, beginning, filling) => {
  const server = await start({ headersTimeoutMs: 500, requestTimeoutMs: 500 });
  const { socket, statuses } = await answersOf(server);
  socket.write(beginning);
  const sending = setInterval(() => socket.write(filling.repeat(50_000)), 20);
  try {
    await once(socket, 'end');
  } finally {
    clearInterval(sending);
  }
  expect(statuses()).toEqual([408]);
});

test('a client that does not send the rest of a refused body loses its connection', async () => {
  const server = await start({ headersTimeoutMs: 500, requestTimeoutMs: 500 });
  const { socket, statuses } = await answersOf(server);
  socket.write('POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\nx');
  await expect.poll(statuses).toEqual([413]);
  await expect.poll(() => socket.destroyed).toBe(true);
  expect(statuses()).toEqual([413]);
});

test('malformed input is refused only after an answer that had already begun', async () => {
  const server = await start({});
  const { socket, statuses } = await answersOf(server);
  socket.write(get('/large'));
  await once(socket, 'data');
  socket.pause();
  socket.write('no request\r\n\r\n');
  // The answer is not read to its end before the rest of the request has been read.
  await expect.poll(server.refusedCount).toBe(1);
  socket.resume();
  await once(socket, 'end');
  expect(statuses()).toEqual([200, 400]);
});

test('an answer in progress is sent to its end when the server closes', async () => {
  const server = await start({});
  const [reading, idle] = await Promise.all([server.connect(), server.connect()]);
  idle.write(get('/'));
  await once(idle, 'data');
  let bytesReceived = 0;
  reading.on('data', (bytes: Buffer) => (bytesReceived += bytes.length));
  reading.write(get('/whole'));
  await once(reading, 'data');
  // The whole answer has been written by then, and most of it waits for the client.
  reading.pause();
  const closed = server.close();
  await once(idle, 'end');
  reading.resume();
  await once(reading, 'end');
  await closed;
  expect(bytesReceived).toBeGreaterThan(whole.length);
});

test('the closing server does not wait for a client that reads nothing of its answer', async () => {
  const server = await start({ answerTimeoutMs: 600_000 });
  const [stalled, idle] = await Promise.all([server.connect(), server.connect()]);
  stalled.pause();
  stalled.write(get('/slow/whole'));
  idle.write(get('/'));
  await once(idle, 'data');
  const closed = server.close();
  await once(idle, 'end');
  server.answerSlow();
  expect(await closed).toBeUndefined();
}, 30_000);

describe('a request that waits for an earlier one', () => {
  const timeouts = { headersTimeoutMs: 1_000, requestTimeoutMs: 2_000 };
  const head = 'POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3000\r\n\r\n';
  const twoBefore = get('/slow') + get('/');

  test.each([
    ['its headers', get('/').repeat(10), 12],
    ['its body', head + 'x'.repeat(3_000), 3],
  ])('is answered even if the time for %s passes meanwhile', async (_what, rest, count) => {
    const server = await start(timeouts);
    const waiting = await answersOf(server);
    waiting.socket.write(twoBefore + rest);
    await timesPassed(server);
    server.answerSlow();
    await expect.poll(waiting.statuses).toEqual(Array(count).fill(200));
  });

  test.each([
    ['header', 'GET / HTTP/1.1\r\nhost:', [200, 200]],
    ['body', `${head}x`, [200, 200, 408]],
  ])('is refused if not all of its %s arrives in time', async (_what, beginning, expected) => {
    const server = await start(timeouts);
    const late = await answersOf(server);
    late.socket.write(twoBefore + beginning);
    await timesPassed(server);
    server.answerSlow();
    await once(late.socket, 'end');
    expect(late.statuses()).toEqual(expected);
  });

  /** Waits until both timeouts have passed for all connections that already existed. */
  async function timesPassed(server: TestServer): Promise<void> {
    const late = await server.connect();
    late.resume().write(`${head}x`);
    await once(late, 'end');
  }
});

test.each([
  ['in part', '{'],
  ['as a whole', '{"amount":"1"}'],
])('no request waits for a body that had arrived %s when its client left', async (_what, sent) => {
  const server = await start({});
  const gone = await server.connect();
  const requests = channel('http.server.request.start');
  const request = Promise.withResolvers<IncomingMessage>();
  const onStart = (message: unknown): void =>
    request.resolve((message as { readonly request: IncomingMessage }).request);
  requests.subscribe(onStart);
  try {
    gone.write(`POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 14\r\n\r\n${sent}`);
    const { socket } = await request.promise;
    server.reset(gone);
    await expect.poll(() => socket.destroyed).toBe(true);
  } finally {
    requests.unsubscribe(onStart);
  }
  server.answerSlow();
  await expect.poll(server.refusedCount).toBe(1);
  expect(server.readingCount()).toBe(0);
});

test('connections beyond the maximum are closed, and the others continue', async () => {
  const server = await start({ connectionsMax: 1 });
  const first = await server.connect();
  const second = await server.connect();
  await expect.poll(() => second.resume().destroyed).toBe(true);
  first.write(get('/'));
  const [answer] = (await once(first, 'data')) as [Buffer];
  expect(answer.toString()).toMatch(/^HTTP\/1.1 200 OK/);
});

/** A connection, and the statuses of the answers that have arrived. */
async function answersOf(
  server: TestServer,
): Promise<{ readonly socket: Socket; readonly statuses: () => readonly number[] }> {
  const socket = await server.connect();
  let received = '';
  socket.on('data', (bytes: Buffer) => (received += bytes.toString('latin1')));
  return {
    socket,
    statuses: () => [...received.matchAll(/HTTP\/1.1 (\d+)/g)].map(([, status]) => Number(status)),
  };
}

interface TestServer {
  readonly connect: (options?: { readonly allowHalfOpen: boolean }) => Promise<Socket>;
  /** Ends a client's connection at once, without a goodbye. */
  readonly reset: (socket: Socket) => void;
  readonly close: () => Promise<void>;
  readonly answerSlow: () => void;
  /** How many answers were not read to their end. */
  readonly droppedCount: () => number;
  /** How many requests were refused. */
  readonly refusedCount: () => number;
  /** How many requests to `/counted` were served. */
  readonly countedCount: () => number;
  /** How many requests wait for their bodies. */
  readonly readingCount: () => number;
}

/**
 * A server that answers `/large` with a lot of data in chunks, `/whole` with a lot at once, and paths below `/slow` on request.
 */
async function start(limits: Partial<ServerLimits>): Promise<TestServer> {
  const { limits: byDefault, trustedProxies } = httpSchema.parse({});
  const slow = Promise.withResolvers<undefined>();
  const tcpOf = new Map<Socket, Socket>();
  let droppedCount = 0;
  let refusedCount = 0;
  let readingCount = 0;
  let countedCount = 0;
  const large = (): ReadableStream => {
    let count = 0;
    return new ReadableStream({
      pull: (controller) => (count++ < largeChunks ? controller.enqueue(chunk) : controller.close()),
      cancel: () => void droppedCount++,
    });
  };
  const server = await HttpServer.listen(
    {
      fetch: async (request, { body }) => {
        const { pathname } = new URL(request.url);
        if (pathname.startsWith('/slow')) await slow.promise;
        if (pathname === '/counted') countedCount++;
        if (request.method === 'POST') {
          readingCount++;
          await body.read().finally(() => readingCount--);
        }
        if (pathname.endsWith('/whole')) return new Response(whole);
        return new Response(pathname === '/large' ? large() : 'small');
      },
      refuse: (error) => {
        refusedCount++;
        const code = error instanceof ProblemError ? error.code : 'internal';
        return new Response(null, { status: frameworkProblems[code as FrameworkProblem].status });
      },
      describe: () => new Response(null, { status: 204 }),
    },
    {
      host: '127.0.0.1',
      port: 0,
      limits: { ...byDefault, ...limits },
      ...(overTls && { tls: await testCertificate() }),
      clients: new ClientAddresses({ trustedProxies, unlimited: byDefault.unlimitedAddresses }),
    },
  );
  close = async () => {
    slow.resolve(undefined);
    for (const socket of tcpOf.keys()) socket.destroy();
    await server.close();
  };
  const open = async (socketOptions = {}): Promise<Socket> => {
    const { socket, tcp } = await openSocket(server.url, socketOptions);
    tcpOf.set(socket, tcp);
    return socket;
  };
  return {
    connect: open,
    // While a write is in progress, the connection would be closed without a reset.
    reset: (socket) => void setImmediate(() => tcpOf.get(socket)?.resetAndDestroy()),
    close: () => server.close(),
    answerSlow: () => slow.resolve(undefined),
    droppedCount: () => droppedCount,
    refusedCount: () => refusedCount,
    countedCount: () => countedCount,
    readingCount: () => readingCount,
  };
}
