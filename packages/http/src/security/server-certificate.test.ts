import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { connect, createServer } from 'node:tls';
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';

import { leftBehind } from '../../../core/test/left-behind.js';
import { type CertificateFiles, certificateFiles, testCertificate } from '../../test/test-tls.js';
import type { HttpLog } from '../http-log.js';
import { ServerCertificate } from './server-certificate.js';

let files: CertificateFiles;
const lines: { readonly message: string; readonly reason?: string }[] = [];
const log: HttpLog = {
  debug: () => expect.unreachable(),
  info: (fields, message) => void lines.push({ ...fields, message }),
  warn: (fields, message) => void lines.push({ ...fields, message }),
  error: () => expect.unreachable(),
};
const canary = 'Tr0ub4dor-and-3-secrets';

beforeEach(async () => {
  files = await certificateFiles(await testCertificate());
  lines.length = 0;
});
afterEach(() => files.remove());

test('a certificate is applied once after each renewal of its files', async () => {
  const certificate = await read();
  const applied: unknown[] = [];
  const check = () => certificate.check(({ cert }) => applied.push(cert), log);
  await check();
  const renewed = await testCertificate();
  await files.renew(renewed);
  await check();
  await check();
  expect(applied).toEqual([renewed.cert]);
  expect(certificate.context).toMatchObject({ ...renewed, minVersion: 'TLSv1.2' });
  expect(lines.map(({ message }) => message)).toEqual(['the certificate was renewed']);
});

test('a certificate stays when its files become unusable, and each reason is logged once', async () => {
  const certificate = await read();
  const before = certificate.context;
  const check = () => certificate.check(() => expect.unreachable(), log);
  await writeFile(files.section['key-file'], canary);
  await check();
  await check();
  await files.remove();
  await check();
  expect(certificate.context).toEqual(before);
  expect(lines.map(({ reason }) => reason)).toEqual([
    expect.stringContaining('framework.http.tls.key-file'),
    expect.stringContaining('cannot be read (ENOENT)'),
  ]);
  expect(JSON.stringify(lines)).not.toContain(canary);
});

describe('with TLS 1.2 and an RSA key, a client', () => {
  test.each([
    ['AES256-GCM-SHA384', 'is refused'],
    ['ECDHE-RSA-AES128-SHA256', 'is refused'],
    ['ECDHE-RSA-AES128-GCM-SHA256', 'is accepted'],
    ['ECDHE-RSA-CHACHA20-POLY1305', 'is accepted'],
  ])('that has only the cipher %s %s', async (ciphers, expected) => {
    await files.renew(await testCertificate({ keyType: 'rsa' }));
    const { context } = await read();
    const server = createServer(context).listen(0, '127.0.0.1');
    onTestFinished(() => void server.close());
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const socket = connect({ host: '127.0.0.1', port, ciphers, maxVersion: 'TLSv1.2' });
    onTestFinished(() => void socket.destroy());
    const outcome = await once(socket, 'secureConnect').then(
      () => 'is accepted',
      ({ code }: NodeJS.ErrnoException) =>
        code === 'ERR_SSL_SSL/TLS_ALERT_HANDSHAKE_FAILURE' ? 'is refused' : code,
    );
    expect(outcome).toBe(expected);
  });
});

test('a certificate that has expired is served, with a warning', async () => {
  await files.renew(await testCertificate({ notAfterDate: new Date('2020-01-01') }));
  const unfollow = (await read()).follow(() => undefined, log);
  unfollow();
  expect(lines.map(({ message }) => message)).toEqual(['the certificate has expired']);
});

test('a certificate that expires while it is served is reported once', async () => {
  await files.renew(await testCertificate({ notAfterDate: new Date(Date.now() + 3_600_000) }));
  const certificate = await read();
  const check = () => certificate.check(() => expect.unreachable(), log);
  await check();
  expect(lines).toEqual([]);
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 7_200_000 });
  onTestFinished(() => void vi.useRealTimers());
  await check();
  await check();
  expect(lines.map(({ message }) => message)).toEqual(['the certificate has expired']);
});

test.each([
  ['a certificate file that is not there', 'cert-file', undefined, /none\.pem cannot be read \(ENOENT\)/],
  ['a key file that is not there', 'key-file', undefined, /none\.pem cannot be read \(ENOENT\)/],
  ['no certificate in its file', 'cert-file', canary, /is not a certificate in PEM/],
  ['no key in its file', 'key-file', canary, /is not a private key in PEM without a passphrase/],
])('a certificate is refused for %s, without the contents', async (_what, key, content, message) => {
  if (content !== undefined) await writeFile(files.section[key as 'cert-file' | 'key-file'], content);
  const section = content === undefined ? { ...files.section, [key]: '/none.pem' } : files.section;
  const failure: unknown = await read(section).catch((error: unknown) => error);
  expect(failure).toMatchObject({
    code: 'invalid-configuration',
    faults: [{ path: `framework.http.tls.${key}`, message: expect.stringMatching(message) }],
  });
  expect(String(failure)).not.toContain(canary);
});

test('a certificate is refused with the key of another one', async () => {
  const { key } = await testCertificate();
  await writeFile(files.section['key-file'], key);
  await expect(read()).rejects.toThrow(/key-file: \S+ is not the key of the certificate in \S+tls\.crt/);
});

function read(section: Readonly<Record<string, string>> = files.section): Promise<ServerCertificate> {
  const { 'cert-file': certFile = '', 'key-file': keyFile = '' } = section;
  return ServerCertificate.read({ certFile, keyFile, minVersion: 'TLSv1.2' });
}

test('a certificate whose files are no longer followed leaves no timer behind', async () => {
  const certificate = await read();
  const left = await leftBehind(() => {
    const end = certificate.follow(() => expect.unreachable(), log);
    end();
    end();
  });
  expect(left).toEqual([]);
});

test('a certificate that is followed is read again only once the earlier reading has ended', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  onTestFinished(() => void vi.useRealTimers());
  const certificate = await read();
  const reading = Promise.withResolvers<void>();
  const check = vi.spyOn(certificate, 'check').mockReturnValue(reading.promise);
  const end = certificate.follow(() => undefined, log);
  vi.advanceTimersByTime(4_999);
  expect(check).toHaveBeenCalledTimes(0);
  vi.advanceTimersByTime(20_001);
  expect(check).toHaveBeenCalledTimes(1);
  reading.resolve();
  await new Promise((resolve) => setImmediate(resolve));
  vi.advanceTimersByTime(5_000);
  expect(check).toHaveBeenCalledTimes(2);
  end();
  expect(vi.getTimerCount()).toBe(0);
});
