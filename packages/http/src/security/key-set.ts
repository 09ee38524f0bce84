import {
  type JSONWebKeySet,
  type JWTVerifyGetKey,
  createLocalJWKSet,
  createRemoteJWKSet,
  customFetch,
  errors,
} from 'jose';
import { readFile } from 'node:fs/promises';

import { ProblemError } from '../problem/problem-error.js';
import type { JwtSettings } from './security-settings.js';

/** The place of an issuer's public keys, and the intervals at which they are read. */
export interface KeySource {
  /** Reads all keys. */
  readonly load: () => Promise<JSONWebKeySet>;
  /**
   * The age at which keys are read again, in milliseconds, in parallel to the requests that use them. After twice as long without a
   * read, the next request waits for one.
   */
  readonly refreshMs: number;
  /** The minimum interval between reads that tokens with unknown keys lead to, in milliseconds. */
  readonly cooldownMs: number;
}

/** The minimum interval between reads until one has succeeded, in milliseconds. */
const firstCooldownMs = 1_000;

/** The time for which a request waits for the keys, in milliseconds; longer than the timeout of a URL. */
const loadMsMax = 5_000;

/**
 * The maximum size of an answer with keys, in bytes after decompression. Many more than any issuer needs, and so few that parsing them
 * delays no request.
 */
const answerBytesMax = 262_144;

/** Ends a request whose token cannot be verified, because no keys have been read so far, with the code `keys-unavailable`. */
export class KeysUnavailableError extends ProblemError {
  constructor() {
    super('keys-unavailable', 'No keys for tokens have been read so far');
  }
}

/**
 * The public keys of an issuer. They are read again when they are old, or when a token names another one, so that an issuer can
 * replace its keys. While they cannot be read, the last ones stay valid.
 */
export class KeySet {
  readonly #source: KeySource;
  readonly #onFailure: (error: unknown) => void;
  #keys: JWTVerifyGetKey | undefined;
  /** The JSON of {@link #keys}. */
  #text: string | undefined;
  #loading: Promise<void> | undefined;
  #loadedAtMs = -Infinity;
  #triedAtMs = -Infinity;
  /** The reason of the last read's failure. */
  #failure: string | undefined;

  /** @param onFailure called when the keys cannot be read, once for each reason until they are read again */
  constructor(source: KeySource, onFailure: (error: unknown) => void) {
    this.#source = source;
    this.#onFailure = onFailure;
  }

  /**
   * Finds the key of a token.
   *
   * @throws KeysUnavailableError when no keys have been read so far, JOSEError when there is no such key
   */
  readonly find: JWTVerifyGetKey = async (header, token) => {
    if (this.#keys === undefined) await this.#load();
    else await this.#refresh();
    const keys = this.#loaded();
    try {
      return await keys(header, token);
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
      await this.#load();
      return this.#loaded()(header, token);
    }
  };

  /** Begins to read the keys, before the first request needs them. */
  preload(): void {
    void this.#load();
  }

  /** The present keys: another object after each change; `undefined` when there are none. Reads old keys again, like {@link find}. */
  async current(): Promise<object | undefined> {
    if (this.#keys !== undefined) await this.#refresh();
    return this.#keys;
  }

  /**
   * Reads old keys again. Waits only after a time without requests, in which keys may have been withdrawn long ago: otherwise each
   * request would wait while the keys cannot be read.
   */
  async #refresh(): Promise<void> {
    const { refreshMs } = this.#source;
    const nowMs = performance.now();
    if (nowMs - this.#loadedAtMs <= refreshMs) return;
    const wasIdle = nowMs - this.#triedAtMs > 2 * refreshMs;
    const loading = this.#load();
    if (wasIdle) await loading;
  }

  #loaded(): JWTVerifyGetKey {
    if (this.#keys === undefined) throw new KeysUnavailableError();
    return this.#keys;
  }

  /** Reads the keys, once for all concurrent callers, unless they were read a moment ago. */
  #load(): Promise<void> {
    if (this.#loading !== undefined) return this.#loading;
    const { cooldownMs } = this.#source;
    const pauseMs = this.#keys === undefined ? Math.min(cooldownMs, firstCooldownMs) : cooldownMs;
    if (performance.now() - this.#triedAtMs < pauseMs) return Promise.resolve();
    this.#loading = this.#begin();
    return this.#loading;
  }

  /**
   * Begins a read, and resolves when it has ended or takes too long. No other read begins before its end, because a file on a server
   * that does not answer blocks a thread.
   */
  #begin(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(() => {
      this.#failed(new Error(`The keys were not read within ${loadMsMax} ms`));
      resolve();
    }, loadMsMax).unref();
    void this.#read().finally(() => {
      clearTimeout(timer);
      this.#triedAtMs = performance.now();
      this.#loading = undefined;
      resolve();
    });
    return promise;
  }

  async #read(): Promise<void> {
    try {
      const read = await this.#source.load();
      const text = JSON.stringify(read);
      if (text !== this.#text) this.#keys = createLocalJWKSet(read);
      this.#text = text;
      this.#loadedAtMs = performance.now();
      this.#failure = undefined;
    } catch (error) {
      this.#failed(error);
    }
  }

  #failed(error: unknown): void {
    const failure = String(error);
    if (failure !== this.#failure) this.#onFailure(error);
    this.#failure = failure;
  }
}

/** The keys at the URL or in the file of the settings. */
export function keySource({ jwksUri, jwksFile }: Pick<JwtSettings, 'jwksUri' | 'jwksFile'>): KeySource {
  if (jwksUri !== undefined) {
    const remote = createRemoteJWKSet(new URL(jwksUri), {
      timeoutDuration: 3_000,
      [customFetch]: async (...request) => limited(await fetch(...request)),
    });
    const load = async (): Promise<JSONWebKeySet> => {
      await remote.reload();
      return remote.jwks() ?? { keys: [] };
    };
    return { load, refreshMs: 300_000, cooldownMs: 10_000 };
  }
  const load = async (): Promise<JSONWebKeySet> =>
    JSON.parse(await readFile(jwksFile ?? '', 'utf8')) as JSONWebKeySet;
  return { load, refreshMs: 1_000, cooldownMs: 1_000 };
}

/** The same response, whose body fails and is no longer read beyond the limit. */
function limited({ body, status }: Response): Response {
  let bytes = 0;
  const counted = new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
    transform: (part, controller) => {
      bytes += part.byteLength;
      if (bytes <= answerBytesMax) controller.enqueue(part);
      else controller.error(new Error(`The answer has more than ${answerBytesMax} bytes`));
    },
  });
  return new Response(status === 200 ? body?.pipeThrough(counted) : null, { status });
}
