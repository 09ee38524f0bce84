import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createSecureContext } from 'node:tls';

/** A section `tls`, by its paths. */
interface TlsFiles {
  readonly caFile?: string | undefined;
  readonly certFile?: string | undefined;
  readonly keyFile?: string | undefined;
}

const pathCharactersMax = 1_024;

/**
 * Reads the files of a section `tls`. A connection would only later, and less clearly, say what is wrong with them.
 *
 * @throws Error when a file cannot be read or has something else
 */
export async function certificatesOf({ caFile, certFile, keyFile }: TlsFiles) {
  const [ca, cert, key] = await Promise.all([
    contentOf('tls.ca-file', caFile),
    contentOf('tls.cert-file', certFile),
    contentOf('tls.key-file', keyFile),
  ]);
  const certificates = defined({ ca, cert, key });
  try {
    // Without this, a connection would only say that it does not know the server.
    if (ca !== undefined) void new X509Certificate(ca);
    createSecureContext(certificates);
  } catch (cause) {
    throw new Error(`the files of tls cannot be used: ${String(cause)}`, { cause });
  }
  return certificates;
}

async function contentOf(key: string, file: string | undefined): Promise<string | undefined> {
  if (file === undefined) return undefined;
  return readFile(file, 'utf8').catch(({ code = '' }: NodeJS.ErrnoException) => {
    // Somebody may have written what the file should have, which can be a private key, and which the system's error repeats.
    const isPath = file.length <= pathCharactersMax && !/[\r\n]|-----/.test(file);
    const shown = isPath ? `: ${file}` : ', which must be the path of a file';
    throw new Error(`${key} cannot be read${shown} (${code})`);
  });
}

/**
 * Who the relay is to NATS, if its file or its key says so.
 *
 * @throws Error when they cannot be used; a connection would only say that it was not let in
 */
export async function natsAuthenticator({
  credsFile,
  nkeySeed,
}: {
  readonly credsFile?: string | undefined;
  readonly nkeySeed?: string | undefined;
}) {
  const { credsAuthenticator, nkeyAuthenticator, nkeys } = await import('@nats-io/transport-node');
  const encoder = new TextEncoder();
  if (nkeySeed !== undefined) {
    const seed = encoder.encode(nkeySeed);
    if (!isSeed(nkeys, seed)) throw new Error('nkey-seed is not the seed of a key, such as SU…');
    return nkeyAuthenticator(seed);
  }
  const credentials = await contentOf('creds-file', credsFile);
  if (credentials === undefined) return undefined;
  if (!/BEGIN NATS USER JWT[^]*BEGIN USER NKEY SEED/.test(credentials))
    throw new Error('creds-file has no credentials, as nsc writes them');
  return credsAuthenticator(encoder.encode(credentials));
}

function isSeed(
  { fromSeed }: { readonly fromSeed: (seed: Uint8Array) => unknown },
  seed: Uint8Array,
): boolean {
  try {
    fromSeed(seed);
    return true;
  } catch {
    return false;
  }
}

type Defined<T> = { readonly [K in keyof T as undefined extends T[K] ? never : K]: T[K] } & {
  readonly [K in keyof T as undefined extends T[K] ? K : never]?: Exclude<T[K], undefined>;
};

/** Leaves out what is `undefined`, so that the defaults apply. */
export function defined<T extends object>(options: T): Defined<T> {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as Defined<T>;
}
