import type { ErrorCode } from '@framework/core';
import { expect, test } from 'vitest';

import { InvalidRequestError } from './parse-shape.js';
import { type RequestFaultCode, problemKinds } from './problem-kinds.js';
import { problemOf, problemResponse } from './problem-of.js';

/** What a client is told about each error of the framework; about all others, it is 500 `internal`. */
const told: Partial<Record<ErrorCode, readonly [status: number, code: string]>> = {
  'stale-record': [409, 'stale-record'],
  'transient-storage': [503, 'shard-unavailable'],
  'shard-unavailable': [503, 'shard-unavailable'],
  'databases-closed': [503, 'shard-unavailable'],
  'unknown-shard': [503, 'shard-unavailable'],
  'commit-outcome-unknown': [504, 'outcome-unknown'],
  'entity-not-found': [404, 'wallet-not-found'],
  'access-denied': [403, 'forbidden'],
  'invalid-cursor': [400, 'bad-request'],
  'invalid-page-limit': [400, 'bad-request'],
  'invalid-idempotency-key': [400, 'bad-request'],
  'idempotency-key-reused': [422, 'idempotency-key-reused'],
};

const internal: readonly ErrorCode[] = [
  'cross-shard',
  'no-usable-shard',
  'invalid-id',
  'partial-commit',
  'not-unique',
  'shard-undetermined',
  'constraint-violation',
  'storage-failure',
  'nested-transaction',
  'transaction-over',
  'unknown-action',
  'nested-execution',
  'plan-unavailable',
  'plan-sealed',
  'staged-twice',
  'invalid-params',
  'invalid-shard',
  'invalid-model',
  'invalid-configuration',
  'unstorable-value',
  'unreadable-event',
  'unreadable-message',
  'unknown-event-type',
  'limit-exceeded',
  'handler-timeout',
  'retry-later',
  'handler-names',
  'handler-in-use',
  'unknown-handler',
  'history-changed',
  'broker-unavailable',
  'message-refused',
  'operator-request',
  'invariant-violation',
];

/** An error of the framework with this code, as another copy of it would make it. */
function errorWith(code: ErrorCode): Error {
  const error = Object.assign(new Error('A text for operators'), { code, retryable: false });
  return Object.defineProperty(error, Symbol.for('@framework/core/exception'), { value: true });
}

test.each([...Object.entries(told), ...internal.map((code) => [code, [500, 'internal']] as const)])(
  'the error %s is answered with %j, even as a cause',
  (code, [status, expected]) => {
    const error = errorWith(code as ErrorCode);
    expect(problemOf(error)).toMatchObject({ status, code: expected });
    expect(problemOf(new Error('wrapped', { cause: error }))).toMatchObject({ status, code: expected });
  },
);

/** Status, code and Retry-After of each problem. */
const answers: Readonly<Record<string, readonly [status: number, code: string, retryAfter?: string]>> = {
  'bad-request': [400, 'bad-request'],
  'body-too-large': [413, 'bad-request'],
  'unsupported-media-type': [415, 'bad-request'],
  'headers-too-large': [431, 'bad-request'],
  'request-timeout': [408, 'bad-request'],
  'expectation-failed': [417, 'bad-request'],
  'not-found': [404, 'not-found'],
  'method-not-allowed': [405, 'method-not-allowed'],
  unauthorized: [401, 'unauthorized'],
  forbidden: [403, 'forbidden'],
  'keys-unavailable': [503, 'keys-unavailable', '1'],
  'invalid-amount': [422, 'invalid-amount'],
  'unknown-currency': [422, 'unknown-currency'],
  'currency-mismatch': [422, 'currency-mismatch'],
  'same-wallet': [422, 'same-wallet'],
  'insufficient-funds': [422, 'insufficient-funds'],
  'wallet-closed': [409, 'wallet-closed'],
  'precondition-failed': [412, 'precondition-failed'],
  'wallet-not-found': [404, 'wallet-not-found'],
  'transfer-not-found': [404, 'transfer-not-found'],
  'stale-record': [409, 'stale-record'],
  'idempotency-key-reused': [422, 'idempotency-key-reused'],
  'too-many-requests': [429, 'too-many-requests', '1'],
  'shard-unavailable': [503, 'shard-unavailable', '1'],
  'outcome-unknown': [504, 'outcome-unknown'],
  'audit-unavailable': [503, 'audit-unavailable', '1'],
  internal: [500, 'internal'],
};

test('every problem has the status, the code and the time for a retry that clients rely on', () => {
  const kinds = Object.entries(problemKinds).map(([name, { status, code = name, retryAfterSeconds }]) => [
    name,
    [status, code, ...(retryAfterSeconds === undefined ? [] : [String(retryAfterSeconds)])],
  ]);
  expect(Object.fromEntries(kinds)).toEqual(answers);
});

const requestFaults = Object.entries(answers).slice(0, 8) as [RequestFaultCode, readonly [number, string]][];

test.each(requestFaults)(
  'a request that is refused with %s is answered with %j',
  async (name, [status, code]) => {
    const response = problemResponse(problemOf(new InvalidRequestError(name, 'The reason')), 'id-1');
    expect([response.status, await response.json()]).toMatchObject([
      status,
      {
        type: `urn:problem-type:wallet-service:${name}`,
        status,
        code,
        detail: 'The reason',
        instance: 'urn:uuid:id-1',
      },
    ]);
    const {
      'content-type': type,
      'cache-control': caching,
      'x-content-type-options': sniffing,
      ...others
    } = Object.fromEntries(response.headers);
    expect([type, caching, sniffing]).toEqual(['application/problem+json', 'no-store', 'nosniff']);
    expect(others).toEqual({
      'x-request-id': 'id-1',
      ...(name === 'body-too-large' && { connection: 'close' }),
    });
  },
);
