import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type Socket, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls, getCACertificates, setDefaultCACertificates } from 'node:tls';
import { generate } from 'selfsigned';
import { inject } from 'vitest';

declare module 'vitest' {
  interface ProvidedContext {
    readonly tls: boolean;
  }
}

/** Whether these tests run over TLS: `vitest.config.ts` lists those that also do. */
export const overTls: boolean = inject('tls');

/** A certificate and its private key in PEM. */
export interface TestCertificate {
  readonly cert: string;
  readonly key: string;
}

/** Makes a self-signed certificate of 127.0.0.1 and localhost, which `fetch` and {@link openSocket} trust from then on. */
export async function testCertificate(
  options: { readonly notAfterDate?: Date; readonly keyType?: 'rsa' | 'ec' } = {},
): Promise<TestCertificate> {
  // Certificates of one name could not be told apart, and the wrong one would be tried.
  const { cert, private: key } = await generate([{ name: 'commonName', value: randomUUID() }], {
    keyType: 'ec',
    algorithm: 'sha256',
    notBeforeDate: new Date(0),
    notAfterDate: new Date('2100-01-01'),
    extensions: [
      { name: 'basicConstraints', cA: true },
      {
        name: 'subjectAltName',
        altNames: [
          { type: 7, ip: '127.0.0.1' },
          { type: 2, value: 'localhost' },
        ],
      },
    ],
    ...options,
  });
  setDefaultCACertificates([...getCACertificates(), cert]);
  return { cert, key };
}

/** A certificate in files, as the section `framework.http.tls` names them. */
export interface CertificateFiles {
  readonly section: { readonly 'cert-file': string; readonly 'key-file': string };
  /** Writes another certificate to the files. */
  readonly renew: (certificate: TestCertificate) => Promise<void>;
  readonly remove: () => Promise<void>;
}

/** Writes a certificate to files in a folder of their own. */
export async function certificateFiles(certificate: TestCertificate): Promise<CertificateFiles> {
  const folder = await mkdtemp(join(tmpdir(), 'test-tls-'));
  const section = { 'cert-file': join(folder, 'tls.crt'), 'key-file': join(folder, 'tls.key') };
  const renew = async ({ cert, key }: TestCertificate): Promise<void> => {
    await writeFile(section['cert-file'], cert);
    await writeFile(section['key-file'], key);
  };
  await renew(certificate);
  return { section, renew, remove: () => rm(folder, { recursive: true, force: true }) };
}

/** A client's connection, over TLS if the address says so. */
export interface ClientSocket {
  readonly socket: Socket;
  /** The TCP connection: the socket itself without TLS. */
  readonly tcp: Socket;
}

/** Connects to a server at an address such as `https://127.0.0.1:8080`. Resolves also if the server closes the connection at once. */
export async function openSocket(
  url: string,
  options: { readonly allowHalfOpen?: boolean; readonly localAddress?: string } = {},
): Promise<ClientSocket> {
  const { protocol, hostname: host, port } = new URL(url);
  const tcp = connect({ host, port: Number(port), ...options });
  const socket = protocol === 'https:' ? connectTls({ socket: tcp, host }) : tcp;
  for (const each of [tcp, socket]) each.on('error', () => undefined);
  const opened = once(socket, protocol === 'https:' ? 'secureConnect' : 'connect');
  await Promise.race([opened, once(socket, 'close')].map((end) => end.catch(() => undefined)));
  return { socket, tcp };
}
