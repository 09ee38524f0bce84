import { once } from 'node:events';
import { type IncomingMessage, type Server, type ServerResponse, createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, type Socket, connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

import { expect, onTestFinished, test, vi } from 'vitest';

import { testCertificate } from '../../test/test-tls.js';
import { Draining } from './draining.js';

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

interface Served {
  readonly stop: () => Promise<void>;
  readonly open: (text?: string) => Promise<Socket>;
}

/** Closes as frameworks do: with the methods of Node's server. */
async function serve(server: Server): Promise<Served> {
  const draining = new Draining(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const stop = (): Promise<void> => draining.close();
  onTestFinished(() => void server.close());
  return {
    stop,
    open: async (text = '') => {
      const socket = connect(port, '127.0.0.1');
      socket.on('error', () => undefined);
      onTestFinished(() => void socket.destroy());
      const accepted = once(server, 'connection');
      await once(socket, 'connect');
      await accepted;
      if (text !== '') socket.write(text);
      return socket;
    },
  };
}

const get = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n';
const half = 'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{';

/** Answers requests for reading only when the test says so. */
async function serveSlowly(): Promise<
  Served & { readonly reached: (count?: number) => Promise<void>; readonly go: () => void }
> {
  const waiting: ServerResponse[] = [];
  let count = 0;
  const answer: Answer = (request, response) => {
    count++;
    if (request.method === 'GET') waiting.push(response);
  };
  return {
    ...(await serve(createServer(answer))),
    reached: (wanted = 1) => vi.waitFor(() => expect(count).toBe(wanted)),
    go: () => waiting.forEach((response) => response.end('done')),
  };
}

async function textOf(socket: Socket): Promise<string> {
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  await once(socket, 'close');
  return Buffer.concat(chunks).toString();
}

test('a connection that never begins its handshake does not keep a server open', async () => {
  const served = await serve(createTlsServer(await testCertificate()));
  const text = textOf(await served.open());
  await served.stop();
  expect(await text).toBe('');
});

test('half a request that arrives while a server closes does not keep it open', async () => {
  const served = await serveSlowly();
  const text = textOf(await served.open(get));
  await served.reached();
  const late = await served.open();
  const stopped = served.stop();
  late.write(half);
  await served.reached(2);
  served.go();
  await stopped;
  expect(await text).toContain('done');
});

test('half a request behind one that runs does not cost that one its answer', async () => {
  const served = await serveSlowly();
  const text = textOf(await served.open(get + half));
  await served.reached(2);
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  onTestFinished(() => void vi.useRealTimers());
  let isStopped = false;
  void served.stop().then(() => (isStopped = true));
  vi.advanceTimersByTime(250);
  served.go();
  // Lets time pass as well.
  await vi.waitFor(() => expect(isStopped).toBe(true));
  expect(await text).toContain('done');
});

/** More than the buffers of the system hold. */
const largeBytes = 16_000_000;

/** A client that reads slowly, but without a pause of 2 s. */
async function countSlowly(socket: Socket, pauseMs: number): Promise<number> {
  let bytes = 0;
  for await (const chunk of socket) {
    bytes += (chunk as Buffer).length;
    await delay(pauseMs);
  }
  return bytes;
}

const wholly: Answer = (_request, response) => void response.end(Buffer.alloc(largeBytes));

const inParts: Answer = (_request, response) => {
  const parts = 64;
  let count = 0;
  const next = (): void => {
    if (++count > parts) response.end();
    else response.write(Buffer.alloc(largeBytes / parts), next);
  };
  next();
};

test.each([
  ['at once', wholly, 1],
  ['in parts', inParts, 14],
])(
  'a client that goes on reading gets all of an answer that was written %s',
  async (_how, answer, pauseMs) => {
    const served = await serve(createServer(answer));
    const socket = await served.open(get);
    const bytes = countSlowly(socket, pauseMs);
    await vi.waitFor(() => expect(socket.bytesRead).toBeGreaterThan(0));
    await served.stop();
    expect(await bytes).toBeGreaterThan(largeBytes);
  },
);

test('a client that reads nothing keeps a server open for 2 s only', async () => {
  const served = await serve(createServer(inParts));
  const socket = await served.open(get);
  await once(socket, 'readable');
  socket.pause();
  const begunMs = performance.now();
  await served.stop();
  expect(performance.now() - begunMs).toBeLessThan(4_000);
});
