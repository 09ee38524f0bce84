import { InvalidRequestError } from './invalid-request-error.js';

/** The header with which a client marks repeats of one request. */
export const idempotencyKeyHeader = 'Idempotency-Key';

/** The maximum length of a key. */
export const idempotencyKeyCharactersMax = 255;

/**
 * The characters of a key. Spaces around a header's value are not part of it. Beyond ASCII, clients encode the same
 * letter differently, so a repeat from another client would have another key.
 */
export const idempotencyKeyPattern: RegExp = /^[!-~]([ -~]*[!-~])?$/;

/**
 * Reads the idempotency key of a request, if it has one.
 *
 * @throws InvalidRequestError `bad-request` when the key is empty, longer than 255 characters, or contains anything but
 * printable ASCII characters
 */
export function idempotencyKey(headers: Headers): string | undefined {
  const key = headers.get(idempotencyKeyHeader) ?? undefined;
  if (key === undefined) return undefined;
  if (key.length <= idempotencyKeyCharactersMax && idempotencyKeyPattern.test(key)) return key;
  const message = `must have 1 to ${idempotencyKeyCharactersMax} printable ASCII characters`;
  throw new InvalidRequestError('bad-request', `${idempotencyKeyHeader} ${message}`, {
    faults: [{ pointer: `header/${idempotencyKeyHeader}`, message }],
  });
}

/** The header of an answer that repeats the answer to an earlier, identical request. */
export const replayedHeader = 'Idempotency-Replayed';
