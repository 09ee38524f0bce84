import { RequestFault } from './request-fault.js';

/** The header by which a client marks repeats of one request. */
export const idempotencyKeyHeader = 'Idempotency-Key';

const acceptable = /^\P{Cc}{1,255}$/u;

/**
 * Reads the idempotency key of a request, if it has one.
 *
 * @throws RequestFault `bad-request` when it is empty, longer than 255 characters, or has control characters
 */
export function idempotencyKey(headers: Headers): string | undefined {
  const key = headers.get(idempotencyKeyHeader) ?? undefined;
  if (key === undefined || acceptable.test(key)) return key;
  const message = 'must have 1 to 255 characters, none of them a control character';
  throw new RequestFault('bad-request', `${idempotencyKeyHeader} ${message}`, {
    faults: [{ pointer: `header/${idempotencyKeyHeader}`, message }],
  });
}
