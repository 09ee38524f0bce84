import { EntityNotFoundError, type ErrorCode } from '@framework/core';
import { expect, test } from 'vitest';

import { testApi } from '../../test/test-api.js';
import { InvalidRequestError, type RequestFaultCode } from '../request/invalid-request-error.js';
import { type ProblemKind, frameworkProblems } from './framework-problems.js';
import { ProblemError } from './problem-error.js';
import { ProblemTable } from './problem-table.js';

const own = {
  'out-of-stock': { status: 409, title: 'There is not enough of it' },
  'order-not-found': { status: 404, title: 'The order does not exist' },
};
const problems = new ProblemTable('orders', own);

/** What a client is told about each error of the framework; about all others, it is 500 `internal`. */
const told: Partial<Record<ErrorCode, readonly [status: number, code: string]>> = {
  'stale-record': [409, 'stale-record'],
  'transient-storage': [503, 'shard-unavailable'],
  'shard-unavailable': [503, 'shard-unavailable'],
  'databases-closed': [503, 'shard-unavailable'],
  'unknown-shard': [503, 'shard-unavailable'],
  'commit-outcome-unknown': [504, 'outcome-unknown'],
  'entity-not-found': [404, 'not-found'],
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
  'unreadable-value',
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
    expect(problems.of(error)).toMatchObject({ status, code: expected });
    expect(problems.of(new Error('wrapped', { cause: error }))).toMatchObject({ status, code: expected });
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
  'precondition-failed': [412, 'precondition-failed'],
  'stale-record': [409, 'stale-record'],
  'idempotency-key-reused': [422, 'idempotency-key-reused'],
  'too-many-requests': [429, 'too-many-requests', '1'],
  'shard-unavailable': [503, 'shard-unavailable', '1'],
  'outcome-unknown': [504, 'outcome-unknown'],
  'audit-unavailable': [503, 'audit-unavailable', '1'],
  internal: [500, 'internal'],
};

test('every problem has the status, the code and the time for a retry that clients rely on', () => {
  const kinds = Object.entries<ProblemKind>(frameworkProblems).map(
    ([name, { status, code = name, retryAfterSeconds }]) => [
      name,
      [status, code, ...(retryAfterSeconds === undefined ? [] : [String(retryAfterSeconds)])],
    ],
  );
  expect(Object.fromEntries(kinds)).toEqual(answers);
});

const requestFaults = Object.entries(answers).slice(0, 8) as [RequestFaultCode, readonly [number, string]][];

test.each(requestFaults)(
  'a request that is refused with %s is answered with %j',
  async (name, [status, code]) => {
    const { response } = testApi().refuse(new InvalidRequestError(name, 'The reason'));
    const id = response.headers.get('x-request-id');
    expect([response.status, await response.json()]).toEqual([
      status,
      {
        type: `urn:problem-type:orders:${name}`,
        title: expect.any(String),
        status,
        code,
        detail: 'The reason',
        instance: `urn:uuid:${id}`,
      },
    ]);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'content-type': 'application/problem+json',
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
    });
  },
);

test("an application's error ends a request with the problem that its code names", () => {
  const error = Object.assign(new Error('3 are left'), { code: 'out-of-stock' });
  expect(problems.of(error)).toMatchObject({
    status: 409,
    code: 'out-of-stock',
    title: 'There is not enough of it',
    detail: '3 are left',
  });
});

test.each(['unauthorized', 'not-found', 'internal', 'ECONNREFUSED', 'toString', '__proto__'])(
  'an error of another library with the code %s is internal',
  (code) => {
    const problem = problems.of(Object.assign(new Error('secret'), { code }));
    expect(problem).toMatchObject({ status: 500, code: 'internal' });
    expect(problem.detail).not.toContain('secret');
  },
);

test.each([
  ['Order', 'order-not-found'],
  ['OrderLine', 'not-found'],
])('a missing %s is answered with %s', (model, code) => {
  expect(problems.of(new EntityNotFoundError(model, 'an-id'))).toMatchObject({ status: 404, code });
});

test('an error with headers, faults and a time for a retry passes them on', () => {
  const error = new ProblemError('too-many-requests', 'Wait', {
    headers: { ratelimit: 'r=0' },
    faults: [{ pointer: '#/a', message: 'is too much' }],
    retryAfterSeconds: 7,
  });
  expect(problems.of(error)).toMatchObject({
    status: 429,
    headers: { ratelimit: 'r=0' },
    faults: [{ pointer: '#/a', message: 'is too much' }],
    retryAfterSeconds: 7,
  });
});
