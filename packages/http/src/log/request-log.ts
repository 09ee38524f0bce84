import { FrameworkError, ShardIdentifier } from '@framework/core';

import type { Exchange } from '../exchange.js';
import type { HttpLog } from '../http-log.js';
import type { Problem } from '../problem/problem-table.js';
import { errorReason, errorStack } from './error-text.js';
import { RepeatedFailures } from './repeated-failures.js';

/** The messages of its lines. */
export const requestLogMessages = {
  request: 'request',
  unauthorized: 'unauthorized',
  requestRefused: 'request refused',
  requestsRefused: 'requests are refused',
  requestsServed: 'requests are served again',
  internalError: 'internal error',
} as const;

/** Without a refusal for so long, in milliseconds, the reasons of refusals are logged again when they come back. */
const quietMs = 60_000;
/** Requests are served again when one is served and none was refused for so long, in milliseconds. */
const settledMs = 3_000;

/** What refusals have in common: a shard that is away, or a code such as `keys-unavailable`. */
type Refused = { readonly shard: string } | { readonly code: string };

/**
 * Logs requests: never their bodies, queries, headers and callers.
 *
 * Refusals that are not the caller's have a line for each reason, and one with their number when requests are served again, however many
 * requests there are.
 */
export class RequestLog {
  readonly #log: HttpLog;
  readonly #refusals: RepeatedFailures<Refused>;
  /** Those by which writes are refused, perhaps only writes: reads that are served do not end them. */
  readonly #ofWrites = new Set<string>();

  constructor(log: HttpLog) {
    this.#log = log;
    this.#refusals = new RepeatedFailures(({ subject, count, durationMs }) => {
      this.#ofWrites.delete('shard' in subject ? subject.shard : subject.code);
      log.info({ ...subject, refusedCount: count, durationMs }, requestLogMessages.requestsServed);
    }, 'forget reasons');
  }

  /** Must be called with every request that has its answer. */
  answered(exchange: Exchange, status: number): void {
    const durationMs = Math.round(performance.now() - exchange.startedMs);
    this.#log.debug({ ...requestOf(exchange), status, durationMs }, requestLogMessages.request);
    if (this.#refusals.isAny && status < 400) this.#served(exchange);
  }

  /** Logs what operators need to know about a problem, with the request id that the client received. */
  problem(exchange: Exchange, { name, code, status }: Problem, error: unknown): void {
    const request = { ...requestOf(exchange), status };
    if (name === 'unauthorized') {
      const reason = error instanceof Error && 'reason' in error ? error.reason : errorReason(error);
      this.#log.info({ ...request, reason }, requestLogMessages.unauthorized);
    } else if (status === 403 || status === 429)
      this.#log.info({ ...request, code }, requestLogMessages.requestRefused);
    if (status < 500) return;
    const known = FrameworkError.find(error);
    const shard = (shardOf(known) ?? exchange.shards)?.join(', ');
    const details = { ...request, code: known?.code ?? code, shard, ...exchange.subject };
    if (status === 500) {
      this.#log.error({ ...details, stack: errorStack(error) }, requestLogMessages.internalError);
      return;
    }
    const reason = errorReason(error);
    const isOfShard = shard !== undefined && (name === 'shard-unavailable' || name === 'outcome-unknown');
    // Each unknown outcome names its own action.
    const kind = name === 'outcome-unknown' ? name : reason;
    if (this.#refused(isOfShard ? { shard } : { code: name }, exchange.isWrite, kind))
      this.#log.warn({ ...details, reason }, requestLogMessages.requestsRefused);
  }

  #refused(subject: Refused, isWrite: boolean, reason: string): boolean {
    const key = 'shard' in subject ? subject.shard : subject.code;
    if (isWrite) this.#ofWrites.add(key);
    return this.#refusals.failed(key, subject, reason, quietMs);
  }

  /** Ends the refusals because of what an answered request has used. */
  #served({ shards = [], principal, isWrite }: Exchange): void {
    const used = [
      ...shards.map(String),
      ...(principal === undefined ? [] : ['keys-unavailable']),
      ...(isWrite ? ['audit-unavailable'] : []),
    ];
    for (const key of used) if (isWrite || !this.#ofWrites.has(key)) this.#refusals.succeeded(key, settledMs);
  }
}

function requestOf({ requestId, served: { method, path } }: Exchange): {
  readonly requestId: string;
  readonly method: string;
  readonly path: string;
} {
  return { requestId, method, path };
}

/** The shard that an error is about. */
function shardOf(error: FrameworkError | undefined): readonly ShardIdentifier[] | undefined {
  return error !== undefined && 'shard' in error && error.shard instanceof ShardIdentifier
    ? [error.shard]
    : undefined;
}
