import {
  type JSONWebKeySet,
  type JWTVerifyGetKey,
  createLocalJWKSet,
  createRemoteJWKSet,
  customFetch,
  errors,
} from 'jose';
import { readFile } from 'node:fs/promises';

import type { JwtSettings } from './security-settings.js';

/** How keys are read, and how often. */
export interface KeySource {
  /** Reads all keys. */
  readonly load: () => Promise<JSONWebKeySet>;
  /**
   * How old keys may be before they are read again, beside the requests that use them. When no request has led to that for twice as
   * long, the next one waits for it.
   */
  readonly refreshMs: number;
  /** How soon after a read a token with an unknown key leads to another one. */
  readonly cooldownMs: number;
}

/** How soon the keys are read again if that has never succeeded, in milliseconds. */
const firstCooldownMs = 1_000;

/** How long a request waits for the keys, in milliseconds; longer than an address may take to answer. */
const loadMsMax = 5_000;

/**
 * How many bytes of an answer with keys are read, without their compression. Many more than any issuer needs, and so few that parsing
 * them, whatever they are, does not keep requests waiting.
 */
const answerBytesMax = 262_144;

/** No keys have been read so far, so no token can be verified. */
export class KeysUnavailableError extends Error {
  override readonly name = 'KeysUnavailableError';
}

/**
 * The public keys of an issuer. They are read again when they are old, or when a token names another one, so that an issuer can
 * replace its keys. While they cannot be read, those that were read last stay valid.
 */
export class KeySet {
  readonly #source: KeySource;
  readonly #onFailure: (error: unknown) => void;
  #keys: JWTVerifyGetKey | undefined;
  /** What was read last, as JSON. */
  #text: string | undefined;
  #loading: Promise<void> | undefined;
  #loadedAtMs = -Infinity;
  #triedAtMs = -Infinity;
  /** Why the last reading failed, if it did. */
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
    const keys = this.#known();
    try {
      return await keys(header, token);
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
      await this.#load();
      return this.#known()(header, token);
    }
  };

  /** Reads the keys, so that they are there for the first request. */
  preload(): void {
    void this.#load();
  }

  /**
   * An object that stands for the present keys: another one after they have changed; `undefined` when there are none. Like finding a
   * key, asking leads to reading them again when they are old.
   */
  async current(): Promise<object | undefined> {
    if (this.#keys !== undefined) await this.#refresh();
    return this.#keys;
  }

  /**
   * Reads old keys again. Waits only after a time without requests, in which keys may have been withdrawn long ago: while the keys
   * cannot be read, each request would wait.
   */
  async #refresh(): Promise<void> {
    const { refreshMs } = this.#source;
    const nowMs = performance.now();
    if (nowMs - this.#loadedAtMs <= refreshMs) return;
    const wasIdle = nowMs - this.#triedAtMs > 2 * refreshMs;
    const loading = this.#load();
    if (wasIdle) await loading;
  }

  #known(): JWTVerifyGetKey {
    if (this.#keys === undefined) throw new KeysUnavailableError('No keys for tokens have been read so far');
    return this.#keys;
  }

  /** Reads the keys, together with all who ask meanwhile, unless they were read a moment ago. */
  #load(): Promise<void> {
    if (this.#loading !== undefined) return this.#loading;
    const { cooldownMs } = this.#source;
    const pauseMs = this.#keys === undefined ? Math.min(cooldownMs, firstCooldownMs) : cooldownMs;
    if (performance.now() - this.#triedAtMs < pauseMs) return Promise.resolve();
    this.#loading = this.#begin();
    return this.#loading;
  }

  /**
   * Begins to read the keys, and resolves when that has ended, or takes too long. Until it has ended, it is not begun again, because a
   * file of a server that is away blocks a thread.
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

/** The keys at the address or in the file of the settings. */
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

/** The same response with a body that fails, and is not read on, beyond the limit. */
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
