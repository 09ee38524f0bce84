import type { Principal } from '@framework/core';
import { LRUCache } from 'lru-cache';
import { hash } from 'node:crypto';

const tokensMax = 10_000;
/** The maximum number of characters of all tokens together. */
const charactersMax = 8_388_608;

interface Verified {
  readonly principal: Principal;
  /** The end of the token's validity, in seconds since 1970. */
  readonly expiresAtS: number;
}

/**
 * Caches the principals of verified tokens, because the verification of a signature takes about 0.1 ms of processor time. A change of
 * the keys empties the cache.
 */
export class VerifiedTokens {
  /** By the hashes of tokens, so that the memory of the process does not contain usable tokens. */
  readonly #verified = new LRUCache<string, Verified>({ max: tokensMax, maxSize: charactersMax });
  readonly #clockToleranceS: number;
  #keys: object | undefined;

  constructor({ clockToleranceMs }: { readonly clockToleranceMs: number }) {
    this.#clockToleranceS = clockToleranceMs / 1_000;
  }

  /**
   * The principal of a token that was verified with these keys and has not expired.
   *
   * @param keys the present keys: another object after each change
   */
  principalOf(token: string, keys: object | undefined): Principal | undefined {
    if (keys !== this.#keys) this.#verified.clear();
    this.#keys = keys;
    const verified = this.#verified.get(keyOf(token));
    const isValid =
      verified !== undefined && verified.expiresAtS > Math.floor(Date.now() / 1_000) - this.#clockToleranceS;
    return isValid ? verified.principal : undefined;
  }

  /**
   * Caches a token that has been verified since {@link principalOf} was called, unless the keys have changed meanwhile: it may have
   * been verified with the former ones.
   */
  remember(token: string, verified: Verified, keys: object): void {
    if (keys === this.#keys) this.#verified.set(keyOf(token), verified, { size: token.length });
  }
}

function keyOf(token: string): string {
  return hash('sha256', token, 'base64');
}
