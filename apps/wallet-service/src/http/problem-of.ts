import {
  EntityNotFoundError,
  type ErrorCode,
  FrameworkError,
  type ShardIdentifier,
  ShardUnavailableError,
  TransientStorageError,
  UnknownShardError,
} from '@framework/core';

import { AuditUnavailableError } from '../security/audit-log.js';
import { UnauthorizedError } from '../security/authentication.js';
import { KeysUnavailableError } from '../security/key-set.js';
import { TooManyRequestsError } from '../security/rate-limits.js';
import { WalletError } from '../wallet/wallet-error.js';
import { InvalidRequestError, type ShapeIssue } from './parse-shape.js';
import { type ProblemBody, type ProblemCode, type ProblemKind, problemKinds } from './problem-kinds.js';
import { ShardBusyError } from './shard-capacity.js';
import { notConfigured, shardCauses } from './shard-causes.js';
import { requestIdHeader } from './wallet-app-env.js';

/** A problem as it is answered. */
export interface Problem extends ProblemKind {
  readonly name: ProblemCode;
  readonly code: string;
  readonly detail: string;
  readonly faults: readonly ShapeIssue[];
  /** Further headers of the answer. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** The client's view of each framework error. Errors that a client cannot cause are internal. */
const problemOfCode: Readonly<Record<ErrorCode, ProblemCode>> = {
  'stale-record': 'stale-record',
  'transient-storage': 'shard-unavailable',
  'shard-unavailable': 'shard-unavailable',
  'databases-closed': 'shard-unavailable',
  'commit-outcome-unknown': 'outcome-unknown',
  'cross-shard': 'internal',
  'entity-not-found': 'wallet-not-found',
  'access-denied': 'forbidden',
  'invalid-cursor': 'bad-request',
  'invalid-page-limit': 'bad-request',
  'invalid-idempotency-key': 'bad-request',
  'idempotency-key-reused': 'idempotency-key-reused',
  // Ids in requests are checked earlier. What remains is a new model's shard that is missing from this process's
  // configuration.
  'unknown-shard': 'shard-unavailable',
  'no-usable-shard': 'internal',
  'invalid-id': 'internal',
  'partial-commit': 'internal',
  'not-unique': 'internal',
  'shard-undetermined': 'internal',
  'constraint-violation': 'internal',
  'storage-failure': 'internal',
  'nested-transaction': 'internal',
  'transaction-over': 'internal',
  'unknown-action': 'internal',
  'nested-execution': 'internal',
  'plan-unavailable': 'internal',
  'plan-sealed': 'internal',
  'staged-twice': 'internal',
  'invalid-params': 'internal',
  'invalid-shard': 'internal',
  'invalid-model': 'internal',
  'invalid-configuration': 'internal',
  'unstorable-value': 'internal',
  'unreadable-event': 'internal',
  'unreadable-message': 'internal',
  'unknown-event-type': 'internal',
  'limit-exceeded': 'internal',
  'handler-timeout': 'internal',
  'retry-later': 'internal',
  'handler-names': 'internal',
  'handler-in-use': 'internal',
  'unknown-handler': 'internal',
  'history-changed': 'internal',
  'broker-unavailable': 'internal',
  'message-refused': 'internal',
  'operator-request': 'internal',
  'invariant-violation': 'internal',
};

/** Translates an error into the problem that the client is told. */
export function problemOf(error: unknown): Problem {
  const name = nameOf(error);
  const kind = problemKinds[name];
  return {
    ...kind,
    name,
    code: kind.code ?? name,
    detail: shardDetail(error) ?? kind.detail ?? (error instanceof Error ? error.message : kind.title),
    faults: faultsOf(error),
    ...(error instanceof UnauthorizedError && { headers: { 'www-authenticate': error.challenge } }),
    ...(error instanceof TooManyRequestsError && {
      retryAfterSeconds: error.retryAfterSeconds,
      headers: error.headers,
    }),
  };
}

/** Says which shard is unavailable and why, if the error is about that. */
function shardDetail(error: unknown): string | undefined {
  const known = FrameworkError.find(error);
  const why = known && whyUnavailable(known);
  if (why === undefined) return undefined;
  return `${sentence(why.shard.toString())} is unavailable: ${why.what}. Nothing was written; try again later.`;
}

function whyUnavailable(
  error: FrameworkError,
): { readonly shard: ShardIdentifier; readonly what: string } | undefined {
  if (error instanceof UnknownShardError) return { shard: error.shard, what: `it is ${notConfigured}` };
  if (error instanceof TransientStorageError) {
    const what = 'the connection to its database was lost, or the change conflicted with others';
    return { shard: error.shard, what };
  }
  if (!(error instanceof ShardUnavailableError)) return undefined;
  const { shard, kind } = error;
  if (kind === 'locked') return { shard, what: 'another session holds a lock on the row to be changed' };
  if (kind === 'damaged') return { shard, what: 'its disk has failed, or its data is damaged' };
  if (kind !== undefined) return { shard, what: shardCauses[kind].what };
  if (error instanceof ShardBusyError) return { shard, what: error.reason };
  return { shard, what: 'it is overloaded, or does not answer in time' };
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function faultsOf(error: unknown): readonly ShapeIssue[] {
  if (error instanceof InvalidRequestError) return error.faults;
  const known = FrameworkError.find(error);
  return known?.code === 'invalid-cursor' ? [{ pointer: 'query/cursor', message: known.message }] : [];
}

function nameOf(error: unknown): ProblemCode {
  if (error instanceof InvalidRequestError || error instanceof WalletError) return error.code;
  if (error instanceof UnauthorizedError) return 'unauthorized';
  if (error instanceof AuditUnavailableError) return 'audit-unavailable';
  if (error instanceof KeysUnavailableError) return 'keys-unavailable';
  if (error instanceof TooManyRequestsError) return error.code;
  const known = FrameworkError.find(error);
  if (known === undefined) return 'internal';
  if (known instanceof EntityNotFoundError && known.model === 'Transfer') return 'transfer-not-found';
  return problemOfCode[known.code];
}

/** The media type of problem details (RFC 9457). */
export const problemMediaType = 'application/problem+json';

/** Makes the HTTP response for a problem. */
export function problemResponse(problem: Problem, requestId: string): Response {
  const body: ProblemBody = {
    type: `urn:problem-type:wallet-service:${problem.name}`,
    title: problem.title,
    status: problem.status,
    detail: problem.detail,
    code: problem.code,
    instance: `urn:uuid:${requestId}`,
    ...(problem.faults.length > 0 && { errors: problem.faults }),
  };
  const headers = new Headers({
    'content-type': problemMediaType,
    'cache-control': 'no-store',
    // Others are added by the app, which input that never becomes a request does not reach.
    'x-content-type-options': 'nosniff',
    [requestIdHeader]: requestId,
    ...problem.headers,
  });
  if (problem.retryAfterSeconds !== undefined) headers.set('retry-after', String(problem.retryAfterSeconds));
  // The rest of an oversized body is not worth reading.
  if (problem.name === 'body-too-large') headers.set('connection', 'close');
  return new Response(JSON.stringify(body), { status: problem.status, headers });
}
