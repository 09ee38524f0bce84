import { ConfigurationError, type Principal } from '@framework/core';
import { ProblemError } from '@framework/http';
import { createHash, timingSafeEqual } from 'node:crypto';

/** How many characters a token has at least. */
export const operatorTokenMin = 32;

/** The principal of every request with the token; a change names who makes it. */
const operator: Principal = { name: 'operator' };

/** Admits only requests with the token, which is compared in constant time. */
export class TokenAuthentication {
  readonly bearerFormat = 'a secret of the configuration';
  readonly #expected: Buffer;

  /** @throws ConfigurationError `invalid-configuration` when the token is too short, or no header can carry it */
  constructor(token: string) {
    if (token.length < operatorTokenMin) {
      const message = `has ${token.length} characters: write at least ${operatorTokenMin}, such as those of \`openssl rand -hex 32\``;
      throw new ConfigurationError([{ path: 'framework.operator.token', message }]);
    }
    if (!/^[\x21-\x7e]+$/.test(token)) {
      const message =
        'contains a space, a line break or another character that no header can carry: write letters and digits';
      throw new ConfigurationError([{ path: 'framework.operator.token', message }]);
    }
    this.#expected = digest(token);
  }

  /** @throws ProblemError `unauthorized` when the token is missing or wrong */
  async principalOf(headers: Headers): Promise<Principal> {
    const [, given] = /^bearer +(\S+) *$/i.exec(headers.get('authorization') ?? '') ?? [];
    if (given !== undefined && timingSafeEqual(digest(given), this.#expected)) return operator;
    throw new ProblemError('unauthorized', 'The token is missing or wrong', {
      headers: { 'www-authenticate': 'Bearer' },
    });
  }
}

/** Equally long for every token, as the comparison requires. */
function digest(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}
