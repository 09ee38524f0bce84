import { RequestFault } from './request-fault.js';

/** The header by which a client marks repeats of one request. */
export const idempotencyKeyHeader = 'Idempotency-Key';

/** How long a key may be. */
export const idempotencyKeyCharactersMax = 255;

/**
 * What a key is made of. Blanks around the value of a header are not part of it; and beyond ASCII clients send different bytes
 * for the same letter, so that a repeat by another one would be another key.
 */
export const idempotencyKeyPattern: RegExp = /^[!-~]([ -~]*[!-~])?$/;

/**
 * Reads the idempotency key of a request, if it has one.
 *
 * @throws RequestFault `bad-request` when it is empty, longer than 255 characters, or has others than those of ASCII that print
 */
export function idempotencyKey(headers: Headers): string | undefined {
  const key = headers.get(idempotencyKeyHeader) ?? undefined;
  if (key === undefined) return undefined;
  if (key.length <= idempotencyKeyCharactersMax && idempotencyKeyPattern.test(key)) return key;
  const message = `must have 1 to ${idempotencyKeyCharactersMax} characters, all of them letters, digits, signs or blanks of ASCII`;
  throw new RequestFault('bad-request', `${idempotencyKeyHeader} ${message}`, {
    faults: [{ pointer: `header/${idempotencyKeyHeader}`, message }],
  });
}
