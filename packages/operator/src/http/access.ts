import { ConfigurationError } from '@framework/core';
import type { MiddlewareHandler } from 'hono';
import { createHash, timingSafeEqual } from 'node:crypto';

import { RequestProblem } from './problems.js';

/** How many characters a token has at least. */
export const operatorTokenMin = 32;

/**
 * Lets only those in who have the token; compares in constant time.
 *
 * @throws ConfigurationError `invalid-configuration` when the token is too short, or no header can carry it
 */
export function requireToken(token: string): MiddlewareHandler {
  if (token.length < operatorTokenMin) {
    const message = `has ${token.length} characters: write at least ${operatorTokenMin}, such as those of \`openssl rand -hex 32\``;
    throw new ConfigurationError([{ path: 'framework.operator.token', message }]);
  }
  if (!/^[\x21-\x7e]+$/.test(token)) {
    const message =
      'contains a space, a line break or another character that no header can carry: write letters and digits';
    throw new ConfigurationError([{ path: 'framework.operator.token', message }]);
  }
  const expected = digest(token);
  return async ({ req }, next) => {
    const [, given] = /^bearer +(\S+) *$/i.exec(req.header('authorization') ?? '') ?? [];
    if (given === undefined || !timingSafeEqual(digest(given), expected))
      throw new RequestProblem(
        401,
        'unauthorized',
        'Send the header Authorization: Bearer with the token of framework.operator',
      );
    await next();
  };
}

/** Equally long for every token, as the comparison requires. */
function digest(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}
