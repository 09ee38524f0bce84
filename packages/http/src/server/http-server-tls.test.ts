import { once } from 'node:events';
import { type Socket, connect } from 'node:net';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { afterEach, beforeAll, expect, test } from 'vitest';

import { type TestCertificate, testCertificate } from '../../test/test-tls.js';
import { ClientAddresses } from '../security/client-address.js';
import { HttpServer, type HttpServerOptions, type ServerLimits } from './http-server.js';
import { httpSchema } from '../security/http-settings.js';

/** The beginning of a handshake: a record of which most is missing. */
const halfHello = Buffer.from([0x16, 0x03, 0x01, 0x40, 0x00, 0x01]);

let certificate: TestCertificate;
let server: HttpServer;
let answeredCount = 0;
const sockets: Socket[] = [];

beforeAll(async () => {
  certificate = await testCertificate();
});
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await server.close();
});

test('a server with a certificate has an address of https', async () => {
  await listen();
  expect(server.url).toMatch(/^https:/);
  expect(await (await fetch(server.url)).text()).toBe('hello');
});

test('a handshake ends at its deadline, whether or not bytes go on arriving', async () => {
  await listen({ headersTimeoutMs: 1_000 });
  const [silent, begun, sending] = [open(), open(), open()];
  for (const socket of [begun, sending]) socket.write(halfHello);
  const timer = setInterval(() => sending.write('x'), 50);
  for (const socket of [silent, begun, sending])
    await expect.poll(() => socket.resume().destroyed).toBe(true);
  clearInterval(timer);
});

test('the closing server does not wait for a handshake', async () => {
  await listen({ headersTimeoutMs: 600_000, requestTimeoutMs: 600_000 });
  const socket = open();
  socket.write(halfHello);
  // The server has accepted the first connection when it answers the second one.
  await fetch(server.url);
  await server.close();
  await expect.poll(() => socket.resume().destroyed).toBe(true);
  await listen();
});

test('plain HTTP is not answered where TLS is expected', async () => {
  await listen();
  const before = answeredCount;
  const socket = open();
  let received = '';
  socket.on('data', (bytes: Buffer) => (received += bytes.toString('latin1')));
  socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n');
  await once(socket, 'close');
  expect([received.includes('HTTP'), answeredCount - before]).toEqual([false, 0]);
});

test.each([
  ['TLSv1.2', 'TLSv1.1', 'refused'],
  ['TLSv1.2', 'TLSv1.2', 'TLSv1.2'],
  ['TLSv1.3', 'TLSv1.2', 'refused'],
  ['TLSv1.3', 'TLSv1.3', 'TLSv1.3'],
] as const)('with %s as the oldest version, a client of %s is %s', async (minVersion, version, expected) => {
  await listen({ tls: { ...certificate, minVersion } });
  expect(await protocolOf({ minVersion: version, maxVersion: version })).toBe(expected);
});

test('a renewed certificate is shown to new connections, and the others continue', async () => {
  await listen();
  const { hostname: host, port } = new URL(server.url);
  const early = connectTls({ host, port: Number(port) });
  sockets.push(early);
  await once(early, 'secureConnect');
  const renewed = await testCertificate();
  server.renewCertificate(renewed);
  const late = connectTls({ host, port: Number(port), ca: renewed.cert });
  sockets.push(late);
  await once(late, 'secureConnect');
  early.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n');
  expect(String(await once(early, 'data'))).toMatch(/^HTTP\/1.1 200 OK/);
});

async function listen({
  tls = certificate,
  ...limits
}: Partial<ServerLimits & Pick<HttpServerOptions, 'tls'>> = {}): Promise<void> {
  const byDefault = httpSchema.parse({}).limits;
  server = await HttpServer.listen(
    {
      fetch: () => {
        answeredCount++;
        return new Response('hello');
      },
      refuse: () => new Response(null, { status: 400 }),
      describe: () => new Response(null, { status: 204 }),
    },
    {
      host: '127.0.0.1',
      port: 0,
      tls,
      limits: { ...byDefault, ...limits },
      clients: new ClientAddresses({ trustedProxies: [], unlimited: byDefault.unlimitedAddresses }),
    },
  );
}

function open(): Socket {
  const { hostname: host, port } = new URL(server.url);
  const socket = connect({ host, port: Number(port) });
  socket.on('error', () => undefined);
  sockets.push(socket);
  return socket;
}

/** The version that client and server agree on. */
async function protocolOf(options: ConnectionOptions): Promise<string | null> {
  const { hostname: host, port } = new URL(server.url);
  // TLS 1.1 is refused by the client itself otherwise.
  const socket = connectTls({ host, port: Number(port), ciphers: 'DEFAULT:@SECLEVEL=0', ...options });
  sockets.push(socket);
  return once(socket, 'secureConnect').then(
    () => socket.getProtocol(),
    () => 'refused',
  );
}
