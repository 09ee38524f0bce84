import type { Principal } from '@framework/core';
import { LRUCache } from 'lru-cache';
import { hash } from 'node:crypto';

/** How many tokens are remembered, and how many characters they may have together. */
const tokensMax = 10_000;
const charactersMax = 8_388_608;

interface Verified {
  readonly principal: Principal;
  /** When the token expires, in seconds since 1970. */
  readonly expiresAtS: number;
}

/**
 * Remembers whose tokens have been verified, because verifying a signature takes about 0.1 ms of processor time. What was verified with
 * other keys than the present ones is forgotten.
 */
export class VerifiedTokens {
  /** By the hashes of tokens, so that the memory of the process does not hold what others could use. */
  readonly #verified = new LRUCache<string, Verified>({ max: tokensMax, maxSize: charactersMax });
  readonly #clockToleranceS: number;
  #keys: object | undefined;

  constructor({ clockToleranceMs }: { readonly clockToleranceMs: number }) {
    this.#clockToleranceS = clockToleranceMs / 1_000;
  }

  /**
   * The principal of a token that was verified with these keys and has not expired.
   *
   * @param keys an object that is another one after the keys have changed
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
   * Remembers a token that was not there, and has been verified since then, unless the keys have changed meanwhile: it may have been
   * verified with the former ones.
   */
  remember(token: string, verified: Verified, keys: object): void {
    if (keys === this.#keys) this.#verified.set(keyOf(token), verified, { size: token.length });
  }
}

function keyOf(token: string): string {
  return hash('sha256', token, 'base64');
}
