import { execFile } from 'node:child_process';
import { appendFile, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];

/** Files in PEM. */
export interface Certificates {
  readonly authority: string;
  /** A key with its certificate behind it, for 127.0.0.1 and localhost. */
  readonly server: string;
  readonly client: { readonly cert: string; readonly key: string };
}

/**
 * Makes an authority of a test's own, and what it certifies.
 *
 * @throws Error when this machine has no OpenSSL 3
 */
export async function makeCertificates(folder: string): Promise<Certificates> {
  const file = (name: string): string => join(folder, name);
  const make = async (name: string, ...options: readonly string[]): Promise<void> => {
    const files = ['-keyout', file(`${name}.key`), '-out', file(`${name}.pem`)];
    await run('openssl', ['req', '-x509', ...key, ...files, '-subj', `/CN=${name}`, ...options]);
  };
  const certified = ['-CA', file('authority.pem'), '-CAkey', file('authority.key')];
  const notAnAuthority = ['-addext', 'basicConstraints=critical,CA:FALSE'];
  const names = ['-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'];
  await make('authority');
  await make('server', ...certified, ...notAnAuthority, ...names);
  await make('client', ...certified, ...notAnAuthority);
  await appendFile(file('server.key'), await readFile(file('server.pem')));
  return {
    authority: file('authority.pem'),
    server: file('server.key'),
    client: { cert: file('client.pem'), key: file('client.key') },
  };
}
