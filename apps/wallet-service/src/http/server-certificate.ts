import { ConfigurationError } from '@framework/core';
import type { ConfigurationIssue } from '@framework/core/adapter';
import { X509Certificate, createPrivateKey } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { type SecureContextOptions, createSecureContext } from 'node:tls';
import type { Logger } from 'pino';

import { logMessages } from '../process/log-messages.js';
import type { TlsSettings } from './http-settings.js';

/** How often the files are read again, in milliseconds. */
const checkMs = 5_000;

/**
 * Those that encrypt and authenticate at once, with a key that is forgotten after the connection; the first three are of TLS 1.3. Node's
 * own list has others for clients of TLS 1.2, too.
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
 * The certificate of a listener and its key, read from files.
 *
 * The files are compared by content, since Kubernetes replaces a link to their folder, and others write them in place.
 */
export class ServerCertificate {
  readonly #settings: TlsSettings;
  #pair: Pair;
  /** The last pair that was refused, so that each is reported once. */
  #refused: Pair | undefined;
  /** The pair that was reported as expired, so that it is reported once. */
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

  /** The options of a TLS server that shows this certificate. */
  get context(): SecureContextOptions {
    return { ...this.#pair, minVersion: this.#settings.minVersion, ciphers };
  }

  /** Until when it is valid. */
  get validTo(): Date {
    return new X509Certificate(this.#pair.cert).validToDate;
  }

  /**
   * Reads the files again and again, until the returned function is called.
   *
   * @param apply gives a renewed certificate to the server
   */
  follow(apply: (context: SecureContextOptions) => void, logger: Logger): () => void {
    let checking: Promise<void> | undefined;
    const timer = setInterval(() => {
      checking ??= this.check(apply, logger).finally(() => (checking = undefined));
    }, checkMs).unref();
    this.#warnIfExpired(logger);
    return () => clearInterval(timer);
  }

  /** Reads the files once more. If they cannot be used, the present certificate stays, and the reason is logged. */
  async check(apply: (context: SecureContextOptions) => void, logger: Logger): Promise<void> {
    let pair: Pair = { cert: '', key: '' };
    try {
      pair = await readPair(this.#settings);
      if (isSame(pair, this.#pair)) {
        this.#refused = undefined;
        this.#warnIfExpired(logger);
        return;
      }
      assertUsable(pair, this.#settings);
    } catch (error) {
      if (!(error instanceof ConfigurationError)) throw error;
      if (this.#refused === undefined || !isSame(pair, this.#refused))
        logger.warn({ reason: error.message }, logMessages.certificateRefused);
      this.#refused = pair;
      this.#warnIfExpired(logger);
      return;
    }
    this.#pair = pair;
    this.#refused = undefined;
    apply(this.context);
    logger.info({ validTo: this.validTo }, logMessages.certificateRenewed);
    this.#warnIfExpired(logger);
  }

  #warnIfExpired(logger: Logger): void {
    const { validTo } = this;
    if (this.#expired === this.#pair || validTo.getTime() > Date.now()) return;
    this.#expired = this.#pair;
    logger.warn({ validTo }, logMessages.certificateExpired);
  }
}

function isSame(one: Pair, other: Pair): boolean {
  return one.cert === other.cert && one.key === other.key;
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

/** Errors of OpenSSL say neither which file is meant nor what to do. They are left out, also because they could quote a file. */
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
