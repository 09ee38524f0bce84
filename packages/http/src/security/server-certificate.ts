import { ConfigurationError } from '@framework/core';
import type { ConfigurationIssue } from '@framework/core/adapter';
import { X509Certificate, createPrivateKey } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { type SecureContextOptions, createSecureContext } from 'node:tls';
import { isDeepStrictEqual } from 'node:util';

import type { HttpLog } from '../http-log.js';
import { errorReason } from '../log/error-text.js';
import type { TlsSettings } from './http-settings.js';

/** The messages of the lines that a {@link ServerCertificate} logs. */
export const certificateLogMessages = {
  certificateRenewed: 'the certificate was renewed',
  certificateRefused: 'the files of the certificate are refused: the earlier one stays',
  certificateExpired: 'the certificate has expired',
} as const;

/** The interval between two reads of the files, in milliseconds. */
const checkMs = 5_000;

/**
 * AEAD ciphers with forward secrecy; the first three are of TLS 1.3. Node's own list has others for clients of TLS 1.2, too.
 *
 * @see https://wiki.mozilla.org/Security/Server_Side_TLS "intermediate"
 */
const ciphers =
  'TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:' +
  'ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:' +
  'ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305';

/** The files of a certificate as texts. */
interface Pair {
  readonly cert: string;
  readonly key: string;
}

/**
 * The certificate of a listener and its key, read from files, and again after their renewal.
 *
 * The files are compared by content, since Kubernetes replaces a link to their folder, and others write them in place.
 */
export class ServerCertificate {
  readonly #settings: TlsSettings;
  #pair: Pair;
  /** The last pair that was refused, so that each is logged once. */
  #refused: Pair | undefined;
  /** The pair whose expiry was logged, so that it is logged once. */
  #expired: Pair | undefined;

  private constructor(settings: TlsSettings, pair: Pair) {
    this.#settings = settings;
    this.#pair = pair;
  }

  /**
   * Reads the files.
   *
   * @throws ConfigurationError `invalid-configuration` when a file cannot be read, or certificate and key cannot be used together;
   * their contents are never shown
   */
  static async read(settings: TlsSettings): Promise<ServerCertificate> {
    const pair = await readPair(settings);
    assertUsable(pair, settings);
    return new ServerCertificate(settings, pair);
  }

  /** The options of a TLS server with this certificate. */
  get context(): SecureContextOptions {
    return contextOf(this.#pair, this.#settings);
  }

  /** The end of its validity. */
  get validTo(): Date {
    return new X509Certificate(this.#pair.cert).validToDate;
  }

  /**
   * Reads the files every five seconds, until the returned function is called. Logs {@link certificateLogMessages}.
   *
   * @param apply passes a renewed certificate to the server, for new connections
   */
  follow(apply: (context: SecureContextOptions) => void, log: HttpLog): () => void {
    let checking: Promise<void> | undefined;
    const timer = setInterval(() => {
      checking ??= this.check(apply, log).finally(() => (checking = undefined));
    }, checkMs).unref();
    this.#warnIfExpired(log);
    return () => clearInterval(timer);
  }

  /** Reads the files once. If they cannot be used, the present certificate stays, and the reason is logged. */
  async check(apply: (context: SecureContextOptions) => void, log: HttpLog): Promise<void> {
    await this.#renew(apply, log);
    this.#warnIfExpired(log);
  }

  async #renew(apply: (context: SecureContextOptions) => void, log: HttpLog): Promise<void> {
    let pair: Pair = { cert: '', key: '' };
    try {
      pair = await readPair(this.#settings);
      if (!isDeepStrictEqual(pair, this.#pair)) {
        assertUsable(pair, this.#settings);
        apply(contextOf(pair, this.#settings));
        this.#pair = pair;
        log.info({ validTo: this.validTo }, certificateLogMessages.certificateRenewed);
      }
      this.#refused = undefined;
    } catch (error) {
      if (!isDeepStrictEqual(pair, this.#refused))
        log.warn({ reason: errorReason(error) }, certificateLogMessages.certificateRefused);
      this.#refused = pair;
    }
  }

  #warnIfExpired(log: HttpLog): void {
    const { validTo } = this;
    if (this.#expired === this.#pair || validTo.getTime() > Date.now()) return;
    this.#expired = this.#pair;
    log.warn({ validTo }, certificateLogMessages.certificateExpired);
  }
}

function contextOf(pair: Pair, { minVersion }: TlsSettings): SecureContextOptions {
  return { ...pair, minVersion, ciphers };
}

async function readPair({ certFile, keyFile }: TlsSettings): Promise<Pair> {
  const faults: ConfigurationIssue[] = [];
  const read = async (key: string, file: string): Promise<string> =>
    readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
      faults.push(fault(key, `${file} cannot be read (${error.code ?? 'unknown error'})`));
      return '';
    });
  const [cert, key] = await Promise.all([read('cert-file', certFile), read('key-file', keyFile)]);
  if (faults.length > 0) throw new ConfigurationError(faults);
  return { cert, key };
}

/** Errors of OpenSSL name neither the file nor a remedy, and could quote the file: the faults leave them out. */
function assertUsable({ cert, key }: Pair, { certFile, keyFile, minVersion }: TlsSettings): void {
  const certificate = attempt(() => new X509Certificate(cert));
  const privateKey = attempt(() => createPrivateKey(key));
  const faults: ConfigurationIssue[] = [];
  if (certificate === undefined) faults.push(fault('cert-file', `${certFile} is not a certificate in PEM`));
  if (privateKey === undefined)
    faults.push(fault('key-file', `${keyFile} is not a private key in PEM without a passphrase`));
  if (certificate !== undefined && privateKey !== undefined) {
    if (!certificate.checkPrivateKey(privateKey))
      faults.push(fault('key-file', `${keyFile} is not the key of the certificate in ${certFile}`));
    else if (attempt(() => createSecureContext({ cert, key, minVersion })) === undefined)
      faults.push(fault('cert-file', `${certFile} cannot be used, perhaps because its key is too short`));
  }
  if (faults.length > 0) throw new ConfigurationError(faults);
}

function fault(key: string, message: string): ConfigurationIssue {
  return { path: `framework.http.tls.${key}`, message };
}

function attempt<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}
