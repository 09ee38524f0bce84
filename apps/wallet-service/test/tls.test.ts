import { once } from 'node:events';
import { type TLSSocket, connect } from 'node:tls';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';
import {
  type CertificateFiles,
  certificateFiles,
  testCertificate,
} from '../../../packages/http/test/test-tls.js';

let files: CertificateFiles;
let service: TestService;

beforeAll(async () => {
  files = await certificateFiles(await testCertificate());
  service = await startTestService({
    http: { tls: files.section, cors: { origins: ['https://app.example'] } },
  });
});
afterAll(async () => {
  await stopTestService(service);
  await files.remove();
});

test('the service with a certificate does everything over TLS, and tells browsers to stay with it', async () => {
  expect(service.url).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/);
  const { id } = await service.client.openWallet();
  const { status, headers } = await service.client.get(`/wallets/${id}`);
  expect([status, headers]).toMatchObject([
    200,
    {
      'cache-control': 'no-store',
      'strict-transport-security': 'max-age=31536000',
      'x-content-type-options': 'nosniff',
    },
  ]);
});

test('a script of a configured origin is answered, also when its request is refused', async () => {
  const origin = 'https://app.example';
  const preflight = await service.client.send('/wallets', {
    method: 'OPTIONS',
    headers: { origin, 'access-control-request-method': 'POST' },
  });
  expect(preflight).toMatchObject({ status: 204, headers: { 'access-control-allow-origin': origin } });
  const refused = await service.client.send('/wallets/none', { headers: { origin } });
  expect(refused).toMatchObject({
    status: 400,
    headers: { 'access-control-allow-origin': origin, 'cache-control': 'no-store' },
  });
});

test('the service shows a renewed certificate without a restart', async () => {
  const renewed = await testCertificate();
  await files.renew(renewed);
  await expect.poll(shownCertificate).toBe(renewed.cert.replaceAll(/-----[^-]*-----|\s/g, ''));
});

/** The certificate that a new connection is shown, in base64. */
async function shownCertificate(): Promise<string> {
  const { hostname: host, port } = new URL(service.url);
  const socket: TLSSocket = connect({ host, port: Number(port) });
  await once(socket, 'secureConnect');
  const { raw } = socket.getPeerCertificate();
  socket.destroy();
  return raw.toString('base64');
}
