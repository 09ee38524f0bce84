import { once } from 'node:events';
import { type Socket, connect } from 'node:net';
import { connect as connectTls } from 'node:tls';

import { expect, onTestFinished, test, vi } from 'vitest';

import { leftBehind } from '../../../core/test/left-behind.js';
import { testCertificate } from '../../test/test-tls.js';
import { ClientAddresses } from '../security/client-address.js';
import { HttpServer } from './http-server.js';
import { httpSchema } from '../security/http-settings.js';

/** Longer than the server waits for clients: the timeouts below, a second between two checks, and 2 s after a last answer. */
const patienceMs = 4_000;

interface Served {
  readonly open: (options?: { readonly isSecure?: boolean }) => Promise<Socket>;
  /** Waits for a request to `/slow`, and ends it once the client has left. */
  readonly answerSlow: (leave: () => void) => Promise<void>;
}

/** @param isImpatient whether clients that leave in silence are noticed soon; timers that stay would be over as soon */
async function serve(isTls: boolean, isImpatient = false): Promise<Served> {
  const { limits, trustedProxies } = httpSchema.parse({
    limits: isImpatient ? { headersTimeoutMs: 300, requestTimeoutMs: 300, idleTimeoutMs: 100 } : {},
  });
  const slow: (() => void)[] = [];
  const certificate = isTls ? await testCertificate() : undefined;
  const server = await HttpServer.listen(
    {
      fetch: async (request, { body, pause }) => {
        const { pathname } = new URL(request.url);
        if (pathname === '/slow') await new Promise<void>((resolve) => slow.push(resolve));
        if (pathname === '/pause') pause(20);
        if (request.method === 'POST') await body.read();
        return new Response('small');
      },
      refuse: () => new Response('refused', { status: 400 }),
      describe: () => new Response(null, { status: 204 }),
    },
    {
      host: '127.0.0.1',
      port: 0,
      limits,
      ...(certificate && { tls: certificate }),
      clients: new ClientAddresses({ trustedProxies, unlimited: [] }),
    },
  );
  onTestFinished(() => server.close());
  const port = Number(new URL(server.url).port);
  return {
    answerSlow: async (leave) => {
      await vi.waitFor(() => expect(slow).toHaveLength(1));
      leave();
      slow.splice(0).forEach((answer) => answer());
    },
    open: async ({ isSecure = isTls } = {}) => {
      const options = { port, host: '127.0.0.1', rejectUnauthorized: false };
      const socket = isSecure ? connectTls(options) : connect(options);
      socket.on('error', () => undefined);
      await once(socket, isSecure ? 'secureConnect' : 'connect');
      return socket;
    },
  };
}

const get = (path: string): string => `GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`;

/** What clients do, one after the other, on a connection of its own each. */
const clients: Readonly<Record<string, (socket: Socket, served: Served) => Promise<void>>> = {
  'leave after their answers': async (socket) => {
    socket.write(get('/') + get('/'));
    await once(socket, 'data');
  },
  'send a body': async (socket) => {
    socket.write('POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}');
    await once(socket, 'data');
  },
  'leave during their body': async (socket) => {
    socket.write('POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{}');
    await new Promise((resolve) => socket.write('x', resolve));
  },
  'leave before their answer': async (socket, { answerSlow }) => {
    socket.write(get('/slow'));
    await answerSlow(() => socket.destroy());
  },
  'are paused': async (socket) => {
    let answers = '';
    socket.on('data', (bytes: Buffer) => (answers += bytes.toString()));
    socket.write(get('/pause') + get('/'));
    await vi.waitFor(() => expect(answers.split('small')).toHaveLength(3));
  },
  'send what is no request': async (socket) => {
    socket.resume().write('no request\r\n\r\n');
    await once(socket, 'end');
  },
  'ask for the end': async (socket) => {
    socket.resume().write('GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
    await once(socket, 'end');
  },
  'send nothing': async () => undefined,
};

async function roundOf(
  served: Served,
  behave: (socket: Socket, served: Served) => Promise<void>,
): Promise<void> {
  const socket = await served.open();
  await behave(socket, served);
  socket.destroy();
  if (!socket.closed) await once(socket, 'close');
}

test.each([false, true].flatMap((isTls) => Object.keys(clients).map((what) => [isTls, what] as const)))(
  'with TLS (%s), clients that %s leave nothing behind',
  async (isTls, what) => {
    const served = await serve(isTls, what === 'send nothing');
    expect(await leftBehind(() => roundOf(served, clients[what]!), { patienceMs })).toEqual([]);
  },
);

test('clients that leave during the handshake leave nothing behind', async () => {
  const served = await serve(true, true);
  const left = await leftBehind(
    async () => {
      const socket = await served.open({ isSecure: false });
      await new Promise((resolve) =>
        socket.write(Buffer.from([0x16, 0x03, 0x01, 0x40, 0x00, 0x01]), resolve),
      );
      socket.destroy();
      await once(socket, 'close');
    },
    { patienceMs },
  );
  expect(left).toEqual([]);
});
